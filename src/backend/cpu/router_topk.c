#include "backend/cpu/cpu.h"
#include "backend/cpu/router_list.h"

#include <math.h>

/* s = sigma(logits) [T, E]; ids [T, K] = the K largest s + bias in descending order, ties to the lower id; weights [T, K] are the UNBIASED
 * s, divided by their sum + 1e-20 if renormalize, times scale. s + bias is compared as the f32 sum of f32 values, which decides what a tie
 * is. The list is kept sorted while experts come in order of id: only a strictly larger score passes an earlier one, which is the tie rule.
 */
void k3_router_topk_scalar(int32_t *ids, float *weights, const float *logits, const float *bias, int E, int K, int renormalize, float scale,
                           int64_t first, int64_t last)
{
    for (int64_t t = first; t < last; t++) {
        const float *row = logits + t * E;
        k3_router_list list = {ids + t * K, weights + t * K, K, 0, 0};
        for (int e = 0; e < E; e++)
            k3_router_offer(&list, e, 1 / (1 + expf(-row[e])) + bias[e]);
        for (int k = 0; k < K; k++)
            list.scores[k] = 1 / (1 + expf(-row[list.ids[k]]));
        k3_router_finish(&list, renormalize, scale);
    }
}

typedef struct router_args {
    const k3_cpu *cpu;
    int32_t *ids;
    float *weights;
    const float *logits, *bias;
    int E, K, renormalize;
    float scale;
} router_args;

static void router_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const router_args *a = arg;
    a->cpu->k.router_topk(a->ids, a->weights, a->logits, a->bias, a->E, a->K, a->renormalize, a->scale, first, last);
}

void k3_cpu_router_topk(k3_backend *be, k3_ref ids, k3_ref weights, k3_ref logits, k3_ref bias, int T, int E, int K, int renormalize,
                        float scale)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    router_args a = {cpu, k3_host(ids), k3_host(weights), k3_host(logits), k3_host(bias), E, K, renormalize, scale};
    if (K < 1 || K > E) {
        k3_cpu_fail(cpu, K3_E_INVALID, "router_topk: %d of %d experts asked for", K, E);
        return;
    }
    k3_pool_run(cpu->pool, router_task, &a, T, k3_cpu_grain((int64_t)E * 8));
    for (int64_t t = 0; t < T; t++) {
        if (a.ids[t * K] >= 0)
            continue;
        k3_cpu_fail(cpu, K3_E_NUMERIC, "router_topk: the logits of row %lld hold a NaN; the weights or an earlier layer are damaged",
                    (long long)t);
        for (int i = 0; i < K; i++) /* ids stay inside the table, so that what follows is harmless until sync() reports */
            a.ids[t * K + i] = i;
    }
    k3_cpu_end(cpu, K3_OP_ROUTER_TOPK, t0, 0);
}
