/* What opening a model here would do, and what a token would cost then, told without loading any of it. */
#include "engine/engine.h"
#include "engine/printer.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct k3_forecast {
    k3_engine *engine;
    uint64_t trunk;                            /* bytes of it, on whatever computes it */
    int n_moe, n_experts, n_here, n_on_device; /* experts of all layers; room for them in the host's memory, on the device */
    uint64_t memory_bytes;                     /* that a token reads */
    double disk_bytes, drive_bytes[K3_MAX_DRIVES], disk_seconds; /* a token; of all drives and of each */
    double memory_rate;                                          /* bytes per second; 0: unknown */
    double tokens;                                               /* per second; 0: unknown */
    double with_memory, with_drives, with_rate; /* the same with twice the memory, drives twice as fast, memory twice as fast */
} k3_forecast;

static double gb(uint64_t bytes)
{
    return (double)bytes * 1e-9;
}

/* Slots of the device, as many as the trunk, the passes and the conversations leave room for. */
static int device_slots(const k3_engine *engine, uint64_t trunk, int n_experts)
{
    k3_memory_info info = {0};
    uint64_t taken = trunk + k3_forward_bytes(engine->hp, engine->chunk_rows) + k3_machine_reserved_bytes(engine);
    engine->be->memory->info(engine->be, &info);
    if (!info.budget)
        return n_experts;
    taken += info.used;
    uint64_t n = info.budget > taken ? (info.budget - taken) / k3_experts_slot_bytes(engine->hp) : 0;
    return n < (uint64_t)n_experts ? (int)n : n_experts;
}

static void count(k3_forecast *f)
{
    const k3_engine *engine = f->engine;
    const k3_hparams *hp = engine->hp;
    const k3_trunk_sizes *sizes = &engine->planning->trunk;
    int is_device = engine->be->is_device;
    for (int l = 0; l < hp->n_layers; l++) {
        f->memory_bytes += sizes->layers[l].held;
        f->n_moe += hp->is_moe[l];
    }
    f->memory_bytes += sizes->always + sizes->head.held;
    f->trunk = is_device ? f->memory_bytes + sizes->embed.held : engine->budget.trunk;
    f->n_experts = f->n_moe * hp->n_experts;
    f->n_on_device = is_device && f->n_experts ? device_slots(engine, f->trunk, f->n_experts) : 0;
    f->n_here = f->n_on_device < f->n_experts ? engine->budget.n_slots : 0;
    f->memory_bytes += (uint64_t)((double)f->n_moe * hp->top_k * (double)k3_experts_one_bytes(hp));
}

/* Seconds a token with twice the memory. */
static double disk_seconds_with_twice(const k3_forecast *f)
{
    k3_budget_facts facts = f->engine->planning->facts;
    const k3_budget *b = &f->engine->budget;
    k3_budget more;
    facts.ram = 2 * b->limit;
    facts.available = 2 * (b->available > b->limit ? b->available : b->limit);
    if (k3_budget_make(&more, &facts, NULL) != K3_OK)
        return f->disk_seconds;
    int n = more.n_slots + f->n_on_device < f->n_experts ? more.n_slots + f->n_on_device : f->n_experts;
    return k3_budget_seconds(&facts, &more.trunk_plan, n, NULL);
}

/* Whatever takes longer, disk or memory, is all that is waited for. */
static double tokens_of(double disk_seconds, double memory_seconds)
{
    double seconds = disk_seconds > memory_seconds ? disk_seconds : memory_seconds;
    return seconds > 0 ? 1 / seconds : 0;
}

static k3_status predict(k3_forecast *f, k3_error *err)
{
    const k3_planning *p = f->engine->planning;
    count(f);
    K3_TRY(k3_machine_rates(f->engine, err));
    int n = f->n_here + f->n_on_device < f->n_experts ? f->n_here + f->n_on_device : f->n_experts;
    f->disk_seconds = k3_budget_seconds(&p->facts, &f->engine->budget.trunk_plan, n, f->drive_bytes);
    for (int d = 0; d < p->drives.n; d++)
        f->disk_bytes += f->drive_bytes[d];
    f->memory_rate = k3_machine_memory_rate(f->engine);
    double memory = f->memory_rate > 0 ? (double)f->memory_bytes / f->memory_rate : 0;
    f->tokens = tokens_of(f->disk_seconds, memory);
    f->with_memory = tokens_of(disk_seconds_with_twice(f), memory);
    f->with_drives = tokens_of(f->disk_seconds / 2, memory);
    f->with_rate = tokens_of(f->disk_seconds, memory / 2);
    return K3_OK;
}

/* ---- as lines ------------------------------------------------------------------------------------------------------------ */

static void say_memory(k3_printer *p, const k3_forecast *f)
{
    const k3_engine *engine = f->engine;
    const k3_budget *b = &engine->budget;
    k3_memory_info info = {0};
    engine->be->memory->info(engine->be, &info);
    k3_say(p, "backend        %s\n", engine->be->describe(engine->be));
    if (*engine->note)
        k3_say(p, "no GPU         %s\n", engine->note);
    if (engine->be->is_device)
        k3_say(p, "device memory  %.3f GB may be used\n", gb(info.budget - info.used));
    if (b->available)
        k3_say(p, "memory         %.3f GB is free, %.3f of it is left to other programs, %.3f may be used\n", gb(b->available),
               gb(b->reserve), gb(b->limit));
    if (engine->guesses_memory)
        k3_say(p, "               %s\n", K3_GUESSED);
    if (b->is_clamped)
        k3_say(p, "               %.3f GB was asked for, more than that\n", gb(engine->config.ram));
}

static void say_parts(k3_printer *p, const k3_forecast *f)
{
    const k3_engine *engine = f->engine;
    const k3_budget *b = &engine->budget;
    const k3_trunk_plan *trunk = &b->trunk_plan;
    int n_layers = engine->hp->n_layers, is_device = engine->be->is_device;
    k3_say(p, "trunk          %s, %.3f GB in memory: ", k3_trunk_name(engine->trunk), gb(f->trunk));
    if (is_device)
        k3_say(p, "all of it, on the device\n");
    else
        k3_say(p, "%d layers, %d are read from disk; head %s, embedding %s\n", trunk->n_pinned, n_layers - trunk->n_pinned,
               trunk->has_head ? "in memory" : "from disk", trunk->has_embed ? "in memory" : "from disk");
    k3_say(p, "conversations  %.3f GB\n", gb(is_device ? k3_machine_reserved_bytes(engine) : b->sessions));
    k3_say(p, "passes         %.3f GB, %d rows\n", gb(is_device ? k3_forward_bytes(engine->hp, engine->chunk_rows) : b->scratch),
           engine->chunk_rows);
    if (is_device)
        k3_say(p, "experts        room for %d of %d on the device\n", f->n_on_device, f->n_experts);
    k3_say(p, "experts        %.3f GB, slots for %d of %d\n", gb(f->n_here ? b->experts : 0), f->n_here, f->n_experts);
    if (b->available)
        k3_say(p, "peak           %.3f of %.3f GB\n", gb(b->peak), gb(b->limit));
}

static void say_drives(k3_printer *p, const k3_forecast *f)
{
    const k3_drives *drives = &f->engine->planning->drives;
    char warning[256];
    for (int d = 0; d < drives->n; d++) {
        const k3_drive *drive = &drives->list[d];
        k3_say(p, "drive          %s, %d shard%s in %s: %.3f GB a token at %.3f GB/s, %s\n", drive->fs.name, drive->n_shards,
               drive->n_shards == 1 ? "" : "s", drive->folder, f->drive_bytes[d] * 1e-9, drives->rates[d] * 1e-9,
               drives->is_measured ? "measured now" : "as stated");
        if (*drive->notice)
            k3_say(p, "               %s\n", drive->notice);
        if (k3_drives_warning(warning, sizeof warning, drives, d))
            k3_say(p, "               warning: %s\n", warning);
    }
    if (drives->n > 1)
        k3_say(p, "drives         %.3f GB a token in %.3f s, at the same time where a layer's bytes allow it\n", f->disk_bytes * 1e-9,
               f->disk_seconds);
}

static void say_speed(k3_printer *p, const k3_forecast *f)
{
    say_drives(p, f);
    k3_say(p, "arithmetic     %.3f GB a token of memory at %.3f GB/s, measured now\n", gb(f->memory_bytes), f->memory_rate * 1e-9);
    if (f->tokens > 0)
        k3_say(p, "expected       %.2f tokens/s at most, once experts have settled; the %s is what limits it\n", f->tokens,
               f->disk_seconds > (double)f->memory_bytes / f->memory_rate ? "disk" : "memory");
    if (f->tokens > 0)
        k3_say(p, "               %.2f with twice the memory, %.2f with drives twice as fast, %.2f with memory twice as fast\n",
               f->with_memory, f->with_drives, f->with_rate);
}

/* ---- as JSON ------------------------------------------------------------------------------------------------------------- */

static void say_json_drives(k3_printer *p, const k3_forecast *f)
{
    const k3_drives *drives = &f->engine->planning->drives;
    char warning[256];
    k3_say(p, "\"drives\": [");
    for (int d = 0; d < drives->n; d++) {
        const k3_drive *drive = &drives->list[d];
        k3_say(p, "%s{\"folder\": ", d ? ", " : "");
        k3_say_string(p, drive->folder);
        k3_say(p, ", \"file_system\": ");
        k3_say_string(p, drive->fs.name);
        k3_say(p, ", \"is_shared\": %s, \"shards\": %d, \"bytes\": %llu, \"bytes_per_token\": %.0f, \"bytes_per_s\": %.0f, \"warning\": ",
               drive->fs.is_shared ? "true" : "false", drive->n_shards, (unsigned long long)drive->bytes, f->drive_bytes[d],
               drives->rates[d]);
        if (k3_drives_warning(warning, sizeof warning, drives, d))
            k3_say_string(p, warning);
        else
            k3_say(p, "null");
        k3_say(p, "}");
    }
    k3_say(p, "], ");
}

static void say_json(k3_printer *p, const k3_forecast *f)
{
    typedef unsigned long long ull;
    const k3_engine *engine = f->engine;
    const k3_budget *b = &engine->budget;
    const k3_trunk_plan *trunk = &b->trunk_plan;
    int all = engine->be->is_device;
    k3_say(p, "{\"backend\": \"%s\", \"trunk\": \"%s\", \"memory_free\": %llu, \"memory_reserve\": %llu, \"memory_limit\": %llu, ",
           all ? "device" : "cpu", k3_trunk_name(engine->trunk), (ull)b->available, (ull)b->reserve, (ull)b->limit);
    k3_say(p, "\"memory_is_guessed\": %s, \"is_clamped\": %s, \"peak\": %llu, ", engine->guesses_memory ? "true" : "false",
           b->is_clamped ? "true" : "false", (ull)b->peak);
    k3_say(p, "\"trunk_bytes\": %llu, \"layers\": %d, \"layers_in_memory\": %d, \"head_in_memory\": %s, \"embedding_in_memory\": %s, ",
           (ull)f->trunk, engine->hp->n_layers, all ? engine->hp->n_layers : trunk->n_pinned, all || trunk->has_head ? "true" : "false",
           all || trunk->has_embed ? "true" : "false");
    k3_say(p, "\"conversation_bytes\": %llu, \"pass_bytes\": %llu, \"pass_rows\": %d, ", (ull)b->sessions, (ull)b->scratch,
           engine->chunk_rows);
    k3_say(p, "\"experts\": %d, \"expert_slots\": %d, \"expert_slots_on_device\": %d, \"expert_bytes\": %llu, ", f->n_experts, f->n_here,
           f->n_on_device, (ull)b->experts);
    const k3_drives *drives = &engine->planning->drives;
    say_json_drives(p, f);
    k3_say(p,
           "\"disk_bytes_per_token\": %.0f, \"disk_seconds_per_token\": %.6f, \"disk_bytes_per_s\": %.0f, \"disk_rate_is_measured\": %s, ",
           f->disk_bytes, f->disk_seconds, f->disk_seconds > 0 ? f->disk_bytes / f->disk_seconds : drives->rates[0],
           drives->is_measured ? "true" : "false");
    k3_say(p, "\"memory_bytes_per_token\": %llu, \"memory_bytes_per_s\": %.0f, \"tokens_per_s\": %.4f, ", (ull)f->memory_bytes,
           f->memory_rate, f->tokens);
    k3_say(p, "\"tokens_per_s_with_twice\": {\"memory\": %.4f, \"disk_rate\": %.4f, \"memory_rate\": %.4f}}\n", f->with_memory,
           f->with_drives, f->with_rate);
}

static k3_status forecast(k3_printer *p, k3_engine *engine, int as_json, k3_error *err)
{
    k3_forecast f = {.engine = engine};
    K3_TRY(k3_machine_open(engine, err));
    K3_TRY(predict(&f, err));
    if (as_json) {
        say_json(p, &f);
    } else {
        say_memory(p, &f);
        say_parts(p, &f);
        say_speed(p, &f);
    }
    return K3_OK;
}

k3_status k3_plan(char **text, const char *model, const k3_config *config, int as_json, k3_error *err)
{
    static const k3_config defaults;
    k3_printer p = {.size = 16384};
    k3_engine *engine = calloc(1, sizeof *engine);
    *text = p.text = calloc(1, p.size);
    if (!engine || !p.text) {
        free(engine);
        return k3_fail(err, K3_E_NOMEM, "plan: out of memory");
    }
    engine->open_backend = k3_backend_open;
    engine->plans_only = 1;
    k3_status status = k3_engine_prepare(engine, model, config ? config : &defaults, err);
    if (status == K3_OK)
        status = forecast(&p, engine, as_json, err);
    k3_engine_close(engine);
    return status;
}
