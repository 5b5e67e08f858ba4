#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "options.h"
#include "pull.h"
#include "terminal.h"

enum { BLOCK = 1 << 20, WRITEBACK = 1 << 24, MAX_THREADS = 64 };

/* ---- paths --------------------------------------------------------------------------------------------------------- */

static int make_folders(const char *path)
{
    char *copy = strdup(path);
    int ok = copy != NULL;
    for (char *p = copy; ok && *p; p++) {
        size_t n = strcspn(p + 1, "/");
        char after = p[1 + n];
        p[1 + n] = 0;
        ok = mkdir(copy, 0777) == 0 || errno == EEXIST || errno == EISDIR || errno == EROFS;
        p[1 + n] = after;
        p += n;
    }
    free(copy);
    return ok;
}

int pull_folder_open(const char *path)
{
    int made = make_folders(path), fd = made ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd < 0) {
        pull_tell("%s: %s", path, strerror(errno));
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    if (errno == EWOULDBLOCK) {
        pull_tell("%s: another k3 pull is at work in this folder", path);
        close(fd);
        return -1;
    }
    pull_tell("%s: this file system has no locks (%s); make sure that no other k3 pull works here", path, strerror(errno));
    return fd;
}

/* Opens the folder that a name is in, through folders only, never through links. Missing ones are made if `make`. -1 and errno: failed.
 * *last is the name in there. */
static int open_parent(int folder, const char *name, int make, const char **last)
{
    int at = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    for (const char *slash; at >= 0 && (slash = strchr(name, '/')); name = slash + 1) {
        char part[256];
        snprintf(part, sizeof part, "%.*s", (int)(slash - name), name);
        if (make)
            mkdirat(at, part, 0777); /* what goes wrong shows up below */
        int below = openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), why = errno;
        close(at);
        at = below;
        errno = why;
    }
    *last = name;
    return at;
}

/* Tells what errno means for the path of a file. Returns -1. */
static int tell_path(const char *name)
{
    int why = errno;
    if (why == ENOTDIR || why == ELOOP)
        pull_tell("%s: a link or a file stands where a folder is wanted; nothing is written through links", name);
    else if (why == EISDIR || why == EINVAL)
        pull_tell("%s: a plain file wanted; remove what stands there", name);
    else
        pull_tell("%s: %s", name, strerror(why));
    return -1;
}

/* Opens a plain file. -1: there is none (errno ENOENT) or it cannot be read. */
static int open_plain(int folder, const char *name, int flags)
{
    const char *last;
    struct stat st;
    int at = open_parent(folder, name, 0, &last);
    if (at < 0)
        return -1;
    int fd = openat(at, last, flags | O_NONBLOCK | O_CLOEXEC, 0666), why = errno;
    close(at);
    if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
        close(fd);
        fd = -1;
        why = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    }
    errno = why;
    return fd;
}

uint64_t pull_folder_free_bytes(int folder)
{
    struct statvfs fs;
    return fstatvfs(folder, &fs) ? UINT64_MAX : (uint64_t)fs.f_bavail * fs.f_frsize;
}

int64_t pull_folder_size(int folder, const char *name)
{
    struct stat st = {0};
    int fd = open_plain(folder, name, O_RDONLY);
    if (fd < 0)
        return -1;
    int64_t size = fstat(fd, &st) ? -1 : (int64_t)st.st_size;
    close(fd);
    return size;
}

/* ---- checking ------------------------------------------------------------------------------------------------------ */

static EVP_MD_CTX *new_hash(void)
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    if (!hash || !EVP_DigestInit_ex(hash, EVP_sha256(), NULL)) {
        pull_tell("no SHA-256 from libcrypto");
        exit(APP_FAILED);
    }
    return hash;
}

/* Reads a file to its end, or to Ctrl-C. Returns the bytes read, or -1 with errno. */
static int64_t hash_file(EVP_MD_CTX *hash, int fd)
{
    char *block = app_alloc(BLOCK, 1);
    int64_t n_read = 0;
    ssize_t n = 0;
    while (!app_interrupted() && ((n = read(fd, block, BLOCK)) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0) {
            EVP_DigestUpdate(hash, block, (size_t)n);
            n_read += n;
            pull_progress_add((size_t)n);
        }
    free(block);
    return n < 0 ? -1 : n_read;
}

static int hash_is(EVP_MD_CTX *hash, const unsigned char want[PULL_SHA256], unsigned char got[PULL_SHA256])
{
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    int ok = copy && EVP_MD_CTX_copy_ex(copy, hash) && EVP_DigestFinal_ex(copy, got, NULL) && memcmp(got, want, PULL_SHA256) == 0;
    EVP_MD_CTX_free(copy);
    return ok;
}

/* Whether NAME, which may be a link, has the size and checksum that the server gives. Without either it is not known to be whole. */
static int check_whole(pull_file *f, int fd)
{
    unsigned char got[PULL_SHA256];
    struct stat st;
    if (fstat(fd, &st) || (f->size >= 0 && st.st_size != f->size) || (f->size < 0 && !f->has_sha256))
        return 0;
    if (!f->has_sha256)
        return 1;
    EVP_MD_CTX *hash = new_hash();
    int ok = hash_file(hash, fd) == st.st_size && hash_is(hash, f->sha256, got);
    EVP_MD_CTX_free(hash);
    if (ok)
        f->size = st.st_size;
    return ok;
}

/* Takes what there is of NAME.part into the hash; what cannot become the file counts as nothing. */
static void check_part(pull_file *f, int fd)
{
    unsigned char got[PULL_SHA256];
    struct stat st;
    if (fstat(fd, &st) || (f->size >= 0 && st.st_size > f->size))
        return;
    f->have = hash_file(f->hash, fd);
    f->began = (int64_t)st.st_mtime;
    if (f->have != st.st_size || (f->have == f->size && f->has_sha256 && !hash_is(f->hash, f->sha256, got))) {
        f->have = 0;
        EVP_DigestInit_ex(f->hash, EVP_sha256(), NULL);
    }
}

static int check_file(pull_file *f, int folder)
{
    int fd = open_plain(folder, f->name, O_RDONLY);
    if (fd < 0 && errno != ENOENT)
        return tell_path(f->name) == 0;
    if (fd >= 0 && check_whole(f, fd)) {
        f->state = PULL_WHOLE;
        pull_progress_file();
    }
    if (fd >= 0)
        close(fd);
    if (f->state == PULL_WHOLE)
        return 1;
    char *part = pull_text("%s.part", f->name);
    f->hash = new_hash();
    fd = open_plain(folder, part, O_RDONLY | O_NOFOLLOW);
    int ok = fd >= 0 || errno == ENOENT || tell_path(part) == 0;
    if (fd >= 0)
        check_part(f, fd);
    if (fd >= 0)
        close(fd);
    free(part);
    return ok;
}

typedef struct checker {
    pull_files *files;
    int folder;
    atomic_size_t next, n_ended;
    atomic_int failed;
} checker;

static void *check_some(void *argument)
{
    checker *c = argument;
    for (size_t i; !c->failed && !app_interrupted() && (i = atomic_fetch_add(&c->next, 1)) < c->files->n;)
        if (c->files->items[i].state == PULL_MISSING && !check_file(&c->files->items[i], c->folder))
            c->failed = 1;
    atomic_fetch_add(&c->n_ended, 1);
    return NULL;
}

/* Bytes that a check may have to read. */
static uint64_t bytes_there(const pull_files *files, int folder)
{
    uint64_t total = 0;
    for (size_t i = 0; i < files->n; i++) {
        int64_t size = pull_folder_size(folder, files->items[i].name);
        total += size > 0 && files->items[i].has_sha256 ? (uint64_t)size : 0;
    }
    return total;
}

int pull_folder_check(pull_files *files, int folder, long n_threads)
{
    checker c = {.files = files, .folder = folder};
    pthread_t threads[MAX_THREADS];
    long n_started = 0;
    n_threads = n_threads < MAX_THREADS ? n_threads : MAX_THREADS;
    pull_progress_start("checking what is there", 0, bytes_there(files, folder), 0, files->n);
    while (n_started < n_threads && pthread_create(&threads[n_started], NULL, check_some, &c) == 0)
        n_started++;
    if (n_started == 0)
        check_some(&c);
    while (atomic_load(&c.n_ended) < (size_t)n_started) {
        usleep(10000);
        pull_progress_show();
    }
    for (long i = 0; i < n_started; i++)
        pthread_join(threads[i], NULL);
    pull_progress_end();
    return app_interrupted() ? APP_INTERRUPTED : c.failed ? APP_FAILED : APP_OK;
}

/* ---- parts ---------------------------------------------------------------------------------------------------------- */

static int part_failed(const pull_file *f)
{
    int why = errno;
    pull_tell("%s.part: %s%s", f->name, strerror(why),
              why == ENOSPC || why == EDQUOT || why == EFBIG ? "; what came so far stays, and the same command goes on from there" : "");
    return 0;
}

int pull_part_open(pull_file *file, int folder)
{
    const char *last;
    struct stat st;
    int at = open_parent(folder, file->name, 1, &last);
    if (at < 0)
        return tell_path(file->name);
    char *part = pull_text("%s.part", last);
    int fd = openat(at, part, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    free(part);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || ftruncate(fd, file->have) || lseek(fd, file->have, SEEK_SET) < 0) {
        part_failed(file);
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    close(at);
    return fd;
}

int pull_part_write(pull_file *file, int fd, const char *bytes, size_t n)
{
    if (file->have == 0)
        file->began = (int64_t)time(NULL);
    while (n) {
        ssize_t n_written = write(fd, bytes, n);
        if (n_written < 0 && errno == EINTR)
            continue;
        if (n_written < 0)
            return part_failed(file);
        EVP_DigestUpdate(file->hash, bytes, (size_t)n_written);
        bytes += n_written;
        n -= (size_t)n_written;
#ifdef SYNC_FILE_RANGE_WRITE
        /* The disk starts early, so that the last fsync, for which everything waits, finds little to do. */
        int64_t from = file->have / WRITEBACK, to = (file->have + n_written) / WRITEBACK;
        if (to > from)
            sync_file_range(fd, from * WRITEBACK, (to - from) * WRITEBACK, SYNC_FILE_RANGE_WRITE);
#endif
        file->have += n_written;
    }
    return 1;
}

int pull_part_restart(pull_file *file, int fd)
{
    pull_progress_lose((uint64_t)file->have);
    file->have = 0;
    EVP_DigestInit_ex(file->hash, EVP_sha256(), NULL);
    return ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0 ? 1 : part_failed(file);
}

int pull_part_matches(const pull_file *file, char got[2 * PULL_SHA256 + 1])
{
    unsigned char digest[PULL_SHA256] = {0};
    int same = !file->has_sha256 || hash_is(file->hash, file->sha256, digest);
    for (int i = 0; i < PULL_SHA256; i++)
        snprintf(got + 2 * i, 3, "%02x", digest[i]);
    return same;
}

int pull_part_finish(pull_file *file, int fd, int folder)
{
    const char *last;
    int at = open_parent(folder, file->name, 0, &last);
    if (at < 0)
        return tell_path(file->name) == 0;
    char *part = pull_text("%s.part", last);
    int ok = (fsync(fd) == 0 && renameat(at, part, at, last) == 0 && fsync(at) == 0) || part_failed(file);
    free(part);
    close(at);
    if (ok)
        file->state = PULL_FETCHED;
    return ok;
}

int pull_part_remove(const pull_file *file, int folder)
{
    const char *last;
    int at = open_parent(folder, file->name, 0, &last);
    if (at < 0)
        return tell_path(file->name) == 0;
    char *part = pull_text("%s.part", last);
    int ok = unlinkat(at, part, 0) == 0 || part_failed(file);
    free(part);
    close(at);
    return ok;
}
