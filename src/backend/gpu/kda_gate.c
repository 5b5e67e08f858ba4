#include "backend/args/kda_gate.h"
#include "backend/gpu/elementwise.h"

void k3_gpu_kda_gate(k3_backend *be, k3_ref alpha, k3_ref g, k3_ref beta, k3_ref z, k3_ref b, k3_ref a_log, k3_ref dt_bias, int T, int H,
                     int D, float lower)
{
    enum { THREADS_A_GROUP = 128, GROUPS_A_CORE = 64 };
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_KDA_GATE);
    uint64_t rows = (uint64_t)T * (uint64_t)H, channels = 4 * (uint64_t)H * (uint64_t)D, bytes = (uint64_t)T * channels;
    struct k3_kda_gate_args args = {k3_gpu_write(gpu, alpha, bytes),
                                    k3_gpu_write(gpu, g, bytes),
                                    k3_gpu_write(gpu, beta, 4 * rows),
                                    k3_gpu_read(gpu, z, bytes),
                                    k3_gpu_read(gpu, b, 4 * rows),
                                    k3_gpu_read(gpu, a_log, 4 * (uint64_t)H),
                                    k3_gpu_read(gpu, dt_bias, channels),
                                    (uint32_t)rows,
                                    (uint32_t)H,
                                    (uint32_t)D,
                                    lower};
    uint32_t aligned = k3_gpu_aligned(args.alpha | args.g | args.z | args.dt_bias | 4 * (uint64_t)D);
    uint64_t groups = k3_gpu_groups(rows * (uint64_t)((D + 3) / 4), THREADS_A_GROUP);
    uint64_t most = (uint64_t)GROUPS_A_CORE * k3_gpu_limits_of(gpu)->cores; /* the kernel loops over the rest */
    k3_gpu_dispatch(gpu, K3_GPU_SHADER_kda_gate, &aligned, 1, &args, sizeof args, groups < most ? groups : most, 1, 1);
    k3_gpu_end(gpu, 0);
}
