#ifndef K3_TESTS_CKPT_OPEN_HELPERS_H
#define K3_TESTS_CKPT_OPEN_HELPERS_H

#include "ckpt/ckpt.h"
#include "support/tiny_checkpoint.h"

/* Opens or fails the test with the message. */
k3_ckpt *open_folder(const char *folder);
void assert_opens(const char *folder);
/* Opening must fail with this status and a message that holds every needle. */
void check_refusal(const char *folder, k3_status status, const char *const *needles);
#define assert_refused(folder, status, ...) check_refusal(folder, status, (const char *const[]){__VA_ARGS__, NULL})

/* Writes the checkpoint to a fresh folder, frees the checkpoint, and checks. */
void assert_tiny_opens(tiny_checkpoint *tiny);
void check_tiny_refusal(tiny_checkpoint *tiny, k3_status status, const char *const *needles);
#define assert_tiny_refused(tiny, status, ...) check_tiny_refusal(tiny, status, (const char *const[]){__VA_ARGS__, NULL})

#endif
