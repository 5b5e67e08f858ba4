#include "backend/args/router_topk.h"
#include "backend/gpu/gpu.h"

/* Of shared memory in the kernel. */
enum { MOST_EXPERTS = 4096, MOST_CHOSEN = 64 };

void k3_gpu_router_topk(k3_backend *be, k3_ref ids, k3_ref weights, k3_ref logits, k3_ref bias, int T, int E, int K, int renormalize,
                        float scale)
{
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_ROUTER_TOPK);
    if (K < 1 || K > E)
        k3_gpu_fail(gpu, K3_E_INVALID, "router_topk: %d of %d experts asked for", K, E);
    else if (E > MOST_EXPERTS || K > MOST_CHOSEN)
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "router_topk: %d of %d experts asked for, at most %d of %d wanted", K, E, (int)MOST_CHOSEN,
                    (int)MOST_EXPERTS);
    uint64_t pairs = (uint64_t)T * (uint64_t)K;
    struct k3_router_topk_args args = {
        .ids = k3_gpu_write(gpu, ids, 4 * pairs),
        .weights = k3_gpu_write(gpu, weights, 4 * pairs),
        .logits = k3_gpu_read(gpu, logits, 4 * (uint64_t)T * (uint64_t)E),
        .bias = k3_gpu_read(gpu, bias, 4 * (uint64_t)E),
        .fault = k3_gpu_fault(gpu),
        .fault_code = K3_GPU_FAULT_ROUTER_NAN,
        .E = (uint32_t)E,
        .K = (uint32_t)K,
        .renormalize = renormalize != 0,
        .scale = scale,
    };
    if (T > 0)
        k3_gpu_dispatch(gpu, K3_GPU_SHADER_router_topk, NULL, 0, &args, sizeof args, (uint64_t)T, 1, 1);
    k3_gpu_end(gpu, 0);
}
