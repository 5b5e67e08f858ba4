/* Sixteen weights of a row as f32: decode.h in vectors. Nothing beyond the row's bytes is read. */
#ifndef K3_BACKEND_CPU_X86_DECODE_VEC_H
#define K3_BACKEND_CPU_X86_DECODE_VEC_H

#include "backend/cpu/decode.h"
#include "backend/cpu/x86/vec_avx512.h"

static inline int k3_load_word(const unsigned char *at)
{
    int word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* The lower eight lanes hold one 32-bit word, the upper eight another. */
static inline __m512i k3_two_words(const unsigned char *a, const unsigned char *b)
{
    return _mm512_mask_set1_epi32(_mm512_set1_epi32(k3_load_word(a)), 0xff00, k3_load_word(b));
}

/* Lane i holds nibble i of eight bytes in its low four bits; what is above them does not matter to a table of sixteen. */
static inline __m512i k3_nibbles(const unsigned char *at)
{
    __m512i shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    return _mm512_srlv_epi32(k3_two_words(at, at + 4), shifts);
}

/* Values of the codes. Tables of fewer than sixteen codes repeat, because the bits above a code belong to the next one. */
static inline vf k3_int4_table(void)
{
    return _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
}

static inline vf k3_int3_table(void)
{
    return _mm512_setr_ps(-4, -3, -2, -1, 0, 1, 2, 3, -4, -3, -2, -1, 0, 1, 2, 3);
}

static inline vf k3_int2_table(void)
{
    return _mm512_setr_ps(-2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1);
}

static inline vf k3_e2m1_table(void)
{
    return _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
}

/* 48 bits: codes 0..7 in the first three bytes, 8..15 in the last three, read as the upper part of a word that starts one byte earlier. */
static inline __m512i k3_three_bit_codes(const unsigned char *at)
{
    __m512i shifts = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 8, 11, 14, 17, 20, 23, 26, 29);
    return _mm512_srlv_epi32(k3_two_words(at, at + 2), shifts);
}

static inline __m512i k3_two_bit_codes(const unsigned char *at)
{
    __m512i shifts = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_srlv_epi32(_mm512_set1_epi32(k3_load_word(at)), shifts);
}

/* What k3_weights needs of the group that column `col` lies in: the values of its codes, scaled. Nothing for types without groups. */
static inline __attribute__((always_inline)) vf k3_group(k3_type type, const unsigned char *scale, int col)
{
    switch (type) {
    case K3_INT4_G64:
        return vf_mul(k3_int4_table(), vf_set(k3_load_f32(scale, (size_t)(col / 64))));
    case K3_INT3_G64:
        return vf_mul(k3_int3_table(), vf_set(k3_load_f32(scale, (size_t)(col / 64))));
    case K3_MXFP4:
        return vf_mul(k3_e2m1_table(), vf_set(k3_e8m0(scale[col / 32])));
    default:
        return vf_zero();
    }
}

/* Weights col .. col+15, col a multiple of 16; `group` is k3_group of col. */
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
        return _mm512_permutexvar_ps(k3_nibbles(codes + col / 2), k3_int4_table());
    case K3_INT4_G64:
        return _mm512_permutexvar_ps(k3_nibbles(codes + col / 2), group);
    case K3_INT3_G64:
        return _mm512_permutexvar_ps(k3_three_bit_codes(codes + col / 16 * 6), group);
    case K3_INT2:
        return _mm512_permutexvar_ps(k3_two_bit_codes(codes + col / 4), k3_int2_table());
    default:
        return _mm512_permutexvar_ps(k3_nibbles(codes + col / 2), group);
    }
}

#endif
