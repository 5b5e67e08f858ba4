#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pull.h"
#include "terminal.h"

static struct {
    const char *phase; /* NULL: none is running */
    uint64_t done, total;
    size_t n_files;
    double started, shown, sampled, rate; /* bytes a second, smoothed */
    uint64_t at_sample;
    int quiet, line_open, n_lines;
} progress;

/* Of this phase. Several threads read files. */
static atomic_uint_least64_t received, lost;
static atomic_size_t n_files_done;

const char *pull_size_text(char text[32], uint64_t n_bytes)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    double x = (double)n_bytes / 1000;
    size_t i = 0;
    if (n_bytes < 1000) {
        snprintf(text, 32, "%u bytes", (unsigned)n_bytes);
        return text;
    }
    for (; x >= 999.95 && i + 1 < sizeof units / sizeof *units; i++)
        x /= 1000;
    snprintf(text, 32, "%.1f %s", x, units[i]);
    return text;
}

void pull_progress_start(const char *phase, uint64_t done, uint64_t total, size_t n_files_there, size_t n_files)
{
    int quiet = progress.quiet;
    double now = app_seconds();
    pull_progress_end();
    memset(&progress, 0, sizeof progress);
    progress.phase = phase;
    progress.done = done;
    progress.total = total;
    progress.n_files = n_files;
    progress.started = progress.shown = progress.sampled = now;
    progress.quiet = quiet;
    atomic_store(&received, 0);
    atomic_store(&lost, 0);
    atomic_store(&n_files_done, n_files_there);
}

void pull_progress_add(size_t n_bytes)
{
    atomic_fetch_add(&received, n_bytes);
}

void pull_progress_lose(uint64_t n_bytes)
{
    atomic_fetch_add(&lost, n_bytes);
}

void pull_progress_file(void)
{
    atomic_fetch_add(&n_files_done, 1);
}

/* Over the last five seconds or so; at first since the start. */
static void sample(double now)
{
    uint64_t bytes = atomic_load(&received);
    double elapsed = now - progress.started, dt = now - progress.sampled;
    if (dt < 0.05)
        return;
    if (elapsed < 5)
        progress.rate = (double)bytes / elapsed;
    else
        progress.rate += dt / (dt + 5) * ((double)(bytes - progress.at_sample) / dt - progress.rate);
    progress.sampled = now;
    progress.at_sample = bytes;
}

static void print_time(double seconds)
{
    long s = seconds < 1e7 ? (long)(seconds + 0.5) : 10000000;
    if (s >= 3600)
        fprintf(stderr, ", %ld h %02ld min left", s / 3600, s / 60 % 60);
    else if (s >= 60)
        fprintf(stderr, ", %ld min %02ld s left", s / 60, s % 60);
    else
        fprintf(stderr, ", %ld s left", s);
}

static void print_line(void)
{
    char a[32], b[32], c[32];
    uint64_t done = progress.done + atomic_load(&received) - atomic_load(&lost), total = progress.total > done ? progress.total : done;
    fprintf(stderr, "%s: %s of %s, %zu of %zu files, %s/s", progress.phase, pull_size_text(a, done), pull_size_text(b, total),
            atomic_load(&n_files_done), progress.n_files, pull_size_text(c, (uint64_t)progress.rate));
    if (progress.rate > 1 && total > done)
        print_time((double)(total - done) / progress.rate);
}

void pull_progress_show(void)
{
    if (progress.quiet || !progress.phase)
        return;
    double now = app_seconds();
    int is_terminal = isatty(STDERR_FILENO);
    sample(now);
    if (now - progress.shown < (is_terminal ? 0.2 : progress.n_lines ? 10 : 2))
        return;
    fputs(is_terminal ? "\r\033[K" : "", stderr);
    print_line();
    fputs(is_terminal ? "" : "\n", stderr);
    progress.line_open = is_terminal;
    progress.shown = now;
    progress.n_lines++;
}

static void clear_line(void)
{
    if (progress.line_open)
        fputs("\r\033[K", stderr);
    progress.line_open = 0;
}

void pull_progress_end(void)
{
    clear_line();
    progress.phase = NULL;
}

void pull_progress_quiet(void)
{
    progress.quiet = 1;
}

void pull_tell(const char *format, ...)
{
    va_list list;
    flockfile(stderr);
    clear_line();
    fputs("k3 pull: ", stderr);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputs("\n", stderr);
    funlockfile(stderr);
}
