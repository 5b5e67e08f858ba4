#include "model/state.h"

#include <stdlib.h>
#include <string.h>

static uint64_t recurrent_bytes(const k3_hparams *hp)
{
    return 4 * (uint64_t)hp->kda_heads * (uint64_t)hp->kda_dim * (uint64_t)hp->kda_dim;
}

static uint64_t window_bytes(const k3_hparams *hp)
{
    return 4 * (uint64_t)hp->kda_heads * (uint64_t)hp->kda_dim * (uint64_t)(hp->conv_width - 1);
}

static uint64_t layer_bytes(const k3_hparams *hp)
{
    uint64_t n = recurrent_bytes(hp) + 3 * window_bytes(hp);
    return (n + 63) / 64 * 64;
}

/* KDA layers before this one. */
static uint64_t kda_index(const k3_hparams *hp, int layer)
{
    uint64_t n = 0;
    for (int l = 0; l < layer; l++)
        n += !hp->is_mla[l];
    return n;
}

uint64_t k3_state_fixed_bytes(const k3_hparams *hp)
{
    return kda_index(hp, hp->n_layers) * layer_bytes(hp);
}

uint64_t k3_state_cache_row_bytes(const k3_state *state)
{
    return (uint64_t)(state->hp->kv_lora + state->hp->rope) * (state->cache_type == K3_BF16 ? 2 : 4);
}

/* Of the cache, in `n` layers of MLA. */
static uint64_t cache_bytes(const k3_state *state, int64_t capacity, uint64_t n)
{
    return n * (uint64_t)capacity * k3_state_cache_row_bytes(state);
}

static uint64_t n_mla_of(const k3_hparams *hp)
{
    return (uint64_t)hp->n_layers - kda_index(hp, hp->n_layers);
}

uint64_t k3_state_bytes(const k3_state *state)
{
    return (state->fixed ? state->fixed->bytes : 0) + cache_bytes(state, state->capacity, n_mla_of(state->hp));
}

k3_ref k3_state_kda(const k3_state *state, int layer)
{
    return (k3_ref){state->fixed, kda_index(state->hp, layer) * layer_bytes(state->hp)};
}

k3_ref k3_state_window(const k3_state *state, int layer, k3_window which)
{
    return k3_at(k3_state_kda(state, layer), recurrent_bytes(state->hp) + (uint64_t)which * window_bytes(state->hp));
}

k3_ref k3_state_cache(const k3_state *state, int layer)
{
    return (k3_ref){state->cache[layer], 0};
}

static k3_status fail_memory(k3_state *state, const char *what, uint64_t bytes, k3_error *err)
{
    k3_status status = state->be->sync(state->be, err);
    return status != K3_OK ? status : k3_fail(err, K3_E_NOMEM, "%s: no memory for %llu bytes", what, (unsigned long long)bytes);
}

k3_status k3_state_open(k3_state **out, const k3_hparams *hp, k3_type cache_type, k3_error *err)
{
    *out = NULL;
    k3_state *state = calloc(1, sizeof *state);
    if (!state || !(state->cache = calloc((size_t)hp->n_layers, sizeof *state->cache))) {
        free(state);
        return k3_fail(err, K3_E_NOMEM, "session: out of memory");
    }
    state->hp = hp;
    state->cache_type = cache_type;
    *out = state;
    return K3_OK;
}

void k3_state_lose(k3_state *state)
{
    for (int l = 0; l < state->hp->n_layers; l++)
        if (state->cache[l]) {
            state->be->memory->release(state->be, state->cache[l]);
            state->cache[l] = NULL;
        }
    if (state->fixed)
        state->be->memory->release(state->be, state->fixed);
    state->fixed = NULL;
    state->capacity = 0;
    state->be = NULL;
}

void k3_state_close(k3_state *state)
{
    if (!state)
        return;
    k3_state_lose(state);
    free(state->cache);
    free(state);
}

k3_status k3_state_restart(k3_state *state, k3_backend *be, k3_error *err)
{
    uint64_t bytes = k3_state_fixed_bytes(state->hp);
    /* New memory is zeroed memory. */
    if (state->fixed)
        be->memory->release(be, state->fixed);
    state->be = be;
    state->length = 0;
    state->fixed = be->memory->alloc(be, bytes ? bytes : 64, "KDA state");
    if (state->fixed)
        return K3_OK;
    k3_status status = fail_memory(state, "KDA state of a session", bytes, err);
    k3_state_lose(state);
    return status;
}

static k3_status grow_layer(k3_state *state, int layer, int64_t capacity, k3_error *err)
{
    k3_memory_ops const *memory = state->be->memory;
    uint64_t row = k3_state_cache_row_bytes(state);
    k3_buf *grown = memory->alloc(state->be, (uint64_t)capacity * row, "MLA cache");
    if (!grown)
        return fail_memory(state, "MLA cache", (uint64_t)capacity * row, err);
    if (state->cache[layer]) {
        memory->copy(state->be, (k3_ref){grown, 0}, (k3_ref){state->cache[layer], 0}, (uint64_t)state->length * row);
        k3_status status = state->be->sync(state->be, err);
        if (status != K3_OK) {
            memory->release(state->be, grown);
            return status;
        }
        memory->release(state->be, state->cache[layer]);
    }
    state->cache[layer] = grown;
    return K3_OK;
}

/* The host gives out memory that it does not have, and is busy with its disk afterwards instead of with the conversation. A device refuses
 * what it has not. While a layer's cache grows, the old one is there too. */
static k3_status check_room(const k3_state *state, int64_t *capacity, int64_t length, k3_error *err)
{
    k3_memory_info info = {0};
    uint64_t n = n_mla_of(state->hp), kept = cache_bytes(state, state->capacity, n - (n > 0));
    state->be->memory->info(state->be, &info);
    if (state->be->is_device || cache_bytes(state, *capacity, n) - kept <= info.free)
        return K3_OK;
    *capacity = length;
    if (cache_bytes(state, length, n) - kept <= info.free)
        return K3_OK;
    return k3_fail(
        err, K3_E_NOMEM,
        "a conversation of %lld tokens takes a cache of %.6f GB, it holds %.6f and %.6f are free; shorten it, or leave more of the "
        "memory free with --ram",
        (long long)length, (double)cache_bytes(state, length, n) * 1e-9, (double)cache_bytes(state, state->capacity, n) * 1e-9,
        (double)info.free * 1e-9);
}

k3_status k3_state_reserve(k3_state *state, int64_t length, k3_error *err)
{
    if (length <= state->capacity)
        return K3_OK;
    int64_t capacity = 2 * state->capacity > length ? 2 * state->capacity : length;
    if (capacity < 256)
        capacity = 256;
    if (capacity > state->hp->context && length <= state->hp->context)
        capacity = state->hp->context;
    K3_TRY(check_room(state, &capacity, length, err));
    for (int l = 0; l < state->hp->n_layers; l++)
        if (state->hp->is_mla[l])
            K3_TRY(grow_layer(state, l, capacity, err));
    state->capacity = capacity;
    return K3_OK;
}
