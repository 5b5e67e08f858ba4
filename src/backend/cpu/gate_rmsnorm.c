#include "backend/cpu/cpu.h"

#include <math.h>

/* y[t,h,d] = w[d] o[t,h,d] / sqrt(mean_d o[t,h,d]^2 + eps) * sigma(gate[t,h,d])
 * o, gate, y [T, H, D] f32, y may be o; w [D] is shared by the heads. Item i is vector (t, h). The sum runs in double. */
void k3_gate_rmsnorm_scalar(float *y, const float *o, const float *w, const float *gate, int D, float eps, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        double square = 0;
        for (int d = 0; d < D; d++)
            square += (double)o[i * D + d] * o[i * D + d];
        double inverse = 1 / sqrt(square / D + (double)eps);
        for (int d = 0; d < D; d++)
            y[i * D + d] = (float)((double)w[d] * o[i * D + d] * inverse / (1 + exp(-(double)gate[i * D + d])));
    }
}

typedef struct gate_rmsnorm_args {
    const k3_cpu *cpu;
    float *y;
    const float *o, *w, *gate;
    int D;
    float eps;
} gate_rmsnorm_args;

static void gate_rmsnorm_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const gate_rmsnorm_args *a = arg;
    a->cpu->k.gate_rmsnorm(a->y, a->o, a->w, a->gate, a->D, a->eps, first, last);
}

void k3_cpu_gate_rmsnorm(k3_backend *be, k3_ref y, k3_ref o, k3_ref w, k3_ref gate, int T, int H, int D, float eps)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    gate_rmsnorm_args a = {cpu, k3_host(y), k3_host(o), k3_host(w), k3_host(gate), D, eps};
    k3_pool_run(cpu->pool, gate_rmsnorm_task, &a, (int64_t)T * H, k3_cpu_grain((int64_t)D * 4));
    k3_cpu_end(cpu, K3_OP_GATE_RMSNORM, t0, 0);
}
