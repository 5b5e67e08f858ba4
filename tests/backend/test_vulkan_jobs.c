/* `test_vulkan_jobs [OP]`. Random calls of every operation on a Vulkan device against the scalar CPU kernels: odd shapes, odd places,
 * several sequences, all weight types, in one call and in several. With validation, on the device that is there and on one that the fault
 * layer makes a card of its own of. Then H16: the same call 200 times gives the same bits. */
#include "jobs.h"
#include "support/vulkan_layers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_ROUNDS = 6, N_SHAPES = 5, N_REPEATS = 40, N_DEVICES = 3, N_TESTS = (N_DEVICES + 1) * (N_JOB_OPS + 1) };

/* How many times the rounding of the CPU's levels a device may be off: other orders of sums, exp and tanh of a few more ulp. */
static const double device_slack = 4;
/* Products in f16, where a device has matrix units, or for few rows of mxfp4, and is not held to exact arithmetic. */
static const double half_tolerance = 4e-3;

static const struct device_kind {
    const char *name, *level, *faults;
    int validated;
} device_kinds[N_DEVICES + 1] = {
    {"device", "vulkan", "", 1},
    {"exact_device", "vulkan+exact", "", 1},
    {"card", "vulkan", "heaps=d3000:h3000,transfer_queue=1,discrete=1", 1},
    {"device", "vulkan", "", 0},
};

/* The layers are told of one device at a time, so the tests of a kind follow one another and the last one closes it. */
static k3_backend *device, *scalar;
static const struct device_kind *open_kind;
static int layers;

typedef struct subject {
    const struct device_kind *kind;
    const job_op *op;
} subject;

static job make_job(const job_op *op, int round, k3_type type)
{
    random_stream r = {999983u * (uint64_t)(op - job_ops) + 101u * (uint64_t)round + 7u * (uint64_t)type};
    job j = {.seed = (uint64_t)random_bits(&r) << 8 | (uint64_t)round, .T = 1 + random_below(&r, round % 3 ? 9 : 40), .type = type};
    j.n_sequences = 1 + random_below(&r, j.T < 3 ? j.T : 3);
    j.a = 1 + random_below(&r, round % 4 == 3 ? 1300 : 150);
    j.b = 1 + random_below(&r, 70);
    j.odd = round % 2;
    if (op->by_type) {
        int granule = k3_type_granule(type);
        j.a = (j.a + granule - 1) / granule * granule;
    }
    if (strncmp(op->name, "kda_", 4) == 0 && strcmp(op->name, "kda_gate")) { /* a device takes heads of a multiple of 4, so placed */
        j.a = 4 + j.a % 150 / 4 * 4;
        j.odd *= 4;
    }
    if (round == 5)
        j.T = 1; /* decode */
    if (strcmp(op->name, "matmul") == 0 && round == 4)
        j.T = 70 + random_below(&r, 80); /* several tiles of rows */
    return j;
}

static job_result compute(k3_backend *be, const job_op *op, const job *j, const int *pieces)
{
    static const int whole[1] = {0};
    job_result out = {NULL, 0};
    keep_track();
    op->run(be, j, pieces ? pieces : whole, &out);
    must_sync(be);
    release_tracked(be);
    return out;
}

static double tolerance_of(const job_op *op, const job *j)
{
    const char *kernels = device->describe(device);
    int experts = strcmp(op->name, "moe_experts") == 0 && strstr(kernels, "f16");
    int mxfp4 = strcmp(op->name, "matmul") == 0 && j->type == K3_MXFP4 && strstr(kernels, "f16");
    int matrices = j->T > 1 && (op->by_type || op->chunked) && strcmp(op->name, "embed") != 0 && strstr(kernels, "f16 matrix");
    return experts || mxfp4 || matrices ? half_tolerance : device_slack * op->tolerance;
}

static void check_job(const job_op *op, const job *j, const int *pieces, const job_result *want)
{
    job_result got = compute(device, op, j, pieces);
    double d = job_difference(want, &got), allowed = tolerance_of(op, j);
    if (!(d <= allowed))
        fail_msg("%s on %s: differs from scalar by %.3g, allowed %.3g (%s, T %d of %d sequences, a %d, b %d, odd %d, pieces %d)", op->name,
                 device->name, d, allowed, k3_type_name(j->type), j->T, j->n_sequences, j->a, j->b, j->odd, pieces ? pieces[0] : 0);
    free(got.values);
}

static void close_device(void)
{
    if (device)
        device->close(device);
    device = NULL;
    open_kind = NULL;
}

static void use_device(const struct device_kind *kind)
{
    int want = VULKAN_FAULTS | (kind->validated ? VULKAN_VALIDATION : 0);
    if (open_kind == kind)
        return;
    close_device();
    layers = vulkan_use_layers(want);
    if (layers & VULKAN_FAULTS)
        vulkan_faults(kind->faults);
    if (layers & VULKAN_FAULTS || !*kind->faults)
        device = open_level(kind->level, 1);
    if (!device) {
        print_message("no Vulkan device\n");
        skip();
    }
    open_kind = kind;
}

static void agrees_with_the_cpu(void **state)
{
    static const int mixed[8] = {2, 1, 4, 3}, late[4] = {5, 1};
    const subject *s = *state;
    use_device(s->kind);
    for (int i = 0; i < N_ROUNDS; i++)
        for (int type = 0; type < (s->op->by_type ? K3_N_TYPES : 1); type++) {
            job j = make_job(s->op, i, (k3_type)type);
            job_result want = compute(scalar, s->op, &j, NULL);
            check_job(s->op, &j, NULL, &want);
            check_job(s->op, &j, i % 2 ? mixed : late, &want);
            free(want.values);
        }
}

static void h16_gives_the_same_bits_every_time(void **state)
{
    const subject *s = *state;
    use_device(s->kind);
    for (int i = 0; i < N_SHAPES; i++) {
        job j = make_job(s->op, i, s->op->by_type ? (k3_type)(i * 3 % K3_N_TYPES) : K3_F32);
        job_result want = compute(device, s->op, &j, NULL);
        for (int k = 1; k < N_REPEATS; k++) {
            job_result got = compute(device, s->op, &j, NULL);
            assert_int_equal(got.n, want.n);
            for (size_t v = 0; v < got.n; v++)
                if (memcmp(&got.values[v], &want.values[v], sizeof(float)))
                    fail_msg("%s on %s, repeat %d: value %zu is %a, was %a (%s, T %d, a %d, b %d)", s->op->name, device->name, k, v,
                             (double)got.values[v], (double)want.values[v], k3_type_name(j.type), j.T, j.a, j.b);
            free(got.values);
        }
        free(want.values);
    }
}

static void validation_was_silent(void **state)
{
    const subject *s = *state;
    use_device(s->kind);
    close_device();
    if (!(layers & VULKAN_VALIDATION)) {
        print_message("the validation layers are not installed\n");
        skip();
    }
    vulkan_messages(0);
}

int main(int argc, char **argv)
{
    static char names[N_TESTS][80];
    static subject subjects[N_TESTS];
    struct CMUnitTest tests[N_TESTS];
    int n = 0;
    for (int d = 0; d <= N_DEVICES; d++) {
        const struct device_kind *kind = &device_kinds[d];
        for (int i = 0; i <= N_JOB_OPS; i++) {
            const job_op *op = i < N_JOB_OPS ? &job_ops[i] : NULL;
            if (op ? argc > 1 && strcmp(argv[1], op->name) : !kind->validated)
                continue;
            if (!op)
                snprintf(names[n], sizeof names[0], "validation_was_silent_on_%s", kind->name);
            else if (kind->validated)
                snprintf(names[n], sizeof names[0], "%s_on_%s_agrees_with_the_cpu", op->name, kind->name);
            else
                snprintf(names[n], sizeof names[0], "h16_%s_gives_the_same_bits_every_time", op->name);
            subjects[n] = (subject){kind, op};
            tests[n] = (struct CMUnitTest){names[n],
                                           !op               ? validation_was_silent
                                           : kind->validated ? agrees_with_the_cpu
                                                             : h16_gives_the_same_bits_every_time,
                                           NULL, NULL, &subjects[n]};
            n++;
        }
    }
    scalar = open_level("scalar+exact", 1);
    int failed = _cmocka_run_group_tests("Vulkan jobs", tests, (size_t)n, NULL, NULL);
    close_device();
    scalar->close(scalar);
    return failed;
}
