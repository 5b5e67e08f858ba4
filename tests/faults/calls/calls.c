#include "faults/calls/calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Built with _FILE_OFFSET_BITS=64, as the product is: open stands for open64 and so on. */
#define NEXT(name, symbol)                                                                                                                 \
    static __typeof__(name) *next;                                                                                                         \
    if (!next)                                                                                                                             \
    *(void **)&next = next_of(symbol)

enum { MOST_FD = 4096 };

calls_state calls;
static unsigned char is_watched[MOST_FD];

void calls_reset(void)
{
    calls = (calls_state){0};
    memset(is_watched, 0, sizeof is_watched);
}

static void *next_of(const char *name)
{
    void *at = dlsym(RTLD_NEXT, name);
    if (!at) {
        fprintf(stderr, "calls: there is no %s\n", name);
        abort();
    }
    return at;
}

/* ---- files ------------------------------------------------------------------------------------------------------------- */

static int is_below(const char *path, const char *folder)
{
    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

/* The whole path of `path` in the folder `dir`. */
static const char *whole(char out[2 * PATH_MAX], int dir, const char *path)
{
    char link[64];
    if (*path == '/' || dir == AT_FDCWD)
        return path;
    snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    ssize_t n = readlink(link, out, PATH_MAX);
    snprintf(out + (n > 0 ? n : 0), PATH_MAX, "/%s", path);
    return out;
}

/* 1, and errno set, if it is to fail. */
static int is_refused(const char *path)
{
    if (!is_below(path, calls.refused))
        return 0;
    calls.n_refused++;
    errno = calls.refuse_errno;
    return 1;
}

static int fails(calls_kind kind)
{
    calls.n[kind]++;
    if (!calls.fail_at || calls.fail_kind != (int)kind || calls.n[kind] != calls.fail_at)
        return 0;
    errno = calls.fail_errno;
    return 1;
}

/* 1 if opening it for writing fails. */
static int may_not_open(const char *path)
{
    return is_refused(path) || (is_below(path, calls.watched) && fails(CALLS_OPEN));
}

static int watch(int fd, const char *path)
{
    if (fd >= 0 && fd < MOST_FD)
        is_watched[fd] = (unsigned char)is_below(path, calls.watched);
    return fd;
}

static int watches(int fd)
{
    return fd >= 0 && fd < MOST_FD && is_watched[fd];
}

static int is_machine(const char *path)
{
    return calls.machine && (!strcmp(path, "/proc/meminfo") || !strcmp(path, "/proc/self/cgroup") || is_below(path, "/sys/fs/cgroup"));
}

FILE *fopen(const char *path, const char *mode)
{
    NEXT(fopen, "fopen64");
    char other[PATH_MAX];
    int writes = *mode != 'r' || strchr(mode, '+');
    if (is_machine(path)) {
        snprintf(other, sizeof other, "%s%s", calls.machine, path);
        path = other;
    }
    if (writes && may_not_open(path))
        return NULL;
    FILE *file = next(path, mode);
    if (file && writes)
        watch(fileno(file), path);
    return file;
}

static int open_file(int dir, const char *path, int flags, mode_t mode)
{
    NEXT(openat, "openat64");
    char room[2 * PATH_MAX];
    int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
    const char *full = whole(room, dir, path);
    if (writes && may_not_open(full))
        return -1;
    int fd = next(dir, path, flags, mode);
    return writes ? watch(fd, full) : fd;
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_file(AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_file(dir, path, flags, mode);
}

int mkstemp(char *path)
{
    NEXT(mkstemp, "mkstemp64");
    return may_not_open(path) ? -1 : watch(next(path), path);
}

size_t fwrite(const void *from, size_t size, size_t n, FILE *file)
{
    NEXT(fwrite, "fwrite");
    if (watches(fileno(file)) && fails(CALLS_WRITE))
        return 0;
    size_t done = next(from, size, n, file);
    calls.written += watches(fileno(file)) ? done * size : 0;
    return done;
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at)
{
    NEXT(pwrite, "pwrite64");
    if (watches(fd) && fails(CALLS_WRITE))
        return -1;
    ssize_t done = next(fd, from, n, at);
    calls.written += watches(fd) && done > 0 ? (uint64_t)done : 0;
    return done;
}

ssize_t write(int fd, const void *from, size_t n)
{
    NEXT(write, "write");
    if (watches(fd) && fails(CALLS_WRITE))
        return -1;
    ssize_t done = next(fd, from, n);
    calls.written += watches(fd) && done > 0 ? (uint64_t)done : 0;
    return done;
}

int fflush(FILE *file)
{
    NEXT(fflush, "fflush");
    return file && watches(fileno(file)) && fails(CALLS_FLUSH) ? EOF : next(file);
}

int ftruncate(int fd, off_t bytes)
{
    NEXT(ftruncate, "ftruncate64");
    return watches(fd) && fails(CALLS_FLUSH) ? -1 : next(fd, bytes);
}

int fsync(int fd)
{
    NEXT(fsync, "fsync");
    return watches(fd) && fails(CALLS_SYNC) ? -1 : next(fd);
}

/* What is closed is no longer watched, and an error comes after the fact. */
static int closed(int fd, int result)
{
    int was_watched = watches(fd);
    watch(fd, "");
    return was_watched && fails(CALLS_CLOSE) ? -1 : result;
}

/* Sanitizers keep books of files that are open. */
extern int __interceptor_fclose(FILE *file) __attribute__((weak));

int fclose(FILE *file)
{
    NEXT(fclose, "fclose");
    int fd = fileno(file), result = __interceptor_fclose ? __interceptor_fclose(file) : next(file);
    return closed(fd, result);
}

int close(int fd)
{
    NEXT(close, "close");
    int result = next(fd);
    return closed(fd, result);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    char room[2 * PATH_MAX];
    NEXT(renameat, "renameat");
    const char *full = whole(room, to_dir, to);
    return is_refused(full) || (is_below(full, calls.watched) && fails(CALLS_RENAME)) ? -1 : next(from_dir, from, to_dir, to);
}

int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(mkdir, "mkdir");
    return is_refused(path) ? -1 : next(path, mode);
}

int unlink(const char *path)
{
    NEXT(unlink, "unlink");
    return is_refused(path) ? -1 : next(path);
}

int access(const char *path, int how)
{
    NEXT(access, "access");
    return (how & W_OK) && is_refused(path) ? -1 : next(path, how);
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

static int lock_pages(const void *at, size_t bytes, int flags)
{
    calls.n_locks++;
    if (calls.lock_errno && calls.locked + bytes > calls.lock_first) {
        errno = calls.lock_errno;
        return -1;
    }
    /* Past the sanitizers, which lock nothing. */
    if (syscall(flags ? SYS_mlock2 : SYS_mlock, at, bytes, flags))
        return -1;
    calls.locked += bytes;
    return 0;
}

int mlock(const void *at, size_t bytes)
{
    return lock_pages(at, bytes, 0);
}

int mlock2(const void *at, size_t bytes, unsigned flags)
{
    if (calls.no_onfault) {
        errno = ENOSYS;
        return -1;
    }
    return lock_pages(at, bytes, (int)flags);
}

/* Whether any of it is a mapped file. */
static int holds_file(const char *at, size_t bytes)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[600];
    unsigned long from, to, inode;
    int found = 0;
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &from, &to, &inode) == 3 && inode && from < (unsigned long)at + bytes &&
            to > (unsigned long)at)
            found = 1;
    if (maps)
        fclose(maps);
    return found;
}

int madvise(void *at, size_t bytes, int advice)
{
    NEXT(madvise, "madvise");
    if (advice == MADV_HUGEPAGE) {
        calls.n_hints++;
        calls.n_file_hints += holds_file(at, bytes);
    }
    return next(at, bytes, advice);
}
