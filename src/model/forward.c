#include "model/layers.h"

#include "base/os.h"

#include <stdlib.h>
#include <string.h>

static int max2(int a, int b)
{
    return a > b ? a : b;
}

enum { MAX_BUFFERS = 96 };

static k3_status new_on(k3_forward *f, k3_backend *be, k3_ref *out, uint64_t bytes, const char *what, k3_error *err)
{
    f->bytes += bytes;
    if (!be) /* it is measured only */
        return K3_OK;
    k3_buf *buf = be->memory->alloc(be, bytes, what);
    if (!buf) {
        k3_status status = be->sync(be, err);
        return status != K3_OK ? status : k3_fail(err, K3_E_NOMEM, "scratch %s: no memory for %llu bytes", what, (unsigned long long)bytes);
    }
    f->buffers[f->n_buffers++] = (k3_owned){be, buf};
    *out = (k3_ref){buf, 0};
    return K3_OK;
}

static k3_status new_ref(k3_forward *f, k3_ref *out, int64_t rows, int64_t width, const char *what, k3_error *err)
{
    return new_on(f, f->be, out, 4 * (uint64_t)rows * (uint64_t)(width ? width : 1), what, err);
}

/* Snapshots taken in a whole pass, plus the running sum. */
static int n_sources(const k3_hparams *hp)
{
    return (hp->n_layers + hp->attn_res_block - 1) / hp->attn_res_block + 1;
}

static k3_status new_scratch(k3_forward *f, k3_error *err)
{
    const k3_hparams *hp = f->hp;
    int R = f->max_rows, kda = hp->kda_heads * hp->kda_dim;
    int wide = max2(max2(kda, hp->mla_heads * (hp->nope + hp->rope)), max2(hp->mla_heads * hp->v_dim, hp->q_lora));
    int small = max2(hp->kda_heads + hp->kda_dim, hp->kv_lora + hp->rope);
    int inner = max2(hp->dense_inner, hp->shared_inner);
    K3_TRY(new_ref(f, &f->ids, R, 1, "ids", err));
    K3_TRY(new_ref(f, &f->x, R, hp->hidden, "input", err));
    K3_TRY(new_ref(f, &f->n, R, hp->hidden, "normed input", err));
    K3_TRY(new_ref(f, &f->tmp, R, hp->hidden, "sub-layer output", err));
    for (int i = 0; i < n_sources(hp); i++)
        K3_TRY(new_ref(f, &f->stream[i], R, hp->hidden, "residual stream", err));
    k3_ref *wides[] = {&f->q, &f->k, &f->v, &f->g, &f->z, &f->o};
    for (size_t i = 0; i < sizeof wides / sizeof *wides; i++)
        K3_TRY(new_ref(f, wides[i], R, wide, "projections", err));
    K3_TRY(new_ref(f, &f->small, R, small, "small projections", err));
    K3_TRY(new_ref(f, &f->gate, R, inner, "inner gate", err));
    K3_TRY(new_ref(f, &f->up, R, inner, "inner up", err));
    K3_TRY(new_ref(f, &f->router, R, hp->n_experts, "router", err));
    K3_TRY(new_ref(f, &f->top_w, R, hp->top_k, "expert weights", err));
    K3_TRY(new_ref(f, &f->expected_w, R, hp->top_k, "expected weights", err));
    K3_TRY(new_ref(f, &f->mixed, R, hp->latent, "mixture", err));
    K3_TRY(new_ref(f, &f->picked, K3_LOGIT_ROWS, hp->hidden, "rows for the head", err));
    return new_ref(f, &f->logits, K3_LOGIT_ROWS, hp->vocab, "logits", err);
}

static k3_status new_tier_scratch(k3_forward *f, k3_error *err)
{
    const k3_hparams *hp = f->hp;
    uint64_t rows = 4 * (uint64_t)f->max_rows * (uint64_t)(hp->latent ? hp->latent : hp->hidden);
    uint64_t in = k3_moe_latent_at(f->max_rows, hp->top_k) + rows, slots = rows * (uint64_t)hp->top_k;
    f->tiers = k3_experts_tiers(f->experts, &f->n_tiers, &f->i_main);
    for (int i = 0; i < f->n_tiers && hp->top_k; i++) {
        K3_TRY(new_on(f, f->tiers[i].be, &f->tier_in[i], in, "chosen experts and their input", err));
        K3_TRY(new_on(f, f->tiers[i].be, &f->tier_slots[i], slots, "expert outputs", err));
        if (i != f->i_main && i != f->n_tiers - 1 && !f->stage && !(f->stage = malloc(slots)))
            return k3_fail(err, K3_E_NOMEM, "scratch: no memory for %llu bytes", (unsigned long long)slots);
    }
    return K3_OK;
}

uint64_t k3_forward_bytes(const k3_hparams *hp, int max_rows)
{
    k3_forward f = {.hp = hp, .max_rows = max_rows};
    uint64_t rows = 4 * (uint64_t)max_rows * (uint64_t)(hp->latent ? hp->latent : hp->hidden);
    (void)new_scratch(&f, NULL);
    return f.bytes + (hp->top_k ? k3_moe_latent_at(max_rows, hp->top_k) + rows * (uint64_t)(hp->top_k + 1) : 0);
}

k3_status k3_forward_open(k3_forward **out, const k3_weights *weights, k3_experts *experts, k3_type cache_type, int max_rows, int max_spans,
                          k3_error *err)
{
    *out = NULL;
    const k3_hparams *hp = weights->hp;
    if (n_sources(hp) > K3_MAX_SOURCES)
        return k3_fail(err, K3_E_UNSUPPORTED, "attn_res_block_size %d with %d layers: %d sources, at most %d are supported",
                       hp->attn_res_block, hp->n_layers, n_sources(hp), (int)K3_MAX_SOURCES);
    k3_forward *f = calloc(1, sizeof *f);
    if (!f)
        return k3_fail(err, K3_E_NOMEM, "forward pass: out of memory");
    f->w = weights;
    f->hp = hp;
    f->be = weights->be;
    f->op = weights->be->ops;
    f->experts = experts;
    f->mla_dims = (k3_mla_dims){hp->mla_heads, hp->nope, hp->rope, hp->v_dim, hp->kv_lora, cache_type};
    f->max_rows = max_rows;
    f->max_spans = max_spans;
    f->runs = calloc((size_t)max_spans, sizeof *f->runs);
    f->host_ids = calloc((size_t)max_rows, sizeof *f->host_ids);
    f->buffers = calloc(MAX_BUFFERS, sizeof *f->buffers);
    k3_status status = f->runs && f->host_ids && f->buffers ? new_scratch(f, err) : k3_fail(err, K3_E_NOMEM, "forward pass: out of memory");
    if (status == K3_OK)
        status = new_tier_scratch(f, err);
    if (status != K3_OK) {
        k3_forward_close(f);
        return status;
    }
    *out = f;
    return K3_OK;
}

void k3_forward_close(k3_forward *f)
{
    if (!f)
        return;
    for (int i = 0; i < f->n_buffers; i++)
        f->buffers[i].be->memory->release(f->buffers[i].be, f->buffers[i].buf);
    free(f->buffers);
    free(f->stage);
    free(f->host_ids);
    free(f->runs);
    free(f);
}

static void begin(k3_forward *f, const k3_pass *pass)
{
    f->pass = pass;
    f->T = pass->n_rows;
    f->n_runs = pass->n_spans;
    for (int i = 0; i < pass->n_spans; i++)
        f->runs[i] = (k3_run){pass->spans[i].first, pass->spans[i].n, pass->spans[i].state->length, {NULL, 0}};
}

/* y = rows of an embedding that is not in memory, read some at a time. */
static k3_status embed_late(k3_forward *f, k3_ref y, const int32_t *ids, k3_error *err)
{
    int32_t places[K3_LATE_ROWS];
    for (int first = 0; first < f->T; first += K3_LATE_ROWS) {
        int n = f->T - first < K3_LATE_ROWS ? f->T - first : K3_LATE_ROWS;
        K3_TRY(k3_late_rows(f->w->late, places, ids + first, n, err));
        f->be->memory->upload(f->be, f->ids, places, 4 * (uint64_t)n);
        f->op->embed(f->be, k3_at(y, 4 * (uint64_t)first * (uint64_t)f->hp->hidden), &f->w->late->table, f->ids, n);
    }
    return K3_OK;
}

/* P = embedding rows, unscaled; injected rows replace those whose id is negative. */
static k3_status embed(k3_forward *f, k3_ref p, k3_error *err)
{
    const k3_pass *pass = f->pass;
    uint64_t row_bytes = 4 * (uint64_t)f->hp->hidden;
    int32_t *ids = f->host_ids;
    for (int t = 0; t < f->T; t++)
        ids[t] = pass->ids[t] < 0 ? 0 : pass->ids[t];
    if (f->w->embed.data.buf) {
        f->be->memory->upload(f->be, f->ids, ids, 4 * (uint64_t)f->T);
        f->op->embed(f->be, p, &f->w->embed, f->ids, f->T);
    } else {
        K3_TRY(embed_late(f, p, ids, err));
    }
    for (int t = 0; t < f->T; t++)
        if (pass->ids[t] < 0)
            f->be->memory->upload(f->be, k3_at(p, (uint64_t)t * row_bytes), pass->rows + (size_t)t * (size_t)f->hp->hidden, row_bytes);
    return K3_OK;
}

/* One layer. The running sum P is stream[*n_blocks]. At a snapshot layer the token-mixing mixture still sees the old list and the whole
 * previous sum; only then P becomes a snapshot and the sum restarts with the mixer's output. */
static k3_status layer_forward(k3_forward *f, int l, int *n_blocks, k3_error *err)
{
    const k3_layer *w = &f->w->layers[l];
    int64_t n = (int64_t)f->T * f->hp->hidden;
    K3_TRY(k3_late_layer(f->w->late, l, err));
    k3_ref x = f->stream[0];
    if (*n_blocks) {
        k3_mix(f, f->x, *n_blocks, w->attn_res);
        x = f->x;
    }
    k3_norm(f, f->n, x, w->input_norm);
    int restart = l % f->hp->attn_res_block == 0;
    if (restart)
        ++*n_blocks;
    k3_ref p = f->stream[*n_blocks], a = restart ? p : f->tmp;
    if (w->is_mla)
        k3_mla_forward(f, a, f->n, l);
    else
        k3_kda_forward(f, a, f->n, l);
    if (!restart)
        f->op->add(f->be, p, p, a, n);

    k3_mix(f, f->x, *n_blocks, w->mlp_res);
    k3_norm(f, f->n, f->x, w->post_norm);
    if (w->is_moe)
        K3_TRY(k3_moe_forward(f, f->tmp, f->n, l, err));
    else
        k3_dense_forward(f, f->tmp, f->n, &w->dense);
    f->op->add(f->be, p, p, f->tmp, n);
    k3_late_layer_done(f->w->late, l);
    return K3_OK;
}

/* Gathers the wanted rows from `first` on, as many as the head takes at once. */
static int pick_rows(k3_forward *f, const k3_mat *rows, int first)
{
    const k3_pass *pass = f->pass;
    int n = pass->n_want - first < K3_LOGIT_ROWS ? pass->n_want - first : K3_LOGIT_ROWS;
    f->be->memory->upload(f->be, f->ids, pass->want + first, 4 * (uint64_t)n);
    f->op->embed(f->be, f->picked, rows, f->ids, n);
    return n;
}

/* Logits by a head that is not in memory: each block of it comes once, for all wanted rows. */
static k3_status head_late(k3_forward *f, const k3_mat *rows, k3_error *err)
{
    const k3_late *late = f->w->late;
    for (int b = 0, id = 0; b < late->n_blocks; id += late->blocks[b++].rows) {
        uint64_t bytes = 4 * (uint64_t)late->blocks[b].rows;
        K3_TRY(k3_trunk_wait(late->stream, K3_TRUNK_HEAD, err));
        for (int first = 0, n; first < f->pass->n_want; first += n) {
            n = pick_rows(f, rows, first);
            f->op->matmul(f->be, &(k3_proj){&late->blocks[b], f->logits}, 1, f->picked, n);
            for (int i = 0; i < n; i++)
                f->be->memory->download(f->be, f->pass->logits + (size_t)(first + i) * (size_t)f->hp->vocab + id,
                                        k3_at(f->logits, (uint64_t)i * bytes), bytes);
        }
        k3_trunk_done(late->stream, K3_TRUNK_HEAD);
    }
    return f->be->sync(f->be, err);
}

/* Logits of the wanted rows, or picks from them: final mix and norm of all rows, then the head on the gathered ones, a block at a time. */
static k3_status head(k3_forward *f, int n_blocks, k3_error *err)
{
    const k3_pass *pass = f->pass;
    int C = f->hp->hidden;
    k3_mix(f, f->x, n_blocks, f->w->out_res);
    k3_norm(f, f->n, f->x, f->w->norm);
    k3_mat rows = {K3_F32, f->T, C, f->n, {NULL, 0}, 0};
    if (f->w->late && f->w->late->n_blocks)
        return head_late(f, &rows, err);
    for (int first = 0; first < pass->n_want; first += K3_LOGIT_ROWS) {
        int n = pick_rows(f, &rows, first);
        f->op->matmul(f->be, &(k3_proj){&f->w->head, f->logits}, 1, f->picked, n);
        if (pass->draws && f->op->sample) {
            f->op->sample(f->be, f->ids, f->logits, pass->draws + first, n, f->hp->vocab);
            f->be->memory->download(f->be, pass->picks + first, f->ids, 4 * (uint64_t)n);
        } else {
            f->be->memory->download(f->be, pass->logits + (size_t)first * (size_t)f->hp->vocab, f->logits,
                                    4 * (uint64_t)n * (uint64_t)f->hp->vocab);
        }
    }
    return f->be->sync(f->be, err);
}

/* ---- figures -------------------------------------------------------------------------------------------------------- */

static uint64_t ops_ns(k3_backend *be)
{
    k3_op_stat stats[64];
    uint64_t ns = 0;
    for (int i = 0, n = be->stats(be, stats, 64, 0); i < n && i < 64; i++)
        ns += stats[i].nanoseconds;
    return ns;
}

static k3_status timed_head(k3_forward *f, int n_blocks, k3_error *err)
{
    k3_trunk_stat before, after;
    uint64_t start = k3_os_nanoseconds(), ops = ops_ns(f->be);
    k3_late_stats(f->w->late, &before, 0);
    k3_status status = head(f, n_blocks, err);
    k3_late_stats(f->w->late, &after, 0);
    f->stat.head_ns += k3_os_nanoseconds() - start - (after.wait_ns - before.wait_ns);
    f->stat.head_ops_ns += ops_ns(f->be) - ops;
    return status;
}

void k3_forward_stats(k3_forward *f, k3_forward_stat *out, int reset)
{
    *out = f->stat;
    if (reset)
        f->stat = (k3_forward_stat){0};
}

static k3_status run(k3_forward *f, const k3_pass *pass, k3_error *err)
{
    int n_blocks = 0;
    begin(f, pass);
    K3_TRY(k3_late_begin(f->w->late, pass->n_want > 0, err));
    K3_TRY(embed(f, f->stream[0], err));
    for (int l = 0; l < f->hp->n_layers; l++) {
        if (pass->is_cancelled && atomic_load(pass->is_cancelled)) {
            K3_TRY(f->be->sync(f->be, err));
            return k3_fail(err, K3_E_CANCELLED, "pass of %d rows: cancelled before layer %d", pass->n_rows, l);
        }
        K3_TRY(layer_forward(f, l, &n_blocks, err));
    }
    return pass->n_want ? timed_head(f, n_blocks, err) : f->be->sync(f->be, err);
}

k3_status k3_forward_run(k3_forward *f, const k3_pass *pass, k3_error *err)
{
    if (pass->n_rows < 1 || pass->n_rows > f->max_rows || pass->n_spans < 1 || pass->n_spans > f->max_spans)
        return k3_fail(err, K3_E_INVALID, "pass of %d rows in %d sequences: 1 to %d rows in 1 to %d sequences wanted", pass->n_rows,
                       pass->n_spans, f->max_rows, f->max_spans);
    uint64_t start = k3_os_nanoseconds();
    k3_status status = run(f, pass, err);
    f->stat.ns += k3_os_nanoseconds() - start;
    f->stat.passes++;
    f->stat.rows += (uint64_t)pass->n_rows;
    for (int i = 0; i < pass->n_spans && status == K3_OK; i++)
        pass->spans[i].state->length += pass->spans[i].n;
    return status;
}
