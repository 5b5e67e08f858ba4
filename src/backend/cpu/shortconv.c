#include "backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* y[t,c] = silu(sum_j w[c,j] u[t-width+1+j, c])
 * u, y [n, C] f32, not the same place; w [C, width]; window [width-1, C] holds the inputs before row 0, oldest first, and takes the last
 * width-1 inputs. The last tap meets the current row. Sums run in double. */
void k3_shortconv_scalar(float *y, const float *u, const float *w, float *window, int n, int C, int width, int first, int last)
{
    for (int c = first; c < last; c++) {
        float past[K3_MAX_CONV];
        for (int j = 0; j < width - 1; j++)
            past[j] = window[(int64_t)j * C + c];
        for (int64_t t = 0; t < n; t++) {
            past[width - 1] = u[t * C + c];
            double sum = 0;
            for (int j = 0; j < width; j++)
                sum += (double)w[(int64_t)c * width + j] * past[j];
            y[t * C + c] = (float)(sum / (1 + exp(-sum)));
            memmove(past, past + 1, (size_t)(width - 1) * sizeof *past);
        }
        for (int j = 0; j < width - 1; j++)
            window[(int64_t)j * C + c] = past[j];
    }
}

/* Items are blocks of channels of each run. */
enum { CHANNELS_AN_ITEM = 256 };

typedef struct shortconv_args {
    const k3_cpu *cpu;
    float *y;
    const float *u, *w;
    const k3_run *runs;
    int C, width, blocks;
} shortconv_args;

static void shortconv_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const shortconv_args *a = arg;
    for (int64_t i = first; i < last; i++) {
        const k3_run *run = &a->runs[i / a->blocks];
        int c0 = (int)(i % a->blocks) * CHANNELS_AN_ITEM, c1 = c0 + CHANNELS_AN_ITEM < a->C ? c0 + CHANNELS_AN_ITEM : a->C;
        int64_t at = (int64_t)run->row * a->C;
        a->cpu->k.shortconv(a->y + at, a->u + at, a->w, k3_host(run->state), run->n, a->C, a->width, c0, c1);
    }
}

void k3_cpu_shortconv(k3_backend *be, k3_ref y, k3_ref u, k3_ref w, const k3_run *runs, int n_runs, int C, int width)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    if (width < 1 || width > K3_MAX_CONV) {
        k3_cpu_fail(cpu, K3_E_UNSUPPORTED, "shortconv: width %d, 1 to %d wanted", width, K3_MAX_CONV);
        return;
    }
    shortconv_args a = {cpu, k3_host(y), k3_host(u), k3_host(w), runs, C, width, (C + CHANNELS_AN_ITEM - 1) / CHANNELS_AN_ITEM};
    int64_t rows = 0;
    for (int i = 0; i < n_runs; i++)
        rows += runs[i].n;
    int64_t items = (int64_t)n_runs * a.blocks;
    k3_pool_run(cpu->pool, shortconv_task, &a, items, k3_cpu_grain(items ? rows * C * width / items : 1));
    k3_cpu_end(cpu, K3_OP_SHORTCONV, t0, 0);
}
