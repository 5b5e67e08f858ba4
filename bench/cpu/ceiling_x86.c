/* A round of each loop is enough products that do not wait for one another to keep every unit busy. */
#include "ceiling.h"

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

const char *ceiling_name(ceiling which)
{
    static const char *const names[N_CEILINGS] = {"f32 in AVX2",     "f32 in AVX-512", "int8 in AVX-512 VNNI",
                                                  "bf16 in AVX-512", "int8 in AMX",    "bf16 in AMX"};
    return names[which];
}

int ceiling_here(ceiling which)
{
    unsigned a, b, c, d = 0;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    switch (which) {
    case CEILING_F32_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case CEILING_F32:
        return __builtin_cpu_supports("avx512f") != 0;
    case CEILING_INT8:
        return __builtin_cpu_supports("avx512vnni") != 0;
    case CEILING_BF16:
        return __builtin_cpu_supports("avx512bf16") != 0;
    case CEILING_AMX_INT8:
        return d >> 24 & d >> 25 & 1;
    default:
        return d >> 24 & d >> 22 & 1;
    }
}

/* A loop of twelve running sums, each in a register of its own; `add` is one step of a sum, of `products` multiply-adds. */
#define K3_STEP(s, add)                                                                                                                    \
    s = add(s, x, x);                                                                                                                      \
    __asm__ volatile("" : "+v"(s))
#define K3_LOOP(name, isa, vector, zero, factor, value, add, products)                                                                     \
    __attribute__((target(isa))) static double name(int64_t n)                                                                             \
    {                                                                                                                                      \
        factor x = value;                                                                                                                  \
        vector a = zero(), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a, l = a;                                    \
        for (int64_t round = 0; round < n; round++) {                                                                                      \
            K3_STEP(a, add);                                                                                                               \
            K3_STEP(b, add);                                                                                                               \
            K3_STEP(c, add);                                                                                                               \
            K3_STEP(d, add);                                                                                                               \
            K3_STEP(e, add);                                                                                                               \
            K3_STEP(f, add);                                                                                                               \
            K3_STEP(g, add);                                                                                                               \
            K3_STEP(h, add);                                                                                                               \
            K3_STEP(i, add);                                                                                                               \
            K3_STEP(j, add);                                                                                                               \
            K3_STEP(k, add);                                                                                                               \
            K3_STEP(l, add);                                                                                                               \
        }                                                                                                                                  \
        return 12.0 * (products) * (double)n;                                                                                              \
    }
#define K3_FMA_256(s, p, q) _mm256_fmadd_ps(p, q, s)
#define K3_FMA_512(s, p, q) _mm512_fmadd_ps(p, q, s)

K3_LOOP(f32_avx2, "avx2,fma", __m256, _mm256_setzero_ps, __m256, _mm256_set1_ps(1e-3f), K3_FMA_256, 8)
K3_LOOP(f32, "avx512f", __m512, _mm512_setzero_ps, __m512, _mm512_set1_ps(1e-3f), K3_FMA_512, 16)
K3_LOOP(int8, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512, __m512i, _mm512_set1_epi8(1), _mm512_dpbusd_epi32, 64)
K3_LOOP(bf16, "avx512f,avx512bf16", __m512, _mm512_setzero_ps, __m512bh, (__m512bh)_mm512_set1_epi16(0x3a00), _mm512_dpbf16_ps, 32)

/* Palette 1, all tiles 16 rows of 64 bytes. What is multiplied is not zero: the unit is slower then. */
__attribute__((target("amx-tile"))) static void configure(void)
{
    unsigned char config[64] = {0}, factor[1024];
    config[0] = 1;
    for (int i = 0; i < 8; i++) {
        config[16 + 2 * i] = 64;
        config[48 + i] = 16;
    }
    for (int i = 0; i < 1024; i++)
        factor[i] = (unsigned char)(i % 2 ? 0x3c : i * 151);
    __asm__ volatile("" ::: "memory");
    _tile_loadconfig(config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, factor, 64);
    _tile_loadd(5, factor, 64);
    _tile_loadd(6, factor, 64);
    _tile_loadd(7, factor, 64);
}

__attribute__((target("amx-tile,amx-int8"))) static double amx_int8(int64_t n)
{
    configure();
    for (int64_t k = 0; k < n; k++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_release();
    return 4.0 * 16 * 16 * 64 * (double)n;
}

__attribute__((target("amx-tile,amx-bf16"))) static double amx_bf16(int64_t n)
{
    configure();
    for (int64_t k = 0; k < n; k++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return 4.0 * 16 * 16 * 32 * (double)n;
}

double ceiling_run(ceiling which, int64_t n)
{
    static double (*const loops[N_CEILINGS])(int64_t) = {f32_avx2, f32, int8, bf16, amx_int8, amx_bf16};
    return loops[which](n);
}
