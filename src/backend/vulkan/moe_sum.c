#include "backend/args/moe.h"
#include "backend/vulkan/vulkan.h"

void k3_vulkan_moe_sum(k3_backend *be, k3_ref y, k3_ref slots, k3_ref weights, int T, int K, int L)
{
    k3_vk *vk = k3_vk_begin(be, K3_VK_MOE_SUM);
    uint64_t rows = (uint64_t)T, row_bytes = 4 * (uint64_t)L;
    struct k3_moe_sum_args args = {
        .y = k3_vk_write(vk, y, rows * row_bytes),
        .slots = k3_vk_read(vk, slots, rows * (uint64_t)K * row_bytes),
        .weights = k3_vk_read(vk, weights, 4 * rows * (uint64_t)K),
        .K = (uint32_t)K,
        .L = (uint32_t)L,
    };
    if (T > 0 && L > 0)
        k3_vk_dispatch(vk, K3_VK_SHADER_moe_sum, NULL, 0, &args, sizeof args, k3_vk_groups((uint64_t)L, 256), (uint32_t)T, 1);
    k3_vk_end(vk, 0);
}
