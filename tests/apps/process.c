#include "process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#ifdef __APPLE__
#define K3_CHANGED st_mtimespec
#else
#define K3_CHANGED st_mtim
#endif

enum { MAX_ARGUMENTS = 48, WAIT_SECONDS = 60 };

static void enter(const char *const *arguments, const char *folder, const char *home)
{
    char binary[4096];
    if (!realpath(K3_BINARY, binary) || (folder && chdir(folder) != 0))
        _exit(126);
    if (home) {
        setenv("HOME", home, 1);
        setenv("TMPDIR", home, 1);
    }
    const char *argv[MAX_ARGUMENTS + 2] = {binary};
    for (int i = 0; i < MAX_ARGUMENTS && arguments[i]; i++)
        argv[i + 1] = arguments[i];
    execv(binary, (char *const *)(uintptr_t)argv);
    _exit(127);
}

static int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int unlinked_file(const char *text)
{
    char path[] = P_tmpdir "/k3-process-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    size_t n = text ? strlen(text) : 0;
    assert_int_equal(write(fd, text ? text : "", n), (ssize_t)n);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static char *whole(int fd, size_t *n)
{
    struct stat status;
    assert_int_equal(fstat(fd, &status), 0);
    *n = (size_t)status.st_size;
    char *text = calloc(*n + 1, 1);
    assert_non_null(text);
    assert_int_equal(pread(fd, text, *n, 0), (ssize_t)*n);
    close(fd);
    return text;
}

void process_free(process_result *result)
{
    free(result->out);
    free(result->err);
    *result = (process_result){0};
}

process_result process_run(const process_place *place, ...)
{
    static const process_place nowhere;
    const char *arguments[MAX_ARGUMENTS] = {NULL};
    va_list list;
    va_start(list, place);
    for (int i = 0; i < MAX_ARGUMENTS - 1 && (arguments[i] = va_arg(list, const char *)); i++)
        ;
    va_end(list);
    place = place ? place : &nowhere;
    int in = unlinked_file(place->input), out = unlinked_file(NULL), err = unlinked_file(NULL), broken[2];
    assert_int_equal(pipe(broken), 0);
    close(broken[0]);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int target = place->output ? open(place->output, O_WRONLY) : place->reader_leaves ? broken[1] : out;
        if (target < 0 || dup2(in, 0) < 0 || dup2(target, 1) < 0 || dup2(err, 2) < 0)
            _exit(125);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        if (place->close_output)
            close(1);
        enter(arguments, place->folder, place->home);
    }
    close(broken[1]);
    close(in);
    process_result result = {.status = wait_for(pid)};
    size_t n_err;
    result.out = whole(out, &result.n_out);
    result.err = whole(err, &n_err);
    return result;
}

/* ---- a terminal ---------------------------------------------------------------------------------------------------- */

process_terminal *terminal_run(const char *const *arguments)
{
    process_terminal *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->fd = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(t->fd >= 0 && grantpt(t->fd) == 0 && unlockpt(t->fd) == 0);
    const char *name = ptsname(t->fd);
    assert_non_null(name);
    t->pid = fork();
    assert_true(t->pid >= 0);
    if (t->pid == 0) {
        setsid();
        int fd = open(name, O_RDWR);
        if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) < 0 || dup2(fd, 0) < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
            _exit(125);
        for (int i = 3; i < 64; i++)
            close(i);
        setenv("TERM", "xterm", 1);
        enter(arguments, NULL, NULL);
    }
    return t;
}

void terminal_type(process_terminal *t, const char *text)
{
    assert_int_equal(write(t->fd, text, strlen(text)), (ssize_t)strlen(text));
}

/* Returns 0 when the other side is gone. */
static int read_more(process_terminal *t, const char *waiting_for)
{
    char block[4096];
    struct pollfd poll_for = {.fd = t->fd, .events = POLLIN};
    int ready = poll(&poll_for, 1, WAIT_SECONDS * 1000);
    if (ready <= 0)
        kill(t->pid, SIGKILL);
    if (ready <= 0)
        fail_msg("nothing came for %d s while waiting for \"%s\"; seen: %s", WAIT_SECONDS, waiting_for, t->seen ? t->seen : "");
    ssize_t n = read(t->fd, block, sizeof block);
    if (n <= 0)
        return 0;
    t->seen = realloc(t->seen, t->n_seen + (size_t)n + 1);
    assert_non_null(t->seen);
    memcpy(t->seen + t->n_seen, block, (size_t)n);
    t->n_seen += (size_t)n;
    t->seen[t->n_seen] = 0;
    return 1;
}

void terminal_wait(process_terminal *t, const char *text)
{
    char *found = NULL;
    while (!t->seen || !(found = strstr(t->seen + t->at, text)))
        if (!read_more(t, text))
            fail_msg("k3 ended while \"%s\" was waited for; seen: %s", text, t->seen ? t->seen : "");
    t->at = (size_t)(found - t->seen) + strlen(text);
}

void terminal_wait_bytes(process_terminal *t, size_t n)
{
    for (size_t start = t->n_seen; t->n_seen < start + n;)
        if (!read_more(t, "more text"))
            fail_msg("k3 ended while more text was waited for; seen: %s", t->seen ? t->seen : "");
    t->at = t->n_seen;
}

int terminal_is_sane(const process_terminal *t)
{
    struct termios now;
    assert_int_equal(tcgetattr(t->fd, &now), 0);
    return (now.c_lflag & (ICANON | ECHO | ISIG)) == (ICANON | ECHO | ISIG) && (now.c_oflag & OPOST) && (now.c_iflag & ICRNL);
}

int terminal_end(process_terminal *t, char **seen)
{
    while (read_more(t, "the end"))
        ;
    int status = wait_for(t->pid);
    if (seen)
        *seen = t->seen;
    else
        free(t->seen);
    close(t->fd);
    free(t);
    return status;
}

/* ---- folders --------------------------------------------------------------------------------------------------------- */

static void add_listing(char **text, size_t *n, const char *folder)
{
    struct dirent **entries = NULL;
    int n_entries = scandir(folder, &entries, NULL, alphasort);
    assert_true(n_entries >= 0);
    for (int i = 0; i < n_entries; i++) {
        const char *name = entries[i]->d_name;
        char path[1200], line[1400];
        struct stat status;
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (strcmp(name, "..") != 0 && lstat(path, &status) == 0) {
            int n_line = snprintf(line, sizeof line, "%s %lld %o %lld.%09ld\n", path, (long long)status.st_size, (unsigned)status.st_mode,
                                  (long long)status.K3_CHANGED.tv_sec, (long)status.K3_CHANGED.tv_nsec);
            *text = realloc(*text, *n + (size_t)n_line + 1);
            assert_non_null(*text);
            memcpy(*text + *n, line, (size_t)n_line + 1);
            *n += (size_t)n_line;
            if (S_ISDIR(status.st_mode) && strcmp(name, ".") != 0)
                add_listing(text, n, path);
        }
        free(entries[i]);
    }
    free(entries);
}

char *folder_listing(const char *folder)
{
    char *text = NULL;
    size_t n = 0;
    add_listing(&text, &n, folder);
    return text;
}
