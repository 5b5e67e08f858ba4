/* Integers on AVX-512 with VNNI, VI_ROWS rows of a matrix side by side; include after vec_avx512.h. vi_avx2.h gives the same names. */
#ifndef K3_BACKEND_CPU_X86_VI_H
#define K3_BACKEND_CPU_X86_VI_H

/* Rows of a tile; rows of x of one pass over a panel; what vi_int8 adds to a code. */
enum { VI_ROWS = 16, VI_MANY = 8, VI_INT8_OFFSET = 128 };

typedef __m512i vi;

static inline vi vi_zero(void)
{
    return _mm512_setzero_si512();
}

static inline vi vi_set8(int x)
{
    return _mm512_set1_epi8((char)x);
}

static inline vi vi_set32(int32_t x)
{
    return _mm512_set1_epi32(x);
}

static inline vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}

static inline vi vi_add32(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

/* 16 bytes from each of p, p + step, ..., one after the other. */
static inline vi vi_load_rows(const unsigned char *p, size_t step)
{
    vi x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)p));
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(const void *)(p + step)), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(const void *)(p + 2 * step)), 2);
    return _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(const void *)(p + 3 * step)), 3);
}

/* Within each 16 bytes. */
static inline vi vi_unpack_low32(vi a, vi b)
{
    return _mm512_unpacklo_epi32(a, b);
}

static inline vi vi_unpack_high32(vi a, vi b)
{
    return _mm512_unpackhi_epi32(a, b);
}

static inline vi vi_unpack_low64(vi a, vi b)
{
    return _mm512_unpacklo_epi64(a, b);
}

static inline vi vi_unpack_high64(vi a, vi b)
{
    return _mm512_unpackhi_epi64(a, b);
}

/* By 4 bits, in pairs of bytes: the low nibble of a byte is the high one it had. */
static inline vi vi_shift_right4(vi x)
{
    return _mm512_srli_epi16(x, 4);
}

/* int8 codes as vi_dot_int8 takes them: not negative, with the offset. */
static inline vi vi_int8(vi x)
{
    return _mm512_xor_si512(x, vi_set8(-128));
}

/* Twice the values of e2m1 codes, plus 12. */
static inline vi vi_twice_e2m1(vi nibbles)
{
    const __m128i table = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles);
}

/* sum + the products of each dword's 4 codes u >= 0 with the 4 signed bytes at x. */
static inline vi vi_dot(vi sum, vi u, const signed char *x)
{
    int32_t four;
    memcpy(&four, x, 4);
    return _mm512_dpbusd_epi32(sum, u, _mm512_set1_epi32(four));
}

static inline vi vi_dot_int8(vi sum, vi u, const signed char *x)
{
    return vi_dot(sum, u, x);
}

static inline vf vi_to_float(vi x)
{
    return _mm512_cvtepi32_ps(x);
}

static inline vf vi_as_float(vi x)
{
    return _mm512_castsi512_ps(x);
}

/* 2^(byte - 127) of byte i of each dword: k3_e8m0. Bytes 0 and 255 have a mantissa. */
static inline vf vi_e8m0(vi dwords, int i)
{
    vi byte = _mm512_and_si512(_mm512_srl_epi32(dwords, _mm_cvtsi32_si128(8 * i)), vi_set32(255));
    __mmask16 is_odd = _mm512_cmplt_epu32_mask(_mm512_and_si512(vi_add32(byte, vi_set32(1)), vi_set32(255)), vi_set32(2));
    vi bits = _mm512_slli_epi32(byte, 23);
    return _mm512_castsi512_ps(_mm512_mask_or_epi32(bits, is_odd, bits, vi_set32(0x00400000)));
}

#endif
