#include "backend/vulkan/head_norm.h"

void k3_vulkan_gate_rmsnorm(k3_backend *be, k3_ref y, k3_ref o, k3_ref w, k3_ref gate, int T, int H, int D, float eps)
{
    k3_vk *vk = k3_vk_begin(be, K3_VK_GATE_RMSNORM);
    uint32_t rows = (uint32_t)T * (uint32_t)H;
    uint64_t row = 4 * (uint64_t)D, bytes = rows * row;
    struct k3_head_norm_args args = {k3_vk_write(vk, y, bytes),
                                     k3_vk_read(vk, o, bytes),
                                     k3_vk_read(vk, w, row),
                                     k3_vk_read(vk, gate, bytes),
                                     rows,
                                     (uint32_t)D,
                                     eps,
                                     1.0f};
    k3_vk_head_norm(vk, K3_VK_SHADER_gate_rmsnorm, &args);
    k3_vk_end(vk, 0);
}
