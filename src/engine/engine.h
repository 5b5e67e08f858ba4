/* What an engine and a session are made of. Only src/engine includes this. */
#ifndef K3_ENGINE_ENGINE_H
#define K3_ENGINE_ENGINE_H

#include "backend/backend.h"
#include "ckpt/ckpt.h"
#include "model/forward.h"
#include "store/experts.h"
#include "text/vocab.h"

enum { K3_MAX_SESSIONS_A_PASS = 64 };

typedef struct k3_job k3_job;

/* The pass in the making, kept between calls so that a token allocates nothing. `want` lists rows whose logits are kept; logits go to one
 * block and are handed out afterwards. */
typedef struct k3_packing {
    k3_job *jobs;  /* [max_jobs] */
    int32_t *ids;  /* [max_ids] */
    int32_t *want; /* [max_want] */
    float *rows;   /* [max_rows, hidden] */
    float *logits; /* [max_logits, vocab] */
    size_t max_jobs, max_ids, max_want, max_rows, max_logits;
    int n_rows, n_spans, n_want, injects;
    k3_span spans[K3_MAX_SESSIONS_A_PASS];
    k3_job *span_jobs[K3_MAX_SESSIONS_A_PASS];
} k3_packing;

struct k3_engine {
    k3_ckpt *ckpt;
    const k3_hparams *hp;
    k3_vocab *vocab; /* NULL without tiktoken.model */
    k3_backend *be;
    k3_weights *weights;
    k3_experts *experts;
    k3_forward *forward;
    k3_packing packing;
    k3_type cache_type;
    int chunk_rows;
    uint64_t fingerprint; /* of the dimensions and the arithmetic: a saved session fits an equal one only */
    k3_info info;
    char plan[512];
    k3_progress progress;
    void *user;
};

typedef struct k3_mark {
    int64_t length;
    k3_buf *fixed; /* copy of the KDA state there; the MLA cache only grows, so its prefix still stands */
    float *logits; /* [vocab], or NULL if there were none: what follows can be sampled again without computing anything */
} k3_mark;

struct k3_session {
    k3_engine *engine;
    k3_state *state;
    int32_t *ids; /* [state->length]; -1 for injected rows */
    int64_t ids_capacity;
    float *logits; /* [vocab] of the last token */
    int has_logits;
    k3_mark *marks;
    int n_marks, max_marks;
};

void k3_packing_free(k3_packing *packing);

#endif
