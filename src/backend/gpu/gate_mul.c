#include "backend/gpu/elementwise.h"

void k3_gpu_gate_mul(k3_backend *be, k3_ref y, k3_ref x, k3_ref gate, int64_t n)
{
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_GATE_MUL);
    k3_gpu_elementwise(gpu, K3_GPU_SHADER_gate_mul, y, x, gate, n, 0, 0);
    k3_gpu_end(gpu, 0);
}
