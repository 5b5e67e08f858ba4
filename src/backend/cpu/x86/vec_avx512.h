/* One vector of f32 on AVX-512. vec_avx2.h gives the same names for AVX2, and the kernels of an op are written once, in vec/<op>_body.h, on
 * these names; <op>_avx2.c and <op>_avx512.c are that text compiled for one instruction set. */
#ifndef K3_BACKEND_CPU_X86_VEC_H
#define K3_BACKEND_CPU_X86_VEC_H

#include <immintrin.h>
#include <stdint.h>

#define K3_KERNEL(stem) k3_##stem##_avx512

/* Lanes of a vector; rows one pass of a matrix-vector product takes, and rows of x one pass of a product with many rows takes: what the 32
 * registers hold as running sums. */
enum { VF_LANES = 16, VF_GEMV_ROWS = 8, VF_GEMM_T = 6, VF_MIX_VECTORS = 4 };

typedef __m512 vf;

static inline vf vf_zero(void)
{
    return _mm512_setzero_ps();
}

static inline vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline vf vf_load(const void *at)
{
    return _mm512_loadu_ps(at);
}

static inline void vf_store(float *at, vf x)
{
    _mm512_storeu_ps(at, x);
}

static inline __mmask16 vf_first(int64_t n)
{
    return (__mmask16)((1u << n) - 1u);
}

/* The first n lanes from memory, zero elsewhere; memory beyond them is not touched. n < VF_LANES is the tail of a row, more is a full
 * vector. */
static inline vf vf_load_upto(const float *at, int64_t n)
{
    return n >= VF_LANES ? vf_load(at) : _mm512_maskz_loadu_ps(vf_first(n), at);
}

static inline void vf_store_upto(float *at, vf x, int64_t n)
{
    if (n >= VF_LANES)
        vf_store(at, x);
    else
        _mm512_mask_storeu_ps(at, vf_first(n), x);
}

static inline vf vf_load_bf16(const void *at)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at)), 16));
}

/* Signed bytes. */
static inline vf vf_load_int8(const void *at)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)at)));
}

/* Lane i of out[j] from at[4 i + j]. */
static inline void vf_load_fourths(vf out[4], const float *at)
{
    const __m512i low = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(2));
    vf a = vf_load(at), b = vf_load(at + 16), c = vf_load(at + 32), d = vf_load(at + 48);
    vf ab = _mm512_permutex2var_ps(a, low, b), cd = _mm512_permutex2var_ps(c, low, d);
    out[0] = _mm512_shuffle_f32x4(ab, cd, 0x44), out[1] = _mm512_shuffle_f32x4(ab, cd, 0xee);
    ab = _mm512_permutex2var_ps(a, high, b), cd = _mm512_permutex2var_ps(c, high, d);
    out[2] = _mm512_shuffle_f32x4(ab, cd, 0x44), out[3] = _mm512_shuffle_f32x4(ab, cd, 0xee);
}

/* Lane i from at[i * stride]. */
static inline vf vf_load_strided(const float *at, int stride)
{
    __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_i32gather_ps(_mm512_mullo_epi32(lane, _mm512_set1_epi32(stride)), at, 4);
}

/* Asks for the line of memory at a place, which need not be mapped, for soon. In line always: gcc takes a function that only does this for
 * one without effect, and drops calls of it. */
static inline __attribute__((always_inline)) void vf_prefetch(const void *at)
{
    _mm_prefetch(at, _MM_HINT_T1);
}

static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

/* a * b + c and c - a * b, rounded once. */
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

/* b where one of them is NaN. */
static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

static inline vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

static inline vf vf_abs(vf x)
{
    return _mm512_abs_ps(x);
}

/* |magnitude| with the sign of x. */
static inline vf vf_with_sign(vf magnitude, vf x)
{
    return _mm512_or_ps(_mm512_abs_ps(magnitude), _mm512_and_ps(x, _mm512_set1_ps(-0.0f)));
}

/* a where the sign bit of x is set, else b. */
static inline vf vf_if_negative(vf x, vf a, vf b)
{
    return _mm512_mask_blend_ps(_mm512_movepi32_mask(_mm512_castps_si512(x)), b, a);
}

static inline vf vf_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* x 2^n for whole n in -150..128. */
static inline vf vf_scale2(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}

/* The sum of the lanes, always by the same tree: halves onto each other until one is left. */
static inline float vf_sum(vf x)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float vf_largest(vf x)
{
    return _mm512_reduce_max_ps(x);
}

/* A vector of running sums in double, one a lane of vf: exact mode's products, and the few sums whose rounding everything after them sees.
 */
typedef struct vd {
    __m512d low, high;
} vd;

static inline vd vd_zero(void)
{
    return (vd){_mm512_setzero_pd(), _mm512_setzero_pd()};
}

/* sum + a b; the product of two floats is exact in double. */
static inline vd vd_fma(vf a, vf b, vd sum)
{
    sum.low = _mm512_fmadd_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(a)), _mm512_cvtps_pd(_mm512_castps512_ps256(b)), sum.low);
    sum.high = _mm512_fmadd_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(b, 1)), sum.high);
    return sum;
}

static inline vf vd_round(vd x)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(x.low)), _mm512_cvtpd_ps(x.high), 1);
}

static inline double vd_sum(vd x)
{
    __m512d all = _mm512_add_pd(x.low, x.high);
    __m256d a = _mm256_add_pd(_mm512_castpd512_pd256(all), _mm512_extractf64x4_pd(all, 1));
    __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

#endif
