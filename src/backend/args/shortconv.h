/* Arguments of shortconv. */
#ifndef K3_BACKEND_ARGS_SHORTCONV_H
#define K3_BACKEND_ARGS_SHORTCONV_H

#include "backend/args/runs.h"

struct k3_shortconv_args {
    uint64_t y, u, w; /* addresses */
    k3_runs_args runs;
    uint32_t C, unused;
};
K3_ARGS_SIZE(k3_shortconv_args, 56)

#endif
