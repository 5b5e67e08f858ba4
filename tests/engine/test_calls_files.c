/* Files that are written: every step of it may fail, little is written, and what is only read may be read-only. */
#include "engine/tiny_runs.h"
#include "faults/calls/calls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/mount.h>
#endif

enum { PATH = 512, TURN_PROMPT = 6 };

static char *out; /* where files are written */
static const k3_config plain = {.backend = "cpu", .trunk = "int8", .threads = 1};

static const char *in_out(const char *name)
{
    static char rooms[4][PATH];
    static int next;
    char *room = rooms[next++ % 4];
    snprintf(room, PATH, "%s/%s", out, name);
    return room;
}

static k3_session *session_of(k3_engine *engine, size_t n)
{
    k3_session *session;
    k3_error err;
    run_must(k3_session_open(&session, engine, &err), &err);
    run_must(k3_session_append(session, run_prompt, n, &err), &err);
    return session;
}

static uint64_t bytes_of(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0 : (uint64_t)st.st_size;
}

/* ---- G08: a disk that is full ---------------------------------------------------------------------------------------------- */

/* What a step's failure looks like when the disk is full, or breaks. */
static int number_for(calls_kind kind)
{
    return kind == CALLS_SYNC || kind == CALLS_CLOSE ? EIO : ENOSPC;
}

static void check_refusal(k3_status status, const k3_error *err, const char *name, int number, calls_kind kind, long at)
{
    if (status != K3_E_IO || !strstr(err->text, name) || !strstr(err->text, strerror(number)))
        fail_msg("kind %d, call %ld: status %d, \"%s\"; \"%s\" and \"%s\" wanted", (int)kind, at, (int)status,
                 status == K3_OK ? "" : err->text, name, strerror(number));
}

/* Case G08: each call that writes, flushes, syncs, closes or renames fails in turn. The error names the file, and the old one stays. */
static void G08_a_session_that_cannot_be_saved_leaves_the_old_file(void **state)
{
    (void)state;
    k3_error err;
    k3_engine *engine;
    run_must(k3_engine_open(&engine, tiny_model, &plain, &err), &err);
    k3_session *session = session_of(engine, 9);
    const char *path = in_out("talk.k3s"), *part = in_out("talk.k3s.part");
    run_must(k3_session_save(session, path, &err), &err);
    size_t n_old, n_now;
    char *old = tiny_get_file(out, "talk.k3s", &n_old);
    run_must(k3_session_append(session, run_prompt + 9, 9, &err), &err);
    calls.watched = out;
    run_must(k3_session_save(session, in_out("count.k3s"), &err), &err);
    long n[CALLS_KINDS];
    memcpy(n, calls.n, sizeof n);
    for (calls_kind kind = CALLS_OPEN; kind < CALLS_KINDS; kind++) {
        assert_true(n[kind] >= 1);
        for (long at = 1; at <= n[kind]; at++) {
            calls_reset();
            calls.watched = out;
            calls.fail_kind = (int)kind;
            calls.fail_at = at;
            calls.fail_errno = number_for(kind);
            check_refusal(k3_session_save(session, path, &err), &err, path, calls.fail_errno, kind, at);
            char *now = tiny_get_file(out, "talk.k3s", &n_now);
            assert_int_equal(n_now, n_old);
            assert_memory_equal(now, old, n_old);
            free(now);
            assert_int_equal(access(part, F_OK), -1);
        }
    }
    calls_reset();
    run_must(k3_session_load(session, path, &err), &err);
    assert_int_equal(k3_session_length(session), 9);
    free(old);
    k3_session_close(session);
    k3_engine_close(engine);
}

/* The same on a file system that is full. */
static void G08_a_full_file_system_leaves_the_old_session(void **state)
{
    (void)state;
#ifdef __linux__
    char path[PATH];
    k3_error err = {K3_OK, ""}, last;
    k3_engine *engine;
    snprintf(path, sizeof path, "%s/talk.k3s", out);
    if (mount("tmpfs", out, "tmpfs", 0, "size=512k")) {
        print_message("SKIP: a file system of its own cannot be mounted here\n");
        skip();
    }
    run_must(k3_engine_open(&engine, tiny_model, &plain, &err), &err);
    k3_session *session = session_of(engine, 9);
    k3_status first = k3_session_save(session, path, &err);
    static const char block[4096];
    FILE *others = fopen(in_out("others"), "wb");
    while (others && fwrite(block, sizeof block, 1, others) == 1 && !fflush(others))
        ;
    if (others)
        fclose(others);
    run_must(k3_session_append(session, run_prompt + 9, 9, &last), &last);
    k3_status full = k3_session_save(session, path, &err), back = k3_session_load(session, path, &last);
    int64_t length = k3_session_length(session);
    k3_session_close(session);
    k3_engine_close(engine);
    assert_int_equal(umount(out), 0);
    assert_int_equal(first, K3_OK);
    check_refusal(full, &err, path, ENOSPC, CALLS_WRITE, 0);
    run_must(back, &last);
    assert_int_equal(length, 9);
#endif
}

/* Only the index may be missing where a folder opens: what has a name was compared with the source. */
static void check_whole_or_none(const char *packed)
{
    tiny_run got;
    k3_error err;
    k3_engine *engine;
    if (k3_engine_open(&engine, packed, &plain, &err) != K3_OK)
        return;
    run_must(run_greedy(&got, engine, &err), &err);
    run_check(&got, run_on_cpu(0));
    k3_engine_close(engine);
}

/* Packing makes many calls of a kind: the first, the middle and the last of each. */
static void G08_a_model_that_cannot_be_packed_whole_is_none(void **state)
{
    (void)state;
    k3_error err;
    calls.watched = out;
    run_must(k3_pack(tiny_model, in_out("whole"), "int8", NULL, NULL, &err), &err);
    long n[CALLS_KINDS];
    memcpy(n, calls.n, sizeof n);
    for (calls_kind kind = CALLS_OPEN; kind < CALLS_KINDS; kind++) {
        long places[] = {1, (n[kind] + 1) / 2, n[kind]};
        assert_true(n[kind] >= 3);
        for (size_t i = 0; i < 3; i++) {
            char name[32], packed[PATH];
            snprintf(name, sizeof name, "packed-%d-%zu", (int)kind, i);
            snprintf(packed, sizeof packed, "%s", in_out(name));
            calls_reset();
            calls.watched = out;
            calls.fail_kind = (int)kind;
            calls.fail_at = places[i];
            calls.fail_errno = number_for(kind);
            check_refusal(k3_pack(tiny_model, packed, "int8", NULL, NULL, &err), &err, packed, calls.fail_errno, kind, places[i]);
            calls_reset();
            check_whole_or_none(packed);
        }
        /* The last of the three goes on. */
        char name[32];
        snprintf(name, sizeof name, "packed-%d-2", (int)kind);
        run_must(k3_pack(tiny_model, in_out(name), "int8", NULL, NULL, &err), &err);
        check_whole_or_none(in_out(name));
    }
}

/* ---- G10: bytes that are written ------------------------------------------------------------------------------------------- */

/* Case G10. With every feature that writes files, and a session saved after each turn, a chat writes: nothing while tokens are made; a
 * session once a turn, no more than the last one's bytes each; use counts once at the start, where it is tried whether they can be written,
 * and once at the end; compiled kernels once at the end. */
static void check_chat(int n_turns, int n_answer, int has_kernels)
{
    k3_error err;
    k3_session *session;
    char usage[PATH], cache[PATH], path[PATH];
    snprintf(usage, sizeof usage, "%s/usage", out);
    snprintf(cache, sizeof cache, "%s/kernels", out);
    snprintf(path, sizeof path, "%s/talk.k3s", out);
    (void)mkdir(cache, 0777);
    posing_reset();
    calls_reset();
    calls.watched = out;
    k3_config config = {.backend = "posing", .trunk = "int8", .threads = 1, .usage = usage, .kernel_cache = cache};
    k3_engine *engine = run_open(&config);
    run_must(k3_session_open(&session, engine, &err), &err);
    assert_true(calls.written == bytes_of(usage));
    uint64_t sessions = 0;
    for (int turn = 0; turn < n_turns; turn++) {
        uint64_t before = calls.written;
        run_must(k3_session_append(session, run_prompt, TURN_PROMPT, &err), &err);
        for (int i = 0; i < n_answer; i++)
            run_must(k3_session_append(session, &run_prompt[i], 1, &err), &err);
        assert_true(calls.written == before);
        run_must(k3_session_save(session, path, &err), &err);
        assert_true(calls.written - before == bytes_of(path));
        sessions += calls.written - before;
    }
    assert_true(sessions <= (uint64_t)n_turns * bytes_of(path));
    k3_session_close(session);
    k3_engine_close(engine);
    uint64_t rest = calls.written - sessions;
    assert_true(bytes_of(usage) > 0 && rest >= 2 * bytes_of(usage));
    uint64_t kernels = rest - 2 * bytes_of(usage);
    assert_true(has_kernels ? kernels > 0 && kernels < (uint64_t)64 << 20 : kernels == 0);
    assert_int_equal(calls.n[CALLS_OPEN], n_turns + 2 + has_kernels);
}

static void G10_twenty_turns_write_a_session_each_and_little_else(void **state)
{
    (void)state;
    check_chat(20, 10, 0);
    if (posing_on_vulkan(1))
        check_chat(2, 2, 1);
    posing_on_vulkan(0);
}

/* ---- G11: folders that may only be read ------------------------------------------------------------------------------------ */

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        n++;
    return n;
}

/* Case G11: nothing that is done with a model tries to write beside it. */
static void G11_the_folder_of_a_model_is_never_written(void **state)
{
    (void)state;
    char *text;
    k3_error err;
    tiny_run got;
    k3_engine *engine;
    calls.refused = tiny_model;
    calls.refuse_errno = EROFS;
    k3_config config = plain;
    config.usage = in_out("usage");
    config.disk_rate = 1e9;
    run_must(k3_engine_open(&engine, tiny_model, &config, &err), &err);
    assert_int_equal(count_of(k3_engine_info(engine)->plan, strerror(EROFS)), 0);
    run_must(run_greedy(&got, engine, &err), &err);
    k3_engine_close(engine);
    run_must(k3_plan(&text, tiny_model, &config, 0, &err), &err);
    free(text);
    run_must(k3_inspect(&text, tiny_model, &err), &err);
    free(text);
    run_must(k3_pack(tiny_model, in_out("packed"), "int8", NULL, NULL, &err), &err);
    assert_int_equal(calls.n_refused, 0);
    run_check(&got, run_on_cpu(0));
}

/* Folders for what is kept between runs: each is said once, at the start, and the answer is the same. */
static void G11_what_cannot_be_kept_is_said_once(void **state)
{
    (void)state;
    static const int numbers[] = {EROFS, EACCES};
    k3_error err;
    tiny_run got;
    char usage[PATH], cache[PATH], words[2 * PATH];
    snprintf(usage, sizeof usage, "%s/usage", out);
    snprintf(cache, sizeof cache, "%s/kernels", out);
    assert_int_equal(mkdir(cache, 0777), 0);
    for (size_t i = 0; i < 2 * sizeof numbers / sizeof *numbers; i++) {
        int number = numbers[i / 2], is_usage = i % 2;
        calls_reset();
        posing_reset();
        calls.refused = out;
        calls.refuse_errno = number;
        k3_config config = {
            .backend = "posing", .trunk = "int8", .threads = 1, .usage = is_usage ? usage : NULL, .kernel_cache = is_usage ? NULL : cache};
        k3_engine *engine = run_open(&config);
        const char *plan = k3_engine_info(engine)->plan;
        snprintf(words, sizeof words, is_usage ? "%s: the use counts cannot be written: %s" : "compiled kernels are not kept: %s: %s",
                 is_usage ? usage : cache, strerror(number));
        if (count_of(plan, words) != 1 || count_of(plan, strerror(number)) != 1)
            fail_msg("\"%s\" wanted once: %s", words, plan);
        run_must(run_greedy(&got, engine, &err), &err);
        run_check(&got, run_on_cpu(0));
        k3_engine_close(engine);
        assert_true(calls.n_refused > 0 && access(usage, F_OK));
    }
}

/* ---- set-up ---------------------------------------------------------------------------------------------------------------- */

static int make_out(void **state)
{
    (void)state;
    calls_reset();
    out = tiny_folder();
    return 0;
}

static int remove_out(void **state)
{
    (void)state;
    calls_reset();
    tiny_remove_folder(out);
    return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_out, remove_out)
    const struct CMUnitTest tests[] = {
        TEST(G08_a_session_that_cannot_be_saved_leaves_the_old_file),
        TEST(G08_a_full_file_system_leaves_the_old_session),
        TEST(G08_a_model_that_cannot_be_packed_whole_is_none),
        TEST(G10_twenty_turns_write_a_session_each_and_little_else),
        TEST(G11_the_folder_of_a_model_is_never_written),
        TEST(G11_what_cannot_be_kept_is_said_once),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
