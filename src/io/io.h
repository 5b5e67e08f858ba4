/* Large reads of files, many at once, at the disks' own speed. One thread submits and collects; the reads themselves run behind it: by
 * io_uring where the system has it and allows it, by reader threads elsewhere. Reads go past the page cache (O_DIRECT, F_NOCACHE) where the
 * file system really does so, else through it.
 *
 * Two classes: what is wanted now, and guesses. A guess is started only while nothing wanted is waiting or in flight, and can be taken
 * back as far as it has not been started. Readers that share drives count as one there. A long read is many requests of about 1 MiB, never
 * one above K3_IO_MAX_BYTES, and a guess makes way between them. A file that is written to while it is in use is an error. Short reads,
 * EINTR and EAGAIN are gone on from; EIO is tried again K3_IO_RETRIES times. */
#ifndef K3_IO_IO_H
#define K3_IO_IO_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct k3_io k3_io;

enum { K3_IO_ALIGN = 4096, K3_IO_RETRIES = 2, K3_IO_MAX_BYTES = 1 << 30 };

typedef enum k3_io_kind { K3_IO_AUTO, K3_IO_URING, K3_IO_THREADS } k3_io_kind;

/* What drives deliver while something that is wanted is read: counted over all readers that are given the same meter, which outlives them.
 * Drives are named by the device of their file system. Busy is the time in which at least one wanted read was in flight. */
typedef struct k3_io_meter k3_io_meter;
k3_status k3_io_meter_open(k3_io_meter **out, k3_error *err);
void k3_io_meter_close(k3_io_meter *meter);
void k3_io_meter_read(k3_io_meter *meter, uint64_t device, uint64_t *bytes, uint64_t *busy_ns); /* since it was opened */

typedef struct k3_io_config {
    k3_io_kind kind;    /* K3_IO_URING where it is forbidden is K3_E_UNSUPPORTED */
    int depth;          /* requests in flight at once for each drive; 0: chosen (docs/performance.md says by what) */
    int buffered;       /* never past the page cache */
    k3_io_meter *meter; /* or NULL */
    /* NULL, or a reader to share drives with: all of the above is its. What this one wants goes first: that one reads ahead. Each is used
     * by the same thread, and may be closed before the other. */
    k3_io *beside;
} k3_io_config;

/* One read. The bytes file[offset, offset + bytes) come to dst + lead for the lead (0 to K3_IO_ALIGN - 1) that submit finds: dst is aligned
 * to K3_IO_ALIGN and has k3_io_room(bytes) bytes, of which those before lead and after lead + bytes hold anything. */
typedef struct k3_io_read {
    int file;
    int is_guess;
    uint64_t offset, bytes;
    void *dst;
    uint64_t tag;  /* the caller's */
    uint64_t lead; /* out */
} k3_io_read;

typedef struct k3_io_done {
    uint64_t tag;
    k3_status status; /* K3_E_IO: the file ended, or the drive failed; `text` says which file, where, what was found and wanted */
    int cancelled;    /* a guess that was taken back: not all of it is there */
    char text[256];
} k3_io_done;

typedef struct k3_io_stat {
    uint64_t reads, bytes;           /* wanted, finished; bytes that came from the files, alignment included */
    uint64_t guesses, guess_bytes;   /* guessed, finished; bytes with those of what was taken back halfway */
    uint64_t busy_ns, guess_busy_ns; /* time in which at least one wanted read (only guesses) was in flight */
    uint64_t drive_ns;               /* time in which any read was in flight, those of readers beside it included */
    uint64_t retries;
} k3_io_stat;

k3_status k3_io_open(k3_io **out, const k3_io_config *config, k3_error *err);
/* Waits for what is in flight; what has not been started is not read. */
void k3_io_close(k3_io *io);

/* Opens a file; *file numbers it. Drives are told apart by the file system's device, and each has its own depth. A first small read finds
 * out whether direct reads work there; one line for the user if they do not is in k3_io_notice. */
k3_status k3_io_add_file(k3_io *io, int *file, const char *path, k3_error *err);
/* Pinned memory for dst of reads, registered with the kernel where that helps; optional, at most a few large stretches. */
void k3_io_add_memory(k3_io *io, void *at, uint64_t bytes);
/* "direct io_uring, depth 16" and the like, and what fell back; a line each, "" if nothing did. */
const char *k3_io_describe(k3_io *io);
const char *k3_io_notice(k3_io *io);

static inline uint64_t k3_io_room(uint64_t bytes)
{
    return (bytes + 2 * K3_IO_ALIGN - 1) / K3_IO_ALIGN * K3_IO_ALIGN + K3_IO_ALIGN;
}

/* Memory for n reads that are not collected yet, so that submitting them takes none. */
k3_status k3_io_reserve(k3_io *io, int n, k3_error *err);
/* Queues n reads in the order given (the caller sorts by place) and starts what the depth allows; never waits. reads[i].lead is filled. */
k3_status k3_io_submit(k3_io *io, k3_io_read *reads, int n, k3_error *err);
/* Starts what waits and collects what is finished, at most max. With `block` and something in flight or waiting it returns at least one. */
int k3_io_collect(k3_io *io, k3_io_done *done, int max, int block);
/* Guesses are read no further: those of which something was left to start are collected as cancelled. */
void k3_io_cancel_guesses(k3_io *io);
/* Guesses in flight, or waiting, with that tag become wanted. 0: no such read, or taken back; 1 too if it is finished and not collected. */
int k3_io_want(k3_io *io, uint64_t tag);
/* Reads not yet collected, wanted and guessed. */
int k3_io_pending(const k3_io *io, int *guesses);

void k3_io_stats(k3_io *io, k3_io_stat *out, int reset);

#endif
