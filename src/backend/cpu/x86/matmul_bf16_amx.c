/* bf16 weights times x rounded to bf16, by TDPBF16PS: a tile of 16 rows of the matrix, as they lie in memory, times a tile of 16 rows of x.
 *
 * The one order of a sum, for every number of rows: steps of 32 columns ascending, each as the instruction adds it; columns beyond the row
 * count as 0 * 0. A sum that goes from a tile to memory and back is the same. */
#include "backend/cpu/kernels.h"
#include "backend/cpu/x86/tiles.h"

#define K3_INLINE static inline __attribute__((always_inline))

/* Columns of a step, one tile wide; steps of a span, whose part of x stays in the second-level cache; tiles of x that one tile of the
 * matrix is multiplied with, as many as have sums in tiles: another first factor costs more than another second one; rows of a block of
 * sums, and tiles of x. */
enum { STEP = 32, SPAN_STEPS = 32, PASS_TILES = 6, BLOCK_ROWS = 128, BLOCK_TILES = 3 * PASS_TILES };

typedef char sums_fit[BLOCK_ROWS / TILE_ROWS * BLOCK_TILES * TILE_BYTES <= K3_BF16_SCRATCH ? 1 : -1];

/* A part of 16 rows of the matrix: where the first one's first step lies, and how far it is to the next row. */
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

/* One pass: sums of a tile of rows and up to PASS_TILES tiles of x += n steps. */
typedef struct pass {
    unsigned char *sums;
    panel w;
    const unsigned char *x;
    size_t x_stride; /* from one tile of x to the next */
    int n, is_first; /* is_first: the sums begin at 0 */
    /* What is fetched meanwhile, as it lies in memory: the next panel, the next tiles of x. NULL: nothing. */
    const panel *next_w;
    const unsigned char *next_x;
} pass;

K3_INLINE void fetch(const pass *p, int s, const int n_t)
{
    for (int i = 0; p->next_w && i < TILE_ROWS; i++)
        vf_prefetch(p->next_w->at + (size_t)i * p->next_w->stride + (size_t)s * TILE_ROW);
    for (int t = 0; p->next_x && t < n_t; t++)
        for (int i = 0; i < TILE_ROWS; i++)
            vf_prefetch(p->next_x + (size_t)t * p->x_stride + (size_t)s * TILE_BYTES + (size_t)i * TILE_ROW);
}

/* Tiles 0 to 5 are the sums, 6 the matrix, 7 x. */
#define K3_BEGIN(t)                                                                                                                        \
    if (n_t > (t)) {                                                                                                                       \
        if (p->is_first)                                                                                                                   \
            _tile_zero(t);                                                                                                                 \
        else                                                                                                                               \
            _tile_loadd(t, p->sums + (t)*TILE_BYTES, TILE_ROW);                                                                            \
    }
#define K3_STEP(t)                                                                                                                         \
    if (n_t > (t)) {                                                                                                                       \
        _tile_loadd(7, x + (t)*p->x_stride, TILE_ROW);                                                                                     \
        _tile_dpbf16ps(t, 6, 7);                                                                                                           \
    }
#define K3_KEEP(t)                                                                                                                         \
    if (n_t > (t))                                                                                                                         \
    _tile_stored(t, p->sums + (t)*TILE_BYTES, TILE_ROW)
#define K3_ALL(what)                                                                                                                       \
    what(0);                                                                                                                               \
    what(1);                                                                                                                               \
    what(2);                                                                                                                               \
    what(3);                                                                                                                               \
    what(4);                                                                                                                               \
    what(5)

K3_INLINE void multiply(const pass *p, const int n_t)
{
    tile_fence();
    K3_ALL(K3_BEGIN);
    for (int s = 0; s < p->n; s++) {
        const unsigned char *x = p->x + (size_t)s * TILE_BYTES;
        fetch(p, s, n_t);
        _tile_loadd(6, p->w.at + (size_t)s * TILE_ROW, p->w.stride);
        K3_ALL(K3_STEP);
    }
    K3_ALL(K3_KEEP);
}

static void multiply_any(const pass *p, int n_t)
{
    switch (n_t) {
    case 1:
        multiply(p, 1);
        break;
    case 2:
        multiply(p, 2);
        break;
    case 3:
        multiply(p, 3);
        break;
    case 4:
        multiply(p, 4);
        break;
    case 5:
        multiply(p, 5);
        break;
    default:
        multiply(p, PASS_TILES);
    }
}

/* ---- the product ------------------------------------------------------------------------------------------------------------------- */

typedef struct product {
    const k3_bf16_rows *x;
    const k3_cpu_mat *w;
    unsigned char *sums; /* tiles [tiles of rows of a block][t_tiles] */
    int n_steps;
    int t0, n_t, t_tiles; /* rows of x of the block */
    int r0, r1;           /* rows of the matrix of the block */
} product;

/* n steps from s0 of rows r .. r+15, copied to a place of their own with zeros for what the matrix has not. */
static panel copied(unsigned char *to, const product *p, int r, int s0, int n)
{
    size_t stride = (size_t)n * TILE_ROW, left = p->w->row_bytes - (size_t)s0 * TILE_ROW, bytes = left < stride ? left : stride;
    memset(to, 0, TILE_ROWS * stride);
    for (int i = 0; i < TILE_ROWS && r + i < p->r1; i++)
        memcpy(to + (size_t)i * stride, p->w->codes + (size_t)(r + i) * p->w->row_bytes + (size_t)s0 * TILE_ROW, bytes);
    return (panel){to, stride};
}

/* Steps s0 .. s0+n-1 for all rows of a block. */
static void span(const product *p, int s0, int n)
{
    unsigned char room[TILE_ROWS * SPAN_STEPS * TILE_ROW] __attribute__((aligned(64)));
    pass a = {.x_stride = (size_t)p->n_steps * TILE_BYTES, .n = n, .is_first = s0 == 0};
    const unsigned char *x = (const unsigned char *)p->x->values + (size_t)(p->t0 / TILE_ROWS) * a.x_stride + (size_t)s0 * TILE_BYTES;
    int is_odd = (s0 + n) * STEP > p->w->cols;
    for (int r = p->r0; r < p->r1; r += TILE_ROWS) {
        panel next = {p->w->codes + (size_t)(r + TILE_ROWS) * p->w->row_bytes + (size_t)s0 * TILE_ROW, p->w->row_bytes};
        if (r + TILE_ROWS >= p->r1 && s0 + n < p->n_steps)
            next.at = p->w->codes + (size_t)p->r0 * p->w->row_bytes + (size_t)(s0 + n) * TILE_ROW;
        a.w = is_odd || r + TILE_ROWS > p->r1 ? copied(room, p, r, s0, n)
                                              : (panel){p->w->codes + (size_t)r * p->w->row_bytes + (size_t)s0 * TILE_ROW, p->w->row_bytes};
        for (int t = 0; t < p->t_tiles; t += PASS_TILES) {
            int left = p->t_tiles - t;
            a.sums = p->sums + (size_t)((r - p->r0) / TILE_ROWS * p->t_tiles + t) * TILE_BYTES;
            a.x = x + (size_t)t * a.x_stride;
            a.next_w = t ? NULL : &next;
            a.next_x = r == p->r0 && left >= 2 * PASS_TILES ? a.x + PASS_TILES * a.x_stride : NULL; /* x is far away from the first rows */
            multiply_any(&a, left < PASS_TILES ? left : PASS_TILES);
        }
    }
}

/* y from the sums, whose tiles have rows of the matrix as rows. */
static void finish(float *const *y, const product *p)
{
    for (int r = p->r0; r < p->r1; r += TILE_ROWS)
        for (int t = 0; t < p->n_t; t += TILE_ROWS) {
            const unsigned char *tile = p->sums + (size_t)((r - p->r0) / TILE_ROWS * p->t_tiles + t / TILE_ROWS) * TILE_BYTES;
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
    for (p.t0 = 0; p.t0 < x->n; p.t0 += BLOCK_TILES * TILE_ROWS)
        for (p.r0 = first; p.r0 < last; p.r0 += BLOCK_ROWS) {
            p.n_t = x->n - p.t0 < BLOCK_TILES * TILE_ROWS ? x->n - p.t0 : BLOCK_TILES * TILE_ROWS;
            p.t_tiles = (p.n_t + TILE_ROWS - 1) / TILE_ROWS;
            p.r1 = last - p.r0 < BLOCK_ROWS ? last : p.r0 + BLOCK_ROWS;
            for (int s = 0; s < p.n_steps; s += SPAN_STEPS)
                span(&p, s, p.n_steps - s < SPAN_STEPS ? p.n_steps - s : SPAN_STEPS);
            finish(y, &p);
        }
    _tile_release();
}
