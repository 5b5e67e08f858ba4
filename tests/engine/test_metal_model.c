/* The whole model on the Metal of tests/metal, which executes the kernels' text as it ships: the CPU's logits and tokens in exact mode, in
 * one submission a token, from a part of the experts, after a failure. `test_metal_model [PATTERN]` runs some of the tests. */
#include "engine/greedy.h"
#include "metal/fake.h"
#include "support/metal_harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const k3_config exact = {.backend = "metal", .exact = 1, .threads = 1};

static k3_engine *open_engine(const k3_config *config)
{
    k3_engine *engine;
    k3_error err;
    if (k3_engine_open(&engine, TINY, config, &err) != K3_OK)
        fail_msg("%s", err.text);
    return engine;
}

/* Every object and every byte goes back, and nothing was asked of Metal that it does not promise. */
static void close_clean(k3_engine *engine)
{
    k3_engine_close(engine);
    assert_int_equal(k3_fake_metal_live(NULL), 0);
    assert_int_equal(k3_fake_metal_allocated(), 0);
    metal_was_used_well();
}

static int fresh(void **state)
{
    (void)state;
    k3_fake_metal_reset();
    return 0;
}

/* ---- exact mode -------------------------------------------------------------------------------------------------- */

static void compare(const k3_config *config, int n_new)
{
    const run *want = cpu_run(TINY);
    k3_engine *engine = open_engine(config);
    run got = {.scores = room_for_scores(engine)};
    must_generate(&got, engine, PROMPT, n_new);
    double worst = difference(&got, want);
    free(got.scores);
    print_message("           %d rows a pass: %.2g\n", config->chunk_rows, worst);
    if (!(worst <= 1e-4))
        fail_msg("%d rows a pass: logits differ by %.3g, at most 1e-4 wanted", config->chunk_rows, worst);
    same_ids(&got, want, "metal");
    close_clean(engine);
}

static void exact_mode_meets_the_cpu(void **state)
{
    (void)state;
    compare(&exact, NEW);
}

static void exact_mode_meets_the_cpu_in_any_chunks(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        k3_config config = exact;
        config.chunk_rows = (int[]){1, 7, 64}[i];
        compare(&config, 2);
    }
}

/* Simdgroups of another width, threads and dispatches in another order: what no kernel may depend on. */
static void neither_width_nor_order_matters(void **state)
{
    (void)state;
    static const uint32_t widths[] = {8, 64};
    for (int i = 0; i < 2; i++) {
        k3_fake_metal_reset();
        k3_fake_metal_set()->width = widths[i];
        k3_fake_metal_set()->dispatch_order = k3_fake_metal_set()->thread_order = 7 + (uint32_t)i;
        compare(&exact, 4);
    }
}

/* ---- submissions ------------------------------------------------------------------------------------------------- */

static void append(k3_session *session, int32_t id)
{
    k3_error err;
    if (k3_session_append(session, &id, 1, &err) != K3_OK)
        fail_msg("%s", err.text);
}

/* Every expert is resident: a token is one command buffer with one encoder. */
static void whole_layers_go_in_one_command_buffer(void **state)
{
    (void)state;
    k3_session *session;
    k3_error err;
    k3_engine *engine = open_engine(&exact);
    assert_int_equal(k3_session_open(&session, engine, &err), K3_OK);
    append(session, 1); /* compiles and learns */
    for (int i = 1; i < 6; i++) {
        uint64_t runs = k3_fake_metal_count(K3_FAKE_RUN), encoders = k3_fake_metal_count(K3_FAKE_ENCODER);
        append(session, 7 * i + 1);
        assert_int_equal(k3_fake_metal_count(K3_FAKE_RUN) - runs, 1);
        assert_int_equal(k3_fake_metal_count(K3_FAKE_ENCODER) - encoders, 1);
    }
    k3_session_close(session);
    close_clean(engine);
}

/* Room for a part of the experts: the CPU computes the rest meanwhile, and the tokens stay. */
static void a_part_of_the_experts_changes_no_token(void **state)
{
    (void)state;
    const run *want = cpu_run(TINY);
    k3_config config = exact;
    k3_memory_info info;
    int n, n_slots, all;
    k3_engine *engine = open_engine(&config);
    engine->be->memory->info(engine->be, &info);
    k3_experts_resident(engine->experts, &n, &n_slots, &all);
    assert_int_equal(n, all);
    config.vram = info.used + k3_machine_reserved_bytes(engine) - k3_experts_slot_bytes(engine->hp) * (uint64_t)all / 2;
    close_clean(engine);
    engine = open_engine(&config);
    run got = {.scores = NULL};
    must_generate(&got, engine, PROMPT, 8);
    same_ids(&got, want, "half of the experts");
    k3_experts_resident(engine->experts, &n, &n_slots, &all);
    assert_true(n > 0 && n_slots < all);
    close_clean(engine);
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* The GPU goes away in the middle of a request: the run goes on with the same tokens. */
static void h26_a_lost_device_changes_no_token(void **state)
{
    (void)state;
    enum { DEVICE_REMOVED = 11 };
    const run *want = cpu_run(TINY);
    k3_engine *engine = open_engine(&exact);
    run got = {.scores = NULL};
    k3_fake_metal_fail(K3_FAKE_RUN, 3, DEVICE_REMOVED);
    must_generate(&got, engine, PROMPT, 8);
    same_ids(&got, want, "a lost device");
    assert_non_null(k3_engine_info(engine)->notice);
    close_clean(engine);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(exact_mode_meets_the_cpu, fresh),
        cmocka_unit_test_setup(exact_mode_meets_the_cpu_in_any_chunks, fresh),
        cmocka_unit_test_setup(neither_width_nor_order_matters, fresh),
        cmocka_unit_test_setup(whole_layers_go_in_one_command_buffer, fresh),
        cmocka_unit_test_setup(a_part_of_the_experts_changes_no_token, fresh),
        cmocka_unit_test_setup(h26_a_lost_device_changes_no_token, fresh),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    metal_harness();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
