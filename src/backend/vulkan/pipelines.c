/* Compiling pipelines, and keeping what was compiled between runs. They share one layout: push constants and nothing else. */
#include "backend/vulkan/spirv.h" /* made at build time */
#include "backend/vulkan/vulkan.h"

#include "base/hash.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- compiled kernels between runs ------------------------------------------------------------------------- */

/* What stands before the driver's bytes in a cache file. A file that is cut, damaged or of another driver is not shown to the driver. */
typedef struct k3_vk_cache_header {
    char magic[8];
    uint8_t uuid[VK_UUID_SIZE];
    uint32_t vendor, device, driver, version;
    uint64_t bytes, hash;
} k3_vk_cache_header;

enum { MAX_CACHE_BYTES = 256 << 20 };

static k3_vk_cache_header header_for(const k3_vk *vk, const void *data, uint64_t bytes)
{
    const VkPhysicalDeviceProperties *p = &vk->properties;
    k3_vk_cache_header h = {.magic = "k3 vkpc",
                            .vendor = p->vendorID,
                            .device = p->deviceID,
                            .driver = p->driverVersion,
                            .version = 1,
                            .bytes = bytes,
                            .hash = k3_hash_on(K3_HASH_NOTHING, data, bytes)};
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
    if (!vk->cache_path[0] || !vk->gpu.compiled || vk->gpu.lost ||
        vk->fn.vkGetPipelineCacheData(vk->device, vk->cache, &bytes, NULL) != VK_SUCCESS)
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
    VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, K3_GPU_MAX_ARGS};
    VkPipelineLayoutCreateInfo layout = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, .pushConstantRangeCount = 1, .pPushConstantRanges = &range};
    return k3_vk_ok(vk, vk->fn.vkCreatePipelineLayout(vk->device, &layout, NULL, &vk->layout), "making the pipeline layout") &&
           k3_vk_ok(vk, make_cache(vk), "making the pipeline cache");
}

void k3_vk_close_pipelines(k3_vk *vk)
{
    if (vk->cache)
        write_cache(vk);
    if (vk->cache)
        vk->fn.vkDestroyPipelineCache(vk->device, vk->cache, NULL);
    if (vk->layout)
        vk->fn.vkDestroyPipelineLayout(vk->device, vk->layout, NULL);
}

static VkResult compile(k3_vk *vk, const k3_gpu_pipeline *wanted, VkPipeline *out)
{
    const k3_vk_spirv *spirv = &k3_vk_shaders[wanted->shader];
    VkShaderModuleCreateInfo module_info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = spirv->bytes, .pCode = spirv->words};
    VkSpecializationMapEntry entries[K3_GPU_MAX_SPEC];
    for (int i = 0; i < wanted->n_spec; i++)
        entries[i] = (VkSpecializationMapEntry){(uint32_t)i, 4 * (uint32_t)i, 4};
    VkSpecializationInfo spec = {(uint32_t)wanted->n_spec, entries, 4 * (size_t)wanted->n_spec, wanted->spec};
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size = {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
                                                                NULL, vk->gpu.limits.subgroup};
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

void *k3_vk_new_pipeline(k3_gpu *gpu, const k3_gpu_pipeline *wanted)
{
    k3_vk *vk = k3_vk_of(gpu);
    VkPipeline pipeline = VK_NULL_HANDLE;
    return k3_vk_ok(vk, compile(vk, wanted, &pipeline), k3_vk_shaders[wanted->shader].name) ? (void *)pipeline : NULL;
}

void k3_vk_free_pipeline(k3_gpu *gpu, void *pipeline)
{
    k3_vk *vk = k3_vk_of(gpu);
    vk->fn.vkDestroyPipeline(vk->device, pipeline, NULL);
}
