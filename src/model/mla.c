/* Gated multi-head latent attention without positions (specification 3.5). */
#include "model/layers.h"

#include <math.h>

static k3_run *with_cache(k3_forward *f, int layer)
{
    for (int i = 0; i < f->n_runs; i++)
        f->runs[i].state = k3_state_cache(f->pass->spans[i].state, layer);
    return f->runs;
}

/*   q = W_qb rmsnorm(W_qa n);  [c, kr] = W_kva n;  cache <- [rmsnorm(c), kr]
 *   o = softmax((nope + rope)^-1/2 q . [W_k c, kr]) W_v c  over the cache, in absorbed form
 *   y = W_o (o sigma(W_g n))
 * The `rope` dims take part unrotated; leaving them out, or rotating them, is another model. The latent norms use rms_norm_eps, as the
 * public goldens and servers do (specification 10, item 1). */
void k3_mla_forward(k3_forward *f, k3_ref y, k3_ref n, int layer)
{
    const k3_mla_weights *w = &f->w->layers[layer].mla;
    const k3_ops *op = f->op;
    const k3_mla_dims *d = &f->mla_dims;
    int T = f->T, q_lora = f->hp->q_lora;
    k3_ref cq = f->z, ckv = f->small;

    op->matmul(f->be, (k3_proj[]){{&w->q_a, cq}, {&w->kv_a, ckv}, {&w->g, f->g}}, f->hp->mla_gate ? 3 : 2, n, T);
    op->rmsnorm(f->be, cq, cq, w->q_a_norm, T, q_lora, q_lora, q_lora, f->hp->rms_eps);
    k3_project(f, f->q, &w->q_b, cq);
    k3_run *runs = with_cache(f, layer);
    op->mla_append(f->be, ckv, w->kv_a_norm, runs, f->n_runs, d, f->hp->rms_eps);
    op->mla_attend(f->be, f->o, f->q, &w->kv_b, runs, f->n_runs, d, 1.0f / sqrtf((float)(d->nope + d->rope)));
    if (f->hp->mla_gate)
        op->gate_mul(f->be, f->o, f->o, f->g, (int64_t)T * d->heads * d->v);
    k3_project(f, y, &w->o, f->o);
}
