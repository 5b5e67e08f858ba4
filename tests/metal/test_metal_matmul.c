/* The matrix kernel that is written by hand, against plain sums: every type, rows of W and of x that fill no tile, several parts, columns
 * that are shared out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/args/matmul.h"
#include "backend/cpu/decode.h"
#include "metal/msl.h"

enum { THREADS = 128, ROWS_A_BLOCK = 64, MOST_PARTS = 3 };

typedef struct problem {
    k3_type type;
    uint32_t T, cols, mx, splits, whole; /* splits: of the columns of blocks from number `whole` on */
    uint32_t rows[MOST_PARTS + 1];       /* of each part, then 0 */
} problem;

typedef struct memory {
    char *codes[MOST_PARTS], *scales[MOST_PARTS];
    float *y[MOST_PARTS], *x_scale, *sums;
    uint16_t *x;
} memory;

static char message[16384];
static uint32_t seed;

static uint32_t draw(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)seed * n) >> 32);
}

/* Memory at a multiple of 16 bytes that begins with n bytes. */
static void *bytes(size_t n)
{
    void *at = aligned_alloc(16, (n + 16) / 16 * 16);
    assert_non_null(at);
    return memset(at, 0xff, (n + 16) / 16 * 16);
}

/* An integer, -1023 .. 1023, as f16 bits. */
static uint16_t half_of(int x)
{
    float f = (float)abs(x);
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return (uint16_t)((x < 0 ? 0x8000u : 0u) | (x ? (u - (112u << 23)) >> 13 : 0u));
}

/* Column c of a row of x lies there (halves.glsl). */
static uint32_t place_of(uint32_t c)
{
    static const uint32_t place[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    return c / 8 * 8 + place[c % 8];
}

static float x_at(const problem *p, const memory *m, uint32_t t, uint32_t c)
{
    uint16_t bits = m->x[(size_t)t * p->cols + place_of(c)];
    uint32_t u = (bits & 0x7fffu) ? ((uint32_t)(bits & 0x7fffu) << 13) + (112u << 23) : 0u;
    float f;
    memcpy(&f, &u, sizeof f);
    return bits & 0x8000u ? -f : f;
}

static void fill_weights(const problem *p, memory *m, int part)
{
    size_t row_bytes = k3_type_row_bytes(p->type, (int)p->cols), scale_bytes = k3_type_scale_bytes(p->type, (int)p->cols);
    size_t n = p->rows[part] * row_bytes, n_scales = p->rows[part] * scale_bytes;
    unsigned char *codes = bytes(n), *scales = bytes(n_scales);
    for (size_t i = 0; i < n; i++)
        codes[i] = (unsigned char)draw(256);
    for (size_t i = 0; i < n_scales; i++)
        scales[i] = (unsigned char)(i % 61 == 0 ? 0 : 100 + draw(40));
    for (size_t i = 0; p->type != K3_MXFP4 && i < n_scales / 4; i++) {
        float scale = (float)ldexp(1.0 + draw(1000) / 1000.0, (int)draw(20) - 10);
        memcpy(scales + 4 * i, &scale, sizeof scale);
    }
    for (size_t i = 0; p->type <= K3_BF16 && i < n / 4; i++) { /* no weight is infinite or no number */
        uint32_t word;
        memcpy(&word, codes + 4 * i, sizeof word);
        word = (word & 0x8fff8fffu) | 0x30003000u;
        memcpy(codes + 4 * i, &word, sizeof word);
    }
    m->codes[part] = (char *)codes;
    m->scales[part] = (char *)scales;
    m->y[part] = bytes(4ull * p->T * p->rows[part]);
}

static void run(const problem *p, const memory *m, struct k3_matmul_args *args)
{
    static char text[1 << 16];
    FILE *f = fopen("src/backend/metal/matmul_matrix.metal", "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    msl_options options = {.width = 32, .seed = draw(1000), .cache = MSL_CACHE};
    msl_constant constants[] = {{0, (uint32_t)p->type}, {1, p->mx}, {2, 1}};
    const msl_kernel *kernel = msl_compile(text, "matmul_matrix", constants, 3, &options, message, sizeof message);
    if (!kernel)
        fail_msg("%s", message);
    assert_true(msl_threadgroup_bytes(kernel) <= 32768);
    args->x = (uintptr_t)m->x;
    args->x_scale = (uintptr_t)m->x_scale;
    args->sums = (uintptr_t)m->sums;
    uint32_t t_tiles = (p->T + 32 * p->mx - 1) / (32 * p->mx),
             groups[] = {(args->whole + (args->blocks - args->whole) * p->splits) * t_tiles, 1, 1};
    void *buffers[MSL_MAX_BUFFERS] = {args};
    if (msl_run(kernel, buffers, groups, (const uint32_t[]){THREADS, 1, 1}, &options, message, sizeof message))
        fail_msg("%s", message);
    assert_int_equal(msl_races(), 0);
}

static float result(const problem *p, const memory *m, const struct k3_matmul_args *args, int part, uint32_t t, uint32_t r)
{
    float sum = 0;
    uint32_t row = r;
    for (int i = 0; i < part; i++)
        row += p->rows[i];
    if (row < args->split_row)
        return m->y[part][(size_t)t * p->rows[part] + r];
    for (uint32_t s = 0; s < p->splits; s++)
        sum += m->sums[((size_t)s * p->T + t) * (args->rows - args->split_row) + row - args->split_row];
    return sum;
}

/* Each y is within rounding of the sum in f64. */
static void compare(const problem *p, const memory *m, const struct k3_matmul_args *args)
{
    size_t row_bytes = k3_type_row_bytes(p->type, (int)p->cols), scale_bytes = k3_type_scale_bytes(p->type, (int)p->cols);
    for (int part = 0; p->rows[part]; part++)
        for (uint32_t r = 0; r < p->rows[part]; r++) {
            const char *row = m->codes[part] + r * row_bytes, *scale = m->scales[part] + r * scale_bytes;
            double factor = k3_type_scales_rows(p->type) ? k3_load_f32(scale, 0) : 1;
            for (uint32_t t = 0; t < p->T; t++) {
                double want = 0, size = 0;
                for (uint32_t c = 0; c < p->cols; c++) {
                    double product = factor * k3_decode_code(p->type, row, scale, (int)c) * x_at(p, m, t, c) * m->x_scale[t];
                    want += product;
                    size += fabs(product);
                }
                double got = result(p, m, args, part, t, r);
                if (!(fabs(got - want) <= 1e-5 * size))
                    fail_msg("%s, part %d, row %u of x, %u of W: %g, wanted %g", k3_type_name(p->type), part, t, r, got, want);
            }
        }
}

static void solve(const problem *p)
{
    memory m = {.x = NULL};
    struct k3_matmul_part parts[MOST_PARTS];
    struct k3_matmul_args args = {.T = p->T, .cols = p->cols, .splits = p->splits, .parts = (uintptr_t)parts};
    seed = p->T + 31 * p->cols + (uint32_t)p->type;
    for (int i = 0; p->rows[i]; i++) {
        fill_weights(p, &m, i);
        struct k3_mat_args w = {(uintptr_t)m.codes[i],
                                (uintptr_t)m.scales[i],
                                p->rows[i],
                                p->cols,
                                (uint32_t)k3_type_row_bytes(p->type, (int)p->cols),
                                (uint32_t)k3_type_scale_bytes(p->type, (int)p->cols)};
        parts[args.n_parts++] = (struct k3_matmul_part){w, (uintptr_t)m.y[i], p->rows[i], args.blocks, args.rows, 0};
        uint32_t blocks = (p->rows[i] + ROWS_A_BLOCK - 1) / ROWS_A_BLOCK;
        if (p->splits > 1 && p->whole >= args.blocks && p->whole - args.blocks < blocks)
            args.split_row = args.rows + (p->whole - args.blocks) * ROWS_A_BLOCK;
        args.blocks += blocks;
        args.rows += p->rows[i];
    }
    args.whole = p->splits > 1 ? p->whole : args.blocks;
    args.split_row = p->splits > 1 ? args.split_row : args.rows;
    if (args.n_parts == 1)
        args.only = parts[0];
    m.x = bytes(2ull * p->T * p->cols);
    m.x_scale = bytes(4ull * p->T);
    m.sums = bytes(4ull * p->splits * p->T * (args.rows - args.split_row) + 4);
    for (uint32_t t = 0; t < p->T; t++) {
        m.x_scale[t] = (float)ldexp(1.0, (int)draw(10) - 5);
        for (uint32_t c = 0; c < p->cols; c++)
            m.x[(size_t)t * p->cols + c] = half_of((int)draw(2047) - 1023);
    }
    run(p, &m, &args);
    compare(p, &m, &args);
    for (uint32_t i = 0; i < args.n_parts; i++) {
        free(m.codes[i]);
        free(m.scales[i]);
        free(m.y[i]);
    }
    free(m.x);
    free(m.x_scale);
    free(m.sums);
}

static void every_type(void **state)
{
    (void)state;
    for (int type = 0; type < K3_N_TYPES; type++)
        solve(&(problem){(k3_type)type, .T = 19, .cols = 128, .mx = 1, .splits = 1, .rows = {70}});
}

static void tiles_that_are_not_full(void **state)
{
    (void)state;
    solve(&(problem){K3_INT8, .T = 71, .cols = 64, .mx = 2, .splits = 1, .rows = {64}});
    solve(&(problem){K3_MXFP4, .T = 64, .cols = 192, .mx = 2, .splits = 1, .rows = {1}});
    solve(&(problem){K3_BF16, .T = 1, .cols = 64, .mx = 1, .splits = 1, .rows = {63}});
}

static void several_parts(void **state)
{
    (void)state;
    solve(&(problem){K3_INT4, .T = 33, .cols = 64, .mx = 1, .splits = 1, .rows = {65, 3, 64}});
}

static void columns_shared_out(void **state)
{
    (void)state;
    solve(&(problem){K3_INT3_G64, .T = 10, .cols = 320, .mx = 1, .splits = 2, .rows = {20, 66}});
    solve(&(problem){K3_INT8, .T = 10, .cols = 320, .mx = 1, .splits = 3, .whole = 1, .rows = {20, 66}});
    solve(&(problem){K3_BF16, .T = 40, .cols = 256, .mx = 1, .splits = 4, .whole = 2, .rows = {200}});
}

int main(void)
{
#ifndef MSL_CLANG
    print_message("skipped: no clang\n");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),
        cmocka_unit_test(tiles_that_are_not_full),
        cmocka_unit_test(several_parts),
        cmocka_unit_test(columns_shared_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
