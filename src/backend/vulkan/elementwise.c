#include "backend/vulkan/elementwise.h"

#include "backend/args/elementwise.h"

void k3_vk_elementwise(k3_vk *vk, k3_vk_shader shader, k3_ref y, k3_ref a, k3_ref b, int64_t n, float b1, float b2)
{
    enum { VALUES_A_GROUP = 1024, GROUPS_A_CORE = 32 };
    if (n > INT32_MAX) {
        k3_vk_fail(vk, K3_E_UNSUPPORTED, "%s: %lld values, at most %d wanted; compute fewer rows at once", k3_vk_shaders[shader].name,
                   (long long)n, INT32_MAX);
        return;
    }
    uint64_t bytes = 4 * (uint64_t)n, groups = k3_vk_groups((uint64_t)n, VALUES_A_GROUP);
    uint64_t most = (uint64_t)GROUPS_A_CORE * k3_vk_limits_of(vk)->cores; /* the kernel loops over the rest */
    struct k3_elementwise_args args = {
        k3_vk_write(vk, y, bytes), k3_vk_read(vk, a, bytes), k3_vk_read(vk, b, bytes), (uint32_t)n, b1, b2, 0};
    uint32_t aligned = k3_vk_aligned(args.y | args.a | args.b | bytes);
    k3_vk_dispatch(vk, shader, &aligned, 1, &args, sizeof args, groups < most ? groups : most, 1, 1);
}
