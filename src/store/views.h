/* A mapped file as a device sees it that shares the host's memory: windows of whole pages below the device's largest allocation, each
 * overlapping the next, so that any tensor lies whole in one of them and nothing is copied. */
#ifndef K3_STORE_VIEWS_H
#define K3_STORE_VIEWS_H

#include "backend/backend.h"

/* Files are mapped at a multiple of this and seen up to the next one after their end: the page of the machines whose devices share the
 * host's memory, so that no whole page lies behind a file's end, where there is nothing to read. */
enum { K3_VIEW_ALIGN = 16384 };

typedef struct k3_views {
    k3_backend *be;
    k3_buf **windows;
    int n;
    uint64_t stride; /* from the start of one window to that of the next */
} k3_views;

/* Windows over `bytes` at `at`, for tensors of at most `tensor` bytes. 0 if the device does not take such pages, or not so many: nothing
 * is left behind, and the caller copies. */
int k3_views_open(k3_views *views, k3_backend *be, void *at, uint64_t bytes, uint64_t tensor);
void k3_views_close(k3_views *views);
/* The place of a tensor that begins at that byte of the file. */
k3_ref k3_views_ref(const k3_views *views, uint64_t offset);

#endif
