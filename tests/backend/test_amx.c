/* AMX's kernels on tiles that are emulated, so that every machine with AVX-512 for bf16 runs them: on memory that ends where the contract
 * ends (guarded.h), in shapes that fill no tile, panel or block. */
#include "tiles_emulated.h"

#include "guarded.h"
#include "kernel_inputs.h"

#include "base/bf16.h"

#include <math.h>
#include <string.h>

enum { GAP = 3, MOST_T = 512 };

/* ---- the tiles themselves -------------------------------------------------------------------------------------------------- */

enum { CONFIG_BYTES = 64 };

typedef struct shapes {
    int rows[3], bytes[3];
} shapes;

/* Three tiles; the others have no rows. */
static void config_of(unsigned char config[CONFIG_BYTES], shapes s)
{
    memset(config, 0, CONFIG_BYTES);
    config[0] = 1;
    for (int i = 0; i < 3; i++) {
        config[16 + 2 * i] = (unsigned char)s.bytes[i];
        config[48 + i] = (unsigned char)s.rows[i];
    }
}

static void configure(shapes s)
{
    unsigned char config[CONFIG_BYTES];
    config_of(config, s);
    _tile_loadconfig(config);
}

static void must_say(const char *words)
{
    if (!strstr(global_last_failed_assert, words))
        fail_msg("\"%s\" is said, \"%s\" wanted", global_last_failed_assert, words);
}

static void refused_config(const unsigned char *config, const char *words)
{
    expect_assert_failure(_tile_loadconfig(config));
    must_say(words);
}

static void refused_product(int sums, int a, int b, const char *words)
{
    expect_assert_failure(_tile_dpbssd(sums, a, b));
    must_say(words);
    expect_assert_failure(_tile_dpbf16ps(sums, a, b));
    must_say(words);
}

/* What a processor answers with a fault. */
static void misuse_is_found(void **state)
{
    (void)state;
    static const struct {
        shapes s;
        const char *words;
    } unfit[] = {
        {{{15, 16, 8}, {64, 32, 64}}, "15 x 64 bytes += 16 x 32 times 8 x 64 do not fit"},
        {{{16, 16, 8}, {64, 64, 64}}, "16 x 64 bytes += 16 x 64 times 8 x 64 do not fit"},
        {{{16, 16, 8}, {60, 32, 64}}, "16 x 60 bytes += 16 x 32 times 8 x 64 do not fit"},
        {{{16, 16, 8}, {62, 32, 62}}, "rows of 62, 32 and 62 bytes, multiples of 4"},
        {{{16, 16, 0}, {64, 32, 0}}, "tile 2 has no rows"},
    };
    static const struct {
        int at, value;
        const char *words;
    } refused[] = {{0, 2, "palette 2"},
                   {1, 3, "byte 1 is 3"},
                   {40, 1, "byte 40 is 1"},
                   {48, 17, "tile 0 has 17 rows"},
                   {16, 65, "16 rows of 65 bytes"},
                   {18, 0, "16 rows of 0 bytes"}};
    const shapes good = {{16, 16, 8}, {64, 32, 64}};
    unsigned char config[CONFIG_BYTES], memory[1024];
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        config_of(config, good);
        config[refused[i].at] = (unsigned char)refused[i].value;
        refused_config(config, refused[i].words);
    }
    for (size_t i = 0; i < sizeof unfit / sizeof *unfit; i++) {
        configure(unfit[i].s);
        refused_product(0, 1, 2, unfit[i].words);
    }
    configure(good);
    refused_product(0, 0, 2, "tiles 0, 0 and 2, three wanted");
    expect_assert_failure(_tile_zero(8));
    must_say("tile 8 has no rows");
    _tile_release();
    refused_product(0, 1, 2, "no tiles are configured");
    expect_assert_failure(_tile_loadd(0, memory, 64));
    must_say("loadd: no tiles are configured");
    expect_assert_failure(_tile_stored(0, memory, 64));
    must_say("stored: no tiles are configured");
}

/* A row of two dwords times a column of two, of which the bytes are given, on a sum. */
static uint32_t small_product(uint32_t sum, const void *a, const void *b, void (*multiply)(int sums, int a, int b))
{
    configure((shapes){{1, 1, 2}, {4, 8, 4}});
    _tile_loadd(0, &sum, 4);
    _tile_loadd(1, a, 8);
    _tile_loadd(2, b, 4);
    multiply(0, 1, 2);
    _tile_stored(0, &sum, 4);
    _tile_release();
    return sum;
}

static void sums_are_the_manuals(void **state)
{
    (void)state;
    static const signed char most[8] = {-128, -128, -128, -128, -128, -128, -128, -128}, some[8] = {1, -2, 3, -4, 5, -6, 7, 127};
    assert_int_equal(small_product(5, some, most, _tile_dpbssd), (uint32_t)(5 - 131 * 128));
    assert_int_equal(small_product(0x7fffffff, most, most, _tile_dpbssd), 0x7fffffffu + 8 * 128 * 128); /* beyond 2^31 */
    /* a times ones on a sum: even and odd columns apart, ties to even, subnormal factors, products and sums as 0. */
    static const struct {
        float a[4], sum, want;
    } cases[] = {
        {{0x1p24f, -0x1p24f, 1, 0}, 0, 0},
        {{0x1p24f, 0, 3, 0}, 0, 0x1.000004p24f},
        {{1, 2, 3, 4}, 5, 15},
        {{0x1p-127f, 0, 0, 0}, 1, 1},
        {{0, 0, 0, 0x1p-127f}, 0, 0},
        {{0, 0, 0, 0}, 0x1p-127f, 0},
        {{0x1.8p-126f, -0x1p-126f, 0, 0}, 0, 0},
        {{0, 1, 0, 0x1p-24f}, 0, 1},
        {{0x1p-24f, 0, 0, 0}, 1, 1},
        {{0x1p-24f, 0x1p-24f, 0, 0}, 1, 1.0f + 0x1p-23f},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t a[4], ones[4] = {0x3f80, 0x3f80, 0x3f80, 0x3f80};
        uint32_t sum;
        float got;
        for (int c = 0; c < 4; c++)
            a[c] = k3_bf16_of(cases[i].a[c]);
        memcpy(&sum, &cases[i].sum, sizeof sum);
        sum = small_product(sum, a, ones, _tile_dpbf16ps);
        memcpy(&got, &sum, sizeof got);
        if (got != cases[i].want)
            fail_msg("case %zu: %a, %a wanted", i, (double)got, (double)cases[i].want);
    }
}

/* What kernels do beside tiles is done with AVX-512. */
static void kernels_run_here(void)
{
    if (!k3_cpu_level_here(K3_CPU_AVX512BF16))
        skip();
}

/* ---- outputs --------------------------------------------------------------------------------------------------------------- */

/* Rows of y in one room, with GAP floats between them that belong to nobody. */
typedef struct outputs {
    float *at, *y[MOST_T];
    int T, rows, stride;
} outputs;

static void new_outputs(outputs *o, int T, int rows)
{
    o->T = T;
    o->rows = rows;
    o->stride = rows + GAP;
    o->at = empty((size_t)(T * o->stride - GAP));
    for (int t = 0; t < T; t++)
        o->y[t] = o->at + t * o->stride;
}

/* Rows first .. last-1 are written, and nothing else is. */
static void only_rows_are_written(const outputs *o, int first, int last)
{
    for (int i = 0; i < o->T * o->stride - GAP; i++) {
        int row = i % o->stride;
        uint32_t bits;
        memcpy(&bits, &o->at[i], sizeof bits);
        if ((bits == UINT32_MAX) != (row < first || row >= last))
            fail_msg("%s: row %d of output %d is %s, %d to %d of %d wanted", round_text, row, i / o->stride,
                     bits == UINT32_MAX ? "left out" : "written", first, last - 1, o->rows);
    }
}

/* Leaves NaNs where the kernel is going to have its own arrays, and counts from here on. */
static __attribute__((noinline)) void begin_kernel(void)
{
    volatile uint32_t stack[40 << 10];
    for (size_t i = 0; i < sizeof stack / sizeof *stack; i++)
        stack[i] = UINT32_MAX;
    emulated_products();
}

static void tiles_were_used(int wanted)
{
    if ((emulated_products() > 0) != wanted)
        fail_msg("%s: tiles are%s used", round_text, wanted ? " not" : "");
    if (emulated_is_configured())
        fail_msg("%s: tiles are not released", round_text);
}

/* ---- integers -------------------------------------------------------------------------------------------------------------- */

enum { X_ROWS = 40 };

/* Rows first .. last-1 of a matrix, blocks of columns. */
typedef struct q8_shape {
    int rows, first, last, blocks;
} q8_shape;

static k3_q8 rows_of_x(int cols, flavour f)
{
    k3_q8 q = new_q8(X_ROWS, cols, 1, 1);
    for (int i = 0; i < X_ROWS; i++) {
        float *x = floats((size_t)cols, f == LARGE ? SUBNORMAL : f == SUBNORMAL ? LARGE : f);
        spoil(x, cols, f);
        k3_quantize_q8_scalar(&q, i, x, 0, cols);
    }
    return q;
}

/* Rows of x: runs of 16 that come again, runs but for one row, any rows. */
static int32_t *order_of_x(int T, int kind)
{
    int32_t *row_of = guarded_room((size_t)T * sizeof *row_of);
    for (int t = 0; t < T; t++)
        row_of[t] = kind == 2 ? below(X_ROWS) : X_ROWS - 32 + t % 32;
    if (kind == 1)
        row_of[T - 1] = 0;
    return row_of;
}

static void check_q8(k3_type type, q8_shape s, int T, int round)
{
    flavour f = begin_round("emulated tiles", k3_type_name(type), round);
    int cols = s.blocks * K3_Q8_BLOCK, granule = k3_type_granule(type);
    cols = (cols + granule - 1) / granule * granule;
    assert_true(k3_q8_takes(type, cols));
    k3_cpu_mat w = matrix(type, s.rows, cols, f);
    k3_q8 x = rows_of_x(cols, f);
    const int32_t *row_of = order_of_x(T, round % 3);
    outputs got, want;
    new_outputs(&got, T, s.rows);
    new_outputs(&want, T, s.rows);
    begin_kernel();
    k3_matmul_q8_emulated(got.y, &x, row_of, T, &w, s.first, s.last);
    tiles_were_used(T >= 12 && s.last - s.first >= 16 && type != K3_INT4 && type != K3_INT2);
    k3_matmul_q8_scalar(want.y, &x, row_of, T, &w, s.first, s.last);
    for (int t = 0; t < T; t++)
        same_bits(k3_type_name(type), got.y[t], want.y[t], (size_t)s.rows);
    only_rows_are_written(&got, s.first, s.last);
    guarded_check(round_text);
}

/* The bits of the scalar kernel. Rows in whole tiles and with some left, beside others; one block, two panels and a bit. */
static void integer_products_are_the_scalar_ones(void **state)
{
    (void)state;
    kernels_run_here();
    static const k3_type types[] = {K3_INT8, K3_INT4_G64, K3_MXFP4, K3_INT4, K3_INT2};
    static const int numbers[] = {1, 11, 12, 13, 16, 17, 31, 32, 33, 64};
    static const q8_shape s[] = {{16, 0, 16, 1},  {37, 0, 37, 2}, {53, 5, 52, 33}, {33, 16, 33, 31}, {50, 1, 50, 32},
                                 {49, 0, 48, 67}, {70, 3, 66, 8}, {20, 3, 18, 5},  {36, 4, 36, 47},  {64, 0, 64, 20}};
    enum { N_TYPES = sizeof types / sizeof *types, N_SHAPES = sizeof s / sizeof *s, N_NUMBERS = sizeof numbers / sizeof *numbers };
    int round = 0;
    for (int type = 0; type < N_TYPES; type++)
        for (int n = 0; n < N_NUMBERS; n++)
            for (int i = 0; i < (type < 3 ? 4 : 1); i++, round++)
                check_q8(types[type], s[(n + 3 * i + type) % N_SHAPES], numbers[n], round);
}

/* ---- bf16 ------------------------------------------------------------------------------------------------------------------ */

typedef struct bf16_shape {
    int n, rows, cols;
} bf16_shape;

/* Rows of x first .. first+n-1, rounded in two calls, times rows r0 .. r1-1 of the matrix. The rounded values and the scratch lie at
 * multiples of 64 bytes, before a page that is not mapped. */
static void multiply(float *const *y, const float *x, int first, int n, const k3_cpu_mat *w, int r0, int r1)
{
    int half = n / 2 / K3_BF16_ROWS * K3_BF16_ROWS;
    guarded_at_end();
    k3_bf16_rows q = {n, w->cols, guarded_room(k3_bf16_bytes(n, w->cols))};
    void *scratch = guarded_room(K3_BF16_SCRATCH);
    const float *part = copy_of(x + (size_t)first * (size_t)w->cols, (size_t)n * (size_t)w->cols * sizeof *x);
    k3_round_bf16_emulated(&q, part, 0, half);
    k3_round_bf16_emulated(&q, part, half, n);
    begin_kernel();
    k3_matmul_bf16_emulated(y + first, &q, w, r0, r1, scratch);
}

static double rounded(float x)
{
    float value = k3_bf16_value(k3_bf16_of(x));
    return fabsf(x) < 0x1p-126f ? 0 : value;
}

/* Sums of n products in any order keep within n roundings of the sum of magnitudes; what is lost as subnormal is below 2^-126 each time. */
static void check_bf16_values(const outputs *got, const float *x, const k3_cpu_mat *w)
{
    for (int t = 0; t < got->T; t++)
        for (int row = 0; row < got->rows; row++) {
            double sum = 0, all = 0, value = got->y[t][row];
            for (int c = 0; c < w->cols; c++) {
                uint16_t weight;
                memcpy(&weight, w->codes + (size_t)row * w->row_bytes + 2 * (size_t)c, sizeof weight);
                double product = rounded(k3_bf16_value(weight)) * rounded(x[t * w->cols + c]);
                sum += product;
                all += fabs(product);
            }
            double allowed = (w->cols + 3) * (0x1p-24 * all + 0x1p-126);
            if (isfinite(sum) ? !(fabs(value - sum) <= allowed) && all < 0x1p127 : isfinite(value))
                fail_msg("%s: row %d of output %d is %a, in double %a, allowed %g", round_text, row, t, value, sum, allowed);
        }
}

static void same_outputs(const char *what, const outputs *got, const outputs *want)
{
    for (int t = 0; t < got->T; t++)
        same_bits(what, got->y[t], want->y[t], (size_t)got->rows);
}

static void check_bf16(bf16_shape s, int round)
{
    static const int pieces[] = {1, 17, 1, 300, MOST_T};
    flavour f = begin_round("emulated tiles", "matmul_bf16", round);
    k3_cpu_mat w = matrix(K3_BF16, s.rows, s.cols, f);
    float *x = floats((size_t)s.n * (size_t)s.cols, f == LARGE ? SUBNORMAL : f == SUBNORMAL || f == MIXED ? PLAIN : f);
    outputs whole, cut;
    spoil(x + s.n / 2 * s.cols, s.cols, f);
    new_outputs(&whole, s.n, s.rows);
    new_outputs(&cut, s.n, s.rows);
    multiply(whole.y, x, 0, s.n, &w, 0, s.rows);
    tiles_were_used(1);
    only_rows_are_written(&whole, 0, s.rows);
    check_bf16_values(&whole, x, &w);
    /* Callers cut x anywhere, and the matrix where a tile ends. */
    int some = s.rows / 2 / 16 * 16, more = (some + s.rows) / 2 / 16 * 16;
    multiply(cut.y, x, 0, s.n, &w, some, more);
    only_rows_are_written(&cut, some, more);
    multiply(cut.y, x, 0, s.n, &w, 0, some);
    only_rows_are_written(&cut, 0, more);
    multiply(cut.y, x, 0, s.n, &w, more, s.rows);
    same_outputs("rows in three calls: row", &cut, &whole);
    new_outputs(&cut, s.n, s.rows);
    for (int i = 0, t = 0; t < s.n; t += pieces[i++])
        multiply(cut.y, x, t, pieces[i] < s.n - t ? pieces[i] : s.n - t, &w, 0, s.rows);
    same_outputs("x in pieces: row", &cut, &whole);
    guarded_check(round_text);
}

/* Rows, columns and rows of x that fill no tile, and more of each than a pass, a span and a block have. */
static void bf16_products_are_near_those_in_double(void **state)
{
    (void)state;
    kernels_run_here();
    static const bf16_shape s[] = {{1, 1, 1},     {5, 17, 31},    {16, 16, 32},  {17, 40, 33},  {33, 37, 77},   {97, 20, 150},
                                   {40, 131, 64}, {19, 35, 1061}, {300, 37, 70}, {512, 16, 45}, {193, 33, 129}, {18, 16, 2080}};
    for (int i = 0; i < (int)(sizeof s / sizeof *s); i++)
        for (int round = 0; round < (s[i].n < 100 ? 6 : 2); round++)
            check_bf16(s[i], 7 * i + round);
}

/* ---- ceilings -------------------------------------------------------------------------------------------------------------- */

/* Each multiply-add adds the same, as in test_peak. */
static void every_multiply_add_is_made(void **state)
{
    (void)state;
    kernels_run_here();
    static const struct {
        k3_peak_fn *run;
        float a_mac;
    } peaks[] = {{k3_peak_int8_emulated, 7.5f}, {k3_peak_bf16_emulated, 0.125f}};
    for (int64_t i = 0; i < 6; i++) {
        float sum = -1;
        emulated_products();
        uint64_t macs = peaks[i % 2].run(&sum, i / 2);
        assert_int_equal(macs, i / 2 * 4 * 16 * 16 * (i % 2 ? 32 : 64));
        assert_float_equal(sum, peaks[i % 2].a_mac * (float)macs, 0);
        assert_int_equal(emulated_products(), 4 * (i / 2));
        assert_false(emulated_is_configured());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misuse_is_found),
        cmocka_unit_test(sums_are_the_manuals),
        cmocka_unit_test(integer_products_are_the_scalar_ones),
        cmocka_unit_test(bf16_products_are_near_those_in_double),
        cmocka_unit_test(every_multiply_add_is_made),
    };
    return cmocka_run_group_tests_name("amx", tests, NULL, close_rooms);
}
