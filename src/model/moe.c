/* Channel mixing by the latent mixture of experts (specification 3.7):
 *
 *   ids, w = router_topk(W_r n)                        biased scores choose, unbiased ones weigh
 *   y      = W_up rmsnorm(sum_k w_k expert_k(W_down n)) + shared(n)
 *
 * The norm is on the sum, not on each expert's output. Router, latent projection and shared experts read the same normed input.
 *
 * Who computes expert_k is dealt out by the store: each tier writes the slots of its pairs in memory of its own, and they meet in the main
 * backend's slots, where they are summed in rank order. So it changes the rounding of a slot who computed it, and nothing else. */
#include "model/layers.h"

/* Ids and latent rows, which lie together, come to the host in one go: one wait serves both. */
static k3_status fetch(k3_forward *f, k3_ref z, uint64_t z_at, uint64_t z_bytes, k3_error *err)
{
    const k3_memory_ops *memory = f->be->memory;
    k3_ref main = f->tier_in[f->i_main], host = f->tier_in[f->n_tiers - 1];
    if (!f->hp->latent && f->n_tiers > 1)
        memory->copy(f->be, k3_at(main, z_at), z, z_bytes);
    if (main.buf != host.buf)
        memory->download(f->be, k3_host(host), main, z_at + z_bytes);
    return f->be->sync(f->be, err);
}

/* The router's choice from its logits, and the weights of what it chose. */
static void pick(k3_forward *f, k3_ref ids, k3_ref weights, const k3_moe_weights *w)
{
    const k3_hparams *hp = f->hp;
    f->op->router_topk(f->be, ids, weights, f->router, w->bias, f->T, hp->n_experts, hp->top_k, hp->renormalize, hp->routed_scale);
}

/* What the layer after this one will choose, as told by the stream before this layer's experts are in it: that layer's own mixture, norm
 * and router on the sources that are there by now. It costs a hundredth of a layer, and names five of six choices (docs/performance.md). */
static void expect_next(k3_forward *f, int layer)
{
    const k3_layer *w = &f->w->layers[layer + 1];
    k3_mix(f, f->x, layer / f->hp->attn_res_block + 1, w->mlp_res);
    k3_norm(f, f->x, f->x, w->post_norm);
    k3_project(f, f->router, &w->moe.router, f->x);
    pick(f, k3_at(f->tier_in[f->i_main], k3_moe_expected_at(f->T, f->hp->top_k)), f->expected_w, &w->moe);
}

/* Nobody needs to know where all experts are in memory. A router that comes with its layer is not there yet; then the drive is busy with
 * that anyway. */
static int can_expect(const k3_forward *f, int layer)
{
    const k3_late *late = f->w->late;
    return k3_experts_may_guess(f->experts, layer + 1) && !(late && late->stream && layer + 1 >= late->first_layer);
}

/* Where a tier has ids and latent rows. */
static k3_ref latent_of(const k3_forward *f, int i_tier, const k3_moe *moe, k3_ref z)
{
    return i_tier == f->i_main ? z : k3_at(f->tier_in[i_tier], k3_moe_latent_at(moe->T, moe->K));
}

/* Starts every device that has pairs and waits for none. */
static void start(k3_forward *f, k3_moe *moe, k3_ref z)
{
    uint64_t bytes = k3_moe_latent_at(moe->T, moe->K) + 4 * (uint64_t)moe->T * (uint64_t)moe->L;
    k3_ref host = f->tier_in[f->n_tiers - 1];
    for (int i = 0; i < f->n_tiers - 1; i++) {
        const k3_tier *tier = &f->tiers[i];
        k3_backend *be = tier->be;
        int is_main = i == f->i_main;
        if (tier->n_pairs && !is_main && f->tier_in[i].buf != host.buf)
            be->memory->upload(be, f->tier_in[i], k3_host(host), bytes);
        moe->ids = f->tier_in[i];
        moe->experts = tier->view;
        if (tier->n_pairs)
            be->ops->moe_experts(be, f->tier_slots[i], latent_of(f, i, moe, z), moe);
        if (tier->n_pairs || is_main)
            be->submit(be);
    }
}

/* The CPU, which comes last, computes experts as they arrive from disk; those that are there already come first. */
static k3_status compute_arrivals(k3_forward *f, k3_moe *moe, k3_ref z, k3_error *err)
{
    int i = f->n_tiers - 1, n = 0;
    k3_backend *be = f->tiers[i].be;
    moe->ids = f->tier_in[i];
    moe->experts = f->tiers[i].view;
    for (;;) {
        K3_TRY(k3_experts_next(f->experts, &n, err));
        if (!n)
            return K3_OK;
        be->ops->moe_experts(be, f->tier_slots[i], latent_of(f, i, moe, z), moe);
    }
}

/* Brings a tier's slots, whole runs of them, to the main backend. */
static k3_status bring_slots(k3_forward *f, int i_tier, const k3_moe *moe, k3_error *err)
{
    const k3_tier *tier = &f->tiers[i_tier];
    uint64_t slot = 4 * (uint64_t)moe->L;
    int n = moe->T * moe->K;
    const char *from = f->stage;
    if (i_tier == f->n_tiers - 1)
        from = k3_host(f->tier_slots[i_tier]);
    else
        tier->be->memory->download(tier->be, f->stage, f->tier_slots[i_tier], (uint64_t)n * slot);
    K3_TRY(tier->be->sync(tier->be, err));
    for (int first = 0, end; first < n; first = end + 1) {
        for (end = first; end < n && tier->mine[moe->host_ids[end]]; end++)
            ;
        if (end > first)
            f->be->memory->upload(f->be, k3_at(f->tier_slots[f->i_main], (uint64_t)first * slot), from + (uint64_t)first * slot,
                                  (uint64_t)(end - first) * slot);
    }
    return K3_OK;
}

/* Unless the main device has every expert, the router's choice goes to the store: the only thing that comes back inside a pass. */
static k3_status choose(k3_forward *f, k3_ref z, k3_moe *moe, int layer, k3_error *err)
{
    int T = moe->T, K = moe->K, is_guessed = can_expect(f, layer), is_asked = f->be->is_device;
    uint64_t z_bytes = f->n_tiers > 1 ? 4 * (uint64_t)T * (uint64_t)moe->L : 0;
    k3_ref host = f->tier_in[f->n_tiers - 1];
    /* A device is asked once; elsewhere what is wanted is read first, and the guess is made meanwhile. */
    if (is_guessed && is_asked)
        expect_next(f, layer);
    K3_TRY(fetch(f, z, k3_moe_latent_at(T, K), z_bytes, err));
    moe->host_ids = k3_host(host);
    K3_TRY(k3_experts_assign(f->experts, layer, moe->host_ids, T, K, err));
    if (is_guessed && !is_asked)
        expect_next(f, layer);
    if (is_guessed)
        k3_experts_guess(f->experts, layer + 1, k3_host(k3_at(host, k3_moe_expected_at(T, K))), T, K);
    return K3_OK;
}

/* Fills the main backend's slots. */
static k3_status compute(k3_forward *f, k3_ref z, k3_moe *moe, k3_error *err)
{
    start(f, moe, z);
    K3_TRY(compute_arrivals(f, moe, z, err));
    for (int i = 0; i < f->n_tiers; i++)
        if (i != f->i_main && f->tiers[i].n_pairs)
            K3_TRY(bring_slots(f, i, moe, err));
    return k3_experts_promote(f->experts, err);
}

k3_status k3_moe_forward(k3_forward *f, k3_ref y, k3_ref n, int layer, k3_error *err)
{
    const k3_moe_weights *w = &f->w->layers[layer].moe;
    const k3_hparams *hp = f->hp;
    const k3_ops *op = f->op;
    int T = f->T, K = hp->top_k, L = hp->latent;
    k3_ref ids = f->tier_in[f->i_main], z = L ? k3_at(ids, k3_moe_latent_at(T, K)) : n, slots = f->tier_slots[f->i_main];
    k3_moe moe = {.T = T, .K = K, .E = hp->n_experts, .L = L ? L : hp->hidden, .I = hp->expert_inner, .b1 = hp->situ_b1, .b2 = hp->situ_b2};

    /* The CPU alone needs the latent rows only when the experts are being read. */
    int is_late = L && f->n_tiers == 1;
    op->matmul(f->be, (k3_proj[]){{&w->router, f->router}, {&w->down, z}}, L && !is_late ? 2 : 1, n, T);
    pick(f, ids, f->top_w, w);
    moe.ids = ids;
    int is_whole = k3_experts_whole(f->experts, &moe, layer);
    if (!is_whole)
        K3_TRY(choose(f, z, &moe, layer, err));
    if (is_late)
        op->matmul(f->be, &(k3_proj){&w->down, z}, 1, n, T);
    /* Before the routed experts: the shared ones are computed while others compute theirs, or while the drive reads. */
    if (hp->n_shared)
        k3_dense_forward(f, f->x, n, &w->shared);
    if (is_whole)
        op->moe_experts(f->be, slots, z, &moe);
    else
        K3_TRY(compute(f, z, &moe, err));
    op->moe_sum(f->be, L ? f->mixed : y, slots, f->top_w, T, K, moe.L);
    if (L) {
        if (w->norm.buf)
            op->rmsnorm(f->be, f->mixed, f->mixed, w->norm, T, L, L, L, hp->rms_eps);
        k3_project(f, y, &w->up, f->mixed);
    }
    if (hp->n_shared)
        op->add(f->be, y, y, f->x, (int64_t)T * hp->hidden);
    return K3_OK;
}
