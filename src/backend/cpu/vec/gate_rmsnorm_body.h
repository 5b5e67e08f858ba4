/* gate_rmsnorm on vectors; include after vec_sums.h and vec_math.h. */
#include "backend/cpu/kernels.h"

#include <math.h>

void K3_KERNEL(gate_rmsnorm)(float *y, const float *o, const float *w, const float *gate, int D, float eps, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        const float *from = o + i * D;
        vf inverse = vf_set((float)(1 / sqrt(k3_square_sum(from, D) / D + (double)eps)));
        for (int d = 0; d < D; d += VF_LANES) {
            vf normed = vf_mul(vf_mul(vf_load_upto(from + d, D - d), inverse), vf_load_upto(w + d, D - d));
            vf_store_upto(y + i * D + d, vf_mul(normed, vf_sigmoid(vf_load_upto(gate + i * D + d, D - d))), D - d);
        }
    }
}
