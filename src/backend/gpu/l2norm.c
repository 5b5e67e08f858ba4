#include "backend/gpu/head_norm.h"

void k3_gpu_l2norm(k3_backend *be, k3_ref y, k3_ref x, int T, int H, int D, float eps, float scale)
{
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_L2NORM);
    uint32_t rows = (uint32_t)T * (uint32_t)H;
    uint64_t bytes = 4 * (uint64_t)rows * (uint64_t)D;
    struct k3_head_norm_args args = {k3_gpu_write(gpu, y, bytes), k3_gpu_read(gpu, x, bytes), 0, 0, rows, (uint32_t)D, eps, scale};
    k3_gpu_head_norm(gpu, K3_GPU_SHADER_l2norm, &args);
    k3_gpu_end(gpu, 0);
}
