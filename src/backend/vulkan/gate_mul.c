#include "backend/vulkan/elementwise.h"

void k3_vulkan_gate_mul(k3_backend *be, k3_ref y, k3_ref x, k3_ref gate, int64_t n)
{
    k3_vk *vk = k3_vk_begin(be, K3_VK_GATE_MUL);
    k3_vk_elementwise(vk, K3_VK_SHADER_gate_mul, y, x, gate, n, 0, 0);
    k3_vk_end(vk, 0);
}
