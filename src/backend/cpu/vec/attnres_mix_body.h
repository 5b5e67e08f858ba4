/* attnres_mix on vectors; include after a vec header. Scores and softmax are double: margins between sources are often small, and the
 * mixture is the input of a whole sub-layer. */
#include "backend/cpu/kernels.h"

#include <math.h>

/* (sum_c x[c] s[c]) / sqrt(mean_c x[c]^2 + eps) */
static double score_of(const float *x, const float *s, int C, float eps)
{
    vd dot = vd_zero(), square = vd_zero();
    for (int c = 0; c < C; c += VF_LANES) {
        vf v = vf_load_upto(x + c, C - c);
        dot = vd_fma(v, vf_load_upto(s + c, C - c), dot);
        square = vd_fma(v, v, square);
    }
    return vd_sum(dot) / sqrt(vd_sum(square) / C + (double)eps);
}

void K3_KERNEL(attnres_mix)(float *y, const float *const *src, int n_src, const float *s, int C, float eps, int64_t first, int64_t last)
{
    for (int64_t t = first; t < last; t++) {
        double w[K3_MAX_SOURCES], largest = -INFINITY, total = 0;
        float share[K3_MAX_SOURCES];
        for (int j = 0; j < n_src; j++) {
            w[j] = score_of(src[j] + t * C, s, C, eps);
            largest = fmax(largest, w[j]);
        }
        for (int j = 0; j < n_src; j++)
            total += w[j] = exp(w[j] - largest);
        for (int j = 0; j < n_src; j++)
            share[j] = (float)(w[j] / total);
        for (int c = 0; c < C; c += VF_LANES) {
            vf sum = vf_zero();
            for (int j = 0; j < n_src; j++)
                sum = vf_fma(vf_set(share[j]), vf_load_upto(src[j] + t * C + c, C - c), sum);
            vf_store_upto(y + t * C + c, sum, C - c);
        }
    }
}
