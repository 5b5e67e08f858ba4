#include "backend/args/attnres_mix.h"
#include "backend/gpu/elementwise.h"

void k3_gpu_attnres_mix(k3_backend *be, k3_ref y, const k3_ref *src, int n_src, k3_ref s, int T, int C, float eps)
{
    enum { MAX_SOURCES = 32, MAX_C = 8192 };
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_ATTNRES_MIX);
    uint64_t row = 4 * (uint64_t)C, all = (uint64_t)T * row, bits = row, sources[MAX_SOURCES];
    if (n_src < 1 || n_src > MAX_SOURCES)
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "attnres_mix: %d sources, 1 to %d wanted", n_src, MAX_SOURCES);
    if (C > MAX_C)
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "attnres_mix: rows of %d channels, at most %d wanted", C, MAX_C);
    if (!k3_gpu_failed(gpu)) {
        for (int j = 0; j < n_src; j++)
            bits |= sources[j] = k3_gpu_read(gpu, src[j], all);
        struct k3_attnres_mix_args args = {k3_gpu_write(gpu, y, all),
                                           k3_gpu_read(gpu, s, row),
                                           k3_gpu_put(gpu, sources, (size_t)n_src * sizeof sources[0]),
                                           (uint32_t)n_src,
                                           (uint32_t)C,
                                           eps,
                                           0};
        uint32_t aligned = k3_gpu_aligned(bits | args.y | args.s);
        k3_gpu_dispatch(gpu, K3_GPU_SHADER_attnres_mix, &aligned, 1, &args, sizeof args, (uint64_t)T, 1, 1);
    }
    k3_gpu_end(gpu, 0);
}
