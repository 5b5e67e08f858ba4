/* A pool of threads for loops over independent items. Workers spin briefly between loops, then sleep. */
#ifndef K3_BASE_POOL_H
#define K3_BASE_POOL_H

#include "base/error.h"

#include <stddef.h>

typedef struct k3_pool k3_pool;

/* Does items first .. last-1. thread in 0..n_threads-1 selects scratch. */
typedef void (*k3_pool_task)(void *arg, int64_t first, int64_t last, int thread);

/* n_threads 0: the cores this process may use (affinity mask and cgroup quota). The caller's thread is thread 0, and stays where it is; the
 * others keep to nodes of memory where the machine has several (base/nodes.h). */
k3_status k3_pool_open(k3_pool **out, int n_threads, k3_error *err);
/* The same on a machine that is described below the folder `root`. */
k3_status k3_pool_open_at(k3_pool **out, int n_threads, const char *root, k3_error *err);
void k3_pool_close(k3_pool *pool);
int k3_pool_threads(const k3_pool *pool);
/* Memory that all threads will read, and that nobody has touched yet: whole pages. */
void k3_pool_spread(const k3_pool *pool, void *at, size_t bytes);

/* Runs task over items 0 .. n-1 and returns when all are done. Pieces are multiples of `grain` (but the last), long ones first, and are
 * handed out as threads become free, so a task's result for an item must not depend on the piece it lies in. */
void k3_pool_run(k3_pool *pool, k3_pool_task task, void *arg, int64_t n, int64_t grain);
/* For a task: the first item of the piece that this thread does next, whose memory may be worth asking for; -1: not known, or none. */
int64_t k3_pool_coming(const k3_pool *pool, int thread);

#endif
