/* Routed experts in device memory: whatever fits, wherever they are computed, the answer is the same. */
#include "engine/tiny_runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int budgets[] = {0, 1, 3, RUN_EXPERTS / 2, RUN_EXPERTS - 1, RUN_EXPERTS};
enum { N_BUDGETS = sizeof budgets / sizeof budgets[0] };

static const k3_config plain = {.backend = "posing", .trunk = "int8", .chunk_rows = 16, .threads = 1};

static void check_run(k3_engine *engine, const k3_config *config)
{
    tiny_run got;
    k3_error err;
    run_must(run_greedy(&got, engine, &err), &err);
    run_check(&got, run_on_cpu(config->exact));
}

static void resident(const k3_engine *engine, int *n, int *n_slots)
{
    int all;
    k3_experts_resident(engine->experts, n, n_slots, &all);
    assert_int_equal(all, RUN_EXPERTS);
}

static void every_budget(k3_config config, int first_chunk)
{
    run_measure(config);
    for (int i = 0; i < N_BUDGETS; i++)
        for (int chunk = first_chunk; chunk <= 16; chunk += 5) {
            int n, n_slots;
            posing_reset();
            /* Smaller chunks need less scratch and leave a little more. */
            config.chunk_rows = 16;
            posing.budget[0] = run_budget(budgets[i]);
            k3_engine *engine = run_open(&config);
            engine->chunk_rows = chunk;
            resident(engine, &n, &n_slots);
            assert_int_equal(n_slots, budgets[i]);
            assert_int_equal(n, budgets[i] == RUN_EXPERTS ? RUN_EXPERTS : 0);
            check_run(engine, &config);
            check_run(engine, &config);
            resident(engine, &n, &n_slots);
            /* Where nearly all have room, a few may never have been chosen. */
            assert_in_range(n, budgets[i] < RUN_EXPERTS - 8 ? budgets[i] : budgets[i] - 4, budgets[i]);
            k3_engine_close(engine);
        }
    assert_int_equal(posing.n_open, 0);
}

static void every_budget_gives_the_same_tokens(void **state)
{
    (void)state;
    every_budget(plain, 1);
}

static void nothing_comes_back_inside_a_token_when_all_experts_are_resident(void **state)
{
    (void)state;
    k3_error err;
    posing_reset();
    k3_engine *engine = run_open(&plain);
    k3_session *session;
    run_must(k3_session_open(&session, engine, &err), &err);
    run_must(k3_session_append(session, run_prompt, 4, &err), &err);
    long downloads = posing.n_downloads, waits = posing.n_waits;
    run_must(k3_session_append(session, run_prompt + 4, 1, &err), &err);
    assert_int_equal(posing.n_downloads - downloads, 1); /* the logits */
    assert_int_equal(posing.n_waits - waits, 2);         /* they, and the end of the pass */
    k3_session_close(session);
    k3_engine_close(engine);
}

/* Case H01: a device may refuse large allocations long before its memory ends. */
static void slots_are_made_in_smaller_pieces_where_large_ones_are_refused(void **state)
{
    (void)state;
    posing_reset();
    k3_engine_close(run_open(&plain));
    long n_allocs = posing.n_allocs, first = posing.experts_alloc;
    posing_reset();
    posing.fail_alloc = first;
    k3_engine *engine = run_open(&plain);
    int n, n_slots;
    resident(engine, &n, &n_slots);
    assert_int_equal(n_slots, RUN_EXPERTS);
    assert_int_equal(n, RUN_EXPERTS);
    assert_int_equal(posing.n_allocs, n_allocs + 2);
    check_run(engine, &plain);
    k3_engine_close(engine);
}

static void one_wait_a_layer_when_some_are_not(void **state)
{
    (void)state;
    k3_error err;
    run_measure(plain);
    posing.budget[0] = run_budget(RUN_EXPERTS / 2);
    k3_engine *engine = run_open(&plain);
    k3_session *session;
    run_must(k3_session_open(&session, engine, &err), &err);
    run_must(k3_session_append(session, run_prompt, 4, &err), &err);
    long downloads = posing.n_downloads;
    run_must(k3_session_append(session, run_prompt + 4, 1, &err), &err);
    assert_int_equal(posing.n_downloads - downloads, 12 + 1);
    k3_session_close(session);
    k3_engine_close(engine);
}

static void one_by_one(k3_engine *engine, int n)
{
    k3_session *session;
    k3_error err;
    run_must(k3_session_open(&session, engine, &err), &err);
    for (int i = 0; i < n; i++) {
        int32_t id = (i * 37 + 11) % TINY_VOCAB;
        run_must(k3_session_append(session, &id, 1, &err), &err);
    }
    k3_session_close(session);
}

/* Case H27: the tier fills from what the CPU computes, and after 200 tokens more than nine tenths of it are in use. */
static void the_tier_fills(void **state)
{
    (void)state;
    run_measure(plain);
    posing.budget[0] = run_budget(RUN_EXPERTS * 3 / 4);
    k3_engine *engine = run_open(&plain);
    one_by_one(engine, 200);
    int n, n_slots;
    resident(engine, &n, &n_slots);
    assert_int_equal(n_slots, RUN_EXPERTS * 3 / 4);
    assert_true(n * 10 > n_slots * 9);
    k3_engine_close(engine);
}

/* Slots of the host's memory that hold an expert. */
static int used_on_host(const k3_engine *engine)
{
    char text[4096];
    int n = 0;
    k3_experts_report(engine->experts, text, sizeof text, 0);
    const char *line = strstr(text, "experts in memory: ");
    return line && sscanf(line, "experts in memory: %d of", &n) == 1 ? n : 0;
}

/* Case F07: a device that has more room than the host allows. What the device has takes no memory of the host's. */
static void F07_the_host_keeps_no_copy_of_what_the_device_has(void **state)
{
    (void)state;
    tiny_run got;
    k3_error err;
    k3_config config = plain;
    run_measure(plain);
    posing.budget[0] = run_budget(RUN_EXPERTS);
    k3_engine *engine = run_open(&plain);
    uint64_t slot = k3_stream_slot_bytes(engine->ckpt);
    k3_engine_close(engine);
    /* Some hosts have nothing, a few experts, or all of them; the devices all, or most. */
    static const int rooms[][2] = {{0, RUN_EXPERTS}, {3, RUN_EXPERTS}, {3, RUN_EXPERTS * 3 / 4}, {RUN_EXPERTS, RUN_EXPERTS / 2}};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        int n, n_slots, on_host = rooms[i][0], on_device = rooms[i][1];
        posing_reset();
        posing.budget[0] = run_budget(on_device);
        config.ram = on_host ? slot * (uint64_t)on_host + slot / 2 : 1;
        engine = run_open(&config);
        resident(engine, &n, &n_slots);
        assert_int_equal(n_slots, on_device);
        if (on_host) {
            assert_int_equal(engine->budget.n_slots, on_host);
            assert_true(engine->budget.peak <= config.ram && config.ram < run_budget(on_device));
        }
        one_by_one(engine, 200);
        resident(engine, &n, &n_slots);
        assert_true(used_on_host(engine) <= (on_device < RUN_EXPERTS ? on_host : 0));
        assert_true(n + used_on_host(engine) <= RUN_EXPERTS);
        assert_true(n * 10 > on_device * 9);
        run_must(run_greedy(&got, engine, &err), &err);
        run_check(&got, run_on_cpu(0));
        k3_engine_close(engine);
    }
}

static unsigned long long pairs_on(const char *stats, const char *name, int nth)
{
    char wanted[100];
    unsigned long long n = 0;
    snprintf(wanted, sizeof wanted, "experts on %s", name);
    for (const char *at = strstr(stats, wanted); at && nth >= 0; at = strstr(at + 1, wanted), nth--)
        if (sscanf(strchr(at + strlen(wanted), ' '), " %llu pairs", &n) != 1)
            fail_msg("no pairs in \"%s\"", at);
    return n;
}

/* Case H11: the figures tell who computed how much. */
static void statistics_count_pairs_by_tier(void **state)
{
    (void)state;
    k3_error err;
    static char stats[16384];
    run_measure(plain);
    for (int i = 0; i < N_BUDGETS; i++) {
        tiny_run got;
        posing_reset();
        posing.budget[0] = run_budget(budgets[i]);
        k3_engine *engine = run_open(&plain);
        run_must(run_greedy(&got, engine, &err), &err);
        k3_engine_stats(engine, stats, sizeof stats, 1);
        unsigned long long gpu = pairs_on(stats, "cpu", 0), cpu = pairs_on(stats, "cpu", 1);
        assert_int_equal(gpu + cpu, (RUN_PROMPT + RUN_NEW) * 12 * 2);
        assert_true(budgets[i] ? gpu > 0 : gpu == 0);
        assert_true(budgets[i] < RUN_EXPERTS / 2 + 1 ? cpu > 0 : 1);
        assert_true(budgets[i] == RUN_EXPERTS ? cpu == 0 : 1);
        char line[64];
        snprintf(line, sizeof line, " of %d slots used", budgets[i]);
        if (!strstr(stats, line) || !strstr(stats, "hit rate") || !strstr(stats, "uploaded") || !strstr(stats, "memory "))
            fail_msg("the statistics lack \"%s\", hit rate, uploads or memory:\n%s", line, stats);
        snprintf(line, sizeof line, "%d of %d in device memory", budgets[i] == RUN_EXPERTS ? RUN_EXPERTS : 0, RUN_EXPERTS);
        if (!strstr(k3_engine_info(engine)->plan, line))
            fail_msg("the plan lacks \"%s\": %s", line, k3_engine_info(engine)->plan);
        k3_engine_stats(engine, stats, sizeof stats, 0);
        assert_null(strstr(stats, "pairs"));
        k3_engine_close(engine);
    }
}

static void a_second_device(k3_config config, const char *backend)
{
    static const int rooms[][2] = {
        {0, RUN_EXPERTS}, {3, 5}, {RUN_EXPERTS / 2, RUN_EXPERTS / 2}, {RUN_EXPERTS / 4, RUN_EXPERTS / 4}, {0, 0}};
    run_measure(config);
    config.backend = backend;
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++)
        for (int n_devices = 1; n_devices <= 2; n_devices++) {
            int on_cpu = strcmp(backend, "cpu") == 0;
            posing_reset();
            posing.budget[0] = on_cpu ? run_helper_budget(rooms[i][0]) : run_budget(rooms[i][0]);
            posing.budget[1] = posing.budget[2] = run_helper_budget(rooms[i][1]);
            config.expert_devices = n_devices == 1 ? "posing:1" : "posing:1,posing:1";
            k3_engine *engine = run_open(&config);
            assert_int_equal(posing.n_opened, n_devices + !on_cpu);
            check_run(engine, &config);
            check_run(engine, &config);
            k3_engine_close(engine);
            assert_int_equal(posing.n_open, 0);
        }
}

/* The same on Vulkan, in exact mode, where ids are compared: they may not hang on the last bits. */
static void vulkan_gives_the_same_tokens_on_every_budget(void **state)
{
    (void)state;
    k3_config config = {.backend = "posing", .exact = 1, .chunk_rows = 16, .threads = 1};
    if (!posing_on_vulkan(1)) {
        print_message("SKIP: there is no llvmpipe\n");
        skip();
    }
    every_budget(config, 16);
    config.expert_devices = "posing:1,posing:1";
    run_measure(config);
    posing.budget[0] = run_budget(20);
    posing.budget[1] = posing.budget[2] = run_helper_budget(30);
    k3_engine *engine = run_open(&config);
    check_run(engine, &config);
    check_run(engine, &config);
    k3_engine_close(engine);
    posing_on_vulkan(0);
}

static void further_devices_hold_experts(void **state)
{
    (void)state;
    a_second_device(plain, "posing");
    a_second_device(plain, "cpu");
}

static void wrong_expert_devices_are_refused(void **state)
{
    (void)state;
    static const char *const lists[] = {"", "posing,", ",posing", "cpu", "posing,cpu:scalar", "tpu", "p,p,p,p,p,p,p,p,p,p,p,p,p,p,p"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        k3_engine *engine;
        k3_error err;
        k3_config config = plain;
        config.expert_devices = lists[i];
        posing_reset();
        assert_int_equal(k3_engine_open_on(&engine, tiny_model, &config, posing_open, &err), K3_E_INVALID);
        if (!strstr(err.text, "expert devices"))
            fail_msg("%s", err.text);
        assert_int_equal(posing.n_open, 0);
    }
}

/* With all experts resident a damaged one is found when the model is opened, otherwise at its first use. */
static void a_damaged_expert_is_named_on_every_budget(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(1);
    char *damaged = tiny_folder();
    for (int e = 0; e < TINY_EXPERTS; e++) {
        char name[200];
        snprintf(name, sizeof name, TINY_BODY "layers.7.block_sparse_moe.experts.%d.w3.weight_scale", e);
        tiny_find(tiny, name)->data[17] = 255;
    }
    tiny_write(tiny, damaged);
    tiny_free(tiny);
    run_measure(plain);
    for (int i = 0; i < N_BUDGETS; i++) {
        k3_engine *engine;
        k3_session *session = NULL;
        k3_error err;
        posing_reset();
        posing.budget[0] = run_budget(budgets[i]);
        k3_status status = k3_engine_open_on(&engine, damaged, &plain, posing_open, &err);
        if (budgets[i] < RUN_EXPERTS) {
            run_must(status, &err);
            run_must(k3_session_open(&session, engine, &err), &err);
            status = k3_session_append(session, run_prompt, RUN_PROMPT, &err);
            assert_int_equal(k3_session_length(session), 0);
            k3_session_close(session);
        }
        assert_int_equal(status, K3_E_FORMAT);
        assert_non_null(strstr(err.text, "layer 7 expert"));
        k3_engine_close(engine);
        assert_int_equal(posing.n_open, 0);
    }
    tiny_remove_folder(damaged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_budget_gives_the_same_tokens),
        cmocka_unit_test(nothing_comes_back_inside_a_token_when_all_experts_are_resident),
        cmocka_unit_test(slots_are_made_in_smaller_pieces_where_large_ones_are_refused),
        cmocka_unit_test(one_wait_a_layer_when_some_are_not),
        cmocka_unit_test(the_tier_fills),
        cmocka_unit_test(F07_the_host_keeps_no_copy_of_what_the_device_has),
        cmocka_unit_test(statistics_count_pairs_by_tier),
        cmocka_unit_test(further_devices_hold_experts),
        cmocka_unit_test(vulkan_gives_the_same_tokens_on_every_budget),
        cmocka_unit_test(wrong_expert_devices_are_refused),
        cmocka_unit_test(a_damaged_expert_is_named_on_every_budget),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
