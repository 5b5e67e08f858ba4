/* Arguments of l2norm and gate_rmsnorm. */
#ifndef K3_BACKEND_ARGS_HEAD_NORM_H
#define K3_BACKEND_ARGS_HEAD_NORM_H

#include "backend/args/types.h"

struct k3_head_norm_args {
    uint64_t y, x;    /* addresses of [rows, D] */
    uint64_t w, gate; /* of [D] and [rows, D]; gate_rmsnorm only */
    uint32_t rows, D; /* rows: T * H */
    float eps, scale; /* scale: l2norm only */
};
K3_ARGS_SIZE(k3_head_norm_args, 48)

#endif
