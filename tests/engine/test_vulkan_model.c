/* The whole model on a Vulkan device: the CPU's logits and tokens in exact mode, however it is cut into passes, on small, odd and failing
 * devices. `test_vulkan_model [PATTERN]` runs some of the tests. */
#include "engine/greedy.h"
#include "support/vulkan_layers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int layers;

/* ---- engines --------------------------------------------------------------------------------------------------- */

static k3_status try_open(k3_engine **engine, const char *model, const char *faults, const k3_config *config, k3_error *err)
{
    if (!(layers & VULKAN_FAULTS)) {
        print_message("this build has no Vulkan\n");
        skip();
    }
    vulkan_faults(faults);
    return k3_engine_open(engine, model, config, err);
}

static k3_engine *open_engine(const char *model, const char *faults, const k3_config *config)
{
    k3_engine *engine;
    k3_error err;
    k3_status status = try_open(&engine, model, faults, config, &err);
    if (status == K3_E_NOT_FOUND) {
        print_message("%s\n", err.text);
        skip();
    }
    if (status != K3_OK)
        fail_msg("%s: %s", faults, err.text);
    return engine;
}

static void close_clean(k3_engine *engine, const char *faults)
{
    k3_engine_close(engine);
    if (vulkan_count("live_bytes"))
        fail_msg("%s: %llu bytes of device memory are left behind", faults, (unsigned long long)vulkan_count("live_bytes"));
    vulkan_messages(0);
}

static const k3_config exact = {.backend = "vulkan:0", .exact = 1, .threads = 1};

/* The CPU's tokens on such a device. */
static void same_tokens(const run *want, const char *model, const char *faults, const k3_config *config, int n_prompt, int n_new)
{
    run got = {.scores = NULL};
    k3_engine *engine = open_engine(model, faults, config);
    must_generate(&got, engine, n_prompt, n_new);
    same_ids(&got, want, faults);
    close_clean(engine, faults);
}

/* ---- exact mode -------------------------------------------------------------------------------------------------- */

/* Logits within 1e-4 of the CPU's at every position, and the same greedy ids. */
static void meets_the_cpu(const char *model)
{
    static const struct {
        int chunk, n_new;
    } passes[] = {{1, 8}, {7, 8}, {64, 8}, {0, NEW}};
    const run *want = cpu_run(model);
    for (int p = 0; p < 4; p++) {
        k3_config config = exact;
        config.chunk_rows = passes[p].chunk;
        k3_engine *engine = open_engine(model, "", &config);
        run got = {.scores = room_for_scores(engine)};
        must_generate(&got, engine, PROMPT, passes[p].n_new);
        double worst = difference(&got, want);
        free(got.scores);
        print_message("           %s, %d rows a pass: %.2g\n", model, passes[p].chunk, worst);
        if (!(worst <= 1e-4))
            fail_msg("%s, %d rows a pass: logits differ by %.3g, at most 1e-4 wanted", model, passes[p].chunk, worst);
        same_ids(&got, want, model);
        close_clean(engine, model);
    }
}

static void exact_mode_meets_the_cpu_on_the_tiny_checkpoint(void **state)
{
    (void)state;
    meets_the_cpu(TINY);
}

static void exact_mode_meets_the_cpu_on_the_bundled_model(void **state)
{
    (void)state;
    meets_the_cpu(MINI);
}

/* A quantized trunk: what the CPU makes of the same codes, within what f32 against double sums and bf16 caches allow. */
static void a_quantized_trunk_is_the_same_model(void **state)
{
    (void)state;
    static const char *const trunks[] = {"int8", "int4"};
    for (int i = 0; i < 2; i++) {
        k3_engine *cpu = open_wide(MINI, trunks[i]);
        k3_config config = {.backend = "vulkan:0", .trunk = trunks[i]};
        run got = {.scores = room_for_scores(cpu)}, want = {.scores = room_for_scores(cpu)};
        must_generate(&want, cpu, PROMPT, 1);
        k3_engine_close(cpu);
        k3_engine *engine = open_engine(MINI, "", &config);
        must_generate(&got, engine, PROMPT, 1);
        double error = difference(&got, &want);
        print_message("           %s: %.2g\n", trunks[i], error);
        assert_true(error <= 0.02);
        free(got.scores);
        free(want.scores);
        close_clean(engine, trunks[i]);
    }
}

/* ---- submissions -------------------------------------------------------------------------------------------------- */

/* Every expert is resident: nothing is submitted inside a token but the last, and nothing else comes back than its logits. */
static void whole_layers_go_in_one_submission(void **state)
{
    (void)state;
    k3_session *session;
    k3_error err;
    k3_engine *engine = open_engine(TINY, "", &exact);
    assert_int_equal(k3_session_open(&session, engine, &err), K3_OK);
    for (int i = 0; i < 12; i++) {
        int32_t id = (int32_t)(7 * i + 1);
        uint64_t submits = vulkan_count("submits"), waits = vulkan_count("waits");
        if (k3_session_append(session, &id, 1, &err) != K3_OK)
            fail_msg("%s", err.text);
        submits = vulkan_count("submits") - submits;
        waits = vulkan_count("waits") - waits;
        if (i && (submits != 1 || waits > 2)) /* the first one compiles and learns */
            fail_msg("token %d: %d submissions and %d waits, 1 and at most 2 wanted", i, (int)submits, (int)waits);
    }
    k3_session_close(session);
    close_clean(engine, "");
}

static void h05_a_long_prompt_makes_no_long_submission(void **state)
{
    (void)state;
    enum { LONG = 200 };
    static int32_t ids[LONG];
    k3_session *session;
    k3_error err;
    layers = vulkan_use_layers(VULKAN_FAULTS);
    k3_engine *engine = open_engine(TINY, "time=1", &(k3_config){.backend = "vulkan:0", .threads = 1, .chunk_rows = 64});
    for (int i = 0; i < LONG; i++)
        ids[i] = (5 + 73 * i) % 250;
    vulkan_faults("time=1"); /* counters at 0 */
    if (k3_session_open(&session, engine, &err) != K3_OK || k3_session_append(session, ids, LONG, &err) != K3_OK)
        fail_msg("%s", err.text);
    k3_session_close(session);
    int is_software = strstr(k3_engine_info(engine)->plan, "llvmpipe") != NULL;
    int n = (int)vulkan_count("submits"), total = (int)(vulkan_count("total_us") / 1000);
    int longest = (int)(vulkan_count(is_software ? "longest_cpu_us" : "longest_us") / 1000);
    k3_engine_close(engine);
    layers = vulkan_use_layers(VULKAN_VALIDATION | VULKAN_FAULTS);
    print_message("           %d submissions in %d ms, the longest %d ms\n", n, total, longest);
    if (longest >= 500)
        fail_msg("the longest of %d submissions took %d ms, less than 500 wanted", n, longest);
}

/* ---- small and odd devices ------------------------------------------------------------------------------------------ */

static void h01_h20_limits_and_heaps_change_no_token(void **state)
{
    (void)state;
    static const char *const faults[] = {
        "max_allocation=16777216,storage_range=134217728",
        "discrete=1,heaps=d32000:h64000,transfer_queue=1",
        "discrete=1,heaps=d400:h1600:v20",
        "hide=VK_EXT_memory_budget:VK_EXT_external_memory_host:shaderFloat16:subgroupSizeControl",
    };
    enum { N_PROMPT = 20, N_NEW = 8 };
    run want = {.scores = NULL};
    k3_error err;
    k3_engine *cpu;
    if (k3_engine_open(&cpu, MINI, &(k3_config){.backend = "cpu", .exact = 1}, &err) != K3_OK)
        fail_msg("%s", err.text);
    must_generate(&want, cpu, N_PROMPT, N_NEW);
    k3_engine_close(cpu);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        same_tokens(&want, MINI, faults[i], &exact, N_PROMPT, N_NEW);
}

/* ---- experts in device memory ---------------------------------------------------------------------------------------- */

static uint64_t used_by(const k3_engine *engine)
{
    k3_memory_info info;
    engine->be->memory->info(engine->be, &info);
    return info.used;
}

static void resident(const k3_engine *engine, int *n, int *n_slots)
{
    int all;
    k3_experts_resident(engine->experts, n, n_slots, &all);
}

/* Room for a part of the experts: whoever computes them, the tokens are the CPU's, and what is used fills the room. */
static void h27_the_tier_fills_from_what_is_used(void **state)
{
    (void)state;
    enum { TOKENS = 200 - PROMPT - NEW };
    const run *want = cpu_run(MINI);
    run got = {.scores = NULL};
    int n, n_slots;
    k3_config config = exact;
    k3_error err;
    k3_engine *engine = open_engine(MINI, "", &config);
    resident(engine, &n, &n_slots);
    uint64_t used = used_by(engine) + k3_machine_reserved_bytes(engine), experts = k3_experts_slot_bytes(engine->hp) * (uint64_t)n;
    assert_true(n > 0 && n == n_slots);
    close_clean(engine, "");
    config.vram = used - experts / 2;
    engine = open_engine(MINI, "", &config);
    must_generate(&got, engine, PROMPT, NEW);
    same_ids(&got, want, "half of the experts");
    k3_session *session;
    assert_int_equal(k3_session_open(&session, engine, &err), K3_OK);
    for (int i = 0; i < TOKENS; i++) {
        int32_t id = prompt_of(got.vocab)[i % PROMPT];
        if (k3_session_append(session, &id, 1, &err) != K3_OK)
            fail_msg("%s", err.text);
    }
    k3_session_close(session);
    resident(engine, &n, &n_slots);
    print_message("           %d of %d slots are filled\n", n, n_slots);
    assert_true(n_slots > 4 && n > n_slots * 9 / 10);
    char text[8192]; /* H11: who computes is told */
    k3_engine_stats(engine, text, sizeof text, 0);
    if (!strstr(text, "cpu") || !strstr(text, "vulkan"))
        fail_msg("the statistics do not name both who compute:\n%s", text);
    close_clean(engine, "");
}

static void a_second_device_holds_experts(void **state)
{
    (void)state;
    k3_config config = exact;
    config.expert_devices = "vulkan:0";
    same_tokens(cpu_run(TINY), TINY, "", &config, PROMPT, 16);
}

/* ---- failures --------------------------------------------------------------------------------------------------------- */

/* Every n-th call of a kind fails, over opening and use: an error that says so or the CPU's tokens, and nothing left behind. */
static void fail_here_and_there(const char *fault, const char *counter, const k3_config *config, int n_tries)
{
    enum { N_PROMPT = 20, N_NEW = 4 };
    run got = {.scores = NULL}, want = {.scores = NULL};
    k3_error err;
    char faults[96];
    k3_engine *engine = open_engine(TINY, "discrete=1", config);
    must_generate(&want, engine, N_PROMPT, N_NEW);
    k3_engine_close(engine);
    int n = (int)vulkan_count(counter), step = (n + n_tries - 1) / n_tries, n_failed = 0;
    for (int i = n; i > 0; i -= step) { /* the last calls are made in use, the first while opening */
        snprintf(faults, sizeof faults, "discrete=1,%s=%d", fault, i);
        k3_status status = try_open(&engine, TINY, faults, config, &err);
        if (status == K3_OK) {
            status = generate(&got, engine, N_PROMPT, N_NEW, &err);
            if (status == K3_OK)
                same_ids(&got, &want, faults);
            k3_engine_close(engine);
        }
        n_failed += status != K3_OK;
        if (status != K3_OK && (!config->backend || (status != K3_E_NOMEM && status != K3_E_DEVICE) || strchr(err.text, '\n')))
            fail_msg("%s: status %d, \"%s\"", faults, (int)status, err.text);
        if (vulkan_count("live_bytes"))
            fail_msg("%s: device memory is left behind", faults);
        vulkan_messages(0);
    }
    print_message("           %s: %d of %d calls failed, %d errors\n", fault, (n + step - 1) / step, n, n_failed);
}

static const k3_config automatic = {.exact = 1, .threads = 1, .chunk_rows = 16};

static void h03_no_allocation_that_fails_is_the_end(void **state)
{
    (void)state;
    k3_config config = automatic;
    fail_here_and_there("fail_allocate", "allocate", &config, 4);
    fail_here_and_there("fail_allocate_from", "allocate", &config, 2);
    fail_here_and_there("fail_buffer", "buffers", &config, 2);
    fail_here_and_there("fail_pipeline", "pipelines", &config, 4);
    config.backend = "vulkan:0";
    fail_here_and_there("fail_allocate", "allocate", &config, 4);
}

static void h12_a_lost_device_never_gives_a_part_of_a_result(void **state)
{
    (void)state;
    k3_config config = automatic;
    fail_here_and_there("lost_submit", "submits", &config, 7);
    fail_here_and_there("lost_wait", "waits", &config, 7);
    config.backend = "vulkan:0";
    fail_here_and_there("lost_submit", "submits", &config, 4);
}

/* Between two requests the device goes, and what it held is made again; the second request's tokens are the CPU's. */
static void h26_a_device_lost_between_requests_is_replaced(void **state)
{
    (void)state;
    const run *want = cpu_run(TINY);
    run got = {.scores = NULL};
    k3_engine *engine = open_engine(TINY, "", &exact);
    must_generate(&got, engine, PROMPT, 16);
    same_ids(&got, want, "before");
    assert_null(k3_engine_info(engine)->notice);
    vulkan_faults("lost_submit=1");
    must_generate(&got, engine, PROMPT, 16);
    same_ids(&got, want, "after");
    assert_int_equal(vulkan_count("devices"), 1); /* opened again */
    const char *notice = k3_engine_info(engine)->notice;
    assert_non_null(notice);
    assert_non_null(strstr(notice, "opened again"));
    close_clean(engine, "lost_submit=1");
}

/* Another program takes the memory, and gives it back. */
static void h26_the_budget_may_fall_to_a_tenth_and_come_back(void **state)
{
    (void)state;
    const run *want = cpu_run(TINY);
    run got = {.scores = NULL};
    static const char plenty[] = "discrete=1,heaps=d1000:h1000,budget=1048576000:1048576000",
                      little[] = "discrete=1,heaps=d1000:h1000,budget=104857600:1048576000";
    k3_config config = exact;
    k3_engine *engine = open_engine(TINY, plenty, &config);
    for (int i = 0; i < 3; i++) {
        vulkan_faults(i == 1 ? little : plenty);
        must_generate(&got, engine, PROMPT, 16);
        same_ids(&got, want, i == 1 ? little : plenty);
    }
    k3_engine_close(engine);
    vulkan_messages(0);
}

/* Nothing keeps the device's memory once the engine is gone, even if it was never used. */
static void h25_all_memory_goes_back_before_the_first_request(void **state)
{
    (void)state;
    k3_engine *engine = open_engine(MINI, "discrete=1,heaps=d3000:h3000", &exact);
    assert_true(vulkan_count("live_bytes") > 0);
    close_clean(engine, "");
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    layers = vulkan_use_layers(VULKAN_VALIDATION | VULKAN_FAULTS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_mode_meets_the_cpu_on_the_tiny_checkpoint),
        cmocka_unit_test(exact_mode_meets_the_cpu_on_the_bundled_model),
        cmocka_unit_test(a_quantized_trunk_is_the_same_model),
        cmocka_unit_test(whole_layers_go_in_one_submission),
        cmocka_unit_test(a_second_device_holds_experts),
        cmocka_unit_test(h01_h20_limits_and_heaps_change_no_token),
        cmocka_unit_test(h03_no_allocation_that_fails_is_the_end),
        cmocka_unit_test(h05_a_long_prompt_makes_no_long_submission),
        cmocka_unit_test(h12_a_lost_device_never_gives_a_part_of_a_result),
        cmocka_unit_test(h25_all_memory_goes_back_before_the_first_request),
        cmocka_unit_test(h26_a_device_lost_between_requests_is_replaced),
        cmocka_unit_test(h26_the_budget_may_fall_to_a_tenth_and_come_back),
        cmocka_unit_test(h27_the_tier_fills_from_what_is_used),
    };
    return cmocka_run_group_tests_name("the model on Vulkan", tests, NULL, NULL);
}
