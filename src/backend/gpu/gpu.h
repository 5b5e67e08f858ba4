/* The inside of the GPU backends: what the operations' files use. An operation is
 *
 *     void k3_gpu_add(k3_backend *be, k3_ref y, k3_ref a, k3_ref b, int64_t n)
 *     {
 *         k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_ADD);
 *         struct k3_add_args args = {k3_gpu_write(gpu, y, 4 * n), k3_gpu_read(gpu, a, 4 * n), k3_gpu_read(gpu, b, 4 * n), n};
 *         k3_gpu_dispatch(gpu, K3_GPU_SHADER_add, NULL, 0, &args, sizeof args, groups, 1, 1);
 *         k3_gpu_end(gpu, 0);
 *     }
 *
 * Kernels see 64-bit addresses only: there are no descriptor sets, so no binding has a size limit. Validation cannot see hazards through
 * addresses; therefore every range that a dispatch reads or writes is declared, and the recorder places a barrier exactly where a range
 * meets an earlier one of which either is written. A range outside its buffer is a kept failure, and the dispatch is left out. */
#ifndef K3_BACKEND_GPU_GPU_H
#define K3_BACKEND_GPU_GPU_H

#include "backend/args/types.h"
#include "backend/backend.h"
#include "backend/gpu/shaders.h" /* made at build time: K3_GPU_SHADER_<file stem>, one for each glsl/<stem>.comp */

typedef struct k3_gpu k3_gpu;

typedef enum k3_gpu_op {
    K3_GPU_EMBED,
    K3_GPU_ATTNRES_MIX,
    K3_GPU_RMSNORM,
    K3_GPU_MATMUL,
    K3_GPU_SHORTCONV,
    K3_GPU_L2NORM,
    K3_GPU_KDA_GATE,
    K3_GPU_KDA_RECUR,
    K3_GPU_KDA_CHUNK,
    K3_GPU_GATE_RMSNORM,
    K3_GPU_MLA_APPEND,
    K3_GPU_MLA_ATTEND,
    K3_GPU_GATE_MUL,
    K3_GPU_SITU_GLU,
    K3_GPU_ROUTER_TOPK,
    K3_GPU_MOE_EXPERTS,
    K3_GPU_MOE_SUM,
    K3_GPU_ADD,
    K3_GPU_SAMPLE,
    K3_GPU_COPY,
    K3_GPU_N_OPS
} k3_gpu_op;

/* What the kernels may count on; fixed when the device is opened. */
typedef struct k3_gpu_limits {
    uint32_t subgroup;            /* lanes of a subgroup as kernels are compiled for, if the device lets us choose; else its default */
    uint32_t shared_bytes;        /* of one workgroup: 32 KiB at least wanted */
    uint32_t groups_x, groups_yz; /* of one dispatch */
    uint32_t invocations;         /* of one workgroup */
    uint32_t cores;               /* multiprocessors or a guess: how many workgroups make a full device */
    uint32_t matrix;              /* bit of a k3_gpu_op: it has a kernel on f16 matrix units, with f32 sums; 0 in exact mode */
    int small_tiles;              /* matmul_matrix makes 64 rows of W by at most 64 of x at once, not up to 192 by 128 */
    int f16;                      /* f16 arithmetic; 0 in exact mode */
    int exact;
} k3_gpu_limits;

const k3_gpu_limits *k3_gpu_limits_of(const k3_gpu *gpu);

static inline int k3_gpu_has_matrix(const k3_gpu_limits *limits, k3_gpu_op op)
{
    return (limits->matrix >> op & 1) != 0;
}

k3_gpu *k3_gpu_begin(k3_backend *be, k3_gpu_op op);
const char *k3_gpu_op_now(const k3_gpu *gpu); /* the name of the operation that has begun */
/* weight_bytes: what the operation reads of weights, for the statistics. */
void k3_gpu_end(k3_gpu *gpu, uint64_t weight_bytes);

/* Keeps the first failure; once there is one, dispatches are left out until sync. */
void k3_gpu_fail(k3_gpu *gpu, k3_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
int k3_gpu_failed(const k3_gpu *gpu);

/* The address of ref, after declaring that the NEXT dispatch reads or writes `bytes` from there. 0 for no tensor. A buffer made of pieces
 * must hold the range in one piece; k3_gpu_mat cuts matrices. */
uint64_t k3_gpu_read(k3_gpu *gpu, k3_ref ref, uint64_t bytes);
uint64_t k3_gpu_write(k3_gpu *gpu, k3_ref ref, uint64_t bytes); /* also for read and write */

/* Cuts rows first .. first+n-1 of a matrix into parts that lie in one piece each and declares them as read. Returns the number of parts
 * (usually 1), at most max; rows of the parts are consecutive. A failure is kept, and 0 returned, for a type outside K3_N_TYPES, columns
 * that are no multiple of the granule, scales that are missing. `op` is named in it. */
int k3_gpu_mat(k3_gpu *gpu, struct k3_mat_args *out, int max, const k3_mat *mat, int first, int n, const char *op);
enum { K3_GPU_MAX_PARTS = 64 };
uint64_t k3_gpu_mat_bytes(const k3_mat *mat);

/* The runs as a table (k3_run_args); `state_bytes(run)` bytes of each state are declared as written (write != 0) or read. */
uint64_t k3_gpu_runs(k3_gpu *gpu, const k3_run *runs, int n_runs, uint64_t state_bytes, int write);

/* Copies a table to where the next dispatches can read it; valid until the command buffer they are in has run. Address 16-aligned. */
uint64_t k3_gpu_put(k3_gpu *gpu, const void *data, size_t bytes);
/* The same for a table that is made in place: where to write it, and its address; NULL after a failure. */
void *k3_gpu_table(k3_gpu *gpu, size_t bytes, uint64_t *address);

/* Device memory of this operation, reused by the next one: scratch is one buffer, and places in it are given by offset. Call once an
 * operation, before any dispatch that uses it; then k3_gpu_read / k3_gpu_write on places in it. A failure is kept and {0} returned. */
k3_ref k3_gpu_scratch(k3_gpu *gpu, uint64_t bytes);

/* Where kernels report a bad index found on the device: a word that sync() checks; address of a uint32_t, written with any of the codes. */
uint64_t k3_gpu_fault(const k3_gpu *gpu);
enum { K3_GPU_FAULT_EMBED_ID = 1, K3_GPU_FAULT_EXPERT_ID = 2, K3_GPU_FAULT_ROUTER_NAN = 3 };

/* Records one dispatch of groups gx x gy x gz. spec: values of the specialization constants 0 .. n_spec-1 (constant 0 may be the local
 * size x). args are pushed, at most 128 bytes. A pipeline is compiled the first time it is wanted. Groups beyond the device's limits are a
 * kept failure, so wide problems loop in the kernel or use y. */
void k3_gpu_dispatch(k3_gpu *gpu, k3_gpu_shader shader, const uint32_t *spec, int n_spec, const void *args, size_t args_bytes, uint64_t gx,
                     uint32_t gy, uint32_t gz);
/* The same for a shader that needs its subgroups full and of limits->subgroup lanes (cooperative matrices). */
void k3_gpu_dispatch_full(k3_gpu *gpu, k3_gpu_shader shader, const uint32_t *spec, int n_spec, const void *args, size_t args_bytes,
                          uint64_t gx, uint32_t gy, uint32_t gz);
/* Floating-point operations of the next dispatch beyond what its bytes suggest: submissions are cut by estimated time. */
void k3_gpu_work(k3_gpu *gpu, double flops);

static inline uint64_t k3_gpu_groups(uint64_t n, uint32_t a_group)
{
    return (n + a_group - 1) / a_group;
}

/* The operations, each in its own file. */
void k3_gpu_embed(k3_backend *be, k3_ref y, const k3_mat *table, k3_ref ids, int T);
void k3_gpu_attnres_mix(k3_backend *be, k3_ref y, const k3_ref *src, int n_src, k3_ref s, int T, int C, float eps);
void k3_gpu_rmsnorm(k3_backend *be, k3_ref y, k3_ref x, k3_ref w, int T, int C, int y_stride, int x_stride, float eps);
void k3_gpu_matmul(k3_backend *be, const k3_proj *proj, int n_proj, k3_ref x, int T);
void k3_gpu_shortconv(k3_backend *be, k3_ref y, k3_ref u, k3_ref w, const k3_run *runs, int n_runs, int C, int width);
void k3_gpu_l2norm(k3_backend *be, k3_ref y, k3_ref x, int T, int H, int D, float eps, float scale);
void k3_gpu_kda_gate(k3_backend *be, k3_ref alpha, k3_ref g, k3_ref beta, k3_ref z, k3_ref b, k3_ref a_log, k3_ref dt_bias, int T, int H,
                     int D, float lower);
void k3_gpu_kda_recur(k3_backend *be, k3_ref o, k3_ref q, k3_ref k, k3_ref v, k3_ref alpha, k3_ref beta, const k3_run *runs, int n_runs,
                      int H, int D);
void k3_gpu_kda_chunk(k3_backend *be, k3_ref o, k3_ref q, k3_ref k, k3_ref v, k3_ref g, k3_ref beta, const k3_run *runs, int n_runs, int H,
                      int D);
void k3_gpu_gate_rmsnorm(k3_backend *be, k3_ref y, k3_ref o, k3_ref w, k3_ref gate, int T, int H, int D, float eps);
void k3_gpu_mla_append(k3_backend *be, k3_ref ckv, k3_ref w, const k3_run *runs, int n_runs, const k3_mla_dims *dims, float eps);
void k3_gpu_mla_attend(k3_backend *be, k3_ref o, k3_ref q, const k3_mat *kv_b, const k3_run *runs, int n_runs, const k3_mla_dims *dims,
                       float scale);
void k3_gpu_gate_mul(k3_backend *be, k3_ref y, k3_ref x, k3_ref gate, int64_t n);
void k3_gpu_situ_glu(k3_backend *be, k3_ref y, k3_ref g, k3_ref u, int64_t n, float b1, float b2);
void k3_gpu_router_topk(k3_backend *be, k3_ref ids, k3_ref weights, k3_ref logits, k3_ref bias, int T, int E, int K, int renormalize,
                        float scale);
void k3_gpu_moe_experts(k3_backend *be, k3_ref slots, k3_ref z, const k3_moe *moe);
void k3_gpu_moe_sum(k3_backend *be, k3_ref y, k3_ref slots, k3_ref weights, int T, int K, int L);
void k3_gpu_add(k3_backend *be, k3_ref y, k3_ref a, k3_ref b, int64_t n);
void k3_gpu_sample(k3_backend *be, k3_ref ids, k3_ref logits, const k3_draw *draws, int T, int V);

#endif
