/* The inside of the Vulkan backend: what the operations' files use. An operation is
 *
 *     void k3_vulkan_add(k3_backend *be, k3_ref y, k3_ref a, k3_ref b, int64_t n)
 *     {
 *         k3_vk *vk = k3_vk_begin(be, K3_VK_ADD);
 *         struct k3_add_args args = {k3_vk_write(vk, y, 4 * n), k3_vk_read(vk, a, 4 * n), k3_vk_read(vk, b, 4 * n), n};
 *         k3_vk_dispatch(vk, K3_VK_SHADER_add, NULL, 0, &args, sizeof args, groups, 1, 1);
 *         k3_vk_end(vk, 0);
 *     }
 *
 * Kernels see 64-bit addresses only: there are no descriptor sets, so no binding has a size limit. Validation cannot see hazards through
 * addresses; therefore every range that a dispatch reads or writes is declared, and the recorder places a barrier exactly where a range
 * meets an earlier one of which either is written. A range outside its buffer is a kept failure, and the dispatch is left out. */
#ifndef K3_BACKEND_VULKAN_VULKAN_H
#define K3_BACKEND_VULKAN_VULKAN_H

#include "backend/args/types.h"
#include "backend/backend.h"
#include "backend/vulkan/shaders.h" /* made at build time: K3_VK_SHADER_<file stem>, one for each glsl/<stem>.comp */

typedef struct k3_vk k3_vk;

typedef enum k3_vk_op {
    K3_VK_EMBED,
    K3_VK_ATTNRES_MIX,
    K3_VK_RMSNORM,
    K3_VK_MATMUL,
    K3_VK_SHORTCONV,
    K3_VK_L2NORM,
    K3_VK_KDA_GATE,
    K3_VK_KDA_RECUR,
    K3_VK_KDA_CHUNK,
    K3_VK_GATE_RMSNORM,
    K3_VK_MLA_APPEND,
    K3_VK_MLA_ATTEND,
    K3_VK_GATE_MUL,
    K3_VK_SITU_GLU,
    K3_VK_ROUTER_TOPK,
    K3_VK_MOE_EXPERTS,
    K3_VK_MOE_SUM,
    K3_VK_ADD,
    K3_VK_SAMPLE,
    K3_VK_COPY,
    K3_VK_N_OPS
} k3_vk_op;

/* What the kernels may count on; fixed when the device is opened. */
typedef struct k3_vk_limits {
    uint32_t subgroup;            /* lanes of a subgroup as kernels are compiled for, if the device lets us choose; else its default */
    uint32_t shared_bytes;        /* of one workgroup: 32 KiB at least wanted */
    uint32_t groups_x, groups_yz; /* of one dispatch */
    uint32_t invocations;         /* of one workgroup */
    uint32_t cores;               /* multiprocessors or a guess: how many workgroups make a full device */
    int matrix_f16;               /* 16x16x16 f16 cooperative matrices with f32 sums, subgroup scope; 0 in exact mode */
    int f16;                      /* shaderFloat16 */
    int exact;
} k3_vk_limits;

const k3_vk_limits *k3_vk_limits_of(const k3_vk *vk);

k3_vk *k3_vk_begin(k3_backend *be, k3_vk_op op);
/* weight_bytes: what the operation reads of weights, for the statistics. */
void k3_vk_end(k3_vk *vk, uint64_t weight_bytes);

/* Keeps the first failure; once there is one, dispatches are left out until sync. */
void k3_vk_fail(k3_vk *vk, k3_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
int k3_vk_failed(const k3_vk *vk);

/* The address of ref, after declaring that the NEXT dispatch reads or writes `bytes` from there. 0 for no tensor. A buffer made of pieces
 * must hold the range in one piece; k3_vk_mat cuts matrices. */
uint64_t k3_vk_read(k3_vk *vk, k3_ref ref, uint64_t bytes);
uint64_t k3_vk_write(k3_vk *vk, k3_ref ref, uint64_t bytes); /* also for read and write */

/* Cuts rows first .. first+n-1 of a matrix into parts that lie in one piece each and declares them as read. Returns the number of parts
 * (usually 1), at most max; rows of the parts are consecutive. A failure is kept, and 0 returned, for a type outside K3_N_TYPES, columns
 * that are no multiple of the granule, scales that are missing. `op` is named in it. */
int k3_vk_mat(k3_vk *vk, struct k3_mat_args *out, int max, const k3_mat *mat, int first, int n, const char *op);
enum { K3_VK_MAX_PARTS = 64 };
uint64_t k3_vk_mat_bytes(const k3_mat *mat);

/* The runs as a table (k3_run_args); `state_bytes(run)` bytes of each state are declared as written (write != 0) or read. */
uint64_t k3_vk_runs(k3_vk *vk, const k3_run *runs, int n_runs, uint64_t state_bytes, int write);

/* Copies a table to where the next dispatches can read it; valid until the command buffer they are in has run. Address 16-aligned. */
uint64_t k3_vk_put(k3_vk *vk, const void *data, size_t bytes);
/* The same for a table that is made in place: where to write it, and its address; NULL after a failure. */
void *k3_vk_table(k3_vk *vk, size_t bytes, uint64_t *address);

/* Device memory of this operation, reused by the next one: scratch is one buffer, and places in it are given by offset. Call once an
 * operation, before any dispatch that uses it; then k3_vk_read / k3_vk_write on places in it. A failure is kept and {0} returned. */
k3_ref k3_vk_scratch(k3_vk *vk, uint64_t bytes);

/* Where kernels report a bad index found on the device: a word that sync() checks; address of a uint32_t, written with any of the codes. */
const char *k3_vk_op_name(k3_vk_op op);
uint64_t k3_vk_fault(const k3_vk *vk);
enum { K3_VK_FAULT_EMBED_ID = 1, K3_VK_FAULT_EXPERT_ID = 2, K3_VK_FAULT_ROUTER_NAN = 3 };

/* Records one dispatch of groups gx x gy x gz. spec: values of the specialization constants 0 .. n_spec-1 (constant 0 may be the local
 * size x). args are pushed, at most 128 bytes. A pipeline is compiled the first time it is wanted. Groups beyond the device's limits are a
 * kept failure, so wide problems loop in the kernel or use y. */
void k3_vk_dispatch(k3_vk *vk, k3_vk_shader shader, const uint32_t *spec, int n_spec, const void *args, size_t args_bytes, uint64_t gx,
                    uint32_t gy, uint32_t gz);
/* The same for a shader that needs its subgroups full and of limits->subgroup lanes (cooperative matrices). */
void k3_vk_dispatch_full(k3_vk *vk, k3_vk_shader shader, const uint32_t *spec, int n_spec, const void *args, size_t args_bytes, uint64_t gx,
                         uint32_t gy, uint32_t gz);
/* Floating-point operations of the next dispatch beyond what its bytes suggest: submissions are cut by estimated time. */
void k3_vk_work(k3_vk *vk, double flops);

static inline uint64_t k3_vk_groups(uint64_t n, uint32_t a_group)
{
    return (n + a_group - 1) / a_group;
}

/* The operations, each in its own file. */
void k3_vulkan_embed(k3_backend *be, k3_ref y, const k3_mat *table, k3_ref ids, int T);
void k3_vulkan_attnres_mix(k3_backend *be, k3_ref y, const k3_ref *src, int n_src, k3_ref s, int T, int C, float eps);
void k3_vulkan_rmsnorm(k3_backend *be, k3_ref y, k3_ref x, k3_ref w, int T, int C, int y_stride, int x_stride, float eps);
void k3_vulkan_matmul(k3_backend *be, const k3_proj *proj, int n_proj, k3_ref x, int T);
void k3_vulkan_shortconv(k3_backend *be, k3_ref y, k3_ref u, k3_ref w, const k3_run *runs, int n_runs, int C, int width);
void k3_vulkan_l2norm(k3_backend *be, k3_ref y, k3_ref x, int T, int H, int D, float eps, float scale);
void k3_vulkan_kda_gate(k3_backend *be, k3_ref alpha, k3_ref g, k3_ref beta, k3_ref z, k3_ref b, k3_ref a_log, k3_ref dt_bias, int T, int H,
                        int D, float lower);
void k3_vulkan_kda_recur(k3_backend *be, k3_ref o, k3_ref q, k3_ref k, k3_ref v, k3_ref alpha, k3_ref beta, const k3_run *runs, int n_runs,
                         int H, int D);
void k3_vulkan_kda_chunk(k3_backend *be, k3_ref o, k3_ref q, k3_ref k, k3_ref v, k3_ref g, k3_ref beta, const k3_run *runs, int n_runs,
                         int H, int D);
void k3_vulkan_gate_rmsnorm(k3_backend *be, k3_ref y, k3_ref o, k3_ref w, k3_ref gate, int T, int H, int D, float eps);
void k3_vulkan_mla_append(k3_backend *be, k3_ref ckv, k3_ref w, const k3_run *runs, int n_runs, const k3_mla_dims *dims, float eps);
void k3_vulkan_mla_attend(k3_backend *be, k3_ref o, k3_ref q, const k3_mat *kv_b, const k3_run *runs, int n_runs, const k3_mla_dims *dims,
                          float scale);
void k3_vulkan_gate_mul(k3_backend *be, k3_ref y, k3_ref x, k3_ref gate, int64_t n);
void k3_vulkan_situ_glu(k3_backend *be, k3_ref y, k3_ref g, k3_ref u, int64_t n, float b1, float b2);
void k3_vulkan_router_topk(k3_backend *be, k3_ref ids, k3_ref weights, k3_ref logits, k3_ref bias, int T, int E, int K, int renormalize,
                           float scale);
void k3_vulkan_moe_experts(k3_backend *be, k3_ref slots, k3_ref z, const k3_moe *moe);
void k3_vulkan_moe_sum(k3_backend *be, k3_ref y, k3_ref slots, k3_ref weights, int T, int K, int L);
void k3_vulkan_add(k3_backend *be, k3_ref y, k3_ref a, k3_ref b, int64_t n);
void k3_vulkan_sample(k3_backend *be, k3_ref ids, k3_ref logits, const k3_draw *draws, int T, int V);

#endif
