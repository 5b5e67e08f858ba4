#include "store/stream.h"

#include "base/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PARTS = 6, COLLECT = 32, MOST_GAP = 65536 };

/* A stretch of a shard that holds tensors of one expert. */
typedef struct k3_part {
    int shard;
    uint64_t offset, bytes;
} k3_part;

typedef enum k3_seat_state { SEAT_QUEUED, SEAT_READING, SEAT_READY, SEAT_HANDED, SEAT_DONE } k3_seat_state;

/* One expert that the layer at hand wants. */
typedef struct k3_seat {
    int id, slot;
    k3_seat_state state;
    int n_parts, n_missing; /* parts not yet arrived */
    int shard;
    uint64_t offset; /* of its first part: the order of reading */
} k3_seat;

struct k3_stream {
    const k3_ckpt *ckpt;
    const k3_hparams *hp;
    k3_backend *cpu;
    k3_io *io;
    int *files; /* by shard; -1: holds no expert */
    k3_policy *policy;
    char *memory;
    k3_buf *buf; /* over it */
    uint64_t slot_bytes;
    int n_slots;
    k3_expert *experts; /* [n_slots] */

    int layer, n_seats, next_queued;
    k3_seat *seats;    /* [n_experts] */
    uint64_t *lead_of; /* [n_slots, PARTS]: where in its slot each part's bytes begin */
    k3_stream_stat stat;
};

static const struct {
    k3_role codes, scale;
    const char *name;
} matrices[3] = {{K3_R_W1, K3_R_W1_SCALE, "w1"}, {K3_R_W3, K3_R_W3_SCALE, "w3"}, {K3_R_W2, K3_R_W2_SCALE, "w2"}};

static int item_of(const k3_stream *s, int layer, int id)
{
    return layer * s->hp->n_experts + id;
}

/* ---- where an expert lies -------------------------------------------------------------------------------------- */

/* Its tensors as few stretches, in the order of their places: one, unless a writer has torn them apart. 0: a tensor is missing. */
static int parts_of(const k3_ckpt *ckpt, int layer, int id, k3_part parts[PARTS])
{
    int n = 0;
    for (int i = 0; i < PARTS; i++) {
        const k3_tensor_info *t = k3_ckpt_role(ckpt, i % 2 ? matrices[i / 2].scale : matrices[i / 2].codes, layer, id);
        if (!t)
            return 0;
        int at = n++;
        for (; at > 0 && (parts[at - 1].shard > t->shard || (parts[at - 1].shard == t->shard && parts[at - 1].offset > t->offset)); at--)
            parts[at] = parts[at - 1];
        parts[at] = (k3_part){t->shard, t->offset, t->bytes};
    }
    int kept = 1;
    for (int i = 1; i < n; i++) {
        k3_part *last = &parts[kept - 1];
        uint64_t end = last->offset + last->bytes;
        if (last->shard == parts[i].shard && parts[i].offset - end <= MOST_GAP)
            last->bytes = parts[i].offset + parts[i].bytes - last->offset;
        else
            parts[kept++] = parts[i];
    }
    return kept;
}

uint64_t k3_stream_slot_bytes(const k3_ckpt *ckpt)
{
    const k3_hparams *hp = k3_ckpt_hparams(ckpt);
    uint64_t most = 0;
    for (int l = 0; l < hp->n_layers; l++)
        for (int id = 0; hp->is_moe[l] && id < hp->n_experts; id++) {
            k3_part parts[PARTS];
            uint64_t bytes = 0;
            for (int i = 0, n = parts_of(ckpt, l, id, parts); i < n; i++)
                bytes += k3_io_room(parts[i].bytes);
            most = bytes > most ? bytes : most;
        }
    return most;
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

static k3_status add_files(k3_stream *s, k3_error *err)
{
    for (int l = 0; l < s->hp->n_layers; l++)
        for (int id = 0; s->hp->is_moe[l] && id < s->hp->n_experts; id++) {
            k3_part parts[PARTS];
            int n = parts_of(s->ckpt, l, id, parts);
            if (!n)
                return k3_fail(err, K3_E_NOT_FOUND, "layer %d expert %d: no MXFP4 tensors", l, id);
            for (int i = 0; i < n; i++)
                if (s->files[parts[i].shard] < 0) {
                    K3_TRY(k3_io_add_file(s->io, &s->files[parts[i].shard], k3_ckpt_shard_path(s->ckpt, parts[i].shard), err));
                    K3_TRY(k3_ckpt_check_shard(s->ckpt, parts[i].shard, err));
                }
        }
    return K3_OK;
}

static k3_status take_memory(k3_stream *s, k3_error *err)
{
    uint64_t bytes = s->slot_bytes * (uint64_t)s->n_slots;
    void *at = bytes && bytes <= SIZE_MAX
                   ? mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                   : MAP_FAILED;
    if (at == MAP_FAILED)
        return k3_fail(err, K3_E_NOMEM, "%d slots for experts: no memory for %llu bytes: %s", s->n_slots, (unsigned long long)bytes,
                       strerror(errno));
    s->memory = at;
#ifdef MADV_HUGEPAGE
    (void)madvise(at, (size_t)bytes, MADV_HUGEPAGE);
#endif
    s->buf = s->cpu->memory->wrap(s->cpu, at, bytes, "routed experts");
    return s->buf ? K3_OK : s->cpu->sync(s->cpu, err);
}

static k3_status open_all(k3_stream *s, k3_error *err)
{
    int n_shards = k3_ckpt_n_shards(s->ckpt);
    s->files = malloc((size_t)n_shards * sizeof *s->files);
    s->experts = calloc((size_t)s->n_slots, sizeof *s->experts);
    s->lead_of = calloc((size_t)s->n_slots * PARTS, sizeof *s->lead_of);
    s->seats = calloc((size_t)s->hp->n_experts + 1, sizeof *s->seats);
    if (!s->files || !s->experts || !s->lead_of || !s->seats)
        return k3_fail(err, K3_E_NOMEM, "slots for experts: out of memory");
    for (int i = 0; i < n_shards; i++)
        s->files[i] = -1;
    K3_TRY(k3_io_open(&s->io, &(k3_io_config){K3_IO_AUTO, 0, 0}, err));
    K3_TRY(add_files(s, err));
    K3_TRY(take_memory(s, err));
    k3_io_add_memory(s->io, s->memory, s->slot_bytes * (uint64_t)s->n_slots);
    K3_TRY(k3_io_reserve(s->io, (s->n_slots < s->hp->n_experts ? s->n_slots : s->hp->n_experts) * PARTS, err));
    return k3_policy_open(&s->policy, s->hp->n_layers, s->hp->n_experts, s->n_slots, err);
}

k3_status k3_stream_open(k3_stream **out, const k3_ckpt *ckpt, k3_backend *cpu, int n_slots, k3_error *err)
{
    *out = NULL;
    k3_stream *s = calloc(1, sizeof *s);
    if (!s)
        return k3_fail(err, K3_E_NOMEM, "slots for experts: out of memory");
    s->ckpt = ckpt;
    s->hp = k3_ckpt_hparams(ckpt);
    s->cpu = cpu;
    s->n_slots = n_slots;
    s->slot_bytes = k3_stream_slot_bytes(ckpt);
    k3_status status = open_all(s, err);
    if (status != K3_OK) {
        k3_stream_close(s);
        return status;
    }
    *out = s;
    return K3_OK;
}

void k3_stream_close(k3_stream *s)
{
    if (!s)
        return;
    if (s->io)
        k3_io_close(s->io);
    if (s->buf)
        s->cpu->memory->release(s->cpu, s->buf);
    if (s->memory)
        munmap(s->memory, (size_t)(s->slot_bytes * (uint64_t)s->n_slots));
    k3_policy_close(s->policy);
    free(s->files);
    free(s->experts);
    free(s->lead_of);
    free(s->seats);
    free(s);
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

/* Where the tensors of an expert are, once its parts' places in the slot are known. */
static void lay_out(k3_stream *s, const k3_seat *seat, const k3_part *parts)
{
    k3_mat *mats[3] = {&s->experts[seat->slot].w1, &s->experts[seat->slot].w3, &s->experts[seat->slot].w2};
    for (int i = 0; i < PARTS; i++) {
        const k3_tensor_info *t = k3_ckpt_role(s->ckpt, i % 2 ? matrices[i / 2].scale : matrices[i / 2].codes, s->layer, seat->id);
        int p = 0;
        while (parts[p].shard != t->shard || t->offset < parts[p].offset || t->offset >= parts[p].offset + parts[p].bytes)
            p++;
        uint64_t at = s->lead_of[seat->slot * PARTS + p] + (t->offset - parts[p].offset);
        if (i % 2)
            mats[i / 2]->scale = (k3_ref){s->buf, at};
        else
            *mats[i / 2] = (k3_mat){K3_MXFP4, (int)t->shape[0], (int)t->shape[1] * 2, {s->buf, at}, {NULL, 0}};
    }
}

static k3_status start_read(k3_stream *s, int i, k3_error *err)
{
    k3_seat *seat = &s->seats[i];
    k3_part parts[PARTS];
    k3_io_read reads[PARTS];
    uint64_t at = s->slot_bytes * (uint64_t)seat->slot;
    seat->n_parts = seat->n_missing = parts_of(s->ckpt, s->layer, seat->id, parts);
    for (int p = 0; p < seat->n_parts; p++) {
        reads[p] = (k3_io_read){.file = s->files[parts[p].shard],
                                .offset = parts[p].offset,
                                .bytes = parts[p].bytes,
                                .dst = s->memory + at,
                                .tag = (uint64_t)i};
        s->lead_of[seat->slot * PARTS + p] = at;
        at += k3_io_room(parts[p].bytes);
    }
    K3_TRY(k3_io_submit(s->io, reads, seat->n_parts, err));
    for (int p = 0; p < seat->n_parts; p++)
        s->lead_of[seat->slot * PARTS + p] += reads[p].lead;
    lay_out(s, seat, parts);
    seat->state = SEAT_READING;
    return K3_OK;
}

/* What was handed out, and computed, makes room if nothing else does. */
static int make_room(k3_stream *s)
{
    for (int i = 0; i < s->n_seats; i++)
        if (s->seats[i].state == SEAT_DONE && k3_policy_find(s->policy, item_of(s, s->layer, s->seats[i].id)) >= 0) {
            k3_policy_drop(s->policy, item_of(s, s->layer, s->seats[i].id));
            return 1;
        }
    return 0;
}

static k3_status start_reads(k3_stream *s, k3_error *err)
{
    for (; s->next_queued < s->n_seats; s->next_queued++) {
        k3_seat *seat = &s->seats[s->next_queued];
        if (seat->state != SEAT_QUEUED)
            continue;
        int item = item_of(s, s->layer, seat->id);
        do
            seat->slot = k3_policy_take(s->policy, item, 1);
        while (seat->slot < 0 && make_room(s));
        if (seat->slot < 0)
            return K3_OK; /* the others hold every slot until they are computed */
        k3_status status = start_read(s, s->next_queued, err);
        if (status != K3_OK) {
            k3_policy_drop(s->policy, item);
            return status;
        }
    }
    return K3_OK;
}

static void find_place(const k3_stream *s, k3_seat *seat)
{
    k3_part parts[PARTS];
    if (parts_of(s->ckpt, s->layer, seat->id, parts)) {
        seat->shard = parts[0].shard;
        seat->offset = parts[0].offset;
    }
}

static int by_place(const void *a, const void *b)
{
    const k3_seat *x = a, *y = b;
    if (x->state != y->state)
        return x->state == SEAT_READY ? -1 : 1;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* ---- arrivals ------------------------------------------------------------------------------------------------------ */

static k3_status check_scales(const k3_stream *s, const k3_seat *seat, k3_error *err)
{
    const k3_expert *e = &s->experts[seat->slot];
    const k3_mat *mats[3] = {&e->w1, &e->w3, &e->w2};
    for (int i = 0; i < 3; i++) {
        size_t per_row = (size_t)mats[i]->cols / 32, n = (size_t)mats[i]->rows * per_row;
        const unsigned char *scale = k3_host(mats[i]->scale), *bad = memchr(scale, 255, n);
        if (bad)
            return k3_fail(err, K3_E_FORMAT,
                           "layer %d expert %d %s: scale byte 255 (not a number in E8M0) at row %zu, block %zu; the file is damaged",
                           s->layer, seat->id, matrices[i].name, (size_t)(bad - scale) / per_row, (size_t)(bad - scale) % per_row);
    }
    return K3_OK;
}

static k3_status arrive(k3_stream *s, const k3_io_done *done, k3_error *err)
{
    k3_seat *seat = &s->seats[done->tag];
    seat->n_missing--;
    k3_status status = K3_OK;
    if (done->status != K3_OK)
        status = k3_fail(err, done->status, "layer %d expert %d: %s", s->layer, seat->id, done->text);
    else if (!seat->n_missing && seat->state == SEAT_READING)
        status = check_scales(s, seat, err);
    if (status != K3_OK) {
        k3_policy_drop(s->policy, item_of(s, s->layer, seat->id));
        seat->state = SEAT_DONE;
    } else if (!seat->n_missing && seat->state == SEAT_READING) {
        seat->state = SEAT_READY;
    }
    return status;
}

/* The first failure; the others are collected as well. */
static k3_status collect(k3_stream *s, int block, k3_error *err)
{
    k3_io_done done[COLLECT];
    k3_status status = K3_OK;
    uint64_t start = block ? k3_os_nanoseconds() : 0;
    int n = k3_io_collect(s->io, done, COLLECT, block);
    if (block)
        s->stat.wait_ns += k3_os_nanoseconds() - start;
    for (int i = 0; i < n; i++) {
        k3_status one = arrive(s, &done[i], status == K3_OK ? err : NULL);
        status = status == K3_OK ? one : status;
    }
    return status;
}

/* Waits for everything in flight; what did not arrive whole is not resident. */
static void drain(k3_stream *s)
{
    int guesses;
    while (k3_io_pending(s->io, &guesses) > 0)
        (void)collect(s, 1, NULL);
    s->n_seats = 0;
}

/* ---- a layer -------------------------------------------------------------------------------------------------------- */

k3_status k3_stream_begin(k3_stream *s, int layer, const int32_t *ids, int n, k3_error *err)
{
    s->layer = layer;
    s->n_seats = n;
    s->next_queued = 0;
    k3_policy_step(s->policy, layer);
    for (int i = 0; i < n; i++) {
        k3_seat *seat = &s->seats[i];
        *seat = (k3_seat){.id = ids[i], .slot = k3_policy_use(s->policy, item_of(s, layer, ids[i]))};
        seat->state = seat->slot >= 0 ? SEAT_READY : SEAT_QUEUED;
        s->stat.wanted++;
        s->stat.hits += seat->slot >= 0;
        if (seat->slot < 0)
            find_place(s, seat);
    }
    qsort(s->seats, (size_t)n, sizeof *s->seats, by_place);
    k3_status status = start_reads(s, err);
    if (status != K3_OK)
        drain(s);
    return status;
}

static void take_back(k3_stream *s, const k3_expert **view)
{
    for (int i = 0; i < s->n_seats; i++)
        if (s->seats[i].state == SEAT_HANDED) {
            view[s->seats[i].id] = NULL;
            s->seats[i].state = SEAT_DONE;
        }
}

static int hand_out(k3_stream *s, const k3_expert **view)
{
    int n = 0;
    for (int i = 0; i < s->n_seats; i++)
        if (s->seats[i].state == SEAT_READY) {
            view[s->seats[i].id] = &s->experts[s->seats[i].slot];
            s->seats[i].state = SEAT_HANDED;
            n++;
        }
    return n;
}

static int is_reading(const k3_stream *s)
{
    for (int i = 0; i < s->n_seats; i++)
        if (s->seats[i].state == SEAT_READING)
            return 1;
    return 0;
}

k3_status k3_stream_next(k3_stream *s, const k3_expert **view, int *n, k3_error *err)
{
    *n = 0;
    take_back(s, view);
    k3_status status = start_reads(s, err);
    if (status == K3_OK && is_reading(s))
        status = collect(s, 0, err);
    while (status == K3_OK && !(*n = hand_out(s, view)) && is_reading(s))
        status = collect(s, 1, err);
    if (status != K3_OK)
        drain(s);
    return status;
}

/* ---- before the first layer ------------------------------------------------------------------------------------------- */

k3_status k3_stream_remember(k3_stream *s, const k3_usage *of, const char *path, k3_error *err)
{
    return k3_usage_load(s->policy, of, path, err);
}

k3_status k3_stream_fill(k3_stream *s, int layer, const int32_t *ids, int n, k3_error *err)
{
    k3_io_stat unused;
    s->layer = layer;
    s->n_seats = n;
    s->next_queued = 0;
    for (int i = 0; i < n; i++) {
        s->seats[i] = (k3_seat){.id = ids[i], .slot = -1, .state = SEAT_QUEUED};
        find_place(s, &s->seats[i]);
    }
    qsort(s->seats, (size_t)n, sizeof *s->seats, by_place);
    k3_status status = start_reads(s, err);
    while (status == K3_OK && is_reading(s))
        status = collect(s, 1, err);
    drain(s);
    k3_io_stats(s->io, &unused, 1);
    s->stat = (k3_stream_stat){0};
    return status;
}

/* ---- figures ------------------------------------------------------------------------------------------------------- */

int k3_stream_slots(const k3_stream *s, int *n_used)
{
    *n_used = k3_policy_used(s->policy);
    return s->n_slots;
}

void k3_stream_stats(k3_stream *s, k3_stream_stat *out, int reset)
{
    k3_io_stats(s->io, &s->stat.io, reset);
    *out = s->stat;
    if (reset)
        s->stat = (k3_stream_stat){0};
}

const char *k3_stream_describe(const k3_stream *s)
{
    return k3_io_describe(s->io);
}

const char *k3_stream_notice(const k3_stream *s)
{
    return k3_io_notice(s->io);
}
