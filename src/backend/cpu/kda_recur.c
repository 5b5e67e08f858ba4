#include "backend/cpu/cpu.h"

/* Row after row, for one head, on state S [D(k), D(v)] f32:
 *   S = diag(alpha) S;   e = v - S^T k;   S = S + beta k e^T;   o = S^T q
 * The error comes from the DECAYED state and the output from the UPDATED one; either the other way round looks plausible. Columns of S do
 * not meet, so the loop takes COLUMNS of them through all rows. e and o add in double over d ascending, S is rounded to f32 after each
 * step. o may be v: a column of a row is read before it is written. */
void k3_kda_recur_scalar(const k3_kda_head *h)
{
    enum { COLUMNS = 32 };
    int D = h->D;
    for (int j0 = 0; j0 < D; j0 += COLUMNS) {
        int m = D - j0 < COLUMNS ? D - j0 : COLUMNS;
        for (int64_t t = 0; t < h->n; t++) {
            const float *q = h->q + t * h->row_stride, *k = h->k + t * h->row_stride, *alpha = h->decay + t * h->row_stride;
            const float *v = h->v + t * h->row_stride + j0;
            float *o = h->o + t * h->row_stride + j0;
            double e[COLUMNS], sum[COLUMNS] = {0}, beta = h->beta[t * h->beta_stride];
            for (int j = 0; j < m; j++)
                e[j] = v[j];
            for (int d = 0; d < D; d++)
                for (int j = 0; j < m; j++)
                    e[j] -= (double)k[d] * ((double)alpha[d] * h->state[(int64_t)d * D + j0 + j]);
            for (int d = 0; d < D; d++) {
                float *S = h->state + (int64_t)d * D + j0;
                for (int j = 0; j < m; j++) {
                    S[j] = (float)((double)alpha[d] * S[j] + beta * k[d] * e[j]);
                    sum[j] += (double)q[d] * S[j];
                }
            }
            for (int j = 0; j < m; j++)
                o[j] = (float)sum[j];
        }
    }
}

k3_kda_head k3_kda_head_of(const k3_kda_args *a, int64_t item)
{
    const k3_run *run = &a->runs[item / a->H];
    int64_t h = item % a->H, stride = (int64_t)a->H * a->D, at = run->row * stride + h * a->D;
    return (k3_kda_head){a->o + at,
                         a->q + at,
                         a->k + at,
                         a->v + at,
                         a->decay + at,
                         a->beta + (int64_t)run->row * a->H + h,
                         (float *)k3_host(run->state) + h * a->D * a->D,
                         run->n,
                         a->D,
                         stride,
                         a->H};
}

/* An item's state stays in cache for all rows of the run. */
static void kda_recur_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const k3_kda_args *a = arg;
    for (int64_t i = first; i < last; i++) {
        k3_kda_head head = k3_kda_head_of(a, i);
        a->cpu->k.kda_recur(&head);
    }
}

void k3_cpu_kda_recur(k3_backend *be, k3_ref o, k3_ref q, k3_ref k, k3_ref v, k3_ref alpha, k3_ref beta, const k3_run *runs, int n_runs,
                      int H, int D)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    k3_kda_args a = {cpu, k3_host(o), k3_host(q), k3_host(k), k3_host(v), k3_host(alpha), k3_host(beta), runs, H, D};
    k3_pool_run(cpu->pool, kda_recur_task, &a, (int64_t)n_runs * H, k3_cpu_grain((int64_t)D * D));
    k3_cpu_end(cpu, K3_OP_KDA_RECUR, t0, 0);
}
