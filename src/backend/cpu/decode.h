/* Number formats of stored weights, decoded in one place. Rows may lie at any address: a checkpoint promises no alignment. */
#ifndef K3_BACKEND_CPU_DECODE_H
#define K3_BACKEND_CPU_DECODE_H

#include "backend/tensor.h"
#include "base/bf16.h"

#include <string.h>

static inline float k3_float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float k3_load_f32(const void *at, size_t i)
{
    float x;
    memcpy(&x, (const unsigned char *)at + 4 * i, sizeof x);
    return x;
}

static inline float k3_load_bf16(const void *at, size_t i)
{
    uint16_t x;
    memcpy(&x, (const unsigned char *)at + 2 * i, sizeof x);
    return k3_bf16_value(x);
}

/* 2^(byte - 127) as bits. Byte 0 is the subnormal 2^-127, not zero; byte 255 is NaN, which the exponent bits alone would read as infinity.
 * A table, because a vector kernel can then broadcast a scale straight from memory. */
#define K3_E8M0(byte) ((byte) == 0 ? 0x00400000u : (byte) == 255 ? 0x7fc00000u : (uint32_t)(byte) << 23)
#define K3_E8M0_4(byte) K3_E8M0(byte), K3_E8M0((byte) + 1), K3_E8M0((byte) + 2), K3_E8M0((byte) + 3)
#define K3_E8M0_16(byte) K3_E8M0_4(byte), K3_E8M0_4((byte) + 4), K3_E8M0_4((byte) + 8), K3_E8M0_4((byte) + 12)
#define K3_E8M0_64(byte) K3_E8M0_16(byte), K3_E8M0_16((byte) + 16), K3_E8M0_16((byte) + 32), K3_E8M0_16((byte) + 48)
static const uint32_t k3_e8m0_bits[256] = {K3_E8M0_64(0), K3_E8M0_64(64), K3_E8M0_64(128), K3_E8M0_64(192)};

static inline float k3_e8m0(unsigned char byte)
{
    return k3_float_of_bits(k3_e8m0_bits[byte]);
}

/* Bit 3 is the sign; code 8 is negative zero. */
static inline float k3_e2m1(unsigned code)
{
    static const float magnitude[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    return code & 8 ? -magnitude[code & 7] : magnitude[code & 7];
}

static inline unsigned k3_nibble(const unsigned char *codes, int col)
{
    return (codes[col / 2] >> (col % 2 * 4)) & 15u;
}

/* Code i of a 192-bit group lies in bits 3i..3i+2 and may straddle two bytes. */
static inline unsigned k3_three_bits(const unsigned char *codes, int col)
{
    const unsigned char *group = codes + col / 64 * 24;
    int bit = col % 64 * 3, at = bit / 8;
    unsigned two = group[at] | (at + 1 < 24 ? (unsigned)group[at + 1] << 8 : 0u);
    return (two >> (bit % 8)) & 7u;
}

/* Scales that cover the whole row stay outside the sum: y = scale * sum(code x). */
static inline int k3_type_scales_rows(k3_type type)
{
    return type == K3_INT8 || type == K3_INT4 || type == K3_INT2;
}

/* One weight of a row, without the row's scale if the type has one. */
static inline float k3_decode_code(k3_type type, const void *row, const void *scale, int col)
{
    const unsigned char *codes = row, *bytes = scale;
    switch (type) {
    case K3_F32:
        return k3_load_f32(row, (size_t)col);
    case K3_BF16:
        return k3_load_bf16(row, (size_t)col);
    case K3_INT8:
        return (float)(signed char)codes[col];
    case K3_INT4:
        return (float)((int)k3_nibble(codes, col) - 8);
    case K3_INT4_G64:
        return (float)((int)k3_nibble(codes, col) - 8) * k3_load_f32(scale, (size_t)(col / 64));
    case K3_INT3_G64:
        return (float)((int)k3_three_bits(codes, col) - 4) * k3_load_f32(scale, (size_t)(col / 64));
    case K3_INT2:
        return (float)((int)((codes[col / 4] >> (col % 4 * 2)) & 3u) - 2);
    default:
        return k3_e2m1(k3_nibble(codes, col)) * k3_e8m0(bytes[col / 32]);
    }
}

#endif
