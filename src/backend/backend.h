/* THE contract between the forward pass and whatever computes it. One structure of operations and memory calls; the CPU runs an
 * operation at once, a GPU records it. Operations return nothing: a backend keeps its first failure and sync() reports it.
 *
 * Shapes: T rows (tokens, possibly of several sequences), C channels, H heads, D head dim, E experts, K experts a token, L latent width,
 * I inner width. Activations are f32, row-major, contiguous unless a stride is given; ids are i32. Outputs come first. An output may be the
 * same place as an input only where said. On one backend a row's result never depends on which other rows are computed with it, on the
 * number of threads or on the split into calls. */
#ifndef K3_BACKEND_BACKEND_H
#define K3_BACKEND_BACKEND_H

#include "backend/tensor.h"
#include "base/error.h"

typedef struct k3_backend k3_backend;

/* Consecutive rows of one sequence: rows row .. row+n-1 are its positions pos .. pos+n-1. `state` is the sequence's state for the
 * operation at hand: window, recurrent state or cache. */
typedef struct k3_run {
    int row, n;
    int64_t pos;
    k3_ref state;
} k3_run;

/* One of several projections that share an input. y [T, w->rows]. */
typedef struct k3_proj {
    const k3_mat *w;
    k3_ref y;
} k3_proj;

/* One routed expert, all MXFP4: w1 (gate), w3 (up) [I, L], w2 (down) [L, I]. */
typedef struct k3_expert {
    k3_mat w1, w3, w2;
} k3_expert;

typedef struct k3_mla_dims {
    int heads, nope, rope, v, kv_lora;
    k3_type cache; /* K3_F32 or K3_BF16: storage of the cached latents */
} k3_mla_dims;

typedef struct k3_ops {
    /* y[t] = table[ids[t]], decoded to f32. Also the row gather: an f32 table of activations. Ids outside the table are a failure. */
    void (*embed)(k3_backend *be, k3_ref y, const k3_mat *table, k3_ref ids, int T);

    /* AttnRes (specification 3.3): score_j = (sum_c src_j[t,c] s[c]) / sqrt(mean_c src_j[t,c]^2 + eps); y = softmax_j(score) . src.
     * src: n_src <= 32 places, each [T, C]; the softmax runs over sources, the mixture uses the raw vectors. y may be the last source. */
    void (*attnres_mix)(k3_backend *be, k3_ref y, const k3_ref *src, int n_src, k3_ref s, int T, int C, float eps);

    /* y[t,c] = w[c] x[t,c] / sqrt(mean_c x[t,c]^2 + eps). y may be x. w f32. Row strides in floats. */
    void (*rmsnorm)(k3_backend *be, k3_ref y, k3_ref x, k3_ref w, int T, int C, int y_stride, int x_stride, float eps);

    /* y_i[t] = W_i x[t] for each of n projections of x [T, cols]. */
    void (*matmul)(k3_backend *be, const k3_proj *proj, int n_proj, k3_ref x, int T);

    /* y[t,c] = silu(sum_j w[c,j] u[t-width+1+j, c]); rows before the run's first come from its state [width-1, C] (oldest first), which
     * then takes the last width-1 inputs. y may not be u. w f32 [C, width], width <= 8. */
    void (*shortconv)(k3_backend *be, k3_ref y, k3_ref u, k3_ref w, const k3_run *runs, int n_runs, int C, int width);

    /* y = scale * x / sqrt(sum_d x^2 + eps) per head; x [T, H, D]. The epsilon is added to the SUM. y may be x. */
    void (*l2norm)(k3_backend *be, k3_ref y, k3_ref x, int T, int H, int D, float eps, float scale);

    /* g = lower * sigma(exp(a_log[h]) * (z + dt_bias)) [T, H, D], alpha = exp(g), beta = sigma(b) [T, H]. g or alpha may be absent; alpha
     * may be z. a_log is per HEAD (its stored tail is padding); dt_bias [H, D]. */
    void (*kda_gate)(k3_backend *be, k3_ref alpha, k3_ref g, k3_ref beta, k3_ref z, k3_ref b, k3_ref a_log, k3_ref dt_bias, int T, int H,
                     int D, float lower);

    /* The delta rule, row after row, on state S [H, D(k), D(v)] f32 (specification 3.4): S = diag(alpha) S; e = v - S^T k; S += beta k e^T;
     * o = S^T q. q, k, v, alpha, o [T, H, D]; beta [T, H]. o may be v. */
    void (*kda_recur)(k3_backend *be, k3_ref o, k3_ref q, k3_ref k, k3_ref v, k3_ref alpha, k3_ref beta, const k3_run *runs, int n_runs,
                      int H, int D);
    /* The same by chunks, from g = log(alpha). Equal up to rounding only, so a backend that wants equal bits for every split uses
     * kda_recur. */
    void (*kda_chunk)(k3_backend *be, k3_ref o, k3_ref q, k3_ref k, k3_ref v, k3_ref g, k3_ref beta, const k3_run *runs, int n_runs, int H,
                      int D);

    /* y[t,h,d] = w[d] o[t,h,d] / sqrt(mean_d o^2 + eps) * sigma(gate[t,h,d]). y may be o. */
    void (*gate_rmsnorm)(k3_backend *be, k3_ref y, k3_ref o, k3_ref w, k3_ref gate, int T, int H, int D, float eps);

    /* Cache rows at each run's positions: rmsnorm of ckv[t, 0..kv_lora-1] by w, then ckv[t, kv_lora..] raw. ckv [T, kv_lora + rope]; the
     * run's state is the cache [capacity, kv_lora + rope] of type dims->cache. */
    void (*mla_append)(k3_backend *be, k3_ref ckv, k3_ref w, const k3_run *runs, int n_runs, const k3_mla_dims *dims, float eps);

    /* Absorbed attention over the cache (specification 3.5), causal: the row at position p sees cache rows 0..p. q [T, H, nope + rope];
     * kv_b [H * (nope + v), kv_lora]; o [T, H, v]. scale is (nope + rope)^-1/2; nothing is rotated. */
    void (*mla_attend)(k3_backend *be, k3_ref o, k3_ref q, const k3_mat *kv_b, const k3_run *runs, int n_runs, const k3_mla_dims *dims,
                       float scale);

    /* y = x * sigma(gate), n values. y may be x or gate. */
    void (*gate_mul)(k3_backend *be, k3_ref y, k3_ref x, k3_ref gate, int64_t n);

    /* y = b1 tanh(g / b1) sigma(g) * b2 tanh(u / b2); b2 = INFINITY leaves u uncapped. y may be g or u. */
    void (*situ_glu)(k3_backend *be, k3_ref y, k3_ref g, k3_ref u, int64_t n, float b1, float b2);

    /* s = sigma(logits) [T, E]; picks the K largest s + bias, ties to the lower id, in that order; weights are the UNBIASED s, divided by
     * their sum + 1e-20 if renormalize, times scale. ids i32 [T, K], weights f32 [T, K]. */
    void (*router_topk)(k3_backend *be, k3_ref ids, k3_ref weights, k3_ref logits, k3_ref bias, int T, int E, int K, int renormalize,
                        float scale);

    /* y[t] = sum_k weights[t,k] * W2 situ(W1 z[t], W3 z[t]) for expert ids[t,k], summed in rank order k = 0..K-1. z, y [T, L].
     * experts: table by id; entries that no row asks for are not read. `ids` are host copies of what router_topk gave. */
    void (*moe_experts)(k3_backend *be, k3_ref y, k3_ref z, const int32_t *ids, k3_ref weights, const k3_expert *const *experts, int T,
                        int K, float b1, float b2);

    /* y = a + b, n values. y may be either. */
    void (*add)(k3_backend *be, k3_ref y, k3_ref a, k3_ref b, int64_t n);
} k3_ops;

typedef struct k3_memory_info {
    uint64_t used, budget; /* bytes; budget 0: unlimited */
    int n_buffers;
} k3_memory_info;

typedef struct k3_op_stat {
    const char *name;
    uint64_t calls, bytes, nanoseconds; /* bytes: weights read */
} k3_op_stat;

typedef struct k3_memory_ops {
    /* Zeroed memory aligned to 64 bytes; NULL and a kept failure if it does not fit the budget. */
    k3_buf *(*alloc)(k3_backend *be, uint64_t bytes, const char *what);
    /* A buffer over host pages that outlive it, without a copy where the device can. */
    k3_buf *(*wrap)(k3_backend *be, void *host, uint64_t bytes, const char *what);
    void (*release)(k3_backend *be, k3_buf *buf);
    void (*upload)(k3_backend *be, k3_ref dst, const void *src, uint64_t bytes);
    void (*download)(k3_backend *be, void *dst, k3_ref src, uint64_t bytes); /* implies sync */
    void (*copy)(k3_backend *be, k3_ref dst, k3_ref src, uint64_t bytes);
    void (*info)(k3_backend *be, k3_memory_info *info);
    void (*set_budget)(k3_backend *be, uint64_t bytes);
} k3_memory_ops;

struct k3_backend {
    const char *name; /* "cpu:avx512" */
    const k3_ops *ops;
    const k3_memory_ops *memory;
    /* Waits for all recorded work and reports the first failure since the last sync. */
    k3_status (*sync)(k3_backend *be, k3_error *err);
    /* Fills at most `max` entries, returns how many there are. */
    int (*stats)(k3_backend *be, k3_op_stat *out, int max, int reset);
    /* One line about device and kernels. */
    const char *(*describe)(k3_backend *be);
    void (*close)(k3_backend *be);
    int same_bits_for_any_split; /* kda_recur is used for prefill too */
};

typedef struct k3_backend_config {
    const char *name; /* "auto", "cpu", "cpu:avx2", ...; NULL is auto */
    int threads;      /* 0: the cores this process may use */
    int exact;        /* sums in double where the backend has them: the reference arithmetic */
} k3_backend_config;

/* Opens the backend that the name asks for; an unknown name lists what this build has. */
k3_status k3_backend_open(k3_backend **out, const k3_backend_config *config, k3_error *err);

/* cpu/cpu.c. level: NULL or "" (best), "scalar", "avx2", "avx512". Of config, threads and exact count. */
k3_status k3_cpu_open(k3_backend **out, const char *level, const k3_backend_config *config, k3_error *err);

/* Bytes per second this machine reads from memory with `threads` threads (0: all), measured now. */
double k3_cpu_memory_rate(int threads);

#endif
