#include "backend/args/rmsnorm.h"
#include "backend/gpu/elementwise.h"

void k3_gpu_rmsnorm(k3_backend *be, k3_ref y, k3_ref x, k3_ref w, int T, int C, int y_stride, int x_stride, float eps)
{
    enum { MAX_C = 8192 };
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_RMSNORM);
    uint64_t y_row = 4 * (uint64_t)y_stride, x_row = 4 * (uint64_t)x_stride, row = 4 * (uint64_t)C, before = T > 0 ? (uint64_t)T - 1 : 0;
    if (C > MAX_C)
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "rmsnorm: rows of %d channels, at most %d wanted", C, MAX_C);
    struct k3_rmsnorm_args args = {k3_gpu_write(gpu, y, before * y_row + row),
                                   k3_gpu_read(gpu, x, before * x_row + row),
                                   k3_gpu_read(gpu, w, row),
                                   y_row,
                                   x_row,
                                   (uint32_t)C,
                                   eps};
    uint32_t aligned = k3_gpu_aligned(args.y | args.x | args.w | row | (T > 1 ? y_row | x_row : 0));
    k3_gpu_dispatch(gpu, K3_GPU_SHADER_rmsnorm, &aligned, 1, &args, sizeof args, (uint64_t)T, 1, 1);
    k3_gpu_end(gpu, 0);
}
