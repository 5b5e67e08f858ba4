#include "store/drives.h"

#include "base/os.h"
#include "io/io.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 4 << 20, MOST_READS = 64, IN_FLIGHT = 16 };
static const uint64_t most_ns = 2000000000;
/* What even an SSD on the oldest connection in use exceeds; those of today give 3 to 14 GB/s. */
static const double slow_rate = 4e8;

/* ---- who they are ------------------------------------------------------------------------------------------------------- */

static void find_folder(char *folder, size_t size, const char *path)
{
    char *real = realpath(path, NULL);
    const char *from = real ? real : path, *slash = strrchr(from, '/');
    size_t n = slash ? (size_t)(slash - from) : 0, over = n >= size ? n - size + 1 : 0;
    snprintf(folder, size, "%.*s", n ? (int)(n - over) : 1, n ? from + over : slash ? "/" : ".");
    free(real);
}

void k3_drives_find(k3_drives *out, const k3_ckpt *ckpt)
{
    *out = (k3_drives){.n = k3_ckpt_n_drives(ckpt)};
    for (int i = 0; i < k3_ckpt_n_shards(ckpt); i++) {
        k3_drive *drive = &out->list[k3_ckpt_shard_drive(ckpt, i)];
        if (!drive->n_shards++) {
            k3_file_system_of(&drive->fs, k3_ckpt_shard_fd(ckpt, i));
            find_folder(drive->folder, sizeof drive->folder, k3_ckpt_shard_path(ckpt, i));
        }
        drive->bytes += k3_ckpt_shard_bytes(ckpt, i);
    }
}

int k3_drives_warning(char *text, size_t size, const k3_drives *drives, int i)
{
    const k3_drive *drive = &drives->list[i];
    int is_slow = drives->is_measured && drives->rates[i] < slow_rate;
    char shared[96] = "", slow[96] = "";
    if (drive->fs.is_shared)
        snprintf(shared, sizeof shared, "%s is a network or shared mount", drive->fs.name);
    if (is_slow)
        snprintf(slow, sizeof slow, "%.3f GB/s is far below what a local SSD gives, %.1f and more", drives->rates[i] * 1e-9,
                 slow_rate * 1e-9);
    snprintf(text, size, "%s%s%s%s", shared, *shared && *slow ? ", and " : "", slow, *shared ? "; a copy on a local drive is faster" : "");
    return *text != 0;
}

/* ---- how fast ----------------------------------------------------------------------------------------------------------- */

typedef struct meter {
    const k3_ckpt *ckpt;
    int drive;
    k3_io *io;
    int *files; /* by shard; -1: on another drive */
    char *memory;
    uint64_t all, piece; /* bytes of the drive's shards, and of one read */
    int n_reads;
} meter;

static k3_status open_files(meter *m, k3_error *err)
{
    int n = k3_ckpt_n_shards(m->ckpt);
    m->files = calloc((size_t)n, sizeof *m->files);
    if (!m->files)
        return k3_fail(err, K3_E_NOMEM, "disk rate: out of memory");
    K3_TRY(k3_io_open(&m->io, &(k3_io_config){.kind = K3_IO_AUTO}, err));
    for (int i = 0; i < n; i++) {
        m->files[i] = -1;
        if (k3_ckpt_shard_drive(m->ckpt, i) != m->drive)
            continue;
        K3_TRY(k3_io_add_file(m->io, &m->files[i], k3_ckpt_shard_path(m->ckpt, i), err));
        m->all += k3_ckpt_shard_bytes(m->ckpt, i);
    }
    m->n_reads = m->all / MOST_READS >= READ_BYTES ? MOST_READS : IN_FLIGHT;
    m->piece = m->all / (uint64_t)m->n_reads < READ_BYTES ? m->all / (uint64_t)m->n_reads : READ_BYTES;
    size_t bytes = (size_t)k3_io_room(m->piece) * IN_FLIGHT;
    m->memory = aligned_alloc(K3_IO_ALIGN, bytes);
    if (!m->memory)
        return k3_fail(err, K3_E_NOMEM, "disk rate: no memory for %zu bytes", bytes);
    k3_io_add_memory(m->io, m->memory, bytes);
    return K3_OK;
}

/* Read i of n lies at i/n of all shards of the drive, as if they followed one another, or before it where the shard ends. */
static k3_status submit(meter *m, int i, uint64_t buffer, k3_error *err)
{
    int shard = 0;
    uint64_t at = m->all / (uint64_t)m->n_reads * (uint64_t)i;
    for (; m->files[shard] < 0 || at >= k3_ckpt_shard_bytes(m->ckpt, shard); shard++)
        at -= m->files[shard] < 0 ? 0 : k3_ckpt_shard_bytes(m->ckpt, shard);
    uint64_t end = k3_ckpt_shard_bytes(m->ckpt, shard), bytes = m->piece < end ? m->piece : end;
    k3_io_read read = {.file = m->files[shard],
                       .offset = at < end - bytes ? at : end - bytes,
                       .bytes = bytes,
                       .dst = m->memory + buffer * k3_io_room(m->piece),
                       .tag = buffer};
    return k3_io_submit(m->io, &read, 1, err);
}

static k3_status measure(meter *m, double *rate, k3_error *err)
{
    uint64_t start = k3_os_nanoseconds();
    int begun = 0;
    for (; begun < m->n_reads && begun < IN_FLIGHT; begun++)
        K3_TRY(submit(m, begun, (uint64_t)begun, err));
    for (int done = 0; done < begun; done++) {
        k3_io_done one;
        k3_io_stat stat;
        (void)k3_io_collect(m->io, &one, 1, 1);
        if (one.status != K3_OK)
            return k3_fail(err, one.status, "disk rate: %s", one.text);
        uint64_t took = k3_os_nanoseconds() - start;
        if (begun < m->n_reads && took < most_ns)
            K3_TRY(submit(m, begun++, one.tag, err));
        k3_io_stats(m->io, &stat, 0);
        *rate = (double)stat.bytes / ((double)(took + 1) * 1e-9);
    }
    return K3_OK;
}

k3_status k3_drives_measure(k3_drives *drives, const k3_ckpt *ckpt, k3_error *err)
{
    for (int d = 0; d < drives->n; d++) {
        meter m = {.ckpt = ckpt, .drive = d};
        k3_status status = open_files(&m, err);
        if (status == K3_OK)
            status = measure(&m, &drives->rates[d], err);
        if (status == K3_OK) {
            const char *notice = k3_io_notice(m.io);
            snprintf(drives->list[d].notice, sizeof drives->list[d].notice, "%.*s", (int)strcspn(notice, "\n"), notice);
        }
        k3_io_close(m.io); /* before its memory goes: it waits for what is in flight */
        free(m.memory);
        free(m.files);
        K3_TRY(status);
    }
    drives->is_measured = 1;
    return K3_OK;
}

void k3_drives_state(k3_drives *drives, double rate)
{
    for (int d = 0; d < drives->n; d++)
        drives->rates[d] = rate;
    drives->is_measured = 0;
}
