/* The weight types of backend/tensor.h, decoded from 32-bit words: one weight at any byte address, or whole words of weights. */
#ifndef K3_DECODE_GLSL
#define K3_DECODE_GLSL

#include "common.glsl"

const uint K3_F32 = 0, K3_BF16 = 1, K3_INT8 = 2, K3_INT4 = 3, K3_INT4_G64 = 4, K3_INT3_G64 = 5, K3_INT2 = 6, K3_MXFP4 = 7;

/* ---- one weight ---------------------------------------------------------------------------------------- */

/* 1 to 4 bytes from any address, low byte first; bits above them are undefined. No word without a wanted byte is read. */
uint k3_load(uint64_t at, uint bytes)
{
    uint first = uint(at) & 3u;
    U32 words = U32(at - first);
    uint value = words.at[0] >> (8u * first);
    if (first + bytes > 4u)
        value |= words.at[1] << (32u - 8u * first);
    return value;
}

/* One byte in two steps, so that a kernel can wait for the word later: the word that holds the byte at an address, and the byte in it. */
uint k3_word_around(uint64_t at)
{
    return U32(at - (uint(at) & 3u)).at[0];
}

uint k3_byte_in(uint word, uint64_t at)
{
    return bitfieldExtract(word, int(uint(at) & 3u) * 8, 8);
}

uint k3_load_byte(uint64_t at)
{
    return k3_byte_in(k3_word_around(at), at);
}

float k3_load_f32(uint64_t at)
{
    return uintBitsToFloat(k3_load(at, 4u));
}

/* The value of an e2m1 code: sign and magnitude bits put where an f16 has sign, low exponent bits and high mantissa bit are 2^14 times too
 * small, and exact. Code 1 is then a subnormal f16, which conversion to f32 keeps. */
const float K3_E2M1_UNIT = 16384.0;
float k3_e2m1(uint code)
{
    return unpackHalf2x16((code & 8u) << 12 | (code & 7u) << 9).x * K3_E2M1_UNIT;
}

/* 2^(byte - 127). Byte 0 is a subnormal f32, exact in the word and flushed to zero by a device that knows no subnormals: an error of
 * 2^-127 a unit. Byte 255 does not occur: the loader refuses it. */
float k3_e8m0(uint byte)
{
    return uintBitsToFloat(byte == 0u ? 0x00400000u : byte << 23);
}

/* One scale for the whole row: y = scale * sum(code x). */
bool k3_type_scales_rows(uint type)
{
    return type == K3_INT8 || type == K3_INT4 || type == K3_INT2;
}

/* Weight `col` of the row at address `row`, scales of the row at `scale`; without the row's scale where the type has one. */
float k3_code(uint type, uint64_t row, uint64_t scale, uint col)
{
    switch (type) {
    case K3_F32:
        return k3_load_f32(row + 4ul * col);
    case K3_BF16:
        return uintBitsToFloat(k3_load(row + 2ul * col, 2u) << 16);
    case K3_INT8:
        return float(bitfieldExtract(int(k3_load(row + col, 1u)), 0, 8));
    case K3_INT4:
    case K3_INT4_G64: {
        float value = float(bitfieldExtract(k3_load(row + col / 2u, 1u), int(col % 2u) * 4, 4)) - 8.0;
        return type == K3_INT4 ? value : value * k3_load_f32(scale + 4ul * (col / 64u));
    }
    case K3_INT3_G64: {
        uint bit = col % 64u * 3u, shift = bit % 8u;
        uint code = k3_load(row + col / 64u * 24ul + bit / 8u, shift > 5u ? 2u : 1u) >> shift & 7u;
        return (float(code) - 4.0) * k3_load_f32(scale + 4ul * (col / 64u));
    }
    case K3_INT2:
        return float(bitfieldExtract(k3_load(row + col / 4u, 1u), int(col % 4u) * 2, 2)) - 2.0;
    default:
        return k3_e2m1(bitfieldExtract(k3_load(row + col / 2u, 1u), int(col % 2u) * 4, 4)) * k3_e8m0(k3_load_byte(scale + col / 32u));
    }
}

/* 1 where the type has no scale of the whole row. */
float k3_row_scale(uint type, uint64_t scale)
{
    return k3_type_scales_rows(type) ? k3_load_f32(scale) : 1.0;
}

/* Addresses of a row's codes and scales. */
uint64_t k3_row_at(k3_mat_args m, uint row)
{
    return m.data + uint64_t(row) * m.row_bytes;
}

uint64_t k3_scale_at(k3_mat_args m, uint row)
{
    return m.scale + uint64_t(row) * m.scale_bytes;
}

/* The whole weight. */
float k3_weight(uint type, k3_mat_args m, uint row, uint col)
{
    uint64_t scale = k3_scale_at(m, row);
    return k3_code(type, k3_row_at(m, row), scale, col) * k3_row_scale(type, scale);
}

/* ---- words of weights, columns in order ---------------------------------------------------------------- */

vec2 k3_bf16x2(uint word)
{
    return vec2(uintBitsToFloat(word << 16), uintBitsToFloat(word & 0xffff0000u));
}

/* A code of few bits as a float without a conversion, which devices do slowly: in the low mantissa bits of 2^23 it is 2^23 + code, exactly;
 * code 0 stands for -zero. */
float k3_small(uint code, float zero)
{
    return uintBitsToFloat(code | 0x4b000000u) - (8388608.0 + zero);
}

/* Four signed bytes; flipping the sign bit makes a byte its value plus 128. */
vec4 k3_int8x4(uint word)
{
    uint w = word ^ 0x80808080u;
    return vec4(k3_small(w & 255u, 128.0), k3_small(w >> 8 & 255u, 128.0), k3_small(w >> 16 & 255u, 128.0), k3_small(w >> 24, 128.0));
}

/* Four codes of that many bits from the low end. */
vec4 k3_small4(uint word, uint bits, float zero)
{
    uint mask = (1u << bits) - 1u;
    return vec4(k3_small(word & mask, zero), k3_small(word >> bits & mask, zero), k3_small(word >> 2u * bits & mask, zero),
                k3_small(word >> 3u * bits & mask, zero));
}

/* The sign and the three magnitude bits of four nibbles as the high bytes of f16 values (k3_e2m1), one a byte. */
uint k3_e2m1_odd(uint word)
{
    return (word & 0x80808080u) | (word >> 3 & 0x0e0e0e0eu);
}

uint k3_e2m1_even(uint word)
{
    return (word << 4 & 0x80808080u) | (word << 1 & 0x0e0e0e0eu);
}

/* Eight e2m1 codes as pairs of f16: 0 and 4, 1 and 5, 2 and 6, 3 and 7, DIVIDED by K3_E2M1_UNIT. Bytes are made that have the sign and the
 * three magnitude bits of a nibble where the high byte of an f16 has them (k3_e2m1), and others beside them that the last step clears. */
uvec4 k3_e2m1_pairs(uint word)
{
    uint odd = (word & 0x80808080u) | (word >> 3 & 0x7f7f7f7fu), even = (word << 4 & 0x80808080u) | (word << 1 & 0x7f7f7f7fu);
    return uvec4(even << 8, odd << 8, even, odd) & 0x8e008e00u;
}

/* The same as f32, so that the unit is multiplied once a block: 11 integer operations and 8 conversions. */
void k3_e2m1x8(uint word, out vec4 first, out vec4 second)
{
    uvec4 pairs = k3_e2m1_pairs(word);
    vec2 c04 = unpackHalf2x16(pairs.x), c15 = unpackHalf2x16(pairs.y), c26 = unpackHalf2x16(pairs.z), c37 = unpackHalf2x16(pairs.w);
    first = vec4(c04.x, c15.x, c26.x, c37.x);
    second = vec4(c04.y, c15.y, c26.y, c37.y);
}

/* Eight 4-bit codes, 0 .. 15, DIVIDED by K3_UINT4_UNIT: each is the low mantissa bits of an f16. Fewer operations than k3_small4 takes, but
 * the zero, which is code 8, is left to the caller. */
const float K3_UINT4_UNIT = 16777216.0;
void k3_uint4x8(uint word, out vec4 first, out vec4 second)
{
    uvec4 pairs = uvec4(word, word >> 4, word >> 8, word >> 12) & 0x000f000fu;
    vec2 c04 = unpackHalf2x16(pairs.x), c15 = unpackHalf2x16(pairs.y), c26 = unpackHalf2x16(pairs.z), c37 = unpackHalf2x16(pairs.w);
    first = vec4(c04.x, c15.x, c26.x, c37.x);
    second = vec4(c04.y, c15.y, c26.y, c37.y);
}

/* Eight columns of any type but f32 from the words that begin with them, without scales and divided by k3_unit(type). */
void k3_decode8(uint type, uvec4 words, out vec4 first, out vec4 second)
{
    if (type == K3_BF16) {
        first = vec4(k3_bf16x2(words.x), k3_bf16x2(words.y));
        second = vec4(k3_bf16x2(words.z), k3_bf16x2(words.w));
    } else if (type == K3_INT8) {
        first = k3_int8x4(words.x);
        second = k3_int8x4(words.y);
    } else if (type == K3_INT4 || type == K3_INT4_G64) {
        first = k3_small4(words.x, 4u, 8.0);
        second = k3_small4(words.x >> 16, 4u, 8.0);
    } else if (type == K3_INT3_G64) {
        first = k3_small4(words.x, 3u, 4.0);
        second = k3_small4(words.x >> 12, 3u, 4.0);
    } else if (type == K3_INT2) {
        first = k3_small4(words.x, 2u, 2.0);
        second = k3_small4(words.x >> 8, 2u, 2.0);
    } else {
        k3_e2m1x8(words.x, first, second);
    }
}

float k3_unit(uint type)
{
    return type == K3_MXFP4 ? K3_E2M1_UNIT : 1.0;
}

#endif
