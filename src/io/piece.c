/* A piece of a read: what comes of one request to the system, and what is done next. */
#include "io/parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The end of a path says which file it is. */
enum { K3_IO_SHOWN = 80 };

static const char *shown(const k3_io_file *file)
{
    size_t n = strlen(file->path);
    return n > K3_IO_SHOWN ? file->path + n - K3_IO_SHOWN : file->path;
}

int k3_io_piece_fail(k3_io_piece *piece, int number)
{
    const k3_io_read *read = &piece->request->read;
    uint64_t start = piece->first < read->offset ? read->offset : piece->first, got = piece->at > start ? piece->at - start : 0, size;
    int n = snprintf(piece->text, sizeof piece->text, "%s: read at offset %llu: wanted %llu bytes, got %llu: ", shown(piece->file),
                     (unsigned long long)start, (unsigned long long)(piece->need - start), (unsigned long long)got);
    if (number)
        snprintf(piece->text + n, sizeof piece->text - (size_t)n, "%s", strerror(number));
    else
        snprintf(piece->text + n, sizeof piece->text - (size_t)n, "the file ends at %llu%s", (unsigned long long)piece->at,
                 k3_io_file_changed(piece->file, &size) ? " and has changed since it was opened" : "");
    piece->status = K3_E_IO;
    return 0;
}

int k3_io_piece_fd(k3_io_piece *piece)
{
    /* Direct reads start at multiples of K3_IO_ALIGN. What a short read left in between comes through the page cache. */
    if (piece->at % K3_IO_ALIGN == 0 && atomic_load_explicit(&piece->file->is_direct, memory_order_relaxed))
        return piece->file->direct;
    piece->is_cached = 1;
    return piece->file->buffered;
}

static int finish(k3_io_piece *piece)
{
    uint64_t size;
    if (piece->is_cached)
        k3_io_file_forget(piece->file, piece->first, piece->end - piece->first);
    if (k3_io_file_changed(piece->file, &size)) {
        snprintf(piece->text, sizeof piece->text, "%s: written to while it is in use: %llu bytes when it was opened, %llu now",
                 shown(piece->file), (unsigned long long)piece->file->size, (unsigned long long)size);
        piece->status = K3_E_IO;
    }
    return 0;
}

int k3_io_piece_take(k3_io_piece *piece, int64_t result)
{
    if (result > 0) {
        piece->at += (uint64_t)result;
        piece->to += result;
        piece->n_stalls = 0;
        return piece->at < piece->need || finish(piece);
    }
    switch (-result) {
    case EINTR:
    case EAGAIN:
        return ++piece->n_stalls <= K3_IO_STALLS || k3_io_piece_fail(piece, (int)-result);
    case EINVAL:
    case EOPNOTSUPP:
        /* Accepted when the file was opened, refused now. */
        if (piece->is_cached)
            return k3_io_piece_fail(piece, (int)-result);
        atomic_store_explicit(&piece->file->is_direct, 0, memory_order_relaxed);
        return 1;
    case EIO:
        if (piece->n_errors++ == K3_IO_RETRIES)
            return k3_io_piece_fail(piece, EIO);
        pthread_mutex_lock(&piece->file->drive->core->lock);
        piece->request->io->stat.retries++;
        pthread_mutex_unlock(&piece->file->drive->core->lock);
        return 1;
    default:
        return k3_io_piece_fail(piece, (int)-result);
    }
}
