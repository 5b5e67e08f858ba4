/* Pipelines: a shader with values for its specialization constants, compiled the first time it is wanted. They share one layout: 128 bytes
 * of push constants and nothing else. */
#include "backend/vulkan/device.h"

#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PUSH_BYTES = 128 };

/* ---- compiled kernels between runs ------------------------------------------------------------------------- */

/* What stands before the driver's bytes in a cache file. A file that is cut, damaged or of another driver is not shown to the driver. */
typedef struct k3_vk_cache_header {
    char magic[8];
    uint8_t uuid[VK_UUID_SIZE];
    uint32_t vendor, device, driver, version;
    uint64_t bytes, hash;
} k3_vk_cache_header;

enum { MAX_CACHE_BYTES = 256 << 20 };

static uint64_t hash_bytes(const unsigned char *data, uint64_t n)
{
    uint64_t h = 14695981039346656037u;
    for (uint64_t i = 0; i < n; i++)
        h = (h ^ data[i]) * 1099511628211u;
    return h;
}

static k3_vk_cache_header header_for(const k3_vk *vk, const void *data, uint64_t bytes)
{
    const VkPhysicalDeviceProperties *p = &vk->properties;
    k3_vk_cache_header h = {.magic = "k3 vkpc",
                            .vendor = p->vendorID,
                            .device = p->deviceID,
                            .driver = p->driverVersion,
                            .version = 1,
                            .bytes = bytes,
                            .hash = hash_bytes(data, bytes)};
    memcpy(h.uuid, p->pipelineCacheUUID, sizeof h.uuid);
    return h;
}

/* The driver's bytes of the cache file, which follow a header in *file (freed by the caller); 0 if there are none that fit. */
static size_t read_cache(const k3_vk *vk, char **file)
{
    size_t n = 0;
    k3_error err;
    *file = NULL;
    if (!vk->cache_path[0] || k3_os_read_file(file, &n, vk->cache_path, MAX_CACHE_BYTES, &err) != K3_OK)
        return 0;
    k3_vk_cache_header found, wanted;
    if (n < sizeof found)
        return 0;
    memcpy(&found, *file, sizeof found);
    wanted = header_for(vk, *file + sizeof found, n - sizeof found);
    return memcmp(&found, &wanted, sizeof found) == 0 ? n - sizeof found : 0;
}

/* Written beside the file and moved over it, so that two programs never share a half-written one. That it cannot be written is no
 * failure: the next run compiles again. */
static void write_cache(k3_vk *vk)
{
    char beside[sizeof vk->cache_path + 32];
    size_t bytes = 0;
    if (!vk->cache_path[0] || !vk->compiled || vk->lost || vk->fn.vkGetPipelineCacheData(vk->device, vk->cache, &bytes, NULL) != VK_SUCCESS)
        return;
    void *data = malloc(bytes ? bytes : 1);
    if (data && vk->fn.vkGetPipelineCacheData(vk->device, vk->cache, &bytes, data) == VK_SUCCESS) {
        k3_vk_cache_header header = header_for(vk, data, bytes);
        snprintf(beside, sizeof beside, "%s.%ld", vk->cache_path, (long)getpid());
        FILE *f = fopen(beside, "wb");
        int written = f && fwrite(&header, sizeof header, 1, f) == 1 && fwrite(data, 1, bytes, f) == bytes;
        if (f && (fclose(f) != 0 || !written || rename(beside, vk->cache_path) != 0))
            (void)remove(beside);
    }
    free(data);
}

static VkResult make_cache(k3_vk *vk)
{
    char *file;
    size_t bytes = read_cache(vk, &file);
    VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                      .initialDataSize = bytes,
                                      .pInitialData = bytes ? file + sizeof(k3_vk_cache_header) : NULL};
    VkResult result = vk->fn.vkCreatePipelineCache(vk->device, &info, NULL, &vk->cache);
    free(file);
    return result;
}

/* ---- pipelines --------------------------------------------------------------------------------------------- */

int k3_vk_open_pipelines(k3_vk *vk)
{
    VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSH_BYTES};
    VkPipelineLayoutCreateInfo layout = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, .pushConstantRangeCount = 1, .pPushConstantRanges = &range};
    return k3_vk_ok(vk, vk->fn.vkCreatePipelineLayout(vk->device, &layout, NULL, &vk->layout), "making the pipeline layout") &&
           k3_vk_ok(vk, make_cache(vk), "making the pipeline cache");
}

void k3_vk_close_pipelines(k3_vk *vk)
{
    for (int i = 0; i < vk->max_pipelines; i++)
        if (vk->pipelines[i].pipeline)
            vk->fn.vkDestroyPipeline(vk->device, vk->pipelines[i].pipeline, NULL);
    free(vk->pipelines);
    if (vk->cache)
        write_cache(vk);
    if (vk->cache)
        vk->fn.vkDestroyPipelineCache(vk->device, vk->cache, NULL);
    if (vk->layout)
        vk->fn.vkDestroyPipelineLayout(vk->device, vk->layout, NULL);
}

static VkResult compile(k3_vk *vk, const k3_vk_pipeline *wanted, VkPipeline *out)
{
    const k3_vk_spirv *spirv = &k3_vk_shaders[wanted->shader];
    VkShaderModuleCreateInfo module_info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = spirv->bytes, .pCode = spirv->words};
    VkSpecializationMapEntry entries[K3_VK_MAX_SPEC];
    for (int i = 0; i < wanted->n_spec; i++)
        entries[i] = (VkSpecializationMapEntry){(uint32_t)i, 4 * (uint32_t)i, 4};
    VkSpecializationInfo spec = {(uint32_t)wanted->n_spec, entries, 4 * (size_t)wanted->n_spec, wanted->spec};
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size = {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
                                                                NULL, vk->limits.subgroup};
    VkShaderModule module;
    VkResult result = vk->fn.vkCreateShaderModule(vk->device, &module_info, NULL, &module);
    if (result != VK_SUCCESS)
        return result;
    VkComputePipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO, .layout = vk->layout};
    info.stage = (VkPipelineShaderStageCreateInfo){.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                   .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                   .module = module,
                                                   .pName = "main",
                                                   .pSpecializationInfo = &spec};
    if (wanted->full && vk->has_size_control) {
        info.stage.pNext = &size;
        info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    }
    result = vk->fn.vkCreateComputePipelines(vk->device, vk->cache, 1, &info, NULL, out);
    vk->fn.vkDestroyShaderModule(vk->device, module, NULL);
    return result;
}

static int same(const k3_vk_pipeline *a, const k3_vk_pipeline *b)
{
    return a->shader == b->shader && a->n_spec == b->n_spec && a->full == b->full && !memcmp(a->spec, b->spec, sizeof a->spec);
}

static uint32_t hash_of(const k3_vk_pipeline *p)
{
    uint32_t h = 2166136261u ^ (uint32_t)p->shader;
    for (int i = 0; i < p->n_spec; i++)
        h = (h ^ p->spec[i]) * 16777619u;
    return h ^ (h >> 15);
}

/* Open addressing over max_pipelines places, a power of two; a place without a pipeline is free. */
static k3_vk_pipeline *place_for(k3_vk_pipeline *table, int n, const k3_vk_pipeline *wanted)
{
    uint32_t i = hash_of(wanted) & (uint32_t)(n - 1);
    while (table[i].pipeline && !same(&table[i], wanted))
        i = (i + 1) & (uint32_t)(n - 1);
    return &table[i];
}

static int grow(k3_vk *vk)
{
    int max = vk->max_pipelines ? 2 * vk->max_pipelines : 128;
    k3_vk_pipeline *grown = calloc((size_t)max, sizeof *grown);
    if (!grown) {
        k3_vk_fail(vk, K3_E_NOMEM, "%s: the system has no memory left", vk->base.name);
        return 0;
    }
    for (int i = 0; i < vk->max_pipelines; i++)
        if (vk->pipelines[i].pipeline)
            *place_for(grown, max, &vk->pipelines[i]) = vk->pipelines[i];
    free(vk->pipelines);
    vk->pipelines = grown;
    vk->max_pipelines = max;
    return 1;
}

VkPipeline k3_vk_pipeline_of(k3_vk *vk, k3_vk_shader shader, const uint32_t *spec, int n_spec, int full)
{
    k3_vk_pipeline wanted = {.shader = shader, .n_spec = n_spec, .full = full};
    for (int i = 0; i < n_spec; i++)
        wanted.spec[i] = spec[i];
    if (2 * vk->n_pipelines >= vk->max_pipelines && !grow(vk))
        return VK_NULL_HANDLE;
    k3_vk_pipeline *place = place_for(vk->pipelines, vk->max_pipelines, &wanted);
    if (place->pipeline)
        return place->pipeline;
    if (vk->progress)
        (void)vk->progress(vk->user, "compiling kernels", (uint64_t)vk->compiled, 0);
    vk->compiled++;
    if (!k3_vk_ok(vk, compile(vk, &wanted, &wanted.pipeline), k3_vk_shaders[shader].name))
        return VK_NULL_HANDLE;
    *place = wanted;
    vk->n_pipelines++;
    return wanted.pipeline;
}
