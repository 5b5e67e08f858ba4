/* Channel mixing: the dense GLU of the first layers and of the shared experts (specification 3.6), and the latent mixture of experts
 * (specification 3.7). */
#include "model/layers.h"

/* y = W_down situ(W_gate n, W_up n) */
void k3_dense_forward(k3_forward *f, k3_ref y, k3_ref n, const k3_glu_weights *w)
{
    f->op->matmul(f->be, (k3_proj[]){{&w->gate, f->gate}, {&w->up, f->up}}, 2, n, f->T);
    f->op->situ_glu(f->be, f->gate, f->gate, f->up, (int64_t)f->T * w->gate.rows, f->hp->situ_b1, f->hp->situ_b2);
    k3_project(f, y, &w->down, f->gate);
}

/*   ids, w = router_topk(W_r n)                        biased scores choose, unbiased ones weigh
 *   y      = W_up rmsnorm(sum_k w_k expert_k(W_down n)) + shared(n)
 * The norm is on the sum, not on each expert's output. Router, latent projection and shared experts read the same normed input. */
k3_status k3_moe_forward(k3_forward *f, k3_ref y, k3_ref n, int layer, k3_error *err)
{
    const k3_moe_weights *w = &f->w->layers[layer].moe;
    const k3_hparams *hp = f->hp;
    const k3_ops *op = f->op;
    int T = f->T, K = hp->top_k, L = hp->latent;
    k3_ref z = L ? f->latent : n;

    op->matmul(f->be, (k3_proj[]){{&w->router, f->router}, {&w->down, f->latent}}, L ? 2 : 1, n, T);
    op->router_topk(f->be, f->top_ids, f->top_w, f->router, w->bias, T, hp->n_experts, K, hp->renormalize, hp->routed_scale);
    f->be->memory->download(f->be, f->host_ids, f->top_ids, 4 * (uint64_t)T * (uint64_t)K);
    K3_TRY(f->be->sync(f->be, err));
    const k3_expert *const *table;
    K3_TRY(k3_experts_acquire(f->experts, &table, layer, f->host_ids, T * K, err));

    int width = L ? L : hp->hidden;
    k3_moe moe = {T, K, hp->n_experts, width, hp->expert_inner, hp->situ_b1, hp->situ_b2, f->top_ids, f->host_ids, table, {NULL, 0}};
    op->moe_experts(f->be, f->slots, z, &moe);
    op->moe_sum(f->be, L ? f->mixed : y, f->slots, f->top_w, T, K, width);
    if (L) {
        if (w->norm.buf)
            op->rmsnorm(f->be, f->mixed, f->mixed, w->norm, T, L, L, L, hp->rms_eps);
        k3_project(f, y, &w->up, f->mixed);
    }
    if (hp->n_shared) {
        k3_dense_forward(f, f->x, n, &w->shared);
        op->add(f->be, y, y, f->x, (int64_t)T * hp->hidden);
    }
    return K3_OK;
}
