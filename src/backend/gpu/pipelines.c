/* The pipelines of a device: a shader with values for its specialization constants, compiled by the driver the first time it is wanted. */
#include "backend/gpu/driver.h"

#include <stdlib.h>
#include <string.h>

static int same(const k3_gpu_pipeline *a, const k3_gpu_pipeline *b)
{
    return a->shader == b->shader && a->n_spec == b->n_spec && a->full == b->full && !memcmp(a->spec, b->spec, sizeof a->spec);
}

static uint32_t hash_of(const k3_gpu_pipeline *p)
{
    uint32_t h = 2166136261u ^ (uint32_t)p->shader;
    for (int i = 0; i < p->n_spec; i++)
        h = (h ^ p->spec[i]) * 16777619u;
    return h ^ (h >> 15);
}

/* Open addressing over max_pipelines places, a power of two; a place with nothing compiled is free. */
static k3_gpu_pipeline *place_for(k3_gpu_pipeline *table, int n, const k3_gpu_pipeline *wanted)
{
    uint32_t i = hash_of(wanted) & (uint32_t)(n - 1);
    while (table[i].native && !same(&table[i], wanted))
        i = (i + 1) & (uint32_t)(n - 1);
    return &table[i];
}

static int grow(k3_gpu *gpu)
{
    int max = gpu->max_pipelines ? 2 * gpu->max_pipelines : 128;
    k3_gpu_pipeline *grown = calloc((size_t)max, sizeof *grown);
    if (!grown) {
        k3_gpu_fail(gpu, K3_E_NOMEM, "%s: the system has no memory left", gpu->base.name);
        return 0;
    }
    for (int i = 0; i < gpu->max_pipelines; i++)
        if (gpu->pipelines[i].native)
            *place_for(grown, max, &gpu->pipelines[i]) = gpu->pipelines[i];
    free(gpu->pipelines);
    gpu->pipelines = grown;
    gpu->max_pipelines = max;
    return 1;
}

void *k3_gpu_pipeline_for(k3_gpu *gpu, k3_gpu_shader shader, const uint32_t *spec, int n_spec, int full)
{
    k3_gpu_pipeline wanted = {.shader = shader, .n_spec = n_spec, .full = full};
    for (int i = 0; i < n_spec; i++)
        wanted.spec[i] = spec[i];
    if (2 * gpu->n_pipelines >= gpu->max_pipelines && !grow(gpu))
        return NULL;
    k3_gpu_pipeline *place = place_for(gpu->pipelines, gpu->max_pipelines, &wanted);
    if (place->native)
        return place->native;
    if (gpu->progress)
        (void)gpu->progress(gpu->user, "compiling kernels", (uint64_t)gpu->compiled, 0);
    gpu->compiled++;
    wanted.native = gpu->driver->new_pipeline(gpu, &wanted);
    if (!wanted.native)
        return NULL;
    *place = wanted;
    gpu->n_pipelines++;
    return wanted.native;
}

void k3_gpu_close_pipelines(k3_gpu *gpu)
{
    for (int i = 0; i < gpu->max_pipelines; i++)
        if (gpu->pipelines[i].native)
            gpu->driver->free_pipeline(gpu, gpu->pipelines[i].native);
    free(gpu->pipelines);
    gpu->pipelines = NULL;
    gpu->n_pipelines = gpu->max_pipelines = 0;
}
