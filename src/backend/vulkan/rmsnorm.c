#include "backend/args/rmsnorm.h"
#include "backend/vulkan/elementwise.h"

void k3_vulkan_rmsnorm(k3_backend *be, k3_ref y, k3_ref x, k3_ref w, int T, int C, int y_stride, int x_stride, float eps)
{
    enum { MAX_C = 8192 };
    k3_vk *vk = k3_vk_begin(be, K3_VK_RMSNORM);
    uint64_t y_row = 4 * (uint64_t)y_stride, x_row = 4 * (uint64_t)x_stride, row = 4 * (uint64_t)C, before = T > 0 ? (uint64_t)T - 1 : 0;
    if (C > MAX_C)
        k3_vk_fail(vk, K3_E_UNSUPPORTED, "rmsnorm: rows of %d channels, at most %d wanted", C, MAX_C);
    struct k3_rmsnorm_args args = {k3_vk_write(vk, y, before * y_row + row),
                                   k3_vk_read(vk, x, before * x_row + row),
                                   k3_vk_read(vk, w, row),
                                   y_row,
                                   x_row,
                                   (uint32_t)C,
                                   eps};
    uint32_t aligned = k3_vk_aligned(args.y | args.x | args.w | row | (T > 1 ? y_row | x_row : 0));
    k3_vk_dispatch(vk, K3_VK_SHADER_rmsnorm, &aligned, 1, &args, sizeof args, (uint64_t)T, 1, 1);
    k3_vk_end(vk, 0);
}
