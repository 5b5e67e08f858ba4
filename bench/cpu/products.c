/* bench_cpu [--level L] [--threads N] [--rows R] [--cols C] [--type T]: the CPU's matrix products beside what its instructions and its
 * memory give. For every weight type and number of rows of x: time of a call, multiply-adds, bytes of weights, and the share of the
 * ceiling, which is measured in turn with the product. With one thread the clock is the thread's own, so that others on the machine do not
 * count. */
#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 5, MAX_SETS = 32, FEW = 3 };

static const double ceiling_seconds = 0.02, product_seconds = 0.06, set_bytes = 640e6;

typedef struct kind {
    const char *name;
    k3_type type;
    int rounds_x;
} kind;

static const kind kinds[] = {
    {"int8", K3_INT8, 0}, {"int4_g64", K3_INT4_G64, 0}, {"mxfp4", K3_MXFP4, 0}, {"bf16", K3_BF16, 1}, {"bf16, x in f32", K3_BF16, 0},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Multiply-adds of a type out of registers, and the lowest level that makes them so. */
typedef struct ceiling {
    k3_peak_fn *peak;
    char name[24];
    int64_t rounds; /* for a measurement */
} ceiling;

enum { N_TYPES = 3 };

typedef struct bench {
    k3_backend *be;
    k3_pool *pool;
    const char *level; /* NULL: the best */
    int threads, rows, cols;
    ceiling ceilings[N_TYPES * K3_CPU_N_LEVELS];
    int n_ceilings;
    double memory; /* bytes a second */
} bench;

static double now(const bench *b)
{
    struct timespec t;
    clock_gettime(b->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, rising);
    return x[n / 2];
}

/* ---- ceilings ----------------------------------------------------------------------------------------------------------------------- */

static void add_ceiling(bench *b, k3_peak_fn *peak, const char *type, const char *level)
{
    for (int i = 0; i < b->n_ceilings; i++)
        if (b->ceilings[i].peak == peak)
            return;
    ceiling *c = &b->ceilings[b->n_ceilings++];
    *c = (ceiling){.peak = peak, .rounds = 1024};
    snprintf(c->name, sizeof c->name, "%s in %s", type, level);
}

/* Of all levels that are here. */
static void find_ceilings(bench *b)
{
    for (int level = 0; level < K3_CPU_N_LEVELS; level++) {
        if (!k3_cpu_level_here((k3_cpu_level)level))
            continue;
        const char *name = k3_cpu_level_name((k3_cpu_level)level);
        k3_cpu_peak_kernels k = k3_cpu_peak_kernels_get((k3_cpu_level)level);
        if (k.f32)
            add_ceiling(b, k.f32, "f32", name);
        if (k.int8)
            add_ceiling(b, k.int8, "int8", name);
        if (k.bf16)
            add_ceiling(b, k.bf16, "bf16", name);
    }
}

typedef struct loop {
    k3_peak_fn *peak;
    int64_t rounds;
    uint64_t done[1024]; /* by item */
    float result[1024];
} loop;

static void loop_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    loop *l = arg;
    for (int64_t i = first; i < last; i++)
        l->done[i] = l->peak(&l->result[i], l->rounds);
}

/* Multiply-adds a second of all threads. */
static double ceiling_rate(bench *b, ceiling *c)
{
    loop l = {.peak = c->peak};
    double seconds = 0, done = 0;
    for (;; c->rounds *= 2) {
        l.rounds = c->rounds;
        double started = now(b);
        k3_pool_run(b->pool, loop_task, &l, b->threads, 1);
        seconds = now(b) - started;
        if (seconds > ceiling_seconds / 2)
            break;
    }
    for (int i = 0; i < b->threads; i++)
        done += (double)l.done[i];
    return done / seconds;
}

static void print_ceilings(bench *b)
{
    const char *plural = b->threads > 1 ? "s" : "";
    printf("%d thread%s: memory %.1f GB/s\n", b->threads, plural, b->memory * 1e-9);
    for (int c = 0; c < b->n_ceilings; c++) {
        double rate[ROUNDS];
        for (int i = 0; i < ROUNDS; i++)
            rate[i] = ceiling_rate(b, &b->ceilings[c]);
        printf("%d thread%s: %-22s %9.1f G multiply-adds/s\n", b->threads, plural, b->ceilings[c].name, median(rate, ROUNDS) * 1e-9);
    }
}

/* What the level makes the products of a kind in; NULL: it is scalar. */
static ceiling *ceiling_of(bench *b, const kind *k)
{
    int level = 0;
    while (strcmp(k3_cpu_level_name((k3_cpu_level)level), b->level) != 0)
        level++;
    k3_cpu_peak_kernels own = k3_cpu_peak_kernels_get((k3_cpu_level)level);
    k3_peak_fn *peak = k->type != K3_BF16 ? own.int8 : k->rounds_x && own.bf16 ? own.bf16 : own.f32;
    for (int i = 0; i < b->n_ceilings; i++)
        if (b->ceilings[i].peak == peak)
            return &b->ceilings[i];
    return NULL;
}

/* ---- products ----------------------------------------------------------------------------------------------------------------------- */

/* Bytes of weights that are small numbers in every type. */
static void fill(unsigned char *at, size_t n, k3_type type)
{
    uint32_t x = 1;
    for (size_t i = 0; i + 4 <= n; i += 4) {
        x = x * 1664525u + 1013904223u;
        uint32_t word = type == K3_BF16 ? (x & 0x807f807fu) | 0x3c003c00u : x;
        memcpy(at + i, &word, 4);
    }
}

static k3_mat new_mat(bench *b, const kind *k)
{
    size_t codes = (size_t)b->rows * k3_type_row_bytes(k->type, b->cols), scales = (size_t)b->rows * k3_type_scale_bytes(k->type, b->cols);
    k3_mat w = {.type = k->type, .rows = b->rows, .cols = b->cols, .rounds_x = k->rounds_x};
    w.data.buf = b->be->memory->alloc(b->be, codes, "weights");
    w.scale.buf = scales ? b->be->memory->alloc(b->be, scales, "scales") : NULL;
    if (!w.data.buf || (scales && !w.scale.buf))
        return (k3_mat){.type = k->type};
    fill(w.data.buf->host, codes, k->type);
    if (scales)
        memset(w.scale.buf->host, 0x3c, scales);
    return w;
}

/* Seconds a call for T rows, over enough calls; `next` counts them, so that matrices come in turn. */
static double call_seconds(bench *b, const k3_mat *mats, int n_mats, int T, k3_ref x, k3_ref y, int *next)
{
    double started = now(b), seconds = 0;
    int calls = 0;
    while (seconds < product_seconds) {
        b->be->ops->matmul(b->be, &(k3_proj){&mats[(*next)++ % n_mats], y}, 1, x, T);
        calls++;
        seconds = now(b) - started;
    }
    return seconds / calls;
}

static void print_product(bench *b, const kind *k, const k3_mat *mats, int n_mats, int T)
{
    k3_ref x = {b->be->memory->alloc(b->be, 4 * (uint64_t)T * (uint64_t)b->cols, "x"), 0};
    k3_ref y = {b->be->memory->alloc(b->be, 4 * (uint64_t)T * (uint64_t)b->rows, "y"), 0};
    if (!x.buf || !y.buf)
        return;
    for (int64_t i = 0; i < (int64_t)T * b->cols; i++)
        ((float *)x.buf->host)[i] = (float)(i % 251) / 125 - 1;
    double seconds[ROUNDS], share[ROUNDS];
    double products = (double)b->rows * b->cols * T;
    double bytes = (double)b->rows * (double)(k3_type_row_bytes(k->type, b->cols) + k3_type_scale_bytes(k->type, b->cols));
    ceiling *which = ceiling_of(b, k);
    int next = 0;
    call_seconds(b, mats, n_mats, T, x, y, &next);
    for (int i = 0; i < ROUNDS; i++) {
        double best = T <= FEW ? b->memory : which ? ceiling_rate(b, which) : INFINITY;
        seconds[i] = call_seconds(b, mats, n_mats, T, x, y, &next);
        share[i] = (T <= FEW ? bytes : products) / seconds[i] / best;
    }
    double s = median(seconds, ROUNDS);
    printf("%-10s %2d thr  %-14s %4d rows %10.1f us %9.1f G/s %7.1f GB/s %6.1f %% of %s\n", b->level, b->threads, k->name, T, s * 1e6,
           products / s * 1e-9, bytes / s * 1e-9, 100 * median(share, ROUNDS),
           T <= FEW ? "memory"
           : which  ? which->name
                    : "no ceiling");
    fflush(stdout);
    b->be->memory->release(b->be, x.buf);
    b->be->memory->release(b->be, y.buf);
}

static void print_kind(bench *b, const kind *k)
{
    static const int T[] = {1, 3, 8, 32, 128, 512};
    k3_mat mats[MAX_SETS];
    double bytes = (double)b->rows * (double)k3_type_row_bytes(k->type, b->cols);
    int n = (int)(set_bytes / bytes) + 1;
    n = n > MAX_SETS ? MAX_SETS : n;
    for (int i = 0; i < n; i++)
        mats[i] = new_mat(b, k);
    for (size_t i = 0; i < sizeof T / sizeof *T && mats[n - 1].data.buf; i++)
        print_product(b, k, mats, n, T[i]);
    for (int i = 0; i < n; i++) {
        b->be->memory->release(b->be, mats[i].data.buf);
        b->be->memory->release(b->be, mats[i].scale.buf);
    }
}

static int read_options(bench *b, const char **type, int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--level") == 0)
            b->level = argv[i + 1];
        else if (strcmp(argv[i], "--type") == 0)
            *type = argv[i + 1];
        else if (strcmp(argv[i], "--threads") == 0)
            b->threads = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--rows") == 0)
            b->rows = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--cols") == 0)
            b->cols = atoi(argv[i + 1]);
        else
            return 0;
    }
    return argc % 2 == 1 && b->threads >= 1 && b->threads <= 1024 && b->rows >= 1 && b->cols >= 64 && b->cols % 64 == 0;
}

int main(int argc, char **argv)
{
    bench b = {.threads = 1, .rows = 3072, .cols = 7168};
    const char *type = NULL;
    char name[32];
    k3_error err;
    if (!read_options(&b, &type, argc, argv)) {
        fprintf(stderr, "usage: bench_cpu [--level L] [--threads N] [--rows R] [--cols C, a multiple of 64] [--type T]\n");
        return 2;
    }
    snprintf(name, sizeof name, "cpu:%.20s", b.level ? b.level : "");
    if (k3_backend_open(&b.be, &(k3_backend_config){.name = name, .threads = b.threads}, NULL, 0, &err) != K3_OK ||
        k3_pool_open(&b.pool, b.threads, &err) != K3_OK) {
        fprintf(stderr, "bench_cpu: %s\n", err.text);
        return 1;
    }
    b.level = b.be->name + strlen("cpu:");
    b.memory = k3_cpu_memory_rate(b.threads);
    find_ceilings(&b);
    print_ceilings(&b);
    for (int k = 0; k < N_KINDS; k++)
        if (!type || strncmp(kinds[k].name, type, strlen(type)) == 0)
            print_kind(&b, &kinds[k]);
    k3_status status = b.be->sync(b.be, &err);
    if (status != K3_OK)
        fprintf(stderr, "bench_cpu: %s\n", err.text);
    k3_pool_close(b.pool);
    b.be->close(b.be);
    return status != K3_OK;
}
