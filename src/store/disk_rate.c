#include "store/disk_rate.h"

#include "base/os.h"
#include "io/io.h"

#include <stdio.h>
#include <stdlib.h>

enum { READ_BYTES = 4 << 20, MOST_READS = 64, IN_FLIGHT = 16 };

typedef struct meter {
    const k3_ckpt *ckpt;
    k3_io *io;
    int *files; /* by shard */
    char *memory;
    uint64_t all, piece; /* bytes of all shards, and of one read */
    int n_reads;
    uint64_t bytes; /* asked for */
} meter;

static k3_status open_files(meter *m, k3_error *err)
{
    int n = k3_ckpt_n_shards(m->ckpt);
    m->files = calloc((size_t)n, sizeof *m->files);
    if (!m->files)
        return k3_fail(err, K3_E_NOMEM, "disk rate: out of memory");
    K3_TRY(k3_io_open(&m->io, &(k3_io_config){.kind = K3_IO_AUTO}, err));
    for (int i = 0; i < n; i++) {
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

/* Read i of n lies at i/n of all shards, as if they followed one another, or before it where the shard ends. */
static k3_status submit(meter *m, int i, uint64_t buffer, k3_error *err)
{
    int shard = 0;
    uint64_t at = m->all / (uint64_t)m->n_reads * (uint64_t)i;
    for (; at >= k3_ckpt_shard_bytes(m->ckpt, shard); shard++)
        at -= k3_ckpt_shard_bytes(m->ckpt, shard);
    uint64_t end = k3_ckpt_shard_bytes(m->ckpt, shard), bytes = m->piece < end ? m->piece : end;
    k3_io_read read = {.file = m->files[shard],
                       .offset = at < end - bytes ? at : end - bytes,
                       .bytes = bytes,
                       .dst = m->memory + buffer * k3_io_room(m->piece),
                       .tag = buffer};
    m->bytes += bytes;
    return k3_io_submit(m->io, &read, 1, err);
}

static k3_status measure(meter *m, double *rate, k3_error *err)
{
    uint64_t start = k3_os_nanoseconds();
    int begun = 0;
    for (; begun < m->n_reads && begun < IN_FLIGHT; begun++)
        K3_TRY(submit(m, begun, (uint64_t)begun, err));
    for (int done = 0; done < m->n_reads; done++) {
        k3_io_done one;
        (void)k3_io_collect(m->io, &one, 1, 1);
        if (one.status != K3_OK)
            return k3_fail(err, one.status, "disk rate: %s", one.text);
        if (begun < m->n_reads)
            K3_TRY(submit(m, begun++, one.tag, err));
    }
    *rate = (double)m->bytes / ((double)(k3_os_nanoseconds() - start + 1) * 1e-9);
    return K3_OK;
}

k3_status k3_disk_rate(double *rate, char *notice, size_t notice_size, const k3_ckpt *ckpt, k3_error *err)
{
    meter m = {.ckpt = ckpt};
    k3_status status = open_files(&m, err);
    if (status == K3_OK)
        status = measure(&m, rate, err);
    if (status == K3_OK)
        snprintf(notice, notice_size, "%s", k3_io_notice(m.io));
    k3_io_close(m.io); /* before its memory goes: it waits for what is in flight */
    free(m.memory);
    free(m.files);
    return status;
}
