#include "backend/args/moe.h"
#include "backend/gpu/gpu.h"

void k3_gpu_moe_sum(k3_backend *be, k3_ref y, k3_ref slots, k3_ref weights, int T, int K, int L)
{
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_MOE_SUM);
    uint64_t rows = (uint64_t)T, row_bytes = 4 * (uint64_t)L;
    struct k3_moe_sum_args args = {
        .y = k3_gpu_write(gpu, y, rows * row_bytes),
        .slots = k3_gpu_read(gpu, slots, rows * (uint64_t)K * row_bytes),
        .weights = k3_gpu_read(gpu, weights, 4 * rows * (uint64_t)K),
        .K = (uint32_t)K,
        .L = (uint32_t)L,
    };
    if (T > 0 && L > 0)
        k3_gpu_dispatch(gpu, K3_GPU_SHADER_moe_sum, NULL, 0, &args, sizeof args, k3_gpu_groups((uint64_t)L, 256), (uint32_t)T, 1);
    k3_gpu_end(gpu, 0);
}
