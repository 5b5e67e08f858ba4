#include "backend/cpu/cpu.h"

#include <math.h>

/* y = scale x / sqrt(sum_d x[d]^2 + eps) for each of the T * H vectors [D]; y may be x. The sum runs in double.
 * eps joins the SUM: on the mean it would differ by a factor D, visible for small vectors only. */
void k3_l2norm_scalar(float *y, const float *x, int D, float eps, float scale, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        double square = 0;
        for (int d = 0; d < D; d++)
            square += (double)x[i * D + d] * x[i * D + d];
        float factor = (float)((double)scale / sqrt(square + (double)eps));
        for (int d = 0; d < D; d++)
            y[i * D + d] = x[i * D + d] * factor;
    }
}

typedef struct l2norm_args {
    const k3_cpu *cpu;
    float *y;
    const float *x;
    int D;
    float eps, scale;
} l2norm_args;

static void l2norm_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const l2norm_args *a = arg;
    a->cpu->k.l2norm(a->y, a->x, a->D, a->eps, a->scale, first, last);
}

void k3_cpu_l2norm(k3_backend *be, k3_ref y, k3_ref x, int T, int H, int D, float eps, float scale)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    l2norm_args a = {cpu, k3_host(y), k3_host(x), D, eps, scale};
    k3_pool_run(cpu->pool, l2norm_task, &a, (int64_t)T * H, k3_cpu_grain(D));
    k3_cpu_end(cpu, K3_OP_L2NORM, t0, 0);
}
