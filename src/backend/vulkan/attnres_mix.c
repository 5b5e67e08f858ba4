#include "backend/args/attnres_mix.h"
#include "backend/vulkan/elementwise.h"

void k3_vulkan_attnres_mix(k3_backend *be, k3_ref y, const k3_ref *src, int n_src, k3_ref s, int T, int C, float eps)
{
    enum { MAX_SOURCES = 32, MAX_C = 8192 };
    k3_vk *vk = k3_vk_begin(be, K3_VK_ATTNRES_MIX);
    uint64_t row = 4 * (uint64_t)C, all = (uint64_t)T * row, bits = row, sources[MAX_SOURCES];
    if (n_src < 1 || n_src > MAX_SOURCES)
        k3_vk_fail(vk, K3_E_UNSUPPORTED, "attnres_mix: %d sources, 1 to %d wanted", n_src, MAX_SOURCES);
    if (C > MAX_C)
        k3_vk_fail(vk, K3_E_UNSUPPORTED, "attnres_mix: rows of %d channels, at most %d wanted", C, MAX_C);
    if (!k3_vk_failed(vk)) {
        for (int j = 0; j < n_src; j++)
            bits |= sources[j] = k3_vk_read(vk, src[j], all);
        struct k3_attnres_mix_args args = {k3_vk_write(vk, y, all),
                                           k3_vk_read(vk, s, row),
                                           k3_vk_put(vk, sources, (size_t)n_src * sizeof sources[0]),
                                           (uint32_t)n_src,
                                           (uint32_t)C,
                                           eps,
                                           0};
        uint32_t aligned = k3_vk_aligned(bits | args.y | args.s);
        k3_vk_dispatch(vk, K3_VK_SHADER_attnres_mix, &aligned, 1, &args, sizeof args, (uint64_t)T, 1, 1);
    }
    k3_vk_end(vk, 0);
}
