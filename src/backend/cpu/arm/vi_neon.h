/* Integers on NEON with dot products: the names of x86/vi_avx512.h, which says what they mean; include after vec_neon.h. */
#ifndef K3_BACKEND_CPU_ARM_VI_H
#define K3_BACKEND_CPU_ARM_VI_H

enum { VI_ROWS = 4, VI_SOME = 8, VI_MANY = 12, VI_INT8_OFFSET = 0, VI_ASKS = 1 };

typedef int32x4_t vi;

static inline vi vi_zero(void)
{
    return vdupq_n_s32(0);
}

static inline vi vi_set8(int x)
{
    return vreinterpretq_s32_s8(vdupq_n_s8((signed char)x));
}

static inline vi vi_set32(int32_t x)
{
    return vdupq_n_s32(x);
}

static inline vi vi_and(vi a, vi b)
{
    return vandq_s32(a, b);
}

static inline vi vi_add32(vi a, vi b)
{
    return vaddq_s32(a, b);
}

static inline vi vi_sub32(vi a, vi b)
{
    return vsubq_s32(a, b);
}

static inline vi vi_load(const void *p)
{
    return vreinterpretq_s32_u8(vld1q_u8(p));
}

static inline vi vi_sub8(vi a, vi b)
{
    return vreinterpretq_s32_s8(vsubq_s8(vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b)));
}

static inline int vi_any_above8(const vi v[4], int most)
{
    uint8x16_t a = vmaxq_u8(vreinterpretq_u8_s32(v[0]), vreinterpretq_u8_s32(v[1]));
    uint8x16_t b = vmaxq_u8(vreinterpretq_u8_s32(v[2]), vreinterpretq_u8_s32(v[3]));
    return vmaxvq_u8(vmaxq_u8(a, b)) > most;
}

/* Instructions do not load. */
static inline vi vi_load_once(const void *p)
{
    return vi_load(p);
}

static inline vi vi_load_spread(const unsigned char *p)
{
    uint16x8_t x = vmovl_u8(vld1_u8(p));
    x = vandq_u16(vorrq_u16(x, vshlq_n_u16(x, 4)), vdupq_n_u16(0x0f0f));
    return vreinterpretq_s32_u16(vandq_u16(vorrq_u16(x, vshlq_n_u16(x, 2)), vdupq_n_u16(0x3333)));
}

/* One row fills a vector. */
static inline vi vi_load_rows(const unsigned char *p, size_t step)
{
    (void)step;
    return vi_load(p);
}

static inline void vi_load_rows2(vi *low, vi *high, const unsigned char *p, size_t step)
{
    (void)step;
    *low = vi_load(p);
    *high = vi_load(p + 16);
}

static inline vi vi_unpack_low32(vi a, vi b)
{
    return vzip1q_s32(a, b);
}

static inline vi vi_unpack_high32(vi a, vi b)
{
    return vzip2q_s32(a, b);
}

static inline vi vi_unpack_low64(vi a, vi b)
{
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}

static inline vi vi_unpack_high64(vi a, vi b)
{
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}

static inline vi vi_shift_right4(vi x)
{
    return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(x), 4));
}

/* They stay signed, as the product takes them. */
static inline vi vi_int8(vi x)
{
    return x;
}

static inline void vi_split_e2m1(vi *low, vi *high, vi bytes)
{
    static const unsigned char values[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    uint8x16_t table = vld1q_u8(values);
    *low = vreinterpretq_s32_u8(vqtbl1q_u8(table, vreinterpretq_u8_s32(vi_and(bytes, vi_set8(15)))));
    *high = vreinterpretq_s32_u8(vqtbl1q_u8(table, vreinterpretq_u8_s32(vi_shift_right4(bytes))));
}

/* Codes without a sign are below 128. */
static inline vi vi_dot(vi sum, vi u, vi x)
{
    return vdotq_s32(sum, vreinterpretq_s8_s32(u), vreinterpretq_s8_s32(x));
}

static inline vi vi_dot_int8(vi sum, vi u, vi x)
{
    return vi_dot(sum, u, x);
}

static inline vi vi_dot4(vi sum, const vi u[4], const signed char *x)
{
    int8x16_t four = vld1q_s8(x);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_s32(u[0]), four, 0);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_s32(u[1]), four, 1);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_s32(u[2]), four, 2);
    return vdotq_laneq_s32(sum, vreinterpretq_s8_s32(u[3]), four, 3);
}

static inline vi vi_dot4_int8(vi sum, const vi u[4], const signed char *x)
{
    return vi_dot4(sum, u, x);
}

static inline vi vi_evens32(vi a, vi b)
{
    return vuzp1q_s32(a, b);
}

static inline vi vi_odds32(vi a, vi b)
{
    return vuzp2q_s32(a, b);
}

static inline vi vi_pair_sums(vi a, vi b)
{
    return vpaddq_s32(a, b);
}

static inline vi vi_four_sums16(const vi v[4])
{
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

static inline vi vi_join_halves(vi a, vi b)
{
    return vaddq_s32(a, b);
}

/* A vector is one lane. */
static inline void vi_turn_lanes(vi v[VI_ROWS / 4])
{
    (void)v;
}

static inline vi vi_of_float(vf x)
{
    return vreinterpretq_s32_f32(x);
}

static inline vi vi_max32(vi a, vi b)
{
    return vmaxq_s32(a, b);
}

static inline int32_t vi_largest32(vi x)
{
    return vmaxvq_s32(x);
}

static inline int32_t vi_sum32(vi x)
{
    return vaddvq_s32(x);
}

static inline vi vi_round(vf x)
{
    return vcvtnq_s32_f32(x);
}

static inline void vi_store_codes(signed char *codes, signed char *by_nibble, const vi code[8])
{
    static const unsigned char order[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
    for (int i = 0; i < 2; i++) {
        int16x8_t a = vcombine_s16(vmovn_s32(code[4 * i]), vmovn_s32(code[4 * i + 1]));
        int16x8_t b = vcombine_s16(vmovn_s32(code[4 * i + 2]), vmovn_s32(code[4 * i + 3]));
        int8x16_t bytes = vcombine_s8(vmovn_s16(a), vmovn_s16(b));
        if (codes)
            vst1q_s8(codes + 16 * i, bytes);
        if (by_nibble)
            vst1q_s8(by_nibble + 16 * i, vqtbl1q_s8(bytes, vld1q_u8(order)));
    }
}

static inline vf vi_to_float(vi x)
{
    return vcvtq_f32_s32(x);
}

static inline vf vi_as_float(vi x)
{
    return vreinterpretq_f32_s32(x);
}

static inline vf vi_exponent(vi dwords, int i)
{
    uint32x4_t byte = vandq_u32(vshlq_u32(vreinterpretq_u32_s32(dwords), vdupq_n_s32(-8 * i)), vdupq_n_u32(255));
    return vreinterpretq_f32_u32(vshlq_n_u32(byte, 23));
}

static inline vf vi_e8m0(vi dwords, int i)
{
    uint32x4_t bits = vreinterpretq_u32_f32(vi_exponent(dwords, i));
    uint32x4_t is_odd = vorrq_u32(vceqzq_u32(bits), vceqq_u32(bits, vdupq_n_u32(0x7f800000)));
    return vreinterpretq_f32_u32(vorrq_u32(bits, vandq_u32(is_odd, vdupq_n_u32(0x00400000))));
}

#endif
