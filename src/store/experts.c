#include "store/experts.h"

#include "backend/args/moe.h"
#include "store/residency.h"
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
    k3_buf *buf;
} k3_map;

struct k3_experts {
    const k3_ckpt *ckpt;
    const k3_hparams *hp;
    k3_backend *main;
    k3_tier tiers[K3_MAX_TIERS];
    int n_tiers, i_main;
    k3_map *maps;           /* by shard; at == NULL where no expert lives */
    k3_expert *mapped;      /* [layer * E + id], in the CPU tier's memory */
    unsigned char *checked; /* [layer * E + id] */
    int n_experts;          /* of all MoE layers */

    k3_residency *residency; /* items are layer * E + id */
    k3_slots slots;
    k3_views *views;         /* by shard, where the main device reads the mapped files in place */
    k3_expert *viewed;       /* [layer * E + id] in them, or NULL */
    const k3_expert **whole; /* [layer * E + id] if the main device has all of them, else NULL */
    k3_buf *addresses;       /* k3_expert_address, in the same order */
    uint64_t uploaded;

    /* The layer at hand. */
    int layer, n_wanted;
    int32_t *wanted; /* [n_wanted] ids, each once */
    int32_t *rows;   /* [E]: rows that want it */
};

static size_t item_of(const k3_experts *x, int layer, int id)
{
    return (size_t)layer * (size_t)x->hp->n_experts + (size_t)id;
}

static k3_tier *cpu_tier(k3_experts *x)
{
    return &x->tiers[x->n_tiers - 1];
}

/* ---- mapped shards --------------------------------------------------------------------------------------------- */

/* At a multiple of K3_VIEW_ALIGN, which may be more than a page: room is taken first, and the file put into it. */
static void *map_aligned(int fd, size_t bytes)
{
    char *room = mmap(NULL, bytes + K3_VIEW_ALIGN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return MAP_FAILED;
    char *at = room + (K3_VIEW_ALIGN - (uintptr_t)room % K3_VIEW_ALIGN) % K3_VIEW_ALIGN;
    if (at > room)
        munmap(room, (size_t)(at - room));
    if (at < room + K3_VIEW_ALIGN)
        munmap(at + bytes, (size_t)(room + K3_VIEW_ALIGN - at));
    void *mapped = mmap(at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    if (mapped == MAP_FAILED)
        munmap(at, bytes);
    return mapped;
}

static uint64_t mapped_bytes(uint64_t bytes)
{
    return (bytes + K3_VIEW_ALIGN - 1) / K3_VIEW_ALIGN * K3_VIEW_ALIGN;
}

static k3_status map_shard(k3_experts *x, int shard, k3_error *err)
{
    k3_map *map = &x->maps[shard];
    if (map->at)
        return K3_OK;
    uint64_t bytes = k3_ckpt_shard_bytes(x->ckpt, shard);
    if (bytes > SIZE_MAX - 2 * K3_VIEW_ALIGN)
        return k3_fail(err, K3_E_UNSUPPORTED, "%s: %llu bytes cannot be mapped by a 32-bit process", k3_ckpt_shard_path(x->ckpt, shard),
                       (unsigned long long)bytes);
    void *at = map_aligned(k3_ckpt_shard_fd(x->ckpt, shard), (size_t)mapped_bytes(bytes));
    if (at == MAP_FAILED)
        return k3_fail(err, K3_E_IO, "%s: cannot map %llu bytes: %s", k3_ckpt_shard_path(x->ckpt, shard), (unsigned long long)bytes,
                       strerror(errno));
    map->at = at;
    map->bytes = bytes;
    k3_backend *cpu = cpu_tier(x)->be;
    map->buf = cpu->memory->wrap(cpu, at, bytes, "routed experts");
    return map->buf ? K3_OK : cpu->sync(cpu, err);
}

static k3_status place(k3_experts *x, k3_mat *mat, k3_role codes, k3_role scale, int layer, int id, k3_error *err)
{
    const k3_tensor_info *w = k3_ckpt_role(x->ckpt, codes, layer, id), *s = k3_ckpt_role(x->ckpt, scale, layer, id);
    if (!w || !s)
        return k3_fail(err, K3_E_NOT_FOUND, "layer %d expert %d: no MXFP4 tensors", layer, id);
    K3_TRY(map_shard(x, w->shard, err));
    K3_TRY(map_shard(x, s->shard, err));
    *mat =
        (k3_mat){K3_MXFP4, (int)w->shape[0], (int)w->shape[1] * 2, {x->maps[w->shard].buf, w->offset}, {x->maps[s->shard].buf, s->offset}};
    return K3_OK;
}

static k3_status place_all(k3_experts *x, k3_error *err)
{
    const k3_hparams *hp = x->hp;
    for (int l = 0; l < hp->n_layers; l++)
        for (int id = 0; hp->is_moe[l] && id < hp->n_experts; id++, x->n_experts++) {
            k3_expert *e = &x->mapped[item_of(x, l, id)];
            K3_TRY(place(x, &e->w1, K3_R_W1, K3_R_W1_SCALE, l, id, err));
            K3_TRY(place(x, &e->w2, K3_R_W2, K3_R_W2_SCALE, l, id, err));
            K3_TRY(place(x, &e->w3, K3_R_W3, K3_R_W3_SCALE, l, id, err));
        }
    return K3_OK;
}

static k3_status check_scales(const unsigned char *scale, const k3_mat *mat, int layer, int id, const char *which, k3_error *err)
{
    size_t n = (size_t)mat->rows * (size_t)mat->cols / 32;
    const unsigned char *bad = memchr(scale, 255, n);
    if (!bad)
        return K3_OK;
    size_t i = (size_t)(bad - scale), per_row = (size_t)mat->cols / 32;
    return k3_fail(err, K3_E_FORMAT,
                   "layer %d expert %d %s: scale byte 255 (not a number in E8M0) at row %zu, block %zu; the file is damaged", layer, id,
                   which, i / per_row, i % per_row);
}

/* The scales of an expert in its file, once. */
static k3_status check(k3_experts *x, int layer, int id, k3_error *err)
{
    size_t item = item_of(x, layer, id);
    const k3_expert *e = &x->mapped[item];
    if (x->checked[item])
        return K3_OK;
    K3_TRY(check_scales(k3_host(e->w1.scale), &e->w1, layer, id, "w1", err));
    K3_TRY(check_scales(k3_host(e->w2.scale), &e->w2, layer, id, "w2", err));
    K3_TRY(check_scales(k3_host(e->w3.scale), &e->w3, layer, id, "w3", err));
    x->checked[item] = 1;
    return K3_OK;
}

/* ---- opening ------------------------------------------------------------------------------------------------------ */

static k3_status add_tier(k3_experts *x, k3_backend *be, k3_error *err)
{
    const k3_expert **view = calloc((size_t)x->hp->n_experts + 1, sizeof *view);
    if (!view) {
        if (be != x->main)
            be->close(be);
        return k3_fail(err, K3_E_NOMEM, "expert table: out of memory");
    }
    x->tiers[x->n_tiers++] = (k3_tier){.be = be, .view = view};
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
    x->maps = calloc((size_t)k3_ckpt_n_shards(x->ckpt), sizeof *x->maps);
    x->mapped = calloc(n + 1, sizeof *x->mapped);
    x->checked = calloc(n + 1, 1);
    x->wanted = calloc(E + 1, sizeof *x->wanted);
    x->rows = calloc(E + 1, sizeof *x->rows);
    if (!x->maps || !x->mapped || !x->checked || !x->wanted || !x->rows)
        return k3_fail(err, K3_E_NOMEM, "expert table: out of memory for %zu experts", n);
    K3_TRY(k3_residency_open(&x->residency, (int)n, 0, err));
    return place_all(x, err);
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
    for (int i = 0; x->views && i < k3_ckpt_n_shards(x->ckpt); i++)
        k3_views_close(&x->views[i]);
    free(x->views);
    free(x->viewed);
    x->views = NULL;
    x->viewed = NULL;
}

void k3_experts_close(k3_experts *x)
{
    if (!x)
        return;
    k3_slots_close(&x->slots);
    if (x->addresses)
        x->main->memory->release(x->main, x->addresses);
    close_views(x);
    for (int i = 0; x->maps && i < k3_ckpt_n_shards(x->ckpt); i++) {
        if (x->maps[i].buf)
            cpu_tier(x)->be->memory->release(cpu_tier(x)->be, x->maps[i].buf);
        if (x->maps[i].at)
            munmap(x->maps[i].at, (size_t)mapped_bytes(x->maps[i].bytes));
    }
    for (int i = 0; i < x->n_tiers; i++) {
        if (x->tiers[i].be != x->main)
            x->tiers[i].be->close(x->tiers[i].be);
        free(x->tiers[i].view);
    }
    k3_residency_close(x->residency);
    free(x->maps);
    free(x->mapped);
    free(x->checked);
    free(x->wanted);
    free(x->rows);
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

/* The three matrices of an expert, in the order of its file. */
static const struct {
    size_t at; /* of the matrix in k3_expert */
    k3_role codes, scale;
    const char *name;
} matrices[] = {
    {offsetof(k3_expert, w1), K3_R_W1, K3_R_W1_SCALE, "w1"},
    {offsetof(k3_expert, w2), K3_R_W2, K3_R_W2_SCALE, "w2"},
    {offsetof(k3_expert, w3), K3_R_W3, K3_R_W3_SCALE, "w3"},
};

static const k3_mat *matrix_of(const k3_expert *e, int i)
{
    return (const k3_mat *)(const void *)((const char *)e + matrices[i].at);
}

/* One tensor from its file to where the device sees it. *host is NULL if the host does not. */
static k3_status read_tensor(k3_experts *x, k3_backend *be, const k3_mat *to, int scales, const k3_tensor_info *from, void **host,
                             k3_error *err)
{
    uint64_t bytes;
    *host = k3_slots_host(be, to, scales, &bytes);
    return *host ? k3_ckpt_read(x->ckpt, *host, from, 0, bytes, err) : K3_OK;
}

/* From disk straight into pages that the device sees, and checked there. *done is 0 where the device shows the host nothing. */
static k3_status read_expert(k3_experts *x, k3_backend *be, const k3_expert *to, int layer, int id, int *done, k3_error *err)
{
    *done = 0;
    for (int i = 0; i < 3; i++) {
        void *codes, *scales;
        const k3_mat *mat = matrix_of(to, i);
        K3_TRY(read_tensor(x, be, mat, 0, k3_ckpt_role(x->ckpt, matrices[i].codes, layer, id), &codes, err));
        K3_TRY(read_tensor(x, be, mat, 1, k3_ckpt_role(x->ckpt, matrices[i].scale, layer, id), &scales, err));
        if (!codes || !scales)
            return K3_OK;
        K3_TRY(check_scales(scales, mat, layer, id, matrices[i].name, err));
    }
    *done = 1;
    return K3_OK;
}

/* A slot that cannot be filled holds nothing. */
static k3_status fill_slot(k3_experts *x, int slot, int layer, int id, k3_error *err)
{
    int done;
    k3_backend *be = x->tiers[x->slots.tier[slot]].be;
    k3_status status = read_expert(x, be, &x->slots.experts[slot], layer, id, &done, err);
    if (status == K3_OK && !done) {
        status = check(x, layer, id, err);
        if (status == K3_OK)
            k3_slots_fill(&x->slots, be, slot, &x->mapped[item_of(x, layer, id)]);
    }
    if (status == K3_OK)
        x->uploaded += k3_experts_one_bytes(x->hp);
    else
        k3_residency_drop(x->residency, (int)item_of(x, layer, id));
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
            K3_TRY(fill_slot(x, k3_residency_take(x->residency, (int)item_of(x, l, id), 1), l, id, err));
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
    int slot = x->viewed ? -1 : k3_residency_find(x->residency, (int)item);
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

/* Bytes of the mapped files, if their tensors lie where vector loads can begin; else UINT64_MAX. */
static uint64_t bytes_in_place(const k3_experts *x)
{
    uint64_t bytes = 0;
    for (int i = 0; i < k3_ckpt_n_shards(x->ckpt); i++)
        bytes += x->maps[i].at ? mapped_bytes(x->maps[i].bytes) : 0;
    for (size_t item = 0; item < item_of(x, x->hp->n_layers, 0); item++)
        for (int i = 0; i < 3; i++) {
            const k3_mat *mat = matrix_of(&x->mapped[item], i);
            if (mat->rows && (mat->data.at % 16 || mat->scale.at % 4))
                return UINT64_MAX;
        }
    return bytes;
}

static k3_ref view_of(const k3_experts *x, k3_ref mapped)
{
    int shard = 0;
    while (x->maps[shard].buf != mapped.buf)
        shard++;
    return k3_views_ref(&x->views[shard], mapped.at);
}

/* A device that shares the host's memory reads the files where they are mapped, if all of them fit what it may use: nothing is copied, and
 * what the device does not touch is not read. *done is 0 where that cannot be. */
static k3_status view_files(k3_experts *x, uint64_t keep_free, int *done, k3_error *err)
{
    k3_memory_info info = {0};
    x->main->memory->info(x->main, &info);
    uint64_t room = info.budget > info.used ? info.budget - info.used : 0, needed = bytes_in_place(x);
    uint64_t tensor = (uint64_t)x->hp->expert_inner * (uint64_t)(x->hp->latent ? x->hp->latent : x->hp->hidden) / 2;
    *done = 0;
    keep_free += sizeof(struct k3_expert_address) * item_of(x, x->hp->n_layers, 0);
    if (!x->main->shares_memory || x->n_tiers > 2 || needed == UINT64_MAX || room < keep_free || needed > room - keep_free)
        return K3_OK;
    x->views = calloc((size_t)k3_ckpt_n_shards(x->ckpt), sizeof *x->views);
    x->viewed = calloc(item_of(x, x->hp->n_layers, 0) + 1, sizeof *x->viewed);
    int fits = x->views && x->viewed;
    for (int i = 0; fits && i < k3_ckpt_n_shards(x->ckpt); i++)
        fits = !x->maps[i].at || k3_views_open(&x->views[i], x->main, x->maps[i].at, mapped_bytes(x->maps[i].bytes), tensor);
    if (!fits) {
        close_views(x);
        return K3_OK;
    }
    for (int l = 0; l < x->hp->n_layers; l++)
        for (int id = 0; x->hp->is_moe[l] && id < x->hp->n_experts; id++) {
            size_t item = item_of(x, l, id);
            K3_TRY(check(x, l, id, err));
            x->viewed[item] = x->mapped[item];
            for (int i = 0; i < 3; i++) {
                k3_mat *mat = (k3_mat *)(void *)((char *)&x->viewed[item] + matrices[i].at);
                mat->data = view_of(x, mat->data);
                mat->scale = view_of(x, mat->scale);
            }
        }
    *done = 1;
    return tell_addresses(x, err);
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

k3_status k3_experts_load(k3_experts *x, uint64_t keep_free, k3_progress progress, void *user, k3_error *err)
{
    int n_items = x->hp->n_layers * x->hp->n_experts, in_place;
    K3_TRY(view_files(x, keep_free, &in_place, err));
    if (in_place)
        return K3_OK;
    K3_TRY(add_slots(x, keep_free, err));
    k3_residency_close(x->residency);
    K3_TRY(k3_residency_open(&x->residency, n_items, x->slots.n, err));
    if (!x->n_experts || x->slots.n < x->n_experts)
        return K3_OK;
    K3_TRY(fill_all(x, progress, user, err));
    return x->tiers[x->i_main].n_slots == x->n_experts ? tell_addresses(x, err) : K3_OK;
}

int k3_experts_shrink(k3_experts *x)
{
    int first, n;
    if (!x->tiers[x->i_main].n_slots || x->main->sync(x->main, NULL) != K3_OK || !k3_slots_release(&x->slots, x->i_main, &first, &n))
        return 0;
    k3_residency_cut(x->residency, first, n);
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
            x->tiers[i].view[x->wanted[j]] = NULL;
    }
    for (int j = 0; j < x->n_wanted; j++)
        x->rows[x->wanted[j]] = 0;
    x->n_wanted = 0;
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
    k3_residency_step(x->residency);
    for (int i = 0; i < x->n_wanted; i++)
        (void)k3_residency_use(x->residency, (int)item_of(x, x->layer, x->wanted[i]));
    return K3_OK;
}

/* *slot is -1 if there is none to be had. */
static k3_status bring(k3_experts *x, int id, int force, int *slot, k3_error *err)
{
    *slot = k3_residency_take(x->residency, (int)item_of(x, x->layer, id), force);
    return *slot < 0 ? K3_OK : fill_slot(x, *slot, x->layer, id, err);
}

k3_status k3_experts_assign(k3_experts *x, int layer, const int32_t *ids, int T, int K, k3_error *err)
{
    forget_layer(x);
    x->layer = layer;
    K3_TRY(collect(x, ids, T * K, err));
    for (int i = 0; i < x->n_wanted; i++) {
        int id = x->wanted[i], slot = k3_residency_find(x->residency, (int)item_of(x, layer, id));
        if (slot < 0 && x->rows[id] >= K3_UPLOAD_ROWS)
            K3_TRY(bring(x, id, 1, &slot, err));
        if (slot < 0)
            K3_TRY(check(x, layer, id, err));
        k3_tier *tier = slot < 0 ? cpu_tier(x) : &x->tiers[x->slots.tier[slot]];
        tier->view[id] = slot < 0 ? &x->mapped[item_of(x, layer, id)] : &x->slots.experts[slot];
        tier->n_pairs += x->rows[id];
        tier->pairs += (uint64_t)x->rows[id];
    }
    return K3_OK;
}

k3_status k3_experts_promote(k3_experts *x, k3_error *err)
{
    int left = x->slots.n ? K3_PROMOTIONS : 0;
    for (int i = 0, slot; i < x->n_wanted && left; i++)
        if (cpu_tier(x)->view[x->wanted[i]]) {
            K3_TRY(bring(x, x->wanted[i], 0, &slot, err));
            left -= slot >= 0;
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
                 k3_residency_used(x->residency), n_slots_of(x), 100.0 * (double)(all - on_cpu) / (double)all, (double)x->uploaded * 1e-9,
                 (unsigned long long)k3_residency_evictions(x->residency));
    for (int i = 0; i < x->n_tiers && reset; i++)
        x->tiers[i].pairs = 0;
    if (reset)
        x->uploaded = 0;
}

void k3_experts_resident(const k3_experts *x, int *n_resident, int *n_slots, int *n_experts)
{
    *n_resident = x->viewed ? x->n_experts : k3_residency_used(x->residency);
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
