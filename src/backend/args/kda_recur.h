/* Arguments of kda_recur. */
#ifndef K3_BACKEND_ARGS_KDA_RECUR_H
#define K3_BACKEND_ARGS_KDA_RECUR_H

#include "backend/args/runs.h"

struct k3_kda_recur_args {
    uint64_t o, q, k, v, decay, beta; /* addresses; decay: alpha, or its logarithm g */
    k3_runs_args runs;
    uint32_t H, decay_is_log;
};
K3_ARGS_SIZE(k3_kda_recur_args, 80)

#endif
