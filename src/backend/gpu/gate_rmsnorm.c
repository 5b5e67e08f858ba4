#include "backend/gpu/head_norm.h"

void k3_gpu_gate_rmsnorm(k3_backend *be, k3_ref y, k3_ref o, k3_ref w, k3_ref gate, int T, int H, int D, float eps)
{
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_GATE_RMSNORM);
    uint32_t rows = (uint32_t)T * (uint32_t)H;
    uint64_t row = 4 * (uint64_t)D, bytes = rows * row;
    struct k3_head_norm_args args = {k3_gpu_write(gpu, y, bytes),
                                     k3_gpu_read(gpu, o, bytes),
                                     k3_gpu_read(gpu, w, row),
                                     k3_gpu_read(gpu, gate, bytes),
                                     rows,
                                     (uint32_t)D,
                                     eps,
                                     1.0f};
    k3_gpu_head_norm(gpu, K3_GPU_SHADER_gate_rmsnorm, &args);
    k3_gpu_end(gpu, 0);
}
