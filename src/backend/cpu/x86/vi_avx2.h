/* Integers on AVX2: the names of vi_avx512.h, which says what they mean; include after vec_avx2.h. */
#ifndef K3_BACKEND_CPU_X86_VI_H
#define K3_BACKEND_CPU_X86_VI_H

enum { VI_ROWS = 8, VI_SOME = 4, VI_MANY = 4, VI_INT8_OFFSET = 0, VI_ASKS = 2 };

typedef __m256i vi;

static inline vi vi_zero(void)
{
    return _mm256_setzero_si256();
}

static inline vi vi_set8(int x)
{
    return _mm256_set1_epi8((char)x);
}

static inline vi vi_set32(int32_t x)
{
    return _mm256_set1_epi32(x);
}

static inline vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}

static inline vi vi_add32(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}

static inline vi vi_sub32(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}

static inline vi vi_sub8(vi a, vi b)
{
    return _mm256_sub_epi8(a, b);
}

static inline int vi_any_above8(const vi v[4], int most)
{
    vi largest = _mm256_max_epu8(_mm256_max_epu8(v[0], v[1]), _mm256_max_epu8(v[2], v[3]));
    vi above = _mm256_subs_epu8(largest, vi_set8(most));
    return !_mm256_testz_si256(above, above);
}

static inline vi vi_load(const void *p)
{
    return _mm256_loadu_si256(p);
}

static inline vi vi_load_once(const void *p)
{
    vi x = vi_load(p);
    __asm__("" : "+x"(x));
    return x;
}

static inline vi vi_load_spread(const unsigned char *p)
{
    vi x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    x = vi_and(_mm256_or_si256(x, _mm256_slli_epi16(x, 4)), vi_set8(0x0f));
    return vi_and(_mm256_or_si256(x, _mm256_slli_epi16(x, 2)), vi_set8(0x33));
}

static inline void vi_store(void *p, vi x)
{
    _mm256_storeu_si256(p, x);
}

static inline vi vi_load_rows(const unsigned char *p, size_t step)
{
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)p), high = _mm_loadu_si128((const __m128i *)(const void *)(p + step));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

static inline void vi_load_rows2(vi *low, vi *high, const unsigned char *p, size_t step)
{
    vi a = vi_load(p), b = vi_load(p + step);
    *low = _mm256_permute2x128_si256(a, b, 0x20);
    *high = _mm256_permute2x128_si256(a, b, 0x31);
}

static inline vi vi_unpack_low32(vi a, vi b)
{
    return _mm256_unpacklo_epi32(a, b);
}

static inline vi vi_unpack_high32(vi a, vi b)
{
    return _mm256_unpackhi_epi32(a, b);
}

static inline vi vi_unpack_low64(vi a, vi b)
{
    return _mm256_unpacklo_epi64(a, b);
}

static inline vi vi_unpack_high64(vi a, vi b)
{
    return _mm256_unpackhi_epi64(a, b);
}

static inline vi vi_shift_right4(vi x)
{
    return _mm256_srli_epi16(x, 4);
}

/* They stay signed: pairs of products of 8 bits without a sign would not fit 16 bits. */
static inline vi vi_int8(vi x)
{
    return x;
}

static inline void vi_split_e2m1(vi *low, vi *high, vi bytes)
{
    const vi table = _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    *low = _mm256_shuffle_epi8(table, vi_and(bytes, vi_set8(15)));
    *high = _mm256_shuffle_epi8(table, vi_and(vi_shift_right4(bytes), vi_set8(15)));
}

static inline vi vi_four(const signed char *x)
{
    int32_t four;
    memcpy(&four, x, 4);
    return vi_set32(four);
}

/* u is at most 24, so that two products fit 16 bits, and eight of them. */
static inline vi vi_dot(vi sum, vi u, vi x)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(u, x), _mm256_set1_epi16(1)));
}

static inline vi vi_dot4(vi sum, const vi u[4], const signed char *x)
{
    vi pairs[4];
    for (int i = 0; i < 4; i++)
        pairs[i] = _mm256_maddubs_epi16(u[i], vi_four(x + 4 * i));
    vi all = _mm256_add_epi16(_mm256_add_epi16(pairs[0], pairs[1]), _mm256_add_epi16(pairs[2], pairs[3]));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(all, _mm256_set1_epi16(1)));
}

/* w x = |w| (x with w's sign): 2 * 128 * 127 fits 16 bits. */
static inline vi vi_dot_int8(vi sum, vi w, vi x)
{
    vi pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static inline vi vi_dot4_int8(vi sum, const vi w[4], const signed char *x)
{
    for (int i = 0; i < 4; i++)
        sum = vi_dot_int8(sum, w[i], vi_four(x + 4 * i));
    return sum;
}

static inline vi vi_evens32(vi a, vi b)
{
    __m256 x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);
    return _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)), 0xd8);
}

static inline vi vi_odds32(vi a, vi b)
{
    __m256 x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);
    return _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xdd)), 0xd8);
}

static inline vi vi_pair_sums(vi a, vi b)
{
    __m256 x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);
    return vi_add32(_mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)), _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xdd)));
}

static inline vi vi_four_sums16(const vi v[4])
{
    __m256 a = _mm256_castsi256_ps(_mm256_packs_epi32(v[0], v[1])), b = _mm256_castsi256_ps(_mm256_packs_epi32(v[2], v[3]));
    vi even = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)), odd = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd));
    return _mm256_madd_epi16(_mm256_add_epi16(even, odd), _mm256_set1_epi16(1));
}

static inline vi vi_join_halves(vi a, vi b)
{
    return vi_add32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

static inline void vi_turn_lanes(vi v[VI_ROWS / 4])
{
    vi a = v[0];
    v[0] = _mm256_permute2x128_si256(a, v[1], 0x20);
    v[1] = _mm256_permute2x128_si256(a, v[1], 0x31);
}

static inline vi vi_of_float(vf x)
{
    return _mm256_castps_si256(x);
}

static inline vi vi_max32(vi a, vi b)
{
    return _mm256_max_epi32(a, b);
}

static inline int32_t vi_largest32(vi x)
{
    __m128i a = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(a, _mm_shuffle_epi32(a, 0xb1)));
}

static inline int32_t vi_sum32(vi x)
{
    __m128i a = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(a, _mm_shuffle_epi32(a, 0xb1)));
}

static inline vi vi_round(vf x)
{
    return _mm256_cvtps_epi32(x);
}

static inline void vi_store_codes(signed char *codes, signed char *by_nibble, const vi code[4])
{
    const __m256i order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    vi bytes = _mm256_packs_epi16(_mm256_packs_epi32(code[0], code[1]), _mm256_packs_epi32(code[2], code[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    if (codes)
        vi_store(codes, bytes);
    if (by_nibble)
        vi_store(by_nibble, _mm256_shuffle_epi8(bytes, order));
}

static inline vf vi_to_float(vi x)
{
    return _mm256_cvtepi32_ps(x);
}

static inline vf vi_as_float(vi x)
{
    return _mm256_castsi256_ps(x);
}

static inline vf vi_exponent(vi dwords, int i)
{
    vi bits = i < 3 ? _mm256_sll_epi32(dwords, _mm_cvtsi32_si128(23 - 8 * i)) : _mm256_srli_epi32(dwords, 1);
    return vi_as_float(vi_and(bits, vi_set32(0x7f800000)));
}

static inline vf vi_e8m0(vi dwords, int i)
{
    vi bits = vi_of_float(vi_exponent(dwords, i));
    vi is_odd = _mm256_or_si256(_mm256_cmpeq_epi32(bits, vi_zero()), _mm256_cmpeq_epi32(bits, vi_set32(0x7f800000)));
    return vi_as_float(_mm256_or_si256(bits, vi_and(is_odd, vi_set32(0x00400000))));
}

#endif
