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

/* One pass: sums of 2 x 2 tiles or fewer, [row tile][tile of x], += n steps of a panel and of x. */
typedef struct pass {
    unsigned char *sums;
    size_t sums_stride; /* from one row tile to the next */
    panel w;
    const unsigned char *x;
    size_t x_stride; /* from one 16 rows to the next */
    int n, is_first; /* is_first: the sums begin at 0 */
    /* What is fetched meanwhile, as it lies in memory: the next panel, the next 32 rows of x. NULL: nothing. */
    const panel *next_w;
    const unsigned char *next_x;
} pass;

K3_INLINE void fetch(const pass *p, int s, const int rows, const int n_t)
{
    for (int i = 0; p->next_w && i < rows * TILE_ROWS; i++)
        vf_prefetch(p->next_w->at + (size_t)i * p->next_w->stride + (size_t)s * TILE_ROW);
    for (int t = 0; p->next_x && t < n_t; t++)
        for (int i = 0; i < TILE_ROWS; i++)
            vf_prefetch(p->next_x + (size_t)t * p->x_stride + (size_t)s * TILE_BYTES + (size_t)i * TILE_ROW);
}

/* Tiles 0 to 3 are the sums, 4 and 5 the matrix, 6 and 7 x. */
K3_INLINE void multiply(const pass *p, const int rows, const int n_t)
{
    unsigned char *sums = p->sums, *low = sums + p->sums_stride;
    tile_fence();
    if (p->is_first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, sums, TILE_ROW);
        if (n_t > 1)
            _tile_loadd(1, sums + TILE_BYTES, TILE_ROW);
        if (rows > 1)
            _tile_loadd(2, low, TILE_ROW);
        if (rows > 1 && n_t > 1)
            _tile_loadd(3, low + TILE_BYTES, TILE_ROW);
    }
    for (int s = 0; s < p->n; s++) {
        const unsigned char *w = p->w.at + (size_t)s * TILE_ROW, *x = p->x + (size_t)s * TILE_BYTES;
        fetch(p, s, rows, n_t);
        _tile_loadd(4, w, p->w.stride);
        _tile_loadd(6, x, TILE_ROW);
        _tile_dpbf16ps(0, 4, 6);
        if (n_t > 1) {
            _tile_loadd(7, x + p->x_stride, TILE_ROW);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (rows > 1) {
            _tile_loadd(5, w + TILE_ROWS * p->w.stride, p->w.stride);
            _tile_dpbf16ps(2, 5, 6);
            if (n_t > 1)
                _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, TILE_ROW);
    if (n_t > 1)
        _tile_stored(1, sums + TILE_BYTES, TILE_ROW);
    if (rows > 1)
        _tile_stored(2, low, TILE_ROW);
    if (rows > 1 && n_t > 1)
        _tile_stored(3, low + TILE_BYTES, TILE_ROW);
}

static void multiply_any(const pass *p, int rows, int n_t)
{
    if (rows > 1 && n_t > 1)
        multiply(p, 2, 2);
    else if (rows > 1)
        multiply(p, 2, 1);
    else if (n_t > 1)
        multiply(p, 1, 2);
    else
        multiply(p, 1, 1);
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
    size_t stride = (size_t)n * TILE_ROW, left = p->w->row_bytes - (size_t)s0 * TILE_ROW, bytes = left < stride ? left : stride;
    for (int i = 0; i < PANEL_ROWS; i++) {
        unsigned char *row = to + (size_t)i * stride;
        if (r + i >= p->r1) {
            memset(row, 0, stride);
            continue;
        }
        memcpy(row, p->w->codes + (size_t)(r + i) * p->w->row_bytes + (size_t)s0 * TILE_ROW, bytes);
        memset(row + bytes, 0, stride - bytes);
    }
    return (panel){to, stride};
}

/* Steps s0 .. s0+n-1 for all panels of a block. */
static void span(const product *p, int s0, int n)
{
    unsigned char room[PANEL_ROWS * SPAN_STEPS * TILE_ROW] __attribute__((aligned(64)));
    int t_tiles = (p->n_t + TILE_ROWS - 1) / TILE_ROWS, is_odd = (s0 + n) * STEP > p->w->cols;
    pass a = {.sums_stride = (size_t)t_tiles * TILE_BYTES, .x_stride = (size_t)p->n_steps * TILE_BYTES, .n = n, .is_first = s0 == 0};
    const unsigned char *x = (const unsigned char *)p->x->values + (size_t)(p->t0 / TILE_ROWS) * a.x_stride + (size_t)s0 * TILE_BYTES;
    for (int r = p->r0; r < p->r1; r += PANEL_ROWS) {
        int rows = p->r1 - r > TILE_ROWS ? 2 : 1;
        panel next = {p->w->codes + (size_t)(r + PANEL_ROWS) * p->w->row_bytes + (size_t)s0 * TILE_ROW, p->w->row_bytes};
        if (r + PANEL_ROWS >= p->r1 && s0 + n < p->n_steps)
            next.at = p->w->codes + (size_t)p->r0 * p->w->row_bytes + (size_t)(s0 + n) * TILE_ROW;
        a.w = (panel){p->w->codes + (size_t)r * p->w->row_bytes + (size_t)s0 * TILE_ROW, p->w->row_bytes};
        if (p->x->n >= COPY_T || is_odd || r + rows * TILE_ROWS > p->r1)
            a.w = copied(room, p, r, s0, n);
        for (int t = 0; t < t_tiles; t += 2) {
            a.sums = p->sums + (size_t)((r - p->r0) / TILE_ROWS * t_tiles + t) * TILE_BYTES;
            a.x = x + (size_t)t * a.x_stride;
            a.next_w = t ? NULL : &next;
            a.next_x = r == p->r0 && t + 3 < t_tiles ? a.x + 2 * a.x_stride : NULL; /* the first panel finds x far away */
            multiply_any(&a, rows, t_tiles - t > 1 ? 2 : 1);
        }
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
