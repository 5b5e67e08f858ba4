/* Arguments of add, gate_mul and situ_glu: y[i] of a[i] and b[i], n values. */
#ifndef K3_BACKEND_ARGS_ELEMENTWISE_H
#define K3_BACKEND_ARGS_ELEMENTWISE_H

#include "backend/args/types.h"

struct k3_elementwise_args {
    uint64_t y, a, b; /* addresses */
    uint32_t n;
    float b1, b2; /* situ_glu: the caps; b2 = 0: none */
    uint32_t pad;
};
K3_ARGS_SIZE(k3_elementwise_args, 40)

#endif
