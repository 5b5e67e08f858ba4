#include "backend/gpu/elementwise.h"

#include <math.h>

void k3_gpu_situ_glu(k3_backend *be, k3_ref y, k3_ref g, k3_ref u, int64_t n, float b1, float b2)
{
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_SITU_GLU);
    k3_gpu_elementwise(gpu, K3_GPU_SHADER_situ_glu, y, g, u, n, b1, isinf(b2) ? 0 : b2);
    k3_gpu_end(gpu, 0);
}
