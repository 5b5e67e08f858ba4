/* shortconv on vectors of channels; include after a vec header and vec_math.h. */
#include "backend/cpu/kernels.h"

void K3_KERNEL(shortconv)(float *y, const float *u, const float *w, float *window, int n, int C, int width, int first, int last)
{
    for (int c = first; c < last; c += VF_LANES) {
        int left = last - c;
        vf tap[K3_MAX_CONV], past[K3_MAX_CONV];
        for (int j = 0; j < width; j++) {
            float taps[VF_LANES] = {0};
            for (int i = 0; i < VF_LANES && i < left; i++)
                taps[i] = w[(int64_t)(c + i) * width + j];
            tap[j] = vf_load(taps);
        }
        for (int j = 0; j < width - 1; j++)
            past[j] = vf_load_upto(window + (int64_t)j * C + c, left);
        for (int64_t t = 0; t < n; t++) {
            past[width - 1] = vf_load_upto(u + t * C + c, left);
            vf sum = vf_zero();
            for (int j = 0; j < width; j++)
                sum = vf_fma(tap[j], past[j], sum);
            vf_store_upto(y + t * C + c, vf_mul(sum, vf_sigmoid(sum)), left);
            for (int j = 0; j < width - 1; j++)
                past[j] = past[j + 1];
        }
        for (int j = 0; j < width - 1; j++)
            vf_store_upto(window + (int64_t)j * C + c, past[j], left);
    }
}
