/* Kimi Delta Attention (specification 3.4): gated linear attention with a state of fixed size. */
#include "model/layers.h"

#include <math.h>

static k3_run *with_window(k3_forward *f, int layer, k3_window which)
{
    for (int i = 0; i < f->n_runs; i++)
        f->runs[i].state = k3_state_window(f->pass->spans[i].state, layer, which);
    return f->runs;
}

static k3_run *with_state(k3_forward *f, int layer)
{
    for (int i = 0; i < f->n_runs; i++)
        f->runs[i].state = k3_state_kda(f->pass->spans[i].state, layer);
    return f->runs;
}

/*   q, k, v = silu(conv(W n));  q = l2norm(q) D^-1/2;  k = l2norm(k)        (v is not normalised)
 *   alpha   = exp(lower sigma(exp(A_log[h]) (f_b f_a n + dt_bias)));  beta = sigma(W_b n)
 *   o       = delta rule over S;  y = W_o (o_norm(o) sigma(W_g n))
 * The gate reads the same normed input as the projections. Shapes: q, k, v, g, alpha, o [T, H, D]; beta [T, H]. */
void k3_kda_forward(k3_forward *f, k3_ref y, k3_ref n, int layer)
{
    const k3_kda_weights *w = &f->w->layers[layer].kda;
    const k3_ops *op = f->op;
    int T = f->T, H = f->hp->kda_heads, D = f->hp->kda_dim, C = H * D, width = f->hp->conv_width;
    k3_ref b = f->small, low = k3_at(f->small, 4 * (uint64_t)f->max_rows * (uint64_t)H);

    op->matmul(f->be, (k3_proj[]){{&w->q, f->q}, {&w->k, f->k}, {&w->v, f->v}, {&w->g, f->g}, {&w->b, b}, {&w->f_a, low}}, 6, n, T);
    op->shortconv(f->be, f->o, f->q, w->q_conv, with_window(f, layer, K3_WINDOW_Q), f->n_runs, C, width);
    op->l2norm(f->be, f->q, f->o, T, H, D, 1e-6f, 1.0f / sqrtf((float)D));
    op->shortconv(f->be, f->o, f->k, w->k_conv, with_window(f, layer, K3_WINDOW_K), f->n_runs, C, width);
    op->l2norm(f->be, f->k, f->o, T, H, D, 1e-6f, 1.0f);
    op->shortconv(f->be, f->o, f->v, w->v_conv, with_window(f, layer, K3_WINDOW_V), f->n_runs, C, width);

    k3_project(f, f->z, &w->f_b, low);
    /* Prefill by chunks rounds differently from one token at a time; a backend that promises equal bits for every split recurs. */
    if (T > 1 && op->kda_chunk && !f->be->same_bits_for_any_split) {
        op->kda_gate(f->be, (k3_ref){0}, f->z, b, f->z, b, w->a_log, w->dt_bias, T, H, D, f->hp->gate_lower);
        op->kda_chunk(f->be, f->v, f->q, f->k, f->o, f->z, b, with_state(f, layer), f->n_runs, H, D);
    } else {
        op->kda_gate(f->be, f->z, (k3_ref){0}, b, f->z, b, w->a_log, w->dt_bias, T, H, D, f->hp->gate_lower);
        op->kda_recur(f->be, f->v, f->q, f->k, f->o, f->z, b, with_state(f, layer), f->n_runs, H, D);
    }
    op->gate_rmsnorm(f->be, f->o, f->v, w->o_norm, f->g, T, H, D, f->hp->rms_eps);
    k3_project(f, y, &w->o, f->o);
}
