/* io_uring: one ring for all drives and one thread that fills and empties it. */
#include "io/parts.h"

#ifdef K3_HAVE_LIBURING

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Memory is registered in stretches that the kernel takes, at most 1 GiB each. */
enum { K3_IO_STRETCHES = 256, K3_IO_BATCH = 64 };

struct k3_io_ring {
    struct io_uring ring;
    k3_io_core *core;
    pthread_t thread;
    int has_thread, wake; /* an eventfd */
    k3_io_piece *pieces;  /* [K3_IO_MAX_IN_FLIGHT] */
    k3_io_piece **spare;
    int n_spare;
    struct iovec stretches[K3_IO_STRETCHES];
    const k3_io *owners[K3_IO_STRETCHES]; /* NULL: that one is free */
    int max_stretches;
    int refused; /* errno: the kernel takes nothing any more */
};

/* The registered stretch that a piece goes to, or -1. The caller's thread may add stretches meanwhile: the lock is held. */
static int stretch_of(const k3_io_ring *ring, const k3_io_piece *piece)
{
    uintptr_t at = (uintptr_t)piece->to, end = at + (piece->end - piece->at);
    for (int i = 0; i < ring->max_stretches; i++) {
        uintptr_t first = (uintptr_t)ring->stretches[i].iov_base;
        if (ring->owners[i] && at >= first && end <= first + ring->stretches[i].iov_len)
            return i;
    }
    return -1;
}

/* There is room in the ring for every piece. */
static void queue(k3_io_ring *ring, k3_io_piece *piece, int stretch)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->ring);
    unsigned bytes = (unsigned)(piece->end - piece->at);
    if (stretch >= 0)
        io_uring_prep_read_fixed(sqe, k3_io_piece_fd(piece), piece->to, bytes, piece->at, stretch);
    else
        io_uring_prep_read(sqe, k3_io_piece_fd(piece), piece->to, bytes, piece->at);
    /* Through the page cache the kernel would read page after page; its workers read stretches. */
    if (piece->is_cached)
        io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
    io_uring_sqe_set_data(sqe, piece);
}

/* The lock is held. */
static void give_up(k3_io_ring *ring, k3_io_piece *piece)
{
    (void)k3_io_piece_fail(piece, ring->refused);
    k3_io_finish_piece(piece);
    ring->spare[ring->n_spare++] = piece;
}

/* Starts what the drives allow. */
static void start_pieces(k3_io_ring *ring)
{
    for (k3_io_drive *drive = ring->core->drives; drive; drive = drive->next)
        while (ring->n_spare && k3_io_next_piece(drive, ring->spare[ring->n_spare - 1])) {
            k3_io_piece *piece = ring->spare[--ring->n_spare];
            if (ring->refused)
                give_up(ring, piece);
            else
                queue(ring, piece, stretch_of(ring, piece));
        }
}

/* Hands to the kernel what is queued. What it does not take for now is offered again; once it refuses for another reason, that fails, and
 * so does all that follows: nothing is offered again to a kernel that could read to memory which has another use by then. */
static void submit(k3_io_ring *ring)
{
    int taken = ring->refused ? 0 : io_uring_submit(&ring->ring);
    if (taken >= 0 || taken == -EAGAIN || taken == -EBUSY || taken == -EINTR)
        return;
    const struct io_uring_sq *sq = &ring->ring.sq;
    ring->refused = -taken;
    pthread_mutex_lock(&ring->core->lock);
    for (unsigned i = sq->sqe_tail - io_uring_sq_ready(&ring->ring); i != sq->sqe_tail; i++)
        give_up(ring, (k3_io_piece *)(uintptr_t)sq->sqes[i & (sq->ring_entries - 1)].user_data);
    pthread_mutex_unlock(&ring->core->lock);
    k3_io_ring_wake(ring); /* what still waits fails as well */
}

/* Takes what is finished; the number of completions. Rests are queued again. */
static int take_results(k3_io_ring *ring)
{
    struct io_uring_cqe *cqes[K3_IO_BATCH];
    unsigned n = io_uring_peek_batch_cqe(&ring->ring, cqes, K3_IO_BATCH);
    for (unsigned i = 0; i < n; i++) {
        k3_io_piece *piece = io_uring_cqe_get_data(cqes[i]);
        int64_t result = cqes[i]->res;
        io_uring_cqe_seen(&ring->ring, cqes[i]);
        int has_rest = k3_io_piece_take(piece, result);
        if (has_rest && !ring->refused) {
            queue(ring, piece, -1);
            continue;
        }
        if (has_rest)
            (void)k3_io_piece_fail(piece, ring->refused);
        pthread_mutex_lock(&ring->core->lock);
        k3_io_finish_piece(piece);
        pthread_mutex_unlock(&ring->core->lock);
        ring->spare[ring->n_spare++] = piece;
    }
    return (int)n;
}

static void *run(void *arg)
{
    k3_io_ring *ring = arg;
    for (int stop = 0; !stop || ring->n_spare < K3_IO_MAX_IN_FLIGHT;) {
        pthread_mutex_lock(&ring->core->lock);
        stop = ring->core->stop;
        start_pieces(ring);
        pthread_mutex_unlock(&ring->core->lock);
        submit(ring);
        if (take_results(ring) || (stop && ring->n_spare == K3_IO_MAX_IN_FLIGHT))
            continue;
        struct pollfd wait[2] = {{.fd = ring->ring.ring_fd, .events = POLLIN}, {.fd = ring->wake, .events = POLLIN}};
        eventfd_t count;
        /* What the kernel did not take for want of memory is offered again. */
        if (poll(wait, 2, !ring->refused && io_uring_sq_ready(&ring->ring) ? 1 : -1) > 0 && (wait[1].revents & POLLIN))
            (void)eventfd_read(ring->wake, &count);
    }
    return NULL;
}

static int reads_are_known(struct io_uring *ring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    int known = probe && io_uring_opcode_supported(probe, IORING_OP_READ) && io_uring_opcode_supported(probe, IORING_OP_READ_FIXED);
    io_uring_free_probe(probe);
    return known;
}

/* A ring that may be made, but not entered, is of no use: an operation that does nothing tells. 0, or an errno. */
static int try_ring(struct io_uring *ring)
{
    struct io_uring_cqe *cqe;
    io_uring_prep_nop(io_uring_get_sqe(ring));
    int taken = io_uring_submit(ring), number = taken < 0 ? -taken : taken ? -io_uring_wait_cqe(ring, &cqe) : EAGAIN;
    if (!number) {
        number = -cqe->res;
        io_uring_cqe_seen(ring, cqe);
    }
    return number;
}

k3_status k3_io_ring_open(k3_io_ring **out, k3_io_core *core, k3_error *err)
{
    *out = NULL;
    k3_io_ring *ring = calloc(1, sizeof *ring);
    if (!ring)
        return k3_fail(err, K3_E_NOMEM, "no memory for io_uring");
    ring->core = core;
    int number = -io_uring_queue_init(K3_IO_MAX_IN_FLIGHT, &ring->ring, 0);
    if (!number && (number = try_ring(&ring->ring)))
        io_uring_queue_exit(&ring->ring);
    if (number) {
        free(ring);
        return k3_fail(err, K3_E_UNSUPPORTED, "io_uring is refused here: %s", strerror(number));
    }
    ring->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ring->pieces = calloc(K3_IO_MAX_IN_FLIGHT, sizeof *ring->pieces);
    ring->spare = calloc(K3_IO_MAX_IN_FLIGHT, sizeof(k3_io_piece *));
    for (int i = 0; ring->pieces && ring->spare && i < K3_IO_MAX_IN_FLIGHT; i++)
        ring->spare[ring->n_spare++] = &ring->pieces[i];
    k3_status status = K3_OK;
    if (!reads_are_known(&ring->ring))
        status = k3_fail(err, K3_E_UNSUPPORTED, "io_uring of this kernel is too old");
    else if (ring->wake < 0 || !ring->n_spare || pthread_create(&ring->thread, NULL, run, ring))
        status = k3_fail(err, K3_E_NOMEM, "no memory, descriptor or thread for io_uring");
    else
        ring->has_thread = 1;
    if (status != K3_OK) {
        k3_io_ring_close(ring);
        return status;
    }
    if (!io_uring_register_buffers_sparse(&ring->ring, K3_IO_STRETCHES))
        ring->max_stretches = K3_IO_STRETCHES;
    *out = ring;
    return K3_OK;
}

void k3_io_ring_close(k3_io_ring *ring)
{
    if (ring->has_thread)
        pthread_join(ring->thread, NULL);
    io_uring_queue_exit(&ring->ring);
    if (ring->wake >= 0)
        close(ring->wake);
    free(ring->pieces);
    free(ring->spare);
    free(ring);
}

void k3_io_ring_wake(k3_io_ring *ring)
{
    (void)eventfd_write(ring->wake, 1);
}

/* An empty stretch takes the place's memory back. */
static int set_stretch(k3_io_ring *ring, int place, struct iovec stretch)
{
    __u64 tag = 0;
    return io_uring_register_buffers_update_tag(&ring->ring, (unsigned)place, &stretch, &tag, 1) == 1;
}

void k3_io_ring_add_memory(k3_io_ring *ring, const k3_io *io, void *at, uint64_t bytes)
{
    char *from = at;
    for (int place = 0; bytes && place < ring->max_stretches; place++) {
        struct iovec stretch = {from, bytes < K3_IO_MAX_BYTES ? bytes : K3_IO_MAX_BYTES};
        if (ring->owners[place])
            continue;
        /* Refused where locked memory is limited; reads then go to it as to any other. */
        if (!set_stretch(ring, place, stretch))
            return;
        pthread_mutex_lock(&ring->core->lock);
        ring->stretches[place] = stretch;
        ring->owners[place] = io;
        pthread_mutex_unlock(&ring->core->lock);
        from += stretch.iov_len;
        bytes -= stretch.iov_len;
    }
}

void k3_io_ring_drop_memory(k3_io_ring *ring, const k3_io *io)
{
    for (int place = 0; place < ring->max_stretches; place++)
        if (ring->owners[place] == io) {
            pthread_mutex_lock(&ring->core->lock);
            ring->owners[place] = NULL;
            pthread_mutex_unlock(&ring->core->lock);
            (void)set_stretch(ring, place, (struct iovec){NULL, 0});
        }
}

#else

/* Built without liburing, or for a system that has none. */
k3_status k3_io_ring_open(k3_io_ring **out, k3_io_core *core, k3_error *err)
{
    (void)core;
    *out = NULL;
    return k3_fail(err, K3_E_UNSUPPORTED, "io_uring is not in this build");
}

void k3_io_ring_close(k3_io_ring *ring)
{
    (void)ring;
}

void k3_io_ring_wake(k3_io_ring *ring)
{
    (void)ring;
}

void k3_io_ring_add_memory(k3_io_ring *ring, const k3_io *io, void *at, uint64_t bytes)
{
    (void)ring;
    (void)io;
    (void)at;
    (void)bytes;
}

void k3_io_ring_drop_memory(k3_io_ring *ring, const k3_io *io)
{
    (void)ring;
    (void)io;
}

#endif
