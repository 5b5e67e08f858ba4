#include "backend/cpu/cpu.h"

/* y = a + b, n values f32; y may be either. */
void k3_add_scalar(float *y, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

typedef struct add_args {
    const k3_cpu *cpu;
    float *y;
    const float *a, *b;
} add_args;

static void add_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const add_args *a = arg;
    a->cpu->k.add(a->y + first, a->a + first, a->b + first, last - first);
}

void k3_cpu_add(k3_backend *be, k3_ref y, k3_ref a, k3_ref b, int64_t n)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    add_args args = {cpu, k3_host(y), k3_host(a), k3_host(b)};
    k3_pool_run(cpu->pool, add_task, &args, n, k3_cpu_grain(1));
    k3_cpu_end(cpu, K3_OP_ADD, t0, 0);
}
