/* Integer products for few rows of x; include after a vec and a vi header. A row's bytes are multiplied as they lie, a step of LANES blocks
 * at a time, and lanes are added up. */
#include "backend/cpu/vec/q8_tile.h"

/* Most rows of x; bytes of a line of the cache; how far ahead of its use a piece's first tile is fetched in each row, in bytes. */
enum { FEW = 3, LINE = 64, NEAR = 512 };

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
    if (type == K3_INT8)
        u[0] = vi_int8(vi_load(p)), u[1] = vi_int8(vi_load(p + 4 * VI_ROWS));
    else
        split_bytes(&u[0], &u[1], type == K3_INT2 ? vi_load_spread(p) : vi_load_once(p), type);
}

/* 16 bytes of sums for each block. */
K3_INLINE vi row_sums(const vi u[2], const step_x *s, const k3_type type)
{
    if (type == K3_INT8)
        return vi_join_halves(vi_dot_int8(s->start[0], u[0], s->x[0]), vi_dot_int8(s->start[1], u[1], s->x[1]));
    return vi_dot(vi_dot(s->start[0], u[0], s->x[0]), u[1], s->x[1]);
}

/* What a thread reads after a tile: `left` bytes from p on, then those from `next` on, if that is not NULL; in the end `last`, which is
 * there already. */
typedef struct stream {
    const unsigned char *p, *next, *last;
    int64_t left;
} stream;

/* Places that lines are asked for: where they come in turn, and 4, 8, .. KB further. So each is asked for VI_ASKS times in the end, because
 * a processor drops such a request while too many are on their way. */
typedef struct asks {
    const unsigned char *p[VI_ASKS];
} asks;

K3_INLINE asks places(const stream *s, int64_t at)
{
    asks a;
    for (int i = 0; i < VI_ASKS; i++) {
        int64_t place = at + (i ? 2048 << i : 0);
        a.p[i] = place < s->left ? s->p + place : s->next ? s->next + (place - s->left) : s->last;
    }
    return a;
}

/* The lines of n bytes, `from` bytes behind each place. */
K3_INLINE void fetch(const asks *a, const int from, const int n)
{
    for (int i = 0; i < n; i += LINE)
        for (int k = 0; k < VI_ASKS; k++)
            vf_prefetch(a->p[k] + from + i);
}

/* dot[t][j] = products of block j of the step, a lane a row. Sums of 8 products of codes up to 12 with 127 fit 16 bits, and so do two of
 * them. As many bytes are fetched as are used. */
K3_INLINE void step_dots(vi (*dot)[LANES], const step_x *s, const int n_t, const unsigned char *p, size_t stride, const asks *ahead,
                         const k3_type type)
{
    const int row_step = LANES * bytes_a_block(type);
    for (int g = 0; g < LANES; g++) {
        vi sums[FEW][4];
        for (int i = 0; i < 4; i++) {
            vi u[2];
            /* There are no registers for the addresses of all rows, and what is fetched at once is not fetched. */
            __asm__ volatile("" : "+r"(p) : : "memory");
            if ((4 * g + i) * row_step % LINE == 0)
                fetch(ahead, (4 * g + i) * row_step, row_step);
            row_codes(u, p + (size_t)i * stride, type);
            for (int t = 0; t < n_t; t++)
                sums[t][i] = row_sums(u, &s[t], type);
        }
        p += 4 * stride;
        for (int t = 0; t < n_t; t++)
            dot[t][g] = type == K3_INT8 ? vi_pair_sums(vi_pair_sums(sums[t][0], sums[t][1]), vi_pair_sums(sums[t][2], sums[t][3]))
                                        : vi_four_sums16(sums[t]);
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
 * memory sees one stream. Behind `last` are other threads' rows: after the last tile comes what the matrix says. A first tile that nobody
 * fetched is so a little ahead. */
K3_INLINE void few(float *const *y, const k3_q8 *x, const int32_t *row_of, const int n_t, const k3_cpu_mat *w, int first, int r, int last,
                   const k3_type type)
{
    const unsigned char *p = w->codes + (size_t)r * w->row_bytes, *scale = w->scale + (size_t)r * w->scale_bytes;
    const int row_step = LANES * bytes_a_block(type), scale_step = has_row_scale(type) ? 0 : VI_ROWS * LANES * (type == K3_MXFP4 ? 1 : 2);
    const int64_t rows_left = last - r - VI_ROWS;
    const stream codes_ahead = {p + VI_ROWS * w->row_bytes, w->next, p, rows_left * (int64_t)w->row_bytes};
    const stream scales_ahead = {scale + VI_ROWS * w->scale_bytes, w->next_scale, scale, rows_left * (int64_t)w->scale_bytes};
    int n_blocks = w->cols / K3_Q8_BLOCK, b = 0;
    scales s = no_scales();
    vf sum[FEW], w_scale[LANES];
    const signed char *codes[FEW];
    const float *x_scale[FEW];
    for (int j = 0; j < LANES; j++)
        w_scale[j] = vf_zero();
    for (int t = 0; t < n_t; t++) {
        sum[t] = vf_zero();
        codes[t] = codes_of(x, row_of[t], type);
        x_scale[t] = x->scale + (int64_t)row_of[t] * n_blocks;
    }
    for (; b + LANES <= n_blocks; b += LANES) {
        step_x xs[FEW];
        vi dot[FEW][LANES];
        for (int t = 0; t < n_t; t++)
            xs[t] = load_step_x(codes[t] + b * K3_Q8_BLOCK, type);
        if (scale_step && b / LANES * scale_step % LINE == 0) {
            asks ahead = places(&scales_ahead, b / LANES * scale_step);
            fetch(&ahead, 0, scale_step);
        }
        for (int i = 0; r == first && i < VI_ROWS; i++)
            for (int j = 0; j < row_step; j += LINE)
                vf_prefetch(p + (size_t)i * w->row_bytes + (size_t)b * (size_t)bytes_a_block(type) + NEAR + j);
        asks ahead = places(&codes_ahead, (int64_t)b / LANES * VI_ROWS * row_step);
        step_dots(dot, xs, n_t, p + (size_t)b * (size_t)bytes_a_block(type), w->row_bytes, &ahead, type);
        block_scales(w_scale, &s, w, scale, b, LANES, type);
        for (int t = 0; t < n_t; t++)
            for (int j = 0; j < LANES; j++)
                sum[t] = add_block(sum[t], dot[t][j], w_scale[j], x_scale[t][b + j], type);
    }
    for (; b < n_blocks; b++) {
        vi dot[FEW];
        block_dots(dot, x, row_of, n_t, p + (size_t)b * (size_t)bytes_a_block(type), w->row_bytes, b, type);
        block_scales(w_scale, &s, w, scale, b, 1, type);
        for (int t = 0; t < n_t; t++)
            sum[t] = add_block(sum[t], dot[t], w_scale[0], x_scale[t][b], type);
    }
    for (int t = 0; t < n_t; t++)
        vf_store(y[t] + r, finish(sum[t], w, r, type));
}

/* A function for each type and number of rows of x: what lies between the loops of one is no burden to the registers of another. */
#define K3_FEW_ROWS(name, n, type)                                                                                                         \
    static __attribute__((noinline)) void name(float *const *y, const k3_q8 *x, const int32_t *row_of, const k3_cpu_mat *w, int first,     \
                                               int last)                                                                                   \
    {                                                                                                                                      \
        for (int r = first; r < last; r += VI_ROWS)                                                                                        \
            few(y, x, row_of, n, w, first, r, last, type);                                                                                 \
    }

/* Those of a type, and name_few, for T <= FEW rows of x and whole tiles. */
#define K3_FEW(name, type)                                                                                                                 \
    K3_FEW_ROWS(name##_1, 1, type)                                                                                                         \
    K3_FEW_ROWS(name##_2, 2, type)                                                                                                         \
    K3_FEW_ROWS(name##_3, 3, type)                                                                                                         \
    static void name##_few(float *const *y, const k3_q8 *x, const int32_t *row_of, int T, const k3_cpu_mat *w, int first, int last)        \
    {                                                                                                                                      \
        (T == 1 ? name##_1 : T == 2 ? name##_2 : name##_3)(y, x, row_of, w, first, last);                                                  \
    }
