/* MXFP4 products of one row and two on a Vulkan device, which by default multiplies in f16, against the scalar CPU kernels: every value is
 * within the rounding of its own sum, whatever the sizes of the blocks of x, and the same call gives the same bits. */
#include "fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_MATS = 2 };

typedef struct shape {
    int T, rows, cols; /* of the first matrix; the second has half as many rows and 4 */
} shape;

/* One block of four units and many; rows that no block of rows divides; short rows of x, long ones, two, and such as go elsewhere. */
static const shape shapes[] = {
    {1, 4, 256}, {1, 103, 1024}, {2, 61, 1024}, {1, 1500, 512}, {2, 1500, 1024}, {1, 37, 7168}, {2, 37, 7168}, {1, 11, 12288}, {2, 9, 9216},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static int rows_of(const shape *s, int i)
{
    return i ? s->rows / 2 + 4 : s->rows;
}

/* Both products, one behind the other; with `sizes`, those of the absolute values: the sum of |w x|. */
static float *products(k3_backend *be, const shape *s, int sizes)
{
    random_stream r = {(uint64_t)(s->rows * 100000 + s->cols)};
    size_t n_x = (size_t)(s->T * s->cols), n = (size_t)(s->T * (rows_of(s, 0) + rows_of(s, 1)));
    float *x = malloc(n_x * sizeof *x);
    k3_mat w[N_MATS];
    k3_proj proj[N_MATS];
    assert_non_null(x);
    random_floats(&r, x, n_x, 1);
    for (size_t i = 0; i < n_x; i++) { /* blocks of zeros and of sizes up to 2^40 apart; within one, up to 2^20 */
        int block = (int)(i / 32 % 11);
        x[i] = block == 3 ? 0 : ldexpf(x[i], (block == 5 ? -40 : block % 5) - (i % 7 == 0 ? 20 : 0));
        x[i] = sizes ? fabsf(x[i]) : x[i];
    }
    k3_ref y = new_floats(be, n);
    for (int i = 0, at = 0; i < N_MATS; at += s->T * rows_of(s, i++)) {
        w[i] = random_mat(be, &r, K3_MXFP4, rows_of(s, i), s->cols, 0);
        size_t bytes = (size_t)w[i].rows * k3_type_row_bytes(K3_MXFP4, s->cols);
        unsigned char *codes = get_bytes(be, w[i].data, bytes);
        for (size_t b = 0; sizes && b < bytes; b++)
            codes[b] &= 0x77; /* without signs */
        w[i].data = put_bytes(be, codes, bytes);
        free(codes);
        proj[i] = (k3_proj){&w[i], k3_at(y, 4 * (uint64_t)at)};
    }
    k3_ref in = put_floats(be, x, n_x);
    be->ops->matmul(be, proj, N_MATS, in, s->T);
    free(x);
    return get_floats(be, y, n);
}

/* x is rounded once, 8 products and their sum to 8 others are: 10 roundings to 11 bits at most. */
static void compare(const char *level, double allowed)
{
    k3_backend *device = open_level(level, 1), *cpu = open_level("scalar+exact", 1);
    if (!device) {
        cpu->close(cpu);
        skip();
    }
    for (int i = 0; i < N_SHAPES; i++) {
        const shape *s = &shapes[i];
        size_t n = (size_t)(s->T * (rows_of(s, 0) + rows_of(s, 1)));
        keep_track();
        float *got = products(device, s, 0), *again = products(device, s, 0);
        release_tracked(device);
        keep_track();
        float *want = products(cpu, s, 0), *size = products(cpu, s, 1);
        release_tracked(cpu);
        assert_memory_equal(got, again, n * sizeof *got);
        for (size_t j = 0; j < n; j++)
            if (!(fabs((double)got[j] - (double)want[j]) <= allowed * (double)size[j]))
                fail_msg("%s, T %d rows %d cols %d: value %zu is %g, %g wanted, the sum of sizes %g", level, s->T, s->rows, s->cols, j,
                         (double)got[j], (double)want[j], (double)size[j]);
        free(got);
        free(again);
        free(want);
        free(size);
    }
    device->close(device);
    cpu->close(cpu);
}

static void halves(void **state)
{
    (void)state;
    compare("vulkan", 10.0 / 2048);
}

static void exact(void **state)
{
    (void)state;
    compare("vulkan+exact", 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(halves), cmocka_unit_test(exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
