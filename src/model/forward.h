/* The forward pass, once, for every backend: rows of one or several sequences through all layers (specification 3.2). */
#ifndef K3_MODEL_FORWARD_H
#define K3_MODEL_FORWARD_H

#include "model/state.h"
#include "model/weights.h"
#include "store/experts.h"

#include <stdatomic.h>

/* Rows first .. first+n-1 of a pass, appended to one sequence. */
typedef struct k3_span {
    k3_state *state;
    int first, n;
} k3_span;

typedef struct k3_pass {
    const int32_t *ids; /* [n_rows]; negative: the row comes from `rows` */
    const float *rows;  /* [n_rows, hidden], or NULL; read only where ids is negative */
    int n_rows;
    const k3_span *spans;
    int n_spans;
    const int32_t *want; /* rows whose logits are wanted, ascending */
    int n_want;
    float *logits;                  /* [n_want, vocab] */
    const k3_draw *draws;           /* NULL, or [n_want]: on a backend that draws, `picks` is filled and `logits` left alone */
    int32_t *picks;                 /* [n_want]; -1 where logits have no distribution */
    const atomic_int *is_cancelled; /* NULL, or looked at before each layer: nonzero ends the pass with K3_E_CANCELLED */
} k3_pass;

typedef struct k3_forward k3_forward;

/* Where the host's time in passes went, from their begin until their results were there. */
typedef struct k3_forward_stat {
    uint64_t passes, rows;
    uint64_t ns;          /* in all */
    uint64_t head_ns;     /* of it: final mix and norm, head and what comes of it, without waiting for the head to be read */
    uint64_t head_ops_ns; /* of it: operations that the backend timed */
} k3_forward_stat;

k3_status k3_forward_open(k3_forward **out, const k3_weights *weights, k3_experts *experts, k3_type cache_type, int max_rows, int max_spans,
                          k3_error *err);
void k3_forward_close(k3_forward *forward);
/* Bytes that it takes of the main backend's memory for passes of at most max_rows rows. */
uint64_t k3_forward_bytes(const k3_hparams *hp, int max_rows);

/* Runs a pass and lengthens the states. The caller has checked ids against the vocabulary and reserved the states. After an error the
 * contents of the states are undefined; their lengths are unchanged. */
k3_status k3_forward_run(k3_forward *forward, const k3_pass *pass, k3_error *err);
void k3_forward_stats(k3_forward *forward, k3_forward_stat *out, int reset);

#endif
