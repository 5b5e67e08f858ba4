/* Sessions that are saved, forked and marked, on a tiny checkpoint written by the test. */
#include "backend/backend.h"
#include "engine/sessions.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void saved_session_continues_with_the_same_bits(void **state)
{
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "%s/talk.k3s", folder);
    k3_engine *engine = open_engine(NULL);
    k3_session *session = open_session(engine), *loaded = open_session(engine);
    k3_error err;
    append(session, ids, 21);
    ok(k3_session_save(session, path, &err), &err);
    append(loaded, ids + 5, 3);
    ok(k3_session_load(loaded, path, &err), &err);
    assert_int_equal(k3_session_length(loaded), 21);
    assert_memory_equal(k3_session_logits(loaded), k3_session_logits(session), sizeof(float) * V);
    assert_memory_equal(k3_session_ids(loaded), ids, 21 * sizeof *ids);
    append(session, ids + 21, 8);
    append(loaded, ids + 21, 8);
    assert_memory_equal(k3_session_logits(loaded), k3_session_logits(session), sizeof(float) * V);
    k3_session_close(session);
    k3_session_close(loaded);
    k3_engine_close(engine);
}

/* The most likely token n times; `path`: the session is saved after each of them, and whoever reads `told` hears of it. */
static void answer(k3_session *session, int32_t *out, int n, const char *path, int told)
{
    k3_error err;
    for (int i = 0; i < n; i++) {
        const float *logits = k3_session_logits(session);
        out[i] = 0;
        for (int v = 1; v < V; v++)
            out[i] = logits[v] > logits[out[i]] ? v : out[i];
        append(session, &out[i], 1);
        if (path)
            ok(k3_session_save(session, path, &err), &err);
        if (path && write(told, "", 1) != 1)
            return;
    }
}

/* Case I16: a process that saves its session as it answers is killed in the middle; another one goes on to the same answer. */
static void i16_a_killed_answer_is_continued_to_the_same_tokens(void **state)
{
    (void)state;
    enum { PROMPT = 20, ANSWER = 12 };
    int32_t whole[ANSWER], rest[ANSWER];
    char path[600], byte;
    int told[2], status;
    k3_error err;
    snprintf(path, sizeof path, "%s/killed.k3s", folder);
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    if (child == 0) {
        k3_session *session = open_session(open_engine(NULL));
        append(session, ids, PROMPT);
        answer(session, whole, 1 << 20, path, told[1]); /* until it is killed */
        _exit(1);
    }
    close(told[1]);
    for (int i = 0; i < ANSWER / 2; i++)
        assert_int_equal(read(told[0], &byte, 1), 1);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    close(told[0]);

    k3_engine *engine = open_engine(NULL);
    k3_session *session = open_session(engine), *loaded = open_session(engine);
    append(session, ids, PROMPT);
    answer(session, whole, ANSWER, NULL, -1);
    ok(k3_session_load(loaded, path, &err), &err);
    int done = (int)k3_session_length(loaded) - PROMPT;
    assert_true(done >= ANSWER / 2);
    assert_memory_equal(k3_session_ids(loaded), ids, PROMPT * sizeof *ids);
    assert_memory_equal(k3_session_ids(loaded) + PROMPT, whole, (size_t)(done < ANSWER ? done : ANSWER) * sizeof *whole);
    if (done < ANSWER) {
        answer(loaded, rest, ANSWER - done, NULL, -1);
        assert_memory_equal(rest, whole + done, (size_t)(ANSWER - done) * sizeof *whole);
    }
    k3_session_close(session);
    k3_session_close(loaded);
    k3_engine_close(engine);
}

/* Case I08: a second turn computes what is new, and an edited last message what comes after the mark before it. */
static void i08_a_turn_computes_its_own_tokens_only(void **state)
{
    (void)state;
    k3_engine *engine = open_engine(NULL);
    k3_session *session = open_session(engine);
    static const struct {
        int64_t back;    /* goes back to this length; 0: goes on */
        size_t first, n; /* of ids */
    } turns[] = {{0, 0, 12}, {0, 12, 9}, {12, 20, 7}};
    k3_error err;
    char text[16384];
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        unsigned long long passes, rows = 0;
        if (turns[i].back)
            ok(k3_session_rewind(session, turns[i].back, &err), &err);
        append(session, ids + turns[i].first, turns[i].n);
        ok(k3_session_mark(session, &err), &err);
        k3_engine_stats(engine, text, sizeof text, 1);
        assert_int_equal(sscanf(text, "%llu passes of %llu rows", &passes, &rows), 2);
        assert_int_equal(rows, turns[i].n);
    }
    k3_session_close(session);
    k3_engine_close(engine);
}

static void a_damaged_or_foreign_session_file_changes_nothing(void **state)
{
    (void)state;
    char path[600], cut[600], none[600];
    snprintf(path, sizeof path, "%s/talk.k3s", folder);
    snprintf(cut, sizeof cut, "%s/cut.k3s", folder);
    snprintf(none, sizeof none, "%s/none.k3s", folder);
    k3_engine *engine = open_engine(NULL);
    k3_session *session = open_session(engine);
    k3_error err;
    append(session, ids, 6);
    ok(k3_session_save(session, path, &err), &err);
    FILE *in = fopen(path, "rb");
    static char bytes[1 << 20];
    size_t n = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    for (size_t keep = 0; keep < n; keep += n / 7 + 1) {
        FILE *out = fopen(cut, "wb");
        fwrite(bytes, 1, keep, out);
        fclose(out);
        refused(k3_session_load(session, cut, &err), K3_E_FORMAT, &err, "cut.k3s");
    }
    for (size_t flip = 60; flip < n; flip += n / 9) {
        FILE *out = fopen(cut, "wb");
        bytes[flip] ^= 16;
        fwrite(bytes, 1, n, out);
        bytes[flip] ^= 16;
        fclose(out);
        refused(k3_session_load(session, cut, &err), K3_E_FORMAT, &err, "checksum");
    }
    refused(k3_session_load(session, none, &err), K3_E_NOT_FOUND, &err, "none.k3s");
    refused(k3_session_save(session, "/no/such/folder/x", &err), K3_E_IO, &err, "/no/such/folder/x");
    refused(k3_session_save(session, folder, &err), K3_E_INVALID, &err, "no regular file");
    snprintf(none, sizeof none, "%s/link.k3s", folder);
    assert_int_equal(symlink(path, none), 0);
    ok(k3_session_save(session, none, &err), &err);
    struct stat st;
    assert_true(lstat(none, &st) == 0 && S_ISLNK(st.st_mode));
    snprintf(none, sizeof none, "%s/none.k3s", folder);
    k3_config other = {.exact = 1};
    k3_engine *exact = open_engine(&other);
    k3_session *foreign = open_session(exact);
    refused(k3_session_load(foreign, path, &err), K3_E_INVALID, &err, "another model or precision");
    assert_int_equal(k3_session_length(session), 6);
    append(session, ids + 6, 1);
    k3_session_close(foreign);
    k3_engine_close(exact);
    k3_session_close(session);
    k3_engine_close(engine);
}

/* The second session goes on as the first did, whatever the first does meanwhile; so does one made at an earlier mark, or at none. */
static void forks_continue_as_the_first(const char *backend)
{
    k3_config config = {.backend = backend};
    k3_engine *engine = open_engine(&config);
    k3_session *first = open_session(engine), *clean = open_session(engine), *fork[3];
    static const int64_t at[3] = {30, 20, 9}, lengths[3] = {21, 10, 0};
    k3_error err;
    append(first, ids, 10);
    ok(k3_session_mark(first, &err), &err);
    append(first, ids + 10, 11);
    ok(k3_session_mark(first, &err), &err);
    append(first, ids + 21, 12);
    for (int i = 0; i < 3; i++) {
        ok(k3_session_fork(&fork[i], first, at[i], &err), &err);
        assert_int_equal(k3_session_length(fork[i]), lengths[i]);
        assert_int_equal(k3_session_mark_before(fork[i], N), lengths[i]);
        assert_true((k3_session_logits(fork[i]) != NULL) == (lengths[i] > 0));
    }
    append(first, ids + 5, 7);
    for (int i = 0; i < 3; i++) {
        append(fork[i], ids + lengths[i], (size_t)(N - lengths[i]));
        ok(k3_session_rewind(clean, 0, &err), &err);
        if (lengths[i]) /* in the same pieces: a device rounds others otherwise */
            append(clean, ids, 10);
        if (lengths[i] > 10)
            append(clean, ids + 10, 11);
        append(clean, ids + lengths[i], (size_t)(N - lengths[i]));
        assert_memory_equal(k3_session_logits(fork[i]), k3_session_logits(clean), sizeof(float) * V);
        assert_memory_equal(k3_session_ids(fork[i]), ids, sizeof ids);
        ok(k3_session_rewind(fork[i], N - 1, &err), &err);
        assert_int_equal(k3_session_length(fork[i]), lengths[i]);
        k3_session_close(fork[i]);
    }
    k3_session_close(first);
    k3_session_close(clean);
    k3_engine_close(engine);
}

static void a_fork_continues_from_the_mark_with_the_same_bits(void **state)
{
    (void)state;
    static const char *const backends[] = {"cpu", "vulkan:0"};
    for (int b = 0; b < 2; b++) {
        if (has_level(backends[b]))
            forks_continue_as_the_first(backends[b]);
        else
            print_message("skipped: %s\n", backends[b]);
    }
}

static void marks_are_listed_counted_and_forgotten(void **state)
{
    (void)state;
    k3_engine *engine = open_engine(NULL);
    k3_session *session = open_session(engine);
    k3_error err;
    uint64_t bytes[4];
    for (int i = 0; i < 4; i++) {
        append(session, ids + 8 * i, 8);
        bytes[i] = k3_session_bytes(session);
        if (i < 3)
            ok(k3_session_mark(session, &err), &err);
    }
    /* The fixed state of its KDA layers, with three windows each, and the logits. */
    uint64_t fixed = 0, mark;
    for (int l = 0; l < TINY_LAYERS; l++)
        fixed += l % 4 == 3 || l == TINY_LAYERS - 1 ? 0 : 4 * (TINY_KDA_HEADS * TINY_KDA_DIM * (TINY_KDA_DIM + 3 * 3));
    mark = fixed + sizeof(float) * V;
    assert_int_equal(bytes[1] - bytes[0], mark);
    assert_int_equal(bytes[3] - bytes[0], 3 * mark);
    assert_int_equal(k3_session_mark_before(session, 32), 24);
    assert_int_equal(k3_session_mark_before(session, 23), 16);
    assert_int_equal(k3_session_mark_before(session, 7), 0);
    k3_session_unmark(session, 17);
    assert_int_equal(k3_session_mark_before(session, 23), 16);
    k3_session_unmark(session, 16);
    assert_int_equal(k3_session_mark_before(session, 23), 8);
    assert_int_equal(k3_session_bytes(session), bytes[3] - mark);
    ok(k3_session_rewind(session, 23, &err), &err);
    assert_int_equal(k3_session_length(session), 8);
    k3_session_close(session);
    k3_engine_close(engine);
}

static void a_saved_session_has_its_marks(void **state)
{
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "%s/marks.k3s", folder);
    k3_engine *engine = open_engine(NULL);
    k3_session *session = open_session(engine), *loaded = open_session(engine);
    k3_error err;
    for (int i = 0; i < 3; i++) {
        append(session, ids + 9 * i, 9);
        ok(k3_session_mark(session, &err), &err);
    }
    ok(k3_session_save(session, path, &err), &err);
    ok(k3_session_load(loaded, path, &err), &err);
    for (int64_t at = 27; at >= 0; at -= 9) {
        assert_int_equal(k3_session_mark_before(loaded, at), at);
        assert_int_equal(k3_session_mark_before(loaded, at + 8), at);
    }
    for (int64_t back = 20; back >= 9; back -= 9) {
        ok(k3_session_rewind(loaded, back, &err), &err);
        ok(k3_session_rewind(session, back, &err), &err);
        assert_memory_equal(k3_session_logits(loaded), k3_session_logits(session), sizeof(float) * V);
        append(session, ids + 30, 5);
        append(loaded, ids + 30, 5);
        assert_memory_equal(k3_session_logits(loaded), k3_session_logits(session), sizeof(float) * V);
    }
    k3_session_close(session);
    k3_session_close(loaded);
    k3_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_session_continues_with_the_same_bits),
        cmocka_unit_test(i16_a_killed_answer_is_continued_to_the_same_tokens),
        cmocka_unit_test(i08_a_turn_computes_its_own_tokens_only),
        cmocka_unit_test(a_damaged_or_foreign_session_file_changes_nothing),
        cmocka_unit_test(a_fork_continues_from_the_mark_with_the_same_bits),
        cmocka_unit_test(marks_are_listed_counted_and_forgotten),
        cmocka_unit_test(a_saved_session_has_its_marks),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
