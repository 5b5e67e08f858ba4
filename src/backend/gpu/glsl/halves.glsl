/* Weights as f16 factors for matrix units, 8 columns of a row at a time and in the order 0 4 1 5 2 6 3 7, which is that of x as well
 * (matmul_half.comp): codes that lie 16 bits apart become a pair of f16 together. */
#ifndef K3_HALVES_GLSL
#define K3_HALVES_GLSL

#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

#include "decode.glsl"

uvec4 k3_halves(vec4 first, vec4 second)
{
    return uvec4(packHalf2x16(vec2(first.x, second.x)), packHalf2x16(vec2(first.y, second.y)), packHalf2x16(vec2(first.z, second.z)),
                 packHalf2x16(vec2(first.w, second.w)));
}

/* Two codes below 2^10: in the mantissa of 2^10 each is 2^10 + code, exactly. Code `zero` becomes 0. */
uint k3_code_pair(uint codes, float zero)
{
    return packFloat2x16(unpackFloat2x16(codes | 0x64006400u) - f16vec2(1024.0 + zero));
}

/* Codes 0 to 3 from bit 0 on, 4 to 7 from bit 16 on. */
uvec4 k3_code_halves(uint word, uint bits, float zero)
{
    uint mask = ((1u << bits) - 1u) * 0x10001u;
    return uvec4(k3_code_pair(word & mask, zero), k3_code_pair(word >> bits & mask, zero), k3_code_pair(word >> 2u * bits & mask, zero),
                 k3_code_pair(word >> 3u * bits & mask, zero));
}

/* Signed bytes; flipping the sign bit makes a byte its value plus 128. */
uvec4 k3_int8_halves(uvec2 words)
{
    uint c0145 = (words.x & 0xffffu | words.y << 16) ^ 0x80808080u, c2367 = (words.x >> 16 | words.y & 0xffff0000u) ^ 0x80808080u;
    return uvec4(k3_code_pair(c0145 & 0xff00ffu, 128.0), k3_code_pair(c0145 >> 8 & 0xff00ffu, 128.0),
                 k3_code_pair(c2367 & 0xff00ffu, 128.0), k3_code_pair(c2367 >> 8 & 0xff00ffu, 128.0));
}

uint k3_times(uint pair, f16vec2 factor)
{
    return packFloat2x16(unpackFloat2x16(pair) * factor);
}

/* e2m1 codes times 2^(exponent - 29), 29 being 15, the bias of f16, and 14, of K3_E2M1_UNIT. Exponents are cut to 0 .. 31, which stand for
 * 0 and infinity; infinity times 0 is no number. */
uvec4 k3_e2m1_halves(uint word, int exponent)
{
    f16vec2 factor = unpackFloat2x16(uint(clamp(exponent, 0, 31)) * 0x04000400u);
    uint even = k3_e2m1_even(word), odd = k3_e2m1_odd(word);
    return uvec4(k3_times(even << 8 & 0xff00ff00u, factor), k3_times(odd << 8 & 0xff00ff00u, factor),
                 k3_times(even & 0xff00ff00u, factor), k3_times(odd & 0xff00ff00u, factor));
}

#endif
