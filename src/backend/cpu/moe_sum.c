#include "backend/cpu/cpu.h"

/* y[t] = sum_k weights[t,k] slots[t,k], k = 0..K-1 in that order
 * slots [T, K, L], weights [T, K], y [T, L] f32. The kernel is that of attnres_mix: a mixture of K rows. */

enum { SUM_COLUMNS = 512 };

typedef struct sum_args {
    const k3_cpu *cpu;
    float *y;
    const float *slots, *weights;
    int K, L;
} sum_args;

/* Item i is block i % blocks of the columns of row i / blocks. */
static void sum_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const sum_args *a = arg;
    int blocks = (a->L + SUM_COLUMNS - 1) / SUM_COLUMNS;
    for (int64_t i = first; i < last; i++) {
        int64_t t = i / blocks;
        int c0 = (int)(i % blocks) * SUM_COLUMNS, n = a->L - c0 < SUM_COLUMNS ? a->L - c0 : SUM_COLUMNS;
        a->cpu->k.mix_f32(a->y + t * a->L + c0, a->L, NULL, a->weights + t * a->K, a->K, a->slots + t * a->K * a->L + c0, a->L, 1, a->K, n);
    }
}

void k3_cpu_moe_sum(k3_backend *be, k3_ref y, k3_ref slots, k3_ref weights, int T, int K, int L)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    sum_args a = {cpu, k3_host(y), k3_host(slots), k3_host(weights), K, L};
    k3_pool_run(cpu->pool, sum_task, &a, T * (int64_t)((L + SUM_COLUMNS - 1) / SUM_COLUMNS), k3_cpu_grain((int64_t)K * SUM_COLUMNS));
    k3_cpu_end(cpu, K3_OP_MOE_SUM, t0, 0);
}
