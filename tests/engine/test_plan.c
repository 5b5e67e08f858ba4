/* One plan for the host's memory: what is allocated is what was planned, and figures of a run add up. */
#include "base/os.h"
#include "engine/engine.h"
#include "engine/tiny_runs.h"
#include "k3.h"
#include "support/tiny_checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_IDS = 24, N_MOE = 12 };

static uint64_t least; /* bytes of memory that the tiny model runs in */
static const k3_config plain = {.backend = "cpu", .trunk = "bf16", .threads = 2, .chunk_rows = 16};

static k3_engine *open_with(k3_config config)
{
    k3_engine *engine;
    k3_error err;
    if (k3_engine_open(&engine, tiny_model, &config, &err) != K3_OK)
        fail_msg("%s", err.text);
    return engine;
}

/* A prompt and then one token after another; `logits` of the last, or NULL. */
static void run(k3_engine *engine, float *logits)
{
    k3_session *session;
    k3_error err;
    int32_t ids[N_IDS];
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (5 + 73 * i) % TINY_VOCAB;
    k3_status status = k3_session_open(&session, engine, &err);
    if (status == K3_OK)
        status = k3_session_append(session, ids, N_IDS, &err);
    for (int i = 0; status == K3_OK && i < N_IDS; i++)
        status = k3_session_append(session, &ids[i], 1, &err);
    if (status != K3_OK)
        fail_msg("%s", err.text);
    if (logits)
        memcpy(logits, k3_session_logits(session), TINY_VOCAB * sizeof *logits);
    k3_session_close(session);
}

/* ---- figures of a run -------------------------------------------------------------------------------------------------- */

static double part_of(const char *line, const char *name)
{
    const char *at = strstr(line, name);
    if (!at)
        fail_msg("the statistics lack \"%s\": %s", name, line);
    return strtod(at + strlen(name), NULL);
}

/* Of every size, none included: what does not fit is left out, and nothing beyond is read or written. */
static void any_room_is_enough(k3_engine *engine)
{
    static char whole[16384];
    k3_engine_stats(engine, whole, sizeof whole, 0);
    assert_non_null(strstr(whole, "experts in memory: "));
    k3_engine_stats(engine, NULL, 0, 0);
    for (size_t size = 0; size <= strlen(whole) + 1; size++) {
        char *text = malloc(size + 1);
        assert_non_null(text);
        memset(text, 'x', size + 1);
        k3_engine_stats(engine, text, size, 0);
        assert_int_equal(text[size], 'x');
        assert_true(!size || memchr(text, 0, size));
        free(text);
    }
}

/* Case I11: where the time went is told in parts that sum to it, with the hit rate. */
static void the_parts_of_the_time_sum_to_the_total(void **state)
{
    (void)state;
    static const char *const parts[] = {"arithmetic ", "attention ", "head ", "other ", "waiting for experts ", "waiting for the trunk "};
    k3_config config = plain;
    config.disk_rate = 1e9;
    for (int is_small = 0; is_small < 2; is_small++) {
        char text[16384];
        config.ram = is_small ? least : 0;
        k3_engine *engine = open_with(config);
        run(engine, NULL);
        any_room_is_enough(engine);
        k3_engine_stats(engine, text, sizeof text, 1);
        *strchr(text, '\n') = 0;
        unsigned long long passes = 0, rows = 0;
        assert_int_equal(sscanf(text, "%llu passes of %llu rows", &passes, &rows), 2);
        assert_int_equal(passes, 2 + N_IDS); /* the prompt is 16 and 8 rows */
        assert_int_equal(rows, 2 * N_IDS);
        double total = part_of(text, "took "), sum = 0;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            sum += part_of(text, parts[i]);
        if (sum < 0.95 * total || sum > 1.05 * total)
            fail_msg("the parts are %f s, the total is %f: %s", sum, total, text);
        assert_true(part_of(text, "arithmetic ") > 0 && part_of(text, "attention ") > 0 && part_of(text, "head ") > 0);
        assert_true(is_small ? part_of(text, "waiting for the trunk ") > 0 : part_of(text, "waiting for the trunk ") <= 0);
        assert_non_null(strstr(text, "% of the 1.000 GB/s that it gives"));
        k3_engine_stats(engine, text, sizeof text, 0);
        assert_null(strstr(text, " passes of "));
        k3_engine_close(engine);
    }
}

/* What comes from disk is what experts that were missing take, and the layers of each pass. */
static void bytes_from_disk_are_counted(void **state)
{
    (void)state;
    k3_config config = plain;
    char text[16384];
    config.ram = least;
    k3_engine *engine = open_with(config);
    run(engine, NULL);
    k3_stream_stat experts;
    k3_trunk_stat trunk;
    k3_experts_stream_stats(engine->experts, &experts);
    k3_engine_stats(engine, text, sizeof text, 0);
    k3_late_stats(engine->weights->late, &trunk, 0);
    double disk = part_of(strstr(text, "hit rate"), "%; ");
    uint64_t one = k3_experts_one_bytes(engine->hp);
    assert_true(experts.io.bytes + experts.io.guess_bytes >= (experts.wanted - experts.hits) * one);
    assert_true(trunk.bytes >= (2 + N_IDS) * engine->budget.trunk_plan.token_bytes);
    assert_float_equal(disk, (double)(experts.io.bytes + experts.io.guess_bytes + trunk.bytes) * 1e-9, 2e-6);
    assert_true(part_of(text, "GB from disk in ") > 0);
    assert_true(part_of(text, "busy drive, ") > 0); /* the share of a rate that is measured for it */
    k3_engine_close(engine);
}

/* Case I07: with the least memory, 64 tokens of a prompt read each expert that any of them chose once a layer, not once a token. */
static void I07_a_chunk_reads_an_expert_once(void **state)
{
    (void)state;
    enum { CHUNK = 64 };
    k3_config config = plain;
    config.chunk_rows = CHUNK;
    config.ram = run_least_ram(tiny_model, config);
    int32_t ids[CHUNK];
    for (int i = 0; i < CHUNK; i++)
        ids[i] = (5 + 73 * i) % TINY_VOCAB;
    k3_engine *engine = open_with(config);
    k3_session *session;
    k3_error err;
    if (k3_session_open(&session, engine, &err) != K3_OK || k3_session_append(session, ids, CHUNK, &err) != K3_OK)
        fail_msg("%s", err.text);
    k3_stream_stat experts;
    k3_experts_stream_stats(engine->experts, &experts);
    uint64_t slot = k3_experts_one_bytes(engine->hp) + 2 * K3_IO_ALIGN; /* an expert, and what aligned reads take around it */
    assert_true(experts.wanted > N_MOE && experts.wanted <= N_MOE * TINY_EXPERTS);
    assert_true((double)(experts.io.bytes + experts.io.guess_bytes) <= 1.05 * (double)(experts.wanted * slot));
    k3_session_close(session);
    k3_engine_close(engine);
}

/* ---- the plan ------------------------------------------------------------------------------------------------------------ */

/* Case F11. Conversations take theirs when they are opened. */
static void F11_what_is_allocated_is_what_was_planned(void **state)
{
    (void)state;
    k3_config config = plain;
    for (int i = 0; i < 6; i++) {
        config.ram = i < 5 ? least + least * (uint64_t)i / 8 : 0;
        k3_engine *engine = open_with(config);
        const k3_budget *b = &engine->budget;
        const k3_late *late = engine->weights->late;
        k3_memory_info info = {0};
        int n_slots = k3_experts_room(engine->experts);
        run(engine, NULL);
        engine->be->memory->info(engine->be, &info);
        uint64_t taken = info.used + k3_stream_slot_bytes(engine->ckpt) * (uint64_t)n_slots;
        taken += late && late->stream ? k3_trunk_bytes(late->stream) : 0;
        uint64_t planned = b->peak - b->sessions;
        if (taken > planned + planned / 20 || taken < planned - planned / 20)
            fail_msg("with %llu bytes: %llu planned, %llu taken", (unsigned long long)config.ram, (unsigned long long)planned,
                     (unsigned long long)taken);
        assert_int_equal(n_slots, b->n_slots);
        assert_true(b->peak <= b->limit);
        k3_engine_close(engine);
    }
}

/* Case F19: the least that the error of a smaller budget states is enough, and changes no bit. */
static void F19_any_budget_above_the_minimum_gives_the_same_logits(void **state)
{
    (void)state;
    static float whole[TINY_VOCAB], part[TINY_VOCAB];
    k3_engine *engine = open_with(plain);
    run(engine, whole);
    k3_engine_close(engine);
    k3_config config = plain;
    for (int i = 0; i < 5; i++) {
        config.ram = least + least * (uint64_t)i / 8;
        engine = open_with(config);
        run(engine, part);
        assert_memory_equal(part, whole, sizeof whole);
        assert_true(i || engine->budget.trunk_plan.n_pinned < engine->hp->n_layers);
        k3_engine_close(engine);
    }
}

/* Cases F02 and F16. */
static void F16_more_than_there_is_is_said_and_not_taken(void **state)
{
    (void)state;
    k3_config config = plain;
    char asked[64];
    config.ram = 2 * k3_os_memory_available(NULL);
    snprintf(asked, sizeof asked, "(%.2f was asked for, more than is free)", (double)config.ram * 1e-9);
    k3_engine *engine = open_with(config);
    assert_true(engine->budget.limit < config.ram / 2 + ((uint64_t)1 << 30));
    if (!strstr(k3_engine_info(engine)->plan, asked))
        fail_msg("the plan lacks \"%s\": %s", asked, k3_engine_info(engine)->plan);
    k3_engine_close(engine);
}

static double number_of(const char *json, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\": ", name);
    return part_of(json, key);
}

/* Valid until the next call. */
static const char *plan_of(k3_config config, int as_json)
{
    static char kept[8192];
    char *text;
    k3_error err;
    if (k3_plan(&text, tiny_model, &config, as_json, &err) != K3_OK)
        fail_msg("%s", err.text);
    snprintf(kept, sizeof kept, "%s", text);
    free(text);
    return kept;
}

static void the_plan_is_what_opening_does(void **state)
{
    (void)state;
    k3_config config = plain;
    config.disk_rate = 1000; /* bytes per second: slower than any memory */
    for (int i = 0; i < 3; i++) {
        config.ram = least + least * (uint64_t)i / 4;
        k3_engine *engine = open_with(config);
        const k3_budget *b = &engine->budget;
        const char *json = plan_of(config, 1);
        double slots = number_of(json, "expert_slots"), disk = number_of(json, "disk_bytes_per_token");
        assert_int_equal((int)slots, b->n_slots);
        assert_float_equal(number_of(json, "peak"), (double)b->peak, 0.5);
        assert_int_equal((int)number_of(json, "layers_in_memory"), b->trunk_plan.n_pinned);
        double missed = 2.0 * N_MOE * (1 - slots / (N_MOE * TINY_EXPERTS)) * (double)k3_experts_one_bytes(engine->hp);
        assert_float_equal(disk, (double)b->trunk_plan.token_bytes + missed, 1);
        assert_true(disk > 0);
        assert_float_equal(number_of(json, "tokens_per_s"), 1000 / disk, 1e-3);
        double token = (double)k3_engine_info(engine)->token_bytes;
        assert_float_equal(number_of(json, "memory_bytes_per_token"), token, 0);
        k3_engine_close(engine);
    }
}

static void a_disk_rate_that_is_not_given_is_measured(void **state)
{
    (void)state;
    k3_config config = plain;
    const char *text = plan_of(config, 0);
    assert_non_null(strstr(text, "expected "));
    assert_null(strstr(text, "as stated"));
    text = plan_of(config, 1);
    assert_true(number_of(text, "disk_bytes_per_s") > 0);
    assert_non_null(strstr(text, "\"disk_rate_is_measured\": true"));
    config.disk_rate = 5e8;
    text = plan_of(config, 0);
    assert_non_null(strstr(text, "0.500 GB/s, as stated"));
}

static void what_cannot_be_planned_is_refused(void **state)
{
    (void)state;
    char *text;
    k3_error err;
    k3_config config = plain;
    config.ram = 4096;
    assert_int_equal(k3_plan(&text, tiny_model, &config, 0, &err), K3_E_NOMEM);
    assert_non_null(strstr(err.text, "conversations"));
    free(text);
    assert_int_equal(k3_plan(&text, "/nowhere", &plain, 0, &err), K3_E_NOT_FOUND);
    free(text);
}

/* ---- set-up -------------------------------------------------------------------------------------------------------------- */

static int write_model(void **state)
{
    tiny_setup(state);
    least = run_least_ram(tiny_model, plain);
    return !least;
}

static void as_many_files_are_open_as_the_system_allows(void **state)
{
    (void)state;
    struct rlimit was, now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    now = was;
    int next = dup(0);
    assert_int_equal(close(next), 0);
    now.rlim_cur = (rlim_t)next + 1; /* room for one file at a time, and the model has several shards */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    k3_error err;
    k3_ckpt *ckpt;
    k3_status status = k3_ckpt_open(&ckpt, tiny_model, &err);
    k3_ckpt_close(ckpt);
    if (status != K3_E_IO || !strstr(err.text, "ulimit -n"))
        fail_msg("status %d: %s", (int)status, status == K3_OK ? "" : err.text);
    k3_engine_close(open_with(plain));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_true(now.rlim_cur > (rlim_t)next + 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_files_are_open_as_the_system_allows),
        cmocka_unit_test(the_parts_of_the_time_sum_to_the_total),
        cmocka_unit_test(bytes_from_disk_are_counted),
        cmocka_unit_test(I07_a_chunk_reads_an_expert_once),
        cmocka_unit_test(F11_what_is_allocated_is_what_was_planned),
        cmocka_unit_test(F19_any_budget_above_the_minimum_gives_the_same_logits),
        cmocka_unit_test(F16_more_than_there_is_is_said_and_not_taken),
        cmocka_unit_test(the_plan_is_what_opening_does),
        cmocka_unit_test(a_disk_rate_that_is_not_given_is_measured),
        cmocka_unit_test(what_cannot_be_planned_is_refused),
    };
    return cmocka_run_group_tests(tests, write_model, tiny_teardown);
}
