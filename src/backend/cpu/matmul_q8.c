#include "backend/cpu/cpu.h"
#include "backend/cpu/decode.h"

#include <math.h>

static int place_by_nibble(int c)
{
    return c / 8 * 8 + c % 2 * 4 + c % 8 / 2;
}

/* Of every K3_Q8_BLOCK columns, scale = max |x| / 127 and codes = round(x / scale), ties to even. Blocks below 2^-100 are 0. */
void k3_quantize_q8_scalar(const k3_q8 *q, int row, const float *x, int first, int last)
{
    int64_t start = (int64_t)row * q->cols;
    for (int c0 = first; c0 < last; c0 += K3_Q8_BLOCK) {
        float largest = 0, spoiled = 0;
        int32_t sum = 0;
        for (int c = c0; c < c0 + K3_Q8_BLOCK; c++) {
            largest = fmaxf(largest, fabsf(x[c]));
            spoiled += x[c] * 0; /* NaN if x is not finite */
        }
        int is_lost = largest < 0x1p-100f || spoiled != 0;
        float inverse = is_lost ? 0 : 127 / largest;
        for (int c = c0; c < c0 + K3_Q8_BLOCK; c++) {
            int code = is_lost ? 0 : (int)lrintf(x[c] * inverse);
            if (q->codes)
                q->codes[start + c] = (signed char)code;
            if (q->by_nibble)
                q->by_nibble[start + place_by_nibble(c)] = (signed char)code;
            sum += code;
        }
        q->scale[(start + c0) / K3_Q8_BLOCK] = spoiled != 0 ? NAN : is_lost ? 0 : largest / 127;
        q->sum[(start + c0) / K3_Q8_BLOCK] = sum;
    }
}

/* A weight as the integer that is multiplied: its code, or twice its value where that may be a half. */
static int integer_of(k3_type type, const unsigned char *codes, int c)
{
    float value = type == K3_MXFP4 ? 2 * k3_e2m1(k3_nibble(codes, c)) : type == K3_INT4_G64 ? (float)k3_nibble(codes, c) - 8 : 0;
    return (int)(type == K3_MXFP4 || type == K3_INT4_G64 ? value : k3_decode_code(type, codes, NULL, c));
}

/* Of the block that column c lies in; 1 where the row has one scale, which multiplies the end. */
static float scale_of(k3_type type, const unsigned char *scale, int c)
{
    if (k3_type_scales_rows(type))
        return 1;
    return type == K3_INT4_G64 ? k3_load_f32(scale, (size_t)(c / 64)) : k3_e8m0(scale[c / 32]);
}

/* y[t][r] = sum_b (sum_c W[r, c] x[t, c]) s_w[r, b] s_x[t, b]   over blocks b of K3_Q8_BLOCK columns c. A row's own scale multiplies the
 * end. Where the integers are doubled, half of x's scale is taken: exact, and a sum does not overflow before its value does. */
void k3_matmul_q8_scalar(float *const *y, const k3_q8 *x, const int32_t *row_of, int T, const k3_cpu_mat *w, int first, int last)
{
    for (int r = first; r < last; r++) {
        const unsigned char *codes = w->codes + (size_t)r * w->row_bytes, *scale = w->scale + (size_t)r * w->scale_bytes;
        for (int t = 0; t < T; t++) {
            int64_t start = (int64_t)row_of[t] * w->cols;
            const signed char *x_codes = (w->type == K3_INT8 ? x->codes : x->by_nibble) + start;
            float sum = 0;
            for (int c0 = 0; c0 < w->cols; c0 += K3_Q8_BLOCK) {
                int32_t dot = 0;
                for (int c = c0; c < c0 + K3_Q8_BLOCK; c++)
                    dot += integer_of(w->type, codes, c) * x_codes[w->type == K3_INT8 ? c : place_by_nibble(c)];
                float x_scale = x->scale[(start + c0) / K3_Q8_BLOCK] * (w->type == K3_MXFP4 ? 0.5f : 1);
                sum = fmaf((float)dot, scale_of(w->type, scale, c0) * x_scale, sum);
            }
            y[t][r] = k3_type_scales_rows(w->type) ? sum * k3_load_f32(scale, 0) : sum;
        }
    }
}

/* ---- rows of x for an operation -------------------------------------------------------------------------------------------------- */

size_t k3_cpu_q8_bytes(int64_t rows, int cols, int n_orders)
{
    size_t n = (size_t)rows * (size_t)cols, n_blocks = n / K3_Q8_BLOCK;
    return (size_t)n_orders * k3_round64(n) + k3_round64(n_blocks * sizeof(float)) + k3_round64(n_blocks * sizeof(int32_t));
}

k3_q8 k3_cpu_q8_at(void *memory, int64_t rows, int cols, int has_codes, int has_by_nibble)
{
    size_t n = (size_t)rows * (size_t)cols;
    char *at = memory;
    k3_q8 q = {.cols = cols, .scale = (float *)(void *)at};
    at += k3_round64(n / K3_Q8_BLOCK * sizeof(float));
    q.sum = (int32_t *)(void *)at;
    at += k3_round64(n / K3_Q8_BLOCK * sizeof(int32_t));
    if (has_codes)
        q.codes = (signed char *)at;
    at += has_codes ? k3_round64(n) : 0;
    if (has_by_nibble)
        q.by_nibble = (signed char *)at;
    return q;
}

typedef struct quantize_args {
    const k3_cpu *cpu;
    const k3_q8 *q;
    const float *x;
} quantize_args;

static void quantize_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const quantize_args *a = arg;
    for (int64_t t = first; t < last; t++)
        a->cpu->k.quantize_q8(a->q, (int)t, a->x + t * a->q->cols, 0, a->q->cols);
}

void k3_cpu_quantize(k3_cpu *cpu, const k3_q8 *q, const float *x, int64_t rows)
{
    quantize_args a = {cpu, q, x};
    k3_pool_run(cpu->pool, quantize_task, &a, rows, k3_cpu_grain(q->cols));
}
