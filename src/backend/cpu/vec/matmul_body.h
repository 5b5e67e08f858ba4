/* matmul and decode on vectors; include after a decode header.
 *
 * The one order of a sum, for every T: lane i of one running sum takes columns i, i + LANES, i + 2 LANES, ... ascending, each with one
 * fused multiply-add; columns beyond the row count as 0 * 0; vf_sum adds the lanes; a row's scale multiplies the result. The weights that
 * enter are the same floats whether they come straight from the codes (few rows of x) or from a decoded span. */
#include "backend/cpu/kernels.h"

#define K3_INLINE static inline __attribute__((always_inline))

/* Columns of a span: 16 rows of it stay near. Rows of x a decoded span serves, and rows that need no span. Every group of a type divides
 * the step. */
enum { SPAN = 512, TILE_ROWS = 16, TILE_T = 48, MICRO_ROWS = 4, MICRO_T = 6, STEP = 32, FEW = 3 };

/* The last n < VF_LANES columns; only types without groups have such. */
static vf last_weights(k3_type type, const unsigned char *codes, const unsigned char *scale, int col, int n)
{
    float w[VF_LANES] = {0};
    for (int i = 0; i < n; i++)
        w[i] = k3_decode_code(type, codes, scale, col + i);
    return vf_load(w);
}

K3_INLINE float row_scale(k3_type type, const unsigned char *scale)
{
    return k3_type_scales_rows(type) ? k3_load_f32(scale, 0) : 1.0f;
}

/* y[t][r .. r+rows-1] of rows before `last`, for n_t <= FEW rows of x. The rows after them are fetched meanwhile, line after line: memory
 * sees one stream. Behind `last` are other threads' rows: then comes what the matrix says. */
K3_INLINE void gemv_rows(float *const *y, const float *const *x, const int n_t, const k3_cpu_mat *w, int r, int last, const int rows,
                         const k3_type type)
{
    int is_last = r + rows >= last, n_ahead = is_last ? w->next ? rows : 0 : last - r - rows < rows ? last - r - rows : rows;
    const unsigned char *ahead = is_last ? w->next : w->codes + (size_t)(r + rows) * w->row_bytes;
    size_t bytes = (size_t)n_ahead * w->row_bytes, fetched = 0;
    const unsigned char *codes[VF_GEMV_ROWS], *scale[VF_GEMV_ROWS];
    vf sum[VF_GEMV_ROWS][FEW], group[VF_GEMV_ROWS];
    int cols = w->cols, c = 0;
    for (int i = 0; i < rows; i++) {
        codes[i] = w->codes + (size_t)(r + i) * w->row_bytes;
        scale[i] = w->scale + (size_t)(r + i) * w->scale_bytes;
        for (int t = 0; t < n_t; t++)
            sum[i][t] = vf_zero();
    }
    for (; c + STEP <= cols; c += STEP) {
        for (; fetched * (size_t)cols < bytes * (size_t)c; fetched += 64)
            vf_prefetch(ahead + fetched);
        for (int i = 0; i < rows; i++)
            group[i] = k3_group(type, scale[i], c);
        for (int u = 0; u < STEP; u += VF_LANES)
            for (int i = 0; i < rows; i++) {
                vf weights = k3_weights(type, codes[i], group[i], c + u);
                for (int t = 0; t < n_t; t++)
                    sum[i][t] = vf_fma(weights, vf_load(x[t] + c + u), sum[i][t]);
            }
    }
    for (; c + VF_LANES <= cols; c += VF_LANES)
        for (int i = 0; i < rows; i++) {
            vf weights = k3_weights(type, codes[i], vf_zero(), c);
            for (int t = 0; t < n_t; t++)
                sum[i][t] = vf_fma(weights, vf_load(x[t] + c), sum[i][t]);
        }
    for (int i = 0; i < rows && c < cols; i++) {
        vf weights = last_weights(type, codes[i], scale[i], c, cols - c);
        for (int t = 0; t < n_t; t++)
            sum[i][t] = vf_fma(weights, vf_load_upto(x[t] + c, cols - c), sum[i][t]);
    }
    for (int t = 0; t < n_t; t++)
        for (int i = 0; i < rows; i++)
            y[t][r + i] = vf_sum(sum[i][t]) * row_scale(type, scale[i]);
}

K3_INLINE void gemv_few(float *const *y, const float *const *x, const int n_t, const k3_cpu_mat *w, int first, int last, const k3_type type)
{
    int r = first;
    for (; r + VF_GEMV_ROWS <= last; r += VF_GEMV_ROWS)
        gemv_rows(y, x, n_t, w, r, last, VF_GEMV_ROWS, type);
    for (; r < last; r++)
        gemv_rows(y, x, n_t, w, r, last, 1, type);
}

K3_INLINE void gemv(float *const *y, const float *const *x, int n_t, const k3_cpu_mat *w, int first, int last, const k3_type type)
{
    if (n_t == 1)
        gemv_few(y, x, 1, w, first, last, type);
    else if (n_t == 2)
        gemv_few(y, x, 2, w, first, last, type);
    else
        gemv_few(y, x, 3, w, first, last, type);
}

/* out = weights c0 .. c0+n-1 without the row's scale, padded with zeros to whole vectors. c0 is a multiple of SPAN. */
K3_INLINE void decode_span(float *out, const unsigned char *codes, const unsigned char *scale, int c0, int n, const k3_type type)
{
    int c = 0;
    for (; c + STEP <= n; c += STEP) {
        vf group = k3_group(type, scale, c0 + c);
        for (int u = 0; u < STEP; u += VF_LANES)
            vf_store(out + c + u, k3_weights(type, codes, group, c0 + c + u));
    }
    for (; c + VF_LANES <= n; c += VF_LANES)
        vf_store(out + c, k3_weights(type, codes, vf_zero(), c0 + c));
    if (c < n)
        vf_store(out + c, last_weights(type, codes, scale, c0 + c, n - c));
}

/* One case a type, so that each is compiled with the type known. */
#define K3_BY_TYPE(type, call)                                                                                                             \
    switch (type) {                                                                                                                        \
    case K3_F32:                                                                                                                           \
        call(K3_F32);                                                                                                                      \
        break;                                                                                                                             \
    case K3_BF16:                                                                                                                          \
        call(K3_BF16);                                                                                                                     \
        break;                                                                                                                             \
    case K3_INT8:                                                                                                                          \
        call(K3_INT8);                                                                                                                     \
        break;                                                                                                                             \
    case K3_INT4:                                                                                                                          \
        call(K3_INT4);                                                                                                                     \
        break;                                                                                                                             \
    case K3_INT4_G64:                                                                                                                      \
        call(K3_INT4_G64);                                                                                                                 \
        break;                                                                                                                             \
    case K3_INT3_G64:                                                                                                                      \
        call(K3_INT3_G64);                                                                                                                 \
        break;                                                                                                                             \
    case K3_INT2:                                                                                                                          \
        call(K3_INT2);                                                                                                                     \
        break;                                                                                                                             \
    default:                                                                                                                               \
        call(K3_MXFP4);                                                                                                                    \
    }

static void decode_any(float *out, const unsigned char *codes, const unsigned char *scale, int c0, int n, k3_type type)
{
#define K3_DECODE(t) decode_span(out, codes, scale, c0, n, t)
    K3_BY_TYPE(type, K3_DECODE)
#undef K3_DECODE
}

static void gemv_any(float *const *y, const float *const *x, int n_t, const k3_cpu_mat *w, int first, int last){
#define K3_GEMV(t) gemv(y, x, n_t, w, first, last, t)
    K3_BY_TYPE(w->type, K3_GEMV)
#undef K3_GEMV
}

/* sum[i][t] += span of row i times x[t], for `rows` rows and n_t rows of x; the first span starts the sums. */
K3_INLINE void micro(vf (*sum)[TILE_T], float (*span)[SPAN], const float *const *x, int c0, int n, const int rows, const int n_t)
{
    vf s[MICRO_ROWS][MICRO_T];
    for (int i = 0; i < rows; i++)
        for (int t = 0; t < n_t; t++)
            s[i][t] = c0 ? sum[i][t] : vf_zero();
    int c = 0;
    for (; c + VF_LANES <= n; c += VF_LANES) {
        vf w[MICRO_ROWS];
        for (int i = 0; i < rows; i++)
            w[i] = vf_load(span[i] + c);
        for (int t = 0; t < n_t; t++) {
            vf xv = vf_load(x[t] + c0 + c);
            for (int i = 0; i < rows; i++)
                s[i][t] = vf_fma(w[i], xv, s[i][t]);
        }
    }
    if (c < n)
        for (int t = 0; t < n_t; t++) {
            vf xv = vf_load_upto(x[t] + c0 + c, n - c);
            for (int i = 0; i < rows; i++)
                s[i][t] = vf_fma(vf_load(span[i] + c), xv, s[i][t]);
        }
    for (int i = 0; i < rows; i++)
        for (int t = 0; t < n_t; t++)
            sum[i][t] = s[i][t];
}

K3_INLINE void micro_rows(vf (*sum)[TILE_T], float (*span)[SPAN], const float *const *x, int c0, int n, int n_rows, const int n_t)
{
    int i = 0;
    for (; i + MICRO_ROWS <= n_rows; i += MICRO_ROWS)
        micro(sum + i, span + i, x, c0, n, MICRO_ROWS, n_t);
    for (; i < n_rows; i++)
        micro(sum + i, span + i, x, c0, n, 1, n_t);
}

/* All rows of x of a tile in passes of nearly one size. Which rows share a pass does not matter to a sum. */
static void micro_tile(vf (*sum)[TILE_T], float (*span)[SPAN], const float *const *x, int c0, int n, int n_rows, int n_t)
{
#define K3_MICRO(n_x) micro_rows((vf(*)[TILE_T])(sum[0] + t), span, x + t, c0, n, n_rows, n_x)
    int n_passes = (n_t + VF_GEMM_T - 1) / VF_GEMM_T;
    for (int i = 0, t = 0, n_x; i < n_passes; i++, t += n_x) {
        n_x = (n_t - t) / (n_passes - i);
        if (n_x == VF_GEMM_T)
            K3_MICRO(VF_GEMM_T);
        else if (n_x == 5)
            K3_MICRO(5);
        else if (n_x == 4)
            K3_MICRO(4);
        else if (n_x == 3)
            K3_MICRO(3);
        else if (n_x == 2)
            K3_MICRO(2);
        else
            K3_MICRO(1);
    }
#undef K3_MICRO
}

static void gemm(float *const *y, const float *const *x, int n_t, const k3_cpu_mat *w, int r, int n_rows)
{
    float span[TILE_ROWS][SPAN] __attribute__((aligned(64)));
    vf sum[TILE_ROWS][TILE_T];
    for (int c0 = 0; c0 < w->cols; c0 += SPAN) {
        int n = w->cols - c0 < SPAN ? w->cols - c0 : SPAN;
        for (int i = 0; i < n_rows; i++)
            decode_any(span[i], w->codes + (size_t)(r + i) * w->row_bytes, w->scale + (size_t)(r + i) * w->scale_bytes, c0, n, w->type);
        micro_tile(sum, span, x, c0, n, n_rows, n_t);
    }
    float scale[TILE_ROWS];
    for (int i = 0; i < n_rows; i++)
        scale[i] = row_scale(w->type, w->scale + (size_t)(r + i) * w->scale_bytes);
    for (int t = 0; t < n_t; t++)
        for (int i = 0; i < n_rows; i++)
            y[t][r + i] = vf_sum(sum[i][t]) * scale[i];
}

void K3_KERNEL(matmul)(float *const *y, const float *const *x, int T, const k3_cpu_mat *w, int first, int last)
{
    if (T <= FEW) {
        gemv_any(y, x, T, w, first, last);
        return;
    }
    int n_tiles = (T + TILE_T - 1) / TILE_T;
    for (int i = 0, t = 0, n; i < n_tiles; i++, t += n) {
        n = (T - t) / (n_tiles - i);
        for (int r = first; r < last; r += TILE_ROWS)
            gemm(y + t, x + t, n, w, r, last - r < TILE_ROWS ? last - r : TILE_ROWS);
    }
}

void K3_KERNEL(decode)(float *out, const void *codes, const void *scale, k3_type type, int cols)
{
    float span[SPAN] __attribute__((aligned(64)));
    float factor = row_scale(type, scale);
    for (int c0 = 0; c0 < cols; c0 += SPAN) {
        int n = cols - c0 < SPAN ? cols - c0 : SPAN;
        decode_any(span, codes, scale, c0, n, type);
        for (int c = 0; c < n; c++)
            out[c0 + c] = span[c] * factor;
    }
}

/* The same product with sums in double, rounded once: exact mode. Lane i takes columns i, i + LANES, ... of span after span, whatever T. */
void K3_KERNEL(matmul_exact)(float *const *y, const float *const *x, int T, const k3_cpu_mat *w, int first, int last)
{
    float span[SPAN] __attribute__((aligned(64)));
    vd sum[TILE_T];
    for (int r = first; r < last; r++) {
        const unsigned char *codes = w->codes + (size_t)r * w->row_bytes, *scale = w->scale + (size_t)r * w->scale_bytes;
        double factor = (double)row_scale(w->type, scale);
        for (int t0 = 0; t0 < T; t0 += TILE_T) {
            int n_t = T - t0 < TILE_T ? T - t0 : TILE_T;
            for (int t = 0; t < n_t; t++)
                sum[t] = vd_zero();
            for (int c0 = 0; c0 < w->cols; c0 += SPAN) {
                int n = w->cols - c0 < SPAN ? w->cols - c0 : SPAN;
                decode_any(span, codes, scale, c0, n, w->type);
                for (int t = 0; t < n_t; t++)
                    for (int c = 0; c < n; c += VF_LANES)
                        sum[t] = vd_fma(vf_load_upto(span + c, n - c), vf_load_upto(x[t0 + t] + c0 + c, n - c), sum[t]);
            }
            for (int t = 0; t < n_t; t++)
                y[t0 + t][r] = (float)(vd_sum(sum[t]) * factor);
        }
    }
}
