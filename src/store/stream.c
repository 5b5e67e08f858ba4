#include "store/stream.h"

#include "base/os.h"
#include "store/expert_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { COLLECT = 32, NOBODY = -1 };
static const uint64_t most_registered = (uint64_t)1 << 30;

typedef enum k3_seat_state { SEAT_QUEUED, SEAT_READING, SEAT_READY, SEAT_HANDED, SEAT_DONE } k3_seat_state;

/* One expert that the layer at hand wants. */
typedef struct k3_seat {
    int id, slot;
    k3_seat_state state;
    int shard;
    uint64_t offset; /* of its first part: the order of reading */
} k3_seat;

/* What a slot is being read, or was read last. The number of the slot is the tag of its reads. */
typedef struct k3_arrival {
    int layer, id;
    int n_missing;     /* parts not yet arrived; 0: it is there */
    int seat;          /* which waits for it; NOBODY: it is a guess */
    int is_incomplete; /* a part of it failed, or was taken back */
    int was_guess;     /* when it was begun */
    int is_ahead;      /* a guess whose layer has not come yet */
} k3_arrival;

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
    k3_expert *experts;   /* [n_slots] */
    k3_arrival *arrivals; /* [n_slots] */
    uint64_t *lead_of;    /* [n_slots, K3_EXPERT_PARTS]: where in its slot each part's bytes begin */

    int layer, n_seats, next_queued;
    k3_seat *seats; /* [n_experts] */

    int guess_layer, n_guesses, next_guess;
    int32_t *guesses; /* [n_experts] */
    int n_guessed;    /* slots that guesses are on their way to */
    k3_stream_stat stat;
};

static int item_of(const k3_stream *s, int layer, int id)
{
    return layer * s->hp->n_experts + id;
}

void k3_stream_measure(k3_stream_sizes *out, const k3_ckpt *ckpt)
{
    const k3_hparams *hp = k3_ckpt_hparams(ckpt);
    *out = (k3_stream_sizes){0};
    for (int l = 0; l < hp->n_layers; l++) {
        for (int id = 0; hp->is_moe[l] && id < hp->n_experts; id++) {
            k3_expert_part parts[K3_EXPERT_PARTS];
            uint64_t bytes = 0;
            for (int i = 0, n = k3_expert_parts(parts, ckpt, l, id); i < n; i++) {
                bytes += k3_io_room(parts[i].bytes);
                out->wanted[l][k3_ckpt_shard_drive(ckpt, parts[i].shard)] += parts[i].bytes;
            }
            out->slot = bytes > out->slot ? bytes : out->slot;
        }
        for (int d = 0; hp->is_moe[l] && d < K3_MAX_DRIVES; d++)
            out->wanted[l][d] = out->wanted[l][d] * (uint64_t)hp->top_k / (uint64_t)hp->n_experts;
    }
}

uint64_t k3_stream_slot_bytes(const k3_ckpt *ckpt)
{
    k3_stream_sizes sizes;
    k3_stream_measure(&sizes, ckpt);
    return sizes.slot;
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

static k3_status add_files(k3_stream *s, k3_error *err)
{
    for (int l = 0; l < s->hp->n_layers; l++)
        for (int id = 0; s->hp->is_moe[l] && id < s->hp->n_experts; id++) {
            k3_expert_part parts[K3_EXPERT_PARTS];
            int n = k3_expert_parts(parts, s->ckpt, l, id);
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

static k3_status open_all(k3_stream *s, const k3_stream_config *config, k3_error *err)
{
    int n_shards = k3_ckpt_n_shards(s->ckpt), most = 2 * s->hp->n_experts; /* of one layer, and guesses of the next */
    s->files = malloc((size_t)n_shards * sizeof *s->files);
    s->experts = calloc((size_t)s->n_slots, sizeof *s->experts);
    s->arrivals = calloc((size_t)s->n_slots, sizeof *s->arrivals);
    s->lead_of = calloc((size_t)s->n_slots * K3_EXPERT_PARTS, sizeof *s->lead_of);
    s->seats = calloc((size_t)s->hp->n_experts + 1, sizeof *s->seats);
    s->guesses = calloc((size_t)s->hp->n_experts + 1, sizeof *s->guesses);
    if (!s->files || !s->experts || !s->arrivals || !s->lead_of || !s->seats || !s->guesses)
        return k3_fail(err, K3_E_NOMEM, "slots for experts: out of memory");
    for (int i = 0; i < n_shards; i++)
        s->files[i] = -1;
    K3_TRY(k3_io_open(&s->io, &(k3_io_config){.meter = config->meter, .beside = config->beside}, err));
    K3_TRY(add_files(s, err));
    K3_TRY(take_memory(s, err));
    /* Registered memory is brought in at once: most slots are left to be taken as they are used. */
    uint64_t bytes = s->slot_bytes * (uint64_t)s->n_slots;
    k3_io_add_memory(s->io, s->memory, bytes < most_registered ? bytes : most_registered);
    K3_TRY(k3_io_reserve(s->io, (s->n_slots < most ? s->n_slots : most) * K3_EXPERT_PARTS, err));
    return k3_policy_open(&s->policy, s->hp->n_layers, s->hp->n_experts, s->n_slots, err);
}

k3_status k3_stream_open(k3_stream **out, const k3_stream_config *config, k3_error *err)
{
    *out = NULL;
    k3_stream *s = calloc(1, sizeof *s);
    if (!s)
        return k3_fail(err, K3_E_NOMEM, "slots for experts: out of memory");
    s->ckpt = config->ckpt;
    s->hp = k3_ckpt_hparams(config->ckpt);
    s->cpu = config->cpu;
    s->n_slots = config->n_slots;
    s->slot_bytes = config->slot_bytes;
    k3_status status = open_all(s, config, err);
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
    free(s->arrivals);
    free(s->lead_of);
    free(s->seats);
    free(s->guesses);
    free(s);
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

/* Where the tensors of an expert are, once its parts' places in the slot are known. */
static void lay_out(k3_stream *s, int slot, const k3_expert_part *parts)
{
    const k3_arrival *a = &s->arrivals[slot];
    for (int i = 0; i < K3_EXPERT_PARTS; i++) {
        const k3_tensor_info *t = k3_expert_tensor(s->ckpt, a->layer, a->id, i);
        k3_mat *mat = k3_expert_mat(&s->experts[slot], i / 2);
        int p = 0;
        while (parts[p].shard != t->shard || t->offset < parts[p].offset || t->offset >= parts[p].offset + parts[p].bytes)
            p++;
        uint64_t at = s->lead_of[slot * K3_EXPERT_PARTS + p] + (t->offset - parts[p].offset);
        if (i % 2)
            mat->scale = (k3_ref){s->buf, at};
        else
            *mat = (k3_mat){K3_MXFP4, (int)t->shape[0], (int)t->shape[1] * 2, {s->buf, at}, {NULL, 0}, 0};
    }
}

/* Begins to read an expert into its slot, for a seat or as a guess. If it cannot begin, the slot is free again. */
static k3_status start_read(k3_stream *s, int slot, int layer, int id, int seat, k3_error *err)
{
    k3_expert_part parts[K3_EXPERT_PARTS];
    k3_io_read reads[K3_EXPERT_PARTS];
    uint64_t at = s->slot_bytes * (uint64_t)slot;
    int n = k3_expert_parts(parts, s->ckpt, layer, id);
    for (int p = 0; p < n; p++) {
        reads[p] = (k3_io_read){.file = s->files[parts[p].shard],
                                .is_guess = seat == NOBODY,
                                .offset = parts[p].offset,
                                .bytes = parts[p].bytes,
                                .dst = s->memory + at,
                                .tag = (uint64_t)slot};
        s->lead_of[slot * K3_EXPERT_PARTS + p] = at;
        at += k3_io_room(parts[p].bytes);
    }
    k3_status status = k3_io_submit(s->io, reads, n, err);
    if (status != K3_OK) {
        k3_policy_drop(s->policy, item_of(s, layer, id));
        return status;
    }
    for (int p = 0; p < n; p++)
        s->lead_of[slot * K3_EXPERT_PARTS + p] += reads[p].lead;
    s->arrivals[slot] =
        (k3_arrival){.layer = layer, .id = id, .n_missing = n, .seat = seat, .was_guess = seat == NOBODY, .is_ahead = seat == NOBODY};
    s->n_guessed += seat == NOBODY;
    lay_out(s, slot, parts);
    return K3_OK;
}

/* What the step holds makes room if nothing else does: what was handed out, and computed; for what is wanted, what is kept for the next
 * layer as well. */
static int make_room(k3_stream *s, int is_wanted)
{
    /* A layer's own experts make no room for guesses of it, and nothing that is on its way does. */
    for (int i = 0; i < s->n_seats && (is_wanted || s->guess_layer != s->layer); i++) {
        int slot = s->seats[i].state == SEAT_DONE ? k3_policy_find(s->policy, item_of(s, s->layer, s->seats[i].id)) : -1;
        if (slot >= 0 && !s->arrivals[slot].n_missing) {
            k3_policy_drop(s->policy, item_of(s, s->layer, s->seats[i].id));
            return 1;
        }
    }
    for (int slot = 0; slot < s->n_slots && is_wanted; slot++) {
        int item = k3_policy_item(s->policy, slot);
        if (item >= 0 && item / s->hp->n_experts != s->layer && !s->arrivals[slot].n_missing) {
            k3_policy_drop(s->policy, item);
            return 1;
        }
    }
    return 0;
}

/* -1: what the layer at hand wants, and guesses on their way, hold every slot. */
static int take_slot(k3_stream *s, int item, int is_wanted)
{
    int slot;
    do
        slot = k3_policy_take(s->policy, item, 1);
    while (slot < 0 && make_room(s, is_wanted));
    return slot;
}

/* Guesses follow when everything that is wanted has been asked for. Those that are there already stay. */
static void start_guesses(k3_stream *s)
{
    for (int i = 0; i < s->n_guesses && !s->next_guess; i++)
        k3_policy_hold(s->policy, item_of(s, s->guess_layer, s->guesses[i]));
    for (; s->next_guess < s->n_guesses && s->n_guessed < s->n_slots / 2; s->next_guess++) {
        int id = s->guesses[s->next_guess], item = item_of(s, s->guess_layer, id);
        if (k3_policy_find(s->policy, item) >= 0)
            continue;
        int slot = take_slot(s, item, 0);
        if (slot < 0)
            return;
        (void)start_read(s, slot, s->guess_layer, id, NOBODY, NULL);
    }
}

static k3_status start_reads(k3_stream *s, k3_error *err)
{
    for (; s->next_queued < s->n_seats; s->next_queued++) {
        k3_seat *seat = &s->seats[s->next_queued];
        if (seat->state != SEAT_QUEUED)
            continue;
        seat->slot = take_slot(s, item_of(s, s->layer, seat->id), 1);
        if (seat->slot < 0)
            return K3_OK; /* until one of those that hold them is computed */
        K3_TRY(start_read(s, seat->slot, s->layer, seat->id, s->next_queued, err));
        seat->state = SEAT_READING;
    }
    start_guesses(s);
    return K3_OK;
}

static void find_place(const k3_stream *s, k3_seat *seat)
{
    k3_expert_part parts[K3_EXPERT_PARTS];
    if (k3_expert_parts(parts, s->ckpt, s->layer, seat->id)) {
        seat->shard = parts[0].shard;
        seat->offset = parts[0].offset;
    }
}

static int by_place(const void *a, const void *b)
{
    const k3_seat *x = a, *y = b;
    if (x->state != y->state)
        return x->state > y->state ? -1 : 1; /* what is there, what is coming, what must be asked for */
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* ---- arrivals ------------------------------------------------------------------------------------------------------ */

static k3_status check_scales(k3_stream *s, int slot, k3_error *err)
{
    const k3_arrival *a = &s->arrivals[slot];
    for (int i = 0; i < K3_EXPERT_MATRICES; i++) {
        const k3_mat *mat = k3_expert_mat(&s->experts[slot], i);
        K3_TRY(k3_expert_check_scales(k3_host(mat->scale), mat, a->layer, a->id, i, err));
    }
    return K3_OK;
}

/* A part of an expert has come, or not. What is not whole and sound is not resident; only who wants it hears of it. */
static k3_status arrive(k3_stream *s, const k3_io_done *done, k3_error *err)
{
    int slot = (int)done->tag;
    k3_arrival *a = &s->arrivals[slot];
    k3_status status = done->status;
    err = a->seat != NOBODY ? err : NULL;
    if (status != K3_OK)
        (void)k3_fail(err, status, "layer %d expert %d: %s", a->layer, a->id, done->text);
    a->is_incomplete |= status != K3_OK || done->cancelled;
    if (!--a->n_missing) {
        s->n_guessed -= a->seat == NOBODY;
        if (!a->is_incomplete)
            status = check_scales(s, slot, err);
        a->is_incomplete |= status != K3_OK;
        s->stat.ahead += a->was_guess && !a->is_incomplete;
        if (a->is_incomplete)
            k3_policy_drop(s->policy, item_of(s, a->layer, a->id));
        if (a->seat != NOBODY)
            s->seats[a->seat].state = a->is_incomplete ? SEAT_QUEUED : SEAT_READY;
        /* A guess that had failed, or was taken back in part, before it was wanted: it is read again. */
        if (a->seat != NOBODY && a->is_incomplete && a->seat < s->next_queued)
            s->next_queued = a->seat;
    }
    return a->seat != NOBODY ? status : K3_OK;
}

/* All that has come. The first failure; the others are collected as well. */
static k3_status collect(k3_stream *s, int block, k3_error *err)
{
    k3_io_done done[COLLECT];
    k3_status status = K3_OK;
    uint64_t start = block ? k3_os_nanoseconds() : 0;
    int n = k3_io_collect(s->io, done, COLLECT, block);
    if (block)
        s->stat.wait_ns += k3_os_nanoseconds() - start;
    for (; n; n = n == COLLECT ? k3_io_collect(s->io, done, COLLECT, 0) : 0)
        for (int i = 0; i < n; i++) {
            k3_status one = arrive(s, &done[i], status == K3_OK ? err : NULL);
            status = status == K3_OK ? one : status;
        }
    return status;
}

/* Waits for everything in flight; what did not arrive whole is not resident. */
static void drain(k3_stream *s)
{
    k3_io_cancel_guesses(s->io);
    while (k3_io_pending(s->io, NULL) > 0)
        (void)collect(s, 1, NULL);
    s->n_seats = s->n_guesses = s->next_guess = 0;
}

/* ---- guesses --------------------------------------------------------------------------------------------------------- */

int k3_stream_may_guess(const k3_stream *s, int n_experts)
{
    return s->n_slots > 1 && (s->n_slots < n_experts || k3_policy_used(s->policy) < n_experts - n_experts / 8);
}

/* The layer that was guessed has chosen: how good the guess was. */
static void judge_guess(k3_stream *s, int layer, const int32_t *ids, int n)
{
    if (!s->n_guesses || layer != s->guess_layer)
        return;
    s->stat.guess_wanted += (uint64_t)n;
    s->stat.guess_named += (uint64_t)s->n_guesses;
    for (int i = 0; i < n; i++)
        for (int g = 0; g < s->n_guesses; g++)
            s->stat.guess_right += s->guesses[g] == ids[i];
}

/* Guesses of a layer end here: what it wants of them, its seats wait for; the rest is taken back as far as it has not started, and keeps
 * its slot until that is there. */
static k3_status end_guesses(k3_stream *s, int layer, k3_error *err)
{
    s->n_guesses = s->next_guess = 0;
    k3_io_cancel_guesses(s->io);
    K3_TRY(collect(s, 0, err));
    for (int slot = 0; slot < s->n_slots; slot++) {
        k3_arrival *a = &s->arrivals[slot];
        if (a->n_missing && a->seat == NOBODY)
            k3_policy_hold(s->policy, item_of(s, a->layer, a->id));
        if (a->layer == layer)
            a->is_ahead = 0;
    }
    return K3_OK;
}

void k3_stream_guess(k3_stream *s, int layer, const int32_t *ids, int n)
{
    if (s->n_guesses) /* the layer that they were for had nothing to read here */
        (void)end_guesses(s, s->guess_layer, NULL);
    s->guess_layer = layer;
    s->n_guesses = n;
    s->next_guess = 0;
    memcpy(s->guesses, ids, (size_t)n * sizeof *ids);
    if (s->next_queued == s->n_seats)
        start_guesses(s);
}

/* ---- a layer -------------------------------------------------------------------------------------------------------- */

static void take_seat(k3_stream *s, k3_seat *seat, int id)
{
    *seat = (k3_seat){.id = id, .slot = k3_policy_use(s->policy, item_of(s, s->layer, id))};
    s->stat.wanted++;
    if (seat->slot < 0) {
        find_place(s, seat);
        return;
    }
    k3_arrival *a = &s->arrivals[seat->slot];
    seat->state = a->n_missing ? SEAT_READING : SEAT_READY;
    s->stat.hits += !a->n_missing;
    s->stat.ahead_used += a->is_ahead && !a->is_incomplete;
    if (a->n_missing) {
        (void)k3_io_want(s->io, (uint64_t)seat->slot);
        s->n_guessed--;
    }
}

k3_status k3_stream_begin(k3_stream *s, int layer, const int32_t *ids, int n, k3_error *err)
{
    judge_guess(s, layer, ids, n);
    K3_TRY(collect(s, 0, err));
    s->layer = layer;
    s->n_seats = n;
    s->next_queued = 0;
    k3_policy_step(s->policy, layer);
    for (int i = 0; i < n; i++)
        take_seat(s, &s->seats[i], ids[i]);
    qsort(s->seats, (size_t)n, sizeof *s->seats, by_place);
    for (int i = 0; i < n; i++)
        if (s->seats[i].state == SEAT_READING)
            s->arrivals[s->seats[i].slot].seat = i;
    k3_status status = end_guesses(s, layer, err);
    if (status == K3_OK)
        status = start_reads(s, err);
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
    k3_status status = collect(s, 0, err);
    if (status == K3_OK)
        status = start_reads(s, err);
    while (status == K3_OK && !(*n = hand_out(s, view)) && is_reading(s)) {
        status = collect(s, 1, err);
        if (status == K3_OK)
            status = start_reads(s, err);
    }
    if (status != K3_OK)
        drain(s);
    return status;
}

void k3_stream_forget(k3_stream *s, int id)
{
    int item = item_of(s, s->layer, id);
    if (k3_policy_find(s->policy, item) >= 0)
        k3_policy_drop(s->policy, item);
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

const char *k3_stream_describe(k3_stream *s)
{
    return k3_io_describe(s->io);
}

const char *k3_stream_notice(k3_stream *s)
{
    return k3_io_notice(s->io);
}
