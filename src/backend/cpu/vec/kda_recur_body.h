/* kda_recur on vectors of columns; include after a vec header. Columns of the state do not meet, so a block of them goes through all rows
 * with its errors and outputs in registers; each is one chain of fused multiply-adds over d ascending. */
#include "backend/cpu/kernels.h"

enum { MAX_VECTORS = 8 };

/* Columns j .. of one row; `left` of them exist if n_vectors is 1, all if it is more. */
static inline __attribute__((always_inline)) void step(const k3_kda_head *h, int64_t t, int j, int left, const int n_vectors)
{
    const float *q = h->q + t * h->row_stride, *k = h->k + t * h->row_stride, *alpha = h->decay + t * h->row_stride;
    const float *v = h->v + t * h->row_stride + j;
    float *o = h->o + t * h->row_stride + j, beta = h->beta[t * h->beta_stride];
    vf e[MAX_VECTORS], sum[MAX_VECTORS];
    for (int i = 0; i < n_vectors; i++) {
        e[i] = vf_load_upto(v + i * VF_LANES, left);
        sum[i] = vf_zero();
    }
    for (int d = 0; d < h->D; d++) {
        const float *S = h->state + (int64_t)d * h->D + j;
        vf key = vf_set(k[d] * alpha[d]);
        for (int i = 0; i < n_vectors; i++)
            e[i] = vf_fnma(key, vf_load_upto(S + i * VF_LANES, left), e[i]);
    }
    for (int d = 0; d < h->D; d++) {
        float *S = h->state + (int64_t)d * h->D + j;
        vf decay = vf_set(alpha[d]), key = vf_set(beta * k[d]), query = vf_set(q[d]);
        for (int i = 0; i < n_vectors; i++) {
            vf updated = vf_fma(key, e[i], vf_mul(decay, vf_load_upto(S + i * VF_LANES, left)));
            vf_store_upto(S + i * VF_LANES, updated, left);
            sum[i] = vf_fma(query, updated, sum[i]);
        }
    }
    for (int i = 0; i < n_vectors; i++)
        vf_store_upto(o + i * VF_LANES, sum[i], left);
}

void K3_KERNEL(kda_recur)(const k3_kda_head *h)
{
    int j = 0;
    for (; j + MAX_VECTORS * VF_LANES <= h->D; j += MAX_VECTORS * VF_LANES)
        for (int64_t t = 0; t < h->n; t++)
            step(h, t, j, VF_LANES, MAX_VECTORS);
    for (; j + MAX_VECTORS / 2 * VF_LANES <= h->D; j += MAX_VECTORS / 2 * VF_LANES)
        for (int64_t t = 0; t < h->n; t++)
            step(h, t, j, VF_LANES, MAX_VECTORS / 2);
    for (; j < h->D; j += VF_LANES)
        for (int64_t t = 0; t < h->n; t++)
            step(h, t, j, h->D - j, 1);
}
