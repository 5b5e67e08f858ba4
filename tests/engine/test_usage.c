/* Use counts of experts in a file that the user names: the next start has in memory what was used most. */
#include "engine/engine.h"
#include "support/tiny_checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_IDS = 24, MOST = 65536 };

static char path[4200];
static const k3_config plain = {.backend = "cpu", .trunk = "bf16", .threads = 2, .chunk_rows = 16};
static uint64_t half; /* bytes of memory with which about half of the experts stay */

static k3_engine *open_with(const char *usage, uint64_t ram)
{
    k3_engine *engine;
    k3_error err;
    k3_config config = plain;
    config.usage = usage;
    config.ram = ram;
    if (k3_engine_open(&engine, tiny_model, &config, &err) != K3_OK)
        fail_msg("%s", err.text);
    return engine;
}

static k3_stream_stat run(k3_engine *engine, float *logits)
{
    k3_session *session;
    k3_error err;
    k3_stream_stat stat;
    int32_t ids[N_IDS];
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (5 + 73 * i) % TINY_VOCAB;
    if (k3_session_open(&session, engine, &err) != K3_OK || k3_session_append(session, ids, 4, &err) != K3_OK)
        fail_msg("%s", err.text);
    for (int i = 4; i < N_IDS; i++)
        if (k3_session_append(session, &ids[i], 1, &err) != K3_OK)
            fail_msg("%s", err.text);
    memcpy(logits, k3_session_logits(session), TINY_VOCAB * sizeof *logits);
    k3_session_close(session);
    k3_experts_stream_stats(engine->experts, &stat);
    return stat;
}

static size_t read_all(char *bytes, const char *from)
{
    FILE *f = fopen(from, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, MOST, f);
    fclose(f);
    return n;
}

static void write_all(const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static int slots_used(k3_engine *engine)
{
    int n_used = -1;
    char text[4096];
    k3_experts_report(engine->experts, text, sizeof text, 0);
    if (!strstr(text, "experts in memory: ") || sscanf(strstr(text, "experts in memory: "), "experts in memory: %d of", &n_used) != 1)
        fail_msg("no slots: %s", text);
    return n_used;
}

static void the_next_start_has_what_was_used_most(void **state)
{
    (void)state;
    static float first[TINY_VOCAB], second[TINY_VOCAB];
    k3_engine *engine = open_with(path, half);
    assert_int_equal(slots_used(engine), 0);
    k3_stream_stat cold = run(engine, first);
    k3_engine_close(engine);

    engine = open_with(path, half);
    int n_slots = k3_experts_room(engine->experts), n_used = slots_used(engine);
    assert_true(n_slots > 8 && n_slots < 12 * TINY_EXPERTS);
    assert_int_equal(n_used, n_slots); /* more were used than there are slots */
    k3_stream_stat none;
    k3_experts_stream_stats(engine->experts, &none);
    assert_true(!none.wanted && !none.io.reads); /* filling is no use */
    k3_stream_stat warm = run(engine, second);
    assert_int_equal(warm.wanted, cold.wanted);
    assert_true(warm.io.reads + warm.io.guesses < cold.io.reads + cold.io.guesses); /* ahead of time or not */
    assert_memory_equal(first, second, sizeof first);
    k3_engine_close(engine);

    engine = open_with(NULL, half); /* without the file nothing is remembered */
    assert_int_equal(slots_used(engine), 0);
    k3_engine_close(engine);
}

/* A file is refused in words, the engine opens, and the file stays as it is. */
static void is_said_and_left_alone(const char *content, size_t n, const char *words)
{
    static char after[MOST];
    static float logits[TINY_VOCAB];
    write_all(content, n);
    k3_engine *engine = open_with(path, half);
    if (!strstr(k3_engine_info(engine)->plan, words) || !strstr(k3_engine_info(engine)->plan, path))
        fail_msg("the plan lacks \"%s\": %s", words, k3_engine_info(engine)->plan);
    assert_int_equal(slots_used(engine), 0);
    run(engine, logits);
    k3_engine_close(engine);
    assert_int_equal(read_all(after, path), n);
    assert_memory_equal(after, content, n);
}

static void a_file_that_is_damaged_or_foreign_is_said_and_left_alone(void **state)
{
    (void)state;
    static char bytes[MOST];
    static float logits[TINY_VOCAB];
    remove(path);
    k3_engine *engine = open_with(path, half);
    run(engine, logits);
    k3_engine_close(engine);
    size_t n = read_all(bytes, path);
    is_said_and_left_alone(bytes, n - 3, "cut or damaged");
    bytes[n / 2] ^= 1;
    is_said_and_left_alone(bytes, n, "the checksum does not fit");
    bytes[n / 2] ^= 1;
    bytes[8] ^= 1;
    is_said_and_left_alone(bytes, n, "another model");
    is_said_and_left_alone("my notes", 8, "not a file of use counts");
}

static void a_file_that_cannot_be_written_is_said_at_the_start(void **state)
{
    (void)state;
    k3_engine *engine = open_with("/nowhere/at/all", half);
    assert_non_null(strstr(k3_engine_info(engine)->plan, "/nowhere/at/all: the use counts cannot be written"));
    k3_engine_close(engine);
}

/* A link stays a link, and a file beside it what it was. */
static void only_the_file_that_is_named_is_written(void **state)
{
    (void)state;
    char link[4300], beside[4400];
    struct stat st;
    snprintf(link, sizeof link, "%s.link", path);
    snprintf(beside, sizeof beside, "%s.part", link);
    tiny_put_file(tiny_model, strrchr(beside, '/') + 1, "mine", 4);
    k3_engine_close(open_with(path, 0));
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(symlink(path, link), 0);
    k3_engine_close(open_with(link, 0));
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    size_t n;
    char *kept = tiny_get_file(tiny_model, strrchr(beside, '/') + 1, &n);
    assert_true(n == 4 && memcmp(kept, "mine", 4) == 0);
    free(kept);
    assert_int_equal(remove(link) | remove(beside) | remove(path), 0);
    k3_engine *engine = open_with("", 0);
    assert_non_null(strstr(engine->plan, "an empty one found"));
    k3_engine_close(engine);
}

static int write_model(void **state)
{
    tiny_setup(state);
    snprintf(path, sizeof path, "%s/usage", tiny_model);
    k3_engine *engine = open_with(NULL, 0);
    half = engine->budget.peak - engine->budget.experts / 2;
    k3_engine_close(engine);
    return 0;
}

static int remove_model(void **state)
{
    remove(path);
    return tiny_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_start_has_what_was_used_most),
        cmocka_unit_test(a_file_that_is_damaged_or_foreign_is_said_and_left_alone),
        cmocka_unit_test(a_file_that_cannot_be_written_is_said_at_the_start),
        cmocka_unit_test(only_the_file_that_is_named_is_written),
    };
    return cmocka_run_group_tests(tests, write_model, remove_model);
}
