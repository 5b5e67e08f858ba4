/* Draws on the device: see glsl/sample.glsl for how, sample/sampler.c for what. */
#include "backend/args/sample.h"

#include "backend/gpu/gpu.h"

#include <math.h>
#include <string.h>

enum { ROWS_AT_ONCE = 64, MAX_V = 1 << 22 }; /* 2048 workgroups of a row, whose numbers one workgroup sums */

/* Temperatures up to this are greedy, as the host's sampler has it. */
static const double greedy_temperature = 1e-6;
static const double log2_e = 1.4426950408889634;
/* Beyond this many halvings a weight is less than half of its unit of 2^-40. */
static const double halvings = 41;

/* A distance between logits in units (args/sample.h). That of -inf is at least 2^61. */
static uint64_t distance(double x, int shift)
{
    double units = ldexp(x, 32 + (shift < 0 ? shift : 0));
    return units < 0x1p61 ? (uint64_t)units : ((uint64_t)1 << 61) - 1;
}

static struct k3_sample_draw draw_args(const k3_draw *d, int V)
{
    struct k3_sample_draw args = {.greedy = 1};
    double temperature = (double)d->temperature, top_p = (double)d->top_p, min_p = (double)d->min_p;
    int shift;
    if (temperature <= greedy_temperature || d->top_k == 1 || top_p <= 0)
        return args;
    double part = frexp(log2_e / temperature, &shift);
    args.greedy = 0;
    args.u = (uint64_t)(d->u * 0x1p64);
    if (top_p < 1)
        args.top_p = top_p < 0x1p-64 ? 1 : (uint64_t)(top_p * 0x1p64);
    args.cut = distance(halvings / log2_e * temperature, shift);
    args.min_p = min_p > 0 ? distance(-log(min_p) * temperature, shift) : UINT64_MAX;
    args.scale = (uint32_t)fmin(part * 0x1p32 + 0.5, 0x1p32 - 1);
    args.shift = shift;
    args.top_k = d->top_k > 0 && d->top_k < V ? (uint32_t)d->top_k : 0;
    return args;
}

/* Which searches some row needs. */
typedef struct searches {
    int top_k, top_p, draw;
} searches;

typedef struct sampling {
    k3_gpu *gpu;
    k3_ref scratch, ids, logits;
    uint64_t scratch_bytes;
    uint32_t T;
    struct k3_sample_args args;
} sampling;

static void step(sampling *s, k3_gpu_shader shader, uint32_t groups)
{
    k3_gpu_write(s->gpu, s->scratch, s->scratch_bytes);
    k3_gpu_read(s->gpu, s->logits, 4 * (uint64_t)s->T * s->args.V);
    k3_gpu_write(s->gpu, s->ids, 4 * (uint64_t)s->T);
    k3_gpu_dispatch(s->gpu, shader, NULL, 0, &s->args, sizeof s->args, groups, s->T, 1);
}

/* The two digits of a search that follow the first, which all searches share. */
static void search(sampling *s, uint32_t which)
{
    for (uint32_t digit = 1; digit <= 2; digit++) {
        s->args.step++;
        s->args.search = which;
        s->args.digit = digit;
        step(s, K3_GPU_SHADER_sample_count, s->args.groups);
        s->args.finish = digit == 2 ? which : K3_SAMPLE_NONE;
    }
}

static void pick(sampling *s, const searches *wanted)
{
    uint32_t groups = s->args.groups;
    step(s, K3_GPU_SHADER_sample_max, groups);
    if (wanted->draw)
        step(s, K3_GPU_SHADER_sample_count, groups);
    if (wanted->top_k)
        search(s, K3_SAMPLE_TOP_K);
    if (wanted->top_p)
        search(s, K3_SAMPLE_TOP_P);
    if (wanted->draw) {
        search(s, K3_SAMPLE_DRAW);
        s->args.step++;
    }
    s->args.search = K3_SAMPLE_NONE;
    step(s, K3_GPU_SHADER_sample_ties, groups);
    step(s, K3_GPU_SHADER_sample_pick, 1);
}

/* Up to ROWS_AT_ONCE rows. */
static void sample_rows(k3_gpu *gpu, k3_ref ids, k3_ref logits, const k3_draw *draws, int T, int V)
{
    struct k3_sample_draw table[ROWS_AT_ONCE];
    searches wanted = {0, 0, 0};
    for (int t = 0; t < T; t++) {
        table[t] = draw_args(&draws[t], V);
        wanted.draw |= !table[t].greedy;
        wanted.top_k |= table[t].top_k != 0;
        wanted.top_p |= table[t].top_p != 0;
    }
    uint64_t groups = k3_gpu_groups((uint64_t)V, K3_SAMPLE_GROUP), rows = (uint64_t)T, per_part = 4 * rows * groups;
    uint64_t states = rows * K3_SAMPLE_STEPS * sizeof(struct k3_sample_state), bins = K3_SAMPLE_STEPS * (K3_SAMPLE_BINS + 1) * 16;
    sampling s = {.gpu = gpu, .ids = ids, .logits = logits, .T = (uint32_t)T, .scratch_bytes = rows * bins + states + 2 * per_part};
    s.scratch = k3_gpu_scratch(gpu, s.scratch_bytes);
    s.args =
        (struct k3_sample_args){.draws = k3_gpu_put(gpu, table, (size_t)T * sizeof table[0]), .V = (uint32_t)V, .groups = (uint32_t)groups};
    s.args.histograms = k3_gpu_write(gpu, s.scratch, s.scratch_bytes);
    s.args.states = s.args.histograms + rows * bins;
    s.args.maxima = s.args.states + states;
    s.args.ties = s.args.maxima + per_part;
    s.args.ids = k3_gpu_write(gpu, ids, 4 * rows);
    s.args.logits = k3_gpu_read(gpu, logits, 4 * rows * (uint64_t)V);
    pick(&s, &wanted);
}

void k3_gpu_sample(k3_backend *be, k3_ref ids, k3_ref logits, const k3_draw *draws, int T, int V)
{
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_SAMPLE);
    if (V < 1 || V > MAX_V)
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "sample: %d logits a row, 1 to %d wanted", V, (int)MAX_V);
    for (int first = 0; first < T && !k3_gpu_failed(gpu); first += ROWS_AT_ONCE) {
        int n = T - first < ROWS_AT_ONCE ? T - first : ROWS_AT_ONCE;
        uint64_t row = (uint64_t)first;
        sample_rows(gpu, k3_at(ids, 4 * row), k3_at(logits, 4 * row * (uint64_t)V), draws + first, n, V);
    }
    k3_gpu_end(gpu, 0);
}
