#include "io_faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#ifdef K3_HAVE_LIBURING
#include <liburing.h>
#endif

#define EXPORT __attribute__((visibility("default")))

enum { MAX_FD = 4096, MAX_EVENTS = 65536, MAX_FLYING = 512, WATCHED = 1, DIRECT = 2, OTHER = 4 };

enum {
    SHORT,
    EINTR_EACH,
    EAGAIN_EACH,
    EIO_AT,
    EIO_TIMES,
    BAD,
    BAD_TIMES,
    NO_DIRECT,
    NO_DIRECT_READS,
    CACHED,
    NO_URING,
    CUT,
    CUT_TO,
    HOLD,
    NO_ENTER,
    RATE,
    OTHER_RATE,
    FS,
    N_SETTINGS
};

static const char *const setting_names[N_SETTINGS] = {"short",     "eintr",     "eagain",          "eio",    "eio_times",  "bad",
                                                      "bad_times", "no_direct", "no_direct_reads", "cached", "no_uring",   "cut",
                                                      "cut_to",    "hold",      "no_enter",        "rate",   "other_rate", "fs"};

enum { READS, DIRECT_READS, BYTES, LONGEST, FAULTS, DROPPED, RINGS, N_COUNTERS };

static const char *const counter_names[N_COUNTERS] = {"reads", "direct", "bytes", "longest", "faults", "dropped", "rings"};

/* One read on its way. */
typedef struct flight {
    uint64_t key; /* io_uring's user data */
    int fd, is_used;
    void *to;
    uint64_t offset, bytes;
    uint64_t number;   /* of the read */
    uint64_t n_direct; /* of the direct read; 0: it is not one */
} flight;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static uint64_t wanted[N_SETTINGS], counts[N_COUNTERS];
static unsigned char descriptors[MAX_FD];
static uint64_t ahead; /* nanoseconds that the clock was put forward */
static char files[256], other[256], report[256];
static k3_io_event events[MAX_EVENTS];
static int n_events;
static flight flying[MAX_FLYING];

static void *next_of(const char *name)
{
    void *at = dlsym(RTLD_NEXT, name);
    if (!at) {
        fprintf(stderr, "I/O faults: there is no %s\n", name);
        abort();
    }
    return at;
}

/* ---- what a test asks for --------------------------------------------------------------------------------------------- */

static void take_setting(const char *name, const char *value)
{
    if (strcmp(name, "files") == 0)
        snprintf(files, sizeof files, "%s", value);
    else if (strcmp(name, "other") == 0)
        snprintf(other, sizeof other, "%s", value);
    else if (strcmp(name, "report") == 0)
        snprintf(report, sizeof report, "%s", value);
    else {
        int i = 0;
        while (i < N_SETTINGS && strcmp(setting_names[i], name) != 0)
            i++;
        if (i == N_SETTINGS) {
            fprintf(stderr, "I/O faults: unknown setting %s\n", name);
            abort();
        }
        wanted[i] = strtoull(value, NULL, 10);
    }
}

EXPORT void k3_io_faults(const char *text, int keep)
{
    char copy[1024], *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    pthread_mutex_lock(&lock);
    memset(wanted, 0, sizeof wanted);
    *files = *other = 0;
    if (!keep) {
        memset(counts, 0, sizeof counts);
        n_events = 0;
    }
    for (char *item; (item = strtok_r(rest, ",", &rest));) {
        char *value = strchr(item, '=');
        if (value)
            *value++ = 0;
        take_setting(item, value ? value : "");
    }
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&lock);
}

EXPORT uint64_t k3_io_faults_count(const char *name)
{
    for (int i = 0; i < N_COUNTERS; i++)
        if (strcmp(counter_names[i], name) == 0) {
            pthread_mutex_lock(&lock);
            uint64_t n = counts[i];
            pthread_mutex_unlock(&lock);
            return n;
        }
    return UINT64_MAX;
}

EXPORT int k3_io_faults_log(k3_io_event *out, int n)
{
    pthread_mutex_lock(&lock);
    int all = n_events;
    memcpy(out, events, sizeof *out * (size_t)(all < n ? all : n));
    pthread_mutex_unlock(&lock);
    return all;
}

__attribute__((constructor)) static void start(void)
{
    const char *text = getenv("K3_IO_FAULTS");
    if (text)
        k3_io_faults(text, 0);
}

__attribute__((destructor)) static void end(void)
{
    FILE *f = *report ? fopen(report, "w") : NULL;
    for (int i = 0; f && i < N_COUNTERS; i++)
        fprintf(f, "%s %llu\n", counter_names[i], (unsigned long long)counts[i]);
    if (f)
        fclose(f);
}

/* ---- a read starts and ends, the lock held ---------------------------------------------------------------------------- */

static int is_watched(int fd)
{
    return fd >= 0 && fd < MAX_FD && (descriptors[fd] & WATCHED);
}

static void note(int is_start, const flight *f)
{
    if (n_events < MAX_EVENTS)
        events[n_events++] = (k3_io_event){is_start, f->offset, f->bytes};
}

static void end_of(const flight *f)
{
    uint64_t rate = wanted[descriptors[f->fd] & OTHER ? OTHER_RATE : RATE];
    if (rate)
        ahead += (uint64_t)((double)f->bytes * 1e9 / (double)rate);
    note(0, f);
}

static void begin(flight *f)
{
    f->number = ++counts[READS];
    f->n_direct = descriptors[f->fd] & DIRECT ? ++counts[DIRECT_READS] : 0;
    counts[BYTES] += f->bytes;
    if (f->bytes > counts[LONGEST])
        counts[LONGEST] = f->bytes;
    note(1, f);
    if (wanted[CUT] == f->number) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", f->fd);
        counts[FAULTS] += truncate(path, (off_t)wanted[CUT_TO]) == 0;
    }
}

static int error_of(const flight *f)
{
    uint64_t n = f->number, times = wanted[EIO_TIMES] ? wanted[EIO_TIMES] : 1;
    if (f->n_direct && wanted[NO_DIRECT_READS] && f->n_direct >= wanted[NO_DIRECT_READS])
        return EINVAL;
    if (wanted[EIO_AT] && n >= wanted[EIO_AT] && n - wanted[EIO_AT] < times)
        return EIO;
    if (wanted[BAD] && wanted[BAD] >= f->offset && wanted[BAD] < f->offset + f->bytes) {
        if (!wanted[BAD_TIMES])
            return EIO;
        if (!--wanted[BAD_TIMES])
            wanted[BAD] = 0;
        return EIO;
    }
    if (wanted[EINTR_EACH] && n % wanted[EINTR_EACH] == 0)
        return EINTR;
    return wanted[EAGAIN_EACH] && n % wanted[EAGAIN_EACH] == 0 ? EAGAIN : 0;
}

/* What the reader is told instead of `result`, which is a count or -errno. */
static int64_t falsify(const flight *f, int64_t result)
{
    int error = error_of(f);
    int64_t told = error ? -error : result;
    if (result > 1 && !error && wanted[SHORT] > 1)
        told = result / (int64_t)wanted[SHORT] ? result / (int64_t)wanted[SHORT] : 1;
    if (told == result)
        return result;
    counts[FAULTS]++;
    if (result > 0)
        memset((char *)f->to + (told > 0 ? told : 0), 0xEE, (size_t)(result - (told > 0 ? told : 0)));
    return told;
}

/* ---- the system's functions ------------------------------------------------------------------------------------------- */

static ssize_t read_at(int fd, void *to, size_t bytes, off_t offset)
{
    static ssize_t (*next)(int fd, void *to, size_t bytes, off_t offset);
    pthread_mutex_lock(&lock);
    if (!next)
        *(void **)&next = next_of("pread64");
    if (!is_watched(fd)) {
        pthread_mutex_unlock(&lock);
        return next(fd, to, bytes, offset);
    }
    flight f = {.fd = fd, .to = to, .offset = (uint64_t)offset, .bytes = bytes};
    begin(&f);
    while (wanted[HOLD])
        pthread_cond_wait(&released, &lock);
    pthread_mutex_unlock(&lock);
    ssize_t n = next(fd, to, bytes, offset);
    int64_t result = n < 0 ? -errno : n;
    pthread_mutex_lock(&lock);
    result = falsify(&f, result);
    end_of(&f);
    pthread_mutex_unlock(&lock);
    if (result < 0)
        errno = (int)-result;
    return result < 0 ? -1 : (ssize_t)result;
}

EXPORT ssize_t pread(int fd, void *to, size_t bytes, off_t offset)
{
    return read_at(fd, to, bytes, offset);
}

EXPORT ssize_t pread64(int fd, void *to, size_t bytes, off_t offset)
{
    return read_at(fd, to, bytes, offset);
}

static int is_other(const char *path)
{
    return *other && strstr(path, other);
}

static int open_file(const char *path, int flags, mode_t mode)
{
    static int (*next)(const char *path, int flags, ...);
    pthread_mutex_lock(&lock);
    if (!next)
        *(void **)&next = next_of("open64");
    int is_ours = (flags & O_ACCMODE) == O_RDONLY && !(flags & O_DIRECTORY) && strstr(path, files), refused = 0;
    int is_direct = is_ours && (flags & O_DIRECT);
    if (is_direct && wanted[NO_DIRECT])
        refused = 1;
    if (is_direct && wanted[CACHED])
        flags &= ~O_DIRECT;
    counts[FAULTS] += (uint64_t)(is_direct && (wanted[NO_DIRECT] || wanted[CACHED]));
    pthread_mutex_unlock(&lock);
    if (refused) {
        errno = EINVAL;
        return -1;
    }
    int fd = next(path, flags, mode);
    pthread_mutex_lock(&lock);
    if (fd >= 0 && fd < MAX_FD)
        descriptors[fd] = (unsigned char)((is_ours ? WATCHED : 0) | (is_direct ? DIRECT : 0) | (is_ours && is_other(path) ? OTHER : 0));
    pthread_mutex_unlock(&lock);
    return fd;
}

static mode_t mode_of(int flags, va_list args)
{
    return flags & O_CREAT ? va_arg(args, mode_t) : 0;
}

EXPORT int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return open_file(path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return open_file(path, flags, mode);
}

static int advise(int fd, off_t offset, off_t bytes, int advice)
{
    static int (*next)(int fd, off_t offset, off_t bytes, int advice);
    pthread_mutex_lock(&lock);
    if (!next)
        *(void **)&next = next_of("posix_fadvise64");
    if (is_watched(fd) && advice == POSIX_FADV_DONTNEED)
        counts[DROPPED] += (uint64_t)bytes;
    pthread_mutex_unlock(&lock);
    return next(fd, offset, bytes, advice);
}

EXPORT int posix_fadvise(int fd, off_t offset, off_t bytes, int advice)
{
    return advise(fd, offset, bytes, advice);
}

EXPORT int posix_fadvise64(int fd, off_t offset, off_t bytes, int advice)
{
    return advise(fd, offset, bytes, advice);
}

/* The library is built for both names of each; with files of any size they are the same. */
static int stat_of(int fd, const char *path, struct stat *st)
{
    static int (*next_fd)(int fd, struct stat *st), (*next_path)(const char *path, struct stat *st);
    pthread_mutex_lock(&lock);
    if (!next_fd) {
        *(void **)&next_fd = next_of("fstat64");
        *(void **)&next_path = next_of("stat64");
    }
    int is_there = path ? is_other(path) : is_watched(fd) && (descriptors[fd] & OTHER);
    pthread_mutex_unlock(&lock);
    int result = path ? next_path(path, st) : next_fd(fd, st);
    if (!result && is_there)
        st->st_dev++;
    return result;
}

EXPORT int fstat(int fd, struct stat *st)
{
    return stat_of(fd, NULL, st);
}

EXPORT int fstat64(int fd, struct stat64 *st)
{
    return stat_of(fd, NULL, (struct stat *)st);
}

/* The thread sanitizer asks by older names, which no header declares any more. */
int __fxstat(int version, int fd, struct stat *st);
int __fxstat64(int version, int fd, struct stat64 *st);

EXPORT int __fxstat(int version, int fd, struct stat *st)
{
    (void)version;
    return stat_of(fd, NULL, st);
}

EXPORT int __fxstat64(int version, int fd, struct stat64 *st)
{
    (void)version;
    return stat_of(fd, NULL, (struct stat *)st);
}

EXPORT int stat(const char *path, struct stat *st)
{
    return stat_of(-1, path, st);
}

EXPORT int stat64(const char *path, struct stat64 *st)
{
    return stat_of(-1, path, (struct stat *)st);
}

EXPORT int fstatfs64(int fd, struct statfs64 *fs)
{
    static int (*next)(int fd, struct statfs64 *fs);
    pthread_mutex_lock(&lock);
    if (!next)
        *(void **)&next = next_of("fstatfs64");
    int64_t type = is_watched(fd) ? (int64_t)wanted[FS] : 0;
    pthread_mutex_unlock(&lock);
    int result = next(fd, fs);
    if (!result && type)
        fs->f_type = type;
    return result;
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*next)(clockid_t clock, struct timespec * now);
    pthread_mutex_lock(&lock);
    if (!next)
        *(void **)&next = next_of("clock_gettime");
    uint64_t more = clock == CLOCK_MONOTONIC ? ahead : 0;
    pthread_mutex_unlock(&lock);
    int result = next(clock, now);
    if (!result && more) {
        more += (uint64_t)now->tv_nsec;
        now->tv_sec += (time_t)(more / 1000000000u);
        now->tv_nsec = (long)(more % 1000000000u);
    }
    return result;
}

#ifdef K3_HAVE_LIBURING

EXPORT int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    static int (*next)(unsigned entries, struct io_uring *ring, unsigned flags);
    pthread_mutex_lock(&lock);
    if (!next)
        *(void **)&next = next_of("io_uring_queue_init");
    int refused = (int)wanted[NO_URING];
    counts[refused ? FAULTS : RINGS]++;
    pthread_mutex_unlock(&lock);
    return refused ? -refused : next(entries, ring, flags);
}

/* Entries that were filled since the last call, which are not yet the kernel's. */
EXPORT int io_uring_submit(struct io_uring *ring)
{
    static int (*next)(struct io_uring * ring);
    pthread_mutex_lock(&lock);
    if (!next)
        *(void **)&next = next_of("io_uring_submit");
    int refused = (int)wanted[NO_ENTER];
    if (refused) {
        counts[FAULTS]++;
        pthread_mutex_unlock(&lock);
        return -refused;
    }
    for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; i++) {
        const struct io_uring_sqe *sqe = &ring->sq.sqes[i & (ring->sq.ring_entries - 1)];
        if (!is_watched(sqe->fd) || (sqe->opcode != IORING_OP_READ && sqe->opcode != IORING_OP_READ_FIXED))
            continue;
        int slot = 0;
        while (slot < MAX_FLYING - 1 && flying[slot].is_used)
            slot++;
        flying[slot] = (flight){
            .key = sqe->user_data, .fd = sqe->fd, .is_used = 1, .to = (void *)(uintptr_t)sqe->addr, .offset = sqe->off, .bytes = sqe->len};
        begin(&flying[slot]);
    }
    pthread_mutex_unlock(&lock);
    return next(ring);
}

EXPORT unsigned io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned n)
{
    static unsigned (*next)(struct io_uring * ring, struct io_uring_cqe * *cqes, unsigned n);
    pthread_mutex_lock(&lock);
    if (!next)
        *(void **)&next = next_of("io_uring_peek_batch_cqe");
    unsigned got = wanted[HOLD] ? 0 : next(ring, cqes, n);
    for (unsigned i = 0; i < got; i++)
        for (int slot = 0; slot < MAX_FLYING; slot++)
            if (flying[slot].is_used && flying[slot].key == cqes[i]->user_data) {
                flying[slot].is_used = 0;
                cqes[i]->res = (int)falsify(&flying[slot], cqes[i]->res);
                end_of(&flying[slot]);
                break;
            }
    pthread_mutex_unlock(&lock);
    return got;
}

#endif
