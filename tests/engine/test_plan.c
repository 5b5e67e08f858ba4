/* One plan for the host's memory: what is allocated is what was planned, and figures of a run add up. */
#include "engine/engine.h"
#include "k3.h"
#include "support/tiny_checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_IDS = 24, N_MOE = 12 };

static char *folder;
static uint64_t least; /* bytes of memory that the tiny model runs in */
static const k3_config plain = {.backend = "cpu", .trunk = "bf16", .threads = 2, .chunk_rows = 16};

static k3_engine *open_with(k3_config config)
{
    k3_engine *engine;
    k3_error err;
    if (k3_engine_open(&engine, folder, &config, &err) != K3_OK)
        fail_msg("%s", err.text);
    return engine;
}

/* A prompt and then one token after another. */
static void run(k3_engine *engine)
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
        run(engine);
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
        assert_non_null(strstr(text, "% of the disk's rate"));
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
    run(engine);
    k3_stream_stat experts;
    k3_trunk_stat trunk;
    k3_experts_stream_stats(engine->experts, &experts);
    k3_engine_stats(engine, text, sizeof text, 0);
    k3_late_stats(engine->weights->late, &trunk, 0);
    double disk = part_of(strstr(text, "hit rate"), "%; ");
    uint64_t one = k3_experts_one_bytes(engine->hp);
    assert_true(experts.io.bytes >= (experts.wanted - experts.hits) * one);
    assert_true(trunk.bytes >= (2 + N_IDS) * engine->budget.trunk_plan.token_bytes);
    assert_float_equal(disk, (double)(experts.io.bytes + trunk.bytes) * 1e-9, 2e-6);
    k3_engine_close(engine);
}

/* ---- set-up -------------------------------------------------------------------------------------------------------------- */

static int write_model(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(2);
    folder = tiny_folder();
    tiny_write(tiny, folder);
    tiny_free(tiny);
    k3_config config = plain;
    k3_engine *engine = NULL;
    for (config.ram = 65536; !engine; config.ram += 65536)
        if (k3_engine_open(&engine, folder, &config, NULL) == K3_OK)
            least = config.ram;
        else if (config.ram > (uint64_t)1 << 30)
            return 1;
    k3_engine_close(engine);
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    tiny_remove_folder(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_of_the_time_sum_to_the_total),
        cmocka_unit_test(bytes_from_disk_are_counted),
    };
    return cmocka_run_group_tests(tests, write_model, remove_model);
}
