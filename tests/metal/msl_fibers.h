/* Runs the threads of threadgroups as fibers. Internal to the executor: msl.h is what tests use. */
#ifndef K3_TESTS_METAL_MSL_FIBERS_H
#define K3_TESTS_METAL_MSL_FIBERS_H

#include <stddef.h>
#include <stdint.h>

enum { MSL_MAX_THREADS = 1024, MSL_MAX_WIDTH = 64 };

/* Attributes of a group and of a thread in it, laid out as shim/msl_runtime.h has them. */
typedef struct msl_group_ids {
    uint32_t groups[3], threads[3], group[3], width, simdgroups;
} msl_group_ids;

typedef struct msl_thread_ids {
    uint32_t position[3], index, lane, simdgroup;
} msl_thread_ids;

typedef void msl_thunk(void *const *buffers, const msl_group_ids *group, const msl_thread_ids *thread);

typedef struct msl_launch {
    const char *name;
    msl_thunk *thunk;
    void *const *buffers;
    char *memory; /* of a threadgroup */
    size_t memory_bytes;
    uint32_t groups[3], threads[3], width, seed;
} msl_launch;

/* 0, or -1 and a message. One launch at a time. */
int msl_fibers_run(const msl_launch *launch, char *message, size_t message_size);
/* The launch that runs ends here and now; the caller goes on with the stack that called msl_fibers_run(). */
void msl_fibers_abandon(void);

#endif
