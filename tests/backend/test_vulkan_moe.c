/* The routed experts of many rows on a Vulkan device: against the scalar CPU kernels, with experts that are elsewhere, with the choice left
 * on the device, and with choices that name no expert. */
#include "fixture.h"

#include "backend/args/moe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EXPERTS = 600, MOST_PAIRS = 2048 };

typedef struct shape {
    int T, K, E, L, I;
    float b2;
} shape;

/* Few rows and many; rows of an expert below and above a tile of every kernel; widths that whole matrix tiles divide, and others. */
static const shape shapes[] = {
    {3, 4, 9, 160, 96, 25},    {8, 16, 40, 64, 32, 25},   {9, 2, 8, 64, 96, 25},           {40, 4, 32, 160, 96, INFINITY},
    {90, 3, 64, 128, 128, 25}, {300, 3, 5, 256, 128, 25}, {300, 3, 5, 256, 128, INFINITY}, {70, 16, 64, 32, 32, 25},
    {33, 1, 1, 128, 384, 25},  {1, 2, 4, 4224, 32, 25},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* One call's tensors on a backend. */
typedef struct call {
    k3_backend *be;
    k3_moe moe;
    int32_t ids[MOST_PAIRS];
    k3_expert experts[MOST_EXPERTS];
    const k3_expert *table[MOST_EXPERTS];
    k3_ref z, slots;
} call;

static uint64_t address_of(k3_ref ref)
{
    return ref.buf->address + ref.at;
}

static k3_ref put_addresses(const call *c)
{
    struct k3_expert_address addresses[MOST_EXPERTS] = {{0}};
    for (int e = 0; e < c->moe.E; e++) {
        const k3_expert *x = &c->experts[e];
        addresses[e] = (struct k3_expert_address){address_of(x->w1.data),  address_of(x->w1.scale), address_of(x->w3.data),
                                                  address_of(x->w3.scale), address_of(x->w2.data),  address_of(x->w2.scale)};
    }
    return put_bytes(c->be, addresses, (size_t)c->moe.E * sizeof *addresses);
}

/* Rows differ in size by up to 2^12; a slot that nobody writes holds 7. Experts 0, 3, 6, ... are elsewhere if `partial`. */
static call *make_call(k3_backend *be, const shape *s, int partial)
{
    call *c = calloc(1, sizeof *c);
    random_stream r = {(uint64_t)(s->T * 1000 + s->L)};
    size_t pairs = (size_t)(s->T * s->K), n_z = (size_t)(s->T * s->L), n_slots = pairs * (size_t)s->L;
    assert_non_null(c);
    assert_true(pairs <= MOST_PAIRS && s->E <= MOST_EXPERTS);
    float *values = malloc((n_z > n_slots ? n_z : n_slots) * sizeof *values);
    assert_non_null(values);
    random_floats(&r, values, n_z, 1);
    for (size_t i = 0; i < n_z; i++)
        values[i] = ldexpf(values[i], (int)(i / (size_t)s->L) % 12 - 8);
    c->be = be;
    c->z = put_floats(be, values, n_z);
    for (size_t i = 0; i < n_slots; i++)
        values[i] = 7;
    c->slots = put_floats(be, values, n_slots);
    free(values);
    for (int e = 0; e < s->E; e++) {
        c->experts[e] = (k3_expert){random_mat(be, &r, K3_MXFP4, s->I, s->L, 0), random_mat(be, &r, K3_MXFP4, s->I, s->L, 0),
                                    random_mat(be, &r, K3_MXFP4, s->L, s->I, 0)};
        c->table[e] = partial && e % 3 == 0 ? NULL : &c->experts[e];
    }
    for (size_t p = 0; p < pairs; p++) /* low ids more often */
        c->ids[p] = random_below(&r, 1 + random_below(&r, s->E));
    c->moe = (k3_moe){s->T, s->K, s->E, s->L, s->I, 4, s->b2, put_bytes(be, c->ids, pairs * sizeof *c->ids), c->ids, c->table, {NULL, 0}};
    return c;
}

static float *compute(call *c)
{
    c->be->ops->moe_experts(c->be, c->slots, c->z, &c->moe);
    return get_floats(c->be, c->slots, (size_t)(c->moe.T * c->moe.K * c->moe.L));
}

/* Slot by slot, since a slot's size follows its row's. */
static double worst_slot(const float *got, const float *want, const shape *s)
{
    double worst = 0;
    for (int p = 0; p < s->T * s->K; p++, got += s->L, want += s->L) {
        double most = 0, largest = 0;
        for (int i = 0; i < s->L; i++) {
            if (!isfinite(got[i]))
                return INFINITY;
            most = fmax(most, fabs((double)got[i] - (double)want[i]));
            largest = fmax(largest, fabs((double)want[i]));
        }
        worst = fmax(worst, most / fmax(largest, 1e-30));
    }
    return worst;
}

static void compare(k3_backend *device, k3_backend *cpu, const shape *s, int partial)
{
    int halves = strstr(device->describe(device), "f16") != NULL;
    double allowed = halves ? 4e-3 : 4e-5;
    call *a = make_call(device, s, partial), *b = make_call(cpu, s, partial);
    float *got = compute(a), *want = compute(b);
    double d = worst_slot(got, want, s);
    if (!(d <= allowed))
        fail_msg("T %d K %d E %d L %d I %d partial %d: a slot differs by %.3g, allowed %.3g", s->T, s->K, s->E, s->L, s->I, partial, d,
                 allowed);
    if (!partial) {
        a->moe.host_ids = NULL;
        a->moe.experts = NULL;
        a->moe.table = put_addresses(a);
        float *again = compute(a);
        assert_memory_equal(again, got, (size_t)(s->T * s->K * s->L) * sizeof *got);
        free(again);
    }
    free(got);
    free(want);
    free(a);
    free(b);
}

/* Gives the experts new tensors, all in one buffer and far enough apart that no two are one range. */
static void scatter(call *c)
{
    enum { PLACE = 2048, TENSORS = 6 };
    size_t bytes = (size_t)c->moe.E * TENSORS * PLACE;
    unsigned char *pool = malloc(bytes);
    random_stream r = {5};
    assert_non_null(pool);
    for (size_t i = 0; i < bytes; i++)
        pool[i] = (unsigned char)(i / PLACE % 2 ? 118 + random_bits(&r) % 8 : random_bits(&r)); /* scales, codes */
    k3_ref at = put_bytes(c->be, pool, bytes);
    free(pool);
    for (int e = 0; e < c->moe.E; e++) {
        k3_mat *mats[3] = {&c->experts[e].w1, &c->experts[e].w3, &c->experts[e].w2};
        for (int i = 0; i < 3; i++) {
            mats[i]->data = k3_at(at, (uint64_t)(TENSORS * e + 2 * i) * PLACE);
            mats[i]->scale = k3_at(mats[i]->data, PLACE);
        }
    }
}

static k3_backend *open_device(void)
{
    k3_backend *be = open_level("vulkan", 1);
    if (!be) {
        print_message("no Vulkan device\n");
        skip();
    }
    return be;
}

static void many_rows_agree_with_the_cpu(void **state)
{
    (void)state;
    k3_backend *device = open_device(), *cpu = open_level("scalar+exact", 1);
    for (int i = 0; i < N_SHAPES; i++)
        for (int partial = 0; partial < 2; partial++)
            compare(device, cpu, &shapes[i], partial);
    cpu->close(cpu);
    device->close(device);
}

/* More ranges than a dispatch keeps apart, of few rows and of many. */
static void experts_in_scattered_slots_are_computed(void **state)
{
    (void)state;
    k3_backend *device = open_device(), *cpu = open_level("scalar+exact", 1);
    const shape shapes_of_many[2] = {{8, 64, 600, 64, 32, 25}, {128, 16, 600, 64, 32, 25}};
    for (int i = 0; i < 2; i++) {
        const shape *s = &shapes_of_many[i];
        call *a = make_call(device, s, 0), *b = make_call(cpu, s, 0);
        for (int p = 0; p < s->T * s->K; p++)
            a->ids[p] = b->ids[p] = p * 7 % s->E;
        device->memory->upload(device, a->moe.ids, a->ids, 4 * (uint64_t)(s->T * s->K));
        scatter(a);
        scatter(b);
        float *got = compute(a), *want = compute(b);
        double d = worst_slot(got, want, s);
        if (!(d <= 1e-2)) /* of sums of 32 and 64 products, in f16 where there are matrix units */
            fail_msg("%d rows: a slot differs by %.3g", s->T, d);
        free(got);
        free(want);
        free(a);
        free(b);
    }
    cpu->close(cpu);
    device->close(device);
}

static void expect_failure(k3_backend *be, k3_status status, const char *text)
{
    k3_error err;
    assert_int_equal(be->sync(be, &err), status);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, err.text);
}

/* Of few rows and many. The device's own choice is checked on the device, and the rest of the rows are computed. */
static void a_choice_outside_the_table_is_a_failure(void **state)
{
    (void)state;
    k3_backend *be = open_device();
    for (int i = 0; i < 2; i++) {
        const shape s = {i ? 30 : 2, 2, 8, 64, 32, 25};
        call *c = make_call(be, &s, 0);
        static const int32_t wrong[3] = {8, -1, INT32_MAX};
        for (int w = 0; w < 3; w++) {
            c->ids[1] = wrong[w];
            c->moe.host_ids = c->ids;
            be->ops->moe_experts(be, c->slots, c->z, &c->moe);
            expect_failure(be, K3_E_INVALID, "of 8 is asked for");
            be->memory->upload(be, c->moe.ids, c->ids, 4 * (uint64_t)(s.T * s.K));
            c->moe.host_ids = NULL;
            c->moe.table = put_addresses(c);
            be->ops->moe_experts(be, c->slots, c->z, &c->moe);
            expect_failure(be, K3_E_INVALID, "moe_experts");
            float *slots = get_floats(be, c->slots, (size_t)(s.T * s.K * s.L));
            assert_true(slots[s.L] == 7 && slots[0] != 7 && slots[2 * s.L] != 7);
            free(slots);
        }
        free(c);
    }
    be->close(be);
}

static void a_nan_among_the_logits_is_a_failure(void **state)
{
    (void)state;
    enum { T = 3, E = 300, K = 4 };
    k3_backend *be = open_device();
    float logits[T * E], bias[E] = {0};
    random_stream r = {1};
    random_floats(&r, logits, T * E, 1);
    logits[E + 299] = NAN;
    k3_ref ids = new_bytes(be, T * K * 4), weights = new_floats(be, T * K);
    be->ops->router_topk(be, ids, weights, put_floats(be, logits, T * E), put_floats(be, bias, E), T, E, K, 1, 1);
    expect_failure(be, K3_E_NUMERIC, "NaN");
    int32_t *got = get_bytes(be, ids, T * K * 4);
    for (int i = 0; i < T * K; i++)
        assert_in_range(got[i], 0, E - 1);
    free(got);
    be->close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_rows_agree_with_the_cpu),
        cmocka_unit_test(experts_in_scattered_slots_are_computed),
        cmocka_unit_test(a_choice_outside_the_table_is_a_failure),
        cmocka_unit_test(a_nan_among_the_logits_is_a_failure),
    };
    return cmocka_run_group_tests_name("routed experts on Vulkan", tests, NULL, NULL);
}
