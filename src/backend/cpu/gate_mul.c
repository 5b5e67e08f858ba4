#include "backend/cpu/cpu.h"

#include <math.h>

/* y = x sigma(gate), n values f32; y may be x or gate. Computed in double. */
void k3_gate_mul_scalar(float *y, const float *x, const float *gate, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)(x[i] / (1 + exp(-(double)gate[i])));
}

typedef struct gate_mul_args {
    const k3_cpu *cpu;
    float *y;
    const float *x, *gate;
} gate_mul_args;

static void gate_mul_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const gate_mul_args *a = arg;
    a->cpu->k.gate_mul(a->y + first, a->x + first, a->gate + first, last - first);
}

void k3_cpu_gate_mul(k3_backend *be, k3_ref y, k3_ref x, k3_ref gate, int64_t n)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    gate_mul_args a = {cpu, k3_host(y), k3_host(x), k3_host(gate)};
    k3_pool_run(cpu->pool, gate_mul_task, &a, n, k3_cpu_grain(4));
    k3_cpu_end(cpu, K3_OP_GATE_MUL, t0, 0);
}
