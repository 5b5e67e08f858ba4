#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
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

static msl_options options;
static char message[16384];

static int setup(void **state)
{
    (void)state;
    options = (msl_options){.width = 32, .cache = MSL_CACHE};
    return 0;
}

/* The text of tests/metal/fixtures/<file>.metal, until the next call. */
static const char *fixture(const char *file)
{
    static char text[1 << 16];
    char path[256];
    snprintf(path, sizeof path, "tests/metal/fixtures/%s.metal", file);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    fclose(f);
    return text;
}

static const msl_kernel *compile(const char *file, const char *entry)
{
    const msl_kernel *kernel = msl_compile(fixture(file), entry, NULL, 0, &options, message, sizeof message);
    if (kernel == NULL)
        fail_msg("%s", message);
    return kernel;
}

static void assert_says(const char *part)
{
    if (strstr(message, part) == NULL)
        fail_msg("\"%s\" is not in: %s", part, message);
}

/* Runs with y at buffer 0 and x at buffer 1. */
static int try_run(const msl_kernel *kernel, void *y, const void *x, uint32_t groups, uint32_t threads)
{
    void *buffers[MSL_MAX_BUFFERS] = {y, (void *)(uintptr_t)x};
    message[0] = '\0';
    return msl_run(kernel, buffers, (const uint32_t[]){groups, 1, 1}, (const uint32_t[]){threads, 1, 1}, &options, message, sizeof message);
}

static void run(const msl_kernel *kernel, void *y, const void *x, uint32_t groups, uint32_t threads)
{
    if (try_run(kernel, y, x, groups, threads) != 0)
        fail_msg("%s", message);
}

static void assert_fails(const msl_kernel *kernel, void *y, uint32_t threads, const char *part)
{
    assert_int_equal(try_run(kernel, y, y, 1, threads), -1);
    assert_says(part);
}

static void assert_reverses(uint32_t n)
{
    float y[2 * 1024] = {0};
    run(compile("barriers", "reverse"), y, NULL, 2, n);
    for (uint32_t i = 0; i < 2 * n; i++)
        assert_int_equal((int)y[i], 1000 * (int)(i / n) + (int)(n - 1 - i % n));
}

static void threads_see_what_was_written_before_a_barrier(void **state)
{
    (void)state;
    const msl_kernel *kernel = compile("barriers", "reverse");
    assert_int_equal(msl_buffers(kernel), 1);
    assert_int_equal(msl_threadgroup_bytes(kernel), 4096);
    for (options.seed = 0; options.seed < 3; options.seed++)
        for (uint32_t n = 1; n <= 1024; n = n * 3 + 1)
            assert_reverses(n);
    assert_reverses(1024);
}

static void a_launch_out_of_bounds_is_refused(void **state)
{
    (void)state;
    float y[32];
    const msl_kernel *kernel = compile("barriers", "reverse");
    assert_fails(kernel, y, 1025, "1 to 1024 threads");
    assert_fails(kernel, y, 0, "1 to 1024 threads");
    assert_fails(kernel, NULL, 32, "not bound");
    const msl_kernel *large = compile("barriers", "too_much");
    assert_int_equal(msl_threadgroup_bytes(large), 4 * 8193);
    assert_fails(large, y, 32, "more than 32768 bytes");
    options.width = 24;
    assert_fails(kernel, y, 32, "8, 16, 32 or 64");
}

static void divergence_is_an_error(void **state)
{
    (void)state;
    float y[32];
    for (options.seed = 0; options.seed < 3; options.seed++) {
        assert_fails(compile("barriers", "one_returns"), y, 8, "kernel one_returns");
        assert_says("1 of 8 threads return without the barrier of line 46");
        assert_fails(compile("barriers", "two_barriers"), y, 8, "kernel two_barriers");
        assert_says("line 54");
        assert_says("line 57");
        assert_fails(compile("barriers", "uneven_loop"), y, 8, "barrier of line 65");
        assert_reverses(64);
    }
    options.seed = 0;
    run(compile("barriers", "one_returns"), y, NULL, 1, 3);
    run(compile("barriers", "two_barriers"), y, NULL, 1, 3);
    run(compile("barriers", "uneven_loop"), y, NULL, 1, 7);
}

#ifndef MSL_THREAD_SANITIZER
static void an_index_outside_of_an_array_is_an_error(void **state)
{
    (void)state;
    float y[9] = {0};
    for (options.seed = 0; options.seed < 3; options.seed++) {
        run(compile("barriers", "past_group_array"), y, NULL, 1, 8);
        run(compile("barriers", "past_own_array"), y, NULL, 1, 8);
        assert_fails(compile("barriers", "past_group_array"), y, 9, "thread 8 uses an index outside of an array");
        assert_fails(compile("barriers", "past_own_array"), y, 9, "thread 8 uses an index outside of an array");
    }
}
#endif

static void seeds_shuffle_the_order_of_threads(void **state)
{
    (void)state;
    enum { N = 64 };
    static uint32_t orders[3][2 * N];
    const msl_kernel *kernel = compile("barriers", "arrivals");
    for (options.seed = 0; options.seed < 3; options.seed++) {
        uint32_t *order = orders[options.seed];
        run(kernel, order, NULL, 1, N);
        uint64_t seen[2] = {0};
        for (int i = 0; i < 2 * N; i++) {
            if (options.seed == 0)
                assert_int_equal(order[i], i);
            assert_int_equal(order[i] / N, i / N);
            seen[i / N] |= (uint64_t)1 << order[i] % N;
        }
        assert_true(seen[0] == UINT64_MAX && seen[1] == UINT64_MAX);
        int same = 0;
        for (int i = 0; i < N; i++)
            same += order[i] + N == order[N + i];
        assert_int_equal(same == N, options.seed == 0);
        for (uint32_t other = 0; other < options.seed; other++)
            assert_memory_not_equal(order, orders[other], sizeof orders[0]);
    }
}

static void threadgroup_memory_is_unset_in_each_group(void **state)
{
    (void)state;
    uint32_t y[128];
    run(compile("barriers", "leave_and_look"), y, NULL, 2, 64);
    for (int i = 0; i < 128; i++)
        assert_int_equal(y[i], UINT32_MAX);
    run(compile("barriers", "set_once"), y, NULL, 1, 5); /* none of which sets it */
    for (int i = 0; i < 5; i++)
        assert_int_equal(y[i], UINT32_MAX);
}

static void variables_of_a_thread_are_unset(void **state)
{
    (void)state;
    float y[8] = {0};
    run(compile("barriers", "leave_own_unset"), y, NULL, 1, 8);
    for (int i = 0; i < 8; i++)
        assert_true(i % 2 == 0 ? isnan(y[i]) : y[i] == 1);
}

static void built_in_attributes(void **state)
{
    (void)state;
    uint32_t y[2 * 3 * 4 * 5 * 6 * 2];
    const uint32_t groups[] = {2, 3, 4}, threads[] = {5, 6, 2};
    void *buffers[MSL_MAX_BUFFERS] = {y};
    const msl_kernel *kernel = compile("simd", "attributes");
    for (options.width = 8; options.width <= 64; options.width *= 2) {
        memset(y, 0, sizeof y);
        if (msl_run(kernel, buffers, groups, threads, &options, message, sizeof message) != 0)
            fail_msg("%s", message);
        for (size_t i = 0; i < sizeof y / sizeof *y; i++)
            assert_true(y[i] != 0);
        assert_int_equal(y[0], 1);
        assert_int_equal(y[sizeof y / sizeof *y - 1], 60);
    }
}

/* Calls `check` for widths, sizes of groups of which the last simdgroup may be a part, and orders. */
static void for_simdgroups(void (*check)(uint32_t n))
{
    static const uint32_t sizes[] = {128, 77, 5};
    for (options.width = 8; options.width <= 64; options.width *= 2)
        for (options.seed = 0; options.seed < 3; options.seed++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                check(sizes[i]);
}

static float x_at(uint32_t i)
{
    return (float)(i * 7919 % 61) - 30;
}

static void fill_x(float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = x_at(i);
}

static void check_reductions(uint32_t n)
{
    float x[128], y[10 * 128];
    fill_x(x, n);
    run(compile("simd", "reductions"), y, x, 1, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = i - i % options.width, end = first + options.width < n ? first + options.width : n;
        float sum = 0, most = x[first], least = x[first], before = 0, quad = 0;
        uint32_t indices = 0, odd = 0, common = UINT32_MAX;
        for (uint32_t l = first; l < end; l++) {
            sum += x[l];
            most = fmaxf(most, x[l]);
            least = fminf(least, x[l]);
            before += l < i ? x[l] : 0;
            quad += l / 4 == i / 4 ? x[l] : 0;
            indices += l;
            odd ^= l;
            common &= l;
        }
        const float expected[] = {
            sum, most, least, (float)indices, before, before + x[i], (float)(end - first), sum, quad, (float)(odd | common)};
        for (uint32_t k = 0; k < 10; k++)
            if (y[k * n + i] != expected[k])
                fail_msg("width %u, %u threads, result %u of thread %u: %g, not %g", options.width, n, k, i, y[k * n + i], expected[k]);
    }
}

static void reductions_over_a_simdgroup(void **state)
{
    (void)state;
    for_simdgroups(check_reductions);
}

static void check_exchanges(uint32_t n)
{
    float x[128], y[10 * 128];
    fill_x(x, n);
    run(compile("simd", "exchanges"), y, x, 1, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t w = options.width, lane = i % w, first = i - lane;
        const uint32_t from[] = {
            w - 1 - lane,   lane ^ 3, lane < 2 ? lane : lane - 2, lane + 2 < w ? lane + 2 : lane, 5, 0, lane ^ 1, lane / 4 * 4 + 2,
            (lane + 1) % w, lane ^ 3};
        for (uint32_t k = 0; k < 10; k++) {
            float got = y[k * n + i];
            if (first + from[k] < n ? got != x_at(first + from[k]) : !isnan(got))
                fail_msg("width %u, %u threads, result %u of thread %u: %g", w, n, k, i, got);
        }
    }
}

/* From a lane that is not there comes a NaN. */
static void exchanges_between_lanes(void **state)
{
    (void)state;
    for_simdgroups(check_exchanges);
}

static void check_votes(uint32_t n)
{
    uint32_t y[7 * 128];
    run(compile("simd", "votes"), y, NULL, 1, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t w = options.width, lane = i % w, there = n - (i - lane) < w ? n - (i - lane) : w;
        uint64_t thirds = 0;
        for (uint32_t l = 0; l < there; l += 3)
            thirds |= (uint64_t)1 << l;
        const uint32_t expected[] = {(uint32_t)thirds, (uint32_t)(thirds >> 32), lane == 0, 1, there <= 6,
                                     there > 6,        there < 32 ? there : 32};
        for (uint32_t k = 0; k < 7; k++)
            assert_int_equal(y[k * n + i], expected[k]);
    }
}

static void votes_in_a_simdgroup(void **state)
{
    (void)state;
    for_simdgroups(check_votes);
}

static void check_parted(uint32_t n)
{
    uint32_t y[5 * 128];
    memset(y, 0, sizeof y);
    run(compile("simd", "parted"), y, NULL, 1, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t w = options.width, lane = i % w, there = n - (i - lane) < w ? n - (i - lane) : w, as_long = 0;
        for (uint32_t l = 0; l < there; l++)
            as_long += l % 4 >= lane % 4;
        assert_int_equal(y[i], lane >= 5 ? 0 : there < 5 ? there : 5);
        assert_int_equal(y[n + i], there);
        assert_int_equal(y[2 * n + i], as_long);
        assert_int_equal(y[3 * n + i], lane < 3 ? (there < 3 ? there : 3) : 1000 * (there - 3));
        assert_int_equal(y[4 * n + i], lane == 2 ? 0 : there < 3 ? there : there - 1);
    }
}

static void lanes_that_part_exchange_among_themselves(void **state)
{
    (void)state;
    for_simdgroups(check_parted);
}

static void a_simdgroup_waits_as_a_whole_at_its_barrier(void **state)
{
    (void)state;
    uint32_t y[64];
    for (options.seed = 0; options.seed < 3; options.seed++) {
        run(compile("simd", "hand_over"), y, NULL, 1, 64);
        for (uint32_t i = 0; i < 64; i++)
            assert_int_equal(y[i], i ^ 1);
    }
    assert_fails(compile("simd", "part_at_simdgroup_barrier"), y, 32, "5 of the 32 lanes of simdgroup 0");
}

static void multiply(double *y, const float *a, int stride, const float *b, double with)
{
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 8; c++) {
            y[8 * r + c] = with;
            for (int k = 0; k < 8; k++)
                y[8 * r + c] += (double)a[stride * r + k] * (double)b[8 * k + c];
        }
}

static void matrices_of_a_simdgroup(void **state)
{
    (void)state;
    float x[192], y[192 + 16 * 16];
    double product[64];
    fill_x(x, 192);
    for (options.width = 8; options.width <= 64; options.width *= 2) {
        for (size_t i = 0; i < sizeof y / sizeof *y; i++)
            y[i] = -1;
        run(compile("matrix", "matrices"), y, x, 1, options.width);
        multiply(product, x, 8, x + 64, 0);
        for (int i = 0; i < 64; i++) {
            assert_true(y[i] == (float)product[i] + x[128 + i]);
            assert_true(y[64 + i] == 2 * (float)product[i] + 1);
            assert_true(y[128 + i] == x[i % 8 * 8 + i / 8]);
        }
        multiply(product, x + 16 + 2, 16, x + 64, 0);
        for (int r = 0; r < 16; r++)
            for (int c = 0; c < 16; c++) {
                int inside = r >= 2 && r < 10 && c >= 1 && c < 9;
                assert_true(y[192 + 16 * r + c] == (inside ? (float)product[8 * (r - 2) + c - 1] : -1));
            }
    }
    options.width = 32;
    assert_int_equal(try_run(compile("matrix", "part_of_simdgroup"), y, x, 1, 32), -1);
    assert_says("7 of the 32 lanes");
    assert_int_equal(try_run(compile("matrix", "matrices"), y, x, 1, 8), -1);
    assert_says("8 of the 32 lanes of simdgroup 0");
}

static void types_and_functions(void **state)
{
    (void)state;
    struct {
        float three[3];
        uint32_t tail;
    } pairs[2] = {{{0}, 0}, {{1, 2, 3}, 77}};
    struct {
        uint64_t pairs;
        float scale;
    } a = {(uint64_t)(uintptr_t)pairs, 2.5F};
    static const float expected[] = {6, 77, 21, -2.5F, 0xbc - 4, 20, 2, 1 + 1 + 4 + 31 + 8, 4, 4, 8, 1};
    float y[12];
    run(compile("types", "functions"), y, &a, 1, 1);
    for (int i = 0; i < 12; i++)
        if (!(y[i] == expected[i]) && i != 11)
            fail_msg("result %d: %g, not %g", i, y[i], expected[i]);
    assert_int_equal(0.1F + 0.2F == 0.3F, y[11] == 0);
}

static void atomics(void **state)
{
    (void)state;
    for (options.seed = 0; options.seed < 3; options.seed++) {
        uint32_t y[3] = {0};
        int32_t z[2] = {-100, 5};
        run(compile("types", "counters"), y, z, 3, 64);
        assert_int_equal(y[0], 3 * 64 * 63 / 2);
        assert_int_equal(y[1], UINT32_MAX);
        assert_true(y[2] != 0 && y[2] <= 192);
        assert_int_equal(z[0], 181);
        assert_int_equal(z[1], -191);
    }
}

static void constants_specialise(void **state)
{
    (void)state;
    uint32_t y[8];
    for (uint32_t factor = 1; factor < 3; factor++)
        for (uint32_t one = 0; one < 2; one++) {
            const msl_constant constants[] = {{0, factor}, {19, one}};
            const char *text = fixture("constants");
            const msl_kernel *kernel = msl_compile(text, "scaled", constants, 2, &options, message, sizeof message);
            assert_non_null(kernel);
            assert_ptr_equal(kernel, msl_compile(text, "scaled", constants, 2, &options, message, sizeof message));
            run(kernel, y, NULL, 1, 8);
            for (uint32_t i = 0; i < 8; i++)
                assert_int_equal(y[i], 2 * factor * i + one);
        }
    const msl_constant one[] = {{0, 1}};
    assert_null(msl_compile(fixture("constants"), "scaled", one, 1, &options, message, sizeof message));
    assert_says("MSL_FC_19");
}

static void assert_refused(const char *source, const char *part)
{
    const msl_constant constants[] = {{3, 8}};
    message[0] = '\0';
    assert_null(msl_compile(source, "k", constants, 1, &options, message, sizeof message));
    assert_says(part);
}

static void texts_that_a_device_would_not_take(void **state)
{
    (void)state;
    assert_refused(BEGIN "kernel void k(device float *y [[buffer(2)]], constant float &x [[buffer(2)]])\n{\n    *y = x;\n}\n",
                   "two parameters are at [[buffer(2)]]");
    assert_refused(BEGIN "kernel void k(device float *y [[buffer(31)]])\n{\n    *y = 1.0;\n}\n", "no [[buffer(31)]]");
    assert_refused(BEGIN "kernel void k(device float *y [[buffer(0)]], uint i [[thread_number]])\n{\n    y[i] = 1.0;\n}\n",
                   "[[thread_number]] is unknown");
    assert_refused(BEGIN "kernel void k(device float *y)\n{\n    *y = 1.0;\n}\n", "has no attribute");
    assert_refused(BEGIN "kernel void other(device float *y [[buffer(0)]])\n{\n    *y = 1.0;\n}\n", "no kernel void k(");
    assert_refused(BEGIN "kernel void k(device float *y [[buffer(0)]], device float *x [[buffer(1)]])\n{\n    *y = 1.0;\n}\n",
                   "unused parameter 'x'");
    assert_refused(BEGIN
                   "void f(threadgroup float *x)\n{\n    *x = 1.0;\n}\nkernel void k(device float *y [[buffer(0)]])\n{\n    f(y);\n}\n",
                   "k.metal:");
    assert_refused(BEGIN "constant uint n [[function_constant(3)]];\nkernel void k(device float *y [[buffer(0)]])\n{\n"
                         "    threadgroup float x[n];\n    x[0] = 1.0;\n    *y = x[0];\n}\n",
                   "not a constant expression");
    assert_refused(BEGIN "#ifndef SPIRV_CROSS_CONSTANT_ID_3\n#define SPIRV_CROSS_CONSTANT_ID_3 1u\n#endif\n"
                         "kernel void k(device float *y [[buffer(0)]])\n{\n    *y = float(SPIRV_CROSS_CONSTANT_ID_3);\n}\n",
                   "SPIRV_CROSS_CONSTANT_ID_3");
    assert_refused(BEGIN "kernel void k(device ulong *y [[buffer(0)]])\n{\n    *y = simd_sum(*y);\n}\n", "simdgroups do not exchange");
}

static sigjmp_buf back;

static void on_fault(int number)
{
    (void)number;
    msl_abandon();
    siglongjmp(back, 1);
}

/* The handler leaves the launch, and the next one is none the worse. */
static void a_fault_in_a_kernel_can_be_left(void **state)
{
    (void)state;
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
    static char stack[65536];
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK}, former;
    stack_t former_stack;
    sigaltstack(&other, &former_stack);
    sigaction(SIGSEGV, &action, &former);
    volatile int faults = 0;
    for (volatile int i = 0; i < 3; i++) {
        if (sigsetjmp(back, 1) == 0)
            run(compile("types", "touch"), pages + 4096 - 20, NULL, 1, 21);
        else
            faults++;
        run(compile("types", "touch"), pages + 4096 - 20, NULL, 1, 20);
        assert_reverses(100);
    }
    sigaction(SIGSEGV, &former, NULL);
    sigaltstack(&former_stack, NULL);
    assert_int_equal(faults, 3);
    munmap(pages, 8192);
}

enum { RUN_FAILS = 100 };

/* What the program does when it is called with a fixture, a kernel and a seed: ends with the number of races. */
static void count_races(char **arguments)
{
    static float x[1024], y[1024];
    setup(NULL);
    options.seed = (uint32_t)atoi(arguments[3]);
    int rc = try_run(compile(arguments[1], arguments[2]), y, x, 2, 64);
    _exit(rc != 0 ? RUN_FAILS : msl_races());
}

/* Races that a process of its own sees; its reports are nothing to read. */
static int races_of(const char *file, const char *entry)
{
    char seed[16];
    snprintf(seed, sizeof seed, "%u", options.seed);
    pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        execle("/proc/self/exe", "test_msl", file, entry, seed, (char *)NULL,
               (char *[]){(char[]){"TSAN_OPTIONS=symbolize=0:atexit_sleep_ms=0"}, NULL});
        _exit(RUN_FAILS);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != RUN_FAILS);
    return WEXITSTATUS(status);
}

static void a_missing_barrier_is_a_race(void **state)
{
    (void)state;
    static const char *const racy[][2] = {{"barriers", "reverse_without_barrier"},
                                          {"barriers", "rotate_twice"},
                                          {"barriers", "reverse_in_step"},
                                          {"barriers", "set_once"},
                                          {"simd", "hand_over_by_sum"}};
    static const char *const clean[][2] = {{"barriers", "reverse"}, {"barriers", "arrivals"}, {"simd", "hand_over"},
                                           {"simd", "reductions"},  {"matrix", "matrices"},   {"types", "counters"}};
#ifdef MSL_THREAD_SANITIZER
    const int seen = 1;
#else
    const int seen = 0;
#endif
    for (options.seed = 0; options.seed < 3; options.seed++) {
        for (size_t i = 0; i < sizeof racy / sizeof *racy; i++)
            if ((races_of(racy[i][0], racy[i][1]) != 0) != seen)
                fail_msg("seed %u: %s", options.seed, racy[i][1]);
        for (size_t i = 0; i < sizeof clean / sizeof *clean; i++)
            if (races_of(clean[i][0], clean[i][1]) != 0)
                fail_msg("seed %u: %s", options.seed, clean[i][1]);
    }
}

int main(int argc, char **argv)
{
    if (argc == 4)
        count_races(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(threads_see_what_was_written_before_a_barrier, setup),
        cmocka_unit_test_setup(a_launch_out_of_bounds_is_refused, setup),
        cmocka_unit_test_setup(divergence_is_an_error, setup),
#ifndef MSL_THREAD_SANITIZER
        cmocka_unit_test_setup(an_index_outside_of_an_array_is_an_error, setup),
#endif
        cmocka_unit_test_setup(seeds_shuffle_the_order_of_threads, setup),
        cmocka_unit_test_setup(threadgroup_memory_is_unset_in_each_group, setup),
        cmocka_unit_test_setup(variables_of_a_thread_are_unset, setup),
        cmocka_unit_test_setup(built_in_attributes, setup),
        cmocka_unit_test_setup(reductions_over_a_simdgroup, setup),
        cmocka_unit_test_setup(exchanges_between_lanes, setup),
        cmocka_unit_test_setup(votes_in_a_simdgroup, setup),
        cmocka_unit_test_setup(lanes_that_part_exchange_among_themselves, setup),
        cmocka_unit_test_setup(a_simdgroup_waits_as_a_whole_at_its_barrier, setup),
        cmocka_unit_test_setup(matrices_of_a_simdgroup, setup),
        cmocka_unit_test_setup(types_and_functions, setup),
        cmocka_unit_test_setup(atomics, setup),
        cmocka_unit_test_setup(constants_specialise, setup),
        cmocka_unit_test_setup(texts_that_a_device_would_not_take, setup),
        cmocka_unit_test_setup(a_fault_in_a_kernel_can_be_left, setup),
        cmocka_unit_test_setup(a_missing_barrier_is_a_race, setup),
    };
#ifdef MSL_CLANG
    return cmocka_run_group_tests(tests, NULL, NULL);
#else
    (void)tests;
    puts("skipped: there is no clang to compile Metal's kernels with");
    return 77;
#endif
}
