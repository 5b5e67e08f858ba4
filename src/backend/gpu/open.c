/* What every GPU's opening has in common: the table of operations, statistics, the self-test, the budget, the line about the device. */
#include "backend/gpu/driver.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char *const op_names[K3_GPU_N_OPS] = {
    "embed",      "attnres_mix", "rmsnorm",  "matmul",   "shortconv",   "l2norm",      "kda_gate", "kda_recur", "kda_chunk", "gate_rmsnorm",
    "mla_append", "mla_attend",  "gate_mul", "situ_glu", "router_topk", "moe_experts", "moe_sum",  "add",       "sample",    "copy",
};

int k3_gpu_name_has(const char *name, const char *part)
{
    size_t n = strlen(part);
    for (; *name; name++) {
        size_t i = 0;
        while (i < n && name[i] && tolower((unsigned char)name[i]) == tolower((unsigned char)part[i]))
            i++;
        if (i == n)
            return 1;
    }
    return 0;
}

const char *k3_gpu_op_now(const k3_gpu *gpu)
{
    return op_names[gpu->op];
}

static const k3_ops gpu_ops = {
    .embed = k3_gpu_embed,
    .attnres_mix = k3_gpu_attnres_mix,
    .rmsnorm = k3_gpu_rmsnorm,
    .matmul = k3_gpu_matmul,
    .shortconv = k3_gpu_shortconv,
    .l2norm = k3_gpu_l2norm,
    .kda_gate = k3_gpu_kda_gate,
    .kda_recur = k3_gpu_kda_recur,
    .kda_chunk = k3_gpu_kda_chunk,
    .gate_rmsnorm = k3_gpu_gate_rmsnorm,
    .mla_append = k3_gpu_mla_append,
    .mla_attend = k3_gpu_mla_attend,
    .gate_mul = k3_gpu_gate_mul,
    .situ_glu = k3_gpu_situ_glu,
    .router_topk = k3_gpu_router_topk,
    .moe_experts = k3_gpu_moe_experts,
    .moe_sum = k3_gpu_moe_sum,
    .add = k3_gpu_add,
    .sample = k3_gpu_sample,
};

static int gpu_stats(k3_backend *be, k3_op_stat *out, int max, int reset)
{
    k3_gpu *gpu = k3_gpu_of(be);
    for (int i = 0; i < K3_GPU_N_OPS; i++) {
        gpu->stats[i].name = op_names[i];
        if (i < max)
            out[i] = gpu->stats[i];
        if (reset)
            gpu->stats[i] = (k3_op_stat){.name = op_names[i]};
    }
    return K3_GPU_N_OPS;
}

static const char *gpu_describe(k3_backend *be)
{
    return k3_gpu_of(be)->line;
}

void k3_gpu_init(k3_gpu *gpu, const k3_gpu_driver *driver, const k3_backend_config *config, void (*close)(k3_backend *be))
{
    gpu->driver = driver;
    gpu->priority = 1;
    gpu->progress = config->progress;
    gpu->user = config->user;
    gpu->limits.exact = config->exact;
    gpu->base = (k3_backend){.name = gpu->name,
                             .ops = &gpu_ops,
                             .memory = &k3_gpu_memory_ops,
                             .submit = k3_gpu_submit,
                             .sync = k3_gpu_sync,
                             .stats = gpu_stats,
                             .describe = gpu_describe,
                             .close = close,
                             .is_device = 1};
}

k3_status k3_gpu_open(k3_gpu *gpu, const k3_backend_config *config, const char *kind, k3_error *err)
{
    if (!k3_gpu_open_recorder(gpu) || !k3_gpu_open_transfer(gpu))
        return k3_fail(err, gpu->failure.status, "%s", gpu->failure.text);
    if (config->self_test)
        K3_TRY(k3_gpu_selftest(gpu, err));
    uint64_t total, room = gpu->driver->free_bytes(gpu, &total);
    gpu->budget = config->vram && config->vram < room ? config->vram : room;
    snprintf(gpu->line, sizeof gpu->line, "%s (%s), %s%s%s, %.1f of %.1f GB free", gpu->name, kind,
             gpu->limits.exact    ? "f32 kernels (exact)"
             : gpu->limits.matrix ? "f32 and f16 matrix kernels"
             : gpu->limits.f16    ? "f32 and f16 kernels"
                                  : "f32 kernels",
             gpu->notice[0] ? "; " : "", gpu->notice, (double)room * 1e-9, (double)total * 1e-9);
    return K3_OK;
}

void k3_gpu_close(k3_gpu *gpu)
{
    gpu->completed = gpu->submitted = UINT64_MAX;
    gpu->batch = NULL;
    k3_gpu_close_pipelines(gpu);
    k3_gpu_close_memory(gpu);
}
