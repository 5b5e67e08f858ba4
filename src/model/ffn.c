/* Channel mixing: the dense GLU of the first layers and of the shared experts (specification 3.6). */
#include "model/layers.h"

/* y = W_down situ(W_gate n, W_up n) */
void k3_dense_forward(k3_forward *f, k3_ref y, k3_ref n, const k3_glu_weights *w)
{
    f->op->matmul(f->be, (k3_proj[]){{&w->gate, f->gate}, {&w->up, f->up}}, 2, n, f->T);
    f->op->situ_glu(f->be, f->gate, f->gate, f->up, (int64_t)f->T * w->gate.rows, f->hp->situ_b1, f->hp->situ_b2);
    k3_project(f, y, &w->down, f->gate);
}
