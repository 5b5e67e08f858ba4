#include "backend/gpu/elementwise.h"

void k3_gpu_add(k3_backend *be, k3_ref y, k3_ref a, k3_ref b, int64_t n)
{
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_ADD);
    k3_gpu_elementwise(gpu, K3_GPU_SHADER_add, y, a, b, n, 0, 0);
    k3_gpu_end(gpu, 0);
}
