#include "store/experts.h"

#include "backend/args/moe.h"
#include "store/expert_file.h"
#include "store/policy.h"
#include "store/slots.h"
#include "store/views.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* An expert that is on no device is brought into a slot at once if that many rows of the pass want it: from there on reading its codes once
 * for the CPU's slower arithmetic costs more than sending them. Otherwise the CPU computes it, and at most K3_PROMOTIONS a layer and pass
 * follow into slots afterwards, so that no single token waits for many. */
enum { K3_UPLOAD_ROWS = 8, K3_PROMOTIONS = 2 };

typedef struct k3_map {
    void *at;
    uint64_t bytes;
} k3_map;

struct k3_experts {
    const k3_ckpt *ckpt;
    const k3_hparams *hp;
    k3_backend *main;
    k3_tier tiers[K3_MAX_TIERS];
    int n_tiers, i_main;
    int n_experts; /* of all MoE layers */

    /* The CPU's: slots in the host's memory, opened when the CPU has something to compute. */
    k3_stream *stream;
    uint64_t ram; /* bytes of them */
    uint64_t slot_bytes;
    k3_io_meter *meter;
    k3_io *beside;

    /* The devices': the policy's items are layer * E + id. */
    k3_policy *policy;
    k3_slots slots;
    void *stage; /* one tensor on its way to a device that shows the host nothing */
    uint64_t uploaded;

    k3_map *maps;            /* by shard, where the main device reads the files in place */
    k3_views *views;         /* of them */
    k3_expert *viewed;       /* [layer * E + id] in them, or NULL */
    const k3_expert **whole; /* [layer * E + id] if the main device has all of them, else NULL */
    k3_buf *addresses;       /* k3_expert_address, in the same order */

    /* The layer at hand. */
    int layer, n_wanted, n_on_cpu;
    int32_t *wanted; /* [n_wanted] ids, each once */
    int32_t *on_cpu; /* [n_on_cpu] those of them that the CPU computes */
    int32_t *rows;   /* [E]: rows that want it */

    /* A guess of a layer. */
    int32_t *guessed; /* ids, each once */
    int32_t *votes;   /* [E]: ranks from the last, summed over the rows that are expected to want it */
};

static size_t item_of(const k3_experts *x, int layer, int id)
{
    return (size_t)layer * (size_t)x->hp->n_experts + (size_t)id;
}

static k3_tier *cpu_tier(k3_experts *x)
{
    return &x->tiers[x->n_tiers - 1];
}

/* ---- opening ------------------------------------------------------------------------------------------------------ */

static k3_status add_tier(k3_experts *x, k3_backend *be, k3_error *err)
{
    const k3_expert **view = calloc((size_t)x->hp->n_experts + 1, sizeof *view);
    unsigned char *mine = calloc((size_t)x->hp->n_experts + 1, 1);
    if (!view || !mine) {
        free(view);
        free(mine);
        if (be != x->main)
            be->close(be);
        return k3_fail(err, K3_E_NOMEM, "expert table: out of memory");
    }
    x->tiers[x->n_tiers++] = (k3_tier){.be = be, .view = view, .mine = mine};
    return K3_OK;
}

static k3_status open_device(k3_experts *x, const char *name, size_t n, const k3_experts_config *config, k3_error *err)
{
    char text[300];
    k3_backend_config backend = config->backend;
    k3_backend *be;
    if (!n || n >= sizeof text || x->n_tiers == K3_MAX_TIERS - 1)
        return k3_fail(err, K3_E_INVALID, "expert devices \"%s\": 1 to %d names separated by commas wanted", config->devices,
                       K3_MAX_TIERS - 2);
    snprintf(text, sizeof text, "%.*s", (int)n, name);
    backend.name = text;
    k3_status status = config->open(&be, &backend, NULL, 0, err);
    if (status != K3_OK)
        return k3_fail_within(err, status, "expert devices: ");
    if (!be->is_device) {
        be->close(be);
        return k3_fail(err, K3_E_INVALID, "expert devices: \"%s\" is no device; the CPU computes what devices do not hold anyway", text);
    }
    return add_tier(x, be, err);
}

static k3_status open_tiers(k3_experts *x, const k3_experts_config *config, k3_error *err)
{
    k3_backend *cpu = x->main;
    if (x->main->is_device)
        K3_TRY(add_tier(x, x->main, err));
    for (const char *at = config->devices; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        K3_TRY(open_device(x, at, strcspn(at, ","), config, err));
    if (x->main->is_device)
        K3_TRY(k3_cpu_open(&cpu, NULL, &config->backend, err));
    x->i_main = x->main->is_device ? 0 : x->n_tiers;
    return add_tier(x, cpu, err);
}

static k3_status open_all(k3_experts *x, const k3_experts_config *config, k3_error *err)
{
    size_t E = (size_t)x->hp->n_experts, n = (size_t)x->hp->n_layers * E;
    K3_TRY(open_tiers(x, config, err));
    x->slots.hp = x->hp;
    x->wanted = calloc(E + 1, sizeof *x->wanted);
    x->on_cpu = calloc(E + 1, sizeof *x->on_cpu);
    x->rows = calloc(E + 1, sizeof *x->rows);
    x->guessed = calloc(E + 1, sizeof *x->guessed);
    x->votes = calloc(E + 1, sizeof *x->votes);
    if (!x->wanted || !x->on_cpu || !x->rows || !x->guessed || !x->votes)
        return k3_fail(err, K3_E_NOMEM, "expert table: out of memory for %zu experts", n);
    for (int l = 0; l < x->hp->n_layers; l++)
        x->n_experts += x->hp->is_moe[l] ? x->hp->n_experts : 0;
    x->meter = config->meter;
    x->slot_bytes = config->slot_bytes || !x->n_experts ? config->slot_bytes : k3_stream_slot_bytes(x->ckpt);
    return k3_policy_open(&x->policy, x->hp->n_layers, x->hp->n_experts, 0, err);
}

k3_status k3_experts_open(k3_experts **out, const k3_ckpt *ckpt, k3_backend *main, const k3_experts_config *config, k3_error *err)
{
    *out = NULL;
    k3_experts *x = calloc(1, sizeof *x);
    if (!x)
        return k3_fail(err, K3_E_NOMEM, "expert table: out of memory");
    x->ckpt = ckpt;
    x->hp = k3_ckpt_hparams(ckpt);
    x->main = main;
    x->beside = config->beside;
    k3_status status = open_all(x, config, err);
    if (status != K3_OK) {
        k3_experts_close(x);
        return status;
    }
    *out = x;
    return K3_OK;
}

static void close_views(k3_experts *x)
{
    for (int i = 0; i < k3_ckpt_n_shards(x->ckpt); i++) {
        if (x->views)
            k3_views_close(&x->views[i]);
        if (x->maps && x->maps[i].at)
            munmap(x->maps[i].at, (size_t)x->maps[i].bytes);
    }
    free(x->views);
    free(x->viewed);
    free(x->maps);
    x->views = NULL;
    x->viewed = NULL;
    x->maps = NULL;
}

void k3_experts_close(k3_experts *x)
{
    if (!x)
        return;
    k3_slots_close(&x->slots);
    if (x->addresses)
        x->main->memory->release(x->main, x->addresses);
    close_views(x);
    k3_stream_close(x->stream);
    for (int i = 0; i < x->n_tiers; i++) {
        if (x->tiers[i].be != x->main)
            x->tiers[i].be->close(x->tiers[i].be);
        free(x->tiers[i].view);
        free(x->tiers[i].mine);
    }
    k3_policy_close(x->policy);
    free(x->stage);
    free(x->wanted);
    free(x->on_cpu);
    free(x->rows);
    free(x->guessed);
    free(x->votes);
    free(x->whole);
    free(x);
}

k3_tier *k3_experts_tiers(k3_experts *x, int *n, int *i_main)
{
    *n = x->n_tiers;
    *i_main = x->i_main;
    return x->tiers;
}

/* ---- slots ---------------------------------------------------------------------------------------------------------- */

/* One tensor from its file to its place: straight into pages that the device sees, or by way of the stage. *host: where the host sees it.
 */
static k3_status bring_tensor(k3_experts *x, k3_backend *be, const k3_mat *to, int scales, const k3_tensor_info *from, void **host,
                              k3_error *err)
{
    uint64_t bytes;
    void *shown = k3_slots_host(be, to, scales, &bytes);
    if (!shown && !x->stage && !(x->stage = malloc((size_t)k3_experts_one_bytes(x->hp))))
        return k3_fail(err, K3_E_NOMEM, "experts: no memory for %llu bytes on their way", (unsigned long long)k3_experts_one_bytes(x->hp));
    *host = shown ? shown : x->stage;
    K3_TRY(k3_ckpt_read(x->ckpt, *host, from, 0, bytes, err));
    if (!shown)
        be->memory->upload(be, scales ? to->scale : to->data, x->stage, bytes);
    return K3_OK;
}

static k3_status bring_expert(k3_experts *x, k3_backend *be, k3_expert *to, int layer, int id, k3_error *err)
{
    for (int i = 0; i < K3_EXPERT_MATRICES; i++) {
        void *host;
        k3_mat *mat = k3_expert_mat(to, i);
        K3_TRY(bring_tensor(x, be, mat, 0, k3_expert_tensor(x->ckpt, layer, id, 2 * i), &host, err));
        K3_TRY(bring_tensor(x, be, mat, 1, k3_expert_tensor(x->ckpt, layer, id, 2 * i + 1), &host, err));
        K3_TRY(k3_expert_check_scales(host, mat, layer, id, i, err));
    }
    return K3_OK;
}

/* A slot that cannot be filled holds nothing. */
static k3_status fill_slot(k3_experts *x, int slot, int layer, int id, k3_error *err)
{
    k3_status status = bring_expert(x, x->tiers[x->slots.tier[slot]].be, &x->slots.experts[slot], layer, id, err);
    if (status == K3_OK)
        x->uploaded += k3_experts_one_bytes(x->hp);
    else
        k3_policy_drop(x->policy, (int)item_of(x, layer, id));
    return status;
}

/* Every expert, layer by layer. */
static k3_status fill_all(k3_experts *x, k3_progress progress, void *user, k3_error *err)
{
    uint64_t done = 0, one = k3_experts_one_bytes(x->hp);
    for (int l = 0; l < x->hp->n_layers; l++)
        for (int id = 0; x->hp->is_moe[l] && id < x->hp->n_experts; id++, done++) {
            if (progress && progress(user, "loading experts", done * one, (uint64_t)x->n_experts * one))
                return k3_fail(err, K3_E_CANCELLED, "loading was cancelled");
            K3_TRY(fill_slot(x, k3_policy_take(x->policy, (int)item_of(x, l, id), 1), l, id, err));
        }
    for (int i = 0; i < x->n_tiers; i++)
        K3_TRY(x->tiers[i].be->sync(x->tiers[i].be, err));
    return K3_OK;
}

static uint64_t address_of(k3_ref ref)
{
    return ref.buf->address + ref.at;
}

/* Where the main device has an item; NULL where it has not. */
static const k3_expert *on_main(const k3_experts *x, size_t item)
{
    int slot = x->viewed ? -1 : k3_policy_find(x->policy, (int)item);
    return x->viewed && x->viewed[item].w1.rows ? &x->viewed[item] : slot >= 0 ? &x->slots.experts[slot] : NULL;
}

/* The table of addresses, so that the router's choice need not leave the device. */
static k3_status tell_addresses(k3_experts *x, k3_error *err)
{
    size_t n = (size_t)x->hp->n_layers * (size_t)x->hp->n_experts;
    struct k3_expert_address *table = calloc(n, sizeof *table);
    x->whole = calloc(n, sizeof *x->whole);
    x->addresses = x->main->memory->alloc(x->main, n * sizeof *table, "addresses of experts");
    if (table && x->whole && x->addresses) {
        for (size_t i = 0; i < n; i++) {
            const k3_expert *e = x->whole[i] = on_main(x, i);
            if (e)
                table[i] = (struct k3_expert_address){address_of(e->w1.data),  address_of(e->w1.scale), address_of(e->w3.data),
                                                      address_of(e->w3.scale), address_of(e->w2.data),  address_of(e->w2.scale)};
        }
        x->main->memory->upload(x->main, (k3_ref){x->addresses, 0}, table, n * sizeof *table);
    }
    k3_status status = x->main->sync(x->main, err);
    if (status == K3_OK && !(table && x->whole && x->addresses))
        status = k3_fail(err, K3_E_NOMEM, "expert table: out of memory for %zu experts", n);
    free(table);
    return status;
}

/* Slots that the free memory of a device has room for. */
static int room_for(const k3_experts *x, k3_backend *be, uint64_t keep_free)
{
    k3_memory_info info = {0};
    uint64_t one = k3_slots_one_bytes(x->hp), table = sizeof(struct k3_expert_address) * item_of(x, x->hp->n_layers, 0);
    be->memory->info(be, &info);
    if (!info.budget)
        return x->n_experts;
    uint64_t room = info.budget > info.used ? info.budget - info.used : 0;
    keep_free += table;
    uint64_t n = room > keep_free ? (room - keep_free) / one : 0;
    return n < (uint64_t)x->n_experts ? (int)n : x->n_experts;
}

/* ---- files read in place ------------------------------------------------------------------------------------------ */

/* At a multiple of K3_VIEW_ALIGN, which may be more than the page here: room is taken first, and the file put into it. */
static void *map_aligned(int fd, size_t bytes)
{
    char *room = mmap(NULL, bytes + K3_VIEW_ALIGN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return NULL;
    char *at = room + (K3_VIEW_ALIGN - (uintptr_t)room % K3_VIEW_ALIGN) % K3_VIEW_ALIGN;
    if (at > room)
        munmap(room, (size_t)(at - room));
    if (at < room + K3_VIEW_ALIGN)
        munmap(at + bytes, (size_t)(room + K3_VIEW_ALIGN - at));
    if (mmap(at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED)
        return at;
    munmap(at, bytes);
    return NULL;
}

static uint64_t mapped_bytes(uint64_t bytes)
{
    return (bytes + K3_VIEW_ALIGN - 1) / K3_VIEW_ALIGN * K3_VIEW_ALIGN;
}

/* Bytes of the files that hold experts, if their tensors lie where vector loads can begin; else UINT64_MAX. */
static uint64_t bytes_in_place(const k3_experts *x)
{
    uint64_t bytes = 0;
    for (int i = 0; i < k3_ckpt_n_shards(x->ckpt); i++)
        bytes += mapped_bytes(k3_ckpt_shard_bytes(x->ckpt, i));
    for (int l = 0; l < x->hp->n_layers; l++)
        for (int id = 0; x->hp->is_moe[l] && id < x->hp->n_experts; id++)
            for (int i = 0; i < K3_EXPERT_MATRICES; i++)
                if (k3_expert_tensor(x->ckpt, l, id, 2 * i)->offset % 16 || k3_expert_tensor(x->ckpt, l, id, 2 * i + 1)->offset % 4)
                    return UINT64_MAX;
    return bytes;
}

static int open_views(k3_experts *x)
{
    int n = k3_ckpt_n_shards(x->ckpt);
    uint64_t tensor = (uint64_t)x->hp->expert_inner * (uint64_t)(x->hp->latent ? x->hp->latent : x->hp->hidden) / 2;
    x->maps = calloc((size_t)n, sizeof *x->maps);
    x->views = calloc((size_t)n, sizeof *x->views);
    x->viewed = calloc(item_of(x, x->hp->n_layers, 0) + 1, sizeof *x->viewed);
    for (int i = 0; i < n; i++) {
        if (!x->maps || !x->views || !x->viewed)
            return 0;
        x->maps[i].bytes = mapped_bytes(k3_ckpt_shard_bytes(x->ckpt, i));
        x->maps[i].at = map_aligned(k3_ckpt_shard_fd(x->ckpt, i), (size_t)x->maps[i].bytes);
        if (!x->maps[i].at || !k3_views_open(&x->views[i], x->main, x->maps[i].at, x->maps[i].bytes, tensor))
            return 0;
    }
    return 1;
}

/* An expert as the device sees it, its scales checked in the file. */
static k3_status view_expert(k3_experts *x, int layer, int id, k3_error *err)
{
    for (int i = 0; i < K3_EXPERT_MATRICES; i++) {
        const k3_tensor_info *w = k3_expert_tensor(x->ckpt, layer, id, 2 * i), *s = k3_expert_tensor(x->ckpt, layer, id, 2 * i + 1);
        k3_mat *mat = k3_expert_mat(&x->viewed[item_of(x, layer, id)], i);
        *mat = (k3_mat){K3_MXFP4,
                        (int)w->shape[0],
                        (int)w->shape[1] * 2,
                        k3_views_ref(&x->views[w->shard], w->offset),
                        k3_views_ref(&x->views[s->shard], s->offset),
                        0};
        K3_TRY(k3_expert_check_scales((const unsigned char *)x->maps[s->shard].at + s->offset, mat, layer, id, i, err));
    }
    return K3_OK;
}

/* A device that shares the host's memory reads the files where they are mapped, if all of them fit what it may use: nothing is copied.
 * *done is 0 where that cannot be. */
static k3_status view_files(k3_experts *x, uint64_t keep_free, int *done, k3_error *err)
{
    k3_memory_info info = {0};
    *done = 0;
    if (!x->main->shares_memory || x->n_tiers > 2 || !x->n_experts)
        return K3_OK;
    x->main->memory->info(x->main, &info);
    uint64_t room = info.budget > info.used ? info.budget - info.used : 0, needed = bytes_in_place(x);
    keep_free += sizeof(struct k3_expert_address) * item_of(x, x->hp->n_layers, 0);
    if (needed == UINT64_MAX || room < keep_free || needed > room - keep_free)
        return K3_OK;
    if (!open_views(x)) {
        close_views(x);
        return K3_OK;
    }
    for (int l = 0; l < x->hp->n_layers; l++)
        for (int id = 0; x->hp->is_moe[l] && id < x->hp->n_experts; id++)
            K3_TRY(view_expert(x, l, id, err));
    *done = 1;
    return tell_addresses(x, err);
}

/* ---- loading -------------------------------------------------------------------------------------------------------- */

int k3_experts_room(const k3_experts *x)
{
    uint64_t n = x->slot_bytes ? x->ram / x->slot_bytes : 0;
    return n > (uint64_t)x->n_experts ? x->n_experts : n ? (int)n : 1;
}

/* The CPU's slots. */
static k3_status open_stream(k3_experts *x, k3_error *err)
{
    k3_stream_config config = {x->ckpt, cpu_tier(x)->be, k3_experts_room(x), x->slot_bytes, x->meter, x->beside};
    return x->stream ? K3_OK : k3_stream_open(&x->stream, &config, err);
}

static k3_status add_slots(k3_experts *x, uint64_t keep_free, k3_error *err)
{
    for (int i = 0; i < x->n_tiers - 1 && x->slots.n < x->n_experts; i++) {
        int missing = x->n_experts - x->slots.n, before = x->slots.n, room = room_for(x, x->tiers[i].be, i == x->i_main ? keep_free : 0);
        K3_TRY(k3_slots_add(&x->slots, x->tiers[i].be, i, room < missing ? room : missing, err));
        x->tiers[i].n_slots = x->slots.n - before;
    }
    return K3_OK;
}

k3_status k3_experts_load(k3_experts *x, uint64_t keep_free, uint64_t ram, k3_progress progress, void *user, k3_error *err)
{
    int in_place;
    x->ram = ram;
    K3_TRY(view_files(x, keep_free, &in_place, err));
    if (in_place)
        return K3_OK;
    K3_TRY(add_slots(x, keep_free, err));
    k3_policy_close(x->policy);
    K3_TRY(k3_policy_open(&x->policy, x->hp->n_layers, x->hp->n_experts, x->slots.n, err));
    if (!x->n_experts)
        return K3_OK;
    if (x->slots.n < x->n_experts)
        return open_stream(x, err);
    K3_TRY(fill_all(x, progress, user, err));
    return x->tiers[x->i_main].n_slots == x->n_experts ? tell_addresses(x, err) : K3_OK;
}

/* ---- what was used before ------------------------------------------------------------------------------------------------ */

static k3_usage usage_of(const k3_experts *x, uint64_t model)
{
    return (k3_usage){model, x->hp->n_layers, x->hp->n_experts};
}

k3_status k3_experts_remember(k3_experts *x, uint64_t model, const char *path, k3_error *err)
{
    k3_usage of = usage_of(x, model);
    K3_TRY(k3_usage_load(x->policy, &of, path, err));
    return x->stream ? k3_stream_remember(x->stream, &of, path, err) : K3_OK;
}

k3_status k3_experts_keep(const k3_experts *x, uint64_t model, const char *path, k3_error *err)
{
    k3_usage of = usage_of(x, model);
    return k3_usage_save(x->policy, &of, path, err);
}

static int rising(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static k3_status fill_devices(k3_experts *x, const int *items, int n, k3_error *err)
{
    int E = x->hp->n_experts;
    for (int i = 0; i < n; i++)
        K3_TRY(fill_slot(x, k3_policy_take(x->policy, items[i], 1), items[i] / E, items[i] % E, err));
    for (int i = 0; i < x->n_tiers; i++)
        K3_TRY(x->tiers[i].be->sync(x->tiers[i].be, err));
    return K3_OK;
}

static k3_status fill_stream(k3_experts *x, const int *items, int n, k3_progress progress, void *user, k3_error *err)
{
    int E = x->hp->n_experts;
    uint64_t one = k3_experts_one_bytes(x->hp);
    for (int i = 0, n_ids = 0; i < n; i += n_ids) {
        if (progress && progress(user, "loading experts", (uint64_t)i * one, (uint64_t)n * one))
            return k3_fail(err, K3_E_CANCELLED, "loading was cancelled");
        for (n_ids = 0; i + n_ids < n && items[i + n_ids] / E == items[i] / E; n_ids++)
            x->on_cpu[n_ids] = items[i + n_ids] % E;
        K3_TRY(k3_stream_fill(x->stream, items[i] / E, x->on_cpu, n_ids, err));
    }
    return K3_OK;
}

k3_status k3_experts_fill(k3_experts *x, k3_progress progress, void *user, k3_error *err)
{
    if (!x->stream) /* the devices have all */
        return K3_OK;
    k3_usage of = usage_of(x, 0);
    int unused, n = x->slots.n + k3_stream_slots(x->stream, &unused), n_items = (int)item_of(x, x->hp->n_layers, 0);
    n = n < n_items ? n : n_items;
    int *items = malloc(((size_t)n + 1) * sizeof *items);
    if (!items)
        return k3_fail(err, K3_E_NOMEM, "expert table: out of memory for %d experts", n);
    k3_status status = k3_usage_most(x->policy, &of, items, &n, err);
    int n_devices = x->slots.n < n ? x->slots.n : n;
    if (status == K3_OK) {
        qsort(items, (size_t)n_devices, sizeof *items, rising);
        qsort(items + n_devices, (size_t)(n - n_devices), sizeof *items, rising);
        status = fill_devices(x, items, n_devices, err);
    }
    if (status == K3_OK)
        status = fill_stream(x, items + n_devices, n - n_devices, progress, user, err);
    free(items);
    return status;
}

int k3_experts_shrink(k3_experts *x)
{
    int first, n;
    if (!x->tiers[x->i_main].n_slots || x->main->sync(x->main, NULL) != K3_OK || !k3_slots_release(&x->slots, x->i_main, &first, &n))
        return 0;
    k3_policy_cut(x->policy, first, n);
    x->tiers[x->i_main].n_slots -= n;
    free(x->whole);
    x->whole = NULL;
    return 1;
}

/* ---- a layer ---------------------------------------------------------------------------------------------------------- */

int k3_experts_whole(k3_experts *x, k3_moe *moe, int layer)
{
    if (!x->whole)
        return 0;
    moe->experts = x->whole + item_of(x, layer, 0);
    moe->table = (k3_ref){x->addresses, sizeof(struct k3_expert_address) * item_of(x, layer, 0)};
    x->tiers[x->i_main].pairs += (uint64_t)moe->T * (uint64_t)moe->K;
    return 1;
}

static void forget_layer(k3_experts *x)
{
    for (int i = 0; i < x->n_tiers; i++) {
        x->tiers[i].n_pairs = 0;
        for (int j = 0; j < x->n_wanted; j++)
            x->tiers[i].view[x->wanted[j]] = NULL, x->tiers[i].mine[x->wanted[j]] = 0;
    }
    for (int j = 0; j < x->n_wanted; j++)
        x->rows[x->wanted[j]] = 0;
    x->n_wanted = x->n_on_cpu = 0;
}

/* What the layer wants, each id once, in order of first appearance. */
static k3_status collect(k3_experts *x, const int32_t *ids, int n, k3_error *err)
{
    for (int i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= x->hp->n_experts)
            return k3_fail(err, K3_E_INVALID, "layer %d: expert %d asked for, 0 to %d exist", x->layer, ids[i], x->hp->n_experts - 1);
        if (!x->rows[ids[i]]++)
            x->wanted[x->n_wanted++] = ids[i];
    }
    /* All uses come before any slot is taken: what this layer wants makes no room. */
    k3_policy_step(x->policy, x->layer);
    for (int i = 0; i < x->n_wanted; i++)
        (void)k3_policy_use(x->policy, (int)item_of(x, x->layer, x->wanted[i]));
    return K3_OK;
}

/* *slot is -1 if there is none to be had. */
static k3_status bring(k3_experts *x, int id, int force, int *slot, k3_error *err)
{
    *slot = k3_policy_take(x->policy, (int)item_of(x, x->layer, id), force);
    return *slot < 0 ? K3_OK : fill_slot(x, *slot, x->layer, id, err);
}

k3_status k3_experts_assign(k3_experts *x, int layer, const int32_t *ids, int T, int K, k3_error *err)
{
    forget_layer(x);
    x->layer = layer;
    K3_TRY(collect(x, ids, T * K, err));
    for (int i = 0; i < x->n_wanted; i++) {
        int id = x->wanted[i], slot = k3_policy_find(x->policy, (int)item_of(x, layer, id));
        if (slot < 0 && x->rows[id] >= K3_UPLOAD_ROWS)
            K3_TRY(bring(x, id, 1, &slot, err));
        k3_tier *tier = slot < 0 ? cpu_tier(x) : &x->tiers[x->slots.tier[slot]];
        if (slot < 0)
            x->on_cpu[x->n_on_cpu++] = id;
        else
            tier->view[id] = &x->slots.experts[slot];
        tier->mine[id] = 1;
        tier->n_pairs += x->rows[id];
        tier->pairs += (uint64_t)x->rows[id];
    }
    if (!x->n_on_cpu)
        return K3_OK;
    K3_TRY(open_stream(x, err));
    return k3_stream_begin(x->stream, layer, x->on_cpu, x->n_on_cpu, err);
}

k3_status k3_experts_next(k3_experts *x, int *n, k3_error *err)
{
    *n = 0;
    return x->n_on_cpu ? k3_stream_next(x->stream, cpu_tier(x)->view, n, err) : K3_OK;
}

int k3_experts_may_guess(const k3_experts *x, int layer)
{
    return layer < x->hp->n_layers && x->hp->is_moe[layer] && x->stream && k3_stream_may_guess(x->stream, x->n_experts);
}

/* What most rows want comes first, and what a row likes best before the rest. */
static int vote(k3_experts *x, const int32_t *ids, int T, int K)
{
    int n = 0;
    for (int i = 0; i < T * K; i++) {
        if (ids[i] < 0 || ids[i] >= x->hp->n_experts)
            continue; /* of a row that is no number any more */
        if (!x->votes[ids[i]])
            x->guessed[n++] = ids[i];
        x->votes[ids[i]] += K - i % K;
    }
    return n;
}

static void sort_by_votes(k3_experts *x, int n)
{
    for (int i = 1; i < n; i++) {
        int32_t id = x->guessed[i];
        int at = i;
        for (; at && x->votes[x->guessed[at - 1]] < x->votes[id]; at--)
            x->guessed[at] = x->guessed[at - 1];
        x->guessed[at] = id;
    }
}

void k3_experts_guess(k3_experts *x, int layer, const int32_t *ids, int T, int K)
{
    int n = vote(x, ids, T, K), n_here = 0;
    sort_by_votes(x, n);
    for (int i = 0; i < n; i++) {
        x->votes[x->guessed[i]] = 0;
        if (k3_policy_find(x->policy, (int)item_of(x, layer, x->guessed[i])) < 0)
            x->guessed[n_here++] = x->guessed[i];
    }
    k3_stream_guess(x->stream, layer, x->guessed, n_here);
}

k3_status k3_experts_promote(k3_experts *x, k3_error *err)
{
    int left = x->slots.n ? K3_PROMOTIONS : 0;
    for (int i = 0, slot; i < x->n_on_cpu && left; i++) {
        K3_TRY(bring(x, x->on_cpu[i], 0, &slot, err));
        if (slot < 0)
            continue;
        k3_stream_forget(x->stream, x->on_cpu[i]);
        left--;
    }
    return K3_OK;
}

/* ---- figures ---------------------------------------------------------------------------------------------------------- */

static int n_slots_of(const k3_experts *x)
{
    int n = 0;
    for (int i = 0; i < x->n_tiers; i++)
        n += x->tiers[i].n_slots;
    return n;
}

void k3_experts_stream_stats(k3_experts *x, k3_stream_stat *out)
{
    *out = (k3_stream_stat){0};
    if (x->stream)
        k3_stream_stats(x->stream, out, 0);
}

const char *k3_experts_notice(const k3_experts *x)
{
    return x->stream ? k3_stream_notice(x->stream) : "";
}

static double percent(uint64_t part, uint64_t of)
{
    return of ? 100.0 * (double)part / (double)of : 0.0;
}

/* What the drive was asked for. */
static size_t report_stream(k3_experts *x, char *text, size_t at, size_t size, int reset)
{
    k3_stream_stat s;
    int used, n = x->stream ? k3_stream_slots(x->stream, &used) : 0;
    if (!x->stream)
        return at;
    k3_stream_stats(x->stream, &s, reset);
    if (at >= size)
        return at;
    double gb = (double)(s.io.bytes + s.io.guess_bytes) * 1e-9, busy = (double)(s.io.busy_ns + s.io.guess_busy_ns) * 1e-9;
    at += (size_t)snprintf(text + at, size - at,
                           "experts in memory: %d of %d slots used, hit rate %.1f %%; read %llu of them, %.3f GB in %.3f s of a busy "
                           "drive, %.2f GB/s; waited %.3f s; %s",
                           used, n, percent(s.hits, s.wanted), (unsigned long long)(s.io.reads + s.io.guesses), gb, busy,
                           busy > 0 ? gb / busy : 0.0, (double)s.wait_ns * 1e-9, k3_stream_describe(x->stream));
    if (s.guess_wanted && at < size)
        at +=
            (size_t)snprintf(text + at, size - at,
                             "experts foretold: %.1f %% of what the next layers chose; %llu read ahead, %.1f %% of them used by the layer "
                             "they were for; %.3f GB read as guesses that nobody had asked for yet\n",
                             percent(s.guess_right, s.guess_wanted), (unsigned long long)s.ahead, percent(s.ahead_used, s.ahead),
                             (double)s.io.guess_bytes * 1e-9);
    return at;
}

void k3_experts_report(k3_experts *x, char *text, size_t size, int reset)
{
    uint64_t all = 0, on_cpu = cpu_tier(x)->pairs;
    size_t at = 0;
    for (int i = 0; i < x->n_tiers; i++)
        all += x->tiers[i].pairs;
    if (size)
        *text = 0;
    for (int i = 0; i < x->n_tiers && all && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "experts on %s: %llu pairs, %.1f %%\n", x->tiers[i].be->name,
                               (unsigned long long)x->tiers[i].pairs, 100.0 * (double)x->tiers[i].pairs / (double)all);
    if (x->viewed && all && at < size)
        snprintf(text + at, size - at, "experts in device memory: all, where their files are mapped\n");
    else if (x->n_tiers > 1 && all && at < size)
        snprintf(text + at, size - at, "experts in device memory: %d of %d slots used, hit rate %.1f %%, uploaded %.3f GB, evicted %llu\n",
                 k3_policy_used(x->policy), n_slots_of(x), 100.0 * (double)(all - on_cpu) / (double)all, (double)x->uploaded * 1e-9,
                 (unsigned long long)k3_policy_evictions(x->policy));
    (void)report_stream(x, text, size ? strlen(text) : 0, size, reset);
    for (int i = 0; i < x->n_tiers && reset; i++)
        x->tiers[i].pairs = 0;
    if (reset)
        x->uploaded = 0;
}

void k3_experts_resident(const k3_experts *x, int *n_resident, int *n_slots, int *n_experts)
{
    *n_resident = x->viewed ? x->n_experts : k3_policy_used(x->policy);
    *n_slots = x->viewed ? x->n_experts : n_slots_of(x);
    *n_experts = x->n_experts;
}

uint64_t k3_experts_one_bytes(const k3_hparams *hp)
{
    uint64_t width = (uint64_t)(hp->latent ? hp->latent : hp->hidden), weights = 3 * width * (uint64_t)hp->expert_inner;
    return weights / 2 + weights / 32;
}

uint64_t k3_experts_slot_bytes(const k3_hparams *hp)
{
    return k3_slots_one_bytes(hp);
}
