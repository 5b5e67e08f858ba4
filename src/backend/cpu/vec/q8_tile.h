/* Codes and scales of a tile for integer products on vectors; include after a vec and a vi header.
 *
 * A tile is VI_ROWS rows of the matrix. The integer sums of a block end up in one vector, a lane a row, so that the sum over blocks is one
 * chain in one lane: the order of the scalar kernel. Codes are made numbers that are not negative, with an offset; what the offset adds is
 * taken off again. */
#ifndef K3_BACKEND_CPU_VEC_Q8_TILE_H
#define K3_BACKEND_CPU_VEC_Q8_TILE_H

#include "backend/cpu/decode.h"
#include "backend/cpu/kernels.h"

#include <string.h>

#define K3_INLINE static inline __attribute__((always_inline))

/* Dwords of a block and row; lanes of 16 bytes of a vector, which are the blocks of a step. */
enum { DWORDS = K3_Q8_BLOCK / 4, LANES = VI_ROWS / 4 };

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

/* 16 bytes of scales where a row has only n < 16 left. Nothing behind the last row is touched, its missing scales are 127; behind the
 * others lies the next one. */
static void turn_upto(vi out[4], const unsigned char *p, size_t stride, size_t n)
{
    unsigned char kept[VI_ROWS][16];
    memset(kept, 127, sizeof kept);
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
    if (type == K3_MXFP4) {
        vi_split_e2m1(even, odd, v);
        return;
    }
    *even = vi_and(v, vi_set8(15));
    *odd = vi_and(vi_shift_right4(v), vi_set8(15));
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

/* Scales of 4 groups of int4_g64 or of 16 blocks of mxfp4, as they lie in the rows: the dword of the next block first. Those of mxfp4 are
 * plain where half of each is a power of two that f32 holds as one, without a mantissa. */
typedef struct scales {
    vi four[4];
    int are_plain;
} scales;

K3_INLINE scales no_scales(void)
{
    return (scales){{vi_zero(), vi_zero(), vi_zero(), vi_zero()}, 1};
}

K3_INLINE void load_scales(scales *s, const unsigned char *p, size_t stride, int left, const k3_type type)
{
    vi four[4], less[4]; /* not in s, the address of which no call may take */
    if (left >= 16)
        turn16(four, p, stride);
    else
        turn_upto(four, p, stride, (size_t)left);
    for (int i = 0; i < 4; i++) {
        s->four[i] = four[i];
        less[i] = vi_sub8(four[i], vi_set8(2));
    }
    s->are_plain = type != K3_MXFP4 || !vi_any_above8(less, 252);
}

/* Half of the scale in byte i of each dword. */
K3_INLINE vf half_e8m0(const scales *s, int i)
{
    if (s->are_plain)
        return vi_exponent(vi_sub8(s->four[0], vi_set8(1)), i);
    return vf_mul(vi_e8m0(s->four[0], i), vf_set(0.5f));
}

/* out[j] = scale of block b + j in each row, j < n; half of it where codes are doubled. n is 1 or LANES, b a multiple of n. Blocks are
 * asked for in order, from a multiple of 16 on. */
K3_INLINE void block_scales(vf *out, scales *s, const k3_cpu_mat *w, const unsigned char *scale, int b, const int n, const k3_type type)
{
    if (has_row_scale(type))
        return;
    /* Bytes from the row's start and of the row; blocks of 4 bytes. */
    int item = type == K3_MXFP4 ? b : b / 2 * 4, row = type == K3_MXFP4 ? w->cols / 32 : w->cols / 64 * 4;
    const int a_dword = type == K3_MXFP4 ? 4 : 2;
    if (b % (4 * a_dword) == 0)
        load_scales(s, scale + item, w->scale_bytes, row - item, type);
    for (int j = 0; j < n; j++) {
        int i = (n == 4 ? j : b + j) % a_dword;
        out[j] = type == K3_MXFP4 ? half_e8m0(s, i) : vi_as_float(s->four[0]);
        if (i == a_dword - 1)
            s->four[0] = s->four[1], s->four[1] = s->four[2], s->four[2] = s->four[3];
    }
}

/* One step of the chain: sum + (integer product) (scales). */
K3_INLINE vf add_block(vf sum, vi dot, vf w_scale, float x_scale, const k3_type type)
{
    vf scale = has_row_scale(type) ? vf_set(x_scale) : vf_mul(w_scale, vf_set(x_scale));
    return vf_fma(vi_to_float(dot), scale, sum);
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

#endif
