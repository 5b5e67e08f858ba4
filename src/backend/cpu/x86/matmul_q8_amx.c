/* Integer products by TDPBSSD: 16 rows of x times 16 rows of the matrix, a block of 32 columns at a time, because a block has scales of its
 * own. A block's products leave the tile as exact integers and are scaled and added in f32 in the order of matmul_q8.c, so the bits are
 * those of every other level. Few rows of x go to the kernel of AVX-512, which memory bounds. */
#include "backend/cpu/kernels.h"
#include "backend/cpu/x86/tiles.h"
#include "backend/cpu/x86/vi_avx512.h"

#define K3_INLINE static inline __attribute__((always_inline))

/* Dwords of a block and row; blocks of a panel; tiles of rows of the matrix that share what is made of x; the fewest rows of x of a tile.
 */
enum { DWORDS = K3_Q8_BLOCK / 4, PANEL = 32, BLOCK_TILES = 2, LEAST_T = 12 };

/* PANEL blocks of 16 rows of the matrix: signed codes as the second factor of a product wants them, four columns and all rows after one
 * another; scales by row. */
typedef struct panel {
    vi codes[PANEL][DWORDS];
    vf scale[PANEL];
} panel;

/* The same blocks of 16 rows of x: where the first row's codes lie and how far it is to the next; scales by block and row. */
typedef struct x_panel {
    const signed char *codes;
    int64_t stride;
    float scale[PANEL][TILE_ROWS] __attribute__((aligned(64)));
    signed char copied[TILE_ROWS][PANEL * K3_Q8_BLOCK] __attribute__((aligned(64)));
} x_panel;

/* Vector i = dword i of 16 rows, of up to 64 bytes from p on. Nothing behind them is touched. */
static void turn(vi out[TILE_ROWS], const unsigned char *p, size_t stride, int bytes)
{
    __mmask64 these = bytes >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << bytes) - 1;
    for (int i = 0; i < TILE_ROWS; i++)
        out[i] = _mm512_maskz_loadu_epi8(these, p + (size_t)i * stride);
    transpose_tile(out);
}

/* ---- the matrix -------------------------------------------------------------------------------------------------------------------- */

/* The values of four-bit codes; those of e2m1 twice. */
K3_INLINE vi value_table(const k3_type type)
{
    __m128i table = type == K3_MXFP4 ? _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
                                     : _mm_setr_epi8(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    return _mm512_broadcast_i32x4(table);
}

K3_INLINE void fill_codes(panel *to, const unsigned char *p, size_t stride, int n, const k3_type type)
{
    const int block_bytes = type == K3_INT8 ? 32 : 16, a_turn = 64 / block_bytes;
    vi table = value_table(type), nibble = vi_set8(15), v[TILE_ROWS];
    for (int b = 0; b < n; b += a_turn) {
        turn(v, p + (size_t)(b * block_bytes), stride, (n - b) * block_bytes);
        for (int i = 0; i < a_turn && b + i < n; i++)
            for (int d = 0; d < block_bytes / 4; d++) {
                vi codes = v[i * block_bytes / 4 + d];
                if (type == K3_INT8) {
                    to->codes[b + i][d] = codes;
                    continue;
                }
                to->codes[b + i][2 * d] = _mm512_shuffle_epi8(table, vi_and(codes, nibble));
                to->codes[b + i][2 * d + 1] = _mm512_shuffle_epi8(table, vi_and(vi_shift_right4(codes), nibble));
            }
    }
}

K3_INLINE void fill_scales(panel *to, const unsigned char *p, size_t stride, int n, const k3_type type)
{
    vi v[TILE_ROWS];
    if (type == K3_INT8)
        return;
    turn(v, p, stride, type == K3_MXFP4 ? n : n / 2 * 4);
    for (int b = 0; b < n; b++)
        to->scale[b] = type == K3_MXFP4 ? vf_mul(vi_e8m0(v[b / 4], b % 4), vf_set(0.5f)) : vi_as_float(v[b / 2]);
}

/* Blocks b0 .. b0+n-1 of rows r .. r+15. */
K3_INLINE void fill_panel(panel *to, const k3_cpu_mat *w, int r, int b0, int n, const k3_type type)
{
    const unsigned char *codes = w->codes + (size_t)r * w->row_bytes, *scale = w->scale + (size_t)r * w->scale_bytes;
    fill_codes(to, codes + (size_t)b0 * (type == K3_INT8 ? 32 : 16), w->row_bytes, n, type);
    fill_scales(to, scale + (type == K3_MXFP4 ? b0 : b0 / 2 * 4), w->scale_bytes, n, type);
}

/* ---- x ------------------------------------------------------------------------------------------------------------------------------ */

/* Blocks b0 .. b0+n-1 of n_t <= 16 rows of x. Rows that are missing repeat the last. */
static void fill_x(x_panel *to, const k3_q8 *x, const signed char *codes, const int32_t *row_of, int n_t, int b0, int n)
{
    int64_t n_blocks = x->cols / K3_Q8_BLOCK;
    int is_run = n_t == TILE_ROWS;
    for (int t = 1; t < n_t; t++)
        is_run &= row_of[t] == row_of[0] + t;
    to->codes = is_run ? codes + (int64_t)row_of[0] * x->cols + b0 * K3_Q8_BLOCK : to->copied[0];
    to->stride = is_run ? x->cols : PANEL * K3_Q8_BLOCK;
    for (int t = 0; t < TILE_ROWS && !is_run; t++)
        memcpy(to->copied[t], codes + (int64_t)row_of[t < n_t ? t : n_t - 1] * x->cols + b0 * K3_Q8_BLOCK, (size_t)(n * K3_Q8_BLOCK));
    for (int b = 0; b < n; b += TILE_ROWS) {
        int left = n - b < TILE_ROWS ? n - b : TILE_ROWS;
        vi v[TILE_ROWS];
        for (int t = 0; t < TILE_ROWS; t++)
            v[t] = _mm512_maskz_loadu_epi32(vf_first(left), x->scale + (int64_t)row_of[t < n_t ? t : n_t - 1] * n_blocks + b0 + b);
        transpose_tile(v);
        for (int i = 0; i < left; i++)
            _mm512_store_si512(to->scale[b + i], v[i]);
    }
}

/* ---- products ----------------------------------------------------------------------------------------------------------------------- */

/* Tiles of products, x and weights: 0 to 2 and 3 to 5, so that one product follows the other at once. */
static tile_config block_tiles(void)
{
    tile_config c = whole_tiles();
    for (int i = 0; i < 6; i++)
        if (i % 3 == 1)
            c.row_bytes[i] = K3_Q8_BLOCK;
        else if (i % 3 == 2)
            c.rows[i] = DWORDS;
    return c;
}

/* Products of a block in three tiles. */
#define K3_BLOCK_PRODUCT(dot, product, left, right, x, w, b)                                                                               \
    do {                                                                                                                                   \
        _tile_zero(product);                                                                                                               \
        _tile_loadd(left, (x)->codes + (b)*K3_Q8_BLOCK, (x)->stride);                                                                      \
        _tile_loadd(right, (w)->codes[b], 64);                                                                                             \
        _tile_dpbssd(product, left, right);                                                                                                \
        _tile_stored(product, dot, 64);                                                                                                    \
    } while (0)

/* Blocks b and b + 1; the last one twice if it is alone. */
K3_INLINE void pair_products(vi dot[2][TILE_ROWS], const x_panel *x, const panel *w, int b, int n)
{
    int second = b + 1 < n ? b + 1 : b;
    K3_BLOCK_PRODUCT(dot[0], 0, 1, 2, x, w, b);
    K3_BLOCK_PRODUCT(dot[1], 3, 4, 5, x, w, second);
}

K3_INLINE void add_block(vf sum[TILE_ROWS], const vi dot[TILE_ROWS], const float *x_scale, vf w_scale, const k3_type type)
{
    for (int t = 0; t < TILE_ROWS; t++) {
        vf scale = type == K3_INT8 ? vf_set(x_scale[t]) : vf_mul(w_scale, vf_set(x_scale[t]));
        sum[t] = vf_fma(vi_to_float(dot[t]), scale, sum[t]);
    }
}

/* n blocks for 16 rows of x. y: 16 sums of each, which go on, or begin if is_first. The products of two blocks are on their way while those
 * of the two before are added. */
K3_INLINE void use_panel(float *const *y, int r, const x_panel *x, const panel *w, int n, int is_first, const k3_type type)
{
    vi dot[2][2][TILE_ROWS];
    vf sum[TILE_ROWS];
    for (int t = 0; t < TILE_ROWS; t++)
        sum[t] = is_first ? vf_zero() : vf_load(y[t] + r);
    tile_fence();
    pair_products(dot[0], x, w, 0, n);
    for (int b = 0; b < n; b += 2) {
        if (b + 2 < n)
            pair_products(dot[(b / 2 + 1) % 2], x, w, b + 2, n);
        add_block(sum, dot[b / 2 % 2][0], x->scale[b], w->scale[b], type);
        if (b + 1 < n)
            add_block(sum, dot[b / 2 % 2][1], x->scale[b + 1], w->scale[b + 1], type);
    }
    for (int t = 0; t < TILE_ROWS; t++)
        vf_store(y[t] + r, sum[t]);
}

/* Rows first .. last-1, a multiple of 16 of them, at most BLOCK_TILES tiles. */
K3_INLINE void rows(float *const *y, const k3_q8 *x, const int32_t *row_of, int T, const k3_cpu_mat *w, int first, int last,
                    const k3_type type)
{
    const signed char *codes = type == K3_INT8 ? x->codes : x->by_nibble;
    int n_blocks = w->cols / K3_Q8_BLOCK;
    panel panels[BLOCK_TILES];
    x_panel xp;
    float unused[BLOCK_TILES * TILE_ROWS];
    for (int b0 = 0; b0 < n_blocks; b0 += PANEL) {
        int n = n_blocks - b0 < PANEL ? n_blocks - b0 : PANEL;
        for (int r = first; r < last; r += TILE_ROWS)
            fill_panel(&panels[(r - first) / TILE_ROWS], w, r, b0, n, type);
        for (int t0 = 0; t0 < T; t0 += TILE_ROWS) {
            int n_t = T - t0 < TILE_ROWS ? T - t0 : TILE_ROWS;
            float *at[TILE_ROWS];
            for (int t = 0; t < TILE_ROWS; t++)
                at[t] = t < n_t ? y[t0 + t] + first : unused;
            fill_x(&xp, x, codes, row_of + t0, n_t, b0, n);
            for (int r = 0; r < last - first; r += TILE_ROWS)
                use_panel(at, r, &xp, &panels[r / TILE_ROWS], n, b0 == 0, type);
        }
    }
    for (int r = first; r < last && type == K3_INT8; r += TILE_ROWS) {
        vf scale = vf_load(w->scale + (size_t)r * w->scale_bytes);
        for (int t = 0; t < T; t++)
            vf_store(y[t] + r, vf_mul(vf_load(y[t] + r), scale));
    }
}

void k3_matmul_q8_amx(float *const *y, const k3_q8 *x, const int32_t *row_of, int T, const k3_cpu_mat *w, int first, int last)
{
    int has_tiles = T >= LEAST_T && (w->type == K3_INT8 || w->type == K3_INT4_G64 || w->type == K3_MXFP4);
    int whole = has_tiles ? first + (last - first) / TILE_ROWS * TILE_ROWS : first;
    tile_config config = block_tiles();
    if (whole > first) {
        tile_fence();
        _tile_loadconfig(&config);
    }
    for (int r = first; r < whole; r += BLOCK_TILES * TILE_ROWS) {
        int end = whole - r < BLOCK_TILES * TILE_ROWS ? whole : r + BLOCK_TILES * TILE_ROWS;
        if (w->type == K3_INT8)
            rows(y, x, row_of, T, w, r, end, K3_INT8);
        else if (w->type == K3_INT4_G64)
            rows(y, x, row_of, T, w, r, end, K3_INT4_G64);
        else
            rows(y, x, row_of, T, w, r, end, K3_MXFP4);
    }
    if (whole > first)
        _tile_release();
    if (whole < last)
        k3_matmul_q8_avx512(y, x, row_of, T, w, whole, last);
}
