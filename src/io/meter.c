/* What drives deliver, over all readers that share a meter. */
#include "base/os.h"
#include "io/parts.h"

#include <stdlib.h>

struct k3_io_count {
    k3_io_count *next;
    k3_io_meter *meter;
    uint64_t device;
    uint64_t bytes, busy_ns;
    uint64_t ticked; /* when busy_ns was last brought up to date */
    int in_flight;   /* pieces that are wanted */
};

struct k3_io_meter {
    pthread_mutex_t lock;
    k3_io_count *counts;
};

k3_status k3_io_meter_open(k3_io_meter **out, k3_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return k3_fail(err, K3_E_NOMEM, "no memory for a meter of drives");
    pthread_mutex_init(&(*out)->lock, NULL);
    return K3_OK;
}

void k3_io_meter_close(k3_io_meter *meter)
{
    if (!meter)
        return;
    for (k3_io_count *count = meter->counts, *next; count; count = next) {
        next = count->next;
        free(count);
    }
    pthread_mutex_destroy(&meter->lock);
    free(meter);
}

static k3_io_count *find(const k3_io_meter *meter, uint64_t device)
{
    k3_io_count *count = meter->counts;
    while (count && count->device != device)
        count = count->next;
    return count;
}

k3_io_count *k3_io_meter_count(k3_io_meter *meter, uint64_t device)
{
    pthread_mutex_lock(&meter->lock);
    k3_io_count *count = find(meter, device);
    if (!count && (count = calloc(1, sizeof *count))) {
        *count = (k3_io_count){.next = meter->counts, .meter = meter, .device = device};
        meter->counts = count;
    }
    pthread_mutex_unlock(&meter->lock);
    return count;
}

static void tick(k3_io_count *count)
{
    uint64_t now = k3_os_nanoseconds();
    if (count->in_flight)
        count->busy_ns += now - count->ticked;
    count->ticked = now;
}

void k3_io_count_begin(k3_io_count *count)
{
    pthread_mutex_lock(&count->meter->lock);
    tick(count);
    count->in_flight++;
    pthread_mutex_unlock(&count->meter->lock);
}

void k3_io_count_end(k3_io_count *count, uint64_t bytes)
{
    pthread_mutex_lock(&count->meter->lock);
    tick(count);
    count->in_flight--;
    count->bytes += bytes;
    pthread_mutex_unlock(&count->meter->lock);
}

void k3_io_meter_read(k3_io_meter *meter, uint64_t device, uint64_t *bytes, uint64_t *busy_ns)
{
    pthread_mutex_lock(&meter->lock);
    k3_io_count *count = find(meter, device);
    if (count)
        tick(count);
    *bytes = count ? count->bytes : 0;
    *busy_ns = count ? count->busy_ns : 0;
    pthread_mutex_unlock(&meter->lock);
}
