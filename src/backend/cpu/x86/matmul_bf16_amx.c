/* bf16 weights times x rounded to bf16, by TDPBF16PS: a tile of 16 rows of the matrix, as they lie in memory, times a tile of 16 rows of x.
 *
 * The one order of a sum, for every number of rows: steps of 32 columns ascending, each as the instruction adds it; columns beyond the row
 * count as 0 * 0. A sum that goes from a tile to memory and back is the same. */
#include "backend/cpu/kernels.h"
#include "backend/cpu/x86/tiles.h"

#define K3_INLINE static inline __attribute__((always_inline))

/* Columns of a step, one tile wide; steps of a span, whose part of x stays in the second-level cache; rows of a panel of the matrix, which
 * is two tiles high and stays in the first; panels and rows of x of a block of sums; rows of x from which on a panel is copied together. */
enum { STEP = 32, SPAN_STEPS = 16, PANEL_ROWS = 32, BLOCK_PANELS = 4, BLOCK_T = 512, COPY_T = 96 };

typedef char sums_fit[BLOCK_PANELS * PANEL_ROWS * BLOCK_T * sizeof(float) <= K3_BF16_SCRATCH ? 1 : -1];

/* A part of a panel: where its first row's first step lies, and how far it is to the next row. */
typedef struct panel {
    const unsigned char *at;
    size_t stride;
} panel;

K3_INLINE int steps_of(int cols)
{
    return (cols + STEP - 1) / STEP;
}

/* ---- x ---------------------------------------------------------------------------------------------------------------------------- */

/* Rounded values c .. c+31 of n <= 32 that are left. */
static __m512i rounded(const float *x, int n)
{
    vf low = vf_load_upto(x, n), high = vf_zero();
    if (n > VF_LANES)
        high = vf_load_upto(x + VF_LANES, n - VF_LANES);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* 16 rows and a step make a tile: dword t of its row i holds columns 2 i and 2 i + 1 of row t. The steps of 16 rows follow one another. */
void k3_round_bf16_amx(const k3_bf16_rows *q, const float *x, int first, int last)
{
    int n_steps = steps_of(q->cols);
    for (int t0 = first; t0 < last; t0 += TILE_ROWS)
        for (int s = 0; s < n_steps; s++) {
            unsigned char *to = (unsigned char *)q->values + ((size_t)(t0 / TILE_ROWS) * (size_t)n_steps + (size_t)s) * TILE_BYTES;
            int left = q->cols - s * STEP;
            __m512i v[TILE_ROWS];
            for (int t = 0; t < TILE_ROWS; t++)
                v[t] =
                    t0 + t < last ? rounded(x + (int64_t)(t0 + t) * q->cols + s * STEP, left < STEP ? left : STEP) : _mm512_setzero_si512();
            transpose_tile(v);
            for (int i = 0; i < TILE_ROWS; i++)
                _mm512_store_si512(to + 64 * i, v[i]);
        }
}

/* ---- tiles ------------------------------------------------------------------------------------------------------------------------- */

/* Sums of rows * n_t tiles, [row tile][tile of x], += n steps; they begin at 0 if is_first. Tiles 0 to 3 are the sums, 4 and 5 the matrix,
 * 6 and 7 x. What lies at `next` is fetched meanwhile. */
K3_INLINE void multiply(unsigned char *sums, size_t sums_stride, panel p, const unsigned char *x, size_t x_stride, int n, int is_first,
                        const panel *next, const int rows, const int n_t)
{
    enum { ROW = TILE_BYTES / TILE_ROWS };
    tile_fence();
    if (is_first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, sums, ROW);
        if (n_t > 1)
            _tile_loadd(1, sums + TILE_BYTES, ROW);
        if (rows > 1)
            _tile_loadd(2, sums + sums_stride, ROW);
        if (rows > 1 && n_t > 1)
            _tile_loadd(3, sums + sums_stride + TILE_BYTES, ROW);
    }
    for (int s = 0; s < n; s++) {
        const unsigned char *w = p.at + (size_t)s * ROW, *xs = x + (size_t)s * TILE_BYTES;
        for (int i = 0; next && i < rows * TILE_ROWS; i++)
            vf_prefetch(next->at + (size_t)i * next->stride + (size_t)s * ROW);
        _tile_loadd(4, w, p.stride);
        _tile_loadd(6, xs, ROW);
        _tile_dpbf16ps(0, 4, 6);
        if (n_t > 1) {
            _tile_loadd(7, xs + x_stride, ROW);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (rows > 1) {
            _tile_loadd(5, w + TILE_ROWS * p.stride, p.stride);
            _tile_dpbf16ps(2, 5, 6);
            if (n_t > 1)
                _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, ROW);
    if (n_t > 1)
        _tile_stored(1, sums + TILE_BYTES, ROW);
    if (rows > 1)
        _tile_stored(2, sums + sums_stride, ROW);
    if (rows > 1 && n_t > 1)
        _tile_stored(3, sums + sums_stride + TILE_BYTES, ROW);
}

static void multiply_any(unsigned char *sums, size_t sums_stride, panel p, const unsigned char *x, size_t x_stride, int n, int is_first,
                         const panel *next, int rows, int n_t)
{
    if (rows > 1 && n_t > 1)
        multiply(sums, sums_stride, p, x, x_stride, n, is_first, next, 2, 2);
    else if (rows > 1)
        multiply(sums, sums_stride, p, x, x_stride, n, is_first, next, 2, 1);
    else if (n_t > 1)
        multiply(sums, sums_stride, p, x, x_stride, n, is_first, next, 1, 2);
    else
        multiply(sums, sums_stride, p, x, x_stride, n, is_first, next, 1, 1);
}

/* ---- the product ------------------------------------------------------------------------------------------------------------------- */

typedef struct product {
    const k3_bf16_rows *x;
    const k3_cpu_mat *w;
    unsigned char *sums; /* tiles [row tiles of a block][tiles of x of a block] */
    int n_steps;
    int t0, n_t; /* rows of x of the block */
    int r0, r1;  /* rows of the matrix of the block */
} product;

/* n steps from s0 of rows r .. r+31, copied to a place of their own with zeros for what the matrix has not. */
static panel copied(unsigned char *to, const product *p, int r, int s0, int n)
{
    size_t stride = (size_t)n * STEP * 2, left = p->w->row_bytes - (size_t)s0 * STEP * 2, bytes = left < stride ? left : stride;
    for (int i = 0; i < PANEL_ROWS; i++) {
        unsigned char *row = to + (size_t)i * stride;
        if (r + i >= p->r1) {
            memset(row, 0, stride);
            continue;
        }
        memcpy(row, p->w->codes + (size_t)(r + i) * p->w->row_bytes + (size_t)s0 * STEP * 2, bytes);
        memset(row + bytes, 0, stride - bytes);
    }
    return (panel){to, stride};
}

/* Steps s0 .. s0+n-1 for all panels of a block. */
static void span(const product *p, int s0, int n)
{
    unsigned char room[PANEL_ROWS * SPAN_STEPS * STEP * 2] __attribute__((aligned(64)));
    size_t x_stride = (size_t)p->n_steps * TILE_BYTES, sums_stride = (size_t)((p->n_t + TILE_ROWS - 1) / TILE_ROWS) * TILE_BYTES;
    const unsigned char *x = (const unsigned char *)p->x->values + (size_t)(p->t0 / TILE_ROWS) * x_stride + (size_t)s0 * TILE_BYTES;
    int is_odd = (s0 + n) * STEP > p->w->cols;
    for (int r = p->r0; r < p->r1; r += PANEL_ROWS) {
        int rows = p->r1 - r > TILE_ROWS ? 2 : 1;
        int is_last = r + PANEL_ROWS >= p->r1;
        panel a = {p->w->codes + (size_t)r * p->w->row_bytes + (size_t)s0 * STEP * 2, p->w->row_bytes};
        panel next = {a.at + PANEL_ROWS * a.stride, a.stride};
        if (is_last && (s0 + n) < p->n_steps)
            next.at = p->w->codes + (size_t)p->r0 * p->w->row_bytes + (size_t)(s0 + n) * STEP * 2;
        if (p->x->n >= COPY_T || is_odd || r + rows * TILE_ROWS > p->r1)
            a = copied(room, p, r, s0, n);
        unsigned char *sums = p->sums + (size_t)((r - p->r0) / TILE_ROWS) * sums_stride;
        for (int t = 0; t < p->n_t; t += 2 * TILE_ROWS)
            multiply_any(sums + (size_t)(t / TILE_ROWS) * TILE_BYTES, sums_stride, a, x + (size_t)(t / TILE_ROWS) * x_stride, x_stride, n,
                         s0 == 0, t ? NULL : &next, rows, p->n_t - t > TILE_ROWS ? 2 : 1);
    }
}

/* y from the sums, whose tiles have rows of the matrix as rows. */
static void finish(float *const *y, const product *p)
{
    int t_tiles = (p->n_t + TILE_ROWS - 1) / TILE_ROWS;
    for (int r = p->r0; r < p->r1; r += TILE_ROWS)
        for (int t = 0; t < p->n_t; t += TILE_ROWS) {
            const unsigned char *tile = p->sums + (size_t)((r - p->r0) / TILE_ROWS * t_tiles + t / TILE_ROWS) * TILE_BYTES;
            int n_t = p->n_t - t < TILE_ROWS ? p->n_t - t : TILE_ROWS;
            __m512i v[TILE_ROWS];
            for (int i = 0; i < TILE_ROWS; i++)
                v[i] = _mm512_load_si512(tile + 64 * i);
            transpose_tile(v);
            for (int i = 0; i < n_t; i++)
                vf_store_upto(y[p->t0 + t + i] + r, _mm512_castsi512_ps(v[i]), p->r1 - r);
        }
}

void k3_matmul_bf16_amx(float *const *y, const k3_bf16_rows *x, const k3_cpu_mat *w, int first, int last, void *scratch)
{
    tile_config config = whole_tiles();
    product p = {.x = x, .w = w, .sums = scratch, .n_steps = steps_of(x->cols)};
    tile_fence();
    _tile_loadconfig(&config);
    for (p.t0 = 0; p.t0 < x->n; p.t0 += BLOCK_T)
        for (p.r0 = first; p.r0 < last; p.r0 += BLOCK_PANELS * PANEL_ROWS) {
            p.n_t = x->n - p.t0 < BLOCK_T ? x->n - p.t0 : BLOCK_T;
            p.r1 = last - p.r0 < BLOCK_PANELS * PANEL_ROWS ? last : p.r0 + BLOCK_PANELS * PANEL_ROWS;
            for (int s = 0; s < p.n_steps; s += SPAN_STEPS)
                span(&p, s, p.n_steps - s < SPAN_STEPS ? p.n_steps - s : SPAN_STEPS);
            finish(y, &p);
        }
    _tile_release();
}
