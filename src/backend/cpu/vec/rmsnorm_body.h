/* rmsnorm on vectors; include after vec_sums.h. */
#include "backend/cpu/kernels.h"

#include <math.h>

void K3_KERNEL(rmsnorm)(float *y, const float *x, const float *w, int C, int64_t y_stride, int64_t x_stride, float eps, int64_t first,
                        int64_t last)
{
    for (int64_t t = first; t < last; t++) {
        const float *from = x + t * x_stride;
        float *to = y + t * y_stride;
        vf inverse = vf_set((float)(1.0 / sqrt(k3_square_sum(from, C) / C + (double)eps)));
        for (int c = 0; c < C; c += VF_LANES)
            vf_store_upto(to + c, vf_mul(vf_mul(vf_load_upto(from + c, C - c), inverse), vf_load_upto(w + c, C - c)), C - c);
    }
}
