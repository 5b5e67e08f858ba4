#include "backend/vulkan/head_norm.h"

void k3_vulkan_l2norm(k3_backend *be, k3_ref y, k3_ref x, int T, int H, int D, float eps, float scale)
{
    k3_vk *vk = k3_vk_begin(be, K3_VK_L2NORM);
    uint32_t rows = (uint32_t)T * (uint32_t)H;
    uint64_t bytes = 4 * (uint64_t)rows * (uint64_t)D;
    struct k3_head_norm_args args = {k3_vk_write(vk, y, bytes), k3_vk_read(vk, x, bytes), 0, 0, rows, (uint32_t)D, eps, scale};
    k3_vk_head_norm(vk, K3_VK_SHADER_l2norm, &args);
    k3_vk_end(vk, 0);
}
