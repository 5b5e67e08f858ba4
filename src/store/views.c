#include "store/views.h"

#include <stdlib.h>

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + K3_VIEW_ALIGN - 1) / K3_VIEW_ALIGN * K3_VIEW_ALIGN;
}

int k3_views_open(k3_views *views, k3_backend *be, void *at, uint64_t bytes, uint64_t tensor)
{
    k3_memory_info info = {0};
    be->memory->info(be, &info);
    /* A tensor that begins in the last byte of a stride still ends in the window that began with the stride. */
    uint64_t all = round_up(bytes), overlap = round_up(tensor), window = info.largest / K3_VIEW_ALIGN * K3_VIEW_ALIGN;
    *views = (k3_views){.be = be};
    if (!info.largest || all <= window)
        window = all;
    else if (window <= overlap)
        return 0;
    views->stride = window < all ? window - overlap : all;
    uint64_t n = (all + views->stride - 1) / views->stride;
    views->windows = calloc(n, sizeof *views->windows);
    for (uint64_t start = 0; views->windows && start < all; start += views->stride) {
        k3_buf *buf = be->memory->view(be, (char *)at + start, all - start < window ? all - start : window);
        if (!buf) {
            k3_views_close(views);
            return 0;
        }
        views->windows[views->n++] = buf;
    }
    return views->windows != NULL;
}

void k3_views_close(k3_views *views)
{
    for (int i = 0; i < views->n; i++)
        views->be->memory->release(views->be, views->windows[i]);
    free(views->windows);
    *views = (k3_views){0};
}

k3_ref k3_views_ref(const k3_views *views, uint64_t offset)
{
    uint64_t i = offset / views->stride;
    return (k3_ref){views->windows[i], offset - i * views->stride};
}
