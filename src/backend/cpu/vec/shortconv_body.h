/* shortconv on vectors of channels; include after a vec header and vec_math.h. */
#include "backend/cpu/kernels.h"

/* tap[j] holds w[c, j] for the vector's channels; w points to the first of them, `left` channels exist. */
static void load_taps(vf *tap, const float *w, int width, int left)
{
    for (int j = 0; j < width; j++) {
        float some[VF_LANES] = {0};
        for (int i = 0; left < VF_LANES && i < left; i++)
            some[i] = w[i * width + j];
        tap[j] = left < VF_LANES ? vf_load(some) : vf_load_strided(w + j, width);
    }
}

static inline __attribute__((always_inline)) void channels(float *y, const float *u, const float *w, float *window, int n, int C,
                                                           const int width, int first, int last)
{
    for (int c = first; c < last; c += VF_LANES) {
        int left = last - c;
        vf tap[K3_MAX_CONV], past[K3_MAX_CONV];
        load_taps(tap, w + (int64_t)c * width, width, left);
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

/* K3's width is compiled with its loops unrolled; the order of a sum is that of every width. */
void K3_KERNEL(shortconv)(float *y, const float *u, const float *w, float *window, int n, int C, int width, int first, int last)
{
    if (width == 4)
        channels(y, u, w, window, n, C, 4, first, last);
    else
        channels(y, u, w, window, n, C, width, first, last);
}
