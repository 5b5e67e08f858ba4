/* Reader threads: each takes a piece, reads it, and takes the next. */
#include "io/parts.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static void *read_pieces(void *arg)
{
    k3_io_drive *drive = arg;
    k3_io_core *core = drive->core;
    k3_io_piece piece;
    pthread_mutex_lock(&core->lock);
    while (!core->stop) {
        if (!k3_io_next_piece(drive, &piece)) {
            pthread_cond_wait(&drive->work, &core->lock);
            continue;
        }
        pthread_mutex_unlock(&core->lock);
        ssize_t n;
        do
            n = pread(k3_io_piece_fd(&piece), piece.to, piece.end - piece.at, (off_t)piece.at);
        while (k3_io_piece_take(&piece, n < 0 ? -errno : n));
        pthread_mutex_lock(&core->lock);
        k3_io_finish_piece(&piece);
    }
    pthread_mutex_unlock(&core->lock);
    return NULL;
}

k3_status k3_io_threads_start(k3_io_drive *drive, k3_error *err)
{
    int n = drive->core->depth;
    drive->readers = calloc((size_t)n, sizeof *drive->readers);
    if (!drive->readers)
        return k3_fail(err, K3_E_NOMEM, "no memory for %d reader threads", n);
    while (drive->n_readers < n && !pthread_create(&drive->readers[drive->n_readers], NULL, read_pieces, drive))
        drive->n_readers++;
    /* Fewer threads read more slowly, but they read. */
    return drive->n_readers ? K3_OK : k3_fail(err, K3_E_NOMEM, "no reader thread could be started");
}

void k3_io_threads_stop(k3_io_drive *drive)
{
    for (int i = 0; i < drive->n_readers; i++)
        pthread_join(drive->readers[i], NULL);
    free(drive->readers);
}
