#include "backend/args/router_topk.h"
#include "backend/vulkan/vulkan.h"

/* Of shared memory in the kernel. */
enum { MOST_EXPERTS = 4096, MOST_CHOSEN = 64 };

void k3_vulkan_router_topk(k3_backend *be, k3_ref ids, k3_ref weights, k3_ref logits, k3_ref bias, int T, int E, int K, int renormalize,
                           float scale)
{
    k3_vk *vk = k3_vk_begin(be, K3_VK_ROUTER_TOPK);
    if (K < 1 || K > E)
        k3_vk_fail(vk, K3_E_INVALID, "router_topk: %d of %d experts asked for", K, E);
    else if (E > MOST_EXPERTS || K > MOST_CHOSEN)
        k3_vk_fail(vk, K3_E_UNSUPPORTED, "router_topk: %d of %d experts asked for, at most %d of %d wanted", K, E, (int)MOST_CHOSEN,
                   (int)MOST_EXPERTS);
    uint64_t pairs = (uint64_t)T * (uint64_t)K;
    struct k3_router_topk_args args = {
        .ids = k3_vk_write(vk, ids, 4 * pairs),
        .weights = k3_vk_write(vk, weights, 4 * pairs),
        .logits = k3_vk_read(vk, logits, 4 * (uint64_t)T * (uint64_t)E),
        .bias = k3_vk_read(vk, bias, 4 * (uint64_t)E),
        .fault = k3_vk_fault(vk),
        .fault_code = K3_VK_FAULT_ROUTER_NAN,
        .E = (uint32_t)E,
        .K = (uint32_t)K,
        .renormalize = renormalize != 0,
        .scale = scale,
    };
    if (T > 0)
        k3_vk_dispatch(vk, K3_VK_SHADER_router_topk, NULL, 0, &args, sizeof args, (uint64_t)T, 1, 1);
    k3_vk_end(vk, 0);
}
