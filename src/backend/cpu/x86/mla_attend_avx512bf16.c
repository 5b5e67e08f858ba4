/* Attention over a bf16 cache with dot products of bf16 pairs (AVX-512 BF16), sums in f32: twice the products of a vector of f32. Queries
 * and weights are rounded to bf16, to nearest even; the weights that are summed are the rounded ones. */
#include "backend/cpu/x86/vec_avx512.h"

#include "backend/cpu/vec/vec_math.h"

#include "backend/cpu/kernels.h"

#include <math.h>
#include <string.h>

/* Heads and vectors of a block of running sums; cache rows, or channels of values, side by side; dwords of a vector. */
enum { HEADS = 6, VECTORS = 4, SIDE = VECTORS * VF_LANES, PAIRS = K3_ATTEND_TILE / 2 };

#define K3_INLINE static inline __attribute__((always_inline))

static int pairs_of(int width)
{
    return (width + 1) / 2;
}

/* keys [K3_ATTEND_TILE / SIDE][pairs of channels][SIDE rows], values [blocks of SIDE channels][pairs of rows][SIDE channels]; dwords. */
static const uint32_t *values_of(const uint32_t *tile, int width)
{
    return tile + (size_t)K3_ATTEND_TILE * (size_t)pairs_of(width);
}

/* Up to 32 channels; a row that is not there is zeros. */
static __m512i channels(const uint16_t *row, int left)
{
    if (left >= 32)
        return _mm512_loadu_si512(row);
    return left > 0 ? _mm512_maskz_loadu_epi16((__mmask32)((1u << left) - 1u), row) : _mm512_setzero_si512();
}

/* Dword i of row r goes to dword r of out[i]. */
K3_INLINE void transpose(__m512i *x)
{
    __m512i y[16];
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int k = 0; k < 2; k++) {
            x[i + 2 * k] = _mm512_unpacklo_epi64(y[i + k], y[i + k + 2]);
            x[i + 2 * k + 1] = _mm512_unpackhi_epi64(y[i + k], y[i + k + 2]);
        }
    for (int i = 0; i < 4; i++) {
        y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
        y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
        y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
        y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        x[i] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88);
        x[i + 8] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd);
    }
}

static void pack_keys(uint32_t *keys, const uint16_t *cache, int n, int width)
{
    int pairs = pairs_of(width);
    for (int r0 = 0; r0 < n; r0 += VF_LANES)
        for (int p0 = 0; p0 < pairs; p0 += VF_LANES) {
            __m512i x[VF_LANES];
            uint32_t *to = keys + ((size_t)(r0 / SIDE) * (size_t)pairs + (size_t)p0) * SIDE + r0 % SIDE;
            for (int i = 0; i < VF_LANES; i++)
                x[i] = r0 + i < n ? channels(cache + (size_t)(r0 + i) * (size_t)width + 2 * p0, width - 2 * p0) : _mm512_setzero_si512();
            transpose(x);
            for (int i = 0; i < VF_LANES && p0 + i < pairs; i++)
                _mm512_storeu_si512(to + i * SIDE, x[i]);
        }
}

static void pack_values(uint32_t *values, const uint16_t *cache, int n, int kv, int width)
{
    uint16_t order[2][32];
    for (int i = 0; i < 32; i++) {
        order[0][i] = (uint16_t)(i / 2 + i % 2 * 32);
        order[1][i] = (uint16_t)(16 + i / 2 + i % 2 * 32);
    }
    __m512i low = _mm512_loadu_si512(order[0]), high = _mm512_loadu_si512(order[1]);
    for (int r = 0; r < n; r += 2)
        for (int c = 0; c < k3_attend_stride(kv); c += 32) {
            const uint16_t *row = cache + (size_t)r * (size_t)width + c;
            __m512i a = channels(row, kv - c), b = r + 1 < n ? channels(row + width, kv - c) : _mm512_setzero_si512();
            uint32_t *to = values + ((size_t)(c / SIDE) * PAIRS + (size_t)(r / 2)) * SIDE + c % SIDE;
            _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, low, b));
            _mm512_storeu_si512(to + VF_LANES, _mm512_permutex2var_epi16(a, high, b));
        }
}

void k3_attend_pack_avx512bf16(void *tile, const uint16_t *cache, int n, int kv, int width)
{
    uint32_t *keys = tile;
    pack_keys(keys, cache, n, width);
    pack_values(keys + (values_of(keys, width) - keys), cache, n, kv, width);
}

void k3_attend_round_avx512bf16(uint16_t *to, const float *from, int n)
{
    for (int i = 0; i < n; i += VF_LANES) {
        __m256i x = (__m256i)_mm512_cvtneps_pbh(vf_load_upto(from + i, n - i));
        _mm256_mask_storeu_epi16(to + i, n - i >= VF_LANES ? (__mmask16)0xffff : vf_first(n - i), x);
    }
}

K3_INLINE vf dot(vf sum, __m512i a, __m512i b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

/* sum[h][i] = the pairs `left[h]` against `n` rows of `right`, SIDE dwords each. */
K3_INLINE void products(vf (*sum)[VECTORS], const uint32_t *left, int64_t left_stride, const uint32_t *right, int n, const int heads)
{
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < VECTORS; i++)
            sum[h][i] = vf_zero();
    for (int k = 0; k < n; k++) {
        __m512i x[VECTORS];
        for (int i = 0; i < VECTORS; i++)
            x[i] = _mm512_loadu_si512(right + (size_t)k * SIDE + i * VF_LANES);
        for (int h = 0; h < heads; h++) {
            __m512i y = _mm512_set1_epi32((int)left[h * left_stride + k]);
            for (int i = 0; i < VECTORS; i++)
                sum[h][i] = dot(sum[h][i], x[i], y);
        }
    }
}

/* Weights of one head's scores, which lie in p; returns what the sums so far are multiplied by. */
static float weigh(uint32_t *weights, const float *p, int n, float scale, float *max, double *sum)
{
    vf score[K3_ATTEND_TILE / VF_LANES], total = vf_zero(), largest = vf_set(*max);
    int vectors = (n + VF_LANES - 1) / VF_LANES;
    for (int i = 0; i < vectors; i++) {
        __mmask16 here = n - i * VF_LANES >= VF_LANES ? (__mmask16)0xffff : vf_first(n - i * VF_LANES);
        score[i] = _mm512_mask_mul_ps(vf_set(-INFINITY), here, vf_load(p + i * VF_LANES), vf_set(scale));
        largest = vf_max(largest, score[i]);
    }
    float new_max = vf_largest(largest);
    for (int i = 0; i < vectors; i++) {
        __m256i rounded = (__m256i)_mm512_cvtneps_pbh(vf_exp(vf_sub(score[i], vf_set(new_max))));
        _mm256_storeu_si256((__m256i *)(void *)(weights + i * VF_LANES / 2), rounded);
        total = vf_add(total, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16)));
    }
    float keep = expf(*max - new_max);
    *sum = *sum * (double)keep + (double)vf_sum(total);
    *max = new_max;
    return keep;
}

typedef struct step {
    float score[HEADS][K3_ATTEND_TILE];
    uint32_t weight[HEADS][PAIRS];
    float keep[HEADS];
} step;

K3_INLINE void score_block(step *s, const k3_attend_row *a, int h0, const int heads)
{
    vf sum[HEADS][VECTORS];
    int pairs = pairs_of(a->width);
    const uint32_t *query = (const uint32_t *)(const void *)(a->query + (size_t)h0 * (size_t)pairs * 2);
    for (int r0 = 0; r0 < a->n; r0 += SIDE) {
        products(sum, query, pairs, (const uint32_t *)a->tile + (size_t)r0 * (size_t)pairs, pairs, heads);
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < VECTORS; i++)
                vf_store(&s->score[h][r0 + i * VF_LANES], sum[h][i]);
    }
    for (int h = 0; h < heads; h++)
        s->keep[h] = weigh(s->weight[h], s->score[h], a->n, a->scale, a->max + h0 + h, a->sum + h0 + h);
}

/* The odd last row is multiplied alone: what comes after it in the tile may be anything. */
K3_INLINE void mix_block(const step *s, const k3_attend_row *a, int h0, const int heads)
{
    int stride = k3_attend_stride(a->kv);
    for (int c = 0; c < stride; c += SIDE) {
        vf sum[HEADS][VECTORS];
        const uint32_t *values = values_of(a->tile, a->width) + (size_t)c * PAIRS;
        products(sum, s->weight[0], PAIRS, values, a->n / 2, heads);
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < VECTORS; i++) {
                float *to = a->context + (size_t)(h0 + h) * (size_t)stride + c + i * VF_LANES;
                if (a->n % 2) {
                    __m512i last = _mm512_loadu_si512(values + (size_t)(a->n / 2) * SIDE + i * VF_LANES);
                    sum[h][i] =
                        dot(sum[h][i], _mm512_and_si512(last, _mm512_set1_epi32(0xffff)), _mm512_set1_epi32((int)s->weight[h][a->n / 2]));
                }
                vf_store(to, a->is_first ? sum[h][i] : vf_fma(vf_set(s->keep[h]), vf_load(to), sum[h][i]));
            }
    }
}

K3_INLINE void heads_of(const k3_attend_row *a, int h0, const int heads)
{
    step s;
    score_block(&s, a, h0, heads);
    mix_block(&s, a, h0, heads);
}

void k3_attend_row_avx512bf16(const k3_attend_row *a)
{
    int h = 0;
    for (; h + HEADS <= a->n_heads; h += HEADS)
        heads_of(a, h, HEADS);
    for (; h + 2 <= a->n_heads; h += 2)
        heads_of(a, h, 2);
    if (h < a->n_heads)
        heads_of(a, h, 1);
}

/* ---- W_k and W_v of a head -------------------------------------------------------------------------------------------------------- */

K3_INLINE void absorb_rows(uint16_t *y, int64_t y_stride, const float *q, int64_t q_stride, const uint32_t *values, int n_rows, int cols,
                           const int rows)
{
    vf sum[HEADS][VECTORS];
    uint32_t pairs[HEADS][PAIRS];
    for (int t = 0; t < rows; t++) {
        pairs[t][pairs_of(n_rows) - 1] = 0;
        k3_attend_round_avx512bf16((uint16_t *)(void *)pairs[t], q + t * q_stride, n_rows);
    }
    for (int c = 0; c < cols; c += SIDE) {
        products(sum, pairs[0], PAIRS, values + (size_t)c * PAIRS, pairs_of(n_rows), rows);
        for (int t = 0; t < rows; t++)
            for (int i = 0; i < VECTORS && c + i * VF_LANES < cols; i++) {
                int left = cols - c - i * VF_LANES;
                _mm256_mask_storeu_epi16(y + t * y_stride + c + i * VF_LANES, left >= VF_LANES ? (__mmask16)0xffff : vf_first(left),
                                         (__m256i)_mm512_cvtneps_pbh(sum[t][i]));
            }
    }
}

void k3_attend_absorb_avx512bf16(uint16_t *y, int64_t y_stride, const float *q, int64_t q_stride, int n, const uint16_t *w, int rows,
                                 int cols, void *scratch)
{
    uint32_t *values = scratch;
    pack_values(values, w, rows, cols, cols);
    int t = 0;
    for (; t + HEADS <= n; t += HEADS)
        absorb_rows(y + t * y_stride, y_stride, q + t * q_stride, q_stride, values, rows, cols, HEADS);
    for (; t < n; t++)
        absorb_rows(y + t * y_stride, y_stride, q + t * q_stride, q_stride, values, rows, cols, 1);
}

K3_INLINE void value_rows(float *y, int64_t y_stride, const float *x, int64_t x_stride, const uint32_t *keys, int n_rows, int cols,
                          uint32_t *rounded, const int rows)
{
    vf sum[HEADS][VECTORS];
    int pairs = pairs_of(cols);
    for (int t = 0; t < rows; t++) {
        rounded[(t + 1) * pairs - 1] = 0;
        k3_attend_round_avx512bf16((uint16_t *)(void *)(rounded + t * pairs), x + t * x_stride, cols);
    }
    for (int r = 0; r < n_rows; r += SIDE) {
        products(sum, rounded, pairs, keys + (size_t)r * (size_t)pairs, pairs, rows);
        for (int t = 0; t < rows; t++)
            for (int i = 0; i < VECTORS && r + i * VF_LANES < n_rows; i++)
                vf_store_upto(y + t * y_stride + r + i * VF_LANES, sum[t][i], n_rows - r - i * VF_LANES);
    }
}

void k3_attend_value_avx512bf16(float *y, int64_t y_stride, const float *x, int64_t x_stride, int n, const uint16_t *w, int rows, int cols,
                                void *scratch)
{
    uint32_t *keys = scratch, *rounded = keys + k3_attend_tile_bytes(cols, cols) / sizeof *keys;
    pack_keys(keys, w, rows, cols);
    int t = 0;
    for (; t + HEADS <= n; t += HEADS)
        value_rows(y + t * y_stride, y_stride, x + t * x_stride, x_stride, keys, rows, cols, rounded, HEADS);
    for (; t < n; t++)
        value_rows(y + t * y_stride, y_stride, x + t * x_stride, x_stride, keys, rows, cols, rounded, 1);
}
