#include "backend/cpu/cpu.h"

#include <math.h>

/* y = b1 tanh(g / b1) sigma(g) * b2 tanh(u / b2), n values f32; b2 = INFINITY leaves u as it is. y may be g or u. Computed in double.
 * The gate branch is capped AND passed through the sigmoid of the uncapped g; this is not SwiGLU with a clamp. */
void k3_situ_glu_scalar(float *y, const float *g, const float *u, int64_t n, float b1, float b2)
{
    for (int64_t i = 0; i < n; i++) {
        double gate = (double)b1 * tanh((double)g[i] / (double)b1) / (1 + exp(-(double)g[i]));
        double up = isinf(b2) ? (double)u[i] : (double)b2 * tanh((double)u[i] / (double)b2);
        y[i] = (float)(gate * up);
    }
}

typedef struct situ_glu_args {
    const k3_cpu *cpu;
    float *y;
    const float *g, *u;
    float b1, b2;
} situ_glu_args;

static void situ_glu_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const situ_glu_args *a = arg;
    a->cpu->k.situ_glu(a->y + first, a->g + first, a->u + first, last - first, a->b1, a->b2);
}

void k3_cpu_situ_glu(k3_backend *be, k3_ref y, k3_ref g, k3_ref u, int64_t n, float b1, float b2)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    situ_glu_args a = {cpu, k3_host(y), k3_host(g), k3_host(u), b1, b2};
    k3_pool_run(cpu->pool, situ_glu_task, &a, n, k3_cpu_grain(8));
    k3_cpu_end(cpu, K3_OP_SITU_GLU, t0, 0);
}
