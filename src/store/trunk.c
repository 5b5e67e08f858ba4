#include "store/trunk.h"

#include "base/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { COLLECT = 32, MOST_GAP = 65536, MOST_RUNS = 32 };

/* A stretch of a shard that holds neighbouring parts: one read. */
typedef struct k3_run_of_parts {
    int shard, file;
    uint64_t offset, bytes;
    uint64_t at; /* of its room in the slot */
} k3_run_of_parts;

typedef struct k3_item {
    int layer, n_parts, n_runs;
    k3_trunk_part *parts; /* by place */
    int *run_of;          /* [n_parts] */
    k3_run_of_parts *runs;
    int is_checked; /* its values have been looked at */
} k3_item;

typedef struct k3_slot {
    int n_missing; /* runs that have not arrived */
    k3_status status;
    char text[256];
    uint64_t lead[MOST_RUNS]; /* where in its room each run begins */
} k3_slot;

/* Reads are numbered on and on: read s is item s % n_items, in slot s % K3_TRUNK_SLOTS.
 * n_free <= n_used <= n_read <= n_free + K3_TRUNK_SLOTS. */
typedef struct k3_lane {
    k3_item *items;
    int n_items;
    k3_slot slots[K3_TRUNK_SLOTS];
    char *memory; /* slots, then what is converted */
    k3_buf *buf;  /* over it */
    uint64_t slot_bytes, bytes;
    uint64_t n_read; /* begun */
    uint64_t n_used; /* waited for */
    uint64_t n_free; /* given back */
    uint64_t end;    /* reads below it may begin */
} k3_lane;

struct k3_trunk_stream {
    k3_trunk_config config;
    k3_io *io;
    int *files; /* by shard; -1: none of it is read */
    k3_lane lanes[K3_TRUNK_LANES];
    k3_trunk_stat stat;
};

/* ---- where parts lie ---------------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const k3_trunk_part *x = a, *y = b;
    if (x->tensor->shard != y->tensor->shard)
        return x->tensor->shard < y->tensor->shard ? -1 : 1;
    uint64_t at = x->tensor->offset + x->at, other = y->tensor->offset + y->at;
    return at < other ? -1 : at > other;
}

/* Sorts the parts by place and joins neighbours; run_of may be NULL. */
static int runs_of(k3_run_of_parts *runs, int *run_of, k3_trunk_part *parts, int n)
{
    int n_runs = 0;
    qsort(parts, (size_t)n, sizeof *parts, by_place);
    for (int i = 0; i < n; i++) {
        uint64_t offset = parts[i].tensor->offset + parts[i].at;
        k3_run_of_parts *last = n_runs ? &runs[n_runs - 1] : NULL;
        if (last && last->shard == parts[i].tensor->shard && offset - (last->offset + last->bytes) <= MOST_GAP) {
            last->bytes = offset + parts[i].bytes - last->offset;
        } else {
            uint64_t at = last ? last->at + k3_io_room(last->bytes) : 0;
            runs[n_runs++] = (k3_run_of_parts){parts[i].tensor->shard, -1, offset, parts[i].bytes, at};
        }
        if (run_of)
            run_of[i] = n_runs - 1;
    }
    return n_runs;
}

uint64_t k3_trunk_room(k3_trunk_part *parts, int n)
{
    k3_run_of_parts runs[MOST_RUNS];
    int n_runs = runs_of(runs, NULL, parts, n);
    return n_runs ? runs[n_runs - 1].at + k3_io_room(runs[n_runs - 1].bytes) : 0;
}

static uint64_t round64(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static uint64_t code_bytes(const k3_mat *mat)
{
    return round64((uint64_t)mat->rows * k3_type_row_bytes(mat->type, mat->cols));
}

static uint64_t scale_bytes(const k3_mat *mat)
{
    return round64((uint64_t)mat->rows * k3_type_scale_bytes(mat->type, mat->cols));
}

uint64_t k3_trunk_made(const k3_trunk_part *parts, int n)
{
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++)
        if (parts[i].is_converted)
            bytes += code_bytes(parts[i].mat) + scale_bytes(parts[i].mat);
    return bytes;
}

/* ---- open and close ------------------------------------------------------------------------------------------------ */

static k3_status take_item(k3_trunk_stream *s, k3_item *item, const k3_trunk_item *from, k3_error *err)
{
    size_t n = (size_t)from->n_parts;
    if (from->n_parts > MOST_RUNS)
        return k3_fail(err, K3_E_UNSUPPORTED, "layer %d: %d matrices, at most %d are supported", from->layer, from->n_parts,
                       (int)MOST_RUNS);
    item->layer = from->layer;
    item->n_parts = from->n_parts;
    item->parts = malloc((n + 1) * sizeof *item->parts);
    item->run_of = malloc((n + 1) * sizeof *item->run_of);
    item->runs = malloc((n + 1) * sizeof *item->runs);
    if (!item->parts || !item->run_of || !item->runs)
        return k3_fail(err, K3_E_NOMEM, "ring of layers: out of memory");
    memcpy(item->parts, from->parts, n * sizeof *item->parts);
    item->n_runs = runs_of(item->runs, item->run_of, item->parts, item->n_parts);
    for (int i = 0; i < item->n_runs; i++) {
        int *file = &s->files[item->runs[i].shard];
        if (*file < 0) {
            K3_TRY(k3_io_add_file(s->io, file, k3_ckpt_shard_path(s->config.ckpt, item->runs[i].shard), err));
            K3_TRY(k3_ckpt_check_shard(s->config.ckpt, item->runs[i].shard, err));
        }
        item->runs[i].file = *file;
    }
    return K3_OK;
}

static k3_status open_lane(k3_trunk_stream *s, k3_lane *lane, const k3_trunk_item *items, int n, k3_error *err)
{
    uint64_t made = 0;
    if (!n)
        return K3_OK;
    lane->items = calloc((size_t)n, sizeof *lane->items);
    if (!lane->items)
        return k3_fail(err, K3_E_NOMEM, "ring of layers: out of memory");
    lane->n_items = n;
    for (int i = 0; i < n; i++) {
        K3_TRY(take_item(s, &lane->items[i], &items[i], err));
        uint64_t room = k3_trunk_room(lane->items[i].parts, items[i].n_parts), one = k3_trunk_made(items[i].parts, items[i].n_parts);
        lane->slot_bytes = room > lane->slot_bytes ? room : lane->slot_bytes;
        made = one > made ? one : made;
    }
    lane->bytes = lane->slot_bytes * K3_TRUNK_SLOTS + made;
    void *at = mmap(NULL, (size_t)lane->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return k3_fail(err, K3_E_NOMEM, "ring of layers: no memory for %llu bytes: %s", (unsigned long long)lane->bytes, strerror(errno));
    lane->memory = at;
#ifdef MADV_HUGEPAGE
    (void)madvise(at, (size_t)lane->bytes, MADV_HUGEPAGE);
#endif
    lane->buf = s->config.be->memory->wrap(s->config.be, at, lane->bytes, "streamed layers");
    if (!lane->buf)
        return s->config.be->sync(s->config.be, err);
    k3_io_add_memory(s->io, at, lane->slot_bytes * K3_TRUNK_SLOTS);
    return K3_OK;
}

/* Reads that can be begun and not yet collected: what fills all slots. */
static int most_reads(const k3_trunk_stream *s)
{
    int n = 0;
    for (int i = 0; i < K3_TRUNK_LANES; i++) {
        int most = 0;
        for (int k = 0; k < s->lanes[i].n_items; k++)
            most = s->lanes[i].items[k].n_runs > most ? s->lanes[i].items[k].n_runs : most;
        n += most * K3_TRUNK_SLOTS;
    }
    return n;
}

static k3_status open_all(k3_trunk_stream *s, k3_error *err)
{
    const k3_trunk_config *c = &s->config;
    int n_shards = k3_ckpt_n_shards(c->ckpt);
    s->files = malloc((size_t)n_shards * sizeof *s->files);
    if (!s->files)
        return k3_fail(err, K3_E_NOMEM, "ring of layers: out of memory");
    for (int i = 0; i < n_shards; i++)
        s->files[i] = -1;
    K3_TRY(k3_io_open(&s->io, &(k3_io_config){.kind = K3_IO_AUTO, .meter = c->meter}, err));
    K3_TRY(open_lane(s, &s->lanes[K3_TRUNK_LAYERS], c->layers, c->n_layers, err));
    K3_TRY(open_lane(s, &s->lanes[K3_TRUNK_HEAD], c->head, c->n_blocks, err));
    K3_TRY(k3_io_reserve(s->io, most_reads(s), err));
    return k3_trunk_begin(s, 0, err);
}

k3_status k3_trunk_open(k3_trunk_stream **out, const k3_trunk_config *config, k3_error *err)
{
    *out = NULL;
    k3_trunk_stream *s = calloc(1, sizeof *s);
    if (!s)
        return k3_fail(err, K3_E_NOMEM, "ring of layers: out of memory");
    s->config = *config;
    k3_status status = open_all(s, err);
    if (status != K3_OK) {
        k3_trunk_close(s);
        return status;
    }
    *out = s;
    return K3_OK;
}

void k3_trunk_close(k3_trunk_stream *s)
{
    if (!s)
        return;
    k3_io_close(s->io);
    for (int i = 0; i < K3_TRUNK_LANES; i++) {
        k3_lane *lane = &s->lanes[i];
        if (lane->buf)
            s->config.be->memory->release(s->config.be, lane->buf);
        if (lane->memory)
            munmap(lane->memory, (size_t)lane->bytes);
        for (int k = 0; k < lane->n_items; k++) {
            free(lane->items[k].parts);
            free(lane->items[k].run_of);
            free(lane->items[k].runs);
        }
        free(lane->items);
    }
    free(s->files);
    free(s);
}

/* ---- reading -------------------------------------------------------------------------------------------------------- */

static k3_item *item_at(const k3_lane *lane, uint64_t number)
{
    return &lane->items[number % (uint64_t)lane->n_items];
}

static k3_slot *slot_at(k3_lane *lane, uint64_t number)
{
    return &lane->slots[number % K3_TRUNK_SLOTS];
}

static char *memory_at(const k3_lane *lane, uint64_t number)
{
    return lane->memory + number % K3_TRUNK_SLOTS * lane->slot_bytes;
}

static int may_read(const k3_lane *lane)
{
    return lane->n_items && lane->n_read < lane->end && lane->n_read - lane->n_free < K3_TRUNK_SLOTS;
}

static k3_status start_read(k3_trunk_stream *s, int i_lane, k3_error *err)
{
    k3_lane *lane = &s->lanes[i_lane];
    const k3_item *item = item_at(lane, lane->n_read);
    k3_slot *slot = slot_at(lane, lane->n_read);
    k3_io_read reads[MOST_RUNS];
    for (int i = 0; i < item->n_runs; i++)
        reads[i] = (k3_io_read){.file = item->runs[i].file,
                                .offset = item->runs[i].offset,
                                .bytes = item->runs[i].bytes,
                                .dst = memory_at(lane, lane->n_read) + item->runs[i].at,
                                .tag = (uint64_t)(i_lane * K3_TRUNK_SLOTS + (int)(slot - lane->slots))};
    K3_TRY(k3_io_submit(s->io, reads, item->n_runs, err));
    slot->n_missing = item->n_runs;
    slot->status = K3_OK;
    for (int i = 0; i < item->n_runs; i++) {
        slot->lead[i] = reads[i].lead;
        s->stat.bytes += reads[i].bytes;
    }
    s->stat.reads += (uint64_t)item->n_runs;
    lane->n_read++;
    return K3_OK;
}

/* Begins the reads that there is room for, in the order of use: the layers of this pass, the head if it is wanted, the next pass. */
static k3_status start_reads(k3_trunk_stream *s, k3_error *err)
{
    k3_lane *layers = &s->lanes[K3_TRUNK_LAYERS], *head = &s->lanes[K3_TRUNK_HEAD];
    for (;;) {
        while (may_read(layers))
            K3_TRY(start_read(s, K3_TRUNK_LAYERS, err));
        if (layers->n_read < layers->end)
            return K3_OK;
        while (may_read(head))
            K3_TRY(start_read(s, K3_TRUNK_HEAD, err));
        if (head->n_read < head->end)
            return K3_OK;
        layers->end = UINT64_MAX;
    }
}

static void collect(k3_trunk_stream *s, int block)
{
    k3_io_done done[COLLECT];
    int n = k3_io_collect(s->io, done, COLLECT, block);
    for (int i = 0; i < n; i++) {
        k3_slot *slot = &s->lanes[done[i].tag / K3_TRUNK_SLOTS].slots[done[i].tag % K3_TRUNK_SLOTS];
        slot->n_missing--;
        if (done[i].status != K3_OK && slot->status == K3_OK) {
            slot->status = done[i].status;
            memcpy(slot->text, done[i].text, sizeof slot->text);
        }
    }
}

/* Between two passes everything that was waited for has been given back, and every item was used equally often. */
static int is_in_step(k3_lane *lane)
{
    if (!lane->n_items)
        return 1;
    for (uint64_t i = lane->n_free; i < lane->n_read; i++)
        if (slot_at(lane, i)->status != K3_OK)
            return 0;
    return lane->n_used == lane->n_free && lane->n_used % (uint64_t)lane->n_items == 0;
}

static void start_over(k3_trunk_stream *s)
{
    while (k3_io_pending(s->io, NULL) > 0)
        collect(s, 1);
    for (int i = 0; i < K3_TRUNK_LANES; i++)
        s->lanes[i].n_read = s->lanes[i].n_used = s->lanes[i].n_free = 0;
}

k3_status k3_trunk_begin(k3_trunk_stream *s, int wants_head, k3_error *err)
{
    k3_lane *layers = &s->lanes[K3_TRUNK_LAYERS], *head = &s->lanes[K3_TRUNK_HEAD];
    collect(s, 0);
    if (!is_in_step(layers) || !is_in_step(head))
        start_over(s);
    layers->end = layers->n_used + (uint64_t)layers->n_items;
    head->end = wants_head ? head->n_used + (uint64_t)head->n_items : head->n_read;
    return start_reads(s, err);
}

/* ---- use -------------------------------------------------------------------------------------------------------------- */

/* Sets the places of an item's matrices: in its slot, or where they are converted to. */
static k3_status place_parts(k3_trunk_stream *s, k3_lane *lane, k3_item *item, const k3_slot *slot, k3_error *err)
{
    uint64_t base = (uint64_t)(memory_at(lane, lane->n_used) - lane->memory), made = lane->slot_bytes * K3_TRUNK_SLOTS;
    for (int i = 0; i < item->n_parts; i++) {
        const k3_trunk_part *part = &item->parts[i];
        const k3_run_of_parts *run = &item->runs[item->run_of[i]];
        uint64_t at = base + run->at + slot->lead[item->run_of[i]] + (part->tensor->offset + part->at - run->offset);
        *(part->is_scale ? &part->mat->scale : &part->mat->data) = (k3_ref){lane->buf, part->is_converted ? made : at};
        if (part->is_converted) {
            made += code_bytes(part->mat);
            part->mat->scale = (k3_ref){lane->buf, made};
            made += scale_bytes(part->mat);
        }
        if (part->is_converted || !item->is_checked)
            K3_TRY(s->config.take(s->config.user, part, lane->memory + at, err));
    }
    item->is_checked = 1;
    return K3_OK;
}

k3_status k3_trunk_wait(k3_trunk_stream *s, k3_trunk_lane i_lane, k3_error *err)
{
    k3_lane *lane = &s->lanes[i_lane];
    K3_TRY(start_reads(s, err));
    k3_item *item = item_at(lane, lane->n_used);
    const k3_slot *slot = slot_at(lane, lane->n_used);
    collect(s, 0);
    if (slot->n_missing) {
        uint64_t start = k3_os_nanoseconds();
        while (slot->n_missing)
            collect(s, 1);
        s->stat.wait_ns += k3_os_nanoseconds() - start;
    }
    if (slot->status != K3_OK && item->layer < 0)
        return k3_fail(err, slot->status, "head: %s", slot->text);
    if (slot->status != K3_OK)
        return k3_fail(err, slot->status, "layer %d: %s", item->layer, slot->text);
    K3_TRY(place_parts(s, lane, item, slot, err));
    lane->n_used++;
    return K3_OK;
}

void k3_trunk_done(k3_trunk_stream *s, k3_trunk_lane lane)
{
    s->lanes[lane].n_free = s->lanes[lane].n_used;
    (void)start_reads(s, NULL); /* what could not begin now begins, or fails, at the next wait */
}

/* ---- figures ---------------------------------------------------------------------------------------------------------- */

k3_io *k3_trunk_io(k3_trunk_stream *s)
{
    return s->io;
}

uint64_t k3_trunk_bytes(const k3_trunk_stream *s)
{
    return s->lanes[K3_TRUNK_LAYERS].bytes + s->lanes[K3_TRUNK_HEAD].bytes;
}

void k3_trunk_stats(k3_trunk_stream *s, k3_trunk_stat *out, int reset)
{
    k3_io_stats(s->io, &s->stat.io, reset);
    *out = s->stat;
    if (reset)
        s->stat = (k3_trunk_stat){0};
}

const char *k3_trunk_notice(k3_trunk_stream *s)
{
    return k3_io_notice(s->io);
}
