/* bf16 weights times x rounded to bf16, by VDPBF16PS.
 *
 * The one order of a sum, for every number of rows: lane i of one running sum takes columns 32 s + 2 i + 1 and 32 s + 2 i for s = 0, 1,
 * ..., as the instruction adds a pair; columns beyond the row count as 0 * 0; vf_sum adds the lanes. */
#include "backend/cpu/kernels.h"
#include "backend/cpu/x86/vec_avx512.h"

#include <string.h>

#define K3_INLINE static inline __attribute__((always_inline))

/* Columns of a step, and of a span whose tiles stay in the caches; rows of the matrix and of x that a block of running sums has, and that
 * one pass has in registers; rows of x of a product that memory bounds, and rows of the matrix of its passes. */
enum { STEP = 32, SPAN = 1024, BLOCK_ROWS = 16, BLOCK_T = 60, PASS_ROWS = 4, PASS_T = 6, FEW = 3, FEW_ROWS = 8 };

typedef char sums_fit[BLOCK_ROWS * BLOCK_T * sizeof(vf) <= K3_BF16_SCRATCH && SPAN % STEP == 0 ? 1 : -1];

/* Elements from one rounded row to the next: rows do not lie a power of two apart. */
K3_INLINE int64_t stride_of(const k3_bf16_rows *x)
{
    return (int64_t)((x->cols + STEP - 1) / STEP + 1) * STEP;
}

K3_INLINE __m512bh load(const void *at)
{
    return (__m512bh)_mm512_loadu_si512(at);
}

/* The first n < STEP values from memory, zero elsewhere; memory beyond them is not touched. */
K3_INLINE __m512bh load_upto(const void *at, int n)
{
    return (__m512bh)_mm512_maskz_loadu_epi16((1u << n) - 1u, at);
}

void k3_round_bf16_avx512bf16(const k3_bf16_rows *q, const float *x, int first, int last)
{
    int64_t stride = stride_of(q);
    for (int t = first; t < last; t++) {
        uint16_t *to = q->values + t * stride;
        const float *from = x + (int64_t)t * q->cols;
        int c = 0;
        for (; c + STEP <= q->cols; c += STEP)
            _mm512_storeu_si512(to + c, (__m512i)_mm512_cvtne2ps_pbh(vf_load(from + c + VF_LANES), vf_load(from + c)));
        int n = q->cols - c, low = n < VF_LANES ? n : VF_LANES;
        if (n > 0)
            _mm512_storeu_si512(to + c, (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(vf_first(n - low), from + c + low),
                                                                     vf_load_upto(from + c, low)));
    }
}

/* ---- few rows of x: every byte of the matrix is used once ------------------------------------------------------------------------- */

/* Rows r .. r+rows-1 for all n_t rows of x. What the next pass reads is fetched meanwhile, line after line: memory sees one stream. */
K3_INLINE void few(float *const *y, const k3_bf16_rows *x, const k3_cpu_mat *w, int r, const int rows, const int n_t)
{
    const unsigned char *p[FEW_ROWS];
    int64_t stride = stride_of(x);
    vf sum[FEW_ROWS][FEW];
    for (int i = 0; i < rows; i++) {
        p[i] = w->codes + (size_t)(r + i) * w->row_bytes;
        for (int t = 0; t < n_t; t++)
            sum[i][t] = vf_zero();
    }
    const unsigned char *ahead = p[0] + (size_t)rows * w->row_bytes;
    int c = 0;
    for (; c + STEP <= x->cols; c += STEP) {
        __m512bh xv[FEW];
        for (int t = 0; t < n_t; t++)
            xv[t] = load(x->values + t * stride + c);
        for (int i = 0; i < rows; i++) {
            vf_prefetch(ahead + (size_t)c * 2 * (size_t)rows + (size_t)i * 64);
            __m512bh wv = load(p[i] + 2 * (size_t)c);
            for (int t = 0; t < n_t; t++)
                sum[i][t] = _mm512_dpbf16_ps(sum[i][t], wv, xv[t]);
        }
    }
    for (int t = 0; t < n_t && c < x->cols; t++)
        for (int i = 0; i < rows; i++)
            sum[i][t] = _mm512_dpbf16_ps(sum[i][t], load_upto(p[i] + 2 * (size_t)c, x->cols - c), load(x->values + t * stride + c));
    for (int t = 0; t < n_t; t++)
        for (int i = 0; i < rows; i++)
            y[t][r + i] = vf_sum(sum[i][t]);
}

K3_INLINE void few_rows(float *const *y, const k3_bf16_rows *x, const k3_cpu_mat *w, int first, int last, const int n_t)
{
    int r = first;
    for (; r + FEW_ROWS <= last; r += FEW_ROWS)
        few(y, x, w, r, FEW_ROWS, n_t);
    for (; r < last; r++)
        few(y, x, w, r, 1, n_t);
}

/* ---- many rows of x ---------------------------------------------------------------------------------------------------------------- */

/* sum[i][t] += columns c0 .. c0+n-1 of row i times those of row t of x; the first span starts the sums. */
K3_INLINE void pass(vf (*sum)[BLOCK_T], const unsigned char *w, size_t row_bytes, const uint16_t *x, int64_t stride, int c0, int n,
                    const int rows, const int n_t)
{
    vf s[PASS_ROWS][PASS_T];
    for (int i = 0; i < rows; i++)
        for (int t = 0; t < n_t; t++)
            s[i][t] = c0 ? sum[i][t] : vf_zero();
    w += 2 * (size_t)c0;
    x += c0;
    int c = 0;
    for (; c + STEP <= n; c += STEP) {
        __m512bh wv[PASS_ROWS];
        for (int i = 0; i < rows; i++)
            wv[i] = load(w + (size_t)i * row_bytes + 2 * (size_t)c);
        for (int t = 0; t < n_t; t++) {
            __m512bh xv = load(x + t * stride + c);
            for (int i = 0; i < rows; i++)
                s[i][t] = _mm512_dpbf16_ps(s[i][t], wv[i], xv);
        }
    }
    if (c < n)
        for (int i = 0; i < rows; i++) {
            __m512bh wv = load_upto(w + (size_t)i * row_bytes + 2 * (size_t)c, n - c);
            for (int t = 0; t < n_t; t++)
                s[i][t] = _mm512_dpbf16_ps(s[i][t], wv, load(x + t * stride + c));
        }
    for (int i = 0; i < rows; i++)
        for (int t = 0; t < n_t; t++)
            sum[i][t] = s[i][t];
}

K3_INLINE void pass_rows(vf (*sum)[BLOCK_T], const unsigned char *w, size_t row_bytes, const uint16_t *x, int64_t stride, int c0, int n,
                         int n_rows, const int n_t)
{
    int i = 0;
    for (; i + PASS_ROWS <= n_rows; i += PASS_ROWS)
        pass(sum + i, w + (size_t)i * row_bytes, row_bytes, x, stride, c0, n, PASS_ROWS, n_t);
    for (; i < n_rows; i++)
        pass(sum + i, w + (size_t)i * row_bytes, row_bytes, x, stride, c0, n, 1, n_t);
}

/* A span for all rows of x of a block, PASS_T at a time. Which rows share a pass does not matter to a sum. */
static void pass_block(vf (*sum)[BLOCK_T], const unsigned char *w, size_t row_bytes, const uint16_t *x, int64_t stride, int c0, int n,
                       int n_rows, int n_t)
{
#define K3_PASS(n_x) pass_rows((vf(*)[BLOCK_T])(sum[0] + t), w, row_bytes, x + t * stride, stride, c0, n, n_rows, n_x)
    int t = 0;
    for (; t + PASS_T <= n_t; t += PASS_T)
        K3_PASS(PASS_T);
    switch (n_t - t) {
    case 5:
        K3_PASS(5);
        break;
    case 4:
        K3_PASS(4);
        break;
    case 3:
        K3_PASS(3);
        break;
    case 2:
        K3_PASS(2);
        break;
    case 1:
        K3_PASS(1);
        break;
    default:
        break;
    }
#undef K3_PASS
}

void k3_matmul_bf16_avx512bf16(float *const *y, const k3_bf16_rows *x, const k3_cpu_mat *w, int first, int last, void *scratch)
{
    if (x->n == 1)
        few_rows(y, x, w, first, last, 1);
    else if (x->n == 2)
        few_rows(y, x, w, first, last, 2);
    else if (x->n == 3)
        few_rows(y, x, w, first, last, 3);
    if (x->n <= FEW)
        return;
    vf(*sum)[BLOCK_T] = scratch;
    int64_t stride = stride_of(x);
    for (int t0 = 0; t0 < x->n; t0 += BLOCK_T)
        for (int r = first; r < last; r += BLOCK_ROWS) {
            int n_t = x->n - t0 < BLOCK_T ? x->n - t0 : BLOCK_T, n_rows = last - r < BLOCK_ROWS ? last - r : BLOCK_ROWS;
            const unsigned char *rows = w->codes + (size_t)r * w->row_bytes;
            for (int c0 = 0; c0 < x->cols; c0 += SPAN)
                pass_block(sum, rows, w->row_bytes, x->values + t0 * stride, stride, c0, x->cols - c0 < SPAN ? x->cols - c0 : SPAN, n_rows,
                           n_t);
            for (int i = 0; i < n_rows; i++)
                for (int t = 0; t < n_t; t++)
                    y[t0 + t][r + i] = vf_sum(sum[i][t]);
        }
}
