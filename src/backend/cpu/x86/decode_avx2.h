/* Eight weights of a row as f32: decode.h in vectors. Nothing beyond the row's bytes is read. */
#ifndef K3_BACKEND_CPU_X86_DECODE_VEC_H
#define K3_BACKEND_CPU_X86_DECODE_VEC_H

#include "backend/cpu/decode.h"
#include "backend/cpu/x86/vec_avx2.h"

/* Lane i holds the `bits` bits of code i of a little-endian word, less `zero`, as f32. */
static inline vf k3_codes(uint32_t word, int bits, int zero)
{
    __m256i shifts = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(bits));
    __m256i code = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)word), shifts), _mm256_set1_epi32((1 << bits) - 1));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(code, _mm256_set1_epi32(zero)));
}

static inline uint32_t k3_load_word(const unsigned char *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* The lookup takes the low three bits of a lane, the magnitude; bit 3 moves to the sign. */
static inline vf k3_e2m1_vector(const unsigned char *at, vf magnitudes)
{
    __m256i code = _mm256_srlv_epi32(_mm256_set1_epi32((int)k3_load_word(at)), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    vf sign = _mm256_and_ps(_mm256_castsi256_ps(_mm256_slli_epi32(code, 28)), _mm256_set1_ps(-0.0f));
    return _mm256_or_ps(_mm256_permutevar8x32_ps(magnitudes, code), sign);
}

/* What k3_weights needs of the group that column `col` lies in: its scale, for mxfp4 the eight magnitudes times the scale. */
static inline __attribute__((always_inline)) vf k3_group(k3_type type, const unsigned char *scale, int col)
{
    switch (type) {
    case K3_INT4_G64:
    case K3_INT3_G64:
        return vf_set(k3_load_f32(scale, (size_t)(col / 64)));
    case K3_MXFP4:
        return vf_mul(_mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f), vf_set(k3_e8m0(scale[col / 32])));
    default:
        return vf_zero();
    }
}

/* Weights col .. col+7, col a multiple of 8; `group` is k3_group of col. */
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
        return k3_codes(k3_load_word(codes + col / 2), 4, 8);
    case K3_INT4_G64:
        return vf_mul(k3_codes(k3_load_word(codes + col / 2), 4, 8), group);
    case K3_INT3_G64: {
        const unsigned char *at = codes + col / 8 * 3;
        return vf_mul(k3_codes((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16, 3, 4), group);
    }
    case K3_INT2: {
        const unsigned char *at = codes + col / 4;
        return k3_codes((uint32_t)at[0] | (uint32_t)at[1] << 8, 2, 2);
    }
    default:
        return k3_e2m1_vector(codes + col / 2, group);
    }
}

#endif
