#include "kernel_inputs.h"

#include "guarded.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_FLAVOURS = 5 };

char round_text[128];
static random_stream round_random;

flavour begin_round(const char *level_name, const char *kernel, int round)
{
    round_random = (random_stream){(uint64_t)(unsigned char)kernel[0] * 7919u + strlen(kernel) * 104729u + (uint64_t)round};
    snprintf(round_text, sizeof round_text, "%s %s, round %d", level_name, kernel, round);
    if (round % 2)
        guarded_at_end();
    else
        guarded_at_start(4 * (size_t)(1 + round / 2 % 15));
    return (flavour)(round / 2 % N_FLAVOURS);
}

int below(int n)
{
    return random_below(&round_random, n);
}

unsigned char *bytes_room(size_t n)
{
    return (unsigned char *)guarded_room(n + 1) + (n % 2 == 0);
}

static float value_of(flavour f)
{
    float x = random_float(&round_random);
    switch (f) {
    case SUBNORMAL:
        return x * 1e-39f;
    case LARGE:
        return x * 1e15f;
    case ZEROS:
        return below(3) ? copysignf(0, x) : x;
    case MIXED:
        return ldexpf(x, below(176) - 126);
    default:
        return x;
    }
}

float *floats(size_t n, flavour f)
{
    float *x = guarded_room(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = value_of(f);
    return x;
}

float *empty(size_t n)
{
    return guarded_room(n * sizeof(float));
}

void *copy_of(const void *data, size_t n)
{
    return memcpy(guarded_room(n), data, n);
}

void same_bits(const char *what, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0 && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s: %s %zu is %a, %a wanted", round_text, what, i, (double)got[i], (double)want[i]);
}

/* A scale byte of MXFP4 or a float scale: the ends of what there is, now and then. */
static void put_scale(unsigned char *to, k3_type type, flavour f)
{
    static const unsigned char ends[] = {0, 1, 254, 253};
    static const float far[] = {1e-38f, 1e30f, 1e-41f, -1e-20f};
    if (type == K3_MXFP4)
        *to = f == PLAIN ? (unsigned char)(118 + below(8)) : below(2) ? ends[below(4)] : 127;
    else
        memcpy(to, f == PLAIN ? &(float){0.01f + fabsf(random_float(&round_random))} : &far[below(4)], 4);
}

k3_cpu_mat matrix(k3_type type, int rows, int cols, flavour f)
{
    k3_cpu_mat w = {.type = type, .cols = cols, .row_bytes = k3_type_row_bytes(type, cols), .scale_bytes = k3_type_scale_bytes(type, cols)};
    unsigned char *codes = bytes_room((size_t)rows * w.row_bytes), *scale = bytes_room((size_t)rows * w.scale_bytes);
    for (size_t i = 0; i < (size_t)rows * w.row_bytes; i++)
        codes[i] = (unsigned char)random_bits(&round_random);
    for (int i = 0; (type == K3_F32 || type == K3_BF16) && i < rows * cols; i++) {
        float x = value_of(f);
        memcpy(codes + (size_t)i * (type == K3_F32 ? 4 : 2), (char *)&x + (type == K3_F32 ? 0 : 2), type == K3_F32 ? 4 : 2);
    }
    for (size_t i = 0; i < (size_t)rows * w.scale_bytes; i += type == K3_MXFP4 ? 1 : 4)
        put_scale(scale + i, type, f);
    w.codes = codes;
    w.scale = scale;
    return w;
}

k3_q8 new_q8(int n, int cols, int has_codes, int has_by_nibble)
{
    size_t all = (size_t)n * (size_t)cols;
    k3_q8 q = {.cols = cols, .scale = empty(all / K3_Q8_BLOCK), .sum = guarded_room(all / K3_Q8_BLOCK * sizeof(int32_t))};
    q.codes = has_codes ? (signed char *)bytes_room(all) : NULL;
    q.by_nibble = has_by_nibble ? (signed char *)bytes_room(all) : NULL;
    return q;
}

void spoil(float *x, int cols, flavour f)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    if (f == ZEROS && below(2))
        x[below(cols)] = bad[below(3)];
}

int close_rooms(void **state)
{
    (void)state;
    guarded_close();
    return 0;
}
