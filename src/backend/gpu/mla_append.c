#include "backend/gpu/mla.h"

int k3_gpu_mla_cache(k3_gpu *gpu, const k3_mla_dims *dims, const char *op)
{
    if (dims->cache != K3_F32 && dims->cache != K3_BF16)
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "%s: a cache of %s, f32 or bf16 wanted", op, k3_type_name(dims->cache));
    return !k3_gpu_failed(gpu);
}

struct k3_mla_runs k3_gpu_mla_runs(k3_gpu *gpu, const k3_run *runs, const uint64_t *caches, int n_runs, int row, int heads, int tile_pairs)
{
    struct k3_mla_run table[K3_MLA_RUNS];
    uint32_t first = 0;
    for (int i = 0; i < n_runs; i++) {
        table[i] = (struct k3_mla_run){caches[i], (uint32_t)runs[i].pos, (uint32_t)(runs[i].row - row), (uint32_t)runs[i].n, first};
        first += (uint32_t)k3_gpu_groups((uint64_t)runs[i].n * (uint64_t)heads, (uint32_t)tile_pairs);
    }
    return (struct k3_mla_runs){n_runs > 1 ? k3_gpu_put(gpu, table, (size_t)n_runs * sizeof table[0]) : 0, table[0], (uint32_t)n_runs, 0};
}

/* Rows of at most K3_MLA_RUNS runs. */
static void append(k3_gpu *gpu, k3_ref ckv, k3_ref w, const k3_run *runs, int n_runs, const k3_mla_dims *dims, float eps)
{
    uint64_t width = (uint64_t)(dims->kv_lora + dims->rope), row_bytes = width * (dims->cache == K3_F32 ? 4 : 2);
    uint64_t caches[K3_MLA_RUNS];
    uint32_t bf16 = dims->cache == K3_BF16, longest = 0;
    for (int i = 0; i < n_runs; i++) {
        uint64_t before = (uint64_t)runs[i].pos * row_bytes;
        caches[i] = k3_gpu_write(gpu, k3_at(runs[i].state, before), (uint64_t)runs[i].n * row_bytes) - before;
        k3_gpu_read(gpu, k3_at(ckv, 4 * width * (uint64_t)runs[i].row), 4 * width * (uint64_t)runs[i].n);
        longest = (uint32_t)runs[i].n > longest ? (uint32_t)runs[i].n : longest;
    }
    struct k3_mla_append_args args = {k3_gpu_read(gpu, ckv, 0),
                                      k3_gpu_read(gpu, w, 4 * (uint64_t)dims->kv_lora),
                                      k3_gpu_mla_runs(gpu, runs, caches, n_runs, 0, 1, 1),
                                      (uint32_t)dims->kv_lora,
                                      (uint32_t)dims->rope,
                                      eps,
                                      0};
    k3_gpu_dispatch(gpu, K3_GPU_SHADER_mla_append, &bf16, 1, &args, sizeof args, longest, (uint32_t)n_runs, 1);
}

void k3_gpu_mla_append(k3_backend *be, k3_ref ckv, k3_ref w, const k3_run *runs, int n_runs, const k3_mla_dims *dims, float eps)
{
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_MLA_APPEND);
    if (dims->cache == K3_BF16 && (dims->kv_lora + dims->rope) % 2)
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "mla_append: bf16 cache rows of %d channels, an even number wanted", dims->kv_lora + dims->rope);
    if (k3_gpu_mla_cache(gpu, dims, "mla_append"))
        for (int i = 0; i < n_runs; i += K3_MLA_RUNS)
            append(gpu, ckv, w, runs + i, n_runs - i < K3_MLA_RUNS ? n_runs - i : K3_MLA_RUNS, dims, eps);
    k3_gpu_end(gpu, 0);
}
