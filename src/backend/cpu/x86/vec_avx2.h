/* One vector of f32 on AVX2 with FMA: the names of vec_avx512.h, which says what they mean. */
#ifndef K3_BACKEND_CPU_X86_VEC_H
#define K3_BACKEND_CPU_X86_VEC_H

#include <immintrin.h>
#include <stdint.h>

#define K3_KERNEL(stem) k3_##stem##_avx2

/* 16 registers: 4 x 3 running sums leave room for what is multiplied. */
enum { VF_LANES = 8, VF_GEMV_ROWS = 4, VF_GEMM_T = 3, VF_MIX_VECTORS = 2 };

typedef __m256 vf;

static inline vf vf_zero(void)
{
    return _mm256_setzero_ps();
}

static inline vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline vf vf_load(const void *at)
{
    return _mm256_loadu_ps(at);
}

static inline void vf_store(float *at, vf x)
{
    _mm256_storeu_ps(at, x);
}

static inline __m256i vf_first(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vf vf_load_upto(const float *at, int64_t n)
{
    return n >= VF_LANES ? vf_load(at) : _mm256_maskload_ps(at, vf_first(n));
}

static inline void vf_store_upto(float *at, vf x, int64_t n)
{
    if (n >= VF_LANES)
        vf_store(at, x);
    else
        _mm256_maskstore_ps(at, vf_first(n), x);
}

static inline vf vf_load_bf16(const void *at)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)at)), 16));
}

static inline vf vf_load_int8(const void *at)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)at)));
}

static inline void vf_load_fourths(vf out[4], const float *at)
{
    vf a = vf_load(at), b = vf_load(at + 8), c = vf_load(at + 16), d = vf_load(at + 24);
    vf x = _mm256_permute2f128_ps(a, c, 0x20), y = _mm256_permute2f128_ps(a, c, 0x31);
    vf z = _mm256_permute2f128_ps(b, d, 0x20), w = _mm256_permute2f128_ps(b, d, 0x31);
    vf low = _mm256_unpacklo_ps(x, y), low2 = _mm256_unpacklo_ps(z, w), high = _mm256_unpackhi_ps(x, y), high2 = _mm256_unpackhi_ps(z, w);
    out[0] = _mm256_shuffle_ps(low, low2, 0x44), out[1] = _mm256_shuffle_ps(low, low2, 0xee);
    out[2] = _mm256_shuffle_ps(high, high2, 0x44), out[3] = _mm256_shuffle_ps(high, high2, 0xee);
}

static inline vf vf_load_strided(const float *at, int stride)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_i32gather_ps(at, _mm256_mullo_epi32(lane, _mm256_set1_epi32(stride)), 4);
}

/* In line always: a compiler drops the call of a function that only fetches ahead, as one without effect. */
static inline __attribute__((always_inline)) void vf_prefetch(const void *at)
{
    _mm_prefetch(at, _MM_HINT_T1);
}

static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

static inline vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

static inline vf vf_abs(vf x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

static inline vf vf_with_sign(vf magnitude, vf x)
{
    return _mm256_or_ps(vf_abs(magnitude), _mm256_and_ps(x, _mm256_set1_ps(-0.0f)));
}

static inline vf vf_if_negative(vf x, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, x);
}

static inline vf vf_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* In two steps: 2^-150 and 2^128 are no floats, their halves are, and the second product rounds once even where it is subnormal. */
static inline vf vf_scale2(vf x, vf n)
{
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), rest = _mm256_sub_epi32(whole, half);
    __m256i bias = _mm256_set1_epi32(127);
    vf a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    vf b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(x, a), b);
}

static inline float vf_sum(vf x)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float vf_largest(vf x)
{
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

typedef struct vd {
    __m256d low, high;
} vd;

static inline vd vd_zero(void)
{
    return (vd){_mm256_setzero_pd(), _mm256_setzero_pd()};
}

static inline vd vd_fma(vf a, vf b, vd sum)
{
    sum.low = _mm256_fmadd_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(a)), _mm256_cvtps_pd(_mm256_castps256_ps128(b)), sum.low);
    sum.high = _mm256_fmadd_pd(_mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)), _mm256_cvtps_pd(_mm256_extractf128_ps(b, 1)), sum.high);
    return sum;
}

static inline vf vd_round(vd x)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(x.low)), _mm256_cvtpd_ps(x.high), 1);
}

static inline double vd_sum(vd x)
{
    __m256d a = _mm256_add_pd(x.low, x.high);
    __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

#endif
