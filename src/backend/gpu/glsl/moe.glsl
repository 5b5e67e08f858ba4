/* What the kernels of moe_experts share. */
#ifndef K3_MOE_GLSL
#define K3_MOE_GLSL

#include "decode.glsl"
#include "math.glsl"
#include "vec4.glsl" /* K3_ALIGNED: of the codes too */
#include "backend/args/moe.h"

const uint K3_NO_EXPERT = 0xffffffffu;

/* Addresses of an expert's tensors by their place in k3_expert_address. */
const uint K3_W1 = 0, K3_W1_SCALE = 1, K3_W3 = 2, K3_W3_SCALE = 3, K3_W2 = 4, K3_W2_SCALE = 5;
uint64_t k3_expert_tensor(uint64_t table, uint entry, uint tensor)
{
    return U64(table).at[6u * entry + tensor];
}

/* The entry of the table for a pair, or K3_NO_EXPERT; a macro, since both kernels that need it have their own arguments. */
#define K3_EXPERT_OF(pair, a) k3_expert_of(pair, a.table, a.ids, a.E, a.missing_is_fault, a.fault, a.fault_code)
uint k3_expert_of(uint pair, uint64_t table, uint64_t ids, uint E, uint missing_is_fault, uint64_t fault, uint fault_code)
{
    uint entry = ids == table ? pair : U32(ids).at[pair];
    bool inside = ids == table || entry < E;
    if (k3_expert_tensor(table, inside ? entry : 0u, K3_W1) != 0ul && inside)
        return entry;
    if (!inside || missing_is_fault != 0u)
        U32(fault).at[0] = fault_code;
    return K3_NO_EXPERT;
}

/* Block i of codes: 32 columns. */
uvec4 k3_code_block(uint64_t codes, uint i)
{
    if (K3_ALIGNED != 0u)
        return U32x4(codes).at[i];
    U32 words = U32(codes + 16ul * i);
    return uvec4(words.at[0], words.at[1], words.at[2], words.at[3]);
}

/* The scale of block i; the first lies at a multiple of 4. */
uint k3_scale_byte(uint64_t scales, uint i)
{
    return U32(scales).at[i / 4u] >> (8u * (i % 4u)) & 255u;
}

#endif
