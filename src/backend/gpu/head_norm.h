/* The host's half of glsl/head_norm.glsl. */
#ifndef K3_BACKEND_GPU_HEAD_NORM_H
#define K3_BACKEND_GPU_HEAD_NORM_H

#include "backend/args/head_norm.h"
#include "backend/gpu/elementwise.h"

/* Dispatches a kernel over args->rows vectors; the kernel loops over those that the workgroups do not reach at once. */
static inline void k3_gpu_head_norm(k3_gpu *gpu, k3_gpu_shader shader, const struct k3_head_norm_args *args)
{
    enum { LANES_A_GROUP = 128, GROUPS_A_CORE = 64 };
    const k3_gpu_limits *limits = k3_gpu_limits_of(gpu);
    uint32_t width = limits->subgroup && limits->subgroup < LANES_A_GROUP ? limits->subgroup : LANES_A_GROUP;
    uint64_t groups = k3_gpu_groups(args->rows, LANES_A_GROUP / width), most = (uint64_t)GROUPS_A_CORE * limits->cores;
    uint32_t aligned = k3_gpu_aligned(args->y | args->x | args->w | args->gate | 4 * (uint64_t)args->D);
    k3_gpu_dispatch(gpu, shader, &aligned, 1, args, sizeof *args, groups < most ? groups : most, 1, 1);
}

#endif
