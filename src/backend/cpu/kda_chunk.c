#include "backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* Per chunk of n <= 64 rows, with G_t = sum_{s<=t} g_s from the chunk's start:
 *   A[t,s] = beta_t sum_d k_t k_s exp(G_t - G_s)                         s < t
 *   E_t    = beta_t (v_t - (k_t exp(G_t)) S0) - sum_{s<t} A[t,s] E_s     the rows of (I + A)^-1 diag(beta) (V - (K exp G) S0)
 *   B[t,s] = sum_d q_t k_s exp(G_t - G_s)                                s <= t
 *   o_t    = (q_t exp(G_t)) S0 + sum_{s<=t} B[t,s] E_s
 *   S      = diag(exp G_last) S0 + sum_s (k_s exp(G_last - G_s)) E_s^T
 * Every exponent is a difference with t >= s, so it is never positive; the product exp(G_t) exp(-G_s) would overflow within 18 rows of
 * strong decay. Computed in double; the state is rounded to f32 once a chunk. */

size_t k3_kda_chunk_scratch(int D)
{
    return (size_t)(2 * K3_CHUNK + 2) * (size_t)D;
}

typedef struct chunk {
    const k3_kda_head *h;
    int64_t t0; /* first row */
    int n;
    double *G, *E;     /* [n, D] */
    double *row, *sum; /* [D] */
} chunk;

/* sum += weight * S0^T x, where x_d = a_d exp(G_d): what the chunk's first state contributes to a row. */
static void add_from_state(double *sum, const chunk *c, const float *a, const double *G, double weight)
{
    int D = c->h->D;
    for (int d = 0; d < D; d++) {
        double x = weight * a[d] * exp(G[d]);
        for (int j = 0; j < D; j++)
            sum[j] += x * c->h->state[(int64_t)d * D + j];
    }
}

/* sum += weight * sum_s (sum_d a_d k_s,d exp(G_t,d - G_s,d)) E_s for s < end. */
static void add_from_rows(double *sum, const chunk *c, const float *a, int t, int end, double weight)
{
    int D = c->h->D;
    for (int s = 0; s < end; s++) {
        const float *k = c->h->k + (c->t0 + s) * c->h->row_stride;
        double dot = 0;
        for (int d = 0; d < D; d++)
            dot += (double)a[d] * k[d] * exp(c->G[t * D + d] - c->G[s * D + d]);
        for (int j = 0; j < D; j++)
            sum[j] += weight * dot * c->E[s * D + j];
    }
}

static void do_chunk(const chunk *c)
{
    const k3_kda_head *h = c->h;
    int D = h->D, n = c->n;
    for (int t = 0; t < n; t++) {
        const float *g = h->decay + (c->t0 + t) * h->row_stride, *k = h->k + (c->t0 + t) * h->row_stride,
                    *v = h->v + (c->t0 + t) * h->row_stride;
        double *G = c->G + t * D, *E = c->E + t * D, beta = h->beta[(c->t0 + t) * h->beta_stride];
        for (int d = 0; d < D; d++) {
            G[d] = g[d] + (t ? G[d - D] : 0.0);
            E[d] = beta * v[d];
        }
        add_from_state(E, c, k, G, -beta);
        add_from_rows(E, c, k, t, t, -beta);
    }
    for (int t = 0; t < n; t++) {
        const float *q = h->q + (c->t0 + t) * h->row_stride;
        memset(c->sum, 0, (size_t)D * sizeof *c->sum);
        add_from_state(c->sum, c, q, c->G + t * D, 1);
        add_from_rows(c->sum, c, q, t, t + 1, 1);
        for (int j = 0; j < D; j++)
            h->o[(c->t0 + t) * h->row_stride + j] = (float)c->sum[j];
    }
    const double *last = c->G + (n - 1) * D;
    for (int d = 0; d < D; d++) {
        for (int j = 0; j < D; j++)
            c->row[j] = exp(last[d]) * h->state[(int64_t)d * D + j];
        for (int s = 0; s < n; s++) {
            double x = h->k[(c->t0 + s) * h->row_stride + d] * exp(last[d] - c->G[s * D + d]);
            for (int j = 0; j < D; j++)
                c->row[j] += x * c->E[s * D + j];
        }
        for (int j = 0; j < D; j++)
            h->state[(int64_t)d * D + j] = (float)c->row[j];
    }
}

void k3_kda_chunk_scalar(const k3_kda_head *h, double *scratch)
{
    int D = h->D;
    chunk c = {h, 0, 0, scratch, scratch + K3_CHUNK * D, scratch + 2 * K3_CHUNK * D, scratch + (2 * K3_CHUNK + 1) * D};
    for (; c.t0 < h->n; c.t0 += K3_CHUNK) {
        c.n = h->n - c.t0 < K3_CHUNK ? (int)(h->n - c.t0) : K3_CHUNK;
        do_chunk(&c);
    }
}

typedef struct kda_chunk_args {
    k3_kda_args of;
    double *scratch;
} kda_chunk_args;

static void kda_chunk_task(void *arg, int64_t first, int64_t last, int thread)
{
    const kda_chunk_args *a = arg;
    for (int64_t i = first; i < last; i++) {
        k3_kda_head head = k3_kda_head_of(&a->of, i);
        a->of.cpu->k.kda_chunk(&head, a->scratch + (size_t)thread * k3_kda_chunk_scratch(head.D));
    }
}

void k3_cpu_kda_chunk(k3_backend *be, k3_ref o, k3_ref q, k3_ref k, k3_ref v, k3_ref g, k3_ref beta, const k3_run *runs, int n_runs, int H,
                      int D)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    double *scratch = k3_cpu_scratch(cpu, (size_t)cpu->n_threads * k3_kda_chunk_scratch(D) * sizeof *scratch);
    if (!scratch)
        return;
    kda_chunk_args a = {{cpu, k3_host(o), k3_host(q), k3_host(k), k3_host(v), k3_host(g), k3_host(beta), runs, H, D}, scratch};
    k3_pool_run(cpu->pool, kda_chunk_task, &a, (int64_t)n_runs * H, 1);
    k3_cpu_end(cpu, K3_OP_KDA_CHUNK, t0, 0);
}
