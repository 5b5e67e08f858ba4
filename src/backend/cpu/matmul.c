#include "backend/cpu/cpu.h"
#include "backend/cpu/decode.h"

enum { SPAN = 256, LANES = 4 };

/* sum_c w[c] x[c] over one span, in LANES interleaved double sums that are added in order. */
static double dot_span(const float *w, const float *x, int n)
{
    double lane[LANES] = {0};
    int c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int i = 0; i < LANES; i++)
            lane[i] += (double)w[c + i] * x[c + i];
    for (int i = 0; c < n; i++, c++)
        lane[i] += (double)w[c] * x[c];
    return ((lane[0] + lane[1]) + lane[2]) + lane[3];
}

/* y[t][r] = sum_c W[r, c] x[t][c]   for all weight types
 * W [out, in] as in tensor.h, x[t] [in] f32, y[t] [out] f32. Sums run in double, span by span, so the order is the same for every T. A
 * row's scale multiplies the finished sum, a group's scale the weight. */
void k3_matmul_scalar(float *const *y, const float *const *x, int T, const k3_cpu_mat *w, int first, int last)
{
    enum { ROWS = 16 };
    float span[SPAN];
    for (int r = first; r < last; r++) {
        const unsigned char *codes = w->codes + (size_t)r * w->row_bytes, *scale = w->scale + (size_t)r * w->scale_bytes;
        double row_scale = k3_type_scales_rows(w->type) ? (double)k3_load_f32(scale, 0) : 1.0;
        for (int t0 = 0; t0 < T; t0 += ROWS) {
            int n_t = T - t0 < ROWS ? T - t0 : ROWS;
            double sum[ROWS] = {0};
            for (int c0 = 0; c0 < w->cols; c0 += SPAN) {
                int n = w->cols - c0 < SPAN ? w->cols - c0 : SPAN;
                for (int c = 0; c < n; c++)
                    span[c] = k3_decode_code(w->type, codes, scale, c0 + c);
                for (int t = 0; t < n_t; t++)
                    sum[t] += dot_span(span, x[t0 + t] + c0, n);
            }
            for (int t = 0; t < n_t; t++)
                y[t0 + t][r] = (float)(sum[t] * row_scale);
        }
    }
}

/* ---- the op ------------------------------------------------------------------------------------------- */

/* A piece of a thread has at least PIECE items where there are enough: neighbouring rows share what is fetched ahead. Few rows of x wait
 * for memory alone: the last pieces are short, so that all threads end together. */
enum { MAX_PROJ = 16, ROWS_AN_ITEM = 16, PIECE = 8, PIECE_FOR_FEW = 2, FEW = 3, MANY_ROWS = 32 };

/* Items are blocks of ROWS_AN_ITEM rows of all projections, one projection after the other. */
typedef struct matmul_args {
    const k3_cpu *cpu;
    k3_cpu_mat w[MAX_PROJ];
    float **y[MAX_PROJ];  /* [T] rows of each output */
    const float **x;      /* [T] */
    k3_q8 q;              /* x as codes, for the projections that are multiplied as integers */
    int32_t *row_of;      /* [T]: 0, 1, ... */
    k3_bf16_rows rounded; /* x in bf16, for those whose weights are bf16 as well */
    char *tiles;          /* [threads, K3_BF16_SCRATCH] */
    int is_q8[MAX_PROJ], is_bf16[MAX_PROJ];
    int rows[MAX_PROJ];
    int64_t first_item[MAX_PROJ + 1];
    int n, T;
} matmul_args;

/* The rows of projection i, with those of an item after them. */
static k3_cpu_mat followed(const matmul_args *a, int i, int64_t item)
{
    int next = 0;
    if (item < 0 || a->T > FEW)
        return a->w[i];
    while (item >= a->first_item[next + 1])
        next++;
    return k3_cpu_followed(a->w[i], &a->w[next], (int)(item - a->first_item[next]) * ROWS_AN_ITEM);
}

static void matmul_task(void *arg, int64_t first, int64_t last, int thread)
{
    const matmul_args *a = arg;
    for (int i = 0; i < a->n; i++) {
        int64_t from = first > a->first_item[i] ? first : a->first_item[i];
        int64_t to = last < a->first_item[i + 1] ? last : a->first_item[i + 1];
        if (from >= to)
            continue;
        int r0 = (int)(from - a->first_item[i]) * ROWS_AN_ITEM, r1 = (int)(to - a->first_item[i]) * ROWS_AN_ITEM;
        r1 = r1 < a->rows[i] ? r1 : a->rows[i];
        k3_cpu_mat w = followed(a, i, to < last ? to : k3_pool_coming(a->cpu->pool, thread));
        if (a->is_q8[i])
            a->cpu->k.matmul_q8(a->y[i], &a->q, a->row_of, a->T, &w, r0, r1);
        else if (a->is_bf16[i])
            a->cpu->k.matmul_bf16(a->y[i], &a->rounded, &w, r0, r1, a->tiles + (size_t)thread * K3_BF16_SCRATCH);
        else
            a->cpu->k.matmul(a->y[i], a->x, a->T, &w, r0, r1);
    }
}

static void round_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const matmul_args *a = arg;
    int64_t end = last * K3_BF16_ROWS;
    a->cpu->k.round_bf16(&a->rounded, a->x[0], (int)first * K3_BF16_ROWS, end < a->T ? (int)end : a->T);
}

/* Checks the projections and fills the table; 0 if one is refused. */
static int prepare(k3_cpu *cpu, matmul_args *a, const k3_proj *proj, int n_proj)
{
    if (n_proj < 1 || n_proj > MAX_PROJ) {
        k3_cpu_fail(cpu, K3_E_UNSUPPORTED, "matmul: %d projections of one input, 1 to %d wanted", n_proj, MAX_PROJ);
        return 0;
    }
    for (int i = 0; i < n_proj; i++) {
        const k3_mat *w = proj[i].w;
        if (!k3_cpu_mat_of(cpu, &a->w[i], w, "matmul"))
            return 0;
        if (w->cols != proj[0].w->cols) {
            k3_cpu_fail(cpu, K3_E_INVALID, "matmul: projection %d takes %d inputs, projection 0 takes %d", i, w->cols, proj[0].w->cols);
            return 0;
        }
        a->rows[i] = w->rows;
        a->is_q8[i] = cpu->k.matmul_q8 && k3_q8_takes(w->type, w->cols);
        a->is_bf16[i] = cpu->k.matmul_bf16 && w->type == K3_BF16 && w->rounds_x;
        a->first_item[i + 1] = a->first_item[i] + (w->rows + ROWS_AN_ITEM - 1) / ROWS_AN_ITEM;
    }
    a->n = n_proj;
    return 1;
}

void k3_cpu_matmul(k3_backend *be, const k3_proj *proj, int n_proj, k3_ref x, int T)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin(), bytes = 0;
    matmul_args a = {.cpu = cpu, .T = T};
    if (T < 1 || !prepare(cpu, &a, proj, n_proj))
        return;
    int cols = proj[0].w->cols, has_codes = 0, has_by_nibble = 0, has_bf16 = 0;
    for (int i = 0; i < n_proj; i++) {
        *(proj[i].w->type == K3_INT8 ? &has_codes : &has_by_nibble) |= a.is_q8[i];
        has_bf16 |= a.is_bf16[i];
    }
    size_t row_bytes = k3_round64((size_t)T * (size_t)(n_proj + 1) * sizeof(float *)),
           index_bytes = k3_round64((size_t)T * sizeof(int32_t));
    size_t q8_bytes = has_codes || has_by_nibble ? k3_cpu_q8_bytes(T, cols, has_codes + has_by_nibble) : 0;
    size_t bf16_bytes = has_bf16 ? k3_round64(k3_bf16_bytes(T, cols)) : 0, tile_bytes = has_bf16 ? K3_BF16_SCRATCH : 0;
    char *scratch = k3_cpu_scratch(cpu, row_bytes + index_bytes + q8_bytes + bf16_bytes + (size_t)cpu->n_threads * tile_bytes);
    if (!scratch)
        return;
    const float **rows = (const float **)(void *)scratch;
    a.x = rows;
    a.row_of = (int32_t *)(void *)(scratch + row_bytes);
    for (int t = 0; t < T; t++) {
        rows[t] = (const float *)k3_host(x) + (int64_t)t * cols;
        a.row_of[t] = t;
    }
    if (q8_bytes) {
        a.q = k3_cpu_q8_at(scratch + row_bytes + index_bytes, T, cols, has_codes, has_by_nibble);
        k3_cpu_quantize(cpu, &a.q, rows[0], T);
    }
    if (has_bf16) {
        char *at = scratch + row_bytes + index_bytes + q8_bytes;
        a.rounded = (k3_bf16_rows){T, cols, (uint16_t *)(void *)at};
        a.tiles = at + bf16_bytes;
        k3_pool_run(cpu->pool, round_task, &a, (T + K3_BF16_ROWS - 1) / K3_BF16_ROWS, k3_cpu_grain((int64_t)K3_BF16_ROWS * cols));
    }
    for (int i = 0; i < n_proj; i++) {
        a.y[i] = (float **)(void *)(rows + (size_t)T * (size_t)(i + 1));
        for (int t = 0; t < T; t++)
            a.y[i][t] = (float *)k3_host(proj[i].y) + (int64_t)t * a.rows[i];
        bytes += k3_cpu_mat_bytes(proj[i].w);
    }
    int64_t n_items = a.first_item[n_proj], grain = k3_cpu_grain((int64_t)ROWS_AN_ITEM * cols * T), fair = n_items / (4 * cpu->n_threads);
    int64_t piece = T <= FEW ? PIECE_FOR_FEW : PIECE;
    if (grain < piece)
        grain = fair < grain ? grain : fair < piece ? fair : piece;
    if (has_bf16 && T >= MANY_ROWS) { /* a piece takes all of x through the caches */
        int64_t half = n_items / (2 * cpu->n_threads) / 2 * 2;
        grain = half < 2 ? 2 : half < PIECE ? half : PIECE;
    }
    k3_pool_run(cpu->pool, matmul_task, &a, n_items, grain);
    k3_cpu_end(cpu, K3_OP_MATMUL, t0, bytes);
}
