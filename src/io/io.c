/* Opening, files and drives, figures. */
#include "io/io.h"

#include "base/os.h"
#include "io/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(K3_IO_PIECE + K3_IO_ALIGN <= K3_IO_MAX_BYTES, "one request to the system");

static k3_io_core *open_core(const k3_io_config *config, k3_status *status, k3_error *err)
{
    k3_io_core *core = calloc(1, sizeof *core);
    if (!core) {
        *status = k3_fail(err, K3_E_NOMEM, "no memory for a reader of files");
        return NULL;
    }
    pthread_mutex_init(&core->lock, NULL);
    k3_io_list_init(&core->flying);
    core->depth = config->depth ? config->depth : K3_IO_DEPTH;
    core->is_buffered = config->buffered;
    core->meter = config->meter;
    k3_error why = {0};
    *status = config->kind == K3_IO_THREADS ? K3_OK : k3_io_ring_open(&core->ring, core, &why);
    if (*status != K3_OK && config->kind == K3_IO_URING) {
        pthread_mutex_destroy(&core->lock);
        free(core);
        (void)k3_fail(err, *status, "%s", why.text);
        return NULL;
    }
#ifdef __linux__ /* elsewhere nobody misses it */
    if (*status != K3_OK)
        snprintf(core->refused, K3_IO_TEXT, "%s; files are read by threads\n", why.text);
#endif
    *status = K3_OK;
    return core;
}

k3_status k3_io_open(k3_io **out, const k3_io_config *config, k3_error *err)
{
    *out = NULL;
    if ((int)config->kind < K3_IO_AUTO || config->kind > K3_IO_THREADS)
        return k3_fail(err, K3_E_INVALID, "kind %d of reading files", (int)config->kind);
    if (config->depth < 0 || config->depth > K3_IO_MAX_DEPTH)
        return k3_fail(err, K3_E_INVALID, "%d reads in flight, wanted 0 to %d", config->depth, K3_IO_MAX_DEPTH);
    k3_io *io = calloc(1, sizeof *io);
    if (!io)
        return k3_fail(err, K3_E_NOMEM, "no memory for a reader of files");
    k3_status status = K3_OK;
    io->core = config->beside ? config->beside->core : open_core(config, &status, err);
    if (!io->core) {
        free(io);
        return status;
    }
    io->is_beside = config->beside != NULL;
    io->core->n_readers++;
    pthread_mutex_lock(&io->core->lock); /* the other readers may be at work */
    io->busy_before = io->core->busy_ns;
    pthread_mutex_unlock(&io->core->lock);
    pthread_cond_init(&io->finished, NULL);
    k3_io_list_init(&io->done);
    k3_io_list_init(&io->spare);
    *out = io;
    return K3_OK;
}

static void close_core(k3_io_core *core)
{
    pthread_mutex_lock(&core->lock);
    core->stop = 1;
    k3_io_wake(core);
    pthread_mutex_unlock(&core->lock);
    if (core->ring)
        k3_io_ring_close(core->ring);
    for (k3_io_drive *drive = core->drives, *next; drive; drive = next) {
        next = drive->next;
        k3_io_threads_stop(drive);
        pthread_cond_destroy(&drive->work);
        free(drive);
    }
    pthread_mutex_destroy(&core->lock);
    free(core);
}

void k3_io_close(k3_io *io)
{
    if (!io)
        return;
    k3_io_leave(io);
    if (io->core->ring)
        k3_io_ring_drop_memory(io->core->ring, io);
    if (!--io->core->n_readers)
        close_core(io->core);
    for (int i = 0; i < io->n_files; i++)
        k3_io_file_close(io->files[i]);
    free(io->files);
    k3_io_list_free(&io->done);
    k3_io_list_free(&io->spare);
    pthread_cond_destroy(&io->finished);
    free(io);
}

/* ---- files ------------------------------------------------------------------------------------------------------------ */

static k3_status drive_of(k3_io_drive **out, k3_io_core *core, dev_t device, k3_error *err)
{
    for (*out = core->drives; *out; *out = (*out)->next)
        if ((*out)->device == device)
            return K3_OK;
    k3_io_drive *drive = calloc(1, sizeof *drive);
    if (!drive)
        return k3_fail(err, K3_E_NOMEM, "no memory for a drive");
    drive->device = device;
    drive->core = core;
    drive->count = core->meter ? k3_io_meter_count(core->meter, (uint64_t)device) : NULL;
    for (int queue = 0; queue < K3_IO_QUEUES; queue++)
        k3_io_list_init(&drive->queue[queue]);
    pthread_cond_init(&drive->work, NULL);
    if (!core->ring) {
        k3_status status = k3_io_threads_start(drive, err);
        if (status != K3_OK) {
            pthread_cond_destroy(&drive->work);
            free(drive->readers);
            free(drive);
            return status;
        }
    }
    pthread_mutex_lock(&core->lock);
    drive->next = core->drives;
    core->drives = drive;
    pthread_mutex_unlock(&core->lock);
    *out = drive;
    return K3_OK;
}

k3_status k3_io_add_file(k3_io *io, int *file, const char *path, k3_error *err)
{
    k3_io_file *opened;
    dev_t device;
    *file = -1;
    k3_io_file **files = realloc(io->files, sizeof *files * (size_t)(io->n_files + 1));
    if (!files)
        return k3_fail(err, K3_E_NOMEM, "%s: no memory to open it", path);
    io->files = files;
    K3_TRY(k3_io_file_open(&opened, &device, path, io->core->is_buffered, err));
    k3_status status = drive_of(&opened->drive, io->core, device, err);
    if (status != K3_OK) {
        k3_io_file_close(opened);
        return status;
    }
    *file = io->n_files;
    io->files[io->n_files++] = opened;
    return K3_OK;
}

void k3_io_add_memory(k3_io *io, void *at, uint64_t bytes)
{
    if (io->core->ring)
        k3_io_ring_add_memory(io->core->ring, io, at, bytes);
}

/* ---- figures ---------------------------------------------------------------------------------------------------------- */

/* Files of a drive that are read past the page cache, and all of them. */
static int count_files(const k3_io *io, const k3_io_drive *drive, int *n_direct)
{
    int n = 0;
    *n_direct = 0;
    for (int i = 0; i < io->n_files; i++)
        if (io->files[i]->drive == drive) {
            n++;
            *n_direct += atomic_load(&io->files[i]->is_direct);
        }
    return n;
}

const char *k3_io_describe(k3_io *io)
{
    size_t at = 0;
    *io->described = 0;
    for (const k3_io_drive *drive = io->core->drives; drive && at < K3_IO_TEXT; drive = drive->next) {
        int n_direct, n = count_files(io, drive, &n_direct);
        if (!n)
            continue;
        at += (size_t)snprintf(io->described + at, K3_IO_TEXT - at, "%s %s, depth %d, %d files\n",
                               n_direct == n ? "direct"
                               : n_direct    ? "partly direct"
                                             : "buffered",
                               io->core->ring ? "io_uring" : "threads", io->core->ring ? io->core->depth : drive->n_readers, n);
    }
    return io->described;
}

const char *k3_io_notice(k3_io *io)
{
    size_t at = (size_t)snprintf(io->notice, K3_IO_TEXT, "%s", io->core->refused);
    for (const k3_io_drive *drive = io->core->drives; drive && at < K3_IO_TEXT && !io->core->is_buffered; drive = drive->next) {
        int n_direct, n = count_files(io, drive, &n_direct), i = 0;
        if (n_direct == n)
            continue;
        while (io->files[i]->drive != drive || atomic_load(&io->files[i]->is_direct))
            i++;
        at +=
            (size_t)snprintf(io->notice + at, K3_IO_TEXT - at, "%s: this file system does not read past the page cache (%d of %d files)\n",
                             io->files[i]->path, n - n_direct, n);
    }
    return io->notice;
}

void k3_io_stats(k3_io *io, k3_io_stat *out, int reset)
{
    pthread_mutex_lock(&io->core->lock);
    k3_io_tick(io);
    *out = io->stat;
    out->drive_ns = io->core->busy_ns - io->busy_before;
    if (reset) {
        memset(&io->stat, 0, sizeof io->stat);
        io->busy_before = io->core->busy_ns;
    }
    pthread_mutex_unlock(&io->core->lock);
}
