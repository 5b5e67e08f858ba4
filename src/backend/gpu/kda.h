/* What kda_recur and kda_chunk share on the host. */
#ifndef K3_BACKEND_GPU_KDA_H
#define K3_BACKEND_GPU_KDA_H

#include "backend/gpu/elementwise.h"
#include "backend/gpu/runs.h"

typedef struct k3_kda {
    k3_ref o, q, k, v, decay, beta; /* as the contract has them */
    int decay_is_log;               /* decay is g = log(alpha) */
    int H, D;
} k3_kda;

enum { K3_GPU_KDA_RUNS = 64 }; /* sequences in one call */

/* Records the recurrence; kda_chunk gives it the runs that are too short for chunks. */
void k3_gpu_recur(k3_gpu *gpu, const k3_kda *x, const k3_run *runs, int n_runs);

#endif
