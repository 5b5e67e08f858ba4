#include "backend/cpu/cpu.h"

#include <math.h>

/* g[t,h,d] = lower sigma(exp(a_log[h]) (z[t,h,d] + dt_bias[h,d]));  alpha = exp(g);  beta[t,h] = sigma(b[t,h])
 * z, g, alpha [T, H, D] f32, b, beta [T, H], dt_bias [H, D]. g or alpha may be NULL; alpha may be z. Item i is vector (t, h) = (i / H, i %
 * H). a_log counts HEADS, although its stored length can equal D: indexed by channel it still runs and is wrong. A softplus form of g
 * belongs to an older model. Computed in double. */
void k3_kda_gate_scalar(float *alpha, float *g, float *beta, const float *z, const float *b, const float *a_log, const float *dt_bias,
                        int H, int D, float lower, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        int h = (int)(i % H);
        double rate = exp((double)a_log[h]);
        for (int d = 0; d < D; d++) {
            double v = (double)lower / (1 + exp(-rate * ((double)z[i * D + d] + dt_bias[(int64_t)h * D + d])));
            if (g)
                g[i * D + d] = (float)v;
            if (alpha)
                alpha[i * D + d] = (float)exp(v);
        }
        beta[i] = (float)(1 / (1 + exp(-(double)b[i])));
    }
}

typedef struct kda_gate_args {
    const k3_cpu *cpu;
    float *alpha, *g, *beta;
    const float *z, *b, *a_log, *dt_bias;
    int H, D;
    float lower;
} kda_gate_args;

static void kda_gate_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const kda_gate_args *a = arg;
    a->cpu->k.kda_gate(a->alpha, a->g, a->beta, a->z, a->b, a->a_log, a->dt_bias, a->H, a->D, a->lower, first, last);
}

void k3_cpu_kda_gate(k3_backend *be, k3_ref alpha, k3_ref g, k3_ref beta, k3_ref z, k3_ref b, k3_ref a_log, k3_ref dt_bias, int T, int H,
                     int D, float lower)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    kda_gate_args a = {
        cpu, k3_cpu_floats(alpha), k3_cpu_floats(g), k3_host(beta), k3_host(z), k3_host(b), k3_host(a_log), k3_host(dt_bias), H, D, lower};
    k3_pool_run(cpu->pool, kda_gate_task, &a, (int64_t)T * H, k3_cpu_grain((int64_t)D * 8));
    k3_cpu_end(cpu, K3_OP_KDA_GATE, t0, 0);
}
