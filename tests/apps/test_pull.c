/* `k3 pull` against a server of our own: what comes is right, and whatever the server does, nothing wrong is left behind. */
#include "hub.h"
#include "process.h"
#include "support/tiny_checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MINI "models/k3-mini"

enum { BIG = 300000 };

/* A server with three files, and a fresh folder to pull into. */
typedef struct place {
    hub *hub;
    char source[64], *folder, out[256];
    char big[BIG], small[40];
} place;

/* ---- helpers --------------------------------------------------------------------------------------------------------- */

static void set_sha256(hub_file *f)
{
    unsigned char digest[32];
    assert_true(EVP_Digest(f->bytes, f->n, digest, NULL, EVP_sha256(), NULL));
    for (int i = 0; i < 32; i++)
        snprintf(f->sha256 + 2 * i, 3, "%02x", digest[i]);
}

static int make_place(void **state)
{
    place *p = calloc(1, sizeof *p);
    uint64_t x = 88172645463325252u;
    p->hub = hub_start();
    p->folder = tiny_folder();
    snprintf(p->out, sizeof p->out, "%s/out", p->folder);
    snprintf(p->source, sizeof p->source, "http://127.0.0.1:%d/owner/mini", p->hub->port);
    for (int i = 0; i < BIG; i++, x ^= x << 13, x ^= x >> 7, x ^= x << 17)
        p->big[i] = (char)x;
    snprintf(p->small, sizeof p->small, "{\"small\": true}\n");
    set_sha256(hub_add(p->hub, "big.bin", p->big, BIG));
    hub_add(p->hub, "config.json", p->small, strlen(p->small));
    hub_add(p->hub, "sub/deeper/odd name #1?%25 \xc3\xa9", "in a folder", 11);
    *state = p;
    return 0;
}

static int remove_place(void **state)
{
    place *p = *state;
    hub_stop(p->hub);
    tiny_remove_folder(p->folder);
    free(p);
    return 0;
}

static char *path_of(const place *p, const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", p->out, name);
    return path;
}

static int64_t size_of(const place *p, const char *name)
{
    struct stat st;
    return stat(path_of(p, name), &st) ? -1 : (int64_t)st.st_size;
}

static void put(const place *p, const char *name, const void *bytes, size_t n)
{
    mkdir(p->out, 0777);
    tiny_put_file(p->out, name, bytes, n);
}

/* Every file of the server is there, byte for byte, and nothing unfinished. */
static void check_files(const place *p)
{
    for (int i = 0; i < p->hub->n_files; i++) {
        const hub_file *f = &p->hub->files[i];
        char part[300];
        size_t n;
        char *bytes = tiny_get_file(p->out, f->name, &n);
        if (n != f->n || (n && memcmp(bytes, f->bytes, n) != 0))
            fail_msg("%s: %zu bytes, not the %zu of the server", f->name, n, f->n);
        free(bytes);
        snprintf(part, sizeof part, "%s.part", f->name);
        assert_int_equal(size_of(p, part), -1);
    }
}

static void check(process_result r, int status, const char *out, const char *err)
{
    if (r.status != status || strcmp(r.out, out) != 0 || strcmp(r.err, err) != 0)
        fail_msg("status %d, stdout \"%s\", stderr \"%s\"; wanted %d, \"%s\", \"%s\"", r.status, r.out, r.err, status, out, err);
    process_free(&r);
}

static void check_done(const place *p, process_result r)
{
    assert_int_equal(r.status, 0);
    assert_string_equal(r.err, "");
    process_free(&r);
    check_files(p);
}

static const char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *text(const char *format, ...)
{
    static char texts[4][2048];
    static int i;
    va_list list;
    i = (i + 1) % 4;
    va_start(list, format);
    vsnprintf(texts[i], sizeof texts[i], format, list);
    va_end(list);
    return texts[i];
}

#define SUM(n_fetched, n_there, n_sha256)                                                                                                  \
    text("3 files, 300.0 kB in %s: %d fetched, %d were there; %d compared by SHA-256, %d by size\n", p->out, n_fetched, n_there, n_sha256, \
         3 - (n_sha256))
#define PULL(...) RUN("pull", p->source, p->out, "--quiet", __VA_ARGS__)

/* k3 pull in the background. It starts when the hub knows it, if n_bytes >= 0: then it gets the signal after so many bytes of files. */
static pid_t start_pull(place *p, int64_t n_bytes, int signal_number, rlim_t file_limit)
{
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit limit = {file_limit, file_limit};
        int log = open(text("%s/log", p->folder), O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (read(ready[0], &byte, 1) != 1 || log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
            _exit(126);
        if (file_limit && setrlimit(RLIMIT_FSIZE, &limit))
            _exit(126);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        execl(K3_BINARY, K3_BINARY, "pull", p->source, p->out, "--quiet", (char *)NULL);
        _exit(127);
    }
    if (n_bytes >= 0)
        hub_signal_after(p->hub, n_bytes, pid, signal_number);
    assert_int_equal(write(ready[1], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

/* Exit status, 128 + n for signal n; *log is what it printed, to be freed. */
static int end_pull(place *p, pid_t pid, char **log)
{
    int status;
    size_t n;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    hub_signal_after(p->hub, 0, 0, 0);
    if (log)
        *log = tiny_get_file(p->folder, "log", &n);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void wait_for_requests(place *p, const char *what, int n)
{
    while (hub_count(p->hub, what) < n)
        usleep(1000);
}

/* ---- what is right -------------------------------------------------------------------------------------------------- */

/* Serves the bundled model instead; the bytes are freed by drop_mini. */
static int64_t serve_mini(place *p)
{
    DIR *folder = opendir(MINI);
    int64_t total = 0;
    assert_non_null(folder);
    p->hub->n_files = 0;
    for (struct dirent *e; (e = readdir(folder));) {
        size_t n;
        if (e->d_name[0] == '.')
            continue;
        char *bytes = tiny_get_file(MINI, e->d_name, &n);
        hub_file *f = hub_add(p->hub, e->d_name, bytes, n);
        if (strstr(f->name, ".safetensors"))
            set_sha256(f);
        total += (int64_t)n;
    }
    closedir(folder);
    return total;
}

static void drop_mini(place *p)
{
    for (int i = 0; i < p->hub->n_files; i++)
        free((char *)(uintptr_t)p->hub->files[i].bytes);
}

static void the_bundled_model_comes_byte_for_byte_and_is_sound(void **state)
{
    place *p = *state;
    int64_t total = serve_mini(p);
    check(PULL("--jobs", "3"), 0,
          text("%d files, %.1f MB in %s: %d fetched, 0 were there; 11 compared by SHA-256, %d by size\n", p->hub->n_files,
               (double)total / 1e6, p->out, p->hub->n_files, p->hub->n_files - 11),
          "");
    check_files(p);
    process_result here = RUN("inspect", MINI), there = RUN("inspect", p->out);
    assert_int_equal(there.status, 0);
    assert_non_null(strchr(here.out, '\n'));
    assert_string_equal(strchr(there.out, '\n'), strchr(here.out, '\n'));
    process_free(&here);
    process_free(&there);
    drop_mini(p);
}

static void what_is_whole_is_not_fetched_again(void **state)
{
    place *p = *state;
    check(PULL("--jobs", "1"), 0, SUM(3, 0, 1), "");
    check_files(p);
    hub_forget(p->hub);
    check(PULL("--jobs", "1"), 0, SUM(0, 3, 1), "");
    assert_int_equal(hub_count(p->hub, "/resolve/"), 0);
    /* One byte is wrong, the size is right: the checksum tells. */
    p->big[7]++;
    put(p, "big.bin", p->big, BIG);
    p->big[7]--;
    put(p, "config.json", "short", 5);
    check(PULL("--jobs", "1"), 0, SUM(2, 1, 1), "");
    check_files(p);
    assert_int_equal(hub_count(p->hub, "/resolve/"), 2);
}

static void a_server_without_the_list_is_read_by_its_index(void **state)
{
    place *p = *state;
    int64_t total = serve_mini(p);
    p->hub->no_api = p->hub->linked = 1;
    check(PULL("--jobs", "3"), 0,
          text("%d files, %.1f MB in %s: %d fetched, 0 were there; 11 compared by SHA-256, %d by size\n", p->hub->n_files,
               (double)total / 1e6, p->out, p->hub->n_files, p->hub->n_files - 11),
          "");
    check_files(p);
    assert_int_equal(hub_count(p->hub, "HEAD /owner/mini/resolve/main/model-00010-of-000010.safetensors"), 1);
    assert_int_equal(hub_count(p->hub, "/LICENSE"), 1); /* looked for, not there, no harm */
    drop_mini(p);
}

static void a_server_without_list_and_heads_gives_sizes_with_the_files(void **state)
{
    place *p = *state;
    p->hub->no_api = p->hub->no_heads = p->hub->linked = 1;
    snprintf(p->hub->files[0].name, sizeof p->hub->files[0].name, "model.safetensors");
    p->hub->n_files = 2;
    check(PULL("--jobs", "2"), 0, text("2 files, 300.0 kB in %s: 2 fetched, 0 were there; 1 compared by SHA-256, 1 by size\n", p->out), "");
    check_files(p);
    assert_int_equal(size_of(p, "LICENSE.part"), -1); /* looked for, not there */
}

static void a_list_of_several_pages_is_read_to_its_end(void **state)
{
    place *p = *state;
    p->hub->page = 1;
    check(PULL("--jobs", "2"), 0, SUM(3, 0, 1), "");
    check_files(p);
    assert_int_equal(hub_count(p->hub, "/api/models/"), 3);
}

static void empty_files_and_answers_without_a_length_come(void **state)
{
    place *p = *state;
    hub_add(p->hub, "empty", "", 0);
    p->hub->no_lengths = 1;
    check(PULL("--jobs", "2"), 0, text("4 files, 300.0 kB in %s: 4 fetched, 0 were there; 1 compared by SHA-256, 3 by size\n", p->out), "");
    check_files(p);
}

static void the_revision_is_a_part_of_every_request(void **state)
{
    place *p = *state;
    process_result r = PULL("--revision", "v1/new");
    assert_int_equal(r.status, 1);
    process_free(&r);
    assert_int_equal(hub_count(p->hub, "GET /api/models/owner/mini/tree/v1%2Fnew?recursive=true"), 1);
    assert_int_equal(hub_count(p->hub, "/owner/mini/resolve/v1%2Fnew/config.json"), 1);
    assert_int_equal(hub_count(p->hub, "main"), 0);
    check(PULL("--revision", ".."), 2, "", "k3 pull: --revision ..: a branch, a tag or a commit wanted\n");
}

static void progress_is_one_line_on_a_terminal(void **state)
{
    place *p = *state;
    char *seen;
    hub_add_fault(p->hub, (hub_fault){.match = "GET /owner/mini/resolve/main/big.bin", .n_times = 1, .cut_after = 200000, .hang = 1});
    const char *arguments[] = {"pull", p->source, p->out, "--timeout", "3", NULL};
    process_terminal *t = terminal_run(arguments);
    terminal_wait(t, "\r\033[Kfetching: 200.0 kB of 300.0 kB, 2 of 3 files, ");
    assert_int_equal(terminal_end(t, &seen), 0);
    assert_non_null(strstr(seen, "/s, ")); /* rate and time */
    assert_non_null(strstr(seen, " s left"));
    const char *last = strstr(seen, "3 files, 300.0 kB in ");
    assert_non_null(last);
    for (const char *c = seen; c < last; c++)
        assert_int_not_equal(*c, '\n');
    free(seen);
    check_files(p);
}

/* ---- connections that fail ------------------------------------------------------------------------------------------ */

static void a_cut_connection_goes_on_where_it_was_cut(void **state)
{
    place *p = *state;
    hub_add_fault(p->hub, (hub_fault){.match = "/big.bin", .n_times = 3, .cut_after = 70001});
    check(PULL("--retries", "1"), 0, SUM(3, 0, 1), ""); /* each attempt brings something, so one is enough */
    check_files(p);
    assert_int_equal(hub_count(p->hub, "/big.bin"), 4);
    assert_int_equal(hub_count(p->hub, "/big.bin range=bytes=70001-"), 1);
    assert_int_equal(hub_count(p->hub, "/big.bin range=bytes=140002-"), 1);
    assert_int_equal(hub_count(p->hub, "/big.bin range=bytes=210003-"), 1);
}

static void a_server_that_ignores_ranges_starts_over(void **state)
{
    place *p = *state;
    p->hub->no_ranges = 1;
    hub_add_fault(p->hub, (hub_fault){.match = "/big.bin", .n_times = 2, .cut_after = 70001});
    check(PULL("--retries", "3"), 0, SUM(3, 0, 1), "");
    check_files(p);
    assert_int_equal(hub_count(p->hub, "/big.bin range=bytes=70001-"), 2);
    /* Without getting further than before, it ends. */
    unlink(path_of(p, "big.bin"));
    hub_forget(p->hub);
    hub_add_fault(p->hub, (hub_fault){.match = "/big.bin", .n_times = 100, .cut_after = 70001});
    process_result r = PULL("--retries", "2");
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err, "given up after 3 attempts\n"));
    assert_int_equal(hub_count(p->hub, "/big.bin"), 3);
    process_free(&r);
}

static void a_connection_that_hangs_is_given_up(void **state)
{
    place *p = *state;
    hub_add_fault(p->hub, (hub_fault){.match = "/big.bin", .n_times = 1, .cut_after = 50000, .hang = 1});
    hub_add_fault(p->hub, (hub_fault){.match = "/config.json", .n_times = 1, .hang = 1});
    check(PULL("--timeout", "2"), 0, SUM(3, 0, 1), "");
    check_files(p);
    assert_int_equal(hub_count(p->hub, "/big.bin range=bytes=50000-"), 1);
    assert_int_equal(hub_count(p->hub, "/config.json"), 2);
}

static void answers_that_may_pass_are_tried_again(void **state)
{
    place *p = *state;
    hub_add_fault(p->hub, (hub_fault){.match = "/api/", .n_times = 1, .status = 503});
    hub_add_fault(p->hub, (hub_fault){.match = "/big.bin", .n_times = 1, .status = 429, .retry_after = 1});
    hub_add_fault(p->hub, (hub_fault){.match = "/config.json", .n_times = 2, .status = 500});
    check(PULL("--jobs", "2"), 0, SUM(3, 0, 1), "");
    check_files(p);
    assert_int_equal(hub_count(p->hub, "/big.bin"), 2);
    assert_int_equal(hub_count(p->hub, "/config.json"), 3);
}

static void the_time_that_a_server_asks_for_is_waited(void **state)
{
    place *p = *state;
    hub_add_fault(p->hub, (hub_fault){.match = "/big.bin", .n_times = 1, .status = 429, .retry_after = 4000});
    pid_t pid = start_pull(p, -1, 0, 0);
    char *log = NULL;
    size_t n;
    wait_for_requests(p, "/big.bin", 1);
    do {
        free(log);
        usleep(10000);
        log = tiny_get_file(p->folder, "log", &n);
    } while (!strchr(log, '\n'));
    assert_string_equal(log, "k3 pull: big.bin: the server answers 429; again in 3600 s\n"); /* an hour at most */
    free(log);
    kill(pid, SIGINT);
    assert_int_equal(end_pull(p, pid, NULL), 130);
}

static void a_server_that_stays_broken_is_given_up(void **state)
{
    place *p = *state;
    hub_add_fault(p->hub, (hub_fault){.match = "/big.bin", .n_times = 100, .status = 503});
    check(PULL("--retries", "2"), 1, "",
          text("k3 pull: big.bin: the server answers 503; given up after 3 attempts\n"
               "k3 pull: %s: 2 of 3 files are whole; the same command tries again\n",
               p->out));
    assert_int_equal(hub_count(p->hub, "/big.bin"), 3);
    assert_int_equal(size_of(p, "big.bin"), -1);
}

static void a_missing_file_is_named_and_the_others_come(void **state)
{
    place *p = *state;
    hub_add_fault(p->hub, (hub_fault){.match = "/config.json", .n_times = 100, .status = 404});
    check(
        PULL("--jobs", "1"), 1, "",
        text("k3 pull: config.json: the server answers 404\nk3 pull: %s: 2 of 3 files are whole; the same command tries again\n", p->out));
    assert_int_equal(hub_count(p->hub, "/config.json"), 1);
    assert_int_equal(size_of(p, "big.bin"), BIG);
}

static void nothing_at_the_other_end_is_said(void **state)
{
    place *p = *state;
    process_result r = RUN("pull", "http://127.0.0.1:1/owner/mini", p->out, "--retries", "1");
    assert_int_equal(r.status, 1);
    assert_memory_equal(r.err, "k3 pull: the list of files: ", 28);
    assert_non_null(strstr(r.err, "given up after 2 attempts\n"));
    process_free(&r);
}

/* ---- being stopped --------------------------------------------------------------------------------------------------- */

static void killed_at_twenty_points_it_goes_on_each_time(void **state)
{
    place *p = *state;
    uint64_t x = 20231129;
    serve_mini(p);
    for (int i = 0; i < 20; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        pid_t pid = start_pull(p, (int64_t)((x >> 33) % 800000), SIGKILL, 0);
        assert_int_equal(end_pull(p, pid, NULL), 128 + SIGKILL);
    }
    assert_true(hub_count(p->hub, "range=bytes=") > 0);
    check_done(p, PULL("--jobs", "4"));
    drop_mini(p);
}

static void ctrl_c_leaves_parts_that_the_next_run_continues(void **state)
{
    place *p = *state;
    char *log;
    hub_add_fault(p->hub, (hub_fault){.match = "/big.bin", .n_times = 1, .cut_after = 100000, .hang = 1});
    pid_t pid = start_pull(p, -1, 0, 0);
    while (size_of(p, "big.bin.part") < 100000)
        usleep(1000);
    kill(pid, SIGINT);
    assert_int_equal(end_pull(p, pid, &log), 130);
    assert_string_equal(log, "k3 pull: stopped; the same command goes on from here\n");
    free(log);
    assert_int_equal(size_of(p, "big.bin"), -1);
    hub_forget(p->hub);
    check_done(p, PULL("--jobs", "1"));
    assert_int_equal(hub_count(p->hub, "/big.bin range=bytes=100000-"), 1);
}

static void a_part_that_is_wrong_is_thrown_away(void **state)
{
    place *p = *state;
    p->big[3]++;
    put(p, "big.bin.part", p->big, 1000); /* found out at the end */
    p->big[3]--;
    check(PULL("--jobs", "1"), 0, SUM(3, 0, 1), "");
    check_files(p);
    assert_int_equal(hub_count(p->hub, "/big.bin"), 2);
    unlink(path_of(p, "big.bin"));
    hub_forget(p->hub);
    char *longer = calloc(BIG + 1, 1);
    put(p, "big.bin.part", longer, BIG + 1);
    free(longer);
    check(PULL("--jobs", "1"), 0, SUM(1, 2, 1), "");
    check_files(p);
    assert_int_equal(hub_count(p->hub, "/big.bin"), 1);
    unlink(path_of(p, "big.bin"));
    hub_forget(p->hub);
    unlink(path_of(p, "config.json"));
    put(p, "big.bin.part", p->big, BIG); /* whole, stopped before it got its name */
    check(PULL("--jobs", "1"), 0, SUM(2, 1, 1), "");
    check_files(p);
    assert_int_equal(hub_count(p->hub, "/big.bin"), 0);
}

static void without_a_checksum_the_bytes_of_two_versions_never_meet(void **state)
{
    place *p = *state;
    p->hub->files[0].sha256[0] = 0;
    put(p, "big.bin.part", p->small, 16); /* of an older version */
    p->hub->changed = (int64_t)time(NULL) + 60;
    check(PULL("--jobs", "1"), 0, SUM(3, 0, 0), "");
    check_files(p);
    assert_int_equal(hub_count(p->hub, "/big.bin range=bytes=16-"), 1);
    /* The same version is continued. */
    unlink(path_of(p, "big.bin"));
    hub_forget(p->hub);
    put(p, "big.bin.part", p->big, 17);
    p->hub->changed = (int64_t)time(NULL) - 60;
    check(PULL("--jobs", "1"), 0, SUM(1, 2, 0), "");
    check_files(p);
    assert_int_equal(hub_count(p->hub, "/big.bin"), 1);
}

static void a_second_pull_into_the_folder_is_refused(void **state)
{
    place *p = *state;
    hub_add_fault(p->hub, (hub_fault){.match = "/big.bin", .n_times = 1, .hang = 1});
    pid_t pid = start_pull(p, -1, 0, 0);
    wait_for_requests(p, "/big.bin", 1);
    check(PULL("--jobs", "1"), 1, "", text("k3 pull: %s: another k3 pull is at work in this folder\n", p->out));
    kill(pid, SIGKILL);
    assert_int_equal(end_pull(p, pid, NULL), 128 + SIGKILL);
    check_done(p, PULL("--jobs", "1"));
}

static void a_disk_that_is_too_small_is_known_before(void **state)
{
    place *p = *state;
    p->hub->files[0].listed_size = (int64_t)1 << 50;
    process_result r = PULL("--jobs", "1");
    assert_int_equal(r.status, 1);
    const char *start = text("k3 pull: %s: 1.1 PB needed (1.1 PB to fetch and a reserve of 256.0 MB), ", p->out);
    if (strncmp(r.err, start, strlen(start)) != 0 || !strstr(r.err, " free; nothing is fetched\n"))
        fail_msg("%s", r.err);
    process_free(&r);
    assert_int_equal(hub_count(p->hub, "/resolve/"), 0);
}

static void a_disk_that_fills_up_leaves_what_came(void **state)
{
    place *p = *state;
    char *log;
    pid_t pid = start_pull(p, -1, 0, 120000);
    assert_int_equal(end_pull(p, pid, &log), 1);
    assert_string_equal(
        log, text("k3 pull: big.bin.part: %s; what came so far stays, and the same command goes on from there\n", strerror(EFBIG)));
    free(log);
    assert_int_equal(size_of(p, "big.bin.part"), 120000);
    assert_int_equal(size_of(p, "big.bin"), -1);
    check_done(p, PULL("--jobs", "1"));
    assert_int_equal(hub_count(p->hub, "/big.bin range=bytes=120000-"), 1);
}

/* ---- servers that lie ------------------------------------------------------------------------------------------------ */

static void check_big_refused(place *p, const char *why, int n_requests)
{
    check(PULL("--retries", "1"), 1, "",
          text("k3 pull: big.bin: %s\nk3 pull: %s: 2 of 3 files are whole; the same command tries again\n", why, p->out));
    assert_int_equal(size_of(p, "big.bin"), -1);
    assert_int_equal(hub_count(p->hub, "/big.bin"), n_requests);
    hub_forget(p->hub);
    unlink(path_of(p, "big.bin.part"));
}

static void sizes_that_do_not_fit_the_list_are_refused(void **state)
{
    place *p = *state;
    p->hub->files[0].listed_size = 200000;
    check_big_refused(p, "200000 bytes are listed, the server sends a file of 300000", 1);
    p->hub->files[0].listed_size = 400000;
    check_big_refused(p, "400000 bytes are listed, the server sends a file of 300000", 1);
    /* Without a length it shows when they come. */
    p->hub->no_lengths = p->hub->no_ranges = 1;
    p->hub->files[0].listed_size = 200000;
    check_big_refused(p, "200000 bytes are listed, the server sends more", 1);
    p->hub->files[0].listed_size = 400000;
    check_big_refused(p, "the server ends after 300000 of 400000 bytes; given up after 2 attempts", 2);
    p->hub->no_lengths = p->hub->no_ranges = 0;
    p->hub->files[0].listed_size = -1;
    hub_add_fault(p->hub, (hub_fault){.match = "/big.bin", .n_times = 1, .length = 300001});
    check_big_refused(p, "300000 bytes are listed, the server sends a file of 300001", 1);
    hub_add_fault(p->hub,
                  (hub_fault){.match = "/big.bin", .n_times = 1, .status = 206, .extra = "Content-Range: bytes 7-299999/300000\r\n"});
    check_big_refused(p, "bytes from 0 asked for, bytes from 7 came", 1);
}

static void a_wrong_checksum_is_refused_after_a_second_try(void **state)
{
    place *p = *state;
    char *sha256 = p->hub->files[0].sha256, right[65];
    memcpy(right, sha256, sizeof right);
    sha256[0] = sha256[0] == '0' ? '1' : '0';
    check_big_refused(p, text("its SHA-256 is %s, which is not the server's, twice; big.bin.part is removed", right), 2);
    assert_int_equal(size_of(p, "big.bin.part"), -1);
}

static void names_that_lead_out_of_the_folder_are_refused(void **state)
{
    static const struct {
        const char *json, *why;
    } cases[] = {
        {"../evil", "a path through . or .."},
        {"a/../../evil", "a path through . or .."},
        {"./evil", "a path through . or .."},
        {"a/..", "a path through . or .."},
        {"/tmp/evil", "an absolute path"},
        {"a//evil", "an empty part of a path"},
        {"a/", "an empty part of a path"},
        {"", "an empty part of a path"},
        {"evil\\u0000.bin", "a control character"},
        {"\\u001b[2Jevil", "a control character"},
        {"..\\\\evil", "a backslash"},
        {"evil.part", "the ending of unfinished files"},
        {"config.json", "listed twice"},
    };
    place *p = *state;
    mkdir(p->out, 0777);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char list[400];
        snprintf(list, sizeof list,
                 "[{\"type\":\"file\",\"path\":\"config.json\",\"size\":16},{\"type\":\"file\",\"path\":\"%s\",\"size\":1}]",
                 cases[i].json);
        p->hub->list = list;
        char *before = folder_listing(p->folder);
        process_result r = PULL("--jobs", "1");
        const char *want = text("k3 pull: the server lists the file \"%s\": %s; nothing is fetched\n", cases[i].json, cases[i].why);
        char *after = folder_listing(p->folder);
        if (r.status != 1 || strcmp(r.err, want) != 0 || strcmp(before, after) != 0)
            fail_msg("status %d, \"%s\"; wanted 1, \"%s\"", r.status, r.err, want);
        process_free(&r);
        free(before);
        free(after);
    }
    assert_int_equal(hub_count(p->hub, "/resolve/"), 0);
    /* The index is held to the same. */
    p->hub->no_api = 1;
    static const char index[] = "{\"weight_map\": {\"a\": \"model-1.safetensors\", \"b\": \"../../evil\"}}";
    hub_add(p->hub, "model.safetensors.index.json", index, sizeof index - 1);
    check(PULL("--jobs", "1"), 1, "", "k3 pull: the server lists the file \"../../evil\": a path through . or ..; nothing is fetched\n");
}

static void nothing_is_written_through_links(void **state)
{
    place *p = *state;
    char elsewhere[300], target[320], link_name[1024];
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", p->folder);
    snprintf(target, sizeof target, "%s/target", elsewhere);
    mkdir(p->out, 0777);
    mkdir(elsewhere, 0777);
    tiny_put_file(elsewhere, "target", "precious", 8);
    snprintf(link_name, sizeof link_name, "%s", path_of(p, "sub"));
    assert_int_equal(symlink(elsewhere, link_name), 0);
    char *before = folder_listing(elsewhere);
    static const char folders[] = "a link or a file stands where a folder is wanted; nothing is written through links\n";
    check(PULL("--jobs", "1"), 1, "", text("k3 pull: %s: %s", p->hub->files[2].name, folders));
    unlink(link_name);
    snprintf(link_name, sizeof link_name, "%s", path_of(p, "big.bin.part"));
    assert_int_equal(symlink(target, link_name), 0);
    check(PULL("--jobs", "1"), 1, "", text("k3 pull: big.bin.part: %s", folders));
    unlink(link_name);
    /* A link in a file's own place is read, and replaced when it is not that file. */
    snprintf(link_name, sizeof link_name, "%s", path_of(p, "big.bin"));
    assert_int_equal(symlink(target, link_name), 0);
    check(PULL("--jobs", "1"), 0, SUM(3, 0, 1), "");
    check_files(p);
    char *after = folder_listing(elsewhere);
    assert_string_equal(before, after);
    free(before);
    free(after);
}

static void lists_that_are_none_are_refused(void **state)
{
    static const struct {
        const char *list, *why;
    } cases[] = {
        {"[]", "the server lists no files"},
        {"[{\"type\":\"file\",\"size\":1}]", "the server's list of files has one without a path"},
        {"[{\"type\":\"file\",\"path\":\"a\"}]", "the server's list gives a no size from 0 to 2^50"},
        {"[{\"type\":\"file\",\"path\":\"a\",\"size\":-1}]", "the server's list gives a no size from 0 to 2^50"},
        {"[{\"type\":\"file\",\"path\":\"a\",\"size\":1e300}]", "the server's list gives a no size from 0 to 2^50"},
        {"<html>not here</html>", "model.safetensors: the server answers 404"}, /* no list and no index: a single file is looked for */
    };
    place *p = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        p->hub->list = cases[i].list;
        check(PULL("--jobs", "1"), 1, "", text("k3 pull: %s\n", cases[i].why));
    }
    static const char index[] = "{\"weight_map\": [\"a\"]}";
    hub_add(p->hub, "model.safetensors.index.json", index, sizeof index - 1);
    check(PULL("--jobs", "1"), 1, "", "k3 pull: model.safetensors.index.json: an object weight_map wanted, none found\n");
}

/* ---- redirects and the token ----------------------------------------------------------------------------------------- */

static void a_redirect_is_followed_and_the_token_stays_at_home(void **state)
{
    place *p = *state;
    hub *other = hub_start();
    char location[64], token[300];
    snprintf(location, sizeof location, "http://127.0.0.1:%d", other->port);
    snprintf(token, sizeof token, "%s/token", p->folder);
    tiny_put_file(p->folder, "token", "hub_secret\n", 11);
    memcpy(other->files, p->hub->files, sizeof other->files);
    other->n_files = p->hub->n_files;
    hub_add_fault(p->hub, (hub_fault){.match = "/big.bin", .n_times = 2, .status = 302, .location = location});
    hub_add_fault(
        p->hub,
        (hub_fault){.match = "/config.json", .n_times = 1, .status = 307, .location = "/owner/mini/resolve/main/config.json?at=home"});
    hub_add_fault(other, (hub_fault){.match = "/big.bin", .n_times = 1, .cut_after = 1000});
    process_result r = PULL("--token-file", token);
    check_files(p);
    assert_int_equal(hub_count(p->hub, "token=Bearer hub_secret"), hub_count(p->hub, ""));
    assert_int_equal(hub_count(p->hub, "/big.bin range=bytes=1000-"), 1); /* asked at home again: the place may have changed */
    assert_int_equal(hub_count(other, "/big.bin"), 2);
    assert_int_equal(hub_count(other, "token="), 0);
    check(r, 0, SUM(3, 0, 1), "");
    hub_stop(other);
}

static void redirects_that_lead_nowhere_are_refused(void **state)
{
    place *p = *state;
    hub_add_fault(p->hub, (hub_fault){.match = "/big.bin", .n_times = 1, .status = 302, .location = "file:///etc/passwd"});
    check_big_refused(p, "the server redirects (302) to no http or https URL", 1);
    hub_add_fault(p->hub, (hub_fault){.match = "/big.bin", .n_times = 100, .status = 301, .location = "big.bin"});
    check_big_refused(p, "the server redirects (301) in a circle", 11);
}

static void a_missing_or_wrong_token_is_said(void **state)
{
    place *p = *state;
    char token[300];
    snprintf(token, sizeof token, "%s/token", p->folder);
    hub_add_fault(p->hub, (hub_fault){.match = "/api/", .n_times = 2, .status = 401});
    check(PULL("--jobs", "1"), 1, "", "k3 pull: the list of files: the server answers 401; it may want a token, --token-file F\n");
    tiny_put_file(p->folder, "token", "two words", 9);
    check(PULL("--token-file", token), 1, "", text("k3 pull: --token-file %s: one word of ASCII wanted, and nothing else\n", token));
    tiny_put_file(p->folder, "token", "secret", 6);
    check(PULL("--token-file", token), 1, "", "k3 pull: the list of files: the server answers 401; the token is not good for this\n");
}

static void sources_that_are_no_url_are_usage(void **state)
{
    static const char *const cases[][2] = {
        {"owner/mini", "a URL wanted, such as http://host:port/owner/name"},
        {"ftp://host/owner/mini", "a URL wanted, such as http://host:port/owner/name"},
        {"http://host", "a URL with the model's owner and name wanted, such as http://host:port/owner/name"},
        {"http://me:pass@host/owner/mini", "a name or password in the URL; a token goes into a file, --token-file F"},
        {"http://host/owner/mini?a=b", "a URL without ? and # wanted"},
    };
    place *p = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(RUN("pull", cases[i][0], p->out), 2, "", text("k3 pull: %s: %s\n", cases[i][0], cases[i][1]));
    check(RUN("pull"), 2, "", "k3 pull: no model given; usage: k3 pull SOURCE OUT [options]\n");
    check(RUN("pull", p->source), 2, "", "k3 pull: no folder to write given; usage: k3 pull SOURCE OUT [options]\n");
    check(RUN("pull", p->source, "a", "b"), 2, "", "k3 pull: b: unexpected; a model and a folder are wanted\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_place, remove_place)

int main(void)
{
    setenv("no_proxy", "127.0.0.1", 1);
    const struct CMUnitTest tests[] = {
        TEST(the_bundled_model_comes_byte_for_byte_and_is_sound),
        TEST(what_is_whole_is_not_fetched_again),
        TEST(a_server_without_the_list_is_read_by_its_index),
        TEST(a_server_without_list_and_heads_gives_sizes_with_the_files),
        TEST(a_list_of_several_pages_is_read_to_its_end),
        TEST(empty_files_and_answers_without_a_length_come),
        TEST(the_revision_is_a_part_of_every_request),
        TEST(progress_is_one_line_on_a_terminal),
        TEST(a_cut_connection_goes_on_where_it_was_cut),
        TEST(a_server_that_ignores_ranges_starts_over),
        TEST(a_connection_that_hangs_is_given_up),
        TEST(answers_that_may_pass_are_tried_again),
        TEST(the_time_that_a_server_asks_for_is_waited),
        TEST(a_server_that_stays_broken_is_given_up),
        TEST(a_missing_file_is_named_and_the_others_come),
        TEST(nothing_at_the_other_end_is_said),
        TEST(killed_at_twenty_points_it_goes_on_each_time),
        TEST(ctrl_c_leaves_parts_that_the_next_run_continues),
        TEST(a_part_that_is_wrong_is_thrown_away),
        TEST(without_a_checksum_the_bytes_of_two_versions_never_meet),
        TEST(a_second_pull_into_the_folder_is_refused),
        TEST(a_disk_that_is_too_small_is_known_before),
        TEST(a_disk_that_fills_up_leaves_what_came),
        TEST(sizes_that_do_not_fit_the_list_are_refused),
        TEST(a_wrong_checksum_is_refused_after_a_second_try),
        TEST(names_that_lead_out_of_the_folder_are_refused),
        TEST(nothing_is_written_through_links),
        TEST(lists_that_are_none_are_refused),
        TEST(a_redirect_is_followed_and_the_token_stays_at_home),
        TEST(redirects_that_lead_nowhere_are_refused),
        TEST(a_missing_or_wrong_token_is_said),
        TEST(sources_that_are_no_url_are_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
