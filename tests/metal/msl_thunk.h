/* Reads a kernel's parameter list. */
#ifndef K3_TESTS_METAL_MSL_THUNK_H
#define K3_TESTS_METAL_MSL_THUNK_H

#include <stdint.h>
#include <stdio.h>

/* Writes to `out` a function `msl_thunk` that calls kernel `entry` of `source` with what an msl_launch has, and sets bit i of *buffers for
 * each parameter at [[buffer(i)]]. 0, or -1 and a message. */
int msl_write_thunk(FILE *out, const char *source, const char *entry, uint32_t *buffers, char *message, size_t message_size);

#endif
