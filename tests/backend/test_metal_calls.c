/* `test_metal_calls [OP]`. What each kernel of Metal needs from the driver: every argument that it is given, every buffer that is declared
 * to an encoder, every barrier between dispatches, left out one at a time, is seen. And what it does not depend on: threads of a SIMD
 * group, and the order in which threads run. */
#include "kernel_jobs.h"
#include "support/metal_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if K3_METAL_HARNESS && defined(MSL_CLANG)
#include "metal/fake.h"

enum { MOST_JOBS = 64 };

static char names[3 * MOST_JOBS + 1][80];

/* What can be left out of a job, how often it occurs, and how often that was seen. */
typedef struct tally {
    const char *name;
    k3_fake_metal_call call;
    int n, seen;
} tally;

static void list_kernels(const kernel_run *run, char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < K3_GPU_N_SHADERS; i++)
        if (run->kernels[i] && used < size)
            used += (size_t)snprintf(out + used, size - used, " %s", kernel_name(i));
}

/* Runs the job with the n-th call of a kind left out, at a reversed order of independent dispatches and then at others. */
static int is_seen(const kernel_job *j, const kernel_run *whole, k3_fake_metal_call call, int n)
{
    int seen = 0;
    for (uint32_t order = 1; order <= 3 && !seen; order++) {
        k3_fake_metal_reset();
        k3_fake_metal_set()->dispatch_order = order;
        k3_fake_metal_set()->forget = call == K3_FAKE_BYTES; /* kernels with arguments of others may never end */
        k3_fake_metal_drop(call, (uint64_t)n);
        kernel_run run = run_kernel_job(j, NULL);
        seen = !same_run(&run, whole);
        free(run.result.values);
    }
    k3_fake_metal_reset();
    return seen;
}

static void needs_every_call(void **state)
{
    const kernel_job *j = *state;
    char kernels[512];
    k3_fake_metal_reset();
    kernel_run whole = run_kernel_job(j, NULL);
    tally tallies[] = {{"arguments", K3_FAKE_BYTES, 0, 0},
                       {"declarations", K3_FAKE_USE, 0, 0},
                       {"buffers", K3_FAKE_RESOURCE, 0, 0},
                       {"barriers", K3_FAKE_BARRIER, 0, 0}};
    enum { N = sizeof tallies / sizeof *tallies, BUFFERS = 2 };
    int counts[N], n_wrong = 0;
    assert_int_equal(whole.status, K3_OK);
    assert_int_equal(whole.violations, 0);
    assert_int_equal(k3_fake_metal_count(K3_FAKE_ENCODER), 1); /* the n-th buffer is the n-th slab */
    assert_int_equal(k3_fake_metal_count(K3_FAKE_RESOURCE), whole.n_slabs);
    for (int i = 0; i < N; i++)
        counts[i] = (int)k3_fake_metal_count(tallies[i].call);
    list_kernels(&whole, kernels, sizeof kernels);
    for (int i = 0; i < N; i++)
        for (int n = 1; n <= counts[i]; n++) {
            if (i == BUFFERS && !whole.touched[n - 1])
                continue;
            int seen = is_seen(j, &whole, tallies[i].call, n);
            if (!seen)
                print_error("%s:%s: nobody sees that number %d of the %s is missing\n", j->op, kernels, n, tallies[i].name);
            tallies[i].n++;
            tallies[i].seen += seen;
            n_wrong += !seen;
        }
    print_message("%s:%s: left out and seen:", j->op, kernels);
    for (int i = 0; i < N; i++)
        print_message(" %d/%d %s", tallies[i].seen, tallies[i].n, tallies[i].name);
    print_message("\n");
    free(whole.result.values);
    assert_int_equal(n_wrong, 0);
}

static kernel_run run_at(const kernel_job *j, uint32_t width, uint32_t order)
{
    k3_fake_metal_reset();
    k3_fake_metal_set()->width = width;
    k3_fake_metal_set()->thread_order = order;
    kernel_run run = run_kernel_job(j, NULL);
    if (run.status != K3_OK || run.violations)
        fail_msg("SIMD groups of %u, order %u: status %d, %d violations", width, order, run.status, run.violations);
    k3_fake_metal_reset();
    return run;
}

/* Runs the job twice; returns the difference from the CPU's result in units of what is allowed. */
static double difference_at(const kernel_job *j, const job_result *want, uint32_t width, uint32_t order)
{
    kernel_run run = run_at(j, width, order), again = run_at(j, width, order);
    if (!same_run(&again, &run))
        fail_msg("SIMD groups of %u, order %u: another result the second time", width, order);
    double difference = job_difference(want, &run.result);
    if (!(difference <= run.tolerance))
        fail_msg("SIMD groups of %u, order %u: differs by %.3g, allowed %.3g", width, order, difference, run.tolerance);
    free(run.result.values);
    free(again.result.values);
    return run.tolerance > 0 ? difference / run.tolerance : 0;
}

/* Operations that the CPU does not have compute with integers, or find the largest: they give the same bits. */
static void depends_on_no_order(void **state)
{
    static const uint32_t widths[] = {8, 16, 32, 64}, orders[] = {0, 1, 20};
    const kernel_job *j = *state;
    job_result want = cpu_result_of(j);
    double worst = 0;
    if (!want.values)
        want = run_at(j, 32, 0).result;
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (size_t o = 0; o < sizeof orders / sizeof *orders; o++)
            worst = fmax(worst, difference_at(j, &want, widths[w], orders[o]));
    print_message("%s: off by at most %.3g of what is allowed\n", j->op, worst);
    free(want.values);
}

/* Each buffer ends at a page that faults: nothing behind it is read or written, and the result is the same. */
static void stays_before_the_ends(void **state)
{
    const kernel_job *j = *state;
    k3_fake_metal_reset();
    kernel_run want = run_kernel_job(j, NULL);
    place_at_ends(2 << 20);
    kernel_run run = run_kernel_job(j, NULL);
    place_at_ends(0);
    assert_int_equal(run.status, K3_OK);
    assert_true(same_run(&run, &want));
    free(want.result.values);
    free(run.result.values);
}

static void every_kernel_has_a_job(void **state)
{
    (void)state;
    unsigned char used[K3_GPU_N_SHADERS] = {0};
    int n_missing = 0;
    assert_true(n_kernel_jobs <= MOST_JOBS);
    for (int i = 0; i < n_kernel_jobs; i++) {
        k3_fake_metal_reset();
        kernel_run run = run_kernel_job(&kernel_jobs[i], NULL);
        for (int k = 0; k < K3_GPU_N_SHADERS; k++)
            used[k] |= run.kernels[k];
        free(run.result.values);
    }
    for (int k = 0; k < K3_GPU_N_SHADERS; k++)
        if (kernel_text(k) && !used[k]) {
            print_error("no job of kernel_jobs.c runs %s\n", kernel_name(k));
            n_missing++;
        }
    assert_int_equal(n_missing, 0);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[3 * MOST_JOBS + 1] = {cmocka_unit_test(every_kernel_has_a_job)};
    int n = argc < 2;
    for (int i = 0; i < n_kernel_jobs && i < MOST_JOBS; i++) {
        const kernel_job *j = &kernel_jobs[i];
        if (argc > 1 && strcmp(argv[1], j->op))
            continue;
        snprintf(names[n], sizeof names[0], "%s_%d_needs_every_call", j->op, i);
        tests[n] = (struct CMUnitTest){names[n], needs_every_call, NULL, NULL, (void *)(uintptr_t)j};
        n++;
        snprintf(names[n], sizeof names[0], "%s_%d_depends_on_no_order", j->op, i);
        tests[n] = (struct CMUnitTest){names[n], depends_on_no_order, NULL, NULL, (void *)(uintptr_t)j};
        n++;
        snprintf(names[n], sizeof names[0], "%s_%d_stays_before_the_ends", j->op, i);
        tests[n] = (struct CMUnitTest){names[n], stays_before_the_ends, NULL, NULL, (void *)(uintptr_t)j};
        n++;
    }
    if (!n) {
        fprintf(stderr, "no job of the operation \"%s\"\n", argv[1]);
        return 1;
    }
    return _cmocka_run_group_tests("what Metal's kernels need", tests, (size_t)n, NULL, NULL);
}

#else
static void metal_kernels_need_their_calls(void **state)
{
    (void)state;
    print_message("skipped: no clang, or no libobjc, with which kernels of Metal are run\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(metal_kernels_need_their_calls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
