/* Arguments of router_topk. */
#ifndef K3_BACKEND_ARGS_ROUTER_TOPK_H
#define K3_BACKEND_ARGS_ROUTER_TOPK_H

#include "backend/args/types.h"

struct k3_router_topk_args {
    uint64_t ids, weights, logits, bias, fault; /* addresses */
    uint32_t E, K, renormalize, fault_code;
    float scale;
    uint32_t pad;
};
K3_ARGS_SIZE(k3_router_topk_args, 64)

#endif
