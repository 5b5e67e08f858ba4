/* Inside of the CPU backend: what the ops share. Each op's file holds its scalar kernel and the function that splits the op over the pool.
 */
#ifndef K3_BACKEND_CPU_CPU_H
#define K3_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/pool.h"

typedef enum k3_cpu_op {
    K3_OP_EMBED,
    K3_OP_ATTNRES_MIX,
    K3_OP_RMSNORM,
    K3_OP_MATMUL,
    K3_OP_SHORTCONV,
    K3_OP_L2NORM,
    K3_OP_KDA_GATE,
    K3_OP_KDA_RECUR,
    K3_OP_KDA_CHUNK,
    K3_OP_GATE_RMSNORM,
    K3_OP_MLA_APPEND,
    K3_OP_MLA_ATTEND,
    K3_OP_GATE_MUL,
    K3_OP_SITU_GLU,
    K3_OP_ROUTER_TOPK,
    K3_OP_MOE_EXPERTS,
    K3_OP_MOE_SUM,
    K3_OP_ADD,
    K3_N_OPS
} k3_cpu_op;

typedef struct k3_cpu_buf k3_cpu_buf;
typedef struct k3_cpu_slab k3_cpu_slab;

typedef struct k3_cpu {
    k3_backend base;
    char name[32], line[160];
    k3_cpu_kernels k;
    k3_pool *pool;
    int n_threads;
    k3_error failure; /* the first since the last sync; status K3_OK: none */
    k3_memory_info info;
    k3_cpu_buf *buffers;
    k3_cpu_slab *slab;   /* the newest; NULL: none */
    uint64_t slab_bytes; /* of all */
    void *scratch;       /* grows to the largest op seen, so a steady token path does not allocate */
    size_t scratch_bytes;
    k3_op_stat stats[K3_N_OPS];
} k3_cpu;

static inline k3_cpu *k3_cpu_of(k3_backend *be)
{
    return (k3_cpu *)be;
}

/* Keeps the first failure. */
void k3_cpu_fail(k3_cpu *cpu, k3_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Memory of one op call, aligned to 64 bytes, content arbitrary; valid until the next call. NULL and a kept failure if there is none. */
void *k3_cpu_scratch(k3_cpu *cpu, size_t bytes);
/* Time and bytes of one op call: `uint64_t t0 = k3_cpu_begin(); ... k3_cpu_end(cpu, op, t0, weight_bytes);` */
uint64_t k3_cpu_begin(void);
void k3_cpu_end(k3_cpu *cpu, k3_cpu_op op, uint64_t t0, uint64_t bytes);
/* Items a piece should have so that it is worth a thread, given the elements one item touches. */
int64_t k3_cpu_grain(int64_t elements);
/* A matrix as kernels see it. Returns 0 and keeps a failure, naming op and type, if no kernel takes it. */
int k3_cpu_mat_of(k3_cpu *cpu, k3_cpu_mat *out, const k3_mat *w, const char *op);
uint64_t k3_cpu_mat_bytes(const k3_mat *w);
/* The host's view, or NULL for an absent tensor. */
float *k3_cpu_floats(k3_ref ref);

/* Rows of x as 8-bit codes in memory of that many bytes, aligned to 64: n_orders of codes (0 to 2); and making them, on all threads. */
size_t k3_cpu_q8_bytes(int64_t rows, int cols, int n_orders);
k3_q8 k3_cpu_q8_at(void *memory, int64_t rows, int cols, int has_codes, int has_by_nibble);
void k3_cpu_quantize(k3_cpu *cpu, const k3_q8 *q, const float *x, int64_t rows);

static inline size_t k3_round64(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* What both recurrences get. Item i of their loops is head i % H of run i / H. */
typedef struct k3_kda_args {
    const k3_cpu *cpu;
    float *o;
    const float *q, *k, *v, *decay, *beta;
    const k3_run *runs;
    int H, D;
} k3_kda_args;
k3_kda_head k3_kda_head_of(const k3_kda_args *a, int64_t item);

/* The ops, one file each. */
void k3_cpu_embed(k3_backend *be, k3_ref y, const k3_mat *table, k3_ref ids, int T);
void k3_cpu_attnres_mix(k3_backend *be, k3_ref y, const k3_ref *src, int n_src, k3_ref s, int T, int C, float eps);
void k3_cpu_rmsnorm(k3_backend *be, k3_ref y, k3_ref x, k3_ref w, int T, int C, int y_stride, int x_stride, float eps);
void k3_cpu_matmul(k3_backend *be, const k3_proj *proj, int n_proj, k3_ref x, int T);
void k3_cpu_shortconv(k3_backend *be, k3_ref y, k3_ref u, k3_ref w, const k3_run *runs, int n_runs, int C, int width);
void k3_cpu_l2norm(k3_backend *be, k3_ref y, k3_ref x, int T, int H, int D, float eps, float scale);
void k3_cpu_kda_gate(k3_backend *be, k3_ref alpha, k3_ref g, k3_ref beta, k3_ref z, k3_ref b, k3_ref a_log, k3_ref dt_bias, int T, int H,
                     int D, float lower);
void k3_cpu_kda_recur(k3_backend *be, k3_ref o, k3_ref q, k3_ref k, k3_ref v, k3_ref alpha, k3_ref beta, const k3_run *runs, int n_runs,
                      int H, int D);
void k3_cpu_kda_chunk(k3_backend *be, k3_ref o, k3_ref q, k3_ref k, k3_ref v, k3_ref g, k3_ref beta, const k3_run *runs, int n_runs, int H,
                      int D);
void k3_cpu_gate_rmsnorm(k3_backend *be, k3_ref y, k3_ref o, k3_ref w, k3_ref gate, int T, int H, int D, float eps);
void k3_cpu_mla_append(k3_backend *be, k3_ref ckv, k3_ref w, const k3_run *runs, int n_runs, const k3_mla_dims *dims, float eps);
void k3_cpu_mla_attend(k3_backend *be, k3_ref o, k3_ref q, const k3_mat *kv_b, const k3_run *runs, int n_runs, const k3_mla_dims *dims,
                       float scale);
void k3_cpu_gate_mul(k3_backend *be, k3_ref y, k3_ref x, k3_ref gate, int64_t n);
void k3_cpu_situ_glu(k3_backend *be, k3_ref y, k3_ref g, k3_ref u, int64_t n, float b1, float b2);
void k3_cpu_router_topk(k3_backend *be, k3_ref ids, k3_ref weights, k3_ref logits, k3_ref bias, int T, int E, int K, int renormalize,
                        float scale);
void k3_cpu_moe_experts(k3_backend *be, k3_ref slots, k3_ref z, const k3_moe *moe);
void k3_cpu_moe_sum(k3_backend *be, k3_ref y, k3_ref slots, k3_ref weights, int T, int K, int L);
void k3_cpu_add(k3_backend *be, k3_ref y, k3_ref a, k3_ref b, int64_t n);

/* Zeroed pages of their own, huge ones where the system has them and they pay; munmap. NULL: there are none. */
void *k3_cpu_pages(uint64_t bytes);

#endif
