/* The model's weights by role, in the backend's memory. */
#ifndef K3_MODEL_WEIGHTS_H
#define K3_MODEL_WEIGHTS_H

#include "backend/backend.h"
#include "ckpt/ckpt.h"
#include "model/late.h"

typedef enum k3_trunk { K3_TRUNK_BF16, K3_TRUNK_INT8, K3_TRUNK_INT4 } k3_trunk;

typedef struct k3_kda_weights {
    k3_mat q, k, v, f_a, f_b, b, g, o;
    k3_ref q_conv, k_conv, v_conv; /* [C, width] */
    k3_ref a_log, dt_bias, o_norm; /* [H], [H, D], [D] */
} k3_kda_weights;

typedef struct k3_mla_weights {
    k3_mat q_a, q_b, kv_a, kv_b, g, o; /* g.rows == 0: no output gate */
    k3_ref q_a_norm, kv_a_norm;
} k3_mla_weights;

typedef struct k3_glu_weights {
    k3_mat gate, up, down;
} k3_glu_weights;

typedef struct k3_moe_weights {
    k3_mat router;
    k3_ref bias;           /* [E] */
    k3_mat down, up;       /* latent projections; rows == 0: experts act on the hidden width */
    k3_ref norm;           /* [L]; no buffer: no norm */
    k3_glu_weights shared; /* gate.rows == 0: no shared experts */
} k3_moe_weights;

typedef struct k3_layer {
    int is_mla, is_moe;
    k3_ref input_norm, post_norm; /* [C] */
    k3_ref attn_res, mlp_res;     /* [C], norm * proj folded in f32 (specification 3.3) */
    k3_kda_weights kda;
    k3_mla_weights mla;
    k3_glu_weights dense;
    k3_moe_weights moe;
} k3_layer;

typedef struct k3_weights {
    const k3_hparams *hp;
    k3_backend *be;
    k3_mat embed, head; /* no buffer: see late */
    k3_ref norm, out_res;
    k3_layer *layers;
    uint64_t bytes;       /* held in memory */
    uint64_t token_bytes; /* trunk and head bytes that one decoded token reads */
    uint64_t token_macs;  /* and the multiply-adds that it makes with them */
    k3_buf **buffers;
    int n_buffers, max_buffers;
    k3_late *late; /* what comes when it is wanted; NULL: all of it is in memory */
} k3_weights;

/* What the trunk's parts take at a precision: k3_trunk_make_plan's input. */
k3_status k3_weights_measure(k3_trunk_sizes *out, const k3_ckpt *ckpt, k3_trunk trunk, k3_error *err);

/* What the matrices of a layer (-1: embedding and head) of a model that is not packed become at a precision. */
enum { K3_MAX_PARTS = 32 }; /* matrices of a layer; a packed one counts twice, with its scales */
typedef struct k3_weights_type {
    const k3_tensor_info *tensor;
    k3_type type;
} k3_weights_type;
k3_status k3_weights_types(k3_weights_type out[K3_MAX_PARTS], int *n, const k3_ckpt *ckpt, k3_trunk trunk, int layer, k3_error *err);

/* Bytes the whole trunk takes in memory at a precision, embedding and head included; and the least that the CPU computes it in. */
uint64_t k3_weights_bytes(const k3_ckpt *ckpt, k3_trunk trunk);
uint64_t k3_trunk_least_bytes(const k3_ckpt *ckpt, k3_trunk trunk);

typedef struct k3_weights_config {
    k3_trunk trunk;
    uint64_t trunk_bytes;      /* of memory for it, at least k3_trunk_least_bytes; 0, or a device: all of it stays */
    const k3_trunk_plan *plan; /* what stays of it; NULL: what k3_trunk_make_plan says of trunk_bytes */
    k3_io_meter *meter;        /* of what comes when it is wanted, or NULL */
    int threads;
    k3_progress progress; /* or NULL */
    void *user;
} k3_weights_config;

/* Reads the trunk and converts it: matrices to the trunk's precision, vectors to f32. The embedding (a lookup), the router, the decay and
 * write-strength projections stay BF16 at every precision: they are small and what follows amplifies their noise (specification 3.3).
 * At int4 the latent-cache projections stay int8. MXFP4 experts are not touched here. What does not stay in memory comes when it is wanted,
 * with the same bits. */
k3_status k3_weights_load(k3_weights **out, const k3_ckpt *ckpt, k3_backend *be, const k3_weights_config *config, k3_error *err);
void k3_weights_free(k3_weights *weights);

#endif
