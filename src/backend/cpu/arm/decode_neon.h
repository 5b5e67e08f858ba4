/* Four weights of a row as f32: decode.h in vectors. Nothing beyond the row's bytes is read. */
#ifndef K3_BACKEND_CPU_ARM_DECODE_VEC_H
#define K3_BACKEND_CPU_ARM_DECODE_VEC_H

#include "backend/cpu/arm/vec_neon.h"
#include "backend/cpu/decode.h"

/* Lane i holds the `bits` bits of code i of a little-endian word. */
static inline uint32x4_t k3_codes(uint32_t word, int bits)
{
    const int32_t shifts[4] = {0, -bits, -2 * bits, -3 * bits};
    return vandq_u32(vshlq_u32(vdupq_n_u32(word), vld1q_s32(shifts)), vdupq_n_u32((1u << bits) - 1));
}

/* The codes less `zero` as f32. */
static inline vf k3_integers(uint32_t word, int bits, int zero)
{
    return vcvtq_f32_s32(vsubq_s32(vreinterpretq_s32_u32(k3_codes(word, bits)), vdupq_n_s32(zero)));
}

static inline uint32_t k3_two_bytes(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

/* The upper two bytes of the sixteen floats, the third ones of all first; the lower two are what a place beyond the table gives, 0. */
static inline vf k3_e2m1_vector(const unsigned char *at)
{
    static const unsigned char bytes[32] = {0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0, 0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0,
                                            0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, 0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0};
    const uint8x16x2_t table = {{vld1q_u8(bytes), vld1q_u8(bytes + 16)}};
    uint32x4_t places = vmlaq_u32(vdupq_n_u32(0x1000ffff), k3_codes(k3_two_bytes(at), 4), vdupq_n_u32(0x01010000));
    return vreinterpretq_f32_u8(vqtbl2q_u8(table, vreinterpretq_u8_u32(places)));
}

/* What k3_weights needs of the group that column `col` lies in: its scale. */
static inline __attribute__((always_inline)) vf k3_group(k3_type type, const unsigned char *scale, int col)
{
    switch (type) {
    case K3_INT4_G64:
    case K3_INT3_G64:
        return vf_set(k3_load_f32(scale, (size_t)(col / 64)));
    case K3_MXFP4:
        return vf_set(k3_e8m0(scale[col / 32]));
    default:
        return vf_zero();
    }
}

/* Weights col .. col+3, col a multiple of 4; `group` is k3_group of col. */
static inline __attribute__((always_inline)) vf k3_weights(k3_type type, const unsigned char *codes, vf group, int col)
{
    switch (type) {
    case K3_F32:
        return vf_load(codes + 4 * (size_t)col);
    case K3_BF16:
        return vf_load_bf16(codes + 2 * (size_t)col);
    case K3_INT8:
        return vf_load_int8(codes + col);
    case K3_INT4:
        return k3_integers(k3_two_bytes(codes + col / 2), 4, 8);
    case K3_INT4_G64:
        return vf_mul(k3_integers(k3_two_bytes(codes + col / 2), 4, 8), group);
    case K3_INT3_G64: /* 12 bits, which begin or end in the middle of a byte */
        return vf_mul(k3_integers(k3_two_bytes(codes + col * 3 / 8) >> col % 8, 3, 4), group);
    case K3_INT2:
        return k3_integers(codes[col / 4], 2, 2);
    default:
        return vf_mul(k3_e2m1_vector(codes + col / 2), group);
    }
}

#endif
