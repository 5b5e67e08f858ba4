#include "backend/cpu/kernels.h"

#if K3_HAVE_AMX && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if K3_HAVE_NEON && defined(__APPLE__)
#include <sys/sysctl.h>
#elif K3_HAVE_NEON
#include <sys/auxv.h>
#endif

static const char *const level_names[K3_CPU_N_LEVELS] = {"scalar", "avx2", "avx512", "avx512bf16", "amx", "neon"};

const char *k3_cpu_level_name(k3_cpu_level level)
{
    return level_names[level];
}

#if K3_HAVE_NEON
/* NEON with dot products of bytes. */
static int has_neon(void)
{
#ifdef __APPLE__
    int has = 0;
    size_t size = sizeof has;
    return sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &size, NULL, 0) == 0 && has;
#else
    unsigned long has = getauxval(AT_HWCAP);
    return (has & HWCAP_ASIMD) && (has & HWCAP_ASIMDDP);
#endif
}
#endif

#if K3_HAVE_AMX && defined(__linux__)
/* Tiles with products of bytes and of bf16, which the system gives to a process that asks for them. */
static int has_amx(void)
{
    enum {
        LEAF = 7,
        BF16 = 1 << 22,
        TILE = 1 << 24,
        INT8 = 1 << 25,
        ALL = BF16 | TILE | INT8,
        ARCH_REQ_XCOMP_PERM = 0x1023,
        XTILEDATA = 18
    };
    unsigned a, b, c, d;
    return __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && (d & ALL) == ALL && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
}
#endif

int k3_cpu_level_here(k3_cpu_level level)
{
    switch (level) {
    case K3_CPU_SCALAR:
        return 1;
#if K3_HAVE_AVX2
    case K3_CPU_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#if K3_HAVE_AVX512
    case K3_CPU_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#if K3_HAVE_AVX512 && K3_HAVE_AVX512BF16
    case K3_CPU_AVX512BF16:
        return k3_cpu_level_here(K3_CPU_AVX512) && __builtin_cpu_supports("avx512bf16");
#endif
#if K3_HAVE_AVX512 && K3_HAVE_AMX && defined(__linux__)
    case K3_CPU_AMX:
        return k3_cpu_level_here(K3_CPU_AVX512) && __builtin_cpu_supports("avx512vnni") && has_amx();
#endif
#if K3_HAVE_NEON
    case K3_CPU_NEON:
        return has_neon();
#endif
    default:
        return 0;
    }
}

/* VDPBF16PS does half of what FMA does on Intel's cores: 43 G multiply-adds/s a thread, 88 of f32 (Xeon, family 6, model 207). */
int k3_cpu_level_pays(k3_cpu_level level)
{
#if K3_HAVE_AVX512BF16
    return level != K3_CPU_AVX512BF16 || !__builtin_cpu_is("intel");
#else
    (void)level;
    return 1;
#endif
}

#define K3_TABLE(level)                                                                                                                    \
    {                                                                                                                                      \
        .decode = k3_decode_##level, .matmul = k3_matmul_##level, .quantize_q8 = k3_quantize_q8_##level,                                   \
        .matmul_q8 = k3_matmul_q8_##level, .mix_f32 = k3_mix_f32_##level, .mix_bf16 = k3_mix_bf16_##level,                                 \
        .mix_int8 = k3_mix_int8_##level, .softmax = k3_softmax_##level, .attnres_mix = k3_attnres_mix_##level,                             \
        .rmsnorm = k3_rmsnorm_##level, .shortconv = k3_shortconv_##level, .l2norm = k3_l2norm_##level, .kda_gate = k3_kda_gate_##level,    \
        .gate_rmsnorm = k3_gate_rmsnorm_##level, .kda_recur = k3_kda_recur_##level, .kda_chunk = k3_kda_chunk_scalar,                      \
        .gate_mul = k3_gate_mul_##level, .situ_glu = k3_situ_glu_##level, .router_topk = k3_router_topk_##level, .add = k3_add_scalar,     \
        .memory_read = k3_memory_read_##level,                                                                                             \
    }

static const k3_cpu_kernels tables[K3_CPU_N_LEVELS] = {
    [K3_CPU_SCALAR] = K3_TABLE(scalar),
#if K3_HAVE_AVX2
    [K3_CPU_AVX2] = K3_TABLE(avx2),
#endif
#if K3_HAVE_AVX512
    [K3_CPU_AVX512] = K3_TABLE(avx512),
#endif
#if K3_HAVE_NEON
    [K3_CPU_NEON] = K3_TABLE(neon),
#endif
};

/* Exact mode's products and mixes. The scalar kernels sum in double anyway. */
#define K3_EXACT_TABLE(level)                                                                                                              \
    {                                                                                                                                      \
        .matmul = k3_matmul_exact_##level, .mix_f32 = k3_mix_f32_exact_##level, .mix_bf16 = k3_mix_bf16_exact_##level,                     \
    }

static const struct {
    k3_matmul_fn *matmul;
    k3_mix_fn *mix_f32, *mix_bf16;
} exact_tables[K3_CPU_N_LEVELS] = {
    [K3_CPU_SCALAR] = {.matmul = k3_matmul_scalar, .mix_f32 = k3_mix_f32_scalar, .mix_bf16 = k3_mix_bf16_scalar},
#if K3_HAVE_AVX2
    [K3_CPU_AVX2] = K3_EXACT_TABLE(avx2),
#endif
#if K3_HAVE_AVX512
    [K3_CPU_AVX512] = K3_EXACT_TABLE(avx512),
#endif
#if K3_HAVE_NEON
    [K3_CPU_NEON] = K3_EXACT_TABLE(neon),
#endif
};

/* The kernels of a level above AVX-512 that are its own. */
static void add_own(k3_cpu_kernels *k, k3_cpu_level level)
{
    (void)k;
    (void)level;
#if K3_HAVE_AVX512BF16
    if (level == K3_CPU_AVX512BF16 || (level == K3_CPU_AMX && __builtin_cpu_supports("avx512bf16"))) {
        k->attend_pack = k3_attend_pack_avx512bf16;
        k->attend_round = k3_attend_round_avx512bf16;
        k->attend_row = k3_attend_row_avx512bf16;
        k->attend_absorb = k3_attend_absorb_avx512bf16;
        k->attend_value = k3_attend_value_avx512bf16;
    }
    if (level == K3_CPU_AVX512BF16) {
        k->round_bf16 = k3_round_bf16_avx512bf16;
        k->matmul_bf16 = k3_matmul_bf16_avx512bf16;
    }
#endif
#if K3_HAVE_AMX
    if (level == K3_CPU_AMX) {
        k->round_bf16 = k3_round_bf16_amx;
        k->matmul_bf16 = k3_matmul_bf16_amx;
        k->matmul_q8 = k3_matmul_q8_amx;
    }
#endif
}

void k3_cpu_kernels_get(k3_cpu_kernels *k, k3_cpu_level wanted, int exact)
{
    k3_cpu_level level = wanted == K3_CPU_AVX512BF16 || wanted == K3_CPU_AMX ? K3_CPU_AVX512 : wanted;
    *k = tables[exact ? K3_CPU_SCALAR : level];
#if K3_HAVE_AVX512 && K3_HAVE_AVX2
    if (level == K3_CPU_AVX512 && !__builtin_cpu_supports("avx512vnni"))
        k->matmul_q8 = k3_matmul_q8_avx2; /* the same bits */
#endif
    if (!exact) {
        add_own(k, wanted);
        return;
    }
    k->matmul_q8 = NULL;
    k->mix_int8 = NULL;
    k->decode = tables[level].decode;
    k->matmul = exact_tables[level].matmul;
    k->mix_f32 = exact_tables[level].mix_f32;
    k->mix_bf16 = exact_tables[level].mix_bf16;
}
