/* Device memory for the GPU backend: which heap and memory type serves what, one VkDeviceMemory and VkBuffer a slab. */
#include "backend/vulkan/vulkan.h"

#include <stdlib.h>

/* ---- heaps ------------------------------------------------------------------------------------------------- */

static void heap_room(const k3_vk *vk, uint64_t room[VK_MAX_MEMORY_HEAPS])
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 now = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, vk->has_budget ? &budget : NULL, {0}};
    vkGetPhysicalDeviceMemoryProperties2(vk->physical, &now);
    for (uint32_t h = 0; h < vk->memory.memoryHeapCount; h++)
        room[h] = vk->memory.memoryHeaps[h].size;
    for (int i = 0; !vk->has_budget && i < vk->gpu.n_slabs; i++) {
        const k3_vk_slab *slab = (const k3_vk_slab *)vk->gpu.slabs[i];
        uint64_t *r = &room[slab->heap], bytes = slab->base.wrapped ? 0 : slab->base.bytes;
        *r -= bytes < *r ? bytes : *r;
    }
    for (uint32_t h = 0; vk->has_budget && h < vk->memory.memoryHeapCount; h++)
        room[h] = budget.heapBudget[h] > budget.heapUsage[h] ? budget.heapBudget[h] - budget.heapUsage[h] : 0;
}

/* Weights may lie in device-local heaps; where the device shares the host's memory, in all of them. */
static int heap_is_ours(const k3_vk *vk, uint32_t heap)
{
    return vk->is_unified || (vk->memory.memoryHeaps[heap].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT);
}

uint64_t k3_vk_free_bytes(k3_gpu *gpu, uint64_t *total)
{
    const k3_vk *vk = k3_vk_of(gpu);
    uint64_t room[VK_MAX_MEMORY_HEAPS], sum = 0;
    heap_room(vk, room);
    *total = 0;
    for (uint32_t h = 0; h < vk->memory.memoryHeapCount; h++)
        if (heap_is_ours(vk, h)) {
            sum += room[h];
            *total += vk->memory.memoryHeaps[h].size;
        }
    return sum;
}

/* How well a memory type serves; 0: not at all. Device memory that the host sees as well is taken for tables before host memory, and for
 * everything else only after plain device memory, because there may be little of it. */
static int fitness(const k3_vk *vk, uint32_t type, k3_gpu_purpose purpose)
{
    VkMemoryPropertyFlags flags = vk->memory.memoryTypes[type].propertyFlags;
    int local = (flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0;
    int visible = (flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) && (flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
    int cached = (flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
    if (flags & (VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT | VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD))
        return 0;
    if (purpose == K3_GPU_FOR_DEVICE) {
        if (!heap_is_ours(vk, vk->memory.memoryTypes[type].heapIndex))
            return 0;
        return local ? (vk->is_unified == visible ? 4 : 3) : visible ? 2 : 1;
    }
    if (!visible)
        return 0;
    return purpose == K3_GPU_FOR_TABLES ? 1 + 2 * local : purpose == K3_GPU_FOR_READING ? 1 + 2 * cached : 2 - local;
}

/* ---- slabs ------------------------------------------------------------------------------------------------- */

static VkResult fill_slab(k3_vk *vk, k3_vk_slab *slab, uint32_t type_bits, uint32_t type, const void *host)
{
    VkImportMemoryHostPointerInfoEXT import = {VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT, NULL,
                                               VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, (void *)(uintptr_t)host};
    VkMemoryPriorityAllocateInfoEXT priority = {VK_STRUCTURE_TYPE_MEMORY_PRIORITY_ALLOCATE_INFO_EXT, host ? &import : NULL,
                                                vk->gpu.priority};
    VkMemoryAllocateFlagsInfo flags = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, NULL, VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
    flags.pNext = vk->has_priority ? (const void *)&priority : priority.pNext;
    VkMemoryAllocateInfo info = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, slab->base.bytes, type};
    if (!(type_bits & (1u << type)))
        return VK_ERROR_FEATURE_NOT_PRESENT;
    VkResult result = vk->fn.vkAllocateMemory(vk->device, &info, NULL, &slab->memory);
    if (result != VK_SUCCESS)
        return result;
    result = vk->fn.vkBindBufferMemory(vk->device, slab->buffer, slab->memory, 0);
    if (result == VK_SUCCESS && !host && (vk->memory.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)) {
        void *at = NULL;
        result = vk->fn.vkMapMemory(vk->device, slab->memory, 0, VK_WHOLE_SIZE, 0, &at);
        slab->base.host = at;
    }
    return result;
}

void k3_vk_free_slab(k3_gpu *gpu, k3_gpu_slab *base)
{
    k3_vk *vk = k3_vk_of(gpu);
    k3_vk_slab *slab = (k3_vk_slab *)base;
    if (slab->buffer)
        vk->fn.vkDestroyBuffer(vk->device, slab->buffer, NULL);
    if (slab->memory)
        vk->fn.vkFreeMemory(vk->device, slab->memory, NULL);
    free(slab);
}

/* A buffer object of that size: plain, or over host pages. */
static VkResult make_buffer(k3_vk *vk, k3_vk_slab *slab, const void *host, VkMemoryRequirements *needs)
{
    VkExternalMemoryBufferCreateInfo external = {VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, NULL,
                                                 VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT};
    uint32_t families[2] = {vk->family, vk->transfer_family};
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .pNext = host ? &external : NULL,
                               .size = slab->base.bytes,
                               .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
                               .sharingMode = vk->family == vk->transfer_family ? VK_SHARING_MODE_EXCLUSIVE : VK_SHARING_MODE_CONCURRENT,
                               .queueFamilyIndexCount = 2,
                               .pQueueFamilyIndices = families};
    VkResult result = vk->fn.vkCreateBuffer(vk->device, &info, NULL, &slab->buffer);
    if (result == VK_SUCCESS)
        vk->fn.vkGetBufferMemoryRequirements(vk->device, slab->buffer, needs);
    return result;
}

/* Tries the memory types from the fittest on, and of equally fit ones the heap with the most room; a heap without room is passed over,
 * since allocations beyond the budget may succeed and lose the device later. */
static VkResult place_slab(k3_vk *vk, k3_vk_slab *slab, uint32_t type_bits, k3_gpu_purpose purpose)
{
    uint64_t room[VK_MAX_MEMORY_HEAPS];
    uint32_t tried = 0;
    VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    heap_room(vk, room);
    for (;;) {
        int best = -1, best_fitness = 0;
        uint64_t best_room = 0;
        for (uint32_t t = 0; t < vk->memory.memoryTypeCount; t++) {
            uint32_t heap = vk->memory.memoryTypes[t].heapIndex;
            int fits = fitness(vk, t, purpose);
            if ((tried & (1u << t)) || !(type_bits & (1u << t)) || !fits || room[heap] < slab->base.bytes)
                continue;
            if (fits > best_fitness || (fits == best_fitness && room[heap] > best_room)) {
                best = (int)t;
                best_fitness = fits;
                best_room = room[heap];
            }
        }
        if (best < 0)
            return result;
        tried |= 1u << best;
        slab->heap = vk->memory.memoryTypes[best].heapIndex;
        result = fill_slab(vk, slab, type_bits, (uint32_t)best, NULL);
        if (result == VK_SUCCESS || (result != VK_ERROR_OUT_OF_DEVICE_MEMORY && result != VK_ERROR_OUT_OF_HOST_MEMORY))
            return result;
    }
}

/* Memory over the host's pages, which must be aligned as the device asks. */
static VkResult import_pages(k3_vk *vk, k3_vk_slab *slab, void *pages)
{
    VkMemoryHostPointerPropertiesEXT allowed = {.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    VkMemoryRequirements needs = {0};
    if (!vk->has_host_import || (uintptr_t)pages % vk->host_alignment || slab->base.bytes % vk->host_alignment)
        return VK_ERROR_FEATURE_NOT_PRESENT;
    VkResult result =
        vk->fn.vkGetMemoryHostPointerPropertiesEXT(vk->device, VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, pages, &allowed);
    if (result == VK_SUCCESS)
        result = make_buffer(vk, slab, pages, &needs);
    if (result != VK_SUCCESS)
        return result;
    for (uint32_t t = 0; t < vk->memory.memoryTypeCount; t++)
        if (needs.memoryTypeBits & allowed.memoryTypeBits & (1u << t))
            return fill_slab(vk, slab, needs.memoryTypeBits, t, pages);
    return VK_ERROR_FEATURE_NOT_PRESENT;
}

static VkResult allocate(k3_vk *vk, k3_vk_slab *slab, k3_gpu_purpose purpose)
{
    VkMemoryRequirements needs;
    VkResult result = make_buffer(vk, slab, NULL, &needs);
    if (result == VK_SUCCESS) {
        slab->base.bytes = needs.size > slab->base.bytes ? needs.size : slab->base.bytes; /* what the device rounds it up to */
        result = place_slab(vk, slab, needs.memoryTypeBits, purpose);
    }
    return result;
}

k3_gpu_slab *k3_vk_new_slab(k3_gpu *gpu, uint64_t bytes, k3_gpu_purpose purpose, void *pages, k3_status *status, const char **why)
{
    k3_vk *vk = k3_vk_of(gpu);
    k3_vk_slab *slab = calloc(1, sizeof *slab);
    VkResult result = VK_ERROR_OUT_OF_HOST_MEMORY;
    if (slab) {
        slab->base.bytes = bytes;
        result = pages ? import_pages(vk, slab, pages) : allocate(vk, slab, purpose);
    }
    if (result == VK_SUCCESS) {
        VkBufferDeviceAddressInfo where = {VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, NULL, slab->buffer};
        slab->base.address = vk->fn.vkGetBufferDeviceAddress(vk->device, &where);
        return &slab->base;
    }
    *status = result == VK_ERROR_DEVICE_LOST ? K3_E_DEVICE : result == VK_ERROR_FEATURE_NOT_PRESENT ? K3_E_UNSUPPORTED : K3_E_NOMEM;
    *why = k3_vk_result_name(result);
    if (slab)
        k3_vk_free_slab(gpu, &slab->base);
    return NULL;
}
