#include "engine/posing.h"

#include <string.h>

/* The backend itself with some of its entries replaced; these are the originals. */
typedef struct device {
    k3_backend *be;
    const k3_memory_ops *memory;
    k3_memory_ops changed;
    k3_status (*sync)(k3_backend *be, k3_error *err);
    void (*close)(k3_backend *be);
    int is_lost, is_full;
    uint64_t budget;
} device;

static device devices[POSING_DEVICES];
posing_state posing;

void posing_reset(void)
{
    posing = (posing_state){.inner = posing.inner, .n_open = posing.n_open};
}

int posing_on_vulkan(int on)
{
    k3_backend *be;
    k3_backend_config config = {.name = "vulkan:llvmpipe"};
    posing.inner = NULL;
    if (!on || k3_backend_open(&be, &config, NULL, 0, NULL) != K3_OK)
        return 0;
    be->close(be);
    posing.inner = config.name;
    return 1;
}

static device *device_of(const k3_backend *be)
{
    int i = 0;
    while (devices[i].be != be)
        i++;
    return &devices[i];
}

static k3_buf *alloc_rows(k3_backend *be, uint64_t rows, uint64_t row_bytes, const char *what)
{
    device *d = device_of(be);
    if (!posing.used_before_experts && strcmp(what, "experts") == 0) {
        k3_memory_info now;
        d->memory->info(be, &now);
        posing.used_before_experts = now.used;
        posing.experts_alloc = posing.n_allocs + 1;
    }
    posing.n_allocs++;
    int fails =
        posing.fail_alloc && posing.n_allocs >= posing.fail_alloc && (posing.fail_all_allocs || posing.n_allocs == posing.fail_alloc);
    if (!fails && !d->is_lost)
        return d->memory->alloc_rows(be, rows, row_bytes, what);
    d->is_full = 1;
    return NULL;
}

static k3_buf *alloc(k3_backend *be, uint64_t bytes, const char *what)
{
    return alloc_rows(be, 1, bytes, what);
}

static void wait_or_lose(device *d)
{
    posing.n_waits++;
    d->is_full |= posing.n_waits == posing.full_at;
    if ((posing.n_waits == posing.lose_at || posing.n_waits == posing.lose_again_at) && !d->is_lost) {
        d->is_lost = 1;
        posing.n_losses++;
    }
}

/* What a lost device gives is no result. */
static void download(k3_backend *be, void *dst, k3_ref src, uint64_t bytes)
{
    device *d = device_of(be);
    posing.n_downloads++;
    wait_or_lose(d);
    if (d->is_lost)
        memset(dst, 0xff, bytes);
    else
        d->memory->download(be, dst, src, bytes);
}

static void info(k3_backend *be, k3_memory_info *out)
{
    device *d = device_of(be);
    d->memory->info(be, out);
    out->budget = d->budget;
}

static k3_status sync(k3_backend *be, k3_error *err)
{
    device *d = device_of(be);
    wait_or_lose(d);
    k3_status status = d->sync(be, err);
    if (d->is_lost)
        return k3_fail(err, K3_E_DEVICE, "posing: the device is lost");
    int was_full = d->is_full;
    d->is_full = 0;
    return was_full ? k3_fail(err, K3_E_NOMEM, "posing: out of memory") : status;
}

static void close_device(k3_backend *be)
{
    device *d = device_of(be);
    void (*inner)(k3_backend *) = d->close;
    be->memory = d->memory;
    *d = (device){0};
    posing.n_open--;
    inner(be);
}

k3_status posing_open(k3_backend **out, const k3_backend_config *config, char *note, size_t note_size, k3_error *err)
{
    k3_backend_config inner = *config;
    int is_posing = !config->name || strcmp(config->name, "auto") == 0 || config->name[0] == 'p';
    *out = NULL;
    if (is_posing && posing.refuse_after_loss && posing.n_losses)
        return k3_fail(err, K3_E_NOT_FOUND, "posing: the device is gone");
    if (is_posing)
        inner.name = posing.inner ? posing.inner : "cpu";
    inner.self_test = 0;
    K3_TRY(k3_backend_open(out, &inner, note, note_size, err));
    if (!is_posing)
        return K3_OK;
    k3_backend *be = *out;
    device *d = device_of(NULL);
    *d = (device){.be = be,
                  .memory = be->memory,
                  .changed = *be->memory,
                  .sync = be->sync,
                  .close = be->close,
                  .budget = posing.budget[posing.n_opened % POSING_DEVICES]};
    d->changed.alloc = alloc;
    d->changed.alloc_rows = alloc_rows;
    d->changed.download = download;
    d->changed.info = info;
    be->memory = &d->changed;
    be->sync = sync;
    be->close = close_device;
    be->is_device = 1;
    posing.n_open++;
    posing.n_opened++;
    return K3_OK;
}
