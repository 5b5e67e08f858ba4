/* A file, opened twice: past the page cache and through it. */
#include "io/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __APPLE__
#define K3_CHANGED st_mtimespec
#else
#define K3_CHANGED st_mtim
#endif

static int open_direct(const char *path)
{
#if defined O_DIRECT
    return open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
#elif defined F_NOCACHE
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fcntl(fd, F_NOCACHE, 1)) {
        close(fd);
        return -1;
    }
    return fd;
#else
    (void)path;
    return -1;
#endif
}

/* 1: the page cache has these K3_IO_ALIGN bytes; 0: it has not, or nobody can tell. */
static int is_cached(const k3_io_file *file, uint64_t at)
{
    int cached = 0;
#ifdef __linux__
    void *page = mmap(NULL, K3_IO_ALIGN, PROT_READ, MAP_SHARED, file->buffered, (off_t)at);
    unsigned char bits = 0;
    if (page == MAP_FAILED)
        return 0;
    cached = !mincore(page, K3_IO_ALIGN, &bits) && (bits & 1);
    munmap(page, K3_IO_ALIGN);
#else
    (void)file;
    (void)at;
#endif
    return cached;
}

/* A place that is not in the page cache. Where all of the file may be there, as after it was copied, a stretch in its middle is given up.
 */
static uint64_t uncached_place(const k3_io_file *file)
{
    uint64_t n_pages = file->size / K3_IO_ALIGN, middle = n_pages / 2 * K3_IO_ALIGN, around = middle < K3_IO_PIECE ? middle : K3_IO_PIECE;
    for (uint64_t i = 1; i < 8 && n_pages; i++)
        if (!is_cached(file, n_pages * i / 8 * K3_IO_ALIGN))
            return n_pages * i / 8 * K3_IO_ALIGN;
    k3_io_file_forget(file, middle - around, around + K3_IO_PIECE);
    return middle;
}

/* A file system may refuse direct reads only when they are made, or take them and read through the page cache all the same. */
static int direct_works(const k3_io_file *file)
{
    void *to = NULL;
    if (file->direct < 0 || posix_memalign(&to, K3_IO_ALIGN, K3_IO_ALIGN))
        return 0;
    uint64_t at = uncached_place(file);
    int was_cached = is_cached(file, at);
    ssize_t n = -1;
    for (int i = 0; i <= K3_IO_STALLS && n < 0 && (!i || errno == EINTR); i++)
        n = pread(file->direct, to, K3_IO_ALIGN, (off_t)at);
    int refused = n < 0 && (errno == EINVAL || errno == EOPNOTSUPP);
    free(to);
    /* Another failure is for the read that needs the bytes to report. */
    return !refused && (was_cached || !is_cached(file, at));
}

k3_status k3_io_file_open(k3_io_file **out, dev_t *device, const char *path, int buffered, k3_error *err)
{
    struct stat st, other;
    k3_io_file *file = calloc(1, sizeof *file);
    *out = NULL;
    if (!file)
        return k3_fail(err, K3_E_NOMEM, "%s: no memory to open it", path);
    file->direct = -1;
    file->buffered = open(path, O_RDONLY | O_CLOEXEC);
    int number = errno;
    file->path = strdup(path);
    k3_status status = K3_OK;
    if (!file->path)
        status = k3_fail(err, K3_E_NOMEM, "%s: no memory to open it", path);
    else if (file->buffered < 0)
        status = k3_fail(err, number == ENOENT || number == ENOTDIR ? K3_E_NOT_FOUND : K3_E_IO, "%s: cannot be opened: %s", path,
                         strerror(number));
    else if (fstat(file->buffered, &st))
        status = k3_fail(err, K3_E_IO, "%s: its size cannot be found: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = k3_fail(err, K3_E_INVALID, "%s: not a regular file", path);
    if (status != K3_OK) {
        k3_io_file_close(file);
        return status;
    }
    file->size = (uint64_t)st.st_size;
    file->changed = st.K3_CHANGED;
    *device = st.st_dev;
    if (!buffered)
        file->direct = open_direct(path);
    /* The path may lead elsewhere by now. */
    if (file->direct >= 0 && (fstat(file->direct, &other) || other.st_dev != st.st_dev || other.st_ino != st.st_ino)) {
        k3_io_file_close(file);
        return k3_fail(err, K3_E_IO, "%s: replaced while it was being opened", path);
    }
    atomic_init(&file->is_direct, direct_works(file));
#ifdef POSIX_FADV_RANDOM
    (void)posix_fadvise(file->buffered, 0, 0, POSIX_FADV_RANDOM);
#endif
    *out = file;
    return K3_OK;
}

void k3_io_file_close(k3_io_file *file)
{
    if (file->direct >= 0)
        close(file->direct);
    if (file->buffered >= 0)
        close(file->buffered);
    free(file->path);
    free(file);
}

int k3_io_file_changed(const k3_io_file *file, uint64_t *size)
{
    struct stat st;
    *size = file->size;
    if (fstat(file->buffered, &st))
        return 0;
    *size = (uint64_t)st.st_size;
    return *size != file->size || st.K3_CHANGED.tv_sec != file->changed.tv_sec || st.K3_CHANGED.tv_nsec != file->changed.tv_nsec;
}

void k3_io_file_forget(const k3_io_file *file, uint64_t at, uint64_t bytes)
{
#ifdef POSIX_FADV_DONTNEED
    (void)posix_fadvise(file->buffered, (off_t)at, (off_t)bytes, POSIX_FADV_DONTNEED);
#else
    (void)file;
    (void)at;
    (void)bytes;
#endif
}
