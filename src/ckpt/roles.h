/* What is known about each role before any file is seen. */
#ifndef K3_CKPT_ROLES_H
#define K3_CKPT_ROLES_H

#include "ckpt/ckpt.h"

typedef enum k3_scope { K3_IN_MODEL, K3_IN_LAYER, K3_IN_KDA, K3_IN_MLA, K3_IN_DENSE, K3_IN_MOE, K3_IN_EXPERT } k3_scope;

/* Sides of matrices. OUTER is the width that routed experts read and write: the latent, or hidden where there is none. */
typedef enum k3_dim {
    K3_DIM_NONE, /* ends a shape */
    K3_DIM_ONE,
    K3_DIM_HIDDEN,
    K3_DIM_VOCAB,
    K3_DIM_KDA_WIDTH,
    K3_DIM_KDA_DIM,
    K3_DIM_KDA_HEADS,
    K3_DIM_KDA_HEADS_OR_MORE, /* A_log: padded with zeros in the release */
    K3_DIM_CONV,
    K3_DIM_Q_LORA,
    K3_DIM_KV_LORA,
    K3_DIM_MLA_QUERY,
    K3_DIM_MLA_CACHED,
    K3_DIM_MLA_KEY_VALUE,
    K3_DIM_MLA_VALUE,
    K3_DIM_DENSE,
    K3_DIM_EXPERTS,
    K3_DIM_SHARED,
    K3_DIM_EXPERT_INNER,
    K3_DIM_EXPERT_INNER_CODES,
    K3_DIM_EXPERT_INNER_SCALES,
    K3_DIM_EXPERT_OUTER,
    K3_DIM_EXPERT_OUTER_CODES,
    K3_DIM_EXPERT_OUTER_SCALES
} k3_dim;

typedef struct k3_role_spec {
    const char *tail; /* of the name, after "layers.{l}." and, for an expert, "block_sparse_moe.experts.{e}." */
    k3_scope scope;
    k3_dim dims[4]; /* K3_DIM_NONE ends */
} k3_role_spec;

extern const k3_role_spec k3_role_specs[K3_N_ROLES];

int64_t k3_dim_size(const k3_hparams *hp, k3_dim dim);
const char *k3_role_tail(k3_role role);
/* 1 if the model of these dimensions has this role in this layer (global roles: in layer 0). */
int k3_role_exists(const k3_hparams *hp, k3_role role, int layer);

#endif
