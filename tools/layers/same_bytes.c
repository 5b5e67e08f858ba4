/* Preloaded into a program that reads model shards: a file F beside which F.data exists keeps its first bytes, which are a safetensors
 * header, and has the bytes of F.data after them. Both are of one length, so offsets agree. Only what a reader of shards calls is here:
 * open, pread, mmap of the whole file, close. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_FDS = 4096 };

/* By descriptor: that of the bytes plus 1, and where they begin. */
static struct {
    int data;
    off_t start;
} files[MAX_FDS];

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int opened(int fd, const char *path)
{
    char data[PATH_MAX];
    uint64_t header;
    size_t n = strlen(path);
    if (fd < 0 || fd >= MAX_FDS || n < 12 || strcmp(path + n - 12, ".safetensors") != 0)
        return fd;
    snprintf(data, sizeof data, "%s.data", path);
    int other = REAL(open64)(data, O_RDONLY | O_CLOEXEC);
    if (other < 0)
        return fd;
    if (REAL(pread64)(fd, &header, sizeof header, 0) == sizeof header) {
        files[fd].start = (off_t)(header + sizeof header);
        files[fd].data = other + 1;
    }
    return fd;
}

int open64(const char *path, int flags, ...)
{
    __builtin_va_list list;
    __builtin_va_start(list, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? __builtin_va_arg(list, int) : 0;
    __builtin_va_end(list);
    return opened(REAL(open64)(path, flags, mode), path);
}

int __open64_2(const char *path, int flags);
int __open64_2(const char *path, int flags)
{
    return open64(path, flags);
}

/* A read that begins in the header ends with it; readers go on from there. */
ssize_t pread64(int fd, void *to, size_t n, off64_t at)
{
    if (fd < 0 || fd >= MAX_FDS || !files[fd].data)
        return REAL(pread64)(fd, to, n, at);
    if (at >= files[fd].start)
        return REAL(pread64)(files[fd].data - 1, to, n, at);
    size_t left = (size_t)(files[fd].start - at);
    return REAL(pread64)(fd, to, n < left ? n : left, at);
}

ssize_t __pread64_chk(int fd, void *to, size_t n, off64_t at, size_t room);
ssize_t __pread64_chk(int fd, void *to, size_t n, off64_t at, size_t room)
{
    return pread64(fd, to, n < room ? n : room, at);
}

void *mmap64(void *at, size_t n, int protection, int flags, int fd, off64_t offset)
{
    int is_shard = fd >= 0 && fd < MAX_FDS && files[fd].data;
    return REAL(mmap64)(at, n, protection, flags, is_shard ? files[fd].data - 1 : fd, offset);
}

int close(int fd)
{
    if (fd >= 0 && fd < MAX_FDS && files[fd].data) {
        REAL(close)(files[fd].data - 1);
        files[fd].data = 0;
    }
    return REAL(close)(fd);
}
