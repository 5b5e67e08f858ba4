#include "model/quantize.h"

#include "base/bf16.h"

#include <math.h>
#include <string.h>

typedef struct k3_int_format {
    int lowest, highest; /* codes without offset */
    int group;           /* columns a scale covers; 0: the row */
    int n_candidates;    /* scales tried: the plain one, then 5 % steps down */
} k3_int_format;

/* The plain scale maps the largest magnitude to the end of the code range on its own side. For few bits, clipping the largest weight a
 * little costs less than a coarser grid for all others, so smaller scales are tried; int8 gains nothing from it. */
static k3_int_format format_of(k3_type type)
{
    switch (type) {
    case K3_INT8:
        return (k3_int_format){-127, 127, 0, 1};
    case K3_INT4:
        return (k3_int_format){-8, 7, 0, 5};
    case K3_INT4_G64:
        return (k3_int_format){-8, 7, 64, 5};
    case K3_INT3_G64:
        return (k3_int_format){-4, 3, 64, 5};
    default:
        return (k3_int_format){-2, 1, 0, 5};
    }
}

/* Nearest code as a float, ties to even: adding 1.5 * 2^23 leaves no room for a fraction. |w * inverse| stays far below 2^22. */
static inline float code_of(float w, float inverse, float lowest, float highest)
{
    float c = (w * inverse + 12582912.0f) - 12582912.0f;
    c = c < lowest ? lowest : c;
    return c > highest ? highest : c;
}

/* Squared error of one candidate; eight partial sums so that the compiler can use vectors without reordering anything. */
static float error_of(const float *w, float scale, int n, const k3_int_format *f)
{
    float sum[8] = {0}, inverse = 1.0f / scale, lowest = (float)f->lowest, highest = (float)f->highest;
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) {
            float d = w[i + j] - scale * code_of(w[i + j], inverse, lowest, highest);
            sum[j] += d * d;
        }
    for (; i < n; i++) {
        float d = w[i] - scale * code_of(w[i], inverse, lowest, highest);
        sum[0] += d * d;
    }
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* Scale of a group. Both signs are tried where the code range is lopsided: a negative scale puts the extra code on the other side. */
static float best_scale(const float *w, int n, const k3_int_format *f)
{
    float largest = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(w[i]) > fabsf(largest))
            largest = w[i];
    if (largest == 0 || !isfinite(largest))
        return 0;
    float plain = f->lowest == -f->highest ? fabsf(largest) / (float)f->highest : largest / (float)f->lowest;
    float best = plain;
    if (f->n_candidates == 1)
        return best;
    float least = error_of(w, plain, n, f);
    for (int i = 1; i < 2 * f->n_candidates; i++) {
        float scale = (i % 2 ? -plain : plain) * (1.0f - 0.05f * (float)(i / 2));
        float e = error_of(w, scale, n, f);
        if (e < least) {
            least = e;
            best = scale;
        }
    }
    return best;
}

static void put_code(uint8_t *codes, k3_type type, int i, int code)
{
    switch (type) {
    case K3_INT8:
        ((int8_t *)codes)[i] = (int8_t)code;
        return;
    case K3_INT4:
    case K3_INT4_G64:
        codes[i / 2] |= (uint8_t)((code + 8) << (i % 2 * 4));
        return;
    case K3_INT3_G64: {
        int bit = i % 64 * 3;
        uint8_t *at = codes + i / 64 * 24 + bit / 8;
        unsigned v = (unsigned)(code + 4) << (bit % 8);
        at[0] |= (uint8_t)v;
        if (v >> 8)
            at[1] |= (uint8_t)(v >> 8);
        return;
    }
    default:
        codes[i / 4] |= (uint8_t)((code + 2) << (i % 4 * 2));
        return;
    }
}

void k3_quantize_row(void *codes, void *scales, const float *w, k3_type type, int n)
{
    if (type == K3_F32) {
        memcpy(codes, w, (size_t)n * sizeof *w);
        return;
    }
    if (type == K3_BF16) {
        for (int i = 0; i < n; i++)
            ((uint16_t *)codes)[i] = k3_bf16_of(w[i]);
        return;
    }
    k3_int_format f = format_of(type);
    int group = f.group ? f.group : n;
    memset(codes, 0, k3_type_row_bytes(type, n));
    for (int first = 0; first < n; first += group) {
        int m = n - first < group ? n - first : group;
        float scale = best_scale(w + first, m, &f);
        float inverse = scale != 0 ? 1.0f / scale : 0;
        ((float *)scales)[first / group] = scale;
        for (int i = 0; i < m; i++)
            put_code(codes, type, first + i, (int)code_of(w[first + i], inverse, (float)f.lowest, (float)f.highest));
    }
}
