/* What mla_append and mla_attend share on the host. */
#ifndef K3_BACKEND_GPU_MLA_H
#define K3_BACKEND_GPU_MLA_H

#include "backend/args/mla.h"
#include "backend/gpu/gpu.h"

enum { K3_MLA_RUNS = 64 }; /* in one dispatch */

/* 1 unless the cache's type is refused. */
int k3_gpu_mla_cache(k3_gpu *gpu, const k3_mla_dims *dims, const char *op);

/* The table of at most K3_MLA_RUNS runs, whose caches' addresses are in `caches`. Rows count from `row` on; a workgroup of mla_attend takes
 * tile_pairs pairs. */
struct k3_mla_runs k3_gpu_mla_runs(k3_gpu *gpu, const k3_run *runs, const uint64_t *caches, int n_runs, int row, int heads, int tile_pairs);

#endif
