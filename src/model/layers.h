/* The layer files' view of a pass: what the forward pass owns and each layer uses. Only src/model includes this. */
#ifndef K3_MODEL_LAYERS_H
#define K3_MODEL_LAYERS_H

#include "model/forward.h"

enum { K3_MAX_SOURCES = 32, K3_LOGIT_ROWS = 32 };

typedef struct k3_owned {
    k3_backend *be;
    k3_buf *buf;
} k3_owned;

struct k3_forward {
    const k3_weights *w;
    const k3_hparams *hp;
    k3_backend *be;
    const k3_ops *op;
    k3_experts *experts;
    k3_tier *tiers; /* [n_tiers]: who computes experts; the main backend is one of them */
    int n_tiers, i_main;
    k3_mla_dims mla_dims;
    uint64_t bytes; /* of scratch */
    int max_rows, max_spans;

    /* This pass. */
    int T;
    const k3_pass *pass;
    k3_run *runs; /* [max_spans], state filled by each layer */
    int n_runs;

    /* Scratch, each [max_rows, width]. */
    k3_ref ids;                    /* i32 */
    k3_ref x, n, tmp;              /* [hidden]: mixed input, its norm, a sub-layer's output */
    k3_ref stream[K3_MAX_SOURCES]; /* [hidden]: snapshots and the running sum */
    k3_ref q, k, v, g, z, o;       /* widest of the mixers' projections */
    k3_ref small;                  /* low-rank and per-head values */
    k3_ref gate, up;               /* dense and shared inner width */
    k3_ref router, top_w, mixed;   /* [E], [K], [L] */
    k3_ref expected_w;             /* [K]: weights of a layer that is expected, which nobody reads */
    k3_ref picked, logits;         /* [K3_LOGIT_ROWS, hidden], [K3_LOGIT_ROWS, vocab] */
    int32_t *host_ids;             /* [max_rows] */
    /* Scratch of each tier in its own memory: chosen ids [T, K] i32, those expected of the next layer [T, K] i32, then at k3_moe_latent_at
     * the latent rows [T, L]; and slots [T, K, L]. */
    k3_ref tier_in[K3_MAX_TIERS], tier_slots[K3_MAX_TIERS];
    void *stage; /* slots of one device on the host; NULL unless further devices compute experts */
    k3_owned *buffers;
    int n_buffers;
    k3_forward_stat stat;
};

/* Bytes from the chosen ids of T rows to the expected ones, and to their latent rows. */
static inline uint64_t k3_moe_expected_at(int T, int K)
{
    return 4 * (uint64_t)T * (uint64_t)K;
}

static inline uint64_t k3_moe_latent_at(int T, int K)
{
    return (2 * k3_moe_expected_at(T, K) + 255) / 256 * 256;
}

/* y = mixer(n) for the rows of the pass; n is the normed input [T, hidden], y [T, hidden] is not n. */
void k3_kda_forward(k3_forward *f, k3_ref y, k3_ref n, int layer);
void k3_mla_forward(k3_forward *f, k3_ref y, k3_ref n, int layer);
void k3_dense_forward(k3_forward *f, k3_ref y, k3_ref n, const k3_glu_weights *w);
/* The only layer that may need the host: the router's choice goes to the store, which may fail. */
k3_status k3_moe_forward(k3_forward *f, k3_ref y, k3_ref n, int layer, k3_error *err);

/* x = mix of the snapshots and the running sum. `stream` holds n_blocks snapshots, then P. */
static inline void k3_mix(k3_forward *f, k3_ref x, int n_blocks, k3_ref s)
{
    f->op->attnres_mix(f->be, x, f->stream, n_blocks + 1, s, f->T, f->hp->hidden, f->hp->rms_eps);
}

/* y = norm of x, over the hidden width. */
static inline void k3_norm(k3_forward *f, k3_ref y, k3_ref x, k3_ref w)
{
    int C = f->hp->hidden;
    f->op->rmsnorm(f->be, y, x, w, f->T, C, C, C, f->hp->rms_eps);
}

/* One projection y = W x of the pass's rows. */
static inline void k3_project(k3_forward *f, k3_ref y, const k3_mat *w, k3_ref x)
{
    f->op->matmul(f->be, &(k3_proj){w, y}, 1, x, f->T);
}

#endif
