/* Sessions that are kept in a folder: there again after a restart, or dropped when they are bad. */
#include "server/clients.h"
#include "support/tiny_checkpoint.h"

#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROMPT = 150, ANSWER = 12 };

static char *model, *folder;
static int32_t text[2 * PROMPT];
static client solo;

/* Writing a session, which comes by here, waits while `holds_save` is set. */
static atomic_int holds_save, n_saves, n_cancelled;

k3_status __real_k3_session_save(k3_session *session, const char *path, k3_error *err);
k3_status __wrap_k3_session_save(k3_session *session, const char *path, k3_error *err);
k3_status __wrap_k3_session_save(k3_session *session, const char *path, k3_error *err)
{
    atomic_fetch_add(&n_saves, 1);
    while (atomic_load(&holds_save))
        sched_yield();
    k3_status status = __real_k3_session_save(session, path, err);
    atomic_fetch_add(&n_cancelled, status == K3_E_CANCELLED);
    return status;
}

static k3_engine *open_engine(int exact)
{
    k3_engine *engine;
    k3_error err;
    must(k3_engine_open(&engine, model, &(k3_config){.backend = "cpu", .threads = 2, .chunk_rows = 64, .exact = exact}, &err), &err);
    return engine;
}

static srv_limits limits_of(uint64_t cache_bytes)
{
    return (srv_limits){.max_running = 4, .max_waiting = 8, .mark_interval = 64, .cache_bytes = cache_bytes, .cache_folder = folder};
}

/* One server's life: a prompt that begins at text[first]. Returns how many of its tokens were kept. */
static int64_t serve(int exact, int first, uint64_t cache_bytes, char notice[300])
{
    k3_engine *engine = open_engine(exact);
    srv_limits limits = limits_of(cache_bytes);
    srv_scheduler *scheduler = scheduler_open(engine, &limits);
    static client c;
    srv_counts counts;
    c = client_new(text + first, PROMPT, ANSWER);
    client_run(&c, scheduler);
    if (!exact && !first)
        client_equal(&c, &solo);
    srv_count(scheduler, &counts);
    if (notice)
        memcpy(notice, counts.notice, sizeof counts.notice);
    srv_scheduler_close(scheduler);
    k3_engine_close(engine);
    return c.n_cached;
}

/* Files in the folder; `name` is of one of them. */
static int n_files(char name[300])
{
    DIR *dir = opendir(folder);
    int n = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.') {
            n++;
            snprintf(name, 300, "%.280s", entry->d_name);
        }
    closedir(dir);
    return n;
}

static void a_prompt_is_still_there_after_a_restart(void **state)
{
    (void)state;
    char name[300];
    assert_int_equal(serve(0, 0, 64 << 20, NULL), 0);
    assert_int_equal(n_files(name), 1);
    assert_int_equal(serve(0, 0, 64 << 20, NULL), PROMPT);
    assert_int_equal(n_files(name), 1);
    assert_int_equal(serve(0, 20, 64 << 20, NULL), 0);
    assert_int_equal(n_files(name), 2);
    assert_int_equal(serve(0, 0, 64 << 20, NULL), PROMPT);
    assert_int_equal(serve(0, 20, 64 << 20, NULL), PROMPT);
    assert_int_equal(serve(0, 20, 0, NULL), 0); /* nothing may be kept */
    assert_int_equal(n_files(name), 0);
}

/* What is cut or altered is deleted and told, and the prompt is computed; a half-written file is deleted. */
static void a_damaged_file_is_dropped(void **state)
{
    (void)state;
    char name[300], notice[300], path[700];
    for (int is_cut = 0; is_cut < 2; is_cut++) {
        size_t n;
        serve(0, 0, 64 << 20, NULL);
        assert_int_equal(n_files(name), 1);
        char *bytes = tiny_get_file(folder, name, &n);
        bytes[n / 2] ^= 4;
        tiny_put_file(folder, name, bytes, is_cut ? n / 3 : n);
        tiny_put_file(folder, "session-000000ff.k3s.part", bytes, n / 2);
        free(bytes);
        k3_engine *engine = open_engine(0);
        srv_limits limits = limits_of(64 << 20);
        srv_scheduler *scheduler = scheduler_open(engine, &limits);
        snprintf(path, sizeof path, "%s/session-000000ff.k3s.part", folder);
        assert_int_equal(access(path, F_OK), -1);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        assert_int_equal(access(path, F_OK), -1);
        srv_scheduler_close(scheduler);
        k3_engine_close(engine);
        serve(0, 0, 64 << 20, NULL);
        n_files(name);
        bytes = tiny_get_file(folder, name, &n);
        bytes[n / 2] ^= 4;
        tiny_put_file(folder, name, bytes, n);
        free(bytes);
        assert_int_equal(serve(0, 0, 64 << 20, notice), 0);
        assert_non_null(strstr(notice, name));
        assert_non_null(strstr(notice, "damaged; deleted"));
        serve(0, 0, 0, NULL);
    }
}

/* Of another model, or of another precision of this one: it is not used and stays. */
static void a_foreign_file_is_left_alone(void **state)
{
    (void)state;
    char name[300], notice[300];
    serve(1, 0, 64 << 20, NULL);
    assert_int_equal(serve(0, 0, 64 << 20, notice), 0);
    assert_non_null(strstr(notice, "another model or precision"));
    assert_int_equal(n_files(name), 2);
    assert_int_equal(serve(1, 0, 64 << 20, NULL), PROMPT);
    assert_int_equal(serve(0, 0, 64 << 20, NULL), PROMPT);
    tiny_put_file(folder, "notes.txt", "x", 1);
    serve(0, 0, 0, NULL);
    serve(1, 0, 0, NULL);
    assert_int_equal(n_files(name), 1);
    assert_string_equal(name, "notes.txt");
}

/* Case I13: a request that comes while a session is written does not wait for that; it is written later. Without a folder nothing is. */
static void writing_makes_way(void **state)
{
    (void)state;
    char name[300];
    k3_engine *engine = open_engine(0);
    srv_limits limits = limits_of(64 << 20);
    srv_scheduler *scheduler = scheduler_open(engine, &limits);
    static client c[2];
    atomic_store(&n_saves, 0);
    atomic_store(&n_cancelled, 0);
    atomic_store(&holds_save, 1);
    c[0] = client_new(text, PROMPT, ANSWER);
    client_run(&c[0], scheduler);
    while (!atomic_load(&n_saves))
        sched_yield();
    c[1] = client_new(text + 20, PROMPT, ANSWER);
    client_submit(&c[1], scheduler);
    atomic_store(&holds_save, 0);
    client_wait(&c[1]);
    assert_int_equal(atomic_load(&n_cancelled), 1);
    srv_scheduler_close(scheduler);
    assert_int_equal(n_files(name), 2);
    assert_int_equal(atomic_load(&n_saves), 3);
    limits.cache_folder = NULL;
    scheduler = scheduler_open(engine, &limits);
    c[0] = client_new(text, PROMPT, ANSWER);
    client_run(&c[0], scheduler);
    srv_scheduler_close(scheduler);
    assert_int_equal(atomic_load(&n_saves), 3);
    k3_engine_close(engine);
    serve(0, 0, 0, NULL);
}

/* A folder that takes no files costs nothing but the files. */
static void a_folder_that_cannot_be_written_is_told(void **state)
{
    (void)state;
    char name[300], path[700];
    k3_engine *engine = open_engine(0);
    srv_limits limits = limits_of(64 << 20);
    srv_scheduler *scheduler = scheduler_open(engine, &limits);
    srv_counts counts = {0};
    snprintf(path, sizeof path, "%s/notes.txt", folder);
    assert_int_equal(unlink(path) || rmdir(folder), 0);
    static client c;
    c = client_new(text, PROMPT, ANSWER);
    client_run(&c, scheduler);
    while (!*counts.notice)
        srv_count(scheduler, &counts);
    assert_non_null(strstr(counts.notice, "kept in memory only"));
    c = client_new(text, PROMPT, ANSWER);
    client_run(&c, scheduler);
    assert_int_equal(c.n_cached, PROMPT);
    srv_scheduler_close(scheduler);
    k3_engine_close(engine);
    struct stat st;
    serve(0, 0, 64 << 20, NULL); /* a folder that is not there is made, for its owner only */
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(n_files(name), 1);
}

static int setup(void **state)
{
    (void)state;
    client_text(text, 2 * PROMPT);
    model = tiny_settle(tiny_new(2));
    folder = tiny_folder();
    solo = client_new(text, PROMPT, ANSWER);
    k3_engine *engine = open_engine(0);
    client_solo(&solo, engine);
    k3_engine_close(engine);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tiny_remove_folder(model);
    tiny_remove_folder(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_is_still_there_after_a_restart),
        cmocka_unit_test(writing_makes_way),
        cmocka_unit_test(a_damaged_file_is_dropped),
        cmocka_unit_test(a_foreign_file_is_left_alone),
        cmocka_unit_test(a_folder_that_cannot_be_written_is_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
