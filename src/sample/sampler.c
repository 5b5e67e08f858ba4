/* From logits to an id: temperature, top_k, top_p, min_p, a seeded draw, in this order and each on what the one before left.
 *
 *   w[i]   = exp((x[i] - max x) / temperature)                     x logits [n]; w[best] = 1
 *   top_k  : the k largest
 *   top_p  : the shortest prefix, by falling w, whose sum reaches top_p * (sum after top_k); at least one id
 *   min_p  : those with w >= min_p (min_p times the best's weight)
 *   draw   : the first id, by falling w, whose running sum exceeds u * (sum of what is left)
 *
 * Filtering before the temperature would look right too and keeps other ids: with logits 3, 2, 1, top_p 0.8 and temperature 0.5 it
 * keeps two, this order one. Equal logits go by id, lowest first. Sums are double. */
#include "sample/sampler.h"

#include <math.h>
#include <stdlib.h>

/* Temperatures up to this are greedy: 1 / temperature would overflow what a float can scale. */
static const double k3_greedy_temperature = 1e-6;

typedef struct k3_candidate {
    float logit;
    int32_t id;
} k3_candidate;

struct k3_sampler {
    k3_sampling sampling;
    uint64_t n_draws;
    k3_candidate *heap; /* [capacity]: the ids not taken yet, best on top */
    double *sums;       /* [capacity]: running sums of the ids taken, by falling weight */
    int32_t *taken;     /* [capacity] */
    size_t capacity;
};

/* ---- checks ---------------------------------------------------------------------------------------------- */

static k3_status check_sampling(const k3_sampling *s, k3_error *err)
{
    if (!isfinite(s->temperature) || s->temperature < 0)
        return k3_fail(err, K3_E_INVALID, "temperature: %g found, a number from 0 (greedy) up wanted", (double)s->temperature);
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return k3_fail(err, K3_E_INVALID, "top_p: %g found, 0 (the best token only) to 1 (off) wanted", (double)s->top_p);
    if (s->top_k < 0)
        return k3_fail(err, K3_E_INVALID, "top_k: %d found, 0 (off) or a count wanted", s->top_k);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return k3_fail(err, K3_E_INVALID, "min_p: %g found, 0 (off) to 1 wanted", (double)s->min_p);
    return K3_OK;
}

/* Finds the largest logit (lowest id first) and refuses logits that have no distribution. */
static k3_status scan(size_t *best, const float *x, size_t n, k3_error *err)
{
    size_t n_nan = 0, n_inf = 0, first_nan = 0, first_inf = 0, at = 0;
    if (!n || n > INT32_MAX)
        return k3_fail(err, K3_E_INVALID, "logits: %zu found, 1 to 2147483647 wanted", n);
    float max = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i])) {
            if (!n_nan++)
                first_nan = i;
        } else if (x[i] == INFINITY) {
            if (!n_inf++)
                first_inf = i;
        } else if (x[i] > max) {
            max = x[i];
            at = i;
        }
    }
    if (n_nan)
        return k3_fail(err, K3_E_NUMERIC, "logits: %zu of %zu are NaN, the first is id %zu; finite numbers wanted", n_nan, n, first_nan);
    if (n_inf)
        return k3_fail(err, K3_E_NUMERIC, "logits: %zu of %zu are +inf, the first is id %zu; finite numbers wanted", n_inf, n, first_inf);
    if (max == -INFINITY)
        return k3_fail(err, K3_E_NUMERIC, "logits: all %zu are -inf, id 0 too; at least one finite number wanted", n);
    *best = at;
    return K3_OK;
}

/* ---- the heap -------------------------------------------------------------------------------------------- */

static int better(k3_candidate a, k3_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(k3_candidate *heap, size_t n, size_t at)
{
    k3_candidate moved = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && better(heap[child + 1], heap[child]))
            child++;
        if (!better(heap[child], moved))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void build_heap(k3_candidate *heap, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        heap[i] = (k3_candidate){x[i], (int32_t)i};
    for (size_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i);
}

/* ---- filters ---------------------------------------------------------------------------------------------- */

/* Candidates leave the heap one by one, so that a full vocabulary is never sorted: a draw needs as many as its running sum takes. */
typedef struct k3_taking {
    k3_sampler *sampler;
    size_t n_heap, n_taken, n_max;
    double scale, max; /* w = exp((logit - max) * scale) */
    double min_weight;
} k3_taking;

static double weight(const k3_taking *t, float logit)
{
    return exp(((double)logit - t->max) * t->scale);
}

/* Moves the best candidate left to the taken ones; 0 if there is none that top_k and min_p let through. */
static int take(k3_taking *t)
{
    k3_sampler *s = t->sampler;
    if (!t->n_heap || t->n_taken == t->n_max)
        return 0;
    double w = weight(t, s->heap[0].logit);
    if (w < t->min_weight)
        return 0;
    s->taken[t->n_taken] = s->heap[0].id;
    s->sums[t->n_taken] = w + (t->n_taken ? s->sums[t->n_taken - 1] : 0);
    t->n_taken++;
    s->heap[0] = s->heap[--t->n_heap];
    if (t->n_heap)
        sift_down(s->heap, t->n_heap, 0);
    return 1;
}

/* Applies the filters. Afterwards the ids kept are taken and *total is the sum of their weights; but if no filter is on, *open is 1,
 * nothing is taken yet and *total is the sum over all n. */
static void filter(k3_taking *t, double *total, int *open, const float *x, size_t n, size_t best)
{
    const k3_sampling *s = &t->sampler->sampling;
    double *sums = t->sampler->sums;
    build_heap(t->sampler->heap, x, n);
    *t = (k3_taking){.sampler = t->sampler, .n_heap = n, .n_max = n, .scale = 1.0 / (double)s->temperature, .max = (double)x[best]};
    int has_top_k = s->top_k && (size_t)s->top_k < n;
    if (has_top_k)
        t->n_max = (size_t)s->top_k;
    *open = !has_top_k && s->top_p == 1 && s->min_p == 0;
    double mass = 0;
    if (!has_top_k && (*open || s->top_p < 1))
        for (size_t i = 0; i < n; i++)
            mass += weight(t, x[i]);
    *total = mass;
    if (*open)
        return;
    if (has_top_k && s->top_p < 1) {
        /* The mass that top_p speaks of is that of the k survivors, also of those that min_p drops afterwards. */
        while (take(t))
            ;
        mass = sums[t->n_taken - 1];
        for (size_t keep = 1; keep < t->n_taken; keep++)
            if (sums[keep - 1] >= (double)s->top_p * mass)
                t->n_taken = keep;
        while (t->n_taken > 1 && weight(t, x[t->sampler->taken[t->n_taken - 1]]) < (double)s->min_p)
            t->n_taken--;
    } else {
        t->min_weight = (double)s->min_p;
        while (take(t) && (s->top_p == 1 || sums[t->n_taken - 1] < (double)s->top_p * mass))
            ;
    }
    *total = sums[t->n_taken - 1];
}

static k3_status reserve(k3_sampler *s, size_t n, k3_error *err)
{
    if (n <= s->capacity)
        return K3_OK;
    free(s->heap);
    free(s->sums);
    free(s->taken);
    s->heap = malloc(n * sizeof *s->heap);
    s->sums = malloc(n * sizeof *s->sums);
    s->taken = malloc(n * sizeof *s->taken);
    s->capacity = s->heap && s->sums && s->taken ? n : 0;
    return s->capacity ? K3_OK : k3_fail(err, K3_E_NOMEM, "sampler: no memory for %zu logits", n);
}

static int is_greedy(const k3_sampling *s)
{
    return (double)s->temperature <= k3_greedy_temperature || s->top_k == 1 || s->top_p == 0;
}

/* ---- public ------------------------------------------------------------------------------------------------ */

/* SplitMix64: a Weyl sequence with the golden ratio's odd multiplier, each value mixed by two multiply-xorshift rounds. */
double k3_sample_uniform(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

k3_status k3_sampler_open(k3_sampler **out, const k3_sampling *sampling, k3_error *err)
{
    *out = NULL;
    K3_TRY(check_sampling(sampling, err));
    k3_sampler *s = calloc(1, sizeof *s);
    if (!s)
        return k3_fail(err, K3_E_NOMEM, "sampler: out of memory");
    s->sampling = *sampling;
    *out = s;
    return K3_OK;
}

void k3_sampler_close(k3_sampler *s)
{
    if (!s)
        return;
    free(s->heap);
    free(s->sums);
    free(s->taken);
    free(s);
}

double k3_sampler_next(const k3_sampler *s, k3_sampling *sampling)
{
    *sampling = s->sampling;
    return k3_sample_uniform(s->sampling.seed, s->n_draws);
}

void k3_sampler_count(k3_sampler *s)
{
    s->n_draws += !is_greedy(&s->sampling);
}

k3_status k3_sampler_pick(k3_sampler *s, int32_t *id, const float *logits, size_t n, k3_error *err)
{
    size_t best = 0;
    K3_TRY(scan(&best, logits, n, err));
    if (is_greedy(&s->sampling)) {
        *id = (int32_t)best;
        return K3_OK;
    }
    K3_TRY(reserve(s, n, err));
    k3_taking t = {.sampler = s};
    double total = 0;
    int open = 0;
    filter(&t, &total, &open, logits, n, best);
    double target = k3_sample_uniform(s->sampling.seed, s->n_draws++) * total;
    size_t i = 0;
    if (open)
        take(&t);
    while (s->sums[i] <= target && (open ? take(&t) : i + 1 < t.n_taken))
        i++;
    /* Rounding of the sums may carry the walk past the last id that has any weight. */
    while (i && s->sums[i] == s->sums[i - 1])
        i--;
    *id = s->taken[i];
    return K3_OK;
}

k3_status k3_sample_distribution(int32_t *ids, double *p, size_t *n_kept, const float *logits, size_t n, const k3_sampling *sampling,
                                 k3_error *err)
{
    k3_sampler *s = NULL;
    size_t best = 0;
    K3_TRY(k3_sampler_open(&s, sampling, err));
    k3_status status = scan(&best, logits, n, err);
    if (status == K3_OK)
        status = reserve(s, n, err);
    if (status == K3_OK && is_greedy(sampling)) {
        ids[0] = (int32_t)best;
        p[0] = 1;
        *n_kept = 1;
    } else if (status == K3_OK) {
        k3_taking t = {.sampler = s};
        double total = 0;
        int open = 0;
        filter(&t, &total, &open, logits, n, best);
        while (open && take(&t))
            ;
        for (size_t i = 0; i < t.n_taken; i++) {
            ids[i] = s->taken[i];
            p[i] = weight(&t, logits[ids[i]]) / total;
        }
        *n_kept = t.n_taken;
    }
    k3_sampler_close(s);
    return status;
}
