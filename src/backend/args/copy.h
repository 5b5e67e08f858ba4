/* Arguments of a copy inside device memory. */
#ifndef K3_BACKEND_ARGS_COPY_H
#define K3_BACKEND_ARGS_COPY_H

#include "backend/args/types.h"

struct k3_copy_args {
    uint64_t to, from; /* multiples of 16 */
    uint32_t n, pad;   /* in 16 bytes */
};
K3_ARGS_SIZE(k3_copy_args, 24)

#endif
