/* Finding a Metal device, opening it, and its memory. */
#import "backend/metal/metal.h"

#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pages of the host can be shared with the device in units of this: a page of Apple's own processors, four of the others'. */
enum { PAGE_BYTES = 16384, LEAST_SHARED = 32768, LEAST_THREADS = 512, MOST_THREADS = 1024 };

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* What the device can hold without the system having to move memory about, less what is in use. Its own count of what is in use may leave
 * out pages of the host. */
static uint64_t room_in(const k3_mt *mt)
{
    uint64_t total = [mt->device recommendedMaxWorkingSetSize], used = [mt->device currentAllocatedSize];
    used = used > mt->slab_bytes ? used : mt->slab_bytes;
    return total > used ? total - used : 0;
}

static uint64_t free_bytes(k3_gpu *gpu, uint64_t *total)
{
    const k3_mt *mt = k3_mt_of(gpu);
    uint64_t room = room_in(mt), host = k3_os_memory_available(NULL);
    *total = [mt->device recommendedMaxWorkingSetSize];
    return room < host ? room : host;
}

static int grow_resources(k3_mt *mt)
{
    if (mt->n_resources < mt->max_resources)
        return 1;
    int max = mt->max_resources ? 2 * mt->max_resources : 64;
    id<MTLResource> *grown = realloc(mt->resources, (size_t)max * sizeof *grown);
    if (!grown)
        return 0;
    mt->resources = grown;
    mt->max_resources = max;
    return 1;
}

static k3_gpu_slab *new_slab(k3_gpu *gpu, uint64_t bytes, k3_gpu_purpose purpose, void *pages, k3_status *status, const char **why)
{
    k3_mt *mt = k3_mt_of(gpu);
    (void)purpose;
    *status = K3_E_NOMEM;
    if (pages && ((uintptr_t)pages % PAGE_BYTES || bytes % PAGE_BYTES)) {
        *status = K3_E_UNSUPPORTED;
        *why = "no whole pages";
        return NULL;
    }
    if (bytes > room_in(mt)) {
        *why = "beyond its recommended working set";
        return NULL;
    }
    k3_mt_slab *slab = calloc(1, sizeof *slab);
    if (slab && grow_resources(mt)) {
        @autoreleasepool {
            slab->buffer = pages ? [mt->device newBufferWithBytesNoCopy:pages
                                                                 length:bytes
                                                                options:MTLResourceStorageModeShared
                                                            deallocator:nil]
                                 : [mt->device newBufferWithLength:bytes options:MTLResourceStorageModeShared];
        }
    }
    if (!slab || !slab->buffer) {
        *why = "out of memory";
        free(slab);
        return NULL;
    }
    slab->base.bytes = bytes;
    slab->base.address = [slab->buffer gpuAddress];
    slab->base.host = [slab->buffer contents];
    mt->resources[mt->n_resources++] = slab->buffer;
    mt->slab_bytes += bytes;
    return &slab->base;
}

/* Commands that are recorded or in flight know every buffer, used or not, so they come first. */
static void free_slab(k3_gpu *gpu, k3_gpu_slab *base)
{
    k3_mt *mt = k3_mt_of(gpu);
    k3_mt_slab *slab = (k3_mt_slab *)base;
    k3_gpu_wait(gpu, 0);
    int i = 0;
    while (mt->resources[i] != slab->buffer)
        i++;
    mt->resources[i] = mt->resources[--mt->n_resources];
    mt->slab_bytes -= base->bytes;
    [slab->buffer release];
    free(slab);
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

static id<MTLDevice> chosen(NSArray<id<MTLDevice>> *devices, const char *wish, char *names, size_t size)
{
    char *end;
    unsigned long number = strtoul(wish, &end, 10);
    int by_number = !*end;
    id<MTLDevice> found = nil;
    for (NSUInteger i = 0; i < [devices count]; i++) {
        id<MTLDevice> device = [devices objectAtIndex:i];
        const char *name = [[device name] UTF8String];
        size_t used = strlen(names);
        snprintf(names + used, size - used, "%s%lu: %s", i ? ", " : "", (unsigned long)i, name);
        if (!found && (by_number ? number == i : k3_gpu_name_has(name, wish)))
            found = device;
    }
    return [found retain];
}

/* The first that shares the host's memory; where none does the system's default, which is refused by name. */
static id<MTLDevice> first_unified(NSArray<id<MTLDevice>> *devices)
{
    for (NSUInteger i = 0; i < [devices count]; i++)
        if ([[devices objectAtIndex:i] hasUnifiedMemory])
            return [[devices objectAtIndex:i] retain];
    return MTLCreateSystemDefaultDevice();
}

static k3_status choose(k3_mt *mt, const char *wish, k3_error *err)
{
    char names[600] = "";
    int any = !wish || !*wish;
    NSArray<id<MTLDevice>> *devices = MTLCopyAllDevices();
    int n = (int)[devices count];
    mt->device = any ? first_unified(devices) : chosen(devices, wish, names, sizeof names);
    [devices release];
    if (!mt->device && (any || !n))
        return k3_fail(err, K3_E_NOT_FOUND, "metal: there is no device; use the CPU");
    if (!mt->device)
        return k3_fail(err, K3_E_NOT_FOUND, "metal: no device \"%s\"; here are %s", wish, names);
    snprintf(mt->gpu.name, sizeof mt->gpu.name, "metal:%s", [[mt->device name] UTF8String]);
    return K3_OK;
}

static k3_status check_device(const k3_mt *mt, k3_error *err)
{
    const char *missing = NULL, *name = mt->gpu.name;
    if (![mt->device hasUnifiedMemory])
        return k3_fail(err, K3_E_UNSUPPORTED,
                       "%s has memory of its own; only devices that share the host's are used: name another, or use the CPU", name);
    if (![mt->device supportsFamily:MTLGPUFamilyMetal3])
        missing = "Metal 3";
    else if ([mt->device maxThreadgroupMemoryLength] < LEAST_SHARED)
        missing = "32 KiB of threadgroup memory";
    else if ([mt->device maxThreadsPerThreadgroup].width < LEAST_THREADS)
        missing = "threadgroups of 512";
    return missing ? k3_fail(err, K3_E_UNSUPPORTED, "%s lacks %s, which the kernels need; use the CPU", name, missing) : K3_OK;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Metal does not tell. The kinds of Apple's processors differ more than their generations. */
static uint32_t guess_cores(const char *name)
{
    return k3_gpu_name_has(name, "ultra") ? 60 : k3_gpu_name_has(name, "max") ? 32 : k3_gpu_name_has(name, "pro") ? 16 : 10;
}

/* The operations whose kernels for matrix units are all there. */
static uint32_t matrix_operations(void)
{
    static const struct {
        k3_gpu_op op;
        k3_gpu_shader shader;
    } wanted[] = {
        {K3_GPU_MATMUL, K3_GPU_SHADER_matmul_matrix},
        {K3_GPU_MOE_EXPERTS, K3_GPU_SHADER_moe_experts_matrix},
        {K3_GPU_KDA_CHUNK, K3_GPU_SHADER_kda_chunk_matrix},
        {K3_GPU_MLA_ATTEND, K3_GPU_SHADER_mla_attend_matrix},
        {K3_GPU_MLA_ATTEND, K3_GPU_SHADER_mla_attend_heads_matrix},
    };
    uint32_t found = 0, missing = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        *(k3_mt_kernels[wanted[i].shader].text ? &found : &missing) |= 1u << wanted[i].op;
    return found & ~missing;
}

static void learn_limits(k3_mt *mt)
{
    static const uint64_t four_gib = (uint64_t)4 << 30;
    k3_gpu_limits *limits = &mt->gpu.limits;
    uint64_t most = [mt->device maxBufferLength], threads = [mt->device maxThreadsPerThreadgroup].width;
    mt->gpu.max_allocation = (most < four_gib ? most : four_gib - K3_GPU_ALIGN) / K3_GPU_ALIGN * K3_GPU_ALIGN;
    limits->shared_bytes = (uint32_t)[mt->device maxThreadgroupMemoryLength];
    limits->groups_x = INT32_MAX;
    limits->groups_yz = UINT16_MAX;
    limits->invocations = threads < MOST_THREADS ? (uint32_t)threads : MOST_THREADS;
    limits->cores = guess_cores(mt->gpu.name);
    limits->f16 = !limits->exact;
}

static const k3_gpu_driver driver = {
    .new_slab = new_slab,
    .free_slab = free_slab,
    .free_bytes = free_bytes,
    .begin = k3_mt_begin,
    .submit = k3_mt_submit,
    .wait = k3_mt_wait,
    .barrier = k3_mt_barrier,
    .dispatch = k3_mt_dispatch,
    .copy = k3_mt_copy,
    .times = k3_mt_times,
    .new_pipeline = k3_mt_new_pipeline,
    .free_pipeline = k3_mt_free_pipeline,
};

static void metal_close(k3_backend *be)
{
    if (!be)
        return;
    k3_mt *mt = k3_mt_of(k3_gpu_of(be));
    @autoreleasepool {
        k3_mt_settle(mt);
        k3_gpu_close(&mt->gpu);
        k3_mt_close_pipelines(mt);
        [mt->event release];
        [mt->queue release];
        [mt->device release];
    }
    free(mt->resources);
    free(mt);
}

static k3_status open_parts(k3_mt *mt, const char *wish, const k3_backend_config *config, k3_error *err)
{
    k3_gpu *gpu = &mt->gpu;
    K3_TRY(choose(mt, wish, err));
    K3_TRY(check_device(mt, err));
    learn_limits(mt);
    gpu->timing = config->timing;
    if (config->kernels_dir && snprintf(mt->kernels_dir, sizeof mt->kernels_dir, "%s", config->kernels_dir) >= (int)sizeof mt->kernels_dir)
        return k3_fail(err, K3_E_INVALID, "%s: the name of the folder of kernels is longer than %zu bytes", gpu->name,
                       sizeof mt->kernels_dir - 1);
    mt->queue = [mt->device newCommandQueue];
    mt->event = [mt->device newSharedEvent];
    if (!mt->queue || !mt->event)
        return k3_fail(err, K3_E_DEVICE, "%s gives no %s", gpu->name, mt->queue ? "event" : "command queue");
    if (!k3_mt_open_pipelines(mt))
        return k3_fail(err, gpu->failure.status, "%s", gpu->failure.text);
    gpu->limits.subgroup = (uint32_t)[mt->copy threadExecutionWidth];
    if (gpu->limits.f16 && gpu->limits.subgroup == 32 && [mt->device supportsFamily:MTLGPUFamilyApple7])
        gpu->limits.matrix = matrix_operations();
    gpu->limits.small_tiles = 1;
    uint64_t most = [mt->device recommendedMaxWorkingSetSize];
    if (config->vram > most) /* beyond it the whole machine may hang */
        return k3_fail(err, K3_E_NOMEM, "%s: --vram is %.2f GB, its recommended working set %.2f GB; %s", gpu->name,
                       (double)config->vram * 1e-9, (double)most * 1e-9, gpu->base.more_memory);
    return k3_gpu_open(gpu, config, "unified memory", err);
}

k3_status k3_metal_open(k3_backend **out, const char *device, const k3_backend_config *config, k3_error *err)
{
    *out = NULL;
    k3_mt *mt = calloc(1, sizeof *mt);
    if (!mt)
        return k3_fail(err, K3_E_NOMEM, "metal: out of memory");
    k3_gpu_init(&mt->gpu, &driver, config, metal_close);
    mt->gpu.base.shares_memory = 1;
    mt->gpu.base.more_memory = "`sudo sysctl iogpu.wired_limit_mb=N` lets the GPU use N MB until the next start";
    k3_status status = K3_OK;
    @autoreleasepool {
        status = open_parts(mt, device, config, err);
    }
    if (status != K3_OK)
        metal_close(&mt->gpu.base);
    else
        *out = &mt->gpu.base;
    return status;
}

k3_status k3_metal_list(char **text, k3_error *err)
{
    enum { A_LINE = 400 };
    char *lines = NULL;
    @autoreleasepool {
        NSArray<id<MTLDevice>> *devices = MTLCopyAllDevices();
        lines = calloc([devices count] + 1, A_LINE);
        for (NSUInteger i = 0; lines && i < [devices count]; i++) {
            id<MTLDevice> device = [devices objectAtIndex:i];
            snprintf(lines + strlen(lines), A_LINE, "metal:%lu  %s  %s  %.1f GB\n", (unsigned long)i, [[device name] UTF8String],
                     [device hasUnifiedMemory] ? "unified memory" : "memory of its own: not used",
                     (double)[device recommendedMaxWorkingSetSize] * 1e-9);
        }
        [devices release];
    }
    *text = lines;
    return lines ? K3_OK : k3_fail(err, K3_E_NOMEM, "metal: out of memory");
}
