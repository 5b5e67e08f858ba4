/* One vector of f32 on NEON: the names of vec_avx512.h, which says what they mean. */
#ifndef K3_BACKEND_CPU_ARM_VEC_H
#define K3_BACKEND_CPU_ARM_VEC_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define K3_KERNEL(stem) k3_##stem##_neon

/* 32 registers of four lanes: 4 x 6 running sums leave room for what is multiplied. */
enum { VF_LANES = 4, VF_GEMV_ROWS = 8, VF_GEMM_T = 6, VF_MIX_VECTORS = 4 };

typedef float32x4_t vf;

static inline vf vf_zero(void)
{
    return vdupq_n_f32(0);
}

static inline vf vf_set(float x)
{
    return vdupq_n_f32(x);
}

/* As bytes, which may lie anywhere. */
static inline vf vf_load(const void *at)
{
    return vreinterpretq_f32_u8(vld1q_u8(at));
}

static inline void vf_store(float *at, vf x)
{
    vst1q_f32(at, x);
}

static inline vf vf_load_upto(const float *at, int64_t n)
{
    if (n >= VF_LANES)
        return vf_load(at);
    vf x = vf_zero();
    if (n >= 2)
        x = vcombine_f32(vld1_f32(at), vdup_n_f32(0));
    if (n == 3)
        return vld1q_lane_f32(at + 2, x, 2);
    return n == 1 ? vld1q_lane_f32(at, x, 0) : x;
}

static inline void vf_store_upto(float *at, vf x, int64_t n)
{
    if (n >= VF_LANES) {
        vf_store(at, x);
        return;
    }
    if (n >= 2)
        vst1_f32(at, vget_low_f32(x));
    if (n == 3)
        vst1q_lane_f32(at + 2, x, 2);
    if (n == 1)
        vst1q_lane_f32(at, x, 0);
}

static inline vf vf_load_bf16(const void *at)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(at))), 16));
}

static inline vf vf_load_int8(const void *at)
{
    uint32_t four;
    memcpy(&four, at, sizeof four);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four)))));
}

static inline void vf_load_fourths(vf out[4], const float *at)
{
    float32x4x4_t four = vld4q_f32(at);
    for (int j = 0; j < 4; j++)
        out[j] = four.val[j];
}

static inline vf vf_load_strided(const float *at, int stride)
{
    const float lane[VF_LANES] = {at[0], at[stride], at[2 * stride], at[3 * stride]};
    return vf_load(lane);
}

/* In line always: a compiler drops the call of a function that only fetches ahead, as one without effect. */
static inline __attribute__((always_inline)) void vf_prefetch(const void *at)
{
    __builtin_prefetch(at, 0, 2);
}

static inline vf vf_add(vf a, vf b)
{
    return vaddq_f32(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return vsubq_f32(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return vmulq_f32(a, b);
}

static inline vf vf_div(vf a, vf b)
{
    return vdivq_f32(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}

static inline vf vf_fnma(vf a, vf b, vf c)
{
    return vfmsq_f32(c, a, b);
}

/* By comparison: the instructions of these names treat a NaN otherwise. */
static inline vf vf_max(vf a, vf b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

static inline vf vf_min(vf a, vf b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

static inline vf vf_abs(vf x)
{
    return vabsq_f32(x);
}

static inline vf vf_with_sign(vf magnitude, vf x)
{
    return vbslq_f32(vdupq_n_u32(0x80000000u), x, vabsq_f32(magnitude));
}

static inline vf vf_if_negative(vf x, vf a, vf b)
{
    return vbslq_f32(vcltzq_s32(vreinterpretq_s32_f32(x)), a, b);
}

static inline vf vf_round(vf x)
{
    return vrndnq_f32(x);
}

/* In two steps, as on AVX2. */
static inline vf vf_scale2(vf x, vf n)
{
    int32x4_t whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1), rest = vsubq_s32(whole, half), bias = vdupq_n_s32(127);
    vf a = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
    vf b = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
    return vmulq_f32(vmulq_f32(x, a), b);
}

static inline float vf_sum(vf x)
{
    return vaddv_f32(vadd_f32(vget_low_f32(x), vget_high_f32(x)));
}

static inline float vf_largest(vf x)
{
    return vmaxvq_f32(x);
}

typedef struct vd {
    float64x2_t low, high;
} vd;

static inline vd vd_zero(void)
{
    return (vd){vdupq_n_f64(0), vdupq_n_f64(0)};
}

static inline vd vd_fma(vf a, vf b, vd sum)
{
    sum.low = vfmaq_f64(sum.low, vcvt_f64_f32(vget_low_f32(a)), vcvt_f64_f32(vget_low_f32(b)));
    sum.high = vfmaq_f64(sum.high, vcvt_high_f64_f32(a), vcvt_high_f64_f32(b));
    return sum;
}

static inline vf vd_round(vd x)
{
    return vcvt_high_f32_f64(vcvt_f32_f64(x.low), x.high);
}

static inline double vd_sum(vd x)
{
    return vaddvq_f64(vaddq_f64(x.low, x.high));
}

#endif
