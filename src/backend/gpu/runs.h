/* The host's half of glsl/runs.glsl. */
#ifndef K3_BACKEND_GPU_RUNS_H
#define K3_BACKEND_GPU_RUNS_H

#include "backend/args/runs.h"
#include "backend/gpu/gpu.h"

/* Declares state_bytes of each run's state as written by the next dispatch. */
static inline struct k3_runs_args k3_gpu_runs_args(k3_gpu *gpu, const k3_run *runs, int n_runs, uint64_t state_bytes)
{
    struct k3_runs_args args = {0, 0, 0, 0};
    if (n_runs == 1) {
        args.state = k3_gpu_write(gpu, runs->state, state_bytes);
        args.row = (uint32_t)runs->row;
        args.n = (uint32_t)runs->n;
    } else {
        args.table = k3_gpu_runs(gpu, runs, n_runs, state_bytes, 1);
    }
    return args;
}

/* Rows of the activations up to the last that a run has. */
static inline uint64_t k3_gpu_end_row(const k3_run *runs, int n_runs)
{
    uint64_t end = 0;
    for (int i = 0; i < n_runs; i++)
        if ((uint64_t)runs[i].row + (uint64_t)runs[i].n > end)
            end = (uint64_t)runs[i].row + (uint64_t)runs[i].n;
    return end;
}

static inline uint32_t k3_gpu_longest(const k3_run *runs, int n_runs)
{
    uint32_t longest = 0;
    for (int i = 0; i < n_runs; i++)
        if ((uint32_t)runs[i].n > longest)
            longest = (uint32_t)runs[i].n;
    return longest;
}

#endif
