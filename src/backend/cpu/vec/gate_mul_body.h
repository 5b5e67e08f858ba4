/* gate_mul on vectors; include after a vec header and vec_math.h. */
#include "backend/cpu/kernels.h"

void K3_KERNEL(gate_mul)(float *y, const float *x, const float *gate, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF_LANES)
        vf_store_upto(y + i, vf_mul(vf_load_upto(x + i, n - i), vf_sigmoid(vf_load_upto(gate + i, n - i))), n - i);
}
