#include "backend/cpu/cpu.h"

#include <math.h>

/* y[t,c] = w[c] x[t,c] / sqrt(mean_c x[t,c]^2 + eps)
 * x [T, C] at x_stride, y [T, C] at y_stride, may be the same place; w [C] f32. The sum runs in double: C reaches 7168. */
void k3_rmsnorm_scalar(float *y, const float *x, const float *w, int C, int64_t y_stride, int64_t x_stride, float eps, int64_t first,
                       int64_t last)
{
    for (int64_t t = first; t < last; t++) {
        const float *from = x + t * x_stride;
        float *to = y + t * y_stride;
        double square = 0;
        for (int c = 0; c < C; c++)
            square += (double)from[c] * from[c];
        float inverse = (float)(1.0 / sqrt(square / C + (double)eps));
        for (int c = 0; c < C; c++)
            to[c] = from[c] * inverse * w[c];
    }
}

typedef struct rmsnorm_args {
    const k3_cpu *cpu;
    float *y;
    const float *x, *w;
    int C, y_stride, x_stride;
    float eps;
} rmsnorm_args;

static void rmsnorm_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const rmsnorm_args *a = arg;
    a->cpu->k.rmsnorm(a->y, a->x, a->w, a->C, a->y_stride, a->x_stride, a->eps, first, last);
}

void k3_cpu_rmsnorm(k3_backend *be, k3_ref y, k3_ref x, k3_ref w, int T, int C, int y_stride, int x_stride, float eps)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    rmsnorm_args a = {cpu, k3_host(y), k3_host(x), k3_host(w), C, y_stride, x_stride, eps};
    k3_pool_run(cpu->pool, rmsnorm_task, &a, T, k3_cpu_grain(C));
    k3_cpu_end(cpu, K3_OP_RMSNORM, t0, 0);
}
