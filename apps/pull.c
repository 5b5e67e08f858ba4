#include <stdio.h>

#include "app.h"

#if K3_HAVE_CURL

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pull.h"
#include "terminal.h"

static const uint64_t reserve = 256000000; /* bytes that stay free */

static int usage(const char *option, const char *value, const char *wanted)
{
    pull_tell("%s %s: %s", option, value, wanted);
    return APP_USAGE;
}

static int read_token(pull_source *source, const char *path)
{
    size_t n = 0;
    source->token = app_read_file(path, &n);
    if (!source->token)
        return APP_FAILED;
    while (n && strchr(" \t\r\n", source->token[n - 1]))
        source->token[--n] = 0;
    for (size_t i = 0; i < n; i++)
        if (source->token[i] <= ' ' || source->token[i] > '~')
            n = 0;
    if (!n)
        pull_tell("--token-file %s: one word of ASCII wanted, and nothing else", path);
    return n ? APP_OK : APP_FAILED;
}

static int is_wanted(const pull_file *f)
{
    return f->state == PULL_MISSING || f->state == PULL_FAILED;
}

/* What is there, of what there will be. */
static uint64_t sum(const pull_files *files, uint64_t *total)
{
    uint64_t done = 0;
    *total = 0;
    for (size_t i = 0; i < files->n; i++) {
        const pull_file *f = &files->items[i];
        uint64_t size = f->size > 0 && f->state != PULL_ABSENT ? (uint64_t)f->size : 0, have = is_wanted(f) ? (uint64_t)f->have : size;
        done += have;
        *total += size > have ? size : have;
    }
    return done;
}

static size_t count(const pull_files *files, pull_state state)
{
    size_t n = 0;
    for (size_t i = 0; i < files->n; i++)
        n += files->items[i].state == state;
    return n;
}

static int has_space(const pull_files *files, int folder, const char *path)
{
    char a[32], b[32], c[32], d[32];
    uint64_t total, done = sum(files, &total), missing = total - done, free_bytes = pull_folder_free_bytes(folder);
    if (missing == 0 || missing + reserve <= free_bytes)
        return 1;
    pull_tell("%s: %s needed (%s to fetch and a reserve of %s), %s free; nothing is fetched", path, pull_size_text(a, missing + reserve),
              pull_size_text(b, missing), pull_size_text(c, reserve), pull_size_text(d, free_bytes));
    return 0;
}

static int fetch(pull_files *files, pull_source *source, int folder)
{
    uint64_t total, done = sum(files, &total);
    pull_task *tasks = app_alloc(files->n, sizeof *tasks);
    size_t n = 0, n_absent = count(files, PULL_ABSENT);
    for (size_t i = 0; i < files->n; i++)
        if (files->items[i].state == PULL_MISSING)
            tasks[n++] = (pull_task){.kind = PULL_BYTES, .url = pull_file_url(source, files->items[i].name), .file = &files->items[i]};
    pull_progress_start("fetching", done, total, count(files, PULL_WHOLE), files->n - n_absent);
    int status = pull_run(source, tasks, n, folder);
    pull_progress_end();
    for (size_t i = 0; i < n; i++)
        pull_task_free(&tasks[i]);
    free(tasks);
    return status;
}

/* Looks at the folder once more and sums up. */
static int verify(const pull_files *files, int folder, const char *path)
{
    char text[32];
    uint64_t total;
    size_t n_failed = count(files, PULL_FAILED) + count(files, PULL_MISSING), n = files->n - count(files, PULL_ABSENT), n_sha256 = 0;
    for (size_t i = 0; i < files->n; i++) {
        const pull_file *f = &files->items[i];
        int64_t size = f->state == PULL_WHOLE || f->state == PULL_FETCHED ? pull_folder_size(folder, f->name) : f->size;
        if (size != f->size) {
            pull_tell("%s: %lld bytes found, %lld wanted; something else changed it", f->name, (long long)size, (long long)f->size);
            n_failed++;
        }
        n_sha256 += (size_t)f->has_sha256;
    }
    if (n_failed) {
        pull_tell("%s: %zu of %zu files are whole; the same command tries again", path, n - n_failed, n);
        return APP_FAILED;
    }
    sum(files, &total);
    printf("%zu files, %s in %s: %zu fetched, %zu were there; %zu compared by SHA-256, %zu by size\n", n, pull_size_text(text, total), path,
           count(files, PULL_FETCHED), count(files, PULL_WHOLE), n_sha256, n - n_sha256);
    return APP_OK;
}

static int pull(pull_source *source, pull_files *files, int folder, const app_options *options)
{
    int status = pull_list(files, source);
    if (status == APP_OK)
        status = pull_folder_check(files, folder, source->n_jobs);
    if (status == APP_OK && !has_space(files, folder, options->out))
        status = APP_FAILED;
    if (status == APP_OK)
        status = fetch(files, source, folder);
    if (status == APP_OK)
        status = verify(files, folder, options->out);
    if (status == APP_INTERRUPTED)
        pull_tell("stopped; the same command goes on from here");
    return status;
}

int app_pull(const app_options *options)
{
    pull_source source = {.n_jobs = options->jobs, .n_retries = options->retries, .timeout = options->timeout};
    pull_files files = {0};
    const char *revision = options->revision;
    if (!*revision || strcmp(revision, ".") == 0 || strcmp(revision, "..") == 0)
        return usage("--revision", revision, "a branch, a tag or a commit wanted");
    if (options->quiet)
        pull_progress_quiet();
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of write */
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int status = pull_source_open(&source, options->model, revision) ? APP_OK : APP_USAGE, folder = -1;
    if (status == APP_OK && options->token_file)
        status = read_token(&source, options->token_file);
    if (status == APP_OK) {
        folder = pull_folder_open(options->out);
        status = folder < 0 ? APP_FAILED : pull(&source, &files, folder, options);
    }
    if (folder >= 0)
        close(folder);
    pull_files_free(&files);
    pull_source_close(&source);
    curl_global_cleanup();
    return status;
}

#else

int app_pull(const app_options *options)
{
    (void)options;
    fputs("k3 pull: this k3 was built without libcurl and libcrypto; install libcurl4-openssl-dev and libssl-dev, then build again\n",
          stderr);
    return APP_FAILED;
}

#endif
