#include "backend/cpu/kernels.h"

static const char *const level_names[K3_CPU_N_LEVELS] = {"scalar", "avx2", "avx512"};

const char *k3_cpu_level_name(k3_cpu_level level)
{
    return level_names[level];
}

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
    default:
        return 0;
    }
}

void k3_cpu_kernels_get(k3_cpu_kernels *k, k3_cpu_level level)
{
    *k = (k3_cpu_kernels){
        .decode = k3_decode_scalar,
        .matmul = k3_matmul_scalar,
        .mix_f32 = k3_mix_f32_scalar,
        .mix_bf16 = k3_mix_bf16_scalar,
        .softmax = k3_softmax_scalar,
        .attnres_mix = k3_attnres_mix_scalar,
        .rmsnorm = k3_rmsnorm_scalar,
        .shortconv = k3_shortconv_scalar,
        .l2norm = k3_l2norm_scalar,
        .kda_gate = k3_kda_gate_scalar,
        .gate_rmsnorm = k3_gate_rmsnorm_scalar,
        .kda_recur = k3_kda_recur_scalar,
        .kda_chunk = k3_kda_chunk_scalar,
        .gate_mul = k3_gate_mul_scalar,
        .situ_glu = k3_situ_glu_scalar,
        .router_topk = k3_router_topk_scalar,
        .add = k3_add_scalar,
    };
    (void)level;
}
