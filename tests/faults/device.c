/* What happens on a device: queues, memory, kernels, work. */
#include "layer.h"

#include <stddef.h>
#include <string.h>
#include <time.h>

/* ---- queues ----------------------------------------------------------------------------------------------------- */

static VKAPI_ATTR void VKAPI_CALL GetDeviceQueue(VkDevice device, uint32_t family, uint32_t index, VkQueue *queue)
{
    NEXT_D(device_of(device), vkGetDeviceQueue)(device, wanted[S_TRANSFER_QUEUE] ? 0 : family, index, queue);
}

static VKAPI_ATTR VkResult VKAPI_CALL CreateCommandPool(VkDevice device, const VkCommandPoolCreateInfo *info,
                                                        const VkAllocationCallbacks *allocator, VkCommandPool *pool)
{
    VkCommandPoolCreateInfo changed = *info;
    if (wanted[S_TRANSFER_QUEUE])
        changed.queueFamilyIndex = 0;
    return NEXT_D(device_of(device), vkCreateCommandPool)(device, &changed, allocator, pool);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static int is_refused(const VkMemoryAllocateInfo *info, uint64_t n)
{
    return n == wanted[S_FAIL_ALLOCATE] || (wanted[S_FAIL_ALLOCATE_FROM] && n >= wanted[S_FAIL_ALLOCATE_FROM]) ||
           (wanted[S_MAX_ALLOCATION] && info->allocationSize > wanted[S_MAX_ALLOCATION]);
}

static VKAPI_ATTR VkResult VKAPI_CALL AllocateMemory(VkDevice device, const VkMemoryAllocateInfo *info,
                                                     const VkAllocationCallbacks *allocator, VkDeviceMemory *memory)
{
    below *b = device_of(device);
    uint64_t n = count(C_ALLOCATE);
    mock m = mock_of();
    VkMemoryAllocateInfo changed = *info;
    uint64_t bytes = chained(info->pNext, VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT) ? 0 : info->allocationSize;
    if (b->lost)
        return VK_ERROR_DEVICE_LOST;
    if (is_refused(info, n))
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (chained(info->pNext, VK_STRUCTURE_TYPE_MEMORY_PRIORITY_ALLOCATE_INFO_EXT))
        count(C_PRIORITIES);
    if (is_mocked(VK_EXT_MEMORY_PRIORITY_EXTENSION_NAME))
        unchain(&changed, VK_STRUCTURE_TYPE_MEMORY_PRIORITY_ALLOCATE_INFO_EXT);
    if (m.n_heaps) {
        uint32_t heap = heap_of_type(&m, info->memoryTypeIndex);
        if (bytes && used_of(&m, heap) + bytes > m.heaps[heap].size)
            return VK_ERROR_OUT_OF_DEVICE_MEMORY;
        changed.memoryTypeIndex = 0;
    }
    VkResult result = NEXT_D(b, vkAllocateMemory)(device, &changed, allocator, memory);
    if (result != VK_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    if (b->n_live < MAX_LIVE)
        b->memory[b->n_live++] = (live){*memory, bytes, info->memoryTypeIndex};
    counts[C_LIVE_BYTES] += bytes;
    pthread_mutex_unlock(&lock);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL FreeMemory(VkDevice device, VkDeviceMemory memory, const VkAllocationCallbacks *allocator)
{
    below *b = device_of(device);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < b->n_live; i++)
        if (b->memory[i].memory == memory) {
            counts[C_LIVE_BYTES] -= b->memory[i].bytes < counts[C_LIVE_BYTES] ? b->memory[i].bytes : counts[C_LIVE_BYTES];
            counts[C_FREE]++;
            b->memory[i] = b->memory[--b->n_live];
            break;
        }
    pthread_mutex_unlock(&lock);
    NEXT_D(b, vkFreeMemory)(device, memory, allocator);
}

/* Memory of a type that the host does not see cannot be mapped. */
static VKAPI_ATTR VkResult VKAPI_CALL MapMemory(VkDevice device, VkDeviceMemory memory, VkDeviceSize at, VkDeviceSize bytes,
                                                VkMemoryMapFlags flags, void **host)
{
    below *b = device_of(device);
    mock m = mock_of();
    for (int i = 0; m.n_heaps && i < b->n_live; i++)
        if (b->memory[i].memory == memory && !(m.types[b->memory[i].type].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT))
            return VK_ERROR_MEMORY_MAP_FAILED;
    return NEXT_D(b, vkMapMemory)(device, memory, at, bytes, flags, host);
}

static VKAPI_ATTR VkResult VKAPI_CALL CreateBuffer(VkDevice device, const VkBufferCreateInfo *info, const VkAllocationCallbacks *allocator,
                                                   VkBuffer *buffer)
{
    VkBufferCreateInfo changed = *info;
    if (count(C_BUFFERS) == wanted[S_FAIL_BUFFER] || (wanted[S_MAX_BUFFER] && info->size > wanted[S_MAX_BUFFER]))
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (wanted[S_TRANSFER_QUEUE]) {
        changed.sharingMode = VK_SHARING_MODE_EXCLUSIVE;
        changed.queueFamilyIndexCount = 0;
    }
    return NEXT_D(device_of(device), vkCreateBuffer)(device, &changed, allocator, buffer);
}

static VKAPI_ATTR void VKAPI_CALL GetBufferMemoryRequirements(VkDevice device, VkBuffer buffer, VkMemoryRequirements *needs)
{
    mock m = mock_of();
    NEXT_D(device_of(device), vkGetBufferMemoryRequirements)(device, buffer, needs);
    if (m.n_heaps)
        needs->memoryTypeBits = (1u << m.n_types) - 1;
}

static VKAPI_ATTR VkResult VKAPI_CALL GetMemoryHostPointerPropertiesEXT(VkDevice device, VkExternalMemoryHandleTypeFlagBits kind,
                                                                        const void *host, VkMemoryHostPointerPropertiesEXT *p)
{
    mock m = mock_of();
    VkResult result = NEXT_D(device_of(device), vkGetMemoryHostPointerPropertiesEXT)(device, kind, host, p);
    if (m.n_heaps)
        p->memoryTypeBits = m.host_types;
    return result;
}

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

/* void main() {} as a compute shader of one invocation. */
static const uint32_t nothing[] = {
    0x07230203, 0x00010300, 0,  5,          0,                                        /* SPIR-V 1.3, ids below 5 */
    0x00020011, 1,                                                                    /* OpCapability Shader */
    0x0003000e, 0,          1,                                                        /* OpMemoryModel Logical GLSL450 */
    0x0005000f, 5,          1,  0x6e69616d, 0,                                        /* OpEntryPoint GLCompute %1 "main" */
    0x00060010, 1,          17, 1,          1, 1,                                     /* OpExecutionMode %1 LocalSize 1 1 1 */
    0x00020013, 2,                                                                    /* %2 = OpTypeVoid */
    0x00030021, 3,          2,                                                        /* %3 = OpTypeFunction %2 */
    0x00050036, 2,          1,  0,          3, 0x000200f8, 4, 0x000100fd, 0x00010038, /* function, label, return, end */
};

static uint64_t hash_of(const VkShaderModuleCreateInfo *info)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < info->codeSize / 4; i++)
        h = (h ^ info->pCode[i]) * 1099511628211u;
    return h;
}

static VKAPI_ATTR VkResult VKAPI_CALL CreateShaderModule(VkDevice device, const VkShaderModuleCreateInfo *info,
                                                         const VkAllocationCallbacks *allocator, VkShaderModule *module)
{
    VkShaderModuleCreateInfo changed = *info;
    count(C_MODULES);
    if (wanted[S_FALSIFY] && wanted[S_FALSIFY] == hash_of(info)) {
        count(C_FALSIFIED);
        changed.pCode = nothing;
        changed.codeSize = sizeof nothing;
    }
    return NEXT_D(device_of(device), vkCreateShaderModule)(device, &changed, allocator, module);
}

static VKAPI_ATTR VkResult VKAPI_CALL CreateComputePipelines(VkDevice device, VkPipelineCache cache, uint32_t n,
                                                             const VkComputePipelineCreateInfo *info,
                                                             const VkAllocationCallbacks *allocator, VkPipeline *pipelines)
{
    if (count(C_PIPELINES) == wanted[S_FAIL_PIPELINE]) {
        memset(pipelines, 0, n * sizeof *pipelines);
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    return NEXT_D(device_of(device), vkCreateComputePipelines)(device, cache, n, info, allocator, pipelines);
}

static VKAPI_ATTR VkResult VKAPI_CALL CreatePipelineCache(VkDevice device, const VkPipelineCacheCreateInfo *info,
                                                          const VkAllocationCallbacks *allocator, VkPipelineCache *cache)
{
    if (info->initialDataSize)
        count(C_CACHE_READS);
    return NEXT_D(device_of(device), vkCreatePipelineCache)(device, info, allocator, cache);
}

/* ---- work ------------------------------------------------------------------------------------------------------- */

/* Past the budget, where asked for, the device is lost as drivers lose it. */
static int is_overcommitted(void)
{
    mock m = mock_of();
    for (uint32_t h = 0; wanted[S_OVERCOMMIT] && h < (m.n_heaps ? m.n_heaps : 1); h++)
        if (used_of(&m, h) > budget_of(h, UINT64_MAX))
            return 1;
    return 0;
}

/* A lost device does nothing more: what it was given before is done by now. */
static void lose(below *b)
{
    if (!b->lost)
        NEXT_D(b, vkDeviceWaitIdle)(b->device);
    b->lost = 1;
}

static uint64_t microseconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static VKAPI_ATTR VkResult VKAPI_CALL QueueSubmit(VkQueue queue, uint32_t n, const VkSubmitInfo *info, VkFence fence)
{
    below *b = device_of(queue);
    if (count(C_SUBMITS) == wanted[S_LOST_SUBMIT] || is_overcommitted())
        lose(b);
    if (b->lost)
        return VK_ERROR_DEVICE_LOST;
    uint64_t start = microseconds(CLOCK_MONOTONIC), start_cpu = microseconds(CLOCK_PROCESS_CPUTIME_ID);
    VkResult result = NEXT_D(b, vkQueueSubmit)(queue, n, info, fence);
    if (!wanted[S_TIME] || result != VK_SUCCESS)
        return result;
    result = NEXT_D(b, vkQueueWaitIdle)(queue);
    uint64_t took = microseconds(CLOCK_MONOTONIC) - start, took_cpu = microseconds(CLOCK_PROCESS_CPUTIME_ID) - start_cpu;
    pthread_mutex_lock(&lock);
    counts[C_TOTAL_US] += took;
    counts[C_LONGEST_US] = took > counts[C_LONGEST_US] ? took : counts[C_LONGEST_US];
    counts[C_LONGEST_CPU_US] = took_cpu > counts[C_LONGEST_CPU_US] ? took_cpu : counts[C_LONGEST_CPU_US];
    pthread_mutex_unlock(&lock);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL WaitSemaphores(VkDevice device, const VkSemaphoreWaitInfo *info, uint64_t timeout)
{
    below *b = device_of(device);
    if (count(C_WAITS) == wanted[S_LOST_WAIT])
        lose(b);
    return b->lost ? VK_ERROR_DEVICE_LOST : NEXT_D(b, vkWaitSemaphores)(device, info, timeout);
}

static VKAPI_ATTR VkResult VKAPI_CALL GetSemaphoreCounterValue(VkDevice device, VkSemaphore semaphore, uint64_t *value)
{
    below *b = device_of(device);
    return b->lost ? VK_ERROR_DEVICE_LOST : NEXT_D(b, vkGetSemaphoreCounterValue)(device, semaphore, value);
}

static VKAPI_ATTR VkResult VKAPI_CALL QueueWaitIdle(VkQueue queue)
{
    below *b = device_of(queue);
    return b->lost ? VK_ERROR_DEVICE_LOST : NEXT_D(b, vkQueueWaitIdle)(queue);
}

static VKAPI_ATTR VkResult VKAPI_CALL DeviceWaitIdle(VkDevice device)
{
    below *b = device_of(device);
    VkResult result = NEXT_D(b, vkDeviceWaitIdle)(device);
    return b->lost ? VK_ERROR_DEVICE_LOST : result;
}

static VKAPI_ATTR VkResult VKAPI_CALL WaitForFences(VkDevice device, uint32_t n, const VkFence *fences, VkBool32 all, uint64_t timeout)
{
    below *b = device_of(device);
    return b->lost ? VK_ERROR_DEVICE_LOST : NEXT_D(b, vkWaitForFences)(device, n, fences, all, timeout);
}

static VKAPI_ATTR VkResult VKAPI_CALL GetQueryPoolResults(VkDevice device, VkQueryPool pool, uint32_t first, uint32_t n, size_t bytes,
                                                          void *data, VkDeviceSize stride, VkQueryResultFlags flags)
{
    below *b = device_of(device);
    return b->lost ? VK_ERROR_DEVICE_LOST : NEXT_D(b, vkGetQueryPoolResults)(device, pool, first, n, bytes, data, stride, flags);
}

static VKAPI_ATTR void VKAPI_CALL CmdDispatch(VkCommandBuffer commands, uint32_t x, uint32_t y, uint32_t z)
{
    count(C_DISPATCHES);
    NEXT_D(device_of(commands), vkCmdDispatch)(commands, x, y, z);
}

static VKAPI_ATTR void VKAPI_CALL CmdCopyBuffer(VkCommandBuffer commands, VkBuffer src, VkBuffer dst, uint32_t n, const VkBufferCopy *list)
{
    count(C_COPIES);
    NEXT_D(device_of(commands), vkCmdCopyBuffer)(commands, src, dst, n, list);
}

static VKAPI_ATTR void VKAPI_CALL CmdPipelineBarrier(VkCommandBuffer commands, VkPipelineStageFlags src, VkPipelineStageFlags dst,
                                                     VkDependencyFlags flags, uint32_t n_memory, const VkMemoryBarrier *memory,
                                                     uint32_t n_buffer, const VkBufferMemoryBarrier *buffer, uint32_t n_image,
                                                     const VkImageMemoryBarrier *image)
{
    PFN_vkCmdPipelineBarrier next = NEXT_D(device_of(commands), vkCmdPipelineBarrier);
    if (count(C_BARRIERS) != wanted[S_DROP_BARRIER])
        next(commands, src, dst, flags, n_memory, memory, n_buffer, buffer, n_image, image);
}

const entry device_entries[] = {
    ENTRY(GetDeviceQueue),
    ENTRY(CreateCommandPool),
    ENTRY(AllocateMemory),
    ENTRY(FreeMemory),
    ENTRY(MapMemory),
    ENTRY(CreateBuffer),
    ENTRY(GetBufferMemoryRequirements),
    ENTRY(GetMemoryHostPointerPropertiesEXT),
    ENTRY(CreateShaderModule),
    ENTRY(CreateComputePipelines),
    ENTRY(CreatePipelineCache),
    ENTRY(QueueSubmit),
    ENTRY(WaitSemaphores),
    ENTRY(GetSemaphoreCounterValue),
    ENTRY(QueueWaitIdle),
    ENTRY(DeviceWaitIdle),
    ENTRY(WaitForFences),
    ENTRY(GetQueryPoolResults),
    ENTRY(CmdDispatch),
    ENTRY(CmdCopyBuffer),
    ENTRY(CmdPipelineBarrier),
    {NULL, NULL},
};
