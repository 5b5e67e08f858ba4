/* A backend that poses as a device: any other backend, usually the CPU, with memory that ends when the test says so and with failures on
 * demand. Its name begins with "p"; every other name opens what it names. "auto" opens it too. */
#ifndef K3_TESTS_ENGINE_POSING_H
#define K3_TESTS_ENGINE_POSING_H

#include "backend/backend.h"

enum { POSING_DEVICES = 16 };

/* What devices do, and what all have done since posing_reset. */
typedef struct posing_state {
    const char *inner;               /* backend behind the pose; NULL: the CPU */
    uint64_t budget[POSING_DEVICES]; /* of the n-th device that is opened; 0: none is told */
    long fail_alloc;                 /* the n-th allocation fails, n > 0; 0: none */
    int fail_all_allocs;             /* and so do all after it */
    long lose_at, lose_again_at;     /* a device is lost at the n-th wait; 0: never */
    long full_at;                    /* memory runs out in use at the n-th wait, once; 0: never */
    int refuse_after_loss;           /* a lost device cannot be opened again */
    int n_open;                      /* devices that are open */
    long n_opened, n_allocs, n_waits, n_downloads, n_losses;
    uint64_t used_before_experts; /* bytes in use on the first device when its first slots were made */
    long experts_alloc;           /* which allocation that was */
} posing_state;

extern posing_state posing;

/* All but `inner` as at the start. */
void posing_reset(void);
/* From now on the software Vulkan device is behind the pose, with 1, or the CPU again. 0: it is not here. */
int posing_on_vulkan(int on);
k3_status posing_open(k3_backend **out, const k3_backend_config *config, char *note, size_t note_size, k3_error *err);

#endif
