#include "backend/backend.h"
#include "model/quantize.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t rng_state = 12345;

static float uniform(void)
{
    rng_state = rng_state * 1664525u + 1013904223u;
    return (float)(rng_state >> 8) / 8388608.0f - 1.0f;
}

static float bell(void)
{
    return (uniform() + uniform() + uniform()) * 0.05f;
}

/* What the backend reads back from a quantized row: the decoder is the backend's own embedding lookup. */
static void read_back(k3_backend *be, float *out, const void *codes, const void *scales, k3_type type, int n)
{
    k3_buf *data = be->memory->alloc(be, k3_type_row_bytes(type, n), "codes");
    k3_buf *scale = be->memory->alloc(be, k3_type_scale_bytes(type, n) + 4, "scales");
    k3_buf *ids = be->memory->alloc(be, 4, "ids"), *y = be->memory->alloc(be, 4 * (uint64_t)n, "y");
    be->memory->upload(be, (k3_ref){data, 0}, codes, k3_type_row_bytes(type, n));
    if (k3_type_scale_bytes(type, n))
        be->memory->upload(be, (k3_ref){scale, 0}, scales, k3_type_scale_bytes(type, n));
    k3_mat table = {.type = type, .rows = 1, .cols = n, .data = {data, 0}, .scale = {scale, 0}};
    be->ops->embed(be, (k3_ref){y, 0}, &table, (k3_ref){ids, 0}, 1);
    be->memory->download(be, out, (k3_ref){y, 0}, 4 * (uint64_t)n);
    assert_int_equal(be->sync(be, NULL), K3_OK);
    be->memory->release(be, data);
    be->memory->release(be, scale);
    be->memory->release(be, ids);
    be->memory->release(be, y);
}

static double relative_error(const float *a, const float *b, int n)
{
    double d = 0, s = 0;
    for (int i = 0; i < n; i++) {
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s += (double)b[i] * b[i];
    }
    return sqrt(d / s);
}

static const struct {
    k3_type type;
    double bound; /* of the error relative to the row's norm, bell-shaped weights */
} formats[] = {{K3_F32, 0}, {K3_BF16, 0.003}, {K3_INT8, 0.015}, {K3_INT4, 0.16}, {K3_INT4_G64, 0.14}, {K3_INT3_G64, 0.26}, {K3_INT2, 0.62}};

static void a_row_comes_back_within_the_error_of_its_type(void **state)
{
    k3_backend *be = *state;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (int n = 64; n <= 1024; n *= 2) {
            float w[1024], back[1024], scales[64];
            unsigned char codes[4096];
            for (int i = 0; i < n; i++)
                w[i] = bell();
            k3_quantize_row(codes, scales, w, formats[f].type, n);
            read_back(be, back, codes, scales, formats[f].type, n);
            double e = relative_error(back, w, n);
            if (e > formats[f].bound)
                fail_msg("%s, %d columns: error %g, at most %g", k3_type_name(formats[f].type), n, e, formats[f].bound);
        }
}

static void values_on_the_grid_come_back_exactly(void **state)
{
    k3_backend *be = *state;
    const struct {
        k3_type type;
        int low, high;
    } grids[] = {{K3_INT8, -127, 127}, {K3_INT4, -8, 7}, {K3_INT4_G64, -8, 7}, {K3_INT3_G64, -4, 3}, {K3_INT2, -2, 1}};
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        float w[256], back[256], scales[8];
        unsigned char codes[256];
        int span = grids[g].high - grids[g].low + 1;
        for (int i = 0; i < 256; i++)
            w[i] = 0.25f * (float)(grids[g].low + i % (span > 64 ? 64 : span));
        for (int i = 0; span > 64 && i < 4; i++)
            w[64 * i] = 0.25f * (float)grids[g].high;
        k3_quantize_row(codes, scales, w, grids[g].type, 256);
        read_back(be, back, codes, scales, grids[g].type, 256);
        assert_memory_equal(back, w, sizeof w);
    }
}

static void a_row_of_zeros_stays_zero(void **state)
{
    k3_backend *be = *state;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        float w[128] = {0}, back[128], scales[8];
        unsigned char codes[512];
        k3_quantize_row(codes, scales, w, formats[f].type, 128);
        read_back(be, back, codes, scales, formats[f].type, 128);
        for (int i = 0; i < 128; i++)
            assert_true(back[i] == 0);
    }
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    const uint32_t in[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff, 0x80000000};
    const uint16_t out[] = {0x3f80, 0x3f82, 0x3f81, 0x7f80, 0x8000};
    for (int i = 0; i < 5; i++) {
        float w;
        uint16_t code;
        memcpy(&w, &in[i], 4);
        k3_quantize_row(&code, NULL, &w, K3_BF16, 1);
        assert_int_equal(code, out[i]);
    }
}

static int open_cpu(void **state)
{
    k3_error err;
    if (k3_cpu_open((k3_backend **)state, "scalar", &(k3_backend_config){.threads = 1}, &err) != K3_OK)
        fail_msg("%s", err.text);
    return 0;
}

static int close_cpu(void **state)
{
    k3_backend *be = *state;
    be->close(be);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_comes_back_within_the_error_of_its_type),
        cmocka_unit_test(values_on_the_grid_come_back_exactly),
        cmocka_unit_test(a_row_of_zeros_stays_zero),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
