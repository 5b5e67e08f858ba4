/* Integer products on vectors; include after a vec and a vi header.
 *
 * A tile is VI_ROWS rows of the matrix. The integer sums of a block end up in one vector, a lane a row, so that the sum over blocks is one
 * chain in one lane: the order of the scalar kernel. Codes are made numbers that are not negative, with an offset; what the offset adds is
 * taken off again.
 * Few rows of x multiply a row's bytes as they lie and add up the lanes. For many the codes are turned from rows to lanes by a
 * transposition, 4 columns a lane and vector, and used out of registers or out of a panel that stays in the caches. */
#include "backend/cpu/decode.h"
#include "backend/cpu/kernels.h"

#include <string.h>

#define K3_INLINE static inline __attribute__((always_inline))

/* Dwords of a block and row; lanes of 16 bytes of a vector, which are the blocks of a step; blocks of a panel; tiles that have a panel at a
 * time; most rows of x that multiply bytes as they lie, that share codes turned into registers, and that share a pass over a panel. */
enum { DWORDS = K3_Q8_BLOCK / 4, LANES = VI_ROWS / 4, PANEL = 32, TILES = 8, FEW = 3, SOME = VI_SOME, MANY = VI_MANY, NEAR = 512 };

/* ---- codes and scales of a tile -------------------------------------------------------------------------------------------------- */

/* Four vectors, each of dwords of every fourth row, as four of one dword of every row. */
K3_INLINE void turn(vi out[4], const vi q[4])
{
    vi a = vi_unpack_low32(q[0], q[1]), b = vi_unpack_high32(q[0], q[1]);
    vi c = vi_unpack_low32(q[2], q[3]), d = vi_unpack_high32(q[2], q[3]);
    out[0] = vi_unpack_low64(a, c), out[1] = vi_unpack_high64(a, c);
    out[2] = vi_unpack_low64(b, d), out[3] = vi_unpack_high64(b, d);
}

/* 16 bytes of each row, from p on: vector i holds dword i of each row. */
K3_INLINE void turn16(vi out[4], const unsigned char *p, size_t stride)
{
    vi q[4];
    for (int i = 0; i < 4; i++)
        q[i] = vi_load_rows(p + (size_t)i * stride, 4 * stride);
    turn(out, q);
}

/* 32 bytes. */
K3_INLINE void turn32(vi out[8], const unsigned char *p, size_t stride)
{
    vi low[4], high[4];
    for (int i = 0; i < 4; i++)
        vi_load_rows2(&low[i], &high[i], p + (size_t)i * stride, 4 * stride);
    turn(out, low);
    turn(out + 4, high);
}

/* 16 bytes where a row has only n < 16 left. Nothing behind the last row is touched; behind the others lies the next one. */
static void turn_upto(vi out[4], const unsigned char *p, size_t stride, size_t n)
{
    unsigned char kept[VI_ROWS][16] = {{0}};
    int whole = stride < 16 ? 0 : VI_ROWS - 1;
    for (int i = 0; i < whole; i++)
        memcpy(kept[i], p + (size_t)i * stride, 16);
    for (int i = whole; i < VI_ROWS; i++)
        memcpy(kept[i], p + (size_t)i * stride, n);
    turn16(out, kept[0], 16);
}

K3_INLINE int bytes_a_block(const k3_type type)
{
    return type == K3_INT8 ? 32 : type == K3_INT2 ? 8 : 16;
}

K3_INLINE int offset_of(const k3_type type)
{
    return type == K3_INT8 ? VI_INT8_OFFSET : type == K3_INT2 ? 2 : type == K3_MXFP4 ? 12 : 8;
}

K3_INLINE int has_row_scale(const k3_type type)
{
    return type == K3_INT8 || type == K3_INT4 || type == K3_INT2;
}

/* Codes out of bytes of two: those of even columns, those of odd ones. */
K3_INLINE void split_bytes(vi *even, vi *odd, vi v, const k3_type type)
{
    vi nibble = vi_set8(15);
    *even = vi_and(v, nibble);
    *odd = vi_and(vi_shift_right4(v), nibble);
    if (type == K3_MXFP4) {
        *even = vi_twice_e2m1(*even);
        *odd = vi_twice_e2m1(*odd);
    }
}

/* Four bytes of four 2-bit codes each as eight of two 4-bit codes. */
static inline uint64_t spread_pairs(uint64_t x)
{
    x = (x | x << 16) & 0x0000ffff0000ffffu;
    x = (x | x << 8) & 0x00ff00ff00ff00ffu;
    x = (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
    return (x | x << 2) & 0x3333333333333333u;
}

/* A row's n bytes of 2-bit codes, a multiple of 4, as 4-bit codes. */
static inline void spread(unsigned char *out, const unsigned char *p, int n)
{
    for (int i = 0; i < n; i += 4) {
        uint32_t four;
        memcpy(&four, p + i, 4);
        uint64_t eight = spread_pairs(four);
        memcpy(out + 2 * i, &eight, 8);
    }
}

/* n blocks at p of each row, 1 or 2: vectors of codes, in the order of k3_q8's codes or by_nibble. */
K3_INLINE void turned_codes(vi (*u)[DWORDS], const unsigned char *p, size_t stride, const int n, const k3_type type)
{
    unsigned char nibbles[VI_ROWS][32];
    vi d[8];
    if (type == K3_INT2) {
        for (int i = 0; i < VI_ROWS; i++)
            spread(nibbles[i], p + (size_t)i * stride, 8 * n);
        p = nibbles[0], stride = 32;
    }
    for (int b = 0; b < n && type == K3_INT8; b++) {
        turn32(u[b], p + 32 * b, stride);
        for (int i = 0; i < DWORDS; i++)
            u[b][i] = vi_int8(u[b][i]);
    }
    if (type == K3_INT8)
        return;
    if (n == 2)
        turn32(d, p, stride);
    else
        turn16(d, p, stride);
    for (int i = 0; i < 4 * n; i++)
        split_bytes(&u[i / 4][i % 4 * 2], &u[i / 4][i % 4 * 2 + 1], d[i], type);
}

/* Scales of 4 groups of int4_g64 or of 16 blocks of mxfp4, as they lie in the rows. */
typedef struct scales {
    vi four[4];
} scales;

/* out[j] = scale of block b + j in each row, j < n: all in one group of LANES. Blocks are asked for in order, from a multiple of 16 on. */
K3_INLINE void block_scales(vf *out, scales *s, const k3_cpu_mat *w, const unsigned char *scale, int b, const int n, const k3_type type)
{
    if (has_row_scale(type))
        return;
    int item = type == K3_MXFP4 ? b : b / 2 * 4, row = type == K3_MXFP4 ? w->cols / 32 : w->cols / 64 * 4; /* bytes */
    if (item % 16 == 0 && (type == K3_MXFP4 || b % 2 == 0)) {
        if (item + 16 <= row)
            turn16(s->four, scale + item, w->scale_bytes);
        else
            turn_upto(s->four, scale + item, w->scale_bytes, (size_t)(row - item));
    }
    const vi *dword = &s->four[item % 16 / 4];
    for (int j = 0; j < n; j++)
        out[j] = type == K3_MXFP4 ? vi_e8m0(*dword, n == 4 ? j : b % 4 + j) : vi_as_float(dword[(b % 2 + j) / 2]);
}

/* One step of the chain: sum + (integer product) (scales). */
K3_INLINE vf add_block(vf sum, vi dot, vf w_scale, float x_scale, const k3_type type)
{
    vf scale = has_row_scale(type) ? vf_set(x_scale) : vf_mul(w_scale, vf_set(x_scale));
    return vf_fma(vi_to_float(dot), scale, sum);
}

/* Half of x's scale where codes are doubled. */
K3_INLINE float scale_for(float x_scale, const k3_type type)
{
    return type == K3_MXFP4 ? 0.5f * x_scale : x_scale;
}

/* What multiplies the end: the row's scale, which lies alone, 4 bytes a row. */
K3_INLINE vf finish(vf sum, const k3_cpu_mat *w, int r, const k3_type type)
{
    if (has_row_scale(type))
        return vf_mul(sum, vf_load(w->scale + (size_t)r * w->scale_bytes));
    return sum;
}

K3_INLINE const signed char *codes_of(const k3_q8 *x, int t, const k3_type type)
{
    return (type == K3_INT8 ? x->codes : x->by_nibble) + (int64_t)t * x->cols;
}

K3_INLINE vi dot4(vi sum, const vi u[4], const signed char *x, const k3_type type)
{
    return type == K3_INT8 ? vi_dot4_int8(sum, u, x) : vi_dot4(sum, u, x);
}

/* ---- few rows of x ------------------------------------------------------------------------------------------------------------- */

/* x for a step of LANES blocks: the vectors that meet the two of a row, and what takes the offset off. */
typedef struct step_x {
    vi x[2], start[2];
} step_x;

K3_INLINE step_x load_step_x(const signed char *codes, const k3_type type)
{
    vi a = vi_load(codes), b = vi_load(codes + 4 * VI_ROWS), offset = vi_set8(offset_of(type));
    step_x s = {{a, b}, {vi_zero(), vi_zero()}};
    if (type != K3_INT8) {
        s.x[0] = vi_evens32(a, b), s.x[1] = vi_odds32(a, b);
        s.start[0] = vi_sub32(vi_zero(), vi_dot(vi_dot(vi_zero(), offset, s.x[0]), offset, s.x[1]));
    } else if (offset_of(type)) {
        s.start[0] = vi_sub32(vi_zero(), vi_dot(vi_zero(), offset, a));
        s.start[1] = vi_sub32(vi_zero(), vi_dot(vi_zero(), offset, b));
    }
    return s;
}

/* One row's LANES blocks: u[0] and u[1] meet x[0] and x[1]. */
K3_INLINE void row_codes(vi u[2], const unsigned char *p, const k3_type type)
{
    unsigned char nibbles[4 * VI_ROWS];
    if (type == K3_INT8) {
        u[0] = vi_int8(vi_load(p)), u[1] = vi_int8(vi_load(p + 4 * VI_ROWS));
        return;
    }
    if (type == K3_INT2)
        spread(nibbles, p, 2 * VI_ROWS);
    split_bytes(&u[0], &u[1], vi_load(type == K3_INT2 ? nibbles : p), type);
}

/* 16 bytes of sums for each block. */
K3_INLINE vi row_sums(const vi u[2], const step_x *s, const k3_type type)
{
    if (type == K3_INT8)
        return vi_join_halves(vi_dot_int8(s->start[0], u[0], s->x[0]), vi_dot_int8(s->start[1], u[1], s->x[1]));
    return vi_dot(vi_dot(s->start[0], u[0], s->x[0]), u[1], s->x[1]);
}

/* dot[t][j] = products of block j of the step, a lane a row. Sums of 8 products of codes up to 12 with 127 fit 16 bits, and so do two of
 * them. */
K3_INLINE void step_dots(vi (*dot)[LANES], const step_x *s, const int n_t, const unsigned char *p, size_t stride, const k3_type type)
{
    for (int g = 0; g < LANES; g++) {
        vi sums[FEW][4];
        for (int i = 0; i < 4; i++) {
            vi u[2];
            row_codes(u, p + (size_t)(4 * g + i) * stride, type);
            for (int t = 0; t < n_t; t++)
                sums[t][i] = row_sums(u, &s[t], type);
        }
        for (int t = 0; t < n_t; t++)
            dot[t][g] = type == K3_INT8 ? vi_pair_sums(vi_pair_sums(sums[t][0], sums[t][1]), vi_pair_sums(sums[t][2], sums[t][3]))
                                        : vi_pair_sums16(vi_pair_sums16(sums[t][0], sums[t][1]), vi_pair_sums16(sums[t][2], sums[t][3]));
    }
    for (int t = 0; t < n_t; t++)
        vi_turn_lanes(dot[t]);
}

/* Block b of a tile on its own, for the end of a row. */
K3_INLINE void block_dots(vi *dot, const k3_q8 *x, const int32_t *row_of, const int n_t, const unsigned char *p, size_t stride, int b,
                          const k3_type type)
{
    vi u[1][DWORDS];
    turned_codes(u, p, stride, 1, type);
    for (int t = 0; t < n_t; t++) {
        const signed char *codes = codes_of(x, row_of[t], type) + b * K3_Q8_BLOCK;
        dot[t] = vi_set32(-offset_of(type) * x->sum[(int64_t)row_of[t] * (x->cols / K3_Q8_BLOCK) + b]);
        for (int i = 0; i < DWORDS; i += 4)
            dot[t] = dot4(dot[t], u[0] + i, codes + 4 * i, type);
    }
}

/* Rows r .. r+VI_ROWS-1 of first .. last-1, for n_t <= FEW rows of x. What the next tile reads is fetched meanwhile, line after line:
 * memory sees one stream. What comes after `last` is another thread's. The first tile, which nobody has fetched, is so a little ahead. */
K3_INLINE void few(float *const *y, const k3_q8 *x, const int32_t *row_of, const int n_t, const k3_cpu_mat *w, int first, int r, int last,
                   const k3_type type)
{
    const unsigned char *p = w->codes + (size_t)r * w->row_bytes, *scale = w->scale + (size_t)r * w->scale_bytes;
    const char *ahead = (const char *)p + VI_ROWS * w->row_bytes;
    const int row_step = LANES * bytes_a_block(type);
    int n_blocks = w->cols / K3_Q8_BLOCK, b = 0, has_next = r + VI_ROWS < last;
    scales s = {{vi_zero(), vi_zero(), vi_zero(), vi_zero()}};
    vf sum[FEW], w_scale[LANES];
    for (int j = 0; j < LANES; j++)
        w_scale[j] = vf_zero();
    for (int t = 0; t < n_t; t++)
        sum[t] = vf_zero();
    for (size_t i = 0; has_next && i < VI_ROWS * w->scale_bytes && !has_row_scale(type); i += 64)
        vf_prefetch(scale + VI_ROWS * w->scale_bytes + i);
    for (; b + LANES <= n_blocks; b += LANES) {
        step_x xs[FEW];
        vi dot[FEW][LANES];
        for (int i = 0; has_next && i < VI_ROWS * row_step; i += 64)
            vf_prefetch(ahead + i);
        for (int i = 0; r == first && i < VI_ROWS; i++)
            for (int j = 0; j < row_step; j += 64)
                vf_prefetch(p + (size_t)i * w->row_bytes + (size_t)b * (size_t)bytes_a_block(type) + NEAR + j);
        ahead += VI_ROWS * row_step;
        for (int t = 0; t < n_t; t++)
            xs[t] = load_step_x(codes_of(x, row_of[t], type) + b * K3_Q8_BLOCK, type);
        step_dots(dot, xs, n_t, p + (size_t)b * (size_t)bytes_a_block(type), w->row_bytes, type);
        block_scales(w_scale, &s, w, scale, b, LANES, type);
        for (int t = 0; t < n_t; t++) {
            const float *x_scale = x->scale + (int64_t)row_of[t] * n_blocks + b;
            for (int j = 0; j < LANES; j++)
                sum[t] = add_block(sum[t], dot[t][j], w_scale[j], scale_for(x_scale[j], type), type);
        }
    }
    for (; b < n_blocks; b++) {
        vi dot[FEW];
        block_dots(dot, x, row_of, n_t, p + (size_t)b * (size_t)bytes_a_block(type), w->row_bytes, b, type);
        block_scales(w_scale, &s, w, scale, b, 1, type);
        for (int t = 0; t < n_t; t++)
            sum[t] = add_block(sum[t], dot[t], w_scale[0], scale_for(x->scale[(int64_t)row_of[t] * n_blocks + b], type), type);
    }
    for (int t = 0; t < n_t; t++)
        vf_store(y[t] + r, finish(sum[t], w, r, type));
}

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
            to->scale[t][b] = scale_for(x->scale[first + b], type);
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
    scales s = {{vi_zero(), vi_zero(), vi_zero(), vi_zero()}};
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
    scales s = {{vi_zero(), vi_zero(), vi_zero(), vi_zero()}};
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

/* A function for each type and small number of rows of x: what lies between the loops of one is no burden to the registers of another. */
#define K3_TILES(name, type)                                                                                                               \
    static __attribute__((noinline)) void name##_1(float *const *y, const k3_q8 *x, const int32_t *row_of, const k3_cpu_mat *w, int first, \
                                                   int last)                                                                               \
    {                                                                                                                                      \
        for (int r = first; r < last; r += VI_ROWS)                                                                                        \
            few(y, x, row_of, 1, w, first, r, last, type);                                                                                 \
    }                                                                                                                                      \
    static __attribute__((noinline)) void name##_2(float *const *y, const k3_q8 *x, const int32_t *row_of, const k3_cpu_mat *w, int first, \
                                                   int last)                                                                               \
    {                                                                                                                                      \
        for (int r = first; r < last; r += VI_ROWS)                                                                                        \
            few(y, x, row_of, 2, w, first, r, last, type);                                                                                 \
    }                                                                                                                                      \
    static __attribute__((noinline)) void name##_3(float *const *y, const k3_q8 *x, const int32_t *row_of, const k3_cpu_mat *w, int first, \
                                                   int last)                                                                               \
    {                                                                                                                                      \
        for (int r = first; r < last; r += VI_ROWS)                                                                                        \
            few(y, x, row_of, 3, w, first, r, last, type);                                                                                 \
    }                                                                                                                                      \
    static __attribute__((noinline)) void name##_many(float *const *y, const k3_q8 *x, const int32_t *row_of, int T, const k3_cpu_mat *w,  \
                                                      int first, int last)                                                                 \
    {                                                                                                                                      \
        many(y, x, row_of, T, w, first, last, type);                                                                                       \
    }                                                                                                                                      \
    static __attribute__((noinline)) void name(float *const *y, const k3_q8 *x, const int32_t *row_of, int T, const k3_cpu_mat *w,         \
                                               int first, int last)                                                                        \
    {                                                                                                                                      \
        if (T == 1)                                                                                                                        \
            name##_1(y, x, row_of, w, first, last);                                                                                        \
        else if (T == 2)                                                                                                                   \
            name##_2(y, x, row_of, w, first, last);                                                                                        \
        else if (T == 3)                                                                                                                   \
            name##_3(y, x, row_of, w, first, last);                                                                                        \
        else                                                                                                                               \
            name##_many(y, x, row_of, T, w, first, last);                                                                                  \
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
