/* THE contract between the forward pass and whatever computes it. One structure of operations and memory calls; the CPU runs an
 * operation at once, a GPU records it. Operations return nothing: a backend keeps its first failure and sync() reports it.
 *
 * Shapes: T rows (tokens, possibly of several sequences), C channels, H heads, D head dim, E experts, K experts a token, L latent width,
 * I inner width. Activations are f32, row-major, contiguous unless a stride is given; ids are i32. Outputs come first. An output may be the
 * same place as an input only where said. On one backend a row's result never depends on what the other rows of the call hold or on the
 * number of threads. With same_bits_for_any_split it does not depend on the split into calls either; without, a call of one row and a call
 * of many may round differently, since they are different kernels. */
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

/* The routed experts of one layer as T rows with K choices each want them. */
typedef struct k3_moe {
    int T, K, E, L, I; /* E entries in the tables */
    float b1, b2;
    k3_ref ids;                      /* i32 [T, K], as router_topk gave them */
    const int32_t *host_ids;         /* the same on the host; NULL: they never came back, and `table` is there */
    const k3_expert *const *experts; /* [E]; NULL entries: not on this backend */
    k3_ref table;                    /* optional, k3_expert_address [E] (backend/args/moe.h) in device memory: every expert is resident */
} k3_moe;

/* One seeded draw (sample/sampler.c has the order of the filters). */
typedef struct k3_draw {
    float temperature, top_p, min_p;
    int top_k;
    double u; /* 0 <= u < 1 */
} k3_draw;

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

    /* slots[t,k] = W2 situ(W1 z[t], W3 z[t]) of expert ids[t,k]; z [T, L], slots [T, K, L]. A pair whose expert is NULL in the table is
     * left out and its slot is left alone: another backend computes it. Ids outside 0..E-1 are a failure. */
    void (*moe_experts)(k3_backend *be, k3_ref slots, k3_ref z, const k3_moe *moe);

    /* y[t] = sum_k weights[t,k] slots[t,k], in rank order k = 0..K-1, so that who computed a slot, and when, never changes a sum. */
    void (*moe_sum)(k3_backend *be, k3_ref y, k3_ref slots, k3_ref weights, int T, int K, int L);

    /* y = a + b, n values. y may be either. */
    void (*add)(k3_backend *be, k3_ref y, k3_ref a, k3_ref b, int64_t n);

    /* Optional (NULL: the caller downloads and uses sample/): ids[t] = the draw of draws[t] (host) from logits [T, V]; i32. -1 where the
     * logits have no distribution (NaN, +inf, all -inf). */
    void (*sample)(k3_backend *be, k3_ref ids, k3_ref logits, const k3_draw *draws, int T, int V);
} k3_ops;

typedef struct k3_memory_info {
    uint64_t used, budget; /* bytes; budget 0: unlimited */
    uint64_t total, free;  /* of the device, as far as it tells; 0 unknown */
    uint64_t largest;      /* one allocation, or one wrapped stretch of the host's; 0: any */
    int n_buffers, n_slabs;
} k3_memory_info;

typedef struct k3_op_stat {
    const char *name;
    uint64_t calls, dispatches, bytes, nanoseconds; /* bytes: weights read; nanoseconds: on the device, where it keeps time */
} k3_op_stat;

typedef struct k3_memory_ops {
    /* Zeroed memory aligned to 64 bytes (256 on a device); NULL and a kept failure if it does not fit the budget. */
    k3_buf *(*alloc)(k3_backend *be, uint64_t bytes, const char *what);
    /* Memory of weights: rows of row_bytes each. A device that limits one allocation makes it of pieces at row borders: only embed, matmul,
     * mla_attend (weights), upload, download and copy may be given such a buffer. The CPU lays them side by side, in huge pages. */
    k3_buf *(*alloc_rows)(k3_backend *be, uint64_t rows, uint64_t row_bytes, const char *what);
    /* A buffer over host pages that outlive it, without a copy where the device can, as a copy where it cannot. */
    k3_buf *(*wrap)(k3_backend *be, void *host, uint64_t bytes, const char *what);
    /* The same, and never a copy: NULL without a failure where the device does not take these pages, which are then not touched. */
    k3_buf *(*view)(k3_backend *be, void *host, uint64_t bytes);
    void (*release)(k3_backend *be, k3_buf *buf);
    void (*upload)(k3_backend *be, k3_ref dst, const void *src, uint64_t bytes); /* src may change after the call */
    void (*download)(k3_backend *be, void *dst, k3_ref src, uint64_t bytes);     /* waits for all recorded work */
    void (*copy)(k3_backend *be, k3_ref dst, k3_ref src, uint64_t bytes);
    /* Where the host may write `bytes` at dst itself: memory that it shares with the device, once nothing recorded uses it any more, which
     * is waited for. NULL where it has to upload. */
    void *(*host)(k3_backend *be, k3_ref dst, uint64_t bytes);
    void (*info)(k3_backend *be, k3_memory_info *info);
    void (*set_budget)(k3_backend *be, uint64_t bytes);
    void (*set_priority)(k3_backend *be, float priority); /* 0 to 1, of later allocations: which a full device drops first */
    /* Keeps what is allocated and wrapped now from being paged out, as its pages come to be used; NULL where the host's memory is not
     * computed from. *bytes: what there is, *locked: of which so much is kept. Returns errno of the first refusal, 0 if there is none. */
    int (*lock)(k3_backend *be, uint64_t *locked, uint64_t *bytes);
} k3_memory_ops;

struct k3_backend {
    const char *name; /* "cpu:avx512" */
    const k3_ops *ops;
    const k3_memory_ops *memory;
    /* Starts what is recorded without waiting for it. */
    void (*submit)(k3_backend *be);
    /* Waits for all recorded work and reports the first failure since the last sync. */
    k3_status (*sync)(k3_backend *be, k3_error *err);
    /* Fills at most `max` entries, returns how many there are. */
    int (*stats)(k3_backend *be, k3_op_stat *out, int max, int reset);
    /* One line about device and kernels. */
    const char *(*describe)(k3_backend *be);
    void (*close)(k3_backend *be);
    int same_bits_for_any_split; /* kda_recur is used for prefill too */
    int is_device;               /* it computes from memory of its own: experts are brought to it */
    const char *more_memory;     /* what to do for it to have more memory, as a clause; NULL: nothing */
    int shares_memory;           /* that memory is the host's: what is mapped can be wrapped where it lies */
};

typedef struct k3_backend_config {
    const char *name; /* "auto", "cpu", "cpu:avx2", "vulkan", "vulkan:1", "vulkan:NAME", ...; NULL is auto */
    int threads;      /* 0: the cores this process may use */
    int exact;        /* sums in double where the backend has them, in f32 on a device, no narrower products: the reference arithmetic */
    int timing;       /* a device times each operation, which costs a little */
    int self_test;    /* a device compares its kernels with the CPU before it is used */
    uint64_t vram;    /* budget of device memory in bytes; 0: what is free */
    const char *cache_dir;   /* where a device keeps compiled kernels between runs; NULL: nowhere */
    const char *kernels_dir; /* files <stem>.metal there replace Metal's kernels, also while it runs; NULL: nowhere */
    k3_progress progress;    /* told "compiling kernels" now and then, since a driver can take minutes; may be NULL */
    void *user;
} k3_backend_config;

/* Opens the backend that the name asks for; an unknown name lists those that exist. "auto" takes a GPU that is not software, else the CPU;
 * why there is no GPU is then left in `note` if that is not NULL. */
k3_status k3_backend_open(k3_backend **out, const k3_backend_config *config, char *note, size_t note_size, k3_error *err);

/* One line a device of every backend but the CPU. malloc'd, also when it fails (empty then): K3_E_NOT_FOUND says why there is none. */
k3_status k3_backend_devices(char **text, k3_error *err);

/* What a backend's name stands for: how it is opened, how its devices are listed; `needs` is what a build without it lacks. */
typedef struct k3_backend_entry {
    const char *name, *needs;
    k3_status (*open)(k3_backend **out, const char *device, const k3_backend_config *config, k3_error *err);
    k3_status (*list)(char **text, k3_error *err);
} k3_backend_entry;

/* Takes the place of the built-in entry of that name, before anything is opened: tests bring a Metal to machines that have none. */
void k3_backend_register(const k3_backend_entry *entry);

/* cpu/cpu.c. level: NULL or "" (best), "scalar", "avx2", "avx512", "neon". Of config, threads and exact count. */
k3_status k3_cpu_open(k3_backend **out, const char *level, const k3_backend_config *config, k3_error *err);

/* vulkan/open.c. device: NULL or "" (the best that is not software), a number from the list, or a part of a name; a software device must
 * be asked for in one of these ways ("vulkan:llvmpipe"). */
k3_status k3_vulkan_open(k3_backend **out, const char *device, const k3_backend_config *config, k3_error *err);
/* One line a device: number, name, kind, memory, driver. malloc'd. */
k3_status k3_vulkan_list(char **text, k3_error *err);

/* metal/metal.m. device: NULL or "" (the system's default), a number from the list, or a part of a name. */
k3_status k3_metal_open(k3_backend **out, const char *device, const k3_backend_config *config, k3_error *err);
/* One line a device: number, name, kind, memory. malloc'd. */
k3_status k3_metal_list(char **text, k3_error *err);

/* Bytes per second this machine reads from memory with `threads` threads (0: all), measured now; 0: there is no room to measure it. */
double k3_cpu_memory_rate(int threads);
/* The same again and again, out of one block that is there until the meter closes. NULL: there is no room. */
typedef struct k3_cpu_meter k3_cpu_meter;
k3_cpu_meter *k3_cpu_meter_open(int threads);
double k3_cpu_meter_read(k3_cpu_meter *meter);
void k3_cpu_meter_close(k3_cpu_meter *meter); /* NULL too */

/* Multiply-adds per second this machine makes with `threads` threads (0: all), measured now by instructions for the type; 0: it has none.
 */
typedef struct k3_cpu_peaks {
    double int8, bf16, f32;
} k3_cpu_peaks;
k3_cpu_peaks k3_cpu_peak(int threads);

#endif
