#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "msl.h"

#define BEGIN "#include <metal_stdlib>\nusing namespace metal;\n"

static msl_options options = {.width = 32, .cache = MSL_CACHE};
static char message[16384];

static const msl_kernel *compile(const char *source, const char *entry)
{
    const msl_kernel *kernel = msl_compile(source, entry, NULL, 0, &options, message, sizeof message);
    if (kernel == NULL)
        fail_msg("%s", message);
    return kernel;
}

static void assert_says(const char *part)
{
    if (strstr(message, part) == NULL)
        fail_msg("\"%s\" is not in: %s", part, message);
}

static void assert_refused(const char *source, const char *entry, const char *part)
{
    message[0] = '\0';
    assert_null(msl_compile(source, entry, NULL, 0, &options, message, sizeof message));
    assert_says(part);
}

/* Runs with y at buffer 0 and x at buffer 1. */
static int try_run(const msl_kernel *kernel, void *y, void *x, uint32_t groups, uint32_t threads)
{
    void *buffers[MSL_MAX_BUFFERS] = {y, x};
    message[0] = '\0';
    return msl_run(kernel, buffers, (const uint32_t[]){groups, 1, 1}, (const uint32_t[]){threads, 1, 1}, &options, message, sizeof message);
}

static void run(const msl_kernel *kernel, void *y, void *x, uint32_t groups, uint32_t threads)
{
    if (try_run(kernel, y, x, groups, threads) != 0)
        fail_msg("%s", message);
}

static void assert_fails(const msl_kernel *kernel, void *y, uint32_t threads, const char *part)
{
    assert_int_equal(try_run(kernel, y, y, 1, threads), -1);
    assert_says(part);
}

static int setup(void **state)
{
    (void)state;
    options = (msl_options){.width = 32, .cache = MSL_CACHE};
    return 0;
}

static const char reverse[] = BEGIN "kernel void reverse(device float *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]],\n"
                                    "    uint3 group [[threadgroup_position_in_grid]], uint3 n [[threads_per_threadgroup]])\n"
                                    "{\n"
                                    "    threadgroup float kept[1024];\n"
                                    "    kept[i] = float(1000u * group.x + i);\n"
                                    "    threadgroup_barrier(mem_flags::mem_threadgroup);\n"
                                    "    y[n.x * group.x + i] = kept[n.x - 1u - i];\n"
                                    "}\n";

static void threads_see_what_was_written_before_a_barrier(void **state)
{
    (void)state;
    const msl_kernel *kernel = compile(reverse, "reverse");
    assert_int_equal(msl_buffers(kernel), 1);
    assert_int_equal(msl_threadgroup_bytes(kernel), 4096);
    for (options.seed = 0; options.seed < 3; options.seed++)
        for (uint32_t n = 1; n <= 1024; n = n * 3 + 1) {
            float y[2 * 1024] = {0};
            run(kernel, y, NULL, 2, n);
            for (uint32_t i = 0; i < 2 * n; i++)
                assert_int_equal((int)y[i], 1000 * (int)(i / n) + (int)(n - 1 - i % n));
        }
    float y[1];
    assert_fails(kernel, y, 1025, "1 to 1024 threads");
    assert_fails(kernel, y, 0, "1 to 1024 threads");
    assert_fails(kernel, NULL, 32, "not bound");
    options.width = 24;
    assert_fails(kernel, y, 32, "8, 16, 32 or 64");
}

static void two_parameters_at_one_index_are_refused(void **state)
{
    (void)state;
    assert_refused(BEGIN "kernel void two(device float *y [[buffer(2)]], constant float &x [[buffer(2)]])\n{\n    *y = x;\n}\n", "two",
                   "two parameters are at [[buffer(2)]]");
}

#ifndef MSL_CLANG
static void there_is_no_clang_to_compile_kernels_with(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef MSL_CLANG
        cmocka_unit_test_setup(threads_see_what_was_written_before_a_barrier, setup),
        cmocka_unit_test_setup(two_parameters_at_one_index_are_refused, setup),
#else
        cmocka_unit_test(there_is_no_clang_to_compile_kernels_with),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
