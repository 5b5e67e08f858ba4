#include "backend/gpu/elementwise.h"

#include "backend/args/elementwise.h"

void k3_gpu_elementwise(k3_gpu *gpu, k3_gpu_shader shader, k3_ref y, k3_ref a, k3_ref b, int64_t n, float b1, float b2)
{
    enum { VALUES_A_GROUP = 1024, GROUPS_A_CORE = 32 };
    if (n > INT32_MAX) {
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "%s: %lld values, at most %d wanted; compute fewer rows at once", k3_gpu_op_now(gpu),
                    (long long)n, INT32_MAX);
        return;
    }
    uint64_t bytes = 4 * (uint64_t)n, groups = k3_gpu_groups((uint64_t)n, VALUES_A_GROUP);
    uint64_t most = (uint64_t)GROUPS_A_CORE * k3_gpu_limits_of(gpu)->cores; /* the kernel loops over the rest */
    struct k3_elementwise_args args = {
        k3_gpu_write(gpu, y, bytes), k3_gpu_read(gpu, a, bytes), k3_gpu_read(gpu, b, bytes), (uint32_t)n, b1, b2, 0};
    uint32_t aligned = k3_gpu_aligned(args.y | args.a | args.b | bytes);
    k3_gpu_dispatch(gpu, shader, &aligned, 1, &args, sizeof args, groups < most ? groups : most, 1, 1);
}
