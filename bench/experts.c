/* The routed experts of one layer in the pools, and moe_experts over them. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/args/moe.h"

static void call_moe(bench *b, const job *j, int i)
{
    b->be->ops->moe_experts(b->be, bench_out(b, j, i, 0), j->x[0], &j->moe[i % j->n_sets]);
}

static uint64_t address(k3_ref ref)
{
    return ref.buf->address + ref.at;
}

/* K different experts for each row. */
static void choose(bench *b, int32_t *ids, int rows)
{
    int E = b->shape.experts, K = b->shape.choices;
    for (int t = 0; t < rows; t++)
        for (int k = 0; k < K; k++) {
            int seen = 1;
            while (seen) {
                ids[t * K + k] = (int32_t)(bench_random(b) % (uint32_t)E);
                seen = 0;
                for (int i = 0; i < k; i++)
                    seen |= ids[t * K + i] == ids[t * K + k];
            }
        }
}

int bench_layer_open(bench *b, bench_layer *l, int rows)
{
    const shape *s = &b->shape;
    size_t E = (size_t)s->experts, n_ids = (size_t)rows * (size_t)s->choices;
    *l = (bench_layer){calloc(E, sizeof *l->experts),     calloc(E, sizeof *l->list), calloc(E, sizeof *l->addresses), NULL, NULL,
                       calloc(n_ids, sizeof *l->host_ids)};
    l->table = b->be->memory->alloc(b->be, E * sizeof *l->addresses, "experts");
    l->ids = b->be->memory->alloc(b->be, n_ids * sizeof *l->host_ids, "ids");
    if (!l->experts || !l->list || !l->addresses || !l->host_ids || !l->table || !l->ids)
        return 0;
    for (size_t e = 0; e < E; e++) {
        k3_expert *x = &l->experts[e];
        *x = (k3_expert){bench_mat(b, K3_MXFP4, s->expert_inner, s->latent, NULL), bench_mat(b, K3_MXFP4, s->expert_inner, s->latent, NULL),
                         bench_mat(b, K3_MXFP4, s->latent, s->expert_inner, NULL)};
        l->addresses[e] = (struct k3_expert_address){address(x->w1.data),  address(x->w1.scale), address(x->w3.data),
                                                     address(x->w3.scale), address(x->w2.data),  address(x->w2.scale)};
        l->list[e] = x;
    }
    choose(b, l->host_ids, rows);
    b->be->memory->upload(b->be, (k3_ref){l->table, 0}, l->addresses, E * sizeof *l->addresses);
    b->be->memory->upload(b->be, (k3_ref){l->ids, 0}, l->host_ids, n_ids * sizeof *l->host_ids);
    return 1;
}

void bench_layer_close(bench *b, bench_layer *l)
{
    if (l->table)
        b->be->memory->release(b->be, l->table);
    if (l->ids)
        b->be->memory->release(b->be, l->ids);
    free(l->experts);
    free(l->list);
    free(l->addresses);
    free(l->host_ids);
}

/* What rows i * T .. i * T + T - 1 of the choices want. */
k3_moe bench_layer_moe(const bench *b, const bench_layer *l, int T, int i, int on_device)
{
    const shape *s = &b->shape;
    uint64_t first = (uint64_t)i * (uint64_t)T * (uint64_t)s->choices;
    return (k3_moe){.T = T,
                    .K = s->choices,
                    .E = s->experts,
                    .L = s->latent,
                    .I = s->expert_inner,
                    .b1 = 4,
                    .b2 = 25,
                    .ids = {l->ids, 4 * first},
                    .host_ids = on_device ? NULL : l->host_ids + first,
                    .experts = l->list,
                    .table = {on_device ? l->table : NULL, 0}};
}

/* Weight bytes of the experts that rows of set 0 want, each once. */
double bench_wanted_bytes(const bench *b, const bench_layer *l, int T)
{
    const shape *s = &b->shape;
    const k3_mat *w1 = &l->experts[0].w1, *w2 = &l->experts[0].w2;
    double each = 2.0 * w1->rows * (double)(k3_type_row_bytes(K3_MXFP4, w1->cols) + k3_type_scale_bytes(K3_MXFP4, w1->cols)) +
                  w2->rows * (double)(k3_type_row_bytes(K3_MXFP4, w2->cols) + k3_type_scale_bytes(K3_MXFP4, w2->cols));
    int n = 0;
    for (int e = 0; e < s->experts; e++) {
        int wanted = 0;
        for (int i = 0; i < T * s->choices; i++)
            wanted |= l->host_ids[i] == e;
        n += wanted;
    }
    return n * each;
}

/* The choice is on the device only and experts are found by the table of addresses, or the host has it and names them. */
void bench_moe(bench *b, int T, int on_device)
{
    const shape *s = &b->shape;
    bench_layer l;
    job j = {.op = T == 1 ? "moe_decode" : "moe_prefill", .call = call_moe, .T = T, .n_sets = T == 1 ? MAX_SETS : 1};
    snprintf(j.shape, sizeof j.shape, "%d of %d, %d row%s, ids on the %s", s->choices, s->experts, T, T == 1 ? "" : "s",
             on_device ? "device" : "host");
    if (bench_layer_open(b, &l, j.n_sets * T) && (!on_device || l.table->address)) {
        uint64_t n_ids = (uint64_t)T * (uint64_t)s->choices;
        for (int i = 0; i < j.n_sets; i++)
            j.moe[i] = bench_layer_moe(b, &l, T, i, on_device);
        j.x[0] = bench_take(b, POOL_F32, 4 * (uint64_t)T * (uint64_t)s->latent);
        j.out[0] = 4 * n_ids * (uint64_t)s->latent;
        j.bytes = bench_wanted_bytes(b, &l, T) + 4.0 * (double)T * s->latent * (1 + s->choices);
        j.flops = 6.0 * T * s->choices * (double)s->latent * s->expert_inner;
        bench_job(b, &j);
    }
    bench_layer_close(b, &l);
}
