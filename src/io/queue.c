/* Reads from submit to collect, and which piece is next. */
#include "base/os.h"
#include "io/parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists ------------------------------------------------------------------------------------------------------------ */

void k3_io_list_init(k3_io_list *list)
{
    list->head.prev = list->head.next = &list->head;
}

static int is_empty(const k3_io_list *list)
{
    return list->head.next == &list->head;
}

static void take_out(k3_io_request *r)
{
    r->prev->next = r->next;
    r->next->prev = r->prev;
}

static void put_before(k3_io_request *at, k3_io_request *r)
{
    r->next = at;
    r->prev = at->prev;
    r->prev->next = r;
    at->prev = r;
}

static void append(k3_io_list *list, k3_io_request *r)
{
    put_before(&list->head, r);
}

static k3_io_request *take_first(k3_io_list *list)
{
    k3_io_request *r = list->head.next;
    take_out(r);
    return r;
}

void k3_io_list_free(k3_io_list *list)
{
    while (!is_empty(list))
        free(take_first(list));
}

/* ---- pieces ----------------------------------------------------------------------------------------------------------- */

void k3_io_tick(k3_io *io)
{
    k3_io_core *core = io->core;
    uint64_t now = k3_os_nanoseconds();
    if (core->n_pieces)
        core->busy_ns += now - core->ticked;
    core->ticked = now;
    if (io->n_pieces[0])
        io->stat.busy_ns += now - io->ticked;
    else if (io->n_pieces[1])
        io->stat.guess_busy_ns += now - io->ticked;
    io->ticked = now;
}

void k3_io_wake(k3_io_core *core)
{
    if (core->ring)
        k3_io_ring_wake(core->ring);
    else
        for (k3_io_drive *drive = core->drives; drive; drive = drive->next)
            pthread_cond_broadcast(&drive->work);
}

static void finish_request(k3_io_request *r)
{
    k3_io *io = r->io;
    r->is_finished = 1;
    r->done.tag = r->read.tag;
    if (r->done.status == K3_OK) {
        *(r->read.is_guess ? &io->stat.guesses : &io->stat.reads) += !r->done.cancelled;
        *(r->read.is_guess ? &io->stat.guess_bytes : &io->stat.bytes) += r->got;
    }
    append(&io->done, r);
    io->n_open[r->read.is_guess]--;
    if (!r->read.is_guess && !--io->core->n_wanted)
        k3_io_wake(io->core); /* guesses may start */
    pthread_cond_signal(&io->finished);
}

int k3_io_next_piece(k3_io_drive *drive, k3_io_piece *piece)
{
    k3_io_core *core = drive->core;
    int queue = 0;
    while (queue < K3_IO_GUESSES && is_empty(&drive->queue[queue]))
        queue++;
    int is_guess = queue == K3_IO_GUESSES, depth = is_guess && core->depth > K3_IO_GUESS_DEPTH ? K3_IO_GUESS_DEPTH : core->depth;
    if (core->stop || drive->in_flight >= depth || is_empty(&drive->queue[queue]) || (is_guess && core->n_wanted))
        return 0;
    k3_io_request *r = drive->queue[queue].head.next;
    uint64_t wanted_end = r->read.offset + r->read.bytes, left = r->end - r->next_at, bytes = left < r->piece_bytes ? left : r->piece_bytes;
    memset(piece, 0, sizeof *piece);
    piece->request = r;
    piece->file = r->file;
    piece->first = piece->at = r->next_at;
    piece->end = r->next_at + bytes;
    piece->need = piece->end < wanted_end ? piece->end : wanted_end;
    piece->to = (unsigned char *)r->read.dst + (r->next_at - (r->read.offset - r->read.lead));
    k3_io_tick(r->io);
    r->is_started = 1;
    r->next_at += bytes;
    r->in_flight++;
    drive->in_flight++;
    core->n_pieces++;
    r->io->n_pieces[is_guess]++;
    piece->count = is_guess ? NULL : drive->count;
    if (piece->count)
        k3_io_count_begin(piece->count);
    if (r->next_at == r->end) {
        take_out(r);
        append(&core->flying, r);
    }
    return 1;
}

void k3_io_finish_piece(k3_io_piece *piece)
{
    k3_io_request *r = piece->request;
    k3_io_core *core = r->io->core;
    k3_io_tick(r->io);
    if (piece->count)
        k3_io_count_end(piece->count, piece->at - piece->first);
    r->got += piece->at - piece->first;
    r->in_flight--;
    r->file->drive->in_flight--;
    core->n_pieces--;
    r->io->n_pieces[r->read.is_guess]--;
    if (piece->status != K3_OK && r->done.status == K3_OK) {
        r->done.status = piece->status;
        memcpy(r->done.text, piece->text, sizeof r->done.text);
        r->next_at = r->end; /* the rest is not read */
        take_out(r);
        append(&core->flying, r);
    }
    if (!r->in_flight && r->next_at == r->end) {
        take_out(r);
        finish_request(r);
    }
}

/* ---- the caller's side ------------------------------------------------------------------------------------------------ */

static k3_status check(const k3_io *io, const k3_io_read *read, k3_error *err)
{
    if (read->file < 0 || read->file >= io->n_files)
        return k3_fail(err, K3_E_INVALID, "read of file %d: 0 to %d were added", read->file, io->n_files - 1);
    const char *path = io->files[read->file]->path;
    if (!read->bytes || read->offset > INT64_MAX - 2 * K3_IO_ALIGN || read->bytes > INT64_MAX - 2 * K3_IO_ALIGN - read->offset)
        return k3_fail(err, K3_E_INVALID, "%s: a read of %llu bytes at offset %llu, wanted at least 1 byte and an end below 2^63", path,
                       (unsigned long long)read->bytes, (unsigned long long)read->offset);
    if (!read->dst || (uintptr_t)read->dst % K3_IO_ALIGN)
        return k3_fail(err, K3_E_INVALID, "%s: a read to %p, wanted a multiple of %d", path, read->dst, K3_IO_ALIGN);
    return K3_OK;
}

/* Pieces of equal size: the last one is not a small rest that costs as much as the others. */
static uint64_t piece_bytes_of(uint64_t bytes)
{
    uint64_t n = (bytes + K3_IO_PIECE - 1) / K3_IO_PIECE, even = (bytes + n - 1) / n;
    return (even + K3_IO_ALIGN - 1) / K3_IO_ALIGN * K3_IO_ALIGN;
}

static k3_status reserve(k3_io *io, int n, k3_error *err)
{
    int have = 0;
    for (k3_io_request *r = io->spare.head.next; r != &io->spare.head && have < n; r = r->next)
        have++;
    for (; have < n; have++) {
        k3_io_request *r = malloc(sizeof *r);
        if (!r)
            return k3_fail(err, K3_E_NOMEM, "no memory for %d reads", n);
        append(&io->spare, r);
    }
    return K3_OK;
}

k3_status k3_io_reserve(k3_io *io, int n, k3_error *err)
{
    pthread_mutex_lock(&io->core->lock);
    k3_status status = reserve(io, n, err);
    pthread_mutex_unlock(&io->core->lock);
    return status;
}

static k3_io_list *queue_of(k3_io_request *r)
{
    return &r->file->drive->queue[r->read.is_guess ? K3_IO_GUESSES : r->io->is_beside ? K3_IO_FIRST : K3_IO_SECOND];
}

k3_status k3_io_submit(k3_io *io, k3_io_read *reads, int n, k3_error *err)
{
    if (n < 0)
        return k3_fail(err, K3_E_INVALID, "%d reads submitted", n);
    for (int i = 0; i < n; i++)
        K3_TRY(check(io, &reads[i], err));
    pthread_mutex_lock(&io->core->lock);
    k3_status status = reserve(io, n, err);
    for (int i = 0; i < n && status == K3_OK; i++) {
        k3_io_request *r = take_first(&io->spare);
        memset(r, 0, sizeof *r);
        reads[i].is_guess = !!reads[i].is_guess;
        reads[i].lead = reads[i].offset % K3_IO_ALIGN;
        r->io = io;
        r->read = reads[i];
        r->file = io->files[reads[i].file];
        r->next_at = reads[i].offset - reads[i].lead;
        r->end = (reads[i].offset + reads[i].bytes + K3_IO_ALIGN - 1) / K3_IO_ALIGN * K3_IO_ALIGN;
        r->piece_bytes = piece_bytes_of(r->end - r->next_at);
        append(queue_of(r), r);
        io->n_open[reads[i].is_guess]++;
        io->core->n_wanted += !reads[i].is_guess;
    }
    k3_io_wake(io->core);
    pthread_mutex_unlock(&io->core->lock);
    return status;
}

int k3_io_collect(k3_io *io, k3_io_done *done, int max, int block)
{
    int n = 0;
    pthread_mutex_lock(&io->core->lock);
    while (block && max > 0 && is_empty(&io->done) && (io->n_open[0] || io->n_open[1]))
        pthread_cond_wait(&io->finished, &io->core->lock);
    for (; n < max && !is_empty(&io->done); n++) {
        k3_io_request *r = take_first(&io->done);
        done[n] = r->done;
        append(&io->spare, r);
    }
    pthread_mutex_unlock(&io->core->lock);
    return n;
}

/* What the reader has in a queue is not read any further. */
static void take_back(k3_io *io, k3_io_list *queue)
{
    for (k3_io_request *r = queue->head.next, *next; r != &queue->head; r = next) {
        next = r->next;
        if (r->io != io)
            continue;
        take_out(r);
        r->done.cancelled = 1;
        r->next_at = r->end;
        if (r->in_flight)
            append(&io->core->flying, r);
        else
            finish_request(r);
    }
}

void k3_io_cancel_guesses(k3_io *io)
{
    pthread_mutex_lock(&io->core->lock);
    for (k3_io_drive *drive = io->core->drives; drive; drive = drive->next)
        take_back(io, &drive->queue[K3_IO_GUESSES]);
    pthread_mutex_unlock(&io->core->lock);
}

void k3_io_leave(k3_io *io)
{
    pthread_mutex_lock(&io->core->lock);
    for (k3_io_drive *drive = io->core->drives; drive; drive = drive->next)
        for (int queue = 0; queue < K3_IO_QUEUES; queue++)
            take_back(io, &drive->queue[queue]);
    while (io->n_open[0] || io->n_open[1])
        pthread_cond_wait(&io->finished, &io->core->lock);
    pthread_mutex_unlock(&io->core->lock);
}

static void want(k3_io_request *r)
{
    k3_io *io = r->io;
    k3_io_tick(io);
    io->n_open[1]--;
    io->n_open[0]++;
    io->core->n_wanted++;
    io->n_pieces[1] -= r->in_flight;
    io->n_pieces[0] += r->in_flight;
    r->read.is_guess = 0;
    if (r->next_at < r->end) {
        k3_io_list *wanted = queue_of(r);
        take_out(r);
        put_before(r->is_started ? wanted->head.next : &wanted->head, r);
    }
}

/* How many reads of a list have the tag; guesses among them that are not finished become wanted. */
static int want_in(k3_io *io, k3_io_list *list, uint64_t tag)
{
    int n = 0;
    for (k3_io_request *r = list->head.next, *next; r != &list->head; r = next) {
        next = r->next;
        if (r->io != io || r->read.tag != tag || r->done.cancelled)
            continue;
        n++;
        if (r->read.is_guess && !r->is_finished)
            want(r);
    }
    return n;
}

int k3_io_want(k3_io *io, uint64_t tag)
{
    pthread_mutex_lock(&io->core->lock);
    int n = want_in(io, &io->core->flying, tag) + want_in(io, &io->done, tag);
    for (k3_io_drive *drive = io->core->drives; drive; drive = drive->next)
        for (int queue = 0; queue < K3_IO_QUEUES; queue++)
            n += want_in(io, &drive->queue[queue], tag);
    if (n)
        k3_io_wake(io->core);
    pthread_mutex_unlock(&io->core->lock);
    return n > 0;
}

int k3_io_pending(const k3_io *io, int *guesses)
{
    pthread_mutex_lock(&io->core->lock);
    int n[2] = {io->n_open[0], io->n_open[1]};
    for (const k3_io_request *r = io->done.head.next; r != &io->done.head; r = r->next)
        n[r->read.is_guess]++;
    pthread_mutex_unlock(&io->core->lock);
    if (guesses)
        *guesses = n[1];
    return n[0] + n[1];
}
