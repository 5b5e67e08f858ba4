#include "backend/args/shortconv.h"
#include "backend/gpu/runs.h"

void k3_gpu_shortconv(k3_backend *be, k3_ref y, k3_ref u, k3_ref w, const k3_run *runs, int n_runs, int C, int width)
{
    enum { CHANNELS_A_GROUP = 128, ROWS_A_GROUP = 8, MAX_WIDTH = 8 }; /* as glsl/shortconv.comp has them */
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_SHORTCONV);
    if (width < 1 || width > MAX_WIDTH)
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "shortconv: width %d, 1 to %d wanted", width, MAX_WIDTH);
    uint64_t row = 4 * (uint64_t)C, bytes = k3_gpu_end_row(runs, n_runs) * row;
    struct k3_shortconv_args args = {k3_gpu_write(gpu, y, bytes),
                                     k3_gpu_read(gpu, u, bytes),
                                     k3_gpu_read(gpu, w, row * (uint64_t)width),
                                     k3_gpu_runs_args(gpu, runs, n_runs, row * (uint64_t)(width - 1)),
                                     (uint32_t)C,
                                     0};
    uint32_t taps = (uint32_t)width;
    k3_gpu_dispatch(gpu, K3_GPU_SHADER_shortconv, &taps, 1, &args, sizeof args, k3_gpu_groups((uint64_t)C, CHANNELS_A_GROUP),
                    (uint32_t)k3_gpu_groups(k3_gpu_longest(runs, n_runs), ROWS_A_GROUP), (uint32_t)n_runs);
    k3_gpu_end(gpu, 0);
}
