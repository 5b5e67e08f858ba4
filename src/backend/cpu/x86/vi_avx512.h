/* Integers on AVX-512 with VNNI, VI_ROWS rows of a matrix side by side; include after vec_avx512.h. vi_avx2.h gives the same names. */
#ifndef K3_BACKEND_CPU_X86_VI_H
#define K3_BACKEND_CPU_X86_VI_H

/* Rows of a tile; rows of x of a pass that turns codes as it goes, and of one over a panel; what vi_int8 adds to a code; how often few rows
 * of x ask for a line ahead. */
enum { VI_ROWS = 16, VI_SOME = 8, VI_MANY = 12, VI_INT8_OFFSET = 128, VI_ASKS = 4 };

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

static inline vi vi_sub32(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}

static inline vi vi_sub8(vi a, vi b)
{
    return _mm512_sub_epi8(a, b);
}

/* Whether any byte of the four is larger than that, bytes without a sign. */
static inline int vi_any_above8(const vi v[4], int most)
{
    vi largest = _mm512_max_epu8(_mm512_max_epu8(v[0], v[1]), _mm512_max_epu8(v[2], v[3]));
    return _mm512_cmpgt_epu8_mask(largest, vi_set8(most)) != 0;
}

static inline vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

/* Codes that several instructions use: one load, which the compiler does not fold into each of them. */
static inline vi vi_load_once(const void *p)
{
    vi x = vi_load(p);
    __asm__("" : "+v"(x));
    return x;
}

/* Half a vector of bytes of four 2-bit codes as bytes of two 4-bit codes. */
static inline vi vi_load_spread(const unsigned char *p)
{
    vi x = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
    x = vi_and(_mm512_or_si512(x, _mm512_slli_epi16(x, 4)), vi_set8(0x0f));
    return vi_and(_mm512_or_si512(x, _mm512_slli_epi16(x, 2)), vi_set8(0x33));
}

/* 16 bytes from each of p, p + step, ..., one after the other. */
static inline vi vi_load_rows(const unsigned char *p, size_t step)
{
    vi x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)p));
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(const void *)(p + step)), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(const void *)(p + 2 * step)), 2);
    return _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(const void *)(p + 3 * step)), 3);
}

/* 16 bytes at p and the next 16 from the same rows. A load of 32 bytes costs what one of 16 does. */
static inline void vi_load_rows2(vi *low, vi *high, const unsigned char *p, size_t step)
{
    vi a = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)p));
    vi b = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)(p + 2 * step)));
    a = _mm512_inserti64x4(a, _mm256_loadu_si256((const __m256i *)(const void *)(p + step)), 1);
    b = _mm512_inserti64x4(b, _mm256_loadu_si256((const __m256i *)(const void *)(p + 3 * step)), 1);
    *low = _mm512_shuffle_i32x4(a, b, 0x88);
    *high = _mm512_shuffle_i32x4(a, b, 0xdd);
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

/* Bytes of two e2m1 codes: twice the values, plus 12, of the low ones and of the high ones. */
static inline void vi_split_e2m1(vi *low, vi *high, vi bytes)
{
    const vi table = _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    *low = _mm512_shuffle_epi8(table, vi_and(bytes, vi_set8(15)));
    *high = _mm512_shuffle_epi8(table, vi_and(vi_shift_right4(bytes), vi_set8(15)));
}

/* sum + the products of each dword's 4 codes u >= 0 with the 4 signed bytes of x. */
static inline vi vi_dot(vi sum, vi u, vi x)
{
    return _mm512_dpbusd_epi32(sum, u, x);
}

static inline vi vi_dot_int8(vi sum, vi u, vi x)
{
    return vi_dot(sum, u, x);
}

/* 4 bytes of x for every dword. */
static inline vi vi_four(const signed char *x)
{
    int32_t four;
    memcpy(&four, x, 4);
    return vi_set32(four);
}

/* Four of them, each with 4 bytes at x for all lanes. */
static inline vi vi_dot4(vi sum, const vi u[4], const signed char *x)
{
    for (int i = 0; i < 4; i++)
        sum = vi_dot(sum, u[i], vi_four(x + 4 * i));
    return sum;
}

static inline vi vi_dot4_int8(vi sum, const vi u[4], const signed char *x)
{
    return vi_dot4(sum, u, x);
}

/* The even dwords of a, then those of b; and the odd ones. */
static inline vi vi_evens32(vi a, vi b)
{
    return _mm512_permutex2var_epi32(a, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), b);
}

static inline vi vi_odds32(vi a, vi b)
{
    return _mm512_permutex2var_epi32(a, _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31), b);
}

/* Sums of neighbouring dwords: within each 16 bytes the two of a, then the two of b. */
static inline vi vi_pair_sums(vi a, vi b)
{
    __m512 x = _mm512_castsi512_ps(a), y = _mm512_castsi512_ps(b);
    return vi_add32(_mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x88)), _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xdd)));
}

/* Sums of each 16 bytes: dword i of a lane is that of vector i. Dwords, and sums of two, fit 16 bits. */
static inline vi vi_four_sums16(const vi v[4])
{
    __m512 a = _mm512_castsi512_ps(_mm512_packs_epi32(v[0], v[1])), b = _mm512_castsi512_ps(_mm512_packs_epi32(v[2], v[3]));
    vi even = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)), odd = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd));
    return _mm512_madd_epi16(_mm512_add_epi16(even, odd), _mm512_set1_epi16(1));
}

/* a and b hold blocks of 32 bytes one after the other: dword by dword, the two halves of each added, 16 bytes a block. */
static inline vi vi_join_halves(vi a, vi b)
{
    return vi_add32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* Lane j of each of the vectors, one after the other, becomes vector j; a lane is 16 bytes. */
static inline void vi_turn_lanes(vi v[VI_ROWS / 4])
{
    vi a = _mm512_shuffle_i32x4(v[0], v[1], 0x44), b = _mm512_shuffle_i32x4(v[0], v[1], 0xee);
    vi c = _mm512_shuffle_i32x4(v[2], v[3], 0x44), d = _mm512_shuffle_i32x4(v[2], v[3], 0xee);
    v[0] = _mm512_shuffle_i32x4(a, c, 0x88), v[1] = _mm512_shuffle_i32x4(a, c, 0xdd);
    v[2] = _mm512_shuffle_i32x4(b, d, 0x88), v[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
}

static inline vi vi_of_float(vf x)
{
    return _mm512_castps_si512(x);
}

static inline vi vi_max32(vi a, vi b)
{
    return _mm512_max_epi32(a, b);
}

static inline int32_t vi_largest32(vi x)
{
    return _mm512_reduce_max_epi32(x);
}

static inline int32_t vi_sum32(vi x)
{
    return _mm512_reduce_add_epi32(x);
}

/* To the nearest integer, ties to even. */
static inline vi vi_round(vf x)
{
    return _mm512_cvtps_epi32(x);
}

/* 32 codes of 32 bits as bytes, in their order and in that of k3_q8's by_nibble; a place may be NULL. */
static inline void vi_store_codes(signed char *codes, signed char *by_nibble, const vi code[2])
{
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    for (int i = 0; i < 2; i++) {
        __m128i bytes = _mm512_cvtepi32_epi8(code[i]);
        if (codes)
            _mm_storeu_si128((__m128i *)(void *)(codes + 16 * i), bytes);
        if (by_nibble)
            _mm_storeu_si128((__m128i *)(void *)(by_nibble + 16 * i), _mm_shuffle_epi8(bytes, order));
    }
}

static inline vf vi_to_float(vi x)
{
    return _mm512_cvtepi32_ps(x);
}

static inline vf vi_as_float(vi x)
{
    return _mm512_castsi512_ps(x);
}

/* Byte i of each dword as the exponent of a number without a mantissa: 2^(byte - 127) for 1 to 254. */
static inline vf vi_exponent(vi dwords, int i)
{
    vi bits = i < 3 ? _mm512_sll_epi32(dwords, _mm_cvtsi32_si128(23 - 8 * i)) : _mm512_srli_epi32(dwords, 1);
    return vi_as_float(vi_and(bits, vi_set32(0x7f800000)));
}

/* 2^(byte - 127) of byte i of each dword: k3_e8m0. Bytes 0 and 255 have a mantissa. */
static inline vf vi_e8m0(vi dwords, int i)
{
    vi bits = vi_of_float(vi_exponent(dwords, i));
    __mmask16 is_odd = _mm512_testn_epi32_mask(vi_add32(bits, vi_set32(0x00800000)), vi_set32(0x7f000000));
    return vi_as_float(_mm512_mask_or_epi32(bits, is_odd, bits, vi_set32(0x00400000)));
}

#endif
