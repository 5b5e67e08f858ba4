#include "backend/vulkan/elementwise.h"

void k3_vulkan_add(k3_backend *be, k3_ref y, k3_ref a, k3_ref b, int64_t n)
{
    k3_vk *vk = k3_vk_begin(be, K3_VK_ADD);
    k3_vk_elementwise(vk, K3_VK_SHADER_add, y, a, b, n, 0, 0);
    k3_vk_end(vk, 0);
}
