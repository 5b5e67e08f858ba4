/* bf16 weights times x rounded to bf16, by VDPBF16PS.
 *
 * The one order of a sum, for every number of rows: lane i of one running sum takes columns 32 s + 2 i + 1 and 32 s + 2 i for s = 0, 1,
 * ..., as the instruction adds a pair; columns beyond the row count as 0 * 0; vf_sum adds the lanes. */
#include "backend/cpu/kernels.h"
#include "backend/cpu/x86/vec_avx512.h"

#define K3_INLINE static inline __attribute__((always_inline))

/* Columns of a step, and of a span whose tiles stay in the caches; rows of the matrix and of x that a block of running sums has, and that
 * one pass has in registers; rows of x of a product that memory bounds, and rows of the matrix of its passes. */
enum { STEP = 32, SPAN = 2048, BLOCK_ROWS = 16, BLOCK_T = 96, PASS_ROWS = 4, PASS_T = 6, FEW = 3, FEW_ROWS = 8 };

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

/* Rows r .. r+rows-1 of those before `last`, for all n_t rows of x. What the next pass reads is fetched meanwhile, line after line: memory
 * sees one stream. Behind `last` are other threads' rows: then comes what the matrix says. */
K3_INLINE void few(float *const *y, const k3_bf16_rows *x, const k3_cpu_mat *w, int r, int last, const int rows, const int n_t)
{
    const unsigned char *p[FEW_ROWS];
    int64_t stride = stride_of(x);
    vf sum[FEW_ROWS][FEW];
    for (int i = 0; i < rows; i++) {
        p[i] = w->codes + (size_t)(r + i) * w->row_bytes;
        for (int t = 0; t < n_t; t++)
            sum[i][t] = vf_zero();
    }
    const unsigned char *ahead = r + rows < last ? p[0] + (size_t)rows * w->row_bytes : w->next;
    int c = 0;
    for (; c + STEP <= x->cols; c += STEP) {
        __m512bh xv[FEW];
        for (int t = 0; t < n_t; t++)
            xv[t] = load(x->values + t * stride + c);
        for (int i = 0; i < rows; i++) {
            if (ahead)
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
        few(y, x, w, r, last, FEW_ROWS, n_t);
    for (; r < last; r++)
        few(y, x, w, r, last, 1, n_t);
}

/* ---- many rows of x ---------------------------------------------------------------------------------------------------------------- */

/* What a pass works on: a span of some rows of the matrix and of x. */
typedef struct pass {
    vf (*sum)[BLOCK_T]; /* [row][row of x] */
    const unsigned char *w;
    size_t row_bytes;
    const uint16_t *x;
    int64_t stride;
    int c0, n;    /* the span's columns; the first span starts the sums */
    size_t ahead; /* from a row of the matrix to what is fetched meanwhile; 0: nothing */
} pass;

K3_INLINE void multiply(const pass *p, int row, const int rows, int t0, const int n_t)
{
    vf s[PASS_ROWS][PASS_T];
    const unsigned char *w = p->w + (size_t)row * p->row_bytes + 2 * (size_t)p->c0;
    const uint16_t *x = p->x + t0 * p->stride + p->c0;
    for (int i = 0; i < rows; i++)
        for (int t = 0; t < n_t; t++)
            s[i][t] = p->c0 ? p->sum[row + i][t0 + t] : vf_zero();
    int c = 0;
    for (; c + STEP <= p->n; c += STEP) {
        __m512bh wv[PASS_ROWS];
        for (int i = 0; i < rows; i++) {
            wv[i] = load(w + (size_t)i * p->row_bytes + 2 * (size_t)c);
            if (p->ahead)
                vf_prefetch(w + (size_t)i * p->row_bytes + p->ahead + 2 * (size_t)c);
        }
        for (int t = 0; t < n_t; t++) {
            __m512bh xv = load(x + t * p->stride + c);
            for (int i = 0; i < rows; i++)
                s[i][t] = _mm512_dpbf16_ps(s[i][t], wv[i], xv);
        }
    }
    if (c < p->n)
        for (int i = 0; i < rows; i++) {
            __m512bh wv = load_upto(w + (size_t)i * p->row_bytes + 2 * (size_t)c, p->n - c);
            for (int t = 0; t < n_t; t++)
                s[i][t] = _mm512_dpbf16_ps(s[i][t], wv, load(x + t * p->stride + c));
        }
    for (int i = 0; i < rows; i++)
        for (int t = 0; t < n_t; t++)
            p->sum[row + i][t0 + t] = s[i][t];
}

K3_INLINE void multiply_rows(const pass *p, int n_rows, int t0, const int n_t)
{
    int i = 0;
    for (; i + PASS_ROWS <= n_rows; i += PASS_ROWS)
        multiply(p, i, PASS_ROWS, t0, n_t);
    for (; i < n_rows; i++)
        multiply(p, i, 1, t0, n_t);
}

/* All rows of x of a block in passes of nearly one size. Which rows share a pass does not matter to a sum. */
static void multiply_block(pass *p, int n_rows, int n_t, size_t ahead)
{
    int n_passes = (n_t + PASS_T - 1) / PASS_T;
    for (int i = 0, t = 0; i < n_passes; i++) {
        int n = (n_t - t) / (n_passes - i);
        p->ahead = i ? 0 : ahead;
        if (n == 6)
            multiply_rows(p, n_rows, t, 6);
        else if (n == 5)
            multiply_rows(p, n_rows, t, 5);
        else if (n == 4)
            multiply_rows(p, n_rows, t, 4);
        else
            multiply_rows(p, n_rows, t, 3);
        t += n;
    }
}

/* Two vectors whose halves are added, side by side; the steps of vf_sum for 16 rows at once. */
K3_INLINE vf fold(vf a, vf b)
{
    return vf_add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

/* Lane i = vf_sum of row i's sums for row t of x; rows that are not there give the last one's. */
static vf sums_of(vf (*sum)[BLOCK_T], int n_rows, int t)
{
    vf quarter[4];
    for (int i = 0; i < 4; i++) {
        vf row[4];
        for (int k = 0; k < 4; k++)
            row[k] = sum[4 * k + i < n_rows ? 4 * k + i : n_rows - 1][t];
        vf a = fold(row[0], row[1]), b = fold(row[2], row[3]);
        quarter[i] = vf_add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    }
    vf low = vf_add(_mm512_shuffle_ps(quarter[0], quarter[1], 0x44), _mm512_shuffle_ps(quarter[0], quarter[1], 0xee));
    vf high = vf_add(_mm512_shuffle_ps(quarter[2], quarter[3], 0x44), _mm512_shuffle_ps(quarter[2], quarter[3], 0xee));
    return vf_add(_mm512_shuffle_ps(low, high, 0x88), _mm512_shuffle_ps(low, high, 0xdd));
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
    pass p = {.sum = scratch, .row_bytes = w->row_bytes, .stride = stride_of(x)};
    int n_blocks = (x->n + BLOCK_T - 1) / BLOCK_T;
    for (int b = 0, t0 = 0, n_t; b < n_blocks; b++, t0 += n_t) {
        n_t = (x->n - t0) / (n_blocks - b);
        for (int r = first; r < last; r += BLOCK_ROWS) {
            int n_rows = last - r < BLOCK_ROWS ? last - r : BLOCK_ROWS;
            p.w = w->codes + (size_t)r * w->row_bytes;
            p.x = x->values + t0 * p.stride;
            for (p.c0 = 0; p.c0 < x->cols; p.c0 += SPAN) {
                p.n = x->cols - p.c0 < SPAN ? x->cols - p.c0 : SPAN;
                multiply_block(&p, n_rows, n_t, BLOCK_ROWS * w->row_bytes);
            }
            for (int t = 0; t < n_t; t++)
                vf_store_upto(y[t0 + t] + r, sums_of(p.sum, n_rows, t), n_rows);
        }
    }
}
