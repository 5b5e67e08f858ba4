/* kda_gate on vectors; include after a vec header and vec_math.h. */
#include "backend/cpu/kernels.h"

#include <math.h>

void K3_KERNEL(kda_gate)(float *alpha, float *g, float *beta, const float *z, const float *b, const float *a_log, const float *dt_bias,
                         int H, int D, float lower, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        int h = (int)(i % H);
        vf rate = vf_set(expf(a_log[h]));
        for (int d = 0; d < D; d += VF_LANES) {
            vf shifted = vf_add(vf_load_upto(z + i * D + d, D - d), vf_load_upto(dt_bias + (int64_t)h * D + d, D - d));
            vf v = vf_mul(vf_set(lower), vf_sigmoid(vf_mul(rate, shifted)));
            if (g)
                vf_store_upto(g + i * D + d, v, D - d);
            if (alpha)
                vf_store_upto(alpha + i * D + d, vf_exp(v), D - d);
        }
        beta[i] = (float)(1 / (1 + exp(-(double)b[i])));
    }
}
