/* A device that fails: at open, in the middle, again, for good. Whoever asked gets the same tokens, or one clear error, and never part of
 * a result. */
#include "engine/tiny_runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const k3_config plain = {.backend = "posing", .trunk = "int8", .chunk_rows = 16, .threads = 1};
static const k3_config automatic = {.trunk = "int8", .chunk_rows = 16, .threads = 1};
/* Opens faster: nothing is quantized. */
static const k3_config as_stored = {.exact = 1, .chunk_rows = 16, .threads = 1};

static void check_run(k3_engine *engine, const k3_config *config)
{
    tiny_run got;
    k3_error err;
    run_must(run_greedy(&got, engine, &err), &err);
    run_check(&got, run_on_cpu(config->exact));
}

static void contains(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text ? text : "(nothing)");
}

/* ---- at open ------------------------------------------------------------------------------------------------------ */

/* Cases H03 and H12: every allocation fails once, and from some place on all do. */
static void allocations_fail_at_open(const k3_config *config, int n_slots)
{
    k3_config on_device = *config;
    on_device.backend = "posing";
    run_measure(on_device);
    uint64_t budget = run_budget(n_slots);
    posing.budget[0] = budget;
    k3_engine_close(run_open(&on_device));
    long n_allocs = posing.n_allocs, n_refused = 0;
    assert_true(n_allocs > 100);
    for (long n = 1; n <= n_allocs; n++)
        for (int all = 0; all <= (n % 16 == 0); all++) {
            k3_engine *engine;
            k3_error err;
            posing_reset();
            posing.budget[0] = budget;
            posing.fail_alloc = n;
            posing.fail_all_allocs = all;
            k3_status status = k3_engine_open_on(&engine, tiny_model, config, posing_open, &err);
            if (status != K3_OK) {
                assert_non_null(config->backend);
                assert_int_equal(status, K3_E_NOMEM);
                contains(err.text, "posing: out of memory");
                n_refused++;
            } else if (n % 8 == 0) {
                check_run(engine, config);
            }
            if (status == K3_OK && !posing.n_open)
                contains(k3_engine_info(engine)->plan, "no GPU: posing: out of memory");
            k3_engine_close(engine);
            assert_int_equal(posing.n_open, 0);
        }
    assert_true(config->backend ? n_refused > 100 : n_refused == 0);
}

static void an_allocation_that_fails_at_open_is_an_error_or_leads_to_the_cpu(void **state)
{
    (void)state;
    allocations_fail_at_open(&plain, RUN_EXPERTS);
    allocations_fail_at_open(&as_stored, RUN_EXPERTS / 2);
}

static void a_device_lost_at_open_is_an_error_or_leads_to_the_cpu(void **state)
{
    (void)state;
    posing_reset();
    k3_engine_close(run_open(&plain));
    long n_waits = posing.n_waits;
    for (long n = 1; n <= n_waits; n++) {
        k3_engine *engine;
        k3_error err;
        posing_reset();
        posing.lose_at = n;
        assert_int_equal(k3_engine_open_on(&engine, tiny_model, &plain, posing_open, &err), K3_E_DEVICE);
        contains(err.text, "posing: the device is lost");
        posing_reset();
        posing.lose_at = n;
        engine = run_open(&automatic);
        assert_int_equal(posing.n_open, 0);
        contains(k3_engine_info(engine)->plan, "no GPU: posing: the device is lost");
        check_run(engine, &automatic);
        k3_engine_close(engine);
    }
}

static void a_trunk_that_does_not_fit_is_told_with_its_numbers(void **state)
{
    (void)state;
    k3_engine *engine;
    k3_error err;
    posing_reset();
    posing.budget[0] = 200 << 10;
    assert_int_equal(k3_engine_open_on(&engine, tiny_model, &plain, posing_open, &err), K3_E_NOMEM);
    contains(err.text, "the int8 trunk takes 0.00 GB, 0.00 GB of cpu");
    posing_reset();
    posing.budget[0] = 200 << 10;
    engine = run_open(&automatic);
    contains(k3_engine_info(engine)->plan, "no GPU: the int8 trunk takes");
    check_run(engine, &automatic);
    k3_engine_close(engine);
    assert_int_equal(posing.n_open, 0);
}

/* ---- in use --------------------------------------------------------------------------------------------------------- */

/* Two talks that share passes, a mark, a step back, saved and loaded. Logits of every step, so that nothing partial goes unseen. */
enum { SCRIPT_STEPS = 12 };

typedef struct script {
    float logits[2 * SCRIPT_STEPS][TINY_VOCAB];
    int n;
} script;

static k3_status note(script *out, k3_session *session)
{
    memcpy(out->logits[out->n++], k3_session_logits(session), sizeof out->logits[0]);
    return K3_OK;
}

static k3_status play_talks(script *out, k3_session **s, const char *path, k3_error *err)
{
    const int32_t *ids[2] = {run_prompt, run_prompt + 3};
    size_t n[2] = {9, 14};
    K3_TRY(k3_sessions_append(s, ids, n, 2, err));
    note(out, s[0]);
    note(out, s[1]);
    K3_TRY(k3_session_mark(s[0], err));
    K3_TRY(k3_session_append(s[0], run_prompt + 9, 3, err));
    note(out, s[0]);
    K3_TRY(k3_session_save(s[1], path, err));
    K3_TRY(k3_session_mark(s[0], err));
    K3_TRY(k3_session_append(s[0], run_prompt + 12, 2, err));
    note(out, s[0]);
    K3_TRY(k3_session_rewind(s[0], 13, err));
    assert_int_equal(k3_session_length(s[0]), 12);
    note(out, s[0]);
    K3_TRY(k3_session_append(s[0], run_prompt + 2, 1, err));
    note(out, s[0]);
    K3_TRY(k3_session_rewind(s[0], 10, err));
    assert_int_equal(k3_session_length(s[0]), 9);
    K3_TRY(k3_session_append(s[0], run_prompt + 5, 2, err));
    note(out, s[0]);
    K3_TRY(k3_session_load(s[0], path, err));
    K3_TRY(k3_sessions_append(s, (const int32_t *[]){run_prompt, run_prompt}, (size_t[]){1, 1}, 2, err));
    note(out, s[0]);
    return note(out, s[1]);
}

static k3_status play(script *out, k3_engine *engine, k3_error *err)
{
    char path[600];
    k3_session *s[2] = {NULL, NULL};
    snprintf(path, sizeof path, "%s/talk.k3s", tiny_model);
    memset(out, 0, sizeof *out);
    k3_status status = k3_session_open(&s[0], engine, err);
    if (status == K3_OK)
        status = k3_session_open(&s[1], engine, err);
    if (status == K3_OK)
        status = play_talks(out, s, path, err);
    k3_session_close(s[0]);
    k3_session_close(s[1]);
    return status;
}

static void check_script(const script *got, const script *want)
{
    assert_int_equal(got->n, want->n);
    for (int i = 0; i < got->n; i++)
        if (posing.inner)
            assert_int_equal(run_best(got->logits[i]), run_best(want->logits[i]));
        else if (memcmp(got->logits[i], want->logits[i], sizeof got->logits[i]) != 0)
            fail_msg("the logits of step %d differ", i);
}

static void cpu_script(script *out, k3_config config)
{
    k3_engine *engine;
    k3_error err;
    config.backend = "cpu";
    run_must(k3_engine_open(&engine, tiny_model, &config, &err), &err);
    run_must(play(out, engine, &err), &err);
    k3_engine_close(engine);
}

/* Case H26: lost at the n-th wait, for all n: back again, gone for good, or lost once more soon after. */
static void the_device_is_lost_anywhere(k3_config config, int n_slots, int step)
{
    static script want, got;
    k3_error err;
    cpu_script(&want, config);
    run_measure(config);
    posing.budget[0] = run_budget(n_slots);
    k3_engine *engine = run_open(&config);
    long first = posing.n_waits + 1;
    run_must(play(&got, engine, &err), &err);
    check_script(&got, &want);
    assert_null(k3_engine_info(engine)->notice);
    assert_int_equal(k3_engine_info(engine)->n_failures, 0);
    long last = posing.n_waits;
    k3_engine_close(engine);
    for (long n = first; n <= last; n += step)
        for (int kind = 0; kind < 3; kind++) {
            posing_reset();
            posing.budget[0] = posing.budget[1] = run_budget(n_slots);
            posing.lose_at = n;
            posing.lose_again_at = kind == 2 ? n + first + 2 : 0;
            posing.refuse_after_loss = kind == 1;
            engine = run_open(&config);
            run_must(play(&got, engine, &err), &err);
            check_script(&got, &want);
            assert_true(posing.n_losses == 1 || kind == 2);
            assert_int_equal(posing.n_open, posing.n_losses == 1 && kind != 1);
            assert_in_range(k3_engine_info(engine)->n_failures, 1, posing.n_losses);
            const char *notice = k3_engine_info(engine)->notice;
            contains(notice, "posing: the device is lost");
            contains(notice, posing.n_open ? "opened again" : "the CPU goes on");
            k3_engine_close(engine);
            assert_int_equal(posing.n_open, 0);
        }
}

static void a_device_lost_at_the_nth_wait_changes_no_token(void **state)
{
    (void)state;
    k3_config config = as_stored;
    config.backend = "posing";
    the_device_is_lost_anywhere(config, RUN_EXPERTS, 1);
    the_device_is_lost_anywhere(plain, RUN_EXPERTS / 2, 5);
}

/* The same with a Vulkan device behind the pose, whose memory is released and made again. */
static void a_vulkan_device_that_is_lost_changes_no_token(void **state)
{
    (void)state;
    k3_config config = as_stored;
    config.backend = "posing";
    if (!posing_on_vulkan(1)) {
        print_message("SKIP: there is no llvmpipe\n");
        skip();
    }
    the_device_is_lost_anywhere(config, RUN_EXPERTS, 17);
    the_device_is_lost_anywhere(config, RUN_EXPERTS / 2, 131);
    posing_on_vulkan(0);
}

static void a_vulkan_device_without_memory_at_open_leads_to_the_cpu(void **state)
{
    (void)state;
    const k3_config config = as_stored;
    if (!posing_on_vulkan(1)) {
        print_message("SKIP: there is no llvmpipe\n");
        skip();
    }
    posing_reset();
    k3_engine_close(run_open(&config));
    long n_allocs = posing.n_allocs;
    for (long n = 1; n <= n_allocs; n += 41) {
        posing_reset();
        posing.fail_alloc = n;
        k3_engine *engine = run_open(&config);
        check_run(engine, &config);
        k3_engine_close(engine);
        assert_int_equal(posing.n_open, 0);
    }
    posing_on_vulkan(0);
}

/* Out of memory in use: experts make room first; then the request fails, or the pass is run elsewhere; tokens stay. */
static void an_allocation_that_fails_in_use_changes_no_token(void **state)
{
    (void)state;
    static script want, got;
    k3_error err;
    cpu_script(&want, plain);
    for (int n_slots = 0; n_slots <= RUN_EXPERTS; n_slots += RUN_EXPERTS / 2) {
        run_measure(plain);
        posing.budget[0] = run_budget(n_slots);
        k3_engine *engine = run_open(&plain);
        long first = posing.n_allocs + 1;
        run_must(play(&got, engine, &err), &err);
        long last = posing.n_allocs;
        assert_true(last - first > 10);
        k3_engine_close(engine);
        for (long n = first; n <= last; n++) {
            posing_reset();
            posing.budget[0] = run_budget(n_slots);
            posing.fail_alloc = n;
            engine = run_open(&plain);
            k3_status status = play(&got, engine, &err);
            if (n_slots) {
                int resident, slots, all;
                run_must(status, &err);
                check_script(&got, &want);
                k3_experts_resident(engine->experts, &resident, &slots, &all);
                assert_int_equal(slots, 0); /* all in one slab */
            } else {
                assert_int_equal(status, K3_E_NOMEM);
            }
            check_run(engine, &plain);
            k3_engine_close(engine);
            assert_int_equal(posing.n_open, 0);
        }
    }
}

/* A pass that runs out of memory may have changed the states of its sessions. */
static void a_pass_out_of_memory_is_run_again_with_fewer_experts(void **state)
{
    (void)state;
    k3_error err;
    tiny_run got;
    posing_reset();
    k3_engine *engine = run_open(&plain);
    long first = posing.n_waits + 1;
    run_must(run_greedy(&got, engine, &err), &err);
    long last = posing.n_waits;
    k3_engine_close(engine);
    for (long n = first; n <= last; n++) {
        int resident, slots, all;
        posing_reset();
        posing.full_at = n;
        engine = run_open(&plain);
        run_must(run_greedy(&got, engine, &err), &err);
        run_check(&got, run_on_cpu(0));
        k3_experts_resident(engine->experts, &resident, &slots, &all);
        assert_int_equal(slots, 0);
        assert_int_equal(posing.n_open, 1);
        k3_engine_close(engine);
    }
}

/* Marks are made again with the state, so that going back to one costs nothing twice. */
static void marks_come_back_with_the_state(void **state)
{
    (void)state;
    k3_error err;
    k3_session *session;
    float want[TINY_VOCAB];
    posing_reset();
    k3_engine *engine = run_open(&plain);
    run_must(k3_session_open(&session, engine, &err), &err);
    for (int i = 0; i < 2; i++) {
        run_must(k3_session_append(session, run_prompt + 10 * i, 10, &err), &err);
        run_must(k3_session_mark(session, &err), &err);
    }
    run_must(k3_session_append(session, run_prompt + 20, 1, &err), &err);
    memcpy(want, k3_session_logits(session), sizeof want);
    posing.lose_at = posing.n_waits + 1;
    for (int64_t mark = 20; mark >= 10; mark -= 10) {
        run_must(k3_session_append(session, run_prompt, 1, &err), &err);
        long waits = posing.n_waits;
        run_must(k3_session_rewind(session, mark, &err), &err);
        assert_int_equal(k3_session_length(session), mark);
        run_must(k3_session_append(session, run_prompt + mark, 1, &err), &err);
        assert_int_equal(posing.n_waits - waits, 3); /* the copy, logits, the end of the pass */
        if (mark == 20)
            assert_memory_equal(k3_session_logits(session), want, sizeof want);
    }
    assert_int_equal(posing.n_losses, 1);
    k3_session_close(session);
    k3_engine_close(engine);
}

static void an_expert_device_that_is_lost_changes_no_token(void **state)
{
    (void)state;
    static script want, got;
    k3_error err;
    k3_config config = plain;
    cpu_script(&want, plain);
    for (int on_cpu = 0; on_cpu <= 1; on_cpu++) {
        run_measure(plain);
        config.backend = on_cpu ? "cpu" : "posing";
        config.expert_devices = "posing:1";
        posing.budget[0] = on_cpu ? run_helper_budget(30) : run_budget(30);
        posing.budget[1] = run_helper_budget(30);
        k3_engine *engine = run_open(&config);
        long first = posing.n_waits + 1;
        run_must(play(&got, engine, &err), &err);
        check_script(&got, &want);
        long last = posing.n_waits;
        k3_engine_close(engine);
        for (long n = first; n <= last; n += 11) {
            posing.refuse_after_loss = (int)(n & 1);
            posing.lose_at = posing.n_waits + n;
            posing.n_losses = posing.n_opened = 0;
            engine = run_open(&config);
            run_must(play(&got, engine, &err), &err);
            check_script(&got, &want);
            k3_engine_close(engine);
            assert_int_equal(posing.n_open, 0);
        }
    }
}

/* ---- what cannot be computed again ------------------------------------------------------------------------------------- */

static void injected_rows_are_lost_with_the_device_and_it_is_said(void **state)
{
    (void)state;
    static float rows[4 * TINY_HIDDEN];
    int32_t ids[4] = {3, 4, -1, 5};
    k3_error err;
    k3_session *session, *other;
    posing_reset();
    k3_engine *engine = run_open(&plain);
    run_must(k3_session_open(&session, engine, &err), &err);
    run_must(k3_session_open(&other, engine, &err), &err);
    for (int i = 0; i < 4 * TINY_HIDDEN; i++)
        rows[i] = 0.01f * (float)(i % 17);
    run_must(k3_session_append(session, run_prompt, 6, &err), &err);
    run_must(k3_session_mark(session, &err), &err);
    run_must(k3_session_append_rows(session, ids, rows, 4, &err), &err);
    run_must(k3_session_mark(session, &err), &err);
    run_must(k3_session_append(other, run_prompt, 6, &err), &err);
    run_must(k3_session_append(other, run_prompt + 6, 1, &err), &err);
    posing.lose_at = posing.n_waits + 1;
    assert_int_equal(k3_session_append(session, run_prompt, 1, &err), K3_E_UNSUPPORTED);
    contains(err.text, "token 8 is a row that was injected");
    contains(err.text, "back at 6 tokens");
    assert_int_equal(k3_session_length(session), 6);
    run_must(k3_session_append(session, run_prompt + 6, 1, &err), &err);
    assert_memory_equal(k3_session_logits(session), k3_session_logits(other), sizeof(float) * TINY_VOCAB);
    run_must(k3_session_append(other, run_prompt, 1, &err), &err);
    k3_session_close(session);
    k3_session_close(other);
    k3_engine_close(engine);
}

/* A small trunk stays as stored wherever it can, so that no budget changes a token; a device that cannot hold it takes a narrower one. */
static void a_trunk_is_as_wide_as_memory_allows(void **state)
{
    (void)state;
    static const uint64_t rams[] = {0, 64000000, 7000000};
    for (size_t i = 0; i < sizeof rams / sizeof *rams; i++) {
        k3_engine *engine = run_open(&(k3_config){.backend = "cpu", .threads = 1, .ram = rams[i]});
        assert_int_equal(engine->trunk, K3_TRUNK_BF16);
        k3_engine_close(engine);
    }
    k3_engine *engine = run_open(&(k3_config){.backend = "cpu", .threads = 1});
    uint64_t stored = k3_weights_bytes(engine->ckpt, K3_TRUNK_BF16), int8 = k3_weights_bytes(engine->ckpt, K3_TRUNK_INT8);
    k3_engine_close(engine);
    const struct {
        uint64_t room;
        k3_trunk want;
    } cases[] = {{stored, K3_TRUNK_BF16}, {stored - 1, K3_TRUNK_INT8}, {int8, K3_TRUNK_INT8}, {int8 - 1, K3_TRUNK_INT4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        posing_reset();
        posing.budget[0] = 2 * cases[i].room;
        engine = run_open(&(k3_config){.backend = "posing", .chunk_rows = 16, .threads = 1});
        assert_int_equal(engine->trunk, cases[i].want);
        k3_engine_close(engine);
    }
}

/* `auto` chooses int4 for the memory of the device, and would choose bf16 for what recovers: more memory, or the CPU's. */
static void a_trunk_that_was_chosen_stays_when_the_machine_is_replaced(void **state)
{
    (void)state;
    static const k3_config chooses = {.backend = "posing", .chunk_rows = 16, .threads = 1};
    static const k3_config narrow = {.backend = "cpu", .trunk = "int4", .chunk_rows = 16, .threads = 1};
    tiny_run got, want;
    k3_error err;
    posing_reset();
    k3_engine *engine = run_open(&narrow);
    uint64_t wide = k3_weights_bytes(engine->ckpt, K3_TRUNK_INT8);
    run_must(run_greedy(&want, engine, &err), &err);
    k3_engine_close(engine);
    for (int comes_back = 0; comes_back < 2; comes_back++) {
        posing_reset();
        posing.budget[0] = 2 * wide - 2;
        posing.refuse_after_loss = !comes_back;
        engine = run_open(&chooses);
        assert_int_equal(engine->trunk, K3_TRUNK_INT4);
        posing.lose_at = posing.n_waits + 2;
        run_must(run_greedy(&got, engine, &err), &err);
        assert_int_equal(posing.n_losses, 1);
        assert_int_equal(posing.n_open, comes_back);
        assert_int_equal(engine->trunk, K3_TRUNK_INT4);
        run_check(&got, &want);
        k3_engine_close(engine);
    }
}

/* A laptop that sleeps every night: a device that has worked again for a while is opened again the next time too. */
static void a_device_that_came_back_is_trusted_after_a_while(void **state)
{
    (void)state;
    k3_error err;
    k3_session *session;
    posing_reset();
    k3_engine *engine = run_open(&plain);
    run_must(k3_session_open(&session, engine, &err), &err);
    for (int night = 0; night < 3; night++) {
        posing.lose_at = posing.n_waits + 1;
        for (int i = 0; i < 70; i++)
            run_must(k3_session_append(session, run_prompt + i % RUN_PROMPT, 1, &err), &err);
        assert_int_equal(posing.n_losses, night + 1);
        assert_int_equal(posing.n_open, 1);
        contains(k3_engine_info(engine)->notice, "opened again");
    }
    for (int times = 0; times < 2; times++) {
        posing.lose_at = posing.n_waits + 1;
        run_must(k3_session_append(session, run_prompt, 1, &err), &err);
    }
    assert_int_equal(posing.n_open, 0);
    contains(k3_engine_info(engine)->notice, "the CPU goes on");
    k3_session_close(session);
    k3_engine_close(engine);
}

static int refuse_work(void *user, const char *phase, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    return *(const char **)user && strcmp(phase, *(const char **)user) == 0;
}

static void a_replacement_that_is_cancelled_can_be_made_later(void **state)
{
    (void)state;
    static const char *const phases[] = {"loading", "loading experts", "computing again"};
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
        const char *phase = NULL;
        k3_config config = plain;
        k3_error err;
        k3_session *session, *fresh;
        posing_reset();
        config.progress = refuse_work;
        config.user = &phase;
        k3_engine *engine = run_open(&config);
        run_must(k3_session_open(&session, engine, &err), &err);
        run_must(k3_session_append(session, run_prompt, 20, &err), &err);
        posing.lose_at = posing.n_waits + 1;
        phase = phases[i];
        assert_int_equal(k3_session_append(session, run_prompt, 1, &err), K3_E_CANCELLED);
        contains(err.text, "cancelled");
        phase = NULL;
        static char stats[4096];
        k3_engine_stats(engine, stats, sizeof stats, 0);
        run_must(k3_session_open(&fresh, engine, &err), &err);
        int64_t kept = k3_session_length(session);
        assert_int_equal(kept, 0); /* no mark to go back to */
        run_must(k3_session_append(session, run_prompt, 20, &err), &err);
        run_must(k3_session_append(fresh, run_prompt, 20, &err), &err);
        assert_memory_equal(k3_session_logits(session), k3_session_logits(fresh), sizeof(float) * TINY_VOCAB);
        k3_session_close(session);
        k3_session_close(fresh);
        k3_engine_close(engine);
        assert_int_equal(posing.n_open, 0);
    }
}

static void devices_are_listed(void **state)
{
    (void)state;
    char *text;
    k3_error err;
    run_must(k3_devices(&text, &err), &err);
    contains(text, "cpu  cpu:");
    contains(text, strstr(text, "vulkan:0") ? "vulkan:0  " : "no GPU: ");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allocation_that_fails_at_open_is_an_error_or_leads_to_the_cpu),
        cmocka_unit_test(a_device_lost_at_open_is_an_error_or_leads_to_the_cpu),
        cmocka_unit_test(a_trunk_that_does_not_fit_is_told_with_its_numbers),
        cmocka_unit_test(a_device_lost_at_the_nth_wait_changes_no_token),
        cmocka_unit_test(a_vulkan_device_that_is_lost_changes_no_token),
        cmocka_unit_test(a_vulkan_device_without_memory_at_open_leads_to_the_cpu),
        cmocka_unit_test(an_allocation_that_fails_in_use_changes_no_token),
        cmocka_unit_test(a_pass_out_of_memory_is_run_again_with_fewer_experts),
        cmocka_unit_test(marks_come_back_with_the_state),
        cmocka_unit_test(an_expert_device_that_is_lost_changes_no_token),
        cmocka_unit_test(injected_rows_are_lost_with_the_device_and_it_is_said),
        cmocka_unit_test(a_trunk_is_as_wide_as_memory_allows),
        cmocka_unit_test(a_trunk_that_was_chosen_stays_when_the_machine_is_replaced),
        cmocka_unit_test(a_device_that_came_back_is_trusted_after_a_while),
        cmocka_unit_test(a_replacement_that_is_cancelled_can_be_made_later),
        cmocka_unit_test(devices_are_listed),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
