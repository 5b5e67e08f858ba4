/* l2norm on vectors; include after vec_sums.h. */
#include "backend/cpu/kernels.h"

#include <math.h>

void K3_KERNEL(l2norm)(float *y, const float *x, int D, float eps, float scale, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        vf factor = vf_set((float)((double)scale / sqrt(k3_square_sum(x + i * D, D) + (double)eps)));
        for (int d = 0; d < D; d += VF_LANES)
            vf_store_upto(y + i * D + d, vf_mul(vf_load_upto(x + i * D + d, D - d), factor), D - d);
    }
}
