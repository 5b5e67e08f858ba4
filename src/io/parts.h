/* What the files of this folder share. A read is cut into pieces, so that a drive's queue is deep even when few reads are wanted. Pieces
 * are started by whoever runs them: reader threads take one each, the thread of the ring takes what its drives allow. Both go on by
 * themselves, so that drives stay busy while the caller computes. */
#ifndef K3_IO_PARTS_H
#define K3_IO_PARTS_H

#include "io/io.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <time.h>

enum {
    K3_IO_PIECE = 1 << 20,     /* bytes, about */
    K3_IO_DEPTH = 16,          /* pieces in flight for each drive */
    K3_IO_GUESS_DEPTH = 4,     /* so that what is wanted next waits for few */
    K3_IO_MAX_DEPTH = 128,     /* for each drive */
    K3_IO_MAX_IN_FLIGHT = 256, /* of all drives, by io_uring */
    K3_IO_STALLS = 1000,       /* EINTR and EAGAIN one after another, without a byte between them */
    K3_IO_TEXT = 4096          /* memory of text for k3_io_describe and k3_io_notice */
};

typedef struct k3_io_drive k3_io_drive;
typedef struct k3_io_core k3_io_core;
typedef struct k3_io_count k3_io_count;

typedef struct k3_io_file {
    char *path;
    int direct, buffered; /* descriptors; direct is -1 where the system has no such thing */
    atomic_int is_direct; /* cleared by the first read that is refused */
    uint64_t size;
    struct timespec changed;
    k3_io_drive *drive;
} k3_io_file;

/* A read from submit to collect. Guarded by the lock, as are the lists. */
typedef struct k3_io_request {
    struct k3_io_request *prev, *next;
    k3_io *io; /* whose it is */
    k3_io_read read;
    k3_io_file *file;
    uint64_t next_at, end; /* bytes of the file that no piece has yet */
    uint64_t piece_bytes;
    uint64_t got; /* bytes that came */
    int in_flight, is_started, is_finished;
    k3_io_done done;
} k3_io_request;

typedef struct k3_io_list {
    k3_io_request head; /* a ring: first and last are head.next and head.prev */
} k3_io_list;

/* Reads with pieces to start, in this order: wanted by a reader beside another, wanted by one that is not, guesses. */
enum { K3_IO_FIRST, K3_IO_SECOND, K3_IO_GUESSES, K3_IO_QUEUES };

struct k3_io_drive {
    k3_io_drive *next;
    dev_t device;
    k3_io_core *core;
    k3_io_count *count; /* of the meter; NULL: nobody counts */
    k3_io_list queue[K3_IO_QUEUES];
    int in_flight; /* pieces */
    pthread_t *readers;
    int n_readers;
    pthread_cond_t work;
};

/* One request to the system at a time: bytes [at, end) of the file to `to`. */
typedef struct k3_io_piece {
    k3_io_request *request;
    k3_io_file *file;
    uint64_t first, at, end;
    uint64_t need; /* the caller wants the bytes before this one; what follows is alignment */
    unsigned char *to;
    k3_io_count *count; /* that was told of its begin, or NULL */
    int is_cached;      /* some of it came through the page cache */
    int n_errors, n_stalls;
    k3_status status;
    char text[sizeof((k3_io_done *)0)->text];
} k3_io_piece;

typedef struct k3_io_ring k3_io_ring;

/* What readers share. */
struct k3_io_core {
    pthread_mutex_t lock;
    int n_readers, depth, is_buffered, stop;
    k3_io_meter *meter;       /* or NULL */
    char refused[K3_IO_TEXT]; /* why io_uring is not used, "" if nothing is to be said */
    k3_io_ring *ring;         /* NULL: reader threads */
    k3_io_drive *drives;
    k3_io_list flying;        /* all pieces started */
    int n_wanted;             /* reads that are not finished, of all readers */
    int n_pieces;             /* in flight */
    uint64_t ticked, busy_ns; /* when n_pieces last changed; time in which it was not 0 */
};

struct k3_io {
    k3_io_core *core;
    int is_beside; /* another: its wanted reads go first */
    pthread_cond_t finished;
    k3_io_file **files;
    int n_files;
    k3_io_list done, spare; /* to be collected; to be used again */
    int n_open[2];          /* reads that are not finished: wanted, guesses */
    int n_pieces[2];        /* in flight, of either class */
    uint64_t ticked;        /* when they last changed */
    uint64_t busy_before;   /* of the drives, when figures were last reset */
    k3_io_stat stat;
    char described[K3_IO_TEXT], notice[K3_IO_TEXT];
};

/* ---- queue.c: the lock held ---- */
void k3_io_list_init(k3_io_list *list);
void k3_io_list_free(k3_io_list *list);
void k3_io_tick(k3_io *io);
/* 0: nothing may start on that drive now. */
int k3_io_next_piece(k3_io_drive *drive, k3_io_piece *piece);
void k3_io_finish_piece(k3_io_piece *piece);
/* Whoever runs pieces looks for some. */
void k3_io_wake(k3_io_core *core);
/* Gives up what the reader has not started, and waits for the rest. */
void k3_io_leave(k3_io *io);

/* ---- meter.c ---- */
k3_io_count *k3_io_meter_count(k3_io_meter *meter, uint64_t device); /* NULL: out of memory */
void k3_io_count_begin(k3_io_count *count);
void k3_io_count_end(k3_io_count *count, uint64_t bytes);

/* ---- piece.c: without the lock ---- */
/* Where the rest of a piece is read from now. */
int k3_io_piece_fd(k3_io_piece *piece);
/* Takes what that gave, a count or -errno. 1: there is a rest to read; 0: done with, well or not. */
int k3_io_piece_take(k3_io_piece *piece, int64_t result);
/* Fails with an errno, or for want of bytes with 0. Returns 0. */
int k3_io_piece_fail(k3_io_piece *piece, int number);

/* ---- file.c ---- */
k3_status k3_io_file_open(k3_io_file **out, dev_t *device, const char *path, int buffered, k3_error *err);
void k3_io_file_close(k3_io_file *file);
/* Not what was opened any more. */
int k3_io_file_changed(const k3_io_file *file, uint64_t *size);
/* What was read lately does not stay in the page cache. */
void k3_io_file_forget(const k3_io_file *file, uint64_t at, uint64_t bytes);

/* ---- threads.c ---- */
k3_status k3_io_threads_start(k3_io_drive *drive, k3_error *err);
void k3_io_threads_stop(k3_io_drive *drive);

/* ---- uring.c ---- */
/* K3_E_UNSUPPORTED, and why in err, where there is no io_uring. */
k3_status k3_io_ring_open(k3_io_ring **out, k3_io_core *core, k3_error *err);
void k3_io_ring_close(k3_io_ring *ring);
void k3_io_ring_wake(k3_io_ring *ring);
/* Memory of a reader, to which none of its reads goes after the second. */
void k3_io_ring_add_memory(k3_io_ring *ring, const k3_io *io, void *at, uint64_t bytes);
void k3_io_ring_drop_memory(k3_io_ring *ring, const k3_io *io);

#endif
