/* Memory as the system gives it, on machines and with refusals that the test makes up. */
#include "base/os.h"
#include "engine/tiny_runs.h"
#include "faults/calls/calls.h"
#include "support/mock_machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t MiB = (uint64_t)1 << 20;
static char *machine;
static const k3_config plain = {.backend = "cpu", .trunk = "bf16", .threads = 1, .chunk_rows = 16};

static k3_engine *open_with(const k3_config *config)
{
    k3_engine *engine;
    k3_error err;
    run_must(k3_engine_open(&engine, tiny_model, config, &err), &err);
    return engine;
}

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        n++;
    return n;
}

/* ---- F04, F05: what is free ------------------------------------------------------------------------------------------------ */

/* Case F04: one warning, and room for what the model wants. */
static void F04_unknown_free_memory_is_said_once_and_half_of_the_machine_is_planned_with(void **state)
{
    (void)state;
    static const char warning[] = "the system does not tell how much memory is free";
    char *text;
    k3_error err;
    calls.machine = machine;
    mock_put(machine, "/proc/meminfo", "MemAvailable: 0 kB\n");
    uint64_t half = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
    k3_engine *engine = open_with(&plain);
    assert_int_equal(count_of(k3_engine_info(engine)->plan, warning), 1);
    assert_true(engine->budget.available == half);
    assert_int_equal(engine->budget.n_slots, RUN_EXPERTS);
    k3_engine_close(engine);
    k3_config config = plain;
    config.disk_rate = 1e9;
    run_must(k3_plan(&text, tiny_model, &config, 0, &err), &err);
    assert_int_equal(count_of(text, warning), 1);
    free(text);
    mock_memory(machine, half, 0, 0, 0, 0);
    engine = open_with(&plain);
    assert_int_equal(count_of(k3_engine_info(engine)->plan, warning), 0);
    k3_engine_close(engine);
}

/* Experts read by a run in a group with a limit, ahead of time or not, and the slots that the plan has. */
static uint64_t reads_with(uint64_t limit, uint64_t used, uint64_t cached, int *n_slots, tiny_run *got)
{
    k3_error err;
    k3_stream_stat stat;
    mock_memory(machine, 4096 * MiB, 2, limit, used, cached);
    k3_engine *engine = open_with(&plain);
    run_must(run_greedy(got, engine, &err), &err);
    k3_experts_stream_stats(engine->experts, &stat);
    *n_slots = engine->budget.n_slots;
    k3_engine_close(engine);
    assert_true(stat.wanted > stat.hits);
    return stat.io.reads + stat.io.guesses;
}

/* Case F05: the group's memory is full of the model's own pages, or empty. What does not fit is given up about as often: how much is read
 * ahead depends on the drive. */
static void F05_a_page_cache_full_of_the_model_takes_no_slots(void **state)
{
    (void)state;
    static tiny_run empty, full;
    int n_empty, n_full;
    k3_engine *engine = open_with(&plain);
    uint64_t wanted = 2 * (engine->budget.peak - engine->budget.experts / 2); /* of little memory, half is left to others */
    k3_engine_close(engine);
    calls.machine = machine;
    uint64_t without = reads_with(wanted + MiB, MiB, 0, &n_empty, &empty);
    uint64_t with = reads_with(wanted + MiB, wanted + MiB, wanted, &n_full, &full);
    assert_in_range(n_empty, 8, RUN_EXPERTS - 1); /* so that slots are given up */
    assert_int_equal(n_full, n_empty);
    assert_true(with < 2 * without && without > (uint64_t)n_empty);
    assert_memory_equal(&full, &empty, sizeof full);
}

/* ---- F09: a conversation that does not fit --------------------------------------------------------------------------------- */

static k3_session *session_of(k3_engine *engine)
{
    k3_session *session;
    k3_error err;
    run_must(k3_session_open(&session, engine, &err), &err);
    return session;
}

/* Case F09: what has no room is refused with numbers where it is asked for, before anything is computed; the rest goes on. */
static void F09_a_conversation_that_does_not_fit_is_refused_with_numbers(void **state)
{
    (void)state;
    enum { N = 2000 };
    static int32_t ids[N];
    static char stats[16384];
    k3_error err;
    tiny_run got;
    (void)run_on_cpu(0);
    calls.machine = machine;
    mock_memory(machine, 8192 * MiB, 0, 0, 0, 0);
    k3_engine *engine = open_with(&(k3_config){.backend = "cpu", .trunk = "int8"});
    k3_session *session = session_of(engine);
    mock_memory(machine, MiB / 8, 0, 0, 0, 0); /* others took it */
    assert_int_equal(k3_session_append(session, ids, N, &err), K3_E_NOMEM);
    assert_non_null(strstr(err.text, "a conversation of 2000 tokens takes a cache of 0.0"));
    assert_non_null(strstr(err.text, "it holds 0.000000 and 0.000131 are free"));
    assert_int_equal(k3_session_length(session), 0);
    k3_engine_stats(engine, stats, sizeof stats, 0);
    assert_null(strstr(stats, " passes of "));
    run_must(run_greedy(&got, engine, &err), &err); /* which has room, if its cache does not grow ahead */
    run_check(&got, run_on_cpu(0));
    int context = k3_engine_info(engine)->context_length;
    int32_t *many = calloc((size_t)context + 1, sizeof *many);
    char words[64];
    assert_int_equal(k3_session_append(session, many, (size_t)context + 1, &err), K3_E_INVALID);
    snprintf(words, sizeof words, "%d tokens after 0 exceed the context of %d", context + 1, context);
    assert_non_null(strstr(err.text, words));
    free(many);
    k3_session_close(session);
    k3_engine_close(engine);
}

/* More conversations than were planned for are said in the notice when they come to be more, and not before. */
static void F09_conversations_that_outgrow_the_plan_are_said(void **state)
{
    (void)state;
    enum { MANY = 400 };
    static k3_session *sessions[MANY];
    k3_error err;
    int n = 0;
    k3_engine *engine = open_with(&plain);
    uint64_t held = 0;
    while (n < MANY && !k3_engine_info(engine)->notice) {
        assert_true(held <= engine->budget.sessions);
        sessions[n] = session_of(engine);
        run_must(k3_session_append(sessions[n++], run_prompt, 1, &err), &err);
        held += k3_state_bytes(sessions[n - 1]->state);
    }
    assert_true(held > engine->budget.sessions);
    char words[100];
    snprintf(words, sizeof words, "conversations hold %.6f GB of memory, the plan has %.6f", (double)held * 1e-9,
             (double)engine->budget.sessions * 1e-9);
    assert_non_null(k3_engine_info(engine)->notice);
    assert_non_null(strstr(k3_engine_info(engine)->notice, words));
    assert_int_equal(k3_engine_info(engine)->n_failures, 0);
    while (n)
        k3_session_close(sessions[--n]);
    k3_engine_close(engine);
}

/* ---- F15: locked memory ---------------------------------------------------------------------------------------------------- */

static void check_lock_line(const k3_engine *engine, const char *words)
{
    const char *plan = k3_engine_info(engine)->plan;
    if (count_of(plan, words) != 1 || count_of(plan, "locked in memory") != 1 || strchr(plan, '\n'))
        fail_msg("one line with one \"%s\" wanted: %s", words, plan);
}

/* Case F15: each refusal is one line with its own reason and with the limit, and the tokens are the same. */
static void F15_memory_that_cannot_be_locked_is_one_line_and_no_end(void **state)
{
    (void)state;
    static const int numbers[] = {EPERM, ENOMEM, EAGAIN};
    tiny_run got;
    k3_error err;
    k3_config config = {.backend = "cpu", .trunk = "int8", .lock = 1};
    char limit[64], words[200];
    k3_os_lock_limit(limit, sizeof limit);
    k3_engine_close(open_with(&config));
    uint64_t all = calls.locked;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (int is_later = 0; is_later < 2; is_later++) {
            calls_reset();
            calls.lock_errno = numbers[i];
            calls.lock_first = is_later && all ? all - 1 : 0;
            k3_engine *engine = open_with(&config);
            snprintf(words, sizeof words, "GB are locked in memory: %s (errno %d); the limit is %s", strerror(numbers[i]), numbers[i],
                     limit);
            check_lock_line(engine, words);
            assert_true(is_later && all ? calls.locked > 0 : calls.locked == 0);
            run_must(run_greedy(&got, engine, &err), &err);
            run_check(&got, run_on_cpu(0));
            k3_engine_close(engine);
        }
}

/* Slots and trunk are locked whole, in either way, and nothing is if nobody asks. */
static void F15_trunk_and_experts_are_locked_when_asked(void **state)
{
    (void)state;
    k3_config config = plain;
    k3_engine_close(open_with(&config));
    assert_int_equal(calls.n_locks, 0);
    config.lock = 1;
    for (int no_onfault = 0; no_onfault < 2; no_onfault++) {
        calls_reset();
        calls.no_onfault = no_onfault;
        k3_engine *engine = open_with(&config);
        if (!calls.locked) { /* a limit of this machine */
            k3_engine_close(engine);
            print_message("SKIP: this machine locks no memory\n");
            skip();
        }
        assert_true(calls.locked >= engine->budget.trunk + engine->budget.experts);
        check_lock_line(engine, "GB locked in memory");
        k3_engine_close(engine);
    }
    /* The same where layers stream. */
    calls_reset();
    k3_engine *engine = open_with(&config);
    config.ram = engine->budget.peak - engine->budget.experts - engine->budget.trunk / 2;
    k3_engine_close(engine);
    calls_reset();
    engine = open_with(&config);
    assert_true(engine->budget.trunk_plan.token_bytes > 0);
    assert_true(calls.locked >= engine->budget.trunk + engine->budget.experts);
    k3_engine_close(engine);
}

/* A limit of 64 KiB without the privilege to pass it, as an ordinary user has it. 0: it went as it should. */
static int run_with_small_limit(void)
{
    tiny_run got;
    k3_engine *engine;
    k3_error err;
    k3_config config = {.backend = "cpu", .trunk = "int8", .lock = 1};
    struct rlimit limit = {65536, 65536};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) || (!geteuid() && setuid(65534)))
        return 2;
    if (k3_engine_open(&engine, tiny_model, &config, &err) != K3_OK)
        return 3;
    const char *plan = k3_engine_info(engine)->plan;
    int is_said = strstr(plan, "Cannot allocate memory (errno 12); the limit is 64 KiB (ulimit -l)") != NULL;
    int runs = run_greedy(&got, engine, &err) == K3_OK && !memcmp(got.ids, run_on_cpu(0)->ids, sizeof got.ids);
    k3_engine_close(engine);
    return is_said ? runs ? 0 : 4 : 5;
}

static void F15_a_small_limit_is_told_and_borne(void **state)
{
    (void)state;
    int status = 0;
    (void)run_on_cpu(0);
    assert_int_equal(chmod(tiny_model, 0755), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child)
        _exit(run_with_small_limit());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- F22: huge pages ------------------------------------------------------------------------------------------------------- */

/* A device that computes from the host's memory, and so from the files where they are mapped. */
static k3_status open_sharing(k3_backend **out, const k3_backend_config *config, char *note, size_t note_size, k3_error *err)
{
    K3_TRY(posing_open(out, config, note, note_size, err));
    (*out)->shares_memory = (*out)->is_device;
    return K3_OK;
}

static int maps_of(const char *model)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[600];
    int n = 0;
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        n += strstr(line, model) != NULL;
    fclose(maps);
    return n;
}

/* Case F22: slots that whole experts and layers are read into are anonymous and may have huge pages; files, which are read page by page
 * when they are mapped, never. */
static void F22_huge_pages_are_never_wanted_of_files(void **state)
{
    (void)state;
    tiny_run got;
    k3_error err;
    k3_config config = plain;
    k3_engine *engine = open_with(&config);
    uint64_t rams[] = {0, engine->budget.peak - engine->budget.experts / 2,
                       engine->budget.peak - engine->budget.experts - engine->budget.trunk / 2};
    k3_engine_close(engine);
    for (size_t i = 0; i < sizeof rams / sizeof *rams; i++) {
        calls_reset();
        config.ram = rams[i];
        engine = open_with(&config);
        run_must(run_greedy(&got, engine, &err), &err);
        assert_true(calls.n_hints > 0);
        assert_int_equal(calls.n_file_hints, 0);
        k3_engine_close(engine);
    }
    calls_reset();
    posing_reset();
    posing.budget[0] = 64 * MiB;
    tiny_checkpoint *tiny = tiny_new(2);
    tiny->align = 16;
    char *aligned = tiny_settle(tiny);
    config = (k3_config){.backend = "posing", .trunk = "int8", .threads = 1};
    run_must(k3_engine_open_on(&engine, aligned, &config, open_sharing, &err), &err);
    assert_true(maps_of(aligned) > 0);
    run_must(run_greedy(&got, engine, &err), &err);
    run_check(&got, run_on_cpu(0));
    assert_int_equal(calls.n_file_hints, 0);
    k3_engine_close(engine);
    tiny_remove_folder(aligned);
}

/* ---- how fast it is ---------------------------------------------------------------------------------------------------------- */

/* A meter makes its memory when it is read first, and once: on this machine a quarter of 256 MiB. */
static void a_meter_reads_the_same_memory_each_time(void **state)
{
    (void)state;
    k3_error err;
    k3_memory_meter *meter;
    double rate = 0;
    calls.machine = machine;
    mock_memory(machine, 256 * MiB, 0, 0, 0, 0);
    k3_engine *engine = open_with(&plain);
    run_must(k3_memory_meter_open(&meter, engine, &err), &err);
    long before = calls.n_hints;
    for (int i = 0; i < 3; i++) {
        run_must(k3_memory_meter_read(meter, &rate, &err), &err);
        assert_true(rate > 1e7 && rate < 1e13);
        assert_int_equal(calls.n_hints, before + 1);
    }
    k3_memory_meter_close(meter);
    k3_engine_close(engine);
}

/* ---- set-up ---------------------------------------------------------------------------------------------------------------- */

static int make_machine(void **state)
{
    (void)state;
    calls_reset();
    machine = tiny_folder();
    return 0;
}

static int remove_machine(void **state)
{
    (void)state;
    calls_reset();
    tiny_remove_folder(machine);
    return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_machine, remove_machine)
    const struct CMUnitTest tests[] = {
        TEST(F04_unknown_free_memory_is_said_once_and_half_of_the_machine_is_planned_with),
        TEST(F05_a_page_cache_full_of_the_model_takes_no_slots),
        TEST(F09_a_conversation_that_does_not_fit_is_refused_with_numbers),
        TEST(F09_conversations_that_outgrow_the_plan_are_said),
        TEST(F15_memory_that_cannot_be_locked_is_one_line_and_no_end),
        TEST(F15_trunk_and_experts_are_locked_when_asked),
        TEST(F15_a_small_limit_is_told_and_borne),
        TEST(F22_huge_pages_are_never_wanted_of_files),
        TEST(a_meter_reads_the_same_memory_each_time),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
