/* What the kernels of moe_experts share. */
#ifndef K3_MOE_GLSL
#define K3_MOE_GLSL

#include "decode.glsl"
#include "math.glsl"
#include "backend/args/moe.h"

const uint K3_NO_EXPERT = 0xffffffffu;
const uint K3_FAULT_EXPERT_ID = 2; /* K3_VK_FAULT_EXPERT_ID */

/* Addresses of an expert's tensors by their place in k3_expert_address. */
const uint K3_W1 = 0, K3_W1_SCALE = 1, K3_W3 = 2, K3_W3_SCALE = 3, K3_W2 = 4, K3_W2_SCALE = 5;
uint64_t k3_expert_tensor(uint64_t table, uint entry, uint tensor)
{
    return U64(table).at[6u * entry + tensor];
}

/* The entry of the table for a pair, or K3_NO_EXPERT. */
uint k3_expert_of(uint pair, uint64_t table, uint64_t ids, uint E, uint missing_is_fault, uint64_t fault)
{
    uint entry = ids == 0ul ? pair : U32(ids).at[pair];
    bool inside = ids == 0ul || entry < E;
    if (inside && k3_expert_tensor(table, entry, K3_W1) != 0ul)
        return entry;
    if (!inside || missing_is_fault != 0u)
        U32(fault).at[0] = K3_FAULT_EXPERT_ID;
    return K3_NO_EXPERT;
}

/* Byte i of the scales that begin at a multiple of 4, as a factor of 32 weights. */
uint k3_scale_byte(uint64_t scales, uint i)
{
    return U32(scales).at[i / 4u] >> (8u * (i % 4u)) & 255u;
}

#endif
