/* Arguments of attnres_mix. */
#ifndef K3_BACKEND_ARGS_ATTNRES_MIX_H
#define K3_BACKEND_ARGS_ATTNRES_MIX_H

#include "backend/args/types.h"

struct k3_attnres_mix_args {
    uint64_t y, s;    /* addresses */
    uint64_t sources; /* address of n_src addresses */
    uint32_t n_src, C;
    float eps;
    uint32_t pad;
};
K3_ARGS_SIZE(k3_attnres_mix_args, 40)

#endif
