#include "backend/cpu/cpu.h"

#include <math.h>

/* score_j = (sum_c src_j[t,c] s[c]) / sqrt(mean_c src_j[t,c]^2 + eps);  w = softmax_j(score);  y[t,c] = sum_j w_j src_j[t,c]
 * src: n_src times [T, C] f32; s [C]; y [T, C], may be the last source. Sums run in double: C reaches 7168 and scores lie close together.
 * The mixture takes the raw vectors; mixing the normalised ones would look right for unit-norm sources and be wrong. */
void k3_attnres_mix_scalar(float *y, const float *const *src, int n_src, const float *s, int C, float eps, int64_t first, int64_t last)
{
    for (int64_t t = first; t < last; t++) {
        double w[K3_MAX_SOURCES], largest = -INFINITY, total = 0;
        for (int j = 0; j < n_src; j++) {
            const float *x = src[j] + t * C;
            double dot = 0, square = 0;
            for (int c = 0; c < C; c++) {
                dot += (double)x[c] * s[c];
                square += (double)x[c] * x[c];
            }
            w[j] = dot / sqrt(square / C + (double)eps);
            largest = fmax(largest, w[j]);
        }
        for (int j = 0; j < n_src; j++)
            total += w[j] = exp(w[j] - largest);
        for (int c = 0; c < C; c++) {
            double sum = 0;
            for (int j = 0; j < n_src; j++)
                sum += w[j] / total * src[j][t * C + c];
            y[t * C + c] = (float)sum;
        }
    }
}

typedef struct attnres_args {
    const k3_cpu *cpu;
    float *y;
    const float *src[K3_MAX_SOURCES];
    int n_src;
    const float *s;
    int C;
    float eps;
} attnres_args;

static void attnres_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const attnres_args *a = arg;
    a->cpu->k.attnres_mix(a->y, a->src, a->n_src, a->s, a->C, a->eps, first, last);
}

void k3_cpu_attnres_mix(k3_backend *be, k3_ref y, const k3_ref *src, int n_src, k3_ref s, int T, int C, float eps)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    if (n_src < 1 || n_src > K3_MAX_SOURCES) {
        k3_cpu_fail(cpu, K3_E_UNSUPPORTED, "attnres_mix: %d sources, 1 to %d wanted", n_src, K3_MAX_SOURCES);
        return;
    }
    attnres_args a = {.cpu = cpu, .y = k3_host(y), .n_src = n_src, .s = k3_host(s), .C = C, .eps = eps};
    for (int j = 0; j < n_src; j++)
        a.src[j] = k3_host(src[j]);
    k3_pool_run(cpu->pool, attnres_task, &a, T, k3_cpu_grain((int64_t)C * n_src));
    k3_cpu_end(cpu, K3_OP_ATTNRES_MIX, t0, 0);
}
