/* situ_glu on vectors; include after a vec header and vec_math.h. */
#include "backend/cpu/kernels.h"

#include <math.h>

void K3_KERNEL(situ_glu)(float *y, const float *g, const float *u, int64_t n, float b1, float b2)
{
    int capped = !isinf(b2);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        vf gate = vf_load_upto(g + i, n - i), up = vf_load_upto(u + i, n - i);
        gate = vf_mul(vf_mul(vf_set(b1), vf_tanh(vf_div(gate, vf_set(b1)))), vf_sigmoid(gate));
        if (capped)
            up = vf_mul(vf_set(b2), vf_tanh(vf_div(up, vf_set(b2))));
        vf_store_upto(y + i, vf_mul(gate, up), n - i);
    }
}
