/* Absorbed attention in four stages (glsl/mla_attend*.comp): query = W_k^T q; parts of the softmax over the cache; their sum, if there is
 * more than one part; o = W_v context. What lies between them is scratch, f32:
 *   query [pairs, query_stride], then for each part of the cache: stats [pairs, 2], context [pairs, context_stride]
 * A pair is a row and a head. Rows go through the stages in blocks, which bounds the scratch and the time of one dispatch. */
#include "backend/gpu/mla.h"

#include "backend/gpu/elementwise.h"

#include <math.h>

enum {
    BLOCK_ROWS = 256,
    BLOCK_PAIRS = 24576,
    PLAIN_PAIRS = 16, /* of a workgroup, as the kernels have them */
    MATRIX_PAIRS = 48,
    MATRIX_SHARED = 48 << 10,
    MERGE_CHANNELS = 128,
    MERGE_SLICES = 8,
    MERGE_AT_ONCE = 8, /* where there are more parts than slices */
    PLAIN_STEP = 16,   /* cache rows that the kernels take at a time */
    MATRIX_STEP = 32
};
/* Floating-point operations of one dispatch: 0.02 seconds at the speed of matrix units, 1 second on a small device. */
static const double block_flops = 4e12;

typedef struct attend {
    k3_gpu *gpu;
    k3_ref o, q;
    const k3_mat *kv_b;
    const k3_run *runs;
    int n_runs;
    const k3_mla_dims *dims;
    float scale;
    int is_matrix;
    uint32_t tile_pairs;
    uint32_t query_stride, context_stride; /* floats */
} attend;

/* Rows row .. row+n-1, which are those of its runs, one run after the other. */
typedef struct attend_block {
    k3_run runs[K3_MLA_RUNS];
    int n_runs, row, n;
    uint32_t pairs, tiles, parts, part_rows;
    double flops;
    uint64_t stats_at, context_at, bytes; /* in the scratch */
} attend_block;

static uint64_t row_bytes(const attend *a)
{
    return (uint64_t)(a->dims->kv_lora + a->dims->rope) * (a->dims->cache == K3_F32 ? 4 : 2);
}

/* The cache is cut into parts of equal length, so many that tiles times parts fill the device, the last wave of them too, with as little as
 * possible of what every part costs and merging them. Costs are in cache rows of one tile. */
static void cut(const attend *a, attend_block *b)
{
    enum { LEAST = 32, START = 64, MERGE = 64 };
    uint64_t step = a->is_matrix ? MATRIX_STEP : PLAIN_STEP, longest = 0, best = UINT64_MAX,
             cores = k3_gpu_limits_of(a->gpu)->cores * (a->is_matrix ? 1ull : 4ull);
    uint64_t pairs = (uint64_t)b->n * (uint64_t)a->dims->heads;
    for (int i = 0; i < b->n_runs; i++) {
        uint64_t context = (uint64_t)b->runs[i].pos + (uint64_t)b->runs[i].n;
        b->tiles += (uint32_t)k3_gpu_groups((uint64_t)b->runs[i].n * (uint64_t)a->dims->heads, a->tile_pairs);
        longest = context > longest ? context : longest;
    }
    for (uint64_t parts = 1; parts == 1 || (parts <= cores && parts * LEAST <= longest); parts++) {
        uint64_t rows = ((longest + parts - 1) / parts + step - 1) / step * step, groups = 0;
        for (int i = 0; i < b->n_runs; i++)
            groups += k3_gpu_groups((uint64_t)b->runs[i].n * (uint64_t)a->dims->heads, a->tile_pairs) *
                      k3_gpu_groups((uint64_t)b->runs[i].pos + (uint64_t)b->runs[i].n, (uint32_t)rows);
        uint64_t cost = (groups + cores - 1) / cores * (rows + START) + (parts > 1 ? MERGE + parts * pairs / 96 : 0);
        if (cost < best) {
            best = cost;
            b->part_rows = (uint32_t)rows;
        }
    }
    b->parts = (uint32_t)k3_gpu_groups(longest, b->part_rows);
}

/* The next rows, from row *done of run *run on. 0 when there are none. */
static int next_block(const attend *a, int *run, int *done, attend_block *b)
{
    const k3_mla_dims *d = a->dims;
    *b = (attend_block){.n = 0};
    int most = BLOCK_PAIRS / d->heads < BLOCK_ROWS ? BLOCK_PAIRS / d->heads : BLOCK_ROWS;
    while (*run < a->n_runs && b->n_runs < K3_MLA_RUNS) {
        const k3_run *r = &a->runs[*run];
        if (b->n == 0)
            b->row = r->row + *done;
        else if (r->row + *done != b->row + b->n)
            break;
        double flops = 2.0 * (2 * d->kv_lora + d->rope) * d->heads * (double)(r->pos + r->n); /* of one row, at most */
        int n = r->n - *done < most - b->n ? r->n - *done : most - b->n;
        if (n * flops > block_flops - b->flops)
            n = (int)((block_flops - b->flops) / flops);
        if (n < 1 && b->n == 0 && r->n > *done)
            n = 1; /* one row is the least that a block can be */
        if (n < 1 && r->n > *done)
            break;
        if (n > 0)
            b->runs[b->n_runs++] = (k3_run){b->row + b->n, n, r->pos + *done, r->state};
        b->n += n;
        b->flops += n * flops;
        *done += n;
        if (*done == r->n) {
            ++*run;
            *done = 0;
        }
    }
    if (b->n == 0)
        return 0;
    cut(a, b);
    b->pairs = (uint32_t)b->n * (uint32_t)d->heads;
    b->stats_at = k3_gpu_groups(4ull * b->pairs * a->query_stride, 256) * 256;
    b->context_at = b->stats_at + k3_gpu_groups(8ull * b->parts * b->pairs, 256) * 256;
    b->bytes = b->context_at + 4ull * b->parts * b->pairs * a->context_stride;
    return 1;
}

/* A stage that reads kv_b: `first` and the other pieces of it, which the next dispatch reads. */
static struct k3_mla_weights_args weights(const attend *a, const attend_block *b, uint32_t *spec)
{
    const k3_mla_dims *d = a->dims;
    struct k3_mat_args parts[K3_GPU_MAX_PARTS] = {{0}};
    int n = k3_gpu_mat(a->gpu, parts, K3_GPU_MAX_PARTS, a->kv_b, 0, a->kv_b->rows, "mla_attend");
    uint64_t bits = parts[0].row_bytes;
    for (int i = 0; i < n; i++)
        bits |= parts[i].data;
    spec[0] = a->kv_b->type;
    spec[1] = k3_gpu_aligned(bits) && d->kv_lora % 4 == 0;
    spec[2] = b->n == 1 ? 1 : 8;
    uint64_t rest = n > 1 ? k3_gpu_put(a->gpu, parts + 1, (size_t)(n - 1) * sizeof parts[0]) : 0;
    return (struct k3_mla_weights_args){parts[0],
                                        rest,
                                        0,
                                        0,
                                        (uint32_t)b->n,
                                        (uint32_t)d->heads,
                                        (uint32_t)d->nope,
                                        (uint32_t)d->rope,
                                        (uint32_t)d->v,
                                        (uint32_t)d->kv_lora,
                                        a->query_stride,
                                        (uint32_t)d->v,
                                        a->scale * 1.44269504f,
                                        0};
}

/* glsl/mla_attend_heads_matrix.comp takes the first and the last stage of blocks of many rows. */
static int heads_fit(const attend *a, const attend_block *b, const struct k3_mla_weights_args *args)
{
    enum { MANY = 16 };
    return a->is_matrix && b->n >= MANY && a->dims->nope == 128 && a->dims->v == 128 && k3_gpu_aligned(args->x | args->y);
}

static void heads_stage(const attend *a, const attend_block *b, const struct k3_mla_weights_args *args, const uint32_t *spec, int is_value)
{
    enum { ROWS = 64, COLUMNS = 128 };
    uint32_t values[4] = {spec[0], spec[1], spec[2], (uint32_t)is_value};
    uint64_t blocks = is_value ? 1 : (uint64_t)a->dims->kv_lora / COLUMNS;
    k3_gpu_dispatch_full(a->gpu, K3_GPU_SHADER_mla_attend_heads_matrix, values, 4, args, sizeof *args, (uint64_t)a->dims->heads * blocks,
                         (uint32_t)k3_gpu_groups((uint64_t)b->n, ROWS), 1);
}

static void query_stage(const attend *a, const attend_block *b, k3_ref scratch)
{
    const k3_mla_dims *d = a->dims;
    uint64_t q_row = 4 * (uint64_t)d->heads * (uint64_t)(d->nope + d->rope);
    uint32_t spec[4];
    struct k3_mla_weights_args args = weights(a, b, spec);
    spec[3] = b->n == 1 ? 32 : 64; /* groups of four columns; fewer make more workgroups */
    args.x = k3_gpu_read(a->gpu, k3_at(a->q, (uint64_t)b->row * q_row), (uint64_t)b->n * q_row);
    args.y = k3_gpu_write(a->gpu, scratch, 4ull * b->pairs * a->query_stride);
    k3_gpu_work(a->gpu, 2.0 * b->pairs * d->nope * d->kv_lora);
    if (heads_fit(a, b, &args)) {
        heads_stage(a, b, &args, spec, 0);
        return;
    }
    k3_gpu_dispatch(a->gpu, K3_GPU_SHADER_mla_attend_query, spec, 4, &args, sizeof args,
                    (uint64_t)d->heads * k3_gpu_groups((uint64_t)d->kv_lora, 4 * spec[3]), (uint32_t)k3_gpu_groups((uint64_t)b->n, spec[2]),
                    1);
}

static void value_stage(const attend *a, const attend_block *b, k3_ref scratch)
{
    enum { FEW = 16 }; /* rows of W_v a workgroup where there are few rows of activations */
    const k3_mla_dims *d = a->dims;
    uint64_t o_row = 4 * (uint64_t)d->heads * (uint64_t)d->v;
    uint32_t spec[3];
    struct k3_mla_weights_args args = weights(a, b, spec);
    args.stride = a->context_stride;
    args.block = b->n <= 8 ? FEW : (uint32_t)d->v;
    args.x = k3_gpu_read(a->gpu, k3_at(scratch, b->context_at), 4ull * b->pairs * a->context_stride);
    args.y = k3_gpu_write(a->gpu, k3_at(a->o, (uint64_t)b->row * o_row), (uint64_t)b->n * o_row);
    k3_gpu_work(a->gpu, 2.0 * b->pairs * d->v * d->kv_lora);
    if (heads_fit(a, b, &args)) {
        heads_stage(a, b, &args, spec, 1);
        return;
    }
    k3_gpu_dispatch(a->gpu, K3_GPU_SHADER_mla_attend_value, spec, 3, &args, sizeof args,
                    (uint64_t)d->heads * k3_gpu_groups((uint64_t)d->v, args.block), (uint32_t)k3_gpu_groups((uint64_t)b->n, spec[2]), 1);
}

static void cache_stages(const attend *a, const attend_block *b, k3_ref scratch)
{
    const k3_mla_dims *d = a->dims;
    uint64_t caches[K3_MLA_RUNS], bits = row_bytes(a), context_bytes = 4ull * b->parts * b->pairs * a->context_stride;
    for (int i = 0; i < b->n_runs; i++)
        bits |= caches[i] = k3_gpu_read(a->gpu, b->runs[i].state, (uint64_t)(b->runs[i].pos + b->runs[i].n) * row_bytes(a));
    struct k3_mla_attend_args args = {k3_gpu_read(a->gpu, scratch, 4ull * b->pairs * a->query_stride),
                                      k3_gpu_write(a->gpu, k3_at(scratch, b->context_at), context_bytes),
                                      k3_gpu_write(a->gpu, k3_at(scratch, b->stats_at), 8ull * b->parts * b->pairs),
                                      k3_gpu_mla_runs(a->gpu, b->runs, caches, b->n_runs, b->row, d->heads, (int)a->tile_pairs),
                                      (uint32_t)d->heads,
                                      (uint32_t)d->kv_lora,
                                      (uint32_t)d->rope,
                                      b->pairs,
                                      a->query_stride,
                                      a->context_stride,
                                      b->parts,
                                      b->part_rows};
    uint32_t spec[2] = {d->cache == K3_BF16, k3_gpu_aligned(bits) && (d->kv_lora + d->rope) % 4 == 0};
    k3_gpu_work(a->gpu, b->flops);
    if (a->is_matrix)
        k3_gpu_dispatch_full(a->gpu, K3_GPU_SHADER_mla_attend_matrix, NULL, 0, &args, sizeof args, b->tiles, b->parts, 1);
    else
        k3_gpu_dispatch(a->gpu, K3_GPU_SHADER_mla_attend, spec, 2, &args, sizeof args, b->tiles, b->parts,
                        (uint32_t)k3_gpu_groups(a->context_stride, 512));
    if (b->parts == 1)
        return;
    k3_gpu_write(a->gpu, k3_at(scratch, b->context_at), context_bytes);
    k3_gpu_read(a->gpu, k3_at(scratch, b->stats_at), 8ull * b->parts * b->pairs);
    uint32_t at_once = b->parts > MERGE_SLICES ? MERGE_AT_ONCE : 1;
    k3_gpu_dispatch(a->gpu, K3_GPU_SHADER_mla_attend_merge, &at_once, 1, &args, sizeof args, b->pairs,
                    (uint32_t)k3_gpu_groups(a->context_stride, MERGE_CHANNELS), 1);
}

/* glsl/mla_attend_matrix.comp is made for one shape, which is K3's. */
static int matrix_fits(const attend *a)
{
    const k3_gpu_limits *limits = k3_gpu_limits_of(a->gpu);
    const k3_mla_dims *d = a->dims;
    uint64_t bits = 0;
    for (int i = 0; i < a->n_runs; i++)
        bits |= a->runs[i].state.at;
    return k3_gpu_has_matrix(limits, K3_GPU_MLA_ATTEND) && limits->subgroup == 32 && limits->invocations >= 256 &&
           limits->shared_bytes >= MATRIX_SHARED && d->cache == K3_BF16 && d->kv_lora == 512 && d->rope == 64 && d->heads % 16 == 0 &&
           k3_gpu_aligned(bits);
}

static int acceptable(const attend *a)
{
    const k3_mla_dims *d = a->dims;
    if (d->heads < 1 || d->heads > BLOCK_PAIRS || d->nope < 1 || d->rope < 0 || d->v < 1 || d->kv_lora < 1)
        k3_gpu_fail(a->gpu, K3_E_UNSUPPORTED, "mla_attend: %d heads, nope %d, rope %d, v %d, kv_lora %d; 1 to %d heads of 1 or more wanted",
                    d->heads, d->nope, d->rope, d->v, d->kv_lora, (int)BLOCK_PAIRS);
    else if (a->kv_b->rows != d->heads * (d->nope + d->v) || a->kv_b->cols != d->kv_lora)
        k3_gpu_fail(a->gpu, K3_E_INVALID, "mla_attend: kv_b is [%d, %d], [%d, %d] wanted", a->kv_b->rows, a->kv_b->cols,
                    d->heads * (d->nope + d->v), d->kv_lora);
    return k3_gpu_mla_cache(a->gpu, d, "mla_attend");
}

void k3_gpu_mla_attend(k3_backend *be, k3_ref o, k3_ref q, const k3_mat *kv_b, const k3_run *runs, int n_runs, const k3_mla_dims *dims,
                       float scale)
{
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_MLA_ATTEND);
    attend a = {gpu, o, q, kv_b, runs, n_runs, dims, scale, 0, 0, 0, 0};
    attend_block block;
    uint64_t bytes = 0;
    if (acceptable(&a)) {
        a.is_matrix = matrix_fits(&a);
        a.tile_pairs = a.is_matrix ? MATRIX_PAIRS : PLAIN_PAIRS;
        a.query_stride = (uint32_t)(dims->kv_lora + dims->rope + 3) / 4 * 4;
        a.context_stride = (uint32_t)(dims->kv_lora + 3) / 4 * 4;
        for (int run = 0, done = 0; next_block(&a, &run, &done, &block);)
            bytes = block.bytes > bytes ? block.bytes : bytes;
        k3_ref scratch = k3_gpu_scratch(gpu, bytes);
        for (int run = 0, done = 0; !k3_gpu_failed(gpu) && next_block(&a, &run, &done, &block);) {
            query_stage(&a, &block, scratch);
            cache_stages(&a, &block, scratch);
            value_stage(&a, &block, scratch);
        }
    }
    k3_gpu_end(gpu, k3_gpu_mat_bytes(kv_b));
}
