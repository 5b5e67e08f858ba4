/* Arguments of moe_experts and moe_sum, and the table of a layer's experts in device memory. */
#ifndef K3_BACKEND_ARGS_MOE_H
#define K3_BACKEND_ARGS_MOE_H

#include "backend/args/types.h"

/* Addresses of the codes and scales of one expert, MXFP4. 0 where the expert is not resident. */
struct k3_expert_address {
    uint64_t w1, w1_scale, w3, w3_scale, w2, w2_scale;
};
K3_ARGS_SIZE(k3_expert_address, 48)

#endif
