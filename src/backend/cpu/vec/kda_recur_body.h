/* kda_recur on vectors of columns; include after a vec header. Columns of the state do not meet, so a block of them goes through all rows
 * with its errors and outputs in registers; each is one chain of fused multiply-adds over d ascending, whichever way it is computed. */
#include "backend/cpu/kernels.h"

/* One row: vectors of columns side by side. Many rows: a block of columns and the factors of a row stay in the first-level cache. */
enum { ROW_VECTORS = 8, BLOCK_COLUMNS = 32, BLOCK_VECTORS = BLOCK_COLUMNS / VF_LANES, BLOCK_D = 128, BLOCK_T = 32 };

/* Columns j .. of one row; `left` of them exist if n_vectors is 1, all if it is more. */
static inline __attribute__((always_inline)) void step(const k3_kda_head *h, int64_t t, int j, int left, const int n_vectors)
{
    const float *q = h->q + t * h->row_stride, *k = h->k + t * h->row_stride, *alpha = h->decay + t * h->row_stride;
    const float *v = h->v + t * h->row_stride + j;
    float *o = h->o + t * h->row_stride + j, beta = h->beta[t * h->beta_stride];
    vf e[ROW_VECTORS], sum[ROW_VECTORS];
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

static void columns_from(const k3_kda_head *h, int j)
{
    for (; j + ROW_VECTORS * VF_LANES <= h->D; j += ROW_VECTORS * VF_LANES)
        for (int64_t t = 0; t < h->n; t++)
            step(h, t, j, VF_LANES, ROW_VECTORS);
    for (; j + ROW_VECTORS / 2 * VF_LANES <= h->D; j += ROW_VECTORS / 2 * VF_LANES)
        for (int64_t t = 0; t < h->n; t++)
            step(h, t, j, VF_LANES, ROW_VECTORS / 2);
    for (; j < h->D; j += VF_LANES)
        for (int64_t t = 0; t < h->n; t++)
            step(h, t, j, h->D - j, 1);
}

/* Rows of one head side by side, with what is multiplied: neighbours lie far apart in the tensors, on few sets of a cache. */
typedef struct rows_of_head {
    int n;
    float decay[BLOCK_T][BLOCK_D], key[BLOCK_T][BLOCK_D], query[BLOCK_T][BLOCK_D]; /* alpha, beta k, q */
    float error_key[BLOCK_T][BLOCK_D];                                             /* k alpha */
} rows_of_head;

static void gather(rows_of_head *rows, const k3_kda_head *h, int64_t t0)
{
    rows->n = h->n - t0 < BLOCK_T ? (int)(h->n - t0) : BLOCK_T;
    for (int t = 0; t < rows->n; t++) {
        int64_t at = (t0 + t) * h->row_stride;
        vf beta = vf_set(h->beta[(t0 + t) * h->beta_stride]);
        for (int d = 0; d < h->D; d += VF_LANES) {
            int left = h->D - d;
            vf k = vf_load_upto(h->k + at + d, left), alpha = vf_load_upto(h->decay + at + d, left);
            vf_store_upto(&rows->decay[t][d], alpha, left);
            vf_store_upto(&rows->key[t][d], vf_mul(beta, k), left);
            vf_store_upto(&rows->query[t][d], vf_load_upto(h->q + at + d, left), left);
            vf_store_upto(&rows->error_key[t][d], vf_mul(k, alpha), left);
        }
    }
}

/* Asks for a row of the next block of rows: no cache foresees steps of that size. */
static inline __attribute__((always_inline)) void fetch(const k3_kda_head *h, int64_t t)
{
    const float *from[5] = {h->q, h->k, h->decay, h->v, h->o};
    for (int i = 0; i < 5; i++)
        for (int d = 0; d < h->D; d += 64 / (int)sizeof(float))
            vf_prefetch(from[i] + t * h->row_stride + d);
}

/* One row on a block of columns: o, and the errors of the next row, whose keys come in next_key. */
static inline __attribute__((always_inline)) void update(float (*S)[BLOCK_COLUMNS], vf *e, vf *sum, const rows_of_head *rows, int t, int D,
                                                         const float *next_key, const int has_next)
{
    vf next[BLOCK_VECTORS];
    for (int i = 0; i < BLOCK_VECTORS; i++) {
        next[i] = sum[i];
        sum[i] = vf_zero();
    }
    for (int d = 0; d < D; d++) {
        vf decay = vf_set(rows->decay[t][d]), key = vf_set(rows->key[t][d]), query = vf_set(rows->query[t][d]);
        for (int i = 0; i < BLOCK_VECTORS; i++) {
            vf updated = vf_fma(key, e[i], vf_mul(decay, vf_load(&S[d][i * VF_LANES])));
            vf_store(&S[d][i * VF_LANES], updated);
            sum[i] = vf_fma(query, updated, sum[i]);
            if (has_next)
                next[i] = vf_fnma(vf_set(next_key[d]), updated, next[i]);
        }
    }
    for (int i = 0; i < BLOCK_VECTORS; i++)
        e[i] = next[i];
}

/* Columns j .. j + BLOCK_COLUMNS - 1 through the rows from t0 on. While a row updates the state, the next one takes its errors from it, so
 * that each element is loaded and stored once a row. */
static void block(const k3_kda_head *h, const rows_of_head *rows, int64_t t0, int j)
{
    _Alignas(64) float S[BLOCK_D][BLOCK_COLUMNS];
    const float *v = h->v + t0 * h->row_stride + j;
    float *o = h->o + t0 * h->row_stride + j;
    vf e[BLOCK_VECTORS], sum[BLOCK_VECTORS];
    for (int i = 0; i < BLOCK_VECTORS; i++)
        e[i] = vf_load(v + i * VF_LANES);
    for (int d = 0; d < h->D; d++)
        for (int i = 0; i < BLOCK_VECTORS; i++) {
            vf s = vf_load(h->state + (int64_t)d * h->D + j + i * VF_LANES);
            vf_store(&S[d][i * VF_LANES], s);
            e[i] = vf_fnma(vf_set(rows->error_key[0][d]), s, e[i]);
        }
    for (int t = 0; t < rows->n; t++, o += h->row_stride) {
        v += h->row_stride;
        if (j + 2 * BLOCK_COLUMNS > h->D && t0 + t + BLOCK_T < h->n)
            fetch(h, t0 + t + BLOCK_T);
        for (int i = 0; i < BLOCK_VECTORS; i++)
            sum[i] = t + 1 < rows->n ? vf_load(v + i * VF_LANES) : vf_zero();
        if (t + 1 < rows->n)
            update(S, e, sum, rows, t, h->D, rows->error_key[t + 1], 1);
        else
            update(S, e, sum, rows, t, h->D, NULL, 0);
        for (int i = 0; i < BLOCK_VECTORS; i++)
            vf_store(o + i * VF_LANES, sum[i]);
    }
    for (int d = 0; d < h->D; d++)
        for (int i = 0; i < BLOCK_VECTORS; i++)
            vf_store(h->state + (int64_t)d * h->D + j + i * VF_LANES, vf_load(&S[d][i * VF_LANES]));
}

void K3_KERNEL(kda_recur)(const k3_kda_head *h)
{
    int j = 0;
    if (h->n > 1 && h->D <= BLOCK_D) {
        rows_of_head rows;
        for (int64_t t0 = 0; t0 < h->n; t0 += BLOCK_T) {
            gather(&rows, h, t0);
            for (j = 0; j + BLOCK_COLUMNS <= h->D; j += BLOCK_COLUMNS)
                block(h, &rows, t0, j);
        }
    }
    columns_from(h, j);
}
