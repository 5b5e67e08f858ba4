#include "backend/cpu/cpu.h"
#include "backend/cpu/decode.h"

#include <math.h>

/* Absorbed attention, per row t at position p and head h, with Wk_h, Wv_h the rows of kv_b for head h ([nope, kv], then [v, kv]):
 *   query[t,h] = (Wk_h^T qn, qr)                [kv + rope]: the key half of kv_b moves into the query
 *   score_s    = scale * query . cache[s]       s = 0..p; cache rows [kv + rope]
 *   context    = sum_s softmax(score)_s cache[s, 0..kv-1]
 *   o[t,h]     = Wv_h context                   [v]
 * Cache rows are taken K3_ATTEND_ROWS at a time, counted from position 0, with a running maximum and sum. Spans of SPAN rows have sums of
 * their own, which meet in order of positions: one thread may sum all of them, or each another one. So the result does not depend on how
 * the rows of a sequence came in, nor on who computed them. The rope channels take part in the score and not in the context. Nothing is
 * rotated. */

/* y[i,c] = keep[i] y[i,c] + sum_s p[i,s] v[s,c] in double, rounded once. */
static void mix(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride, k3_type type, const void *v,
                int64_t v_stride, int rows, int n, int cols)
{
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < cols; c++) {
            double sum = keep ? (double)keep[i] * y[i * y_stride + c] : 0.0;
            for (int s = 0; s < n; s++) {
                size_t at = (size_t)(s * v_stride + c);
                float value = type == K3_F32 ? k3_load_f32(v, at) : type == K3_BF16 ? k3_load_bf16(v, at) : ((const signed char *)v)[at];
                sum += (double)p[i * p_stride + s] * value;
            }
            y[i * y_stride + c] = (float)sum;
        }
}

void k3_mix_f32_scalar(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride, const void *v, int64_t v_stride,
                       int rows, int n, int cols)
{
    mix(y, y_stride, keep, p, p_stride, K3_F32, v, v_stride, rows, n, cols);
}

void k3_mix_bf16_scalar(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride, const void *v, int64_t v_stride,
                        int rows, int n, int cols)
{
    mix(y, y_stride, keep, p, p_stride, K3_BF16, v, v_stride, rows, n, cols);
}

void k3_mix_int8_scalar(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride, const void *v, int64_t v_stride,
                        int rows, int n, int cols)
{
    mix(y, y_stride, keep, p, p_stride, K3_INT8, v, v_stride, rows, n, cols);
}

float k3_softmax_scalar(float *p, int n, float scale, float *max, double *sum)
{
    float largest = *max;
    for (int s = 0; s < n; s++) {
        p[s] *= scale;
        largest = fmaxf(largest, p[s]);
    }
    double total = 0;
    for (int s = 0; s < n; s++)
        total += p[s] = expf(p[s] - largest);
    float keep = expf(*max - largest);
    *sum = *sum * keep + total;
    *max = largest;
    return keep;
}

/* ---- the op ------------------------------------------------------------------------------------------- */

/* Rows that share one pass over the cache, and heads that share it, fewer where the cache is not packed; rows that share one decoding of
 * a head's part of kv_b; cache rows of a span, a multiple of what is taken at a time; bytes of the sums of spans that wait for others;
 * spans at once, a thread; heads of a row whose scores take as long as it takes to pack the cache. */
enum { AHEAD = 4, PACKING = 4, TILE = 16, GROUP = 24, UNPACKED_GROUP = 16, WEIGHT_TILE = 64, SPAN = 512, PARTS_BYTES = 32 << 20 };

/* Up to TILE consecutive rows of one run. */
typedef struct attend_tile {
    const k3_run *run;
    int first, n; /* rows of the run */
} attend_tile;

typedef struct attend_args {
    const k3_cpu *cpu;
    float *o;
    const float *q;
    k3_cpu_mat kv_b;
    const k3_mla_dims *dims;
    float scale;
    int T, tiles, group;
    int most_rows;               /* of a tile */
    int64_t spans, window, base; /* of the longest run; computed at once, one: all by one thread; the first of those */
    int is_paired;               /* kv_b is bf16 and multiplied so too */
    int is_packed;               /* the level multiplies pairs of bf16, and the cache is that */
    int query_stride, kv_stride; /* from one head to the next: elements of query, floats of context */
    const attend_tile *tile;
    float *query; /* [T, H, query_stride] f32 or, if packed, bf16 */
    /* Sums of all rows and heads: of all spans so far; behind them those of each span of a window, or of one item of each thread. */
    float *context;
    double *sum;
    float *max;
    size_t thread_bytes;
    char *of_thread; /* [threads, thread_bytes]: a head's decoded Wk and queries of a tile, or packed rows of the cache */
} attend_args;

/* Running softmax of rows and heads: what is not yet divided by the sum of weights. Head g of row t is element t * stride + g. */
typedef struct attend_sums {
    float *context; /* [.., kv_stride] */
    float *max;     /* -INFINITY at the start */
    double *sum;
    int64_t stride;
} attend_sums;

/* Row `row` of head h of kv_b: 0 is the first of W_k, nope the first of W_v. */
static k3_cpu_mat head_rows(const attend_args *a, int h, int row)
{
    k3_cpu_mat w = a->kv_b;
    size_t at = (size_t)h * (size_t)(a->dims->nope + a->dims->v) + (size_t)row;
    w.codes += at * w.row_bytes;
    w.scale += at * w.scale_bytes;
    return w;
}

/* Room for a head's decoded Wk, or for WEIGHT_TILE rows of qn. */
static size_t key_floats(const k3_mla_dims *d)
{
    return (size_t)d->nope * (size_t)(d->kv_lora > WEIGHT_TILE ? d->kv_lora : WEIGHT_TILE);
}

/* A head's Wk^T qn, Wk in int8, whose scales, one a row, go to qn: scaled [n, nope]. */
static void absorb_int8(const attend_args *a, float *y, int64_t y_stride, const float *q, int64_t q_stride, int n, const k3_cpu_mat *w,
                        float *scaled)
{
    int nope = a->dims->nope, kv = a->dims->kv_lora;
    for (int r = 0; r < nope; r++) {
        float scale = k3_load_f32(w->scale + (size_t)r * w->scale_bytes, 0);
        for (int t = 0; t < n; t++)
            scaled[(int64_t)t * nope + r] = q[t * q_stride + r] * scale;
    }
    a->cpu->k.mix_int8(y, y_stride, NULL, scaled, nope, w->codes, kv, n, nope, kv);
}

/* A head's Wk^T qn for n rows of q; y [n, kv]. Wk is decoded once where mix does not take it as it lies. */
static void absorb(const attend_args *a, float *y, int64_t y_stride, const float *q, int64_t q_stride, int n, int h, float *key)
{
    const k3_mla_dims *d = a->dims;
    int kv = d->kv_lora;
    k3_cpu_mat w = head_rows(a, h, 0);
    if (w.type == K3_BF16) {
        a->cpu->k.mix_bf16(y, y_stride, NULL, q, q_stride, w.codes, kv, n, d->nope, kv);
        return;
    }
    if (w.type == K3_INT8 && a->cpu->k.mix_int8) {
        absorb_int8(a, y, y_stride, q, q_stride, n, &w, key);
        return;
    }
    for (int r = 0; r < d->nope; r++)
        a->cpu->k.decode(key + (int64_t)r * kv, w.codes + (size_t)r * w.row_bytes, w.scale + (size_t)r * w.scale_bytes, w.type, kv);
    a->cpu->k.mix_f32(y, y_stride, NULL, q, q_stride, key, kv, n, d->nope, kv);
}

/* The same into queries of bf16, by pairs where they take the weights, else by way of `some` [n, kv]. */
static void absorb_rounded(const attend_args *a, uint16_t *y, int64_t y_stride, const float *q, int64_t q_stride, int n, int h, float *key)
{
    const k3_mla_dims *d = a->dims;
    int kv = d->kv_lora, width = kv + d->rope;
    if (a->is_paired) {
        const unsigned char *w = head_rows(a, h, 0).codes;
        a->cpu->k.attend_absorb(y, y_stride, q, q_stride, n, (const uint16_t *)(const void *)w, d->nope, kv, key);
    } else {
        float *some = key + key_floats(d);
        absorb(a, some, kv, q, q_stride, n, h, key);
        for (int t = 0; t < n; t++)
            a->cpu->k.attend_round(y + t * y_stride, some + (int64_t)t * kv, kv);
    }
    for (int t = 0; t < n; t++) {
        a->cpu->k.attend_round(y + t * y_stride + kv, q + t * q_stride + d->nope, d->rope);
        if (width % 2)
            y[t * y_stride + width] = 0;
    }
}

/* Item i is head i % H of rows i / H * WEIGHT_TILE ..: query = (Wk^T qn, qr). */
static void absorb_task(void *arg, int64_t first, int64_t last, int thread)
{
    const attend_args *a = arg;
    const k3_mla_dims *d = a->dims;
    int64_t q_stride = (int64_t)d->heads * (d->nope + d->rope), query_stride = (int64_t)d->heads * a->query_stride;
    float *key = (float *)(void *)(a->of_thread + (size_t)thread * a->thread_bytes);
    for (int64_t i = first; i < last; i++) {
        int h = (int)(i % d->heads), t0 = (int)(i / d->heads) * WEIGHT_TILE, n = a->T - t0 < WEIGHT_TILE ? a->T - t0 : WEIGHT_TILE;
        const float *q = a->q + t0 * q_stride + (int64_t)h * (d->nope + d->rope);
        int64_t at = t0 * query_stride + (int64_t)h * a->query_stride;
        if (a->is_packed) {
            absorb_rounded(a, (uint16_t *)(void *)a->query + at, query_stride, q, q_stride, n, h, key);
            continue;
        }
        absorb(a, a->query + at, query_stride, q, q_stride, n, h, key);
        for (int t = 0; t < n; t++)
            memcpy(a->query + at + t * query_stride + d->kv_lora, q + t * q_stride + d->nope, (size_t)d->rope * sizeof *q);
    }
}

/* Rows of the cache from `base` on. */
static const unsigned char *cache_at(const k3_run *run, const k3_mla_dims *d, int64_t base)
{
    return (const unsigned char *)k3_host(run->state) + (size_t)base * k3_type_row_bytes(d->cache, d->kv_lora + d->rope);
}

/* Row t of the tile meets n cache rows from `base` on, for n_heads heads from h0 on; `to` is of head h0. */
static void attend_rows(const attend_args *a, const attend_sums *to, const attend_tile *tile, int t, int h0, int n_heads, int64_t base,
                        int n)
{
    const k3_mla_dims *d = a->dims;
    int kv = d->kv_lora, width = kv + d->rope;
    int64_t row = tile->run->row + tile->first + t, at = t * to->stride;
    k3_cpu_mat cache = {.type = d->cache, .cols = width, .row_bytes = k3_type_row_bytes(d->cache, width)};
    cache.codes = cache.scale = cache_at(tile->run, d, base);
    float scores[UNPACKED_GROUP][K3_ATTEND_ROWS], keep[UNPACKED_GROUP], *y[UNPACKED_GROUP];
    const float *x[UNPACKED_GROUP];
    for (int g = 0; g < n_heads; g++) {
        x[g] = a->query + (row * d->heads + h0 + g) * a->query_stride;
        y[g] = scores[g];
    }
    a->cpu->k.matmul(y, x, n_heads, &cache, 0, n);
    for (int g = 0; g < n_heads; g++)
        keep[g] = a->cpu->k.softmax(scores[g], n, a->scale, &to->max[at + g], &to->sum[at + g]);
    k3_mix_fn *sum_rows = d->cache == K3_BF16 ? a->cpu->k.mix_bf16 : a->cpu->k.mix_f32;
    sum_rows(to->context + at * a->kv_stride, a->kv_stride, base % SPAN ? keep : NULL, scores[0], K3_ATTEND_ROWS, cache.codes, width,
             n_heads, n, kv);
}

/* The same with packed cache rows. */
static void attend_packed(const attend_args *a, const attend_sums *to, const attend_tile *tile, int t, int h0, int n_heads, int64_t base,
                          int n, const void *rows)
{
    const k3_mla_dims *d = a->dims;
    int64_t query = (tile->run->row + tile->first + t) * (int64_t)d->heads + h0, at = t * to->stride;
    k3_attend_row row = {to->context + at * a->kv_stride,
                         to->max + at,
                         to->sum + at,
                         (const uint16_t *)(const void *)a->query + query * a->query_stride,
                         rows,
                         n_heads,
                         n,
                         d->kv_lora,
                         d->kv_lora + d->rope,
                         base % SPAN == 0,
                         a->scale};
    a->cpu->k.attend_row(&row);
}

/* All rows of the tile, n_heads heads from h0 on: one pass over a span of the tile's cache. A row before the span has a sum of 0. */
static void attend_span(const attend_args *a, const attend_sums *to, const attend_tile *tile, int h0, int n_heads, int64_t span, void *rows)
{
    int64_t pos = tile->run->pos + tile->first, end = pos + tile->n, last = (span + 1) * SPAN < end ? (span + 1) * SPAN : end;
    int step = a->is_packed ? K3_ATTEND_TILE : K3_ATTEND_ROWS, width = a->dims->kv_lora + a->dims->rope;
    for (int t = 0; t < tile->n; t++)
        for (int g = 0; g < n_heads; g++) {
            to->max[t * to->stride + g] = -INFINITY;
            to->sum[t * to->stride + g] = 0;
        }
    for (int64_t base = span * SPAN; base < last; base += step) {
        if (a->is_packed)
            a->cpu->k.attend_pack(rows, (const uint16_t *)(const void *)cache_at(tile->run, a->dims, base),
                                  last - base < step ? (int)(last - base) : step, a->dims->kv_lora, width);
        for (int t = 0; t < tile->n; t++) {
            int64_t left = pos + t + 1 - base;
            int n = left < step ? (int)left : step;
            if (n > 0 && a->is_packed)
                attend_packed(a, to, tile, t, h0, n_heads, base, n, rows);
            else if (n > 0)
                attend_rows(a, to, tile, t, h0, n_heads, base, n);
        }
    }
}

/* Element i of `to` takes in element k of `from`, a later span, unless that has seen nothing. */
static void add_span(const attend_args *a, const attend_sums *to, int64_t i, const attend_sums *from, int64_t k)
{
    if (from->sum[k] == 0)
        return;
    float max = fmaxf(to->max[i], from->max[k]), keep = expf(to->max[i] - max), take = expf(from->max[k] - max);
    a->cpu->k.mix_f32(to->context + i * a->kv_stride, 0, &keep, &take, 0, from->context + k * a->kv_stride, 0, 1, 1, a->dims->kv_lora);
    to->sum[i] = to->sum[i] * (double)keep + from->sum[k] * (double)take;
    to->max[i] = max;
}

/* Sums number `set` of all rows and heads, from that of head h0 of row `row` on. */
static attend_sums sums_of(const attend_args *a, int64_t set, int64_t row, int h0)
{
    int64_t heads = a->dims->heads, at = (set * a->T + row) * heads + h0;
    return (attend_sums){a->context + at * a->kv_stride, a->max + at, a->sum + at, heads};
}

/* Sums of a thread alone, of one item. */
static attend_sums sums_of_thread(const attend_args *a, int thread)
{
    int64_t at = (int64_t)a->T * a->dims->heads + (int64_t)thread * a->most_rows * a->group;
    return (attend_sums){a->context + at * a->kv_stride, a->max + at, a->sum + at, a->group};
}

static int64_t n_groups(const attend_args *a)
{
    return (a->dims->heads + a->group - 1) / a->group;
}

/* Item i is head group i % groups of tile i / groups: all spans, one after another. */
static void attend_task(void *arg, int64_t first, int64_t last, int thread)
{
    const attend_args *a = arg;
    const k3_mla_dims *d = a->dims;
    int64_t groups = n_groups(a);
    void *rows = a->of_thread + (size_t)thread * a->thread_bytes;
    for (int64_t i = first; i < last; i++) {
        const attend_tile *tile = &a->tile[i / groups];
        int h0 = (int)(i % groups) * a->group, n_heads = d->heads - h0 < a->group ? d->heads - h0 : a->group;
        attend_sums all = sums_of(a, 0, tile->run->row + tile->first, h0), some = sums_of_thread(a, thread);
        attend_span(a, &all, tile, h0, n_heads, 0, rows);
        for (int64_t span = 1; span * SPAN < tile->run->pos + tile->first + tile->n; span++) {
            attend_span(a, &some, tile, h0, n_heads, span, rows);
            for (int t = 0; t < tile->n; t++)
                for (int g = 0; g < n_heads; g++)
                    add_span(a, &all, t * all.stride + g, &some, t * some.stride + g);
        }
    }
}

/* Item i is span base + i / (groups * tiles), of a head group and tile as above, with sums of its own: of span 0 the sums of all. */
static void attend_window_task(void *arg, int64_t first, int64_t last, int thread)
{
    const attend_args *a = arg;
    const k3_mla_dims *d = a->dims;
    int64_t groups = n_groups(a);
    for (int64_t i = first; i < last; i++) {
        const attend_tile *tile = &a->tile[i / groups % a->tiles];
        int64_t at = i / groups / a->tiles, span = a->base + at;
        int h0 = (int)(i % groups) * a->group, n_heads = d->heads - h0 < a->group ? d->heads - h0 : a->group;
        attend_sums to = sums_of(a, span ? 1 + at : 0, tile->run->row + tile->first, h0);
        attend_span(a, &to, tile, h0, n_heads, span, a->of_thread + (size_t)thread * a->thread_bytes);
    }
}

/* Item i is row and head i: the spans of a window, in order. */
static void add_window_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const attend_args *a = arg;
    attend_sums all = sums_of(a, 0, 0, 0);
    for (int64_t i = first; i < last; i++)
        for (int64_t at = a->base ? 0 : 1; at < a->window; at++) {
            attend_sums some = sums_of(a, 1 + at, 0, 0);
            add_span(a, &all, i, &some, i);
        }
}

/* Item i is head i % H of rows i / H * WEIGHT_TILE ..: o = Wv context / sum. */
static void value_task(void *arg, int64_t first, int64_t last, int thread)
{
    const attend_args *a = arg;
    const k3_mla_dims *d = a->dims;
    for (int64_t i = first; i < last; i++) {
        int h = (int)(i % d->heads), t0 = (int)(i / d->heads) * WEIGHT_TILE, n = a->T - t0 < WEIGHT_TILE ? a->T - t0 : WEIGHT_TILE;
        k3_cpu_mat value = head_rows(a, h, d->nope);
        const float *x[WEIGHT_TILE];
        float *y[WEIGHT_TILE];
        for (int t = 0; t < n; t++) {
            int64_t at = (int64_t)(t0 + t) * d->heads + h;
            float *context = a->context + at * a->kv_stride, inverse = (float)(1 / a->sum[at]);
            for (int c = 0; c < d->kv_lora; c++)
                context[c] *= inverse;
            x[t] = context;
            y[t] = a->o + at * d->v;
        }
        if (a->is_paired) {
            a->cpu->k.attend_value(y[0], (int64_t)d->heads * d->v, x[0], (int64_t)d->heads * a->kv_stride, n,
                                   (const uint16_t *)(const void *)value.codes, d->v, d->kv_lora,
                                   a->of_thread + (size_t)thread * a->thread_bytes);
        } else {
            a->cpu->k.matmul(y, x, n, &value, 0, d->v);
        }
    }
}

/* Heads that may share a pass. */
static int most_heads(const attend_args *a)
{
    return a->is_packed ? GROUP * TILE / a->most_rows : UNPACKED_GROUP;
}

/* Passes over a span if as many heads as may share one. */
static int64_t least_passes(const attend_args *a)
{
    int most = most_heads(a);
    return (int64_t)a->tiles * ((a->dims->heads + most - 1) / most);
}

/* Heads that share a pass so that, of n spans at once, the busiest thread has the least to do. */
static int best_group(const attend_args *a, int64_t n, int n_threads)
{
    int heads = a->dims->heads, best = 1;
    int64_t least = INT64_MAX;
    for (int64_t groups = least_passes(a) / a->tiles; groups <= heads; groups++) {
        int group = (int)((heads + groups - 1) / groups);
        int64_t rounds = (n * a->tiles * groups + n_threads - 1) / n_threads, work = rounds * (group * a->most_rows + PACKING);
        if (work < least) {
            least = work;
            best = group;
        }
    }
    return best;
}

/* How the work is dealt out. Where tiles and groups of heads alone would leave threads idle, as in an answer, spans of the cache are items
 * too, many a thread. Many tiles have as many heads share a pass as leave two items for every thread. */
static void deal_out(attend_args *a, int n_threads)
{
    int64_t items = least_passes(a), wanted = (int64_t)n_threads * 2;
    int64_t room = PARTS_BYTES / (4 * (int64_t)a->T * a->dims->heads * a->kv_stride), window = (AHEAD * n_threads + items - 1) / items;
    window = window < a->spans ? window : a->spans;
    window = window < room ? window : room;
    a->window = items < 2 * n_threads && window > 1 ? window : 1;
    int64_t group = ((int64_t)a->dims->heads * a->tiles + wanted - 1) / wanted, most = most_heads(a);
    a->group = a->tiles == 1 ? best_group(a, 1, n_threads) : group < most ? (int)group : (int)most;
}

/* The next window: as many spans as give every thread the same number of passes, or all that are left where there are fewer passes than
 * threads. */
static void deal_window(attend_args *a, int n_threads)
{
    int64_t left = a->spans - a->base, n = left < a->window ? left : a->window, passes = least_passes(a);
    int64_t even = n * passes / n_threads * n_threads / passes;
    a->window = even > 0 ? even : n;
    a->group = best_group(a, a->window, n_threads);
}

/* Sums of rows and heads that there is room for. */
static size_t n_sums(const attend_args *a, int n_threads)
{
    size_t all = (size_t)a->T * (size_t)a->dims->heads;
    if (a->spans == 1)
        return all;
    return a->window > 1 ? all * (size_t)(1 + a->window) : all + (size_t)n_threads * (size_t)a->most_rows * (size_t)a->group;
}

/* Scratch of the call and its tiles; 0 if there is no memory. */
static int lay_out(k3_cpu *cpu, attend_args *a, const k3_run *runs, int n_runs)
{
    const k3_mla_dims *d = a->dims;
    int width = d->kv_lora + d->rope;
    a->query_stride = a->is_packed ? (width + 1) / 2 * 2 : width;
    a->kv_stride = a->is_packed ? k3_attend_stride(d->kv_lora) : d->kv_lora;
    deal_out(a, cpu->n_threads);
    size_t n = (size_t)a->T * (size_t)d->heads, sums = n_sums(a, cpu->n_threads),
           tile_bytes = k3_round64((size_t)a->tiles * sizeof *a->tile);
    size_t query_bytes = k3_round64(n * (size_t)a->query_stride * (a->is_packed ? sizeof(uint16_t) : sizeof(float)));
    size_t context_bytes = k3_round64(sums * (size_t)a->kv_stride * sizeof(float));
    size_t sum_bytes = k3_round64(sums * sizeof *a->sum), max_bytes = k3_round64(sums * sizeof *a->max);
    size_t absorb_bytes = (key_floats(d) + (a->is_packed ? WEIGHT_TILE : 0) * (size_t)d->kv_lora) * sizeof(float);
    size_t rows_bytes = a->is_packed ? k3_attend_tile_bytes(d->kv_lora, width) : 0;
    if (a->is_paired)
        absorb_bytes = k3_attend_scratch_bytes(d->kv_lora);
    a->thread_bytes = k3_round64(absorb_bytes > rows_bytes ? absorb_bytes : rows_bytes);
    char *at =
        k3_cpu_scratch(cpu, tile_bytes + query_bytes + context_bytes + sum_bytes + max_bytes + (size_t)cpu->n_threads * a->thread_bytes);
    if (!at)
        return 0;
    attend_tile *tile = (attend_tile *)(void *)at;
    a->tile = tile;
    a->query = (float *)(void *)(at += tile_bytes);
    a->context = (float *)(void *)(at += query_bytes);
    a->sum = (double *)(void *)(at += context_bytes);
    a->max = (float *)(void *)(at += sum_bytes);
    a->of_thread = at + max_bytes;
    for (int i = 0; i < n_runs; i++)
        for (int first = 0; first < runs[i].n; first += TILE)
            *tile++ = (attend_tile){&runs[i], first, runs[i].n - first < TILE ? runs[i].n - first : TILE};
    return 1;
}

/* Checks the call and lays out its scratch; 0 if it is refused. */
static int prepare(k3_cpu *cpu, attend_args *a, const k3_mat *kv_b, const k3_run *runs, int n_runs)
{
    const k3_mla_dims *d = a->dims;
    if (d->cache != K3_F32 && d->cache != K3_BF16) {
        k3_cpu_fail(cpu, K3_E_UNSUPPORTED, "mla_attend: a cache of %s, f32 or bf16 wanted", k3_type_name(d->cache));
        return 0;
    }
    if (!k3_cpu_mat_of(cpu, &a->kv_b, kv_b, "mla_attend"))
        return 0;
    if (kv_b->rows != d->heads * (d->nope + d->v) || kv_b->cols != d->kv_lora) {
        k3_cpu_fail(cpu, K3_E_INVALID, "mla_attend: kv_b is [%d, %d], [%d, %d] wanted", kv_b->rows, kv_b->cols, d->heads * (d->nope + d->v),
                    d->kv_lora);
        return 0;
    }
    for (int i = 0; i < n_runs; i++) {
        int rows = runs[i].n < TILE ? runs[i].n : TILE;
        int64_t spans = (runs[i].pos + runs[i].n + SPAN - 1) / SPAN;
        a->tiles += (runs[i].n + TILE - 1) / TILE;
        a->T = runs[i].row + runs[i].n > a->T ? runs[i].row + runs[i].n : a->T;
        a->most_rows = rows > a->most_rows ? rows : a->most_rows;
        a->spans = spans > a->spans ? spans : a->spans;
    }
    a->is_packed = cpu->k.attend_row && d->cache == K3_BF16;
    a->is_paired = a->is_packed && a->kv_b.type == K3_BF16 && d->nope <= K3_ATTEND_TILE && d->v <= K3_ATTEND_TILE;
    return a->tiles > 0 && lay_out(cpu, a, runs, n_runs);
}

void k3_cpu_mla_attend(k3_backend *be, k3_ref o, k3_ref q, const k3_mat *kv_b, const k3_run *runs, int n_runs, const k3_mla_dims *dims,
                       float scale)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    attend_args a = {.cpu = cpu, .o = k3_host(o), .q = k3_host(q), .dims = dims, .scale = scale};
    if (!prepare(cpu, &a, kv_b, runs, n_runs))
        return;
    int64_t items = (int64_t)((a.T + WEIGHT_TILE - 1) / WEIGHT_TILE) * dims->heads, rows = a.T < WEIGHT_TILE ? a.T : WEIGHT_TILE;
    k3_pool_run(cpu->pool, absorb_task, &a, items, k3_cpu_grain(rows * dims->nope * dims->kv_lora));
    if (a.window == 1)
        k3_pool_run(cpu->pool, attend_task, &a, a.tiles * n_groups(&a), 1);
    else
        for (; a.base < a.spans; a.base += a.window) {
            deal_window(&a, cpu->n_threads);
            k3_pool_run(cpu->pool, attend_window_task, &a, a.window * a.tiles * n_groups(&a), 1);
            k3_pool_run(cpu->pool, add_window_task, &a, (int64_t)a.T * dims->heads, k3_cpu_grain(a.window * dims->kv_lora));
        }
    k3_pool_run(cpu->pool, value_task, &a, items, k3_cpu_grain(rows * dims->v * dims->kv_lora));
    k3_cpu_end(cpu, K3_OP_MLA_ATTEND, t0, k3_cpu_mat_bytes(kv_b));
}
