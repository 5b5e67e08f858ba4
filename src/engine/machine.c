/* What computes: the backend with the weights, experts and scratch in its memory. It can be taken down and brought up again under sessions
 * that stand: they compute their state again from their ids when they are next used. */
#include "engine/engine.h"

#include "base/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A device that has done so many passes since it was opened again has come back, and may fail once more before the CPU takes over. */
enum { K3_CHUNK_ROWS = 256, K3_DEVICE_CHUNK_ROWS = 512, K3_PASSES_TO_TRUST = 64, K3_SMALL_TRUNK = 1 << 30 };

const char *k3_trunk_name(k3_trunk trunk)
{
    return trunk == K3_TRUNK_BF16 ? "bf16" : trunk == K3_TRUNK_INT8 ? "int8" : "int4";
}

/* Bytes free for the trunk on a device. */
static uint64_t device_room(k3_engine *engine)
{
    k3_memory_info info = {0};
    engine->be->memory->info(engine->be, &info);
    if (!info.budget)
        return UINT64_MAX;
    return info.budget > info.used ? info.budget - info.used : 0;
}

/* A trunk of a gigabyte or less stays as it is stored, whatever memory there is: its logits are then closer to the exact ones than those of
 * the released arithmetic (docs/numerics.md), and converting it would save what no machine lacks. Of a larger one the widest that leaves a
 * tenth of the free memory and a gigabyte for everything else, from int8 on, which reads half of what bf16 reads and stays within a percent
 * of its perplexity. What does not fit at int4 either is read every token, as it is stored: bf16 needs no work then. */
static k3_trunk choose_trunk(const k3_ckpt *ckpt, uint64_t available, int is_device)
{
    uint64_t spare = available / 10 + ((uint64_t)1 << 30), room = available > spare ? available - spare : available / 2;
    uint64_t stored = k3_weights_bytes(ckpt, K3_TRUNK_BF16);
    if (stored <= K3_SMALL_TRUNK && (!is_device || stored <= room))
        return K3_TRUNK_BF16;
    if (k3_weights_bytes(ckpt, K3_TRUNK_INT8) <= room)
        return K3_TRUNK_INT8;
    return is_device || k3_weights_bytes(ckpt, K3_TRUNK_INT4) <= room ? K3_TRUNK_INT4 : K3_TRUNK_BF16;
}

static k3_status check_device_room(k3_engine *engine, uint64_t room, k3_error *err)
{
    uint64_t need = k3_weights_bytes(engine->ckpt, engine->trunk);
    const char *name = k3_trunk_name(engine->trunk), *more = engine->be->more_memory;
    if (need <= room)
        return K3_OK;
    return k3_fail(err, K3_E_NOMEM, "the %s trunk takes %.2f GB, %.2f GB of %s may be used; use --backend cpu, or a smaller trunk%s%s",
                   name, (double)need * 1e-9, (double)room * 1e-9, engine->be->name, more ? "; " : "", more ? more : "");
}

/* What fell back when files are read, once for experts and trunk: the first line of it. */
static const char *reading_note(const k3_engine *engine, int *n)
{
    const k3_late *late = engine->weights->late;
    const char *note = k3_experts_notice(engine->experts);
    if (!*note && late && late->stream)
        note = k3_trunk_notice(late->stream);
    *n = (int)strcspn(note, "\n");
    return note;
}

/* What the plan went by if the model lies on several drives. */
static void describe_drives(char *text, size_t size, const k3_planning *p)
{
    size_t at = 0;
    *text = 0;
    for (int d = 0; d < p->drives.n && p->drives.n > 1 && p->facts.rates && at < size; d++)
        at += (size_t)snprintf(text + at, size - at, "%s%.2f",
                               !d                    ? ", drives at "
                               : d < p->drives.n - 1 ? ", "
                                                     : " and ",
                               p->facts.rates[d] * 1e-9);
    if (*text && at < size)
        snprintf(text + at, size - at, " GB/s");
}

static void describe(k3_engine *engine)
{
    uint64_t experts = 0;
    int resident = 0, slots = 0, all = 0, n_tiers = 0, i_main = 0;
    char where[200], memory[200] = "", drives[128];
    k3_memory_info info = {0};
    k3_ckpt_total_bytes(engine->ckpt, &experts);
    k3_experts_resident(engine->experts, &resident, &slots, &all);
    k3_experts_tiers(engine->experts, &n_tiers, &i_main);
    engine->be->memory->info(engine->be, &info);
    int here = k3_experts_room(engine->experts);
    snprintf(where, sizeof where, here < all ? "from disk, memory for %d of %d" : "in memory once read (%d of %d)", here, all);
    if (n_tiers > 1 && slots == all)
        snprintf(where, sizeof where, "%d of %d in device memory", resident, all);
    else if (n_tiers > 1)
        snprintf(where + strlen(where), sizeof where - strlen(where), ", %d of %d in device memory, room there for %d", resident, all,
                 slots);
    if (engine->be->is_device)
        snprintf(memory, sizeof memory, ", device memory %.2f of %.2f GB", (double)info.used * 1e-9, (double)info.budget * 1e-9);
    else
        snprintf(memory, sizeof memory, ", memory %.2f of %.2f GB", (double)engine->budget.peak * 1e-9,
                 (double)engine->budget.limit * 1e-9);
    if (engine->budget.is_clamped)
        snprintf(memory + strlen(memory), sizeof memory - strlen(memory), " (%.2f was asked for, more than is free)",
                 (double)engine->config.ram * 1e-9);
    if (engine->guesses_memory)
        snprintf(memory + strlen(memory), sizeof memory - strlen(memory), " (%s)", K3_GUESSED);
    describe_drives(drives, sizeof drives, engine->planning);
    int n_reading;
    const char *note = engine->note, *reading = reading_note(engine, &n_reading);
    snprintf(engine->plan, sizeof engine->plan,
             "%s%s%s%strunk %s%s %.2f GB, experts mxfp4 %.2f GB %s%s%s, cache %s, %d rows a pass%s%s%.*s%s%s",
             engine->be->describe(engine->be), *note ? "; no GPU: " : "", note, *note ? "; " : ", ", k3_trunk_name(engine->trunk),
             engine->config.exact ? " (exact)" : "", (double)engine->weights->bytes * 1e-9, (double)experts * 1e-9, where, drives, memory,
             k3_type_name(engine->cache_type), engine->chunk_rows, engine->lock_note, n_reading ? "; " : "", n_reading, reading,
             engine->cache_note, engine->usage_note);
}

/* Trunk precision and rows a pass are chosen until a machine stands: one brought up later has to do the same work. */
static void choose(k3_engine *engine, uint64_t room)
{
    if (!engine->has_trunk)
        engine->trunk = choose_trunk(engine->ckpt, room, engine->be->is_device);
    if (!engine->chunk_rows)
        engine->chunk_rows = engine->be->is_device ? K3_DEVICE_CHUNK_ROWS : K3_CHUNK_ROWS;
}

/* A file that cannot be used is said, and left alone; whether it can be written is tried at once, since nobody hears of it at the end. */
static k3_status use_counts(k3_engine *engine, k3_error *err)
{
    const k3_config *c = &engine->config;
    uint64_t model = c->usage ? k3_engine_model(engine) : 0;
    k3_error why = {K3_OK, ""};
    *engine->usage_note = 0;
    if (!c->usage)
        return K3_OK;
    k3_status loaded = k3_experts_remember(engine->experts, model, c->usage, &why), status = loaded;
    if (status == K3_OK || status == K3_E_NOT_FOUND)
        status = k3_experts_keep(engine->experts, model, c->usage, &why);
    engine->keeps_usage = status == K3_OK;
    if (status != K3_OK)
        snprintf(engine->usage_note, sizeof engine->usage_note, "; %.290s", why.text);
    return loaded == K3_OK ? k3_experts_fill(engine->experts, c->progress, c->user, err) : K3_OK;
}

/* Locks trunk and experts in memory, as far as the system lets it. The limit is told beside its reason, since it need not be the cause. */
static void lock_memory(k3_engine *engine)
{
    int n_tiers = 0, i_main = 0, refused = 0;
    uint64_t all = 0, locked = 0;
    const k3_tier *tiers = k3_experts_tiers(engine->experts, &n_tiers, &i_main);
    for (int i = 0; i < n_tiers; i++) {
        uint64_t bytes = 0, kept = 0;
        int why = tiers[i].be->memory->lock ? tiers[i].be->memory->lock(tiers[i].be, &kept, &bytes) : 0;
        refused = refused ? refused : why;
        all += bytes;
        locked += kept;
    }
    if (refused) {
        char limit[64];
        k3_os_lock_limit(limit, sizeof limit);
        snprintf(engine->lock_note, sizeof engine->lock_note, "; %.3f of %.3f GB are locked in memory: %s (errno %d); the limit is %s",
                 (double)locked * 1e-9, (double)all * 1e-9, strerror(refused), refused, limit);
    } else {
        snprintf(engine->lock_note, sizeof engine->lock_note, ", %.3f GB locked in memory", (double)locked * 1e-9);
    }
}

/* A folder for compiled kernels that cannot be written is said at the start: every start will take as long as this one. */
static void check_kernel_cache(k3_engine *engine)
{
    const char *folder = engine->config.kernel_cache;
    *engine->cache_note = 0;
    if (folder && engine->be->is_device && access(folder, W_OK | X_OK))
        snprintf(engine->cache_note, sizeof engine->cache_note, "; compiled kernels are not kept: %.180s: %s", folder, strerror(errno));
}

static k3_status bring_up(k3_engine *engine, const char *name, const char *devices, k3_error *err)
{
    const k3_config *c = &engine->config;
    k3_backend_config backend = {.name = name,
                                 .threads = c->threads,
                                 .exact = c->exact,
                                 .timing = c->timing,
                                 .self_test = 1,
                                 .vram = c->vram,
                                 .cache_dir = c->kernel_cache,
                                 .kernels_dir = c->kernels,
                                 .progress = c->progress,
                                 .user = c->user};
    char note[sizeof engine->note];
    K3_TRY(engine->open_backend(&engine->be, &backend, note, sizeof note, err));
    engine->was_device = engine->be->is_device;
    if (*note)
        memcpy(engine->note, note, sizeof note);
    check_kernel_cache(engine);
    int is_device = engine->be->is_device;
    uint64_t available = k3_os_memory_available(&engine->guesses_memory), room = is_device ? device_room(engine) : available;
    choose(engine, c->ram && c->ram < room && !is_device ? c->ram : room);
    if (is_device)
        K3_TRY(check_device_room(engine, room, err));
    if (engine->be->shares_memory) /* the same memory, counted once */
        available -= room < available ? room : available;
    K3_TRY(k3_machine_budget(engine, is_device, available, err));
    if (engine->plans_only)
        return K3_OK;
    k3_weights_config weights = {.trunk = engine->trunk,
                                 .plan = &engine->budget.trunk_plan,
                                 .meter = engine->meter,
                                 .threads = c->threads,
                                 .progress = c->progress,
                                 .user = c->user};
    K3_TRY(k3_weights_load(&engine->weights, engine->ckpt, engine->be, &weights, err));
    const k3_late *late = engine->weights->late;
    k3_experts_config experts = {.open = engine->open_backend,
                                 .backend = backend,
                                 .devices = devices,
                                 .slot_bytes = engine->planning->experts.slot,
                                 .meter = engine->meter,
                                 .beside = late && late->stream ? k3_trunk_io(late->stream) : NULL};
    K3_TRY(k3_experts_open(&engine->experts, engine->ckpt, engine->be, &experts, err));
    int spans = engine->chunk_rows < K3_MAX_SESSIONS_A_PASS ? engine->chunk_rows : K3_MAX_SESSIONS_A_PASS;
    K3_TRY(k3_forward_open(&engine->forward, engine->weights, engine->experts, engine->cache_type, engine->chunk_rows, spans, err));
    K3_TRY(k3_experts_load(engine->experts, k3_machine_reserved_bytes(engine), engine->budget.experts, c->progress, c->user, err));
    if (c->lock)
        lock_memory(engine);
    K3_TRY(use_counts(engine, err));
    /* What devices did to test their kernels is no work of the model's. */
    int n_tiers = 0, i_main = 0;
    const k3_tier *tiers = k3_experts_tiers(engine->experts, &n_tiers, &i_main);
    for (int i = 0; i < n_tiers; i++)
        tiers[i].be->stats(tiers[i].be, NULL, 0, 1);
    describe(engine);
    return K3_OK;
}

static k3_status open_on(k3_engine *engine, const char *name, const char *devices, k3_error *err)
{
    k3_status status = bring_up(engine, name, devices, err);
    if (status != K3_OK)
        k3_machine_close(engine);
    return status;
}

void k3_machine_close(k3_engine *engine)
{
    if (engine->keeps_usage)
        (void)k3_experts_keep(engine->experts, k3_engine_model(engine), engine->usage, NULL); /* else the file is as it was */
    engine->keeps_usage = 0;
    k3_forward_close(engine->forward);
    k3_experts_close(engine->experts);
    k3_weights_free(engine->weights);
    if (engine->be)
        engine->be->close(engine->be);
    engine->forward = NULL;
    engine->experts = NULL;
    engine->weights = NULL;
    engine->be = NULL;
}

static int is_auto(const char *name)
{
    return !name || strcmp(name, "auto") == 0;
}

k3_status k3_machine_open(k3_engine *engine, k3_error *err)
{
    const char *name = engine->config.backend;
    int chosen_rows = engine->chunk_rows;
    k3_error why = {K3_OK, ""};
    k3_status status = open_on(engine, name, engine->config.expert_devices, &why);
    if (status != K3_OK && status != K3_E_CANCELLED && engine->was_device && is_auto(name)) {
        snprintf(engine->note, sizeof engine->note, "%.*s", (int)sizeof engine->note - 1, why.text);
        engine->chunk_rows = chosen_rows;
        status = open_on(engine, "cpu", engine->config.expert_devices, &why);
    }
    engine->has_trunk |= status == K3_OK;
    return status == K3_OK ? K3_OK : k3_fail(err, status, "%s", why.text);
}

k3_status k3_machine_ready(k3_engine *engine, k3_error *err)
{
    return engine->be ? K3_OK : open_on(engine, "cpu", NULL, err);
}

static void tell_failure(k3_engine *engine, const char *why, const char *what)
{
    snprintf(engine->notice, sizeof engine->notice, "%s; %s", why, what);
    engine->info.notice = engine->notice;
    engine->info.n_failures++;
}

static k3_status replace(k3_engine *engine, const char *why, k3_error *err)
{
    for (size_t i = 0; i < engine->n_sessions; i++)
        k3_session_lose(engine->sessions[i]);
    k3_machine_close(engine);
    if (!engine->was_reopened) {
        engine->was_reopened = 1;
        engine->n_trusted = 0;
        k3_status status = open_on(engine, engine->config.backend, engine->config.expert_devices, err);
        if (status == K3_OK)
            tell_failure(engine, why, "opened again, and what was lost is computed again");
        if (status == K3_OK || status == K3_E_CANCELLED)
            return status;
    }
    k3_status status = open_on(engine, "cpu", NULL, err);
    if (status != K3_OK)
        return k3_fail_within(err, status, "%s; the CPU cannot go on: ", why);
    tell_failure(engine, why, "the CPU goes on");
    return K3_OK;
}

int k3_machine_recover(k3_engine *engine, k3_status *status, int in_pass, k3_error *err)
{
    int n_tiers = 0, i_main = 0;
    char why[300];
    if (!engine->be || (*status != K3_E_DEVICE && *status != K3_E_NOMEM))
        return 0;
    if (*status == K3_E_NOMEM && k3_experts_shrink(engine->experts))
        return 1;
    k3_experts_tiers(engine->experts, &n_tiers, &i_main);
    if (n_tiers < 2 || (*status == K3_E_NOMEM && !in_pass))
        return 0;
    snprintf(why, sizeof why, "%.299s", err->text);
    *status = replace(engine, why, err);
    return *status == K3_OK;
}

void k3_machine_tell_growth(k3_engine *engine)
{
    uint64_t held = 0, planned = engine->budget.sessions;
    for (size_t i = 0; i < engine->n_sessions; i++)
        held += k3_state_bytes(engine->sessions[i]->state);
    if (engine->be->is_device || held <= planned)
        return;
    snprintf(engine->notice, sizeof engine->notice,
             "conversations hold %.6f GB of memory, the plan has %.6f for them: what is left to other programs is that much less",
             (double)held * 1e-9, (double)planned * 1e-9);
    engine->info.notice = engine->notice;
}

void k3_machine_trust(k3_engine *engine)
{
    if (engine->was_reopened && ++engine->n_trusted >= K3_PASSES_TO_TRUST)
        engine->was_reopened = 0;
}
