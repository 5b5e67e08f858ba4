/* Integer products on vectors; include after a vec and a vi header and matmul_q8_few_body.h. For many rows of x the codes are turned from
 * rows to lanes by a transposition, 4 columns a lane and vector, and used out of registers or out of a panel that stays in the caches. */
#include "backend/cpu/vec/q8_tile.h"

/* Blocks of a panel; tiles that have a panel at a time; most rows of x that share codes turned into registers, and that share a pass over a
 * panel. */
enum { PANEL = 32, TILES = 8, SOME = VI_SOME, MANY = VI_MANY };

/* ---- many rows of x ------------------------------------------------------------------------------------------------------------ */

/* A stretch of columns of the rows of x of one pass, side by side: one place to read from, however many rows. */
typedef struct x_pass {
    signed char codes[MANY][PANEL + 2][K3_Q8_BLOCK];
    int32_t start[MANY][PANEL]; /* takes the offset off */
    float scale[MANY][PANEL];
} x_pass;

/* A stretch of columns of a tile. */
typedef struct panel {
    vi codes[PANEL][DWORDS];
    vf scale[PANEL];
} panel;

/* Where a stretch lies: blocks b0 .. b0+n-1. Sums begin at block 0, and else go on from y. */
typedef struct stretch {
    int b0, n, is_last;
} stretch;

K3_INLINE void fill_pass(x_pass *to, const k3_q8 *x, const int32_t *row_of, int n_t, stretch at, const k3_type type)
{
    int n_blocks = x->cols / K3_Q8_BLOCK;
    for (int t = 0; t < n_t; t++) {
        int64_t first = (int64_t)row_of[t] * n_blocks + at.b0;
        memcpy(to->codes[t], codes_of(x, row_of[t], type) + (int64_t)at.b0 * K3_Q8_BLOCK, (size_t)at.n * K3_Q8_BLOCK);
        for (int b = 0; b < at.n; b++) {
            to->scale[t][b] = x->scale[first + b];
            to->start[t][b] = -offset_of(type) * x->sum[first + b];
        }
    }
}

K3_INLINE void begin_sums(vf *sum, float *const *y, const int n_t, int r, stretch at)
{
    for (int t = 0; t < n_t; t++)
        sum[t] = at.b0 ? vf_load(y[t] + r) : vf_zero();
}

K3_INLINE void end_sums(float *const *y, const vf *sum, const int n_t, const k3_cpu_mat *w, int r, stretch at, const k3_type type)
{
    for (int t = 0; t < n_t; t++)
        vf_store(y[t] + r, at.is_last ? finish(sum[t], w, r, type) : sum[t]);
}

/* Block b of a stretch. */
K3_INLINE void use_block(vf *sum, const x_pass *x, const int n_t, const vi u[DWORDS], vf w_scale, int b, const k3_type type)
{
    vi dot[MANY];
    for (int t = 0; t < n_t; t++)
        dot[t] = vi_set32(x->start[t][b]);
    for (int i = 0; i < DWORDS; i += 4)
        for (int t = 0; t < n_t; t++)
            dot[t] = dot4(dot[t], u + i, x->codes[t][b] + 4 * i, type);
    for (int t = 0; t < n_t; t++)
        sum[t] = add_block(sum[t], dot[t], w_scale, x->scale[t][b], type);
}

/* Asks for what the next tile has in the columns of blocks b .. b+n-1, of which p is the place in the first row: each row's line once. */
K3_INLINE void fetch_next_tile(const unsigned char *p, size_t stride, int b, const int n, const k3_type type)
{
    const int blocks_a_line = 64 / bytes_a_block(type), every = blocks_a_line > n ? blocks_a_line / n : 1;
    for (int i = b / n % every; i < VI_ROWS; i += every)
        vf_prefetch(p + (size_t)(VI_ROWS + i) * stride);
}

K3_INLINE void fill_panel(panel *to, const k3_cpu_mat *w, int r, stretch at, const k3_type type)
{
    const unsigned char *p = w->codes + (size_t)r * w->row_bytes + (size_t)at.b0 * (size_t)bytes_a_block(type);
    const unsigned char *scale = w->scale + (size_t)r * w->scale_bytes;
    scales s = no_scales();
    int b = 0;
    for (; b + 2 <= at.n; b += 2) {
        fetch_next_tile(p + b * bytes_a_block(type), w->row_bytes, b, 2, type);
        turned_codes(to->codes + b, p + b * bytes_a_block(type), w->row_bytes, 2, type);
    }
    if (b < at.n)
        turned_codes(to->codes + b, p + b * bytes_a_block(type), w->row_bytes, 1, type);
    for (b = 0; b + LANES <= at.n; b += LANES)
        block_scales(to->scale + b, &s, w, scale, at.b0 + b, LANES, type);
    for (; b < at.n; b++)
        block_scales(to->scale + b, &s, w, scale, at.b0 + b, 1, type);
}

K3_INLINE void use_panel(float *const *y, const x_pass *x, const int n_t, const panel *from, const k3_cpu_mat *w, int r, stretch at,
                         const k3_type type)
{
    vf sum[MANY];
    begin_sums(sum, y, n_t, r, at);
    for (int b = 0; b < at.n; b++)
        use_block(sum, x, n_t, from->codes[b], from->scale[b], b, type);
    end_sums(y, sum, n_t, w, r, at, type);
}

/* The same without a panel, for n_t <= SOME. */
K3_INLINE void use_tile(float *const *y, const x_pass *x, const int n_t, const k3_cpu_mat *w, int r, stretch at, const k3_type type)
{
    const unsigned char *p = w->codes + (size_t)r * w->row_bytes + (size_t)at.b0 * (size_t)bytes_a_block(type);
    const unsigned char *scale = w->scale + (size_t)r * w->scale_bytes;
    scales s = no_scales();
    vf sum[MANY], w_scale = vf_zero();
    begin_sums(sum, y, n_t, r, at);
    for (int b = 0; b < at.n; b++) {
        vi u[1][DWORDS];
        fetch_next_tile(p + b * bytes_a_block(type), w->row_bytes, b, 1, type);
        turned_codes(u, p + b * bytes_a_block(type), w->row_bytes, 1, type);
        block_scales(&w_scale, &s, w, scale, at.b0 + b, 1, type);
        use_block(sum, x, n_t, u[0], w_scale, b, type);
    }
    end_sums(y, sum, n_t, w, r, at, type);
}

/* Calls `use` with n_t known to the compiler. */
#define K3_BY_ROWS(n_t, most, use)                                                                                                         \
    switch (n_t) {                                                                                                                         \
        K3_CASE(1, most, use)                                                                                                              \
        K3_CASE(2, most, use)                                                                                                              \
        K3_CASE(3, most, use)                                                                                                              \
        K3_CASE(4, most, use)                                                                                                              \
        K3_CASE(5, most, use)                                                                                                              \
        K3_CASE(6, most, use)                                                                                                              \
        K3_CASE(7, most, use)                                                                                                              \
        K3_CASE(8, most, use)                                                                                                              \
        K3_CASE(9, most, use)                                                                                                              \
        K3_CASE(10, most, use)                                                                                                             \
        K3_CASE(11, most, use)                                                                                                             \
        K3_CASE(12, most, use)                                                                                                             \
    }
#define K3_CASE(n, most, use)                                                                                                              \
    case (n):                                                                                                                              \
        if ((n) <= (most))                                                                                                                 \
            use((n) <= (most) ? (n) : 1);                                                                                                  \
        break;

/* Passes of about the same number of rows. */
static int pass_rows(int T)
{
    int n = (T + MANY - 1) / MANY;
    return (T + n - 1) / n;
}

/* Panels of all tiles go by before the next stretch of columns: what of x a stretch needs stays near. */
K3_INLINE void many(float *const *y, const k3_q8 *x, const int32_t *row_of, int T, const k3_cpu_mat *w, int first, int last,
                    const k3_type type)
{
    int n_blocks = w->cols / K3_Q8_BLOCK, rows = pass_rows(T), tiles = T > rows ? TILES : 1;
    panel p[TILES];
    x_pass pass;
    for (int b0 = 0; b0 < n_blocks; b0 += PANEL) {
        stretch at = {b0, n_blocks - b0 < PANEL ? n_blocks - b0 : PANEL, b0 + PANEL >= n_blocks};
        for (int r0 = first; r0 < last; r0 += tiles * VI_ROWS) {
            int n = (last - r0) / VI_ROWS < tiles ? (last - r0) / VI_ROWS : tiles;
            for (int i = 0; i < n && T > SOME; i++)
                fill_panel(&p[i], w, r0 + i * VI_ROWS, at, type);
            for (int t = 0; t < T; t += rows) {
                int n_t = T - t < rows ? T - t : rows;
                if (T > rows || r0 == first)
                    fill_pass(&pass, x, row_of + t, n_t, at, type);
#define K3_USE_TILE(n_x) use_tile(y + t, &pass, n_x, w, r0, at, type)
#define K3_USE_PANEL(n_x) use_panel(y + t, &pass, n_x, &p[i], w, r0 + i * VI_ROWS, at, type)
                if (T <= SOME)
                    K3_BY_ROWS(n_t, SOME, K3_USE_TILE)
                for (int i = 0; i < n && T > SOME; i++)
                    K3_BY_ROWS(n_t, MANY, K3_USE_PANEL)
#undef K3_USE_TILE
#undef K3_USE_PANEL
            }
        }
    }
}

/* ---- x ------------------------------------------------------------------------------------------------------------------------ */

/* The scalar kernel's steps on vectors. The bits of numbers that are not negative are in the order of the numbers, infinity and NaN last.
 */
void K3_KERNEL(quantize_q8)(const k3_q8 *q, int row, const float *x, int first, int last)
{
    enum { N = K3_Q8_BLOCK / VF_LANES };
    int64_t start = (int64_t)row * q->cols;
    for (int c = first; c < last; c += K3_Q8_BLOCK) {
        int64_t block = (start + c) / K3_Q8_BLOCK;
        signed char *codes = q->codes ? q->codes + start + c : NULL, *by_nibble = q->by_nibble ? q->by_nibble + start + c : NULL;
        vf v[N];
        vi most = vi_zero(), sum = vi_zero(), code[N];
        for (int i = 0; i < N; i++) {
            v[i] = vf_load(x + c + i * VF_LANES);
            most = vi_max32(most, vi_of_float(vf_abs(v[i])));
        }
        int32_t bits = vi_largest32(most);
        int is_spoiled = bits >= 0x7f800000;
        float largest = k3_float_of_bits((uint32_t)bits), inverse = is_spoiled || largest < 0x1p-100f ? 0 : 127 / largest;
        for (int i = 0; i < N; i++) {
            code[i] = inverse == 0 ? vi_zero() : vi_round(vf_mul(v[i], vf_set(inverse)));
            sum = vi_add32(sum, code[i]);
        }
        vi_store_codes(codes, by_nibble, code);
        q->scale[block] = is_spoiled ? k3_float_of_bits(0x7fc00000) : inverse == 0 ? 0 : largest / 127;
        q->sum[block] = vi_sum32(sum);
    }
}

/* ---- by type ---------------------------------------------------------------------------------------------------------------------- */

#define K3_TILES(name, type)                                                                                                               \
    K3_FEW(name, type)                                                                                                                     \
    static __attribute__((noinline)) void name##_many(float *const *y, const k3_q8 *x, const int32_t *row_of, int T, const k3_cpu_mat *w,  \
                                                      int first, int last)                                                                 \
    {                                                                                                                                      \
        many(y, x, row_of, T, w, first, last, type);                                                                                       \
    }                                                                                                                                      \
    static void name(float *const *y, const k3_q8 *x, const int32_t *row_of, int T, const k3_cpu_mat *w, int first, int last)              \
    {                                                                                                                                      \
        (T <= FEW ? name##_few : name##_many)(y, x, row_of, T, w, first, last);                                                            \
    }

K3_TILES(int8, K3_INT8)
K3_TILES(int4, K3_INT4)
K3_TILES(int4_g64, K3_INT4_G64)
K3_TILES(int2, K3_INT2)
K3_TILES(mxfp4, K3_MXFP4)

void K3_KERNEL(matmul_q8)(float *const *y, const k3_q8 *x, const int32_t *row_of, int T, const k3_cpu_mat *w, int first, int last)
{
    int whole = first + (last - first) / VI_ROWS * VI_ROWS;
    if (w->type == K3_INT8)
        int8(y, x, row_of, T, w, first, whole);
    else if (w->type == K3_INT4)
        int4(y, x, row_of, T, w, first, whole);
    else if (w->type == K3_INT4_G64)
        int4_g64(y, x, row_of, T, w, first, whole);
    else if (w->type == K3_INT2)
        int2(y, x, row_of, T, w, first, whole);
    else
        mxfp4(y, x, row_of, T, w, first, whole);
    k3_matmul_q8_scalar(y, x, row_of, T, w, whole, last);
}
