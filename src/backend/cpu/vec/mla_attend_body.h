/* mix and softmax on vectors; include after a vec header and vec_math.h. Each element of mix is one chain of fused multiply-adds over s
 * ascending, whatever the block of rows and columns it is computed in. */
#include "backend/cpu/kernels.h"

#include <math.h>
#include <string.h>

/* Rows of a block, and vectors of a block of a single row: as many sums, and longer runs of memory. */
enum { MIX_ROWS = 4, MIX_WIDE = MIX_ROWS * VF_MIX_VECTORS };

static inline __attribute__((always_inline)) vf load_row(k3_type type, const void *v, int64_t at, int64_t left)
{
    if (type == K3_F32)
        return vf_load_upto((const float *)v + at, left);
    if (type == K3_INT8) {
        signed char some[VF_LANES] = {0};
        if (left >= VF_LANES)
            return vf_load_int8((const signed char *)v + at);
        memcpy(some, (const signed char *)v + at, (size_t)left);
        return vf_load_int8(some);
    }
    const uint16_t *from = (const uint16_t *)v + at;
    if (left >= VF_LANES)
        return vf_load_bf16(from);
    uint16_t some[VF_LANES] = {0};
    memcpy(some, from, (size_t)left * sizeof *some);
    return vf_load_bf16(some);
}

/* y[i, c ..] for `rows` rows and `n_vectors` vectors of columns, of which `left` columns exist. */
static inline __attribute__((always_inline)) void mix_block(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride,
                                                            const void *v, int64_t at, int64_t v_stride, int n, int64_t left,
                                                            const int rows, const int n_vectors, const k3_type type)
{
    vf sum[MIX_WIDE];
    for (int i = 0; i < rows * n_vectors; i++)
        sum[i] = vf_zero();
    for (int s = 0; s < n; s++)
        for (int j = 0; j < n_vectors; j++) {
            vf row = load_row(type, v, at + s * v_stride + j * VF_LANES, n_vectors > 1 ? VF_LANES : left);
            for (int i = 0; i < rows; i++)
                sum[i * n_vectors + j] = vf_fma(vf_set(p[i * p_stride + s]), row, sum[i * n_vectors + j]);
        }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < n_vectors; j++) {
            float *to = y + i * y_stride + j * VF_LANES;
            int64_t n_left = n_vectors > 1 ? VF_LANES : left;
            vf result = sum[i * n_vectors + j];
            if (keep)
                result = vf_fma(vf_set(keep[i]), vf_load_upto(to, n_left), result);
            vf_store_upto(to, result, n_left);
        }
}

static inline __attribute__((always_inline)) void mix_rows(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride,
                                                           const void *v, int64_t v_stride, int n, int cols, const int rows,
                                                           const k3_type type)
{
    int c = 0;
    for (; rows == 1 && c + MIX_WIDE * VF_LANES <= cols; c += MIX_WIDE * VF_LANES)
        mix_block(y + c, y_stride, keep, p, p_stride, v, c, v_stride, n, VF_LANES, 1, MIX_WIDE, type);
    for (; c + VF_MIX_VECTORS * VF_LANES <= cols; c += VF_MIX_VECTORS * VF_LANES)
        mix_block(y + c, y_stride, keep, p, p_stride, v, c, v_stride, n, VF_LANES, rows, VF_MIX_VECTORS, type);
    for (; c < cols; c += VF_LANES)
        mix_block(y + c, y_stride, keep, p, p_stride, v, c, v_stride, n, cols - c, rows, 1, type);
}

static inline __attribute__((always_inline)) void mix(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride,
                                                      const void *v, int64_t v_stride, int rows, int n, int cols, const k3_type type)
{
    int i = 0;
    for (; i + MIX_ROWS <= rows; i += MIX_ROWS)
        mix_rows(y + i * y_stride, y_stride, keep ? keep + i : NULL, p + i * p_stride, p_stride, v, v_stride, n, cols, MIX_ROWS, type);
    for (; i < rows; i++)
        mix_rows(y + i * y_stride, y_stride, keep ? keep + i : NULL, p + i * p_stride, p_stride, v, v_stride, n, cols, 1, type);
}

void K3_KERNEL(mix_f32)(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride, const void *v, int64_t v_stride,
                        int rows, int n, int cols)
{
    mix(y, y_stride, keep, p, p_stride, v, v_stride, rows, n, cols, K3_F32);
}

void K3_KERNEL(mix_bf16)(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride, const void *v, int64_t v_stride,
                         int rows, int n, int cols)
{
    mix(y, y_stride, keep, p, p_stride, v, v_stride, rows, n, cols, K3_BF16);
}

void K3_KERNEL(mix_int8)(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride, const void *v, int64_t v_stride,
                         int rows, int n, int cols)
{
    mix(y, y_stride, keep, p, p_stride, v, v_stride, rows, n, cols, K3_INT8);
}

/* The same with each chain in double, rounded once: exact mode. */
static inline __attribute__((always_inline)) void mix_exact(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride,
                                                            const void *v, int64_t v_stride, int rows, int n, int cols, const k3_type type)
{
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < cols; c += VF_LANES) {
            vd sum = vd_zero();
            if (keep)
                sum = vd_fma(vf_set(keep[i]), vf_load_upto(y + i * y_stride + c, cols - c), sum);
            for (int s = 0; s < n; s++)
                sum = vd_fma(vf_set(p[i * p_stride + s]), load_row(type, v, s * v_stride + c, cols - c), sum);
            vf_store_upto(y + i * y_stride + c, vd_round(sum), cols - c);
        }
}

void K3_KERNEL(mix_f32_exact)(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride, const void *v,
                              int64_t v_stride, int rows, int n, int cols)
{
    mix_exact(y, y_stride, keep, p, p_stride, v, v_stride, rows, n, cols, K3_F32);
}

void K3_KERNEL(mix_bf16_exact)(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride, const void *v,
                               int64_t v_stride, int rows, int n, int cols)
{
    mix_exact(y, y_stride, keep, p, p_stride, v, v_stride, rows, n, cols, K3_BF16);
}

/* Scores beyond n are set to -INFINITY, which neither the maximum nor the sum notices; *max starts there too, and exp(-inf) is 0. */
float K3_KERNEL(softmax)(float *p, int n, float scale, float *max, double *sum)
{
    vf score[K3_ATTEND_ROWS / VF_LANES], total = vf_zero(), largest = vf_set(*max);
    float padded[VF_LANES];
    int vectors = (n + VF_LANES - 1) / VF_LANES, left = n - (vectors - 1) * VF_LANES;
    for (int i = 0; i < VF_LANES; i++)
        padded[i] = i < left ? p[(vectors - 1) * VF_LANES + i] * scale : -INFINITY;
    for (int i = 0; i < vectors; i++) {
        score[i] = i == vectors - 1 ? vf_load(padded) : vf_mul(vf_load(p + i * VF_LANES), vf_set(scale));
        largest = vf_max(largest, score[i]);
    }
    float new_max = vf_largest(largest);
    for (int i = 0; i < vectors; i++) {
        vf e = vf_exp(vf_sub(score[i], vf_set(new_max)));
        total = vf_add(total, e);
        vf_store_upto(p + i * VF_LANES, e, n - i * VF_LANES);
    }
    float keep = expf(*max - new_max);
    *sum = *sum * (double)keep + (double)vf_sum(total);
    *max = new_max;
    return keep;
}
