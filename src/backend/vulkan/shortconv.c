#include "backend/args/shortconv.h"
#include "backend/vulkan/runs.h"

void k3_vulkan_shortconv(k3_backend *be, k3_ref y, k3_ref u, k3_ref w, const k3_run *runs, int n_runs, int C, int width)
{
    enum { CHANNELS_A_GROUP = 128, ROWS_A_GROUP = 8, MAX_WIDTH = 8 }; /* as glsl/shortconv.comp has them */
    k3_vk *vk = k3_vk_begin(be, K3_VK_SHORTCONV);
    if (width < 1 || width > MAX_WIDTH)
        k3_vk_fail(vk, K3_E_UNSUPPORTED, "shortconv: width %d, 1 to %d wanted", width, MAX_WIDTH);
    uint64_t row = 4 * (uint64_t)C, bytes = k3_vk_end_row(runs, n_runs) * row;
    struct k3_shortconv_args args = {k3_vk_write(vk, y, bytes),
                                     k3_vk_read(vk, u, bytes),
                                     k3_vk_read(vk, w, row * (uint64_t)width),
                                     k3_vk_runs_args(vk, runs, n_runs, row * (uint64_t)(width - 1)),
                                     (uint32_t)C,
                                     0};
    uint32_t taps = (uint32_t)width;
    k3_vk_dispatch(vk, K3_VK_SHADER_shortconv, &taps, 1, &args, sizeof args, k3_vk_groups((uint64_t)C, CHANNELS_A_GROUP),
                   (uint32_t)k3_vk_groups(k3_vk_longest(runs, n_runs), ROWS_A_GROUP), (uint32_t)n_runs);
    k3_vk_end(vk, 0);
}
