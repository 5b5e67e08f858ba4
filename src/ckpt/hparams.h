/* The model's dimensions and switches, read from config.json (specification 1). */
#ifndef K3_CKPT_HPARAMS_H
#define K3_CKPT_HPARAMS_H

#include "base/error.h"

enum { K3_MAX_LAYERS = 256 };

typedef struct k3_hparams {
    int hidden, n_layers, vocab, context; /* hidden_size, num_hidden_layers, vocab_size, max_position_embeddings */
    float rms_eps;
    float situ_b1, situ_b2;   /* activation_situ_beta, _linear_beta; b2 = INFINITY when null (no cap) */
    int dense_inner, n_dense; /* intermediate_size; first_k_dense_replace */
    int moe_freq;
    int n_experts, top_k, n_shared;
    int expert_inner, shared_inner; /* moe_intermediate_size; n_shared * moe_intermediate_size */
    int latent;                     /* routed_expert_hidden_size; 0: experts act on the hidden width, no projections */
    int latent_norm;                /* latent_moe_use_norm */
    int renormalize;
    float routed_scale;
    int attn_res_block;
    int mla_heads, q_lora, kv_lora, nope, rope, v_dim;
    int mla_gate; /* mla_use_output_gate */
    int kda_heads, kda_dim, conv_width;
    float gate_lower;                    /* gate_lower_bound, in [-5, 0) */
    int full_rank_gate;                  /* use_full_rank_gate; 0: g_a_proj, g_b_proj (refused: no such checkpoint exists) */
    int bos, eos, pad;                   /* -1 where the file says null; of a list of eos ids the first */
    int tied;                            /* tie_word_embeddings: the head is the embedding matrix */
    int n_nextn;                         /* num_nextn_predict_layers: that many layers may follow the last one; they are not used */
    unsigned char is_mla[K3_MAX_LAYERS]; /* by zero-based layer */
    unsigned char is_moe[K3_MAX_LAYERS];
} k3_hparams;

/* Parses config.json text; nested (text_config) and flat. Refuses by every rule of specification 1.6 and names ALL missing fields at
 * once. `warning` (size bytes, may be NULL) receives one line about unknown fields, or "". `path` appears in messages. */
k3_status k3_hparams_parse(k3_hparams *hp, char *warning, size_t size, const char *text, size_t n_bytes, const char *path, k3_error *err);

#endif
