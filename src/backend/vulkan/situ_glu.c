#include "backend/vulkan/elementwise.h"

#include <math.h>

void k3_vulkan_situ_glu(k3_backend *be, k3_ref y, k3_ref g, k3_ref u, int64_t n, float b1, float b2)
{
    k3_vk *vk = k3_vk_begin(be, K3_VK_SITU_GLU);
    k3_vk_elementwise(vk, K3_VK_SHADER_situ_glu, y, g, u, n, b1, isinf(b2) ? 0 : b2);
    k3_vk_end(vk, 0);
}
