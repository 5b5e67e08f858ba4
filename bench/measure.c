#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATTERN = 8 << 20, MAX_CALLS = 400, SMALL_CALLS = 3 };
static const double round_seconds = 0.012;

double bench_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

uint32_t bench_random(bench *b)
{
    b->seed ^= b->seed << 13;
    b->seed ^= b->seed >> 17;
    b->seed ^= b->seed << 5;
    return b->seed;
}

/* ---- pools ------------------------------------------------------------------------------------------------- */

/* Content of the kinds: floats are (-1, 1) / 16, so that no chain of operations leaves the range of f16. */
static void make_pattern(bench *b, pool_kind kind, uint32_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t x = bench_random(b);
        float f = ((float)(x >> 8) / 8388608.0f - 1.0f) / 16.0f;
        if (kind == POOL_F32) {
            memcpy(&words[i], &f, 4);
        } else if (kind == POOL_BF16) {
            uint32_t u, sign = x << 31;
            memcpy(&u, &f, 4);
            words[i] = (u & 0xffff0000u) | ((u ^ sign) >> 16);
        } else if (kind == POOL_SCALES) {
            words[i] = 0x78787878u + (x & 0x03030303u);
        } else {
            words[i] = x;
        }
    }
}

/* One pattern goes to the device; copies that double it fill the first block, and that block the others. */
static void make_pool(bench *b, pool_kind kind, uint32_t *words)
{
    pool *p = &b->pools[kind];
    uint64_t block = b->shape.block, n = block < PATTERN ? block : PATTERN;
    *p = (pool){.n_blocks = b->shape.blocks[kind]};
    for (int i = 0; i < p->n_blocks; i++)
        if (!(p->blocks[i] = b->be->memory->alloc(b->be, block, "benchmark")))
            return;
    if (kind == POOL_STATE || kind == POOL_OUT)
        return;
    k3_ref first = {p->blocks[0], 0};
    make_pattern(b, kind, words, n / 4);
    b->be->memory->upload(b->be, first, words, n);
    for (; n < block; n *= 2)
        b->be->memory->copy(b->be, k3_at(first, n), first, n < block - n ? n : block - n);
    for (int i = 1; i < p->n_blocks; i++)
        b->be->memory->copy(b->be, (k3_ref){p->blocks[i], 0}, first, block);
}

k3_status bench_open(bench *b, int timing, int exact, k3_error *err)
{
    k3_backend_config config = {.name = b->options->backend, .timing = timing, .exact = exact};
    char note[256];
    b->timing = timing;
    b->exact = exact;
    b->seed = 1;
    k3_status status = k3_backend_open(&b->be, &config, note, sizeof note, err);
    if (status != K3_OK)
        return status;
    if (!exact)
        snprintf(b->device, sizeof b->device, "%s", b->be->describe(b->be));
    uint32_t *words = malloc(PATTERN);
    if (!words)
        return k3_fail(err, K3_E_NOMEM, "%d bytes for a pattern: out of memory", PATTERN);
    for (int kind = 0; kind < N_POOLS; kind++)
        make_pool(b, kind, words);
    free(words);
    return b->be->sync(b->be, err);
}

void bench_close(bench *b)
{
    for (int kind = 0; b->be && kind < N_POOLS; kind++)
        for (int i = 0; i < b->pools[kind].n_blocks; i++)
            if (b->pools[kind].blocks[i])
                b->be->memory->release(b->be, b->pools[kind].blocks[i]);
    memset(b->pools, 0, sizeof b->pools);
    if (b->be)
        b->be->close(b->be);
    b->be = NULL;
}

k3_ref bench_take(bench *b, pool_kind kind, uint64_t bytes)
{
    pool *p = &b->pools[kind];
    if (p->at + bytes > b->shape.block) {
        p->block = (p->block + 1) % p->n_blocks;
        p->at = 0;
    }
    k3_ref ref = {p->blocks[p->block], p->at};
    p->at += (bytes + 255) / 256 * 256;
    return ref;
}

k3_mat bench_mat(bench *b, k3_type type, int rows, int cols, double *bytes)
{
    k3_mat mat = {.type = type, .rows = rows, .cols = cols};
    uint64_t data = (uint64_t)rows * k3_type_row_bytes(type, cols), scale = (uint64_t)rows * k3_type_scale_bytes(type, cols);
    mat.data = bench_take(b, type == K3_F32 ? POOL_F32 : type == K3_BF16 ? POOL_BF16 : POOL_CODES, data);
    if (scale)
        mat.scale = bench_take(b, type == K3_MXFP4 ? POOL_SCALES : POOL_F32, scale);
    if (bytes)
        *bytes += (double)(data + scale);
    return mat;
}

/* Calls that may overlap take turns in as many places as the outputs' block has, the others write to the same place. */
k3_ref bench_out(bench *b, const job *j, int i, int which)
{
    uint64_t first = (j->out[0] + 255) / 256 * 256, both = first + (j->out[1] + 255) / 256 * 256;
    uint64_t places = b->overlap && both ? b->shape.block / both : 1;
    return (k3_ref){b->pools[POOL_OUT].blocks[0], (uint64_t)i % (places ? places : 1) * both + (which ? first : 0)};
}

/* ---- rounds ------------------------------------------------------------------------------------------------ */

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, rising);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

static row *find_row(bench *b, const job *j)
{
    for (int i = 0; i < b->n_rows; i++)
        if (strcmp(b->rows[i].op, j->op) == 0 && strcmp(b->rows[i].shape, j->shape) == 0)
            return &b->rows[i];
    if (b->n_rows == MAX_ROWS)
        return NULL;
    row *r = &b->rows[b->n_rows++];
    *r = (row){.op = j->op, .T = j->T, .bytes = j->bytes, .flops = j->flops, .ceiling = b->exact};
    memcpy(r->shape, j->shape, sizeof r->shape);
    return r;
}

typedef struct figures {
    double wall, recording, device; /* microseconds a call */
} figures;

/* Records `calls` calls and waits for all of them. */
static k3_status round_of(bench *b, const job *j, int calls, figures *f, k3_error *err)
{
    k3_op_stat stats[64];
    b->be->stats(b->be, stats, 64, 1);
    double started = bench_seconds();
    for (int i = 0; i < calls; i++)
        j->call(b, j, i);
    b->be->submit(b->be);
    double recorded = bench_seconds();
    k3_status status = b->be->sync(b->be, err);
    f->wall = (bench_seconds() - started) * 1e6 / calls;
    f->recording = (recorded - started) * 1e6 / calls;
    int n = b->be->stats(b->be, stats, 64, 1);
    f->device = 0;
    for (int i = 0; i < n; i++)
        f->device += (double)stats[i].nanoseconds * 1e-3 / calls;
    return status;
}

void bench_job(bench *b, const job *j)
{
    const char *only = b->options->only;
    row *r = !only || strncmp(j->op, only, strlen(only)) == 0 ? find_row(b, j) : NULL;
    if (!r || r->error[0])
        return;
    double device[MAX_ROUNDS], wall[MAX_ROUNDS], recording[MAX_ROUNDS], apart[MAX_ROUNDS];
    int rounds = b->options->rounds;
    figures f;
    k3_error err = {0};
    b->overlap = 0;
    /* The first call compiles, the second tells how many fill a round. */
    k3_status status = round_of(b, j, 1, &f, &err);
    if (status == K3_OK)
        status = round_of(b, j, 1, &f, &err);
    double wanted = round_seconds * 1e6 / f.wall;
    int calls = b->options->small ? SMALL_CALLS : wanted > MAX_CALLS ? MAX_CALLS : wanted < 4 ? 4 : (int)wanted;
    for (int i = 0; status == K3_OK && i < rounds; i++) {
        b->overlap = 0;
        status = round_of(b, j, calls, &f, &err);
        device[i] = f.device;
        wall[i] = f.wall;
        recording[i] = f.recording;
        b->overlap = 1;
        if (status == K3_OK && !b->timing && !j->in_order)
            status = round_of(b, j, calls, &f, &err);
        apart[i] = f.wall - f.recording; /* nothing of a round is submitted before all of it is recorded */
    }
    if (status != K3_OK) {
        snprintf(r->error, sizeof r->error, "%.159s", err.text);
        return;
    }
    r->calls = calls;
    if (b->timing) {
        r->device = median(device, rounds);
    } else {
        r->wall = median(wall, rounds);
        r->recording = median(recording, rounds);
        r->apart = median(apart, rounds);
    }
}

/* 4 GiB from block to block in one go, as far as there are blocks; bytes read and bytes written both count. */
void bench_copy_rate(bench *b)
{
    const pool *p = &b->pools[POOL_CODES];
    int copies = b->options->small ? 2 : (int)(((uint64_t)4 << 30) / b->shape.block);
    double rate[MAX_ROUNDS];
    k3_error err;
    for (int r = -1; r < b->options->rounds; r++) {
        double started = bench_seconds();
        for (int i = 0; i < copies; i++)
            b->be->memory->copy(b->be, (k3_ref){p->blocks[(2 * i + 1) % p->n_blocks], 0}, (k3_ref){p->blocks[2 * i % p->n_blocks], 0},
                                b->shape.block);
        if (b->be->sync(b->be, &err) != K3_OK)
            return;
        if (r >= 0)
            rate[r] = 2.0 * copies * (double)b->shape.block / (bench_seconds() - started);
    }
    b->copy_rate = median(rate, b->options->rounds);
}
