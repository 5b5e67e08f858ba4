/* shortconv on vectors of channels; include after a vec header and vec_math.h. */
#include "backend/cpu/kernels.h"

#include <string.h>

/* Channels that go through the rows together: rows of them, and their taps, stay in the first-level cache. */
enum { SIDE = 256 };

/* tap[j][i] = w[i, j] for n channels. */
static inline __attribute__((always_inline)) void load_taps(float (*tap)[SIDE], const float *w, const int width, int n)
{
    int first = 0;
    for (; width == 4 && first + VF_LANES <= n; first += VF_LANES) {
        vf four[4];
        vf_load_fourths(four, w + (int64_t)first * 4);
        for (int j = 0; j < 4; j++)
            vf_store(&tap[j][first], four[j]);
    }
    for (int j = 0; j < width; j++) {
        int i = first;
        for (; i + VF_LANES <= n; i += VF_LANES)
            vf_store(&tap[j][i], vf_load_strided(w + (int64_t)i * width + j, width));
        for (; i < n; i++)
            tap[j][i] = w[(int64_t)i * width + j];
    }
}

/* A row of inputs, counted from the first of the run; those before it are in the window. */
static inline const float *input(const float *u, const float *window, int64_t t, int C, int width)
{
    return t < 0 ? window + (width - 1 + t) * C : u + t * C;
}

static inline __attribute__((always_inline)) void channels(float *y, const float *u, const float *w, float *window, int n, int C,
                                                           const int width, int first, int count)
{
    float tap[K3_MAX_CONV][SIDE];
    const float *from[K3_MAX_CONV];
    load_taps(tap, w + (int64_t)first * width, width, count);
    for (int64_t t = 0; t < n; t++) {
        for (int j = 0; j < width; j++)
            from[j] = input(u, window, t - width + 1 + j, C, width) + first;
        for (int c = 0; c < count; c += VF_LANES) {
            vf sum = vf_zero();
            for (int j = 0; j < width; j++)
                sum = vf_fma(vf_load_upto(&tap[j][c], count - c), vf_load_upto(from[j] + c, count - c), sum);
            vf_store_upto(y + t * C + first + c, vf_mul(sum, vf_sigmoid(sum)), count - c);
        }
    }
    for (int j = 0; j < width - 1; j++)
        memmove(window + (int64_t)j * C + first, input(u, window, n - width + 1 + j, C, width) + first, (size_t)count * sizeof *window);
}

/* K3's width is compiled with its loops unrolled; the order of a sum is that of every width. */
void K3_KERNEL(shortconv)(float *y, const float *u, const float *w, float *window, int n, int C, int width, int first, int last)
{
    for (int c = first; c < last; c += SIDE) {
        int count = last - c < SIDE ? last - c : SIDE;
        if (width == 4)
            channels(y, u, w, window, n, C, 4, c, count);
        else
            channels(y, u, w, window, n, C, width, c, count);
    }
}
