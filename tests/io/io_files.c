#include "io/io_files.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

void io_fill(void *to, uint64_t offset, uint64_t bytes, unsigned seed)
{
    unsigned char *at = to;
    for (uint64_t i = 0; i < bytes;) {
        uint64_t x = ((offset + i) >> 3) * 0x9e3779b97f4a7c15u + seed;
        x ^= x >> 29;
        for (unsigned byte = (offset + i) & 7; byte < 8 && i < bytes; byte++)
            at[i++] = (unsigned char)(x >> (8 * byte));
    }
}

void io_make_file(char path[256], uint64_t bytes, unsigned seed)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, 200, "%s/k3-io-XXXXXX", folder ? folder : "/tmp");
    assert_non_null(mkdtemp(path));
    strcat(path, "/file");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    enum { BLOCK = 1 << 16 };
    unsigned char *block = malloc(BLOCK);
    assert_non_null(block);
    for (uint64_t at = 0; at < bytes; at += BLOCK) {
        size_t n = bytes - at < BLOCK ? (size_t)(bytes - at) : BLOCK;
        io_fill(block, at, n, seed);
        assert_int_equal(fwrite(block, 1, n, f), n);
    }
    assert_int_equal(fflush(f), 0);
    assert_int_equal(fsync(fileno(f)), 0);
    assert_int_equal(fclose(f), 0);
    free(block);
}

void io_remove_file(const char *path)
{
    char folder[256];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

k3_io *io_open(k3_io_kind kind, int depth, int buffered)
{
    k3_io *io;
    k3_error err = {0};
    k3_io_config config = {.kind = kind, .depth = depth, .buffered = buffered};
    if (k3_io_open(&io, &config, &err) != K3_OK)
        fail_msg("%s", err.text);
    return io;
}

int io_add(k3_io *io, const char *path)
{
    int file;
    k3_error err = {0};
    if (k3_io_add_file(io, &file, path, &err) != K3_OK)
        fail_msg("%s", err.text);
    return file;
}

void *io_memory(uint64_t bytes)
{
    void *at = NULL;
    assert_int_equal(posix_memalign(&at, K3_IO_ALIGN, k3_io_room(bytes)), 0);
    return at;
}

void io_check(const k3_io_read *read, unsigned seed)
{
    const unsigned char *at = (const unsigned char *)read->dst + read->lead;
    assert_int_equal(read->lead, read->offset % K3_IO_ALIGN);
    unsigned char *want = malloc(read->bytes);
    assert_non_null(want);
    io_fill(want, read->offset, read->bytes, seed);
    if (memcmp(at, want, read->bytes)) {
        uint64_t i = 0;
        while (at[i] == want[i])
            i++;
        fail_msg("byte %llu of %llu at offset %llu is %d, wanted %d", (unsigned long long)i, (unsigned long long)read->bytes,
                 (unsigned long long)read->offset, at[i], want[i]);
    }
    free(want);
}

k3_io_done io_read_one(k3_io *io, k3_io_read *read)
{
    k3_io_done done;
    memset(&done, 0, sizeof done);
    assert_int_equal(k3_io_submit(io, read, 1, NULL), K3_OK);
    assert_int_equal(k3_io_collect(io, &done, 1, 1), 1);
    assert_int_equal(done.tag, read->tag);
    return done;
}

static int count_entries(const char *folder)
{
    DIR *dir = opendir(folder);
    int n = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

int io_n_descriptors(void)
{
    return count_entries("/proc/self/fd");
}

int io_n_threads(void)
{
    return count_entries("/proc/self/task");
}

int io_has_uring(void)
{
    k3_io *io;
    k3_io_config config = {.kind = K3_IO_URING};
    k3_status status = k3_io_open(&io, &config, NULL);
    assert_true(status == K3_OK || status == K3_E_UNSUPPORTED);
    k3_io_close(io);
    return status == K3_OK;
}
