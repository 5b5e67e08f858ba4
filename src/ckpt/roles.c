/* The table of specification 2.2: a role's name, where it exists, its shape. */
#include <string.h>

#include "ckpt/roles.h"

/* Shorthand for the table only. */
#define GLOBAL K3_IN_MODEL
#define LAYER K3_IN_LAYER
#define KDA K3_IN_KDA
#define MLA K3_IN_MLA
#define DENSE K3_IN_DENSE
#define MOE K3_IN_MOE
#define EXPERT K3_IN_EXPERT

const k3_role_spec k3_role_specs[K3_N_ROLES] = {
    [K3_R_EMBED] = {"embed_tokens.weight", GLOBAL, {K3_DIM_VOCAB, K3_DIM_HIDDEN}},
    [K3_R_NORM] = {"norm.weight", GLOBAL, {K3_DIM_HIDDEN}},
    [K3_R_OUT_RES_NORM] = {"output_attn_res_norm.weight", GLOBAL, {K3_DIM_HIDDEN}},
    [K3_R_OUT_RES_PROJ] = {"output_attn_res_proj.weight", GLOBAL, {K3_DIM_ONE, K3_DIM_HIDDEN}},
    [K3_R_HEAD] = {"lm_head.weight", GLOBAL, {K3_DIM_VOCAB, K3_DIM_HIDDEN}},

    [K3_R_INPUT_NORM] = {"input_layernorm.weight", LAYER, {K3_DIM_HIDDEN}},
    [K3_R_POST_NORM] = {"post_attention_layernorm.weight", LAYER, {K3_DIM_HIDDEN}},
    [K3_R_ATTN_RES_NORM] = {"self_attention_res_norm.weight", LAYER, {K3_DIM_HIDDEN}},
    [K3_R_ATTN_RES_PROJ] = {"self_attention_res_proj.weight", LAYER, {K3_DIM_ONE, K3_DIM_HIDDEN}},
    [K3_R_MLP_RES_NORM] = {"mlp_res_norm.weight", LAYER, {K3_DIM_HIDDEN}},
    [K3_R_MLP_RES_PROJ] = {"mlp_res_proj.weight", LAYER, {K3_DIM_ONE, K3_DIM_HIDDEN}},

    [K3_R_KDA_Q] = {"self_attn.q_proj.weight", KDA, {K3_DIM_KDA_WIDTH, K3_DIM_HIDDEN}},
    [K3_R_KDA_K] = {"self_attn.k_proj.weight", KDA, {K3_DIM_KDA_WIDTH, K3_DIM_HIDDEN}},
    [K3_R_KDA_V] = {"self_attn.v_proj.weight", KDA, {K3_DIM_KDA_WIDTH, K3_DIM_HIDDEN}},
    [K3_R_KDA_Q_CONV] = {"self_attn.q_conv1d.weight", KDA, {K3_DIM_KDA_WIDTH, K3_DIM_ONE, K3_DIM_CONV}},
    [K3_R_KDA_K_CONV] = {"self_attn.k_conv1d.weight", KDA, {K3_DIM_KDA_WIDTH, K3_DIM_ONE, K3_DIM_CONV}},
    [K3_R_KDA_V_CONV] = {"self_attn.v_conv1d.weight", KDA, {K3_DIM_KDA_WIDTH, K3_DIM_ONE, K3_DIM_CONV}},
    [K3_R_KDA_F_A] = {"self_attn.f_a_proj.weight", KDA, {K3_DIM_KDA_DIM, K3_DIM_HIDDEN}},
    [K3_R_KDA_F_B] = {"self_attn.f_b_proj.weight", KDA, {K3_DIM_KDA_WIDTH, K3_DIM_KDA_DIM}},
    [K3_R_KDA_A_LOG] = {"self_attn.A_log", KDA, {K3_DIM_KDA_HEADS_OR_MORE}},
    [K3_R_KDA_DT_BIAS] = {"self_attn.dt_bias", KDA, {K3_DIM_KDA_WIDTH}},
    [K3_R_KDA_B] = {"self_attn.b_proj.weight", KDA, {K3_DIM_KDA_HEADS, K3_DIM_HIDDEN}},
    [K3_R_KDA_G] = {"self_attn.g_proj.weight", KDA, {K3_DIM_KDA_WIDTH, K3_DIM_HIDDEN}},
    [K3_R_KDA_O_NORM] = {"self_attn.o_norm.weight", KDA, {K3_DIM_KDA_DIM}},
    [K3_R_KDA_O] = {"self_attn.o_proj.weight", KDA, {K3_DIM_HIDDEN, K3_DIM_KDA_WIDTH}},

    [K3_R_MLA_Q_A] = {"self_attn.q_a_proj.weight", MLA, {K3_DIM_Q_LORA, K3_DIM_HIDDEN}},
    [K3_R_MLA_Q_A_NORM] = {"self_attn.q_a_layernorm.weight", MLA, {K3_DIM_Q_LORA}},
    [K3_R_MLA_Q_B] = {"self_attn.q_b_proj.weight", MLA, {K3_DIM_MLA_QUERY, K3_DIM_Q_LORA}},
    [K3_R_MLA_KV_A] = {"self_attn.kv_a_proj_with_mqa.weight", MLA, {K3_DIM_MLA_CACHED, K3_DIM_HIDDEN}},
    [K3_R_MLA_KV_A_NORM] = {"self_attn.kv_a_layernorm.weight", MLA, {K3_DIM_KV_LORA}},
    [K3_R_MLA_KV_B] = {"self_attn.kv_b_proj.weight", MLA, {K3_DIM_MLA_KEY_VALUE, K3_DIM_KV_LORA}},
    [K3_R_MLA_G] = {"self_attn.g_proj.weight", MLA, {K3_DIM_MLA_VALUE, K3_DIM_HIDDEN}},
    [K3_R_MLA_O] = {"self_attn.o_proj.weight", MLA, {K3_DIM_HIDDEN, K3_DIM_MLA_VALUE}},

    [K3_R_DENSE_GATE] = {"mlp.gate_proj.weight", DENSE, {K3_DIM_DENSE, K3_DIM_HIDDEN}},
    [K3_R_DENSE_UP] = {"mlp.up_proj.weight", DENSE, {K3_DIM_DENSE, K3_DIM_HIDDEN}},
    [K3_R_DENSE_DOWN] = {"mlp.down_proj.weight", DENSE, {K3_DIM_HIDDEN, K3_DIM_DENSE}},

    [K3_R_ROUTER] = {"block_sparse_moe.gate.weight", MOE, {K3_DIM_EXPERTS, K3_DIM_HIDDEN}},
    [K3_R_ROUTER_BIAS] = {"block_sparse_moe.gate.e_score_correction_bias", MOE, {K3_DIM_EXPERTS}},
    [K3_R_LATENT_DOWN] = {"block_sparse_moe.routed_expert_down_proj.weight", MOE, {K3_DIM_EXPERT_OUTER, K3_DIM_HIDDEN}},
    [K3_R_LATENT_NORM] = {"block_sparse_moe.routed_expert_norm.weight", MOE, {K3_DIM_EXPERT_OUTER}},
    [K3_R_LATENT_UP] = {"block_sparse_moe.routed_expert_up_proj.weight", MOE, {K3_DIM_HIDDEN, K3_DIM_EXPERT_OUTER}},
    [K3_R_SHARED_GATE] = {"block_sparse_moe.shared_experts.gate_proj.weight", MOE, {K3_DIM_SHARED, K3_DIM_HIDDEN}},
    [K3_R_SHARED_UP] = {"block_sparse_moe.shared_experts.up_proj.weight", MOE, {K3_DIM_SHARED, K3_DIM_HIDDEN}},
    [K3_R_SHARED_DOWN] = {"block_sparse_moe.shared_experts.down_proj.weight", MOE, {K3_DIM_HIDDEN, K3_DIM_SHARED}},

    [K3_R_W1] = {"w1.weight_packed", EXPERT, {K3_DIM_EXPERT_INNER, K3_DIM_EXPERT_OUTER_CODES}},
    [K3_R_W1_SCALE] = {"w1.weight_scale", EXPERT, {K3_DIM_EXPERT_INNER, K3_DIM_EXPERT_OUTER_SCALES}},
    [K3_R_W2] = {"w2.weight_packed", EXPERT, {K3_DIM_EXPERT_OUTER, K3_DIM_EXPERT_INNER_CODES}},
    [K3_R_W2_SCALE] = {"w2.weight_scale", EXPERT, {K3_DIM_EXPERT_OUTER, K3_DIM_EXPERT_INNER_SCALES}},
    [K3_R_W3] = {"w3.weight_packed", EXPERT, {K3_DIM_EXPERT_INNER, K3_DIM_EXPERT_OUTER_CODES}},
    [K3_R_W3_SCALE] = {"w3.weight_scale", EXPERT, {K3_DIM_EXPERT_INNER, K3_DIM_EXPERT_OUTER_SCALES}},
};

int64_t k3_dim_size(const k3_hparams *hp, k3_dim dim)
{
    int64_t outer = hp->latent ? hp->latent : hp->hidden, inner = hp->expert_inner;
    switch (dim) {
    case K3_DIM_NONE:
        return 0;
    case K3_DIM_ONE:
        return 1;
    case K3_DIM_HIDDEN:
        return hp->hidden;
    case K3_DIM_VOCAB:
        return hp->vocab;
    case K3_DIM_KDA_WIDTH:
        return (int64_t)hp->kda_heads * hp->kda_dim;
    case K3_DIM_KDA_DIM:
        return hp->kda_dim;
    case K3_DIM_KDA_HEADS:
    case K3_DIM_KDA_HEADS_OR_MORE:
        return hp->kda_heads;
    case K3_DIM_CONV:
        return hp->conv_width;
    case K3_DIM_Q_LORA:
        return hp->q_lora;
    case K3_DIM_KV_LORA:
        return hp->kv_lora;
    case K3_DIM_MLA_QUERY:
        return (int64_t)hp->mla_heads * (hp->nope + hp->rope);
    case K3_DIM_MLA_CACHED:
        return (int64_t)hp->kv_lora + hp->rope;
    case K3_DIM_MLA_KEY_VALUE:
        return (int64_t)hp->mla_heads * (hp->nope + hp->v_dim);
    case K3_DIM_MLA_VALUE:
        return (int64_t)hp->mla_heads * hp->v_dim;
    case K3_DIM_DENSE:
        return hp->dense_inner;
    case K3_DIM_EXPERTS:
        return hp->n_experts;
    case K3_DIM_SHARED:
        return hp->shared_inner;
    case K3_DIM_EXPERT_INNER:
        return inner;
    case K3_DIM_EXPERT_INNER_CODES:
        return inner / 2;
    case K3_DIM_EXPERT_INNER_SCALES:
        return inner / 32;
    case K3_DIM_EXPERT_OUTER:
        return outer;
    case K3_DIM_EXPERT_OUTER_CODES:
        return outer / 2;
    case K3_DIM_EXPERT_OUTER_SCALES:
        return outer / 32;
    }
    return 0;
}

int k3_role_exists(const k3_hparams *hp, k3_role role, int layer)
{
    if (layer < 0 || layer >= hp->n_layers)
        return 0;
    if (role == K3_R_LATENT_DOWN || role == K3_R_LATENT_UP || role == K3_R_LATENT_NORM) {
        if (!hp->latent || (role == K3_R_LATENT_NORM && !hp->latent_norm))
            return 0;
    }
    if (role == K3_R_MLA_G && !hp->mla_gate)
        return 0;
    switch (k3_role_specs[role].scope) {
    case K3_IN_MODEL:
        return layer == 0 && !(role == K3_R_HEAD && hp->tied);
    case K3_IN_LAYER:
        return 1;
    case K3_IN_KDA:
        return !hp->is_mla[layer];
    case K3_IN_MLA:
        return hp->is_mla[layer];
    case K3_IN_DENSE:
        return !hp->is_moe[layer];
    case K3_IN_MOE:
    case K3_IN_EXPERT:
        return hp->is_moe[layer];
    }
    return 0;
}

const char *k3_role_tail(k3_role role)
{
    return k3_role_specs[role].tail;
}
