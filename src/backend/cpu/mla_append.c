#include "backend/cpu/cpu.h"
#include "backend/cpu/decode.h"

/* cache[pos, c] = w[c] ckv[t,c] / sqrt(mean_c ckv[t,c]^2 + eps) for c < kv_lora;   cache[pos, c] = ckv[t, c] for the rope channels
 * ckv [T, kv_lora + rope] f32, w [kv_lora]; cache f32 or bf16 (rounded to nearest even). The mean is over kv_lora channels only; the others
 * are neither normed nor rotated. */

typedef struct append_args {
    const k3_cpu *cpu;
    const float *ckv, *w;
    const k3_run *runs;
    int n_runs;
    const k3_mla_dims *dims;
    float eps;
    float *scratch; /* [threads, kv_lora] */
} append_args;

static void put(void *cache, k3_type type, int64_t at, const float *from, int n)
{
    if (type == K3_F32) {
        memcpy((float *)cache + at, from, (size_t)n * sizeof *from);
        return;
    }
    for (int c = 0; c < n; c++)
        ((uint16_t *)cache)[at + c] = k3_bf16_of(from[c]);
}

/* Items are the rows of all runs, one run after the other. */
static void append_task(void *arg, int64_t first, int64_t last, int thread)
{
    const append_args *a = arg;
    int kv = a->dims->kv_lora, rope = a->dims->rope, width = kv + rope;
    float *normed = a->scratch + (int64_t)thread * kv;
    int64_t item = 0;
    for (int i = 0; i < a->n_runs; item += a->runs[i++].n)
        for (int64_t r = first > item ? first - item : 0; r < a->runs[i].n && item + r < last; r++) {
            const float *from = a->ckv + (a->runs[i].row + r) * width;
            int64_t at = (a->runs[i].pos + r) * width;
            a->cpu->k.rmsnorm(normed, from, a->w, kv, kv, width, a->eps, 0, 1);
            put(k3_host(a->runs[i].state), a->dims->cache, at, normed, kv);
            put(k3_host(a->runs[i].state), a->dims->cache, at + kv, from + kv, rope);
        }
}

void k3_cpu_mla_append(k3_backend *be, k3_ref ckv, k3_ref w, const k3_run *runs, int n_runs, const k3_mla_dims *dims, float eps)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    if (dims->cache != K3_F32 && dims->cache != K3_BF16) {
        k3_cpu_fail(cpu, K3_E_UNSUPPORTED, "mla_append: a cache of %s, f32 or bf16 wanted", k3_type_name(dims->cache));
        return;
    }
    float *scratch = k3_cpu_scratch(cpu, (size_t)cpu->n_threads * (size_t)dims->kv_lora * sizeof *scratch);
    if (!scratch)
        return;
    append_args a = {cpu, k3_host(ckv), k3_host(w), runs, n_runs, dims, eps, scratch};
    int64_t rows = 0;
    for (int i = 0; i < n_runs; i++)
        rows += runs[i].n;
    k3_pool_run(cpu->pool, append_task, &a, rows, k3_cpu_grain((int64_t)(dims->kv_lora + dims->rope) * 2));
    k3_cpu_end(cpu, K3_OP_MLA_APPEND, t0, 0);
}
