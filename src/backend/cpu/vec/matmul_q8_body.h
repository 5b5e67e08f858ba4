/* Integer products on vectors; include after a vec and a vi header.
 *
 * A tile is VI_ROWS rows of the matrix, a lane each, so that a sum over blocks is one chain in one lane: the order of the scalar kernel.
 * The codes of a block of 32 columns are turned from rows to lanes by a transposition, 4 columns a lane and vector, as 8-bit numbers that
 * are not negative (plus an offset; the integer sum of x times it is taken off again). Few rows of x use the turned codes at once, out of
 * registers; many use them out of a panel that stays in the first-level cache. */
#include "backend/cpu/decode.h"
#include "backend/cpu/kernels.h"

#include <string.h>

#define K3_INLINE static inline __attribute__((always_inline))

/* Dwords of a block and row; blocks of a panel; rows of x that share a turn out of registers, and a pass over a panel. */
enum { DWORDS = K3_Q8_BLOCK / 4, PANEL = 32, FEW = 3, MANY = VI_MANY };

/* 16 bytes of each row, from p on, as 4 vectors: vector i holds dword i of each row. */
K3_INLINE void turn(vi out[4], const unsigned char *p, size_t stride)
{
    vi q[4], a, b, c, d;
    for (int i = 0; i < 4; i++)
        q[i] = vi_load_rows(p + (size_t)i * stride, 4 * stride);
    a = vi_unpack_low32(q[0], q[1]), b = vi_unpack_high32(q[0], q[1]);
    c = vi_unpack_low32(q[2], q[3]), d = vi_unpack_high32(q[2], q[3]);
    out[0] = vi_unpack_low64(a, c), out[1] = vi_unpack_high64(a, c);
    out[2] = vi_unpack_low64(b, d), out[3] = vi_unpack_high64(b, d);
}

/* The same where a row has only n < 16 bytes left: nothing behind them is touched. */
static void turn_upto(vi out[4], const unsigned char *p, size_t stride, size_t n)
{
    unsigned char kept[VI_ROWS][16] = {{0}};
    for (int i = 0; i < VI_ROWS; i++)
        memcpy(kept[i], p + (size_t)i * stride, n);
    turn(out, kept[0], 16);
}

K3_INLINE int bytes_a_block(const k3_type type)
{
    return type == K3_INT8 ? 32 : 16;
}

K3_INLINE int offset_of(const k3_type type)
{
    return type == K3_INT8 ? VI_INT8_OFFSET : type == K3_INT4_G64 ? 8 : 12;
}

/* The block at p of each row: DWORDS vectors of codes, in the order of k3_q8's codes or by_nibble. */
K3_INLINE void block_codes(vi u[DWORDS], const unsigned char *p, size_t stride, const k3_type type)
{
    if (type == K3_INT8) {
        turn(u, p, stride);
        turn(u + 4, p + 16, stride);
        for (int i = 0; i < DWORDS; i++)
            u[i] = vi_int8(u[i]);
        return;
    }
    vi d[4], nibble = vi_set8(15);
    turn(d, p, stride);
    for (int i = 0; i < 4; i++) {
        vi even = vi_and(d[i], nibble), odd = vi_and(vi_shift_right4(d[i]), nibble);
        u[2 * i] = type == K3_MXFP4 ? vi_twice_e2m1(even) : even;
        u[2 * i + 1] = type == K3_MXFP4 ? vi_twice_e2m1(odd) : odd;
    }
}

/* Scales of 4 groups of int4_g64 or of 16 blocks of mxfp4, as they lie in the rows. */
typedef struct scales {
    vi four[4];
} scales;

/* s = scales of block b in each row. Blocks are asked for in order, from a multiple of 16 on. */
K3_INLINE vf block_scale(scales *s, const k3_cpu_mat *w, const unsigned char *scale, int b, const k3_type type)
{
    int item = type == K3_MXFP4 ? b : b / 2 * 4, n = type == K3_MXFP4 ? w->cols / 32 : w->cols / 64 * 4; /* bytes */
    if (item % 16 == 0 && (type == K3_MXFP4 || b % 2 == 0)) {
        if (item + 16 <= n)
            turn(s->four, scale + item, w->scale_bytes);
        else
            turn_upto(s->four, scale + item, w->scale_bytes, (size_t)(n - item));
    }
    vi dword = s->four[item % 16 / 4];
    return type == K3_MXFP4 ? vf_mul(vi_e8m0(dword, b % 4), vf_set(0.5f)) : vi_as_float(dword);
}

/* One step of the chain: sum + (integer product) (scales). */
K3_INLINE vf add_block(vf sum, vi dot, vf w_scale, float x_scale, const k3_type type)
{
    vf scale = type == K3_INT8 ? vf_set(x_scale) : vf_mul(w_scale, vf_set(x_scale));
    return vf_fma(vi_to_float(dot), scale, sum);
}

K3_INLINE void finish(float *y, vf sum, const unsigned char *scale, const k3_type type)
{
    vf_store(y, type == K3_INT8 ? vf_mul(sum, vf_load(scale)) : sum);
}

K3_INLINE const signed char *codes_of(const k3_q8 *x, int t, const k3_type type)
{
    return (type == K3_INT8 ? x->codes : x->by_nibble) + (int64_t)t * x->cols;
}

/* Rows r .. r+VI_ROWS-1 for n_t <= FEW rows of x. What the next tile reads is fetched meanwhile, line after line: memory sees one stream.
 */
K3_INLINE void few(float *const *y, const k3_q8 *x, const int32_t *row_of, const int n_t, const k3_cpu_mat *w, int r, const k3_type type)
{
    const unsigned char *p = w->codes + (size_t)r * w->row_bytes, *scale = w->scale + (size_t)r * w->scale_bytes;
    const char *ahead = (const char *)p + VI_ROWS * w->row_bytes;
    int n_blocks = w->cols / K3_Q8_BLOCK, tile_bytes = VI_ROWS * bytes_a_block(type);
    vf sum[FEW];
    scales s = {{vi_zero(), vi_zero(), vi_zero(), vi_zero()}};
    for (int t = 0; t < n_t; t++)
        sum[t] = vf_zero();
    for (int b = 0; b < n_blocks; b++) {
        vi u[DWORDS];
        for (int i = 0; i < tile_bytes; i += 64)
            vf_prefetch(ahead + (size_t)b * (size_t)tile_bytes + i);
        block_codes(u, p + (size_t)b * (size_t)bytes_a_block(type), w->row_bytes, type);
        vf w_scale = type == K3_INT8 ? vf_zero() : block_scale(&s, w, scale, b, type);
        for (int t = 0; t < n_t; t++) {
            const signed char *codes = codes_of(x, row_of[t], type) + b * K3_Q8_BLOCK;
            int64_t at = (int64_t)row_of[t] * n_blocks + b;
            vi dot[2] = {vi_set32(-offset_of(type) * x->sum[at]), vi_zero()};
            for (int i = 0; i < DWORDS; i++)
                dot[i % 2] = type == K3_INT8 ? vi_dot_int8(dot[i % 2], u[i], codes + 4 * i) : vi_dot(dot[i % 2], u[i], codes + 4 * i);
            sum[t] = add_block(sum[t], vi_add32(dot[0], dot[1]), w_scale, x->scale[at], type);
        }
    }
    /* A row's scale lies alone, 4 bytes a row. */
    for (int t = 0; t < n_t; t++)
        finish(y[t] + r, sum[t], scale, type);
}

/* ---- many rows of x ------------------------------------------------------------------------------------------------------------ */

typedef struct panel {
    vi codes[PANEL][DWORDS];
    vf scale[PANEL];
} panel;

K3_INLINE void fill_panel(panel *to, const k3_cpu_mat *w, int r, int b0, int n, const k3_type type)
{
    const unsigned char *p = w->codes + (size_t)r * w->row_bytes, *scale = w->scale + (size_t)r * w->scale_bytes;
    scales s = {{vi_zero(), vi_zero(), vi_zero(), vi_zero()}};
    for (int b = 0; b < n; b++) {
        block_codes(to->codes[b], p + (size_t)(b0 + b) * (size_t)bytes_a_block(type), w->row_bytes, type);
        to->scale[b] = type == K3_INT8 ? vf_zero() : block_scale(&s, w, scale, b0 + b, type);
    }
}

/* Blocks b0 .. b0+n-1 of a panel for n_t rows of x. Sums go on from y, or begin at block 0. */
K3_INLINE void use_panel(float *const *y, const k3_q8 *x, const int32_t *row_of, const int n_t, const panel *from, int r, int b0, int n,
                         const k3_type type)
{
    int n_blocks = x->cols / K3_Q8_BLOCK;
    const signed char *codes[MANY];
    const float *x_scale[MANY];
    const int32_t *x_sum[MANY];
    vf sum[MANY];
    for (int t = 0; t < n_t; t++) {
        codes[t] = codes_of(x, row_of[t], type) + (int64_t)b0 * K3_Q8_BLOCK;
        x_scale[t] = x->scale + (int64_t)row_of[t] * n_blocks + b0;
        x_sum[t] = x->sum + (int64_t)row_of[t] * n_blocks + b0;
        sum[t] = b0 ? vf_load(y[t] + r) : vf_zero();
    }
    for (int b = 0; b < n; b++) {
        vi dot[MANY];
        for (int t = 0; t < n_t; t++)
            dot[t] = vi_set32(-offset_of(type) * x_sum[t][b]);
        for (int i = 0; i < DWORDS; i++) {
            vi u = from->codes[b][i];
            for (int t = 0; t < n_t; t++) {
                const signed char *at = codes[t] + b * K3_Q8_BLOCK + 4 * i;
                dot[t] = type == K3_INT8 ? vi_dot_int8(dot[t], u, at) : vi_dot(dot[t], u, at);
            }
        }
        for (int t = 0; t < n_t; t++)
            sum[t] = add_block(sum[t], dot[t], from->scale[b], x_scale[t][b], type);
    }
    for (int t = 0; t < n_t; t++)
        vf_store(y[t] + r, sum[t]);
}

/* Panels of all tiles go by before the next stretch of columns: what of x a stretch needs stays near. */
K3_INLINE void many(float *const *y, const k3_q8 *x, const int32_t *row_of, int T, const k3_cpu_mat *w, int first, int last,
                    const k3_type type)
{
    int n_blocks = w->cols / K3_Q8_BLOCK;
    panel p;
    for (int b0 = 0; b0 < n_blocks; b0 += PANEL) {
        int n = n_blocks - b0 < PANEL ? n_blocks - b0 : PANEL;
        for (int r = first; r < last; r += VI_ROWS) {
            fill_panel(&p, w, r, b0, n, type);
            int t = 0;
            for (; t + MANY <= T; t += MANY)
                use_panel(y + t, x, row_of + t, MANY, &p, r, b0, n, type);
            for (; t + MANY / 2 <= T; t += MANY / 2)
                use_panel(y + t, x, row_of + t, MANY / 2, &p, r, b0, n, type);
            for (; t < T; t++)
                use_panel(y + t, x, row_of + t, 1, &p, r, b0, n, type);
        }
    }
    for (int r = first; r < last && type == K3_INT8; r += VI_ROWS)
        for (int t = 0; t < T; t++)
            finish(y[t] + r, vf_load(y[t] + r), w->scale + (size_t)r * w->scale_bytes, type);
}

/* ---- x ------------------------------------------------------------------------------------------------------------------------ */

/* The scalar kernel's steps on vectors. */
void K3_KERNEL(quantize_q8)(const k3_q8 *q, int row, const float *x, int first, int last)
{
    int64_t start = (int64_t)row * q->cols;
    float kept[K3_Q8_BLOCK];
    for (int c0 = first; c0 < last; c0 += K3_Q8_BLOCK) {
        vf largest = vf_zero(), spoiled = vf_zero();
        int32_t sum = 0;
        for (int c = 0; c < K3_Q8_BLOCK; c += VF_LANES) {
            vf v = vf_load(x + c0 + c);
            largest = vf_max(largest, vf_abs(v));
            spoiled = vf_fma(v, vf_zero(), spoiled);
        }
        float most = vf_largest(largest), bad = vf_sum(spoiled);
        int is_lost = most < 0x1p-100f || bad != 0;
        vf inverse = vf_set(is_lost ? 0 : 127 / most);
        for (int c = 0; c < K3_Q8_BLOCK; c += VF_LANES)
            vf_store(kept + c, vf_round(vf_mul(vf_load(x + c0 + c), inverse)));
        for (int c = 0; c < K3_Q8_BLOCK; c++) {
            signed char code = (signed char)(is_lost ? 0 : (int)kept[c]);
            if (q->codes)
                q->codes[start + c0 + c] = code;
            if (q->by_nibble)
                q->by_nibble[start + c0 + c / 8 * 8 + c % 2 * 4 + c % 8 / 2] = code;
            sum += code;
        }
        q->scale[(start + c0) / K3_Q8_BLOCK] = bad != 0 ? bad : is_lost ? 0 : most / 127;
        q->sum[(start + c0) / K3_Q8_BLOCK] = sum;
    }
}

/* ---- by type ---------------------------------------------------------------------------------------------------------------------- */

K3_INLINE void tiles(float *const *y, const k3_q8 *x, const int32_t *row_of, int T, const k3_cpu_mat *w, int first, int last,
                     const k3_type type)
{
    if (T > FEW) {
        many(y, x, row_of, T, w, first, last, type);
        return;
    }
    for (int r = first; r < last; r += VI_ROWS) {
        if (T == 1)
            few(y, x, row_of, 1, w, r, type);
        else if (T == 2)
            few(y, x, row_of, 2, w, r, type);
        else
            few(y, x, row_of, 3, w, r, type);
    }
}

void K3_KERNEL(matmul_q8)(float *const *y, const k3_q8 *x, const int32_t *row_of, int T, const k3_cpu_mat *w, int first, int last)
{
    int whole = first + (last - first) / VI_ROWS * VI_ROWS;
    if (w->type == K3_INT8)
        tiles(y, x, row_of, T, w, first, whole, K3_INT8);
    else if (w->type == K3_INT4_G64)
        tiles(y, x, row_of, T, w, first, whole, K3_INT4_G64);
    else
        tiles(y, x, row_of, T, w, first, whole, K3_MXFP4);
    k3_matmul_q8_scalar(y, x, row_of, T, w, whole, last);
}
