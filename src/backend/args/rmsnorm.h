/* Arguments of rmsnorm. */
#ifndef K3_BACKEND_ARGS_RMSNORM_H
#define K3_BACKEND_ARGS_RMSNORM_H

#include "backend/args/types.h"

struct k3_rmsnorm_args {
    uint64_t y, x, w;      /* addresses */
    uint64_t y_row, x_row; /* bytes from row to row */
    uint32_t C;
    float eps;
};
K3_ARGS_SIZE(k3_rmsnorm_args, 48)

#endif
