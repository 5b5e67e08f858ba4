#include "npy.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buffer.h"

/* Magic, version 1.0, length of what follows, a Python dictionary padded so that data begins at a multiple of 64 bytes. */
enum { HEADER_BYTES = 128, PREFIX_BYTES = 10 };

struct app_npy {
    FILE *file;
    const char *path;
    size_t n_rows, n_columns, n_written;
    int failed;
};

static void fail(app_npy *npy)
{
    if (!npy->failed)
        fprintf(stderr, "k3: %s: cannot write: %s\n", npy->path, strerror(errno));
    npy->failed = 1;
}

app_npy *app_npy_open(const char *path, size_t n_rows, size_t n_columns)
{
    FILE *file = fopen(path, "wb");
    if (!file) {
        fprintf(stderr, "k3: %s: cannot write: %s\n", path, strerror(errno));
        return NULL;
    }
    app_npy *npy = app_alloc(1, sizeof *npy);
    *npy = (app_npy){.file = file, .path = path, .n_rows = n_rows, .n_columns = n_columns};
    static const uint16_t one = 1;
    char header[HEADER_BYTES] = "\x93NUMPY\x01", order = *(const char *)&one ? '<' : '>';
    header[8] = (char)(HEADER_BYTES - PREFIX_BYTES);
    int n = snprintf(header + PREFIX_BYTES, HEADER_BYTES - PREFIX_BYTES, "{'descr': '%cf4', 'fortran_order': False, 'shape': (%zu, %zu), }",
                     order, n_rows, n_columns);
    memset(header + PREFIX_BYTES + n, ' ', HEADER_BYTES - PREFIX_BYTES - (size_t)n);
    header[HEADER_BYTES - 1] = '\n';
    if (fwrite(header, sizeof header, 1, file) != 1)
        fail(npy);
    return npy;
}

int app_npy_write(app_npy *npy, const float *rows, size_t n_rows)
{
    if (!npy->failed && fwrite(rows, npy->n_columns * sizeof *rows, n_rows, npy->file) != n_rows)
        fail(npy);
    npy->n_written += n_rows;
    return !npy->failed;
}

int app_npy_close(app_npy *npy)
{
    struct stat status;
    int is_file = fstat(fileno(npy->file), &status) == 0 && S_ISREG(status.st_mode);
    if (fclose(npy->file) != 0)
        fail(npy);
    int ok = !npy->failed && npy->n_written == npy->n_rows;
    if (!ok && is_file)
        unlink(npy->path);
    free(npy);
    return ok;
}
