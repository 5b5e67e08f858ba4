/* Whole layers as src/model lays them out: mixture of the residual stream, norm, the layer's operations, sum. Calls follow one another as
 * layers do. From their times, what a pass through all of K3 takes. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SOURCES = 9, WIDTH = 4 };
enum { N_KDA = 69, N_MLA = 24, N_MOE = 92, N_DENSE = 1 };
static const float eps = 1e-5f;

/* Places in job.x. */
enum {
    STREAM,
    MIX,
    NORM,
    X,
    N,
    SUM,
    Y,
    Q,
    K,
    V,
    G,
    Z,
    O,
    BETA,
    LOW,
    GATE,
    UP,
    LOGITS,
    TOP,
    LATENT,
    SLOTS,
    CONV,
    A_LOG,
    DT_BIAS,
    GAIN,
    IDS
};
/* Places in job.state. */
enum { WINDOW_Q, WINDOW_K, WINDOW_V, STATE };

static void product(bench *b, const job *j, int i, int first, const int *to, int n, int from)
{
    k3_proj proj[MAX_MATS];
    for (int p = 0; p < n; p++)
        proj[p] = (k3_proj){&j->mat[i % j->n_sets][first + p], j->x[to[p]]};
    b->be->ops->matmul(b->be, proj, n, j->x[from], j->T);
}

static void before(bench *b, const job *j)
{
    int C = b->shape.hidden;
    k3_ref src[SOURCES];
    for (int s = 0; s < SOURCES; s++)
        src[s] = k3_at(j->x[STREAM], 4 * (uint64_t)s * (uint64_t)j->T * (uint64_t)C);
    b->be->ops->attnres_mix(b->be, j->x[X], src, SOURCES, j->x[MIX], j->T, C, eps);
    b->be->ops->rmsnorm(b->be, j->x[N], j->x[X], j->x[NORM], j->T, C, C, C, eps);
}

static void after(bench *b, const job *j)
{
    b->be->ops->add(b->be, j->x[SUM], j->x[SUM], j->x[Y], (int64_t)j->T * b->shape.hidden);
}

static void call_kda(bench *b, const job *j, int i)
{
    const k3_ops *op = b->be->ops;
    const shape *s = &b->shape;
    const k3_ref *x = j->x, *state = j->state[i % j->n_sets];
    int T = j->T, H = s->heads, D = s->head;
    k3_run runs[4];
    for (int r = 0; r < 4; r++)
        runs[r] = (k3_run){0, T, WIDTH, state[r]};
    before(b, j);
    product(b, j, i, 0, (const int[]){Q, K, V, G, BETA, LOW}, 6, N);
    op->shortconv(b->be, x[O], x[Q], x[CONV], &runs[WINDOW_Q], 1, H * D, WIDTH);
    op->l2norm(b->be, x[Q], x[O], T, H, D, 1e-6f, 1 / sqrtf((float)D));
    op->shortconv(b->be, x[O], x[K], x[CONV], &runs[WINDOW_K], 1, H * D, WIDTH);
    op->l2norm(b->be, x[K], x[O], T, H, D, 1e-6f, 1);
    op->shortconv(b->be, x[O], x[V], x[CONV], &runs[WINDOW_V], 1, H * D, WIDTH);
    product(b, j, i, 6, (const int[]){Z}, 1, LOW);
    op->kda_gate(b->be, T > 1 ? (k3_ref){0} : x[Z], T > 1 ? x[Z] : (k3_ref){0}, x[BETA], x[Z], x[BETA], x[A_LOG], x[DT_BIAS], T, H, D, -5);
    (T > 1 ? op->kda_chunk : op->kda_recur)(b->be, x[V], x[Q], x[K], x[O], x[Z], x[BETA], &runs[STATE], 1, H, D);
    op->gate_rmsnorm(b->be, x[O], x[V], x[GAIN], x[G], T, H, D, eps);
    product(b, j, i, 7, (const int[]){Y}, 1, O);
    after(b, j);
}

static void call_mla(bench *b, const job *j, int i)
{
    const k3_ops *op = b->be->ops;
    const shape *s = &b->shape;
    const k3_ref *x = j->x;
    int T = j->T;
    k3_mla_dims dims = {s->heads, s->nope, s->rope, s->v, s->kv_lora, K3_BF16};
    k3_run run = {0, T, j->pos, j->state[i % j->n_sets][0]};
    before(b, j);
    product(b, j, i, 0, (const int[]){Z, LOW, G}, 3, N);
    op->rmsnorm(b->be, x[Z], x[Z], x[GAIN], T, s->q_lora, s->q_lora, s->q_lora, eps);
    product(b, j, i, 3, (const int[]){Q}, 1, Z);
    op->mla_append(b->be, x[LOW], x[GAIN], &run, 1, &dims, eps);
    op->mla_attend(b->be, x[O], x[Q], &j->mat[i % j->n_sets][4], &run, 1, &dims, 1 / sqrtf((float)(s->nope + s->rope)));
    op->gate_mul(b->be, x[O], x[O], x[G], (int64_t)T * s->heads * s->v);
    product(b, j, i, 5, (const int[]){Y}, 1, O);
    after(b, j);
}

static void glu(bench *b, const job *j, int i, int first, int y)
{
    product(b, j, i, first, (const int[]){GATE, UP}, 2, N);
    b->be->ops->situ_glu(b->be, j->x[GATE], j->x[GATE], j->x[UP], (int64_t)j->T * j->mat[0][first].rows, 4, 25);
    product(b, j, i, first + 2, (const int[]){y}, 1, GATE);
}

/* The experts are those of made-up choices: the router's own would all be near one another. */
static void call_moe(bench *b, const job *j, int i)
{
    const k3_ops *op = b->be->ops;
    const shape *s = &b->shape;
    const k3_ref *x = j->x;
    int T = j->T, L = s->latent;
    before(b, j);
    product(b, j, i, 0, (const int[]){LOGITS, LATENT}, 2, N);
    op->router_topk(b->be, x[IDS], x[TOP], x[LOGITS], x[NORM], T, s->experts, s->choices, 1, 1);
    glu(b, j, i, 2, X);
    op->moe_experts(b->be, x[SLOTS], x[LATENT], &j->moe[i % j->n_sets]);
    op->moe_sum(b->be, x[LATENT], x[SLOTS], x[TOP], T, s->choices, L);
    op->rmsnorm(b->be, x[LATENT], x[LATENT], x[NORM], T, L, L, L, eps);
    product(b, j, i, 5, (const int[]){Y}, 1, LATENT);
    op->add(b->be, x[Y], x[Y], x[X], (int64_t)T * s->hidden);
    after(b, j);
}

static void call_dense(bench *b, const job *j, int i)
{
    before(b, j);
    glu(b, j, i, 0, Y);
    after(b, j);
}

static void call_head(bench *b, const job *j, int i)
{
    before(b, j);
    product(b, j, i, 0, (const int[]){LOGITS}, 1, N);
}

/* ---- operands ---------------------------------------------------------------------------------------------- */

/* Activations lie one after another in the block of outputs. */
static void place(bench *b, job *j, int which, int width)
{
    j->x[which] = (k3_ref){b->pools[POOL_OUT].blocks[0], j->out[0]};
    j->out[0] += (4 * (uint64_t)j->T * (uint64_t)width + 255) / 256 * 256;
}

static job start(bench *b, const char *op, const char *text, void (*call)(bench *b, const job *j, int i), int T, int n_sets)
{
    const shape *s = &b->shape;
    job j = {.op = op, .call = call, .T = T, .n_sets = n_sets, .in_order = 1};
    snprintf(j.shape, sizeof j.shape, "%s, %d row%s", text, T, T > 1 ? "s" : "");
    j.x[STREAM] = bench_take(b, POOL_F32, 4 * SOURCES * (uint64_t)T * (uint64_t)s->hidden);
    j.x[MIX] = bench_take(b, POOL_F32, 4 * (uint64_t)s->hidden);
    j.x[NORM] = bench_take(b, POOL_F32, 4 * (uint64_t)s->hidden);
    for (int i = X; i <= Y; i++)
        place(b, &j, i, s->hidden);
    return j;
}

/* The next matrix of each set; its bytes and products count. */
static void matrix(bench *b, job *j, k3_type type, int rows, int cols)
{
    double bytes = 0;
    for (int i = 0; i < j->n_sets; i++)
        j->mat[i][j->n_mats] = bench_mat(b, type, rows, cols, i ? NULL : &bytes);
    j->n_mats++;
    j->bytes += bytes;
    j->flops += 2.0 * j->T * rows * cols;
}

static void kda(bench *b, int T)
{
    const shape *s = &b->shape;
    int C = s->heads * s->head;
    job j = start(b, "layer_kda", "KDA", call_kda, T, 3);
    for (int i = 0; i < 4; i++)
        matrix(b, &j, K3_INT8, C, s->hidden);
    matrix(b, &j, K3_BF16, s->heads, s->hidden);
    matrix(b, &j, K3_BF16, s->head, s->hidden);
    matrix(b, &j, K3_BF16, C, s->head);
    matrix(b, &j, K3_INT8, s->hidden, C);
    for (int i = Q; i <= O; i++)
        place(b, &j, i, C);
    place(b, &j, BETA, s->heads);
    place(b, &j, LOW, s->head);
    j.x[CONV] = bench_take(b, POOL_F32, 4 * WIDTH * (uint64_t)C);
    j.x[A_LOG] = bench_take(b, POOL_F32, 4 * (uint64_t)s->heads);
    j.x[DT_BIAS] = bench_take(b, POOL_F32, 4 * (uint64_t)C);
    j.x[GAIN] = bench_take(b, POOL_F32, 4 * (uint64_t)s->head);
    for (int i = 0; i < j.n_sets; i++) {
        for (int r = 0; r < STATE; r++)
            j.state[i][r] = bench_take(b, POOL_STATE, 4 * (WIDTH - 1) * (uint64_t)C);
        j.state[i][STATE] = bench_take(b, POOL_STATE, 4 * (uint64_t)C * (uint64_t)s->head);
    }
    j.bytes += 8.0 * C * s->head;
    j.flops += 7.0 * T * C * s->head;
    bench_job(b, &j);
}

static void mla(bench *b, int T)
{
    const shape *s = &b->shape;
    int context = s->context[0], width = s->kv_lora + s->rope;
    job j = start(b, "layer_mla", "MLA", call_mla, T, 6);
    snprintf(j.shape, sizeof j.shape, "MLA at context %d, %d row%s", context, T, T > 1 ? "s" : "");
    matrix(b, &j, K3_INT8, s->q_lora, s->hidden);
    matrix(b, &j, K3_INT8, width, s->hidden);
    matrix(b, &j, K3_INT8, s->heads * s->v, s->hidden);
    matrix(b, &j, K3_INT8, s->heads * (s->nope + s->rope), s->q_lora);
    matrix(b, &j, K3_INT8, s->heads * (s->nope + s->v), s->kv_lora);
    matrix(b, &j, K3_INT8, s->hidden, s->heads * s->v);
    place(b, &j, Q, s->heads * (s->nope + s->rope));
    place(b, &j, G, s->heads * s->v);
    place(b, &j, O, s->heads * s->v);
    place(b, &j, Z, s->q_lora);
    place(b, &j, LOW, width);
    j.x[GAIN] = bench_take(b, POOL_F32, 4 * (uint64_t)(s->q_lora > s->kv_lora ? s->q_lora : s->kv_lora));
    for (int i = 0; i < j.n_sets; i++)
        j.state[i][0] = bench_take(b, POOL_BF16, 2 * (uint64_t)context * (uint64_t)width);
    j.pos = context - T;
    j.bytes += 2.0 * context * width;
    j.flops += 2.0 * T * s->heads * (context - 0.5 * T) * (2.0 * s->kv_lora + s->rope);
    bench_job(b, &j);
}

static void moe(bench *b, int T)
{
    const shape *s = &b->shape;
    bench_layer l;
    job j = start(b, "layer_moe", "MoE", call_moe, T, 3);
    snprintf(j.shape, sizeof j.shape, "MoE, %d of %d, %d row%s", s->choices, s->experts, T, T > 1 ? "s" : "");
    if (bench_layer_open(b, &l, 3 * T)) {
        matrix(b, &j, K3_BF16, s->experts, s->hidden);
        matrix(b, &j, K3_INT8, s->latent, s->hidden);
        matrix(b, &j, K3_INT8, s->shared, s->hidden);
        matrix(b, &j, K3_INT8, s->shared, s->hidden);
        matrix(b, &j, K3_INT8, s->hidden, s->shared);
        matrix(b, &j, K3_INT8, s->hidden, s->latent);
        place(b, &j, LOGITS, s->experts);
        place(b, &j, IDS, s->choices);
        place(b, &j, TOP, s->choices);
        place(b, &j, LATENT, s->latent);
        place(b, &j, GATE, s->shared);
        place(b, &j, UP, s->shared);
        place(b, &j, SLOTS, s->choices * s->latent);
        for (int i = 0; i < j.n_sets; i++)
            j.moe[i] = bench_layer_moe(b, &l, T, i, l.table->address != 0);
        j.bytes += bench_wanted_bytes(b, &l, T);
        j.flops += 6.0 * T * s->choices * (double)s->latent * s->expert_inner;
        bench_job(b, &j);
    }
    bench_layer_close(b, &l);
}

static void dense(bench *b, int T)
{
    const shape *s = &b->shape;
    job j = start(b, "layer_dense", "dense", call_dense, T, 1);
    matrix(b, &j, K3_INT8, s->dense, s->hidden);
    matrix(b, &j, K3_INT8, s->dense, s->hidden);
    matrix(b, &j, K3_INT8, s->hidden, s->dense);
    place(b, &j, GATE, s->dense);
    place(b, &j, UP, s->dense);
    bench_job(b, &j);
}

static void head(bench *b)
{
    job j = start(b, "layer_head", "head", call_head, 1, 1);
    j.mat[0][0] = bench_head_mat(b, &j.bytes);
    place(b, &j, LOGITS, b->shape.vocab);
    j.flops = 2.0 * b->shape.vocab * b->shape.hidden;
    if (j.mat[0][0].data.buf) {
        bench_job(b, &j);
        b->be->memory->release(b->be, j.mat[0][0].data.buf);
    }
}

void bench_layers(bench *b)
{
    const int rows[] = {1, b->shape.prefill};
    for (int i = 0; i < 2; i++) {
        kda(b, rows[i]);
        mla(b, rows[i]);
        moe(b, rows[i]);
        dense(b, rows[i]);
    }
    head(b);
}

double bench_extrapolate(const bench *b, int T, int by_clock)
{
    static const struct {
        const char *op;
        int n, is_head;
    } parts[] = {
        {"layer_kda", N_KDA, 0}, {"layer_mla", N_MLA, 0}, {"layer_moe", N_MOE, 0}, {"layer_dense", N_DENSE, 0}, {"layer_head", 1, 1}};
    double sum = 0;
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        double t = 0;
        for (int i = 0; i < b->n_rows; i++)
            if (strcmp(b->rows[i].op, parts[p].op) == 0 && b->rows[i].T == (parts[p].is_head ? 1 : T))
                t = by_clock ? b->rows[i].wall : b->rows[i].device;
        if (t <= 0)
            return 0;
        sum += parts[p].n * t;
    }
    return sum;
}
