/* What a device claims to be: memory heaps, limits, features, extensions, queues. */
#include "layer.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory heaps that are not there -------------------------------------------------------------------------- */

/* d: device; h: host, plain and cached; v: device memory that the host sees. Only over a device with a single type. */
mock mock_of(void)
{
    const VkMemoryPropertyFlags visible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    mock m = {0};
    for (const char *at = heaps_text; *at && m.n_heaps < MAX_HEAPS; at += strcspn(at, ":"), at += *at == ':') {
        uint32_t heap = m.n_heaps++;
        m.heaps[heap] =
            (VkMemoryHeap){strtoull(at + 1, NULL, 10) << 20, *at == 'h' ? 0u : (VkMemoryHeapFlags)VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
        if (*at == 'h') {
            m.host_types |= 3u << m.n_types;
            m.types[m.n_types++] = (VkMemoryType){visible, heap};
            m.types[m.n_types++] = (VkMemoryType){visible | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, heap};
        } else {
            m.types[m.n_types++] = (VkMemoryType){VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | (*at == 'v' ? visible : 0), heap};
        }
    }
    return m;
}

uint64_t budget_of(uint32_t heap, uint64_t otherwise)
{
    const char *at = budget_text;
    for (uint32_t i = 0; i < heap && *at; i++)
        at += strcspn(at, ":"), at += *at == ':';
    return *at ? strtoull(at, NULL, 10) : otherwise;
}

uint32_t heap_of_type(const mock *m, uint32_t type)
{
    return m->n_heaps ? m->types[type].heapIndex : 0;
}

uint64_t used_of(const mock *m, uint32_t heap)
{
    uint64_t used = 0;
    for (int d = 0; d < MAX_DEVICES; d++)
        for (int i = 0; devices[d].key && i < devices[d].n_live; i++)
            if (heap_of_type(m, devices[d].memory[i].type) == heap)
                used += devices[d].memory[i].bytes;
    return used;
}

static void mock_memory(VkPhysicalDeviceMemoryProperties *p)
{
    mock m = mock_of();
    if (!m.n_heaps)
        return;
    p->memoryHeapCount = m.n_heaps;
    p->memoryTypeCount = m.n_types;
    memcpy(p->memoryHeaps, m.heaps, sizeof m.heaps);
    memcpy(p->memoryTypes, m.types, sizeof m.types);
}

static VKAPI_ATTR void VKAPI_CALL GetPhysicalDeviceMemoryProperties(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties *p)
{
    NEXT_I(instance_of(physical), vkGetPhysicalDeviceMemoryProperties)(physical, p);
    mock_memory(p);
}

static VKAPI_ATTR void VKAPI_CALL GetPhysicalDeviceMemoryProperties2(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties2 *p)
{
    NEXT_I(instance_of(physical), vkGetPhysicalDeviceMemoryProperties2)(physical, p);
    mock_memory(&p->memoryProperties);
    VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = chained(p->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT);
    mock m = mock_of();
    if (!budget || !(m.n_heaps || *budget_text))
        return;
    pthread_mutex_lock(&lock);
    for (uint32_t h = 0; h < p->memoryProperties.memoryHeapCount; h++) {
        budget->heapBudget[h] = budget_of(h, p->memoryProperties.memoryHeaps[h].size);
        budget->heapUsage[h] = used_of(&m, h);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- properties and features ---------------------------------------------------------------------------------- */

static void lower_limits(VkPhysicalDeviceProperties *p)
{
    if (wanted[S_API])
        p->apiVersion = VK_MAKE_API_VERSION(0, 1, wanted[S_API], 0);
    if (wanted[S_DISCRETE]) {
        p->deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
        snprintf(p->deviceName, sizeof p->deviceName, "Mock GPU");
    }
    LOWER(p->limits.maxStorageBufferRange, S_STORAGE_RANGE);
    LOWER(p->limits.maxPushConstantsSize, S_PUSH_CONSTANTS);
    LOWER(p->limits.maxComputeSharedMemorySize, S_SHARED_MEMORY);
    LOWER(p->limits.maxComputeWorkGroupInvocations, S_INVOCATIONS);
    for (int i = 0; i < 3; i++) {
        LOWER(p->limits.maxComputeWorkGroupCount[i], S_GROUPS);
        LOWER(p->limits.maxComputeWorkGroupSize[i], S_INVOCATIONS);
    }
}

static VKAPI_ATTR void VKAPI_CALL GetPhysicalDeviceProperties(VkPhysicalDevice physical, VkPhysicalDeviceProperties *p)
{
    NEXT_I(instance_of(physical), vkGetPhysicalDeviceProperties)(physical, p);
    lower_limits(p);
}

static VKAPI_ATTR void VKAPI_CALL GetPhysicalDeviceProperties2(VkPhysicalDevice physical, VkPhysicalDeviceProperties2 *p)
{
    NEXT_I(instance_of(physical), vkGetPhysicalDeviceProperties2)(physical, p);
    lower_limits(&p->properties);
    VkSubgroupFeatureFlags keep = is_hidden("subgroupArithmetic") ? ~(VkSubgroupFeatureFlags)VK_SUBGROUP_FEATURE_ARITHMETIC_BIT : ~0u;
    for (VkBaseOutStructure *s = p->pNext; s; s = s->pNext) {
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES) {
            VkPhysicalDeviceMaintenance3Properties *m = (void *)s;
            m->maxMemoryAllocationSize = least(m->maxMemoryAllocationSize, S_MAX_ALLOCATION);
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES) {
            VkPhysicalDeviceVulkan11Properties *m = (void *)s;
            m->maxMemoryAllocationSize = least(m->maxMemoryAllocationSize, S_MAX_ALLOCATION);
            m->subgroupSupportedOperations &= keep;
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES) {
            VkPhysicalDeviceMaintenance4Properties *m = (void *)s;
            m->maxBufferSize = least(m->maxBufferSize, S_MAX_BUFFER);
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES) {
            VkPhysicalDeviceVulkan13Properties *m = (void *)s;
            m->maxBufferSize = least(m->maxBufferSize, S_MAX_BUFFER);
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES) {
            ((VkPhysicalDeviceSubgroupProperties *)s)->supportedOperations &= keep;
        }
    }
}

/* Where features are told of; most in two structures. */
#define CORE VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2
#define VK11 VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES
#define VK12 VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES
#define VK13 VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES
static const struct {
    const char *name;
    VkStructureType type;
    size_t at;
} features[] = {
    {"shaderInt64", CORE, offsetof(VkPhysicalDeviceFeatures2, features.shaderInt64)},
    {"shaderInt16", CORE, offsetof(VkPhysicalDeviceFeatures2, features.shaderInt16)},
    {"shaderFloat64", CORE, offsetof(VkPhysicalDeviceFeatures2, features.shaderFloat64)},
    {"storageBuffer16BitAccess", VK11, offsetof(VkPhysicalDeviceVulkan11Features, storageBuffer16BitAccess)},
    {"storageBuffer8BitAccess", VK12, offsetof(VkPhysicalDeviceVulkan12Features, storageBuffer8BitAccess)},
    {"shaderFloat16", VK12, offsetof(VkPhysicalDeviceVulkan12Features, shaderFloat16)},
    {"shaderInt8", VK12, offsetof(VkPhysicalDeviceVulkan12Features, shaderInt8)},
    {"timelineSemaphore", VK12, offsetof(VkPhysicalDeviceVulkan12Features, timelineSemaphore)},
    {"bufferDeviceAddress", VK12, offsetof(VkPhysicalDeviceVulkan12Features, bufferDeviceAddress)},
    {"vulkanMemoryModel", VK12, offsetof(VkPhysicalDeviceVulkan12Features, vulkanMemoryModel)},
    {"hostQueryReset", VK12, offsetof(VkPhysicalDeviceVulkan12Features, hostQueryReset)},
    {"subgroupSizeControl", VK13, offsetof(VkPhysicalDeviceVulkan13Features, subgroupSizeControl)},
    {"computeFullSubgroups", VK13, offsetof(VkPhysicalDeviceVulkan13Features, computeFullSubgroups)},
    {"synchronization2", VK13, offsetof(VkPhysicalDeviceVulkan13Features, synchronization2)},
    {"maintenance4", VK13, offsetof(VkPhysicalDeviceVulkan13Features, maintenance4)},
    {"storageBuffer16BitAccess", VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES,
     offsetof(VkPhysicalDevice16BitStorageFeatures, storageBuffer16BitAccess)},
    {"storageBuffer8BitAccess", VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES,
     offsetof(VkPhysicalDevice8BitStorageFeatures, storageBuffer8BitAccess)},
    {"shaderFloat16", VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES,
     offsetof(VkPhysicalDeviceShaderFloat16Int8Features, shaderFloat16)},
    {"shaderInt8", VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES,
     offsetof(VkPhysicalDeviceShaderFloat16Int8Features, shaderInt8)},
    {"timelineSemaphore", VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES,
     offsetof(VkPhysicalDeviceTimelineSemaphoreFeatures, timelineSemaphore)},
    {"bufferDeviceAddress", VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES,
     offsetof(VkPhysicalDeviceBufferDeviceAddressFeatures, bufferDeviceAddress)},
    {"hostQueryReset", VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_HOST_QUERY_RESET_FEATURES,
     offsetof(VkPhysicalDeviceHostQueryResetFeatures, hostQueryReset)},
    {"subgroupSizeControl", VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
     offsetof(VkPhysicalDeviceSubgroupSizeControlFeatures, subgroupSizeControl)},
    {"computeFullSubgroups", VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
     offsetof(VkPhysicalDeviceSubgroupSizeControlFeatures, computeFullSubgroups)},
    {"memoryPriority", VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PRIORITY_FEATURES_EXT,
     offsetof(VkPhysicalDeviceMemoryPriorityFeaturesEXT, memoryPriority)},
};

int hide_features(void *chain, int clear)
{
    int n = 0;
    for (VkBaseOutStructure *s = chain; s; s = s->pNext)
        for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
            VkBool32 *field = (VkBool32 *)(void *)((char *)s + features[i].at);
            if (features[i].type != s->sType || !is_hidden(features[i].name) || !*field)
                continue;
            n++;
            if (clear)
                *field = VK_FALSE;
        }
    return n;
}

static VKAPI_ATTR void VKAPI_CALL GetPhysicalDeviceFeatures(VkPhysicalDevice physical, VkPhysicalDeviceFeatures *f)
{
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    NEXT_I(instance_of(physical), vkGetPhysicalDeviceFeatures)(physical, &all.features);
    hide_features(&all, 1);
    *f = all.features;
}

static VKAPI_ATTR void VKAPI_CALL GetPhysicalDeviceFeatures2(VkPhysicalDevice physical, VkPhysicalDeviceFeatures2 *f)
{
    NEXT_I(instance_of(physical), vkGetPhysicalDeviceFeatures2)(physical, f);
    VkPhysicalDeviceMemoryPriorityFeaturesEXT *priority = chained(f->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PRIORITY_FEATURES_EXT);
    if (priority && is_mocked(VK_EXT_MEMORY_PRIORITY_EXTENSION_NAME))
        priority->memoryPriority = VK_TRUE;
    hide_features(f, 1);
}

const char *const mocked_extensions[] = {VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, VK_EXT_MEMORY_PRIORITY_EXTENSION_NAME, NULL};

int is_mocked(const char *extension)
{
    for (int i = 0; mocked_extensions[i]; i++)
        if (strcmp(mocked_extensions[i], extension) == 0)
            return *heaps_text || *budget_text;
    return 0;
}

static VKAPI_ATTR VkResult VKAPI_CALL EnumerateDeviceExtensionProperties(VkPhysicalDevice physical, const char *layer, uint32_t *n,
                                                                         VkExtensionProperties *list)
{
    enum { MOST = 1024 };
    static VkExtensionProperties all[MOST];
    uint32_t n_all = MOST - 2, n_kept = 0;
    VkResult result = NEXT_I(instance_of(physical), vkEnumerateDeviceExtensionProperties)(physical, layer, &n_all, all);
    for (int i = 0; mocked_extensions[i]; i++)
        if (is_mocked(mocked_extensions[i]))
            snprintf(all[n_all++].extensionName, VK_MAX_EXTENSION_NAME_SIZE, "%s", mocked_extensions[i]);
    for (uint32_t i = 0; i < n_all; i++) {
        if (is_hidden(all[i].extensionName))
            continue;
        if (list && n_kept < *n)
            list[n_kept] = all[i];
        n_kept++;
    }
    if (result == VK_SUCCESS && list && n_kept > *n)
        return VK_INCOMPLETE;
    *n = n_kept;
    return result;
}

static VKAPI_ATTR void VKAPI_CALL GetPhysicalDeviceQueueFamilyProperties(VkPhysicalDevice physical, uint32_t *n,
                                                                         VkQueueFamilyProperties *list)
{
    uint32_t room = *n, extra = wanted[S_TRANSFER_QUEUE] ? 1 : 0;
    NEXT_I(instance_of(physical), vkGetPhysicalDeviceQueueFamilyProperties)(physical, n, list);
    if (list && extra && room > *n) {
        list[*n] = (VkQueueFamilyProperties){VK_QUEUE_TRANSFER_BIT, 1, 0, {1, 1, 1}};
        ++*n;
    } else if (!list) {
        *n += extra;
    }
    for (uint32_t i = 0; list && wanted[S_NO_TIMESTAMPS] && i < *n; i++)
        list[i].timestampValidBits = 0;
}

static VKAPI_ATTR VkResult VKAPI_CALL EnumeratePhysicalDevices(VkInstance instance, uint32_t *n, VkPhysicalDevice *list)
{
    if (no_devices) {
        *n = 0;
        return VK_SUCCESS;
    }
    return NEXT_I(instance_of(instance), vkEnumeratePhysicalDevices)(instance, n, list);
}

static VKAPI_ATTR void VKAPI_CALL DestroyInstance(VkInstance instance, const VkAllocationCallbacks *allocator)
{
    if (!instance)
        return;
    below *b = instance_of(instance);
    NEXT_I(b, vkDestroyInstance)(instance, allocator);
    b->key = NULL;
    write_report();
}

const entry physical_entries[] = {
    ENTRY(DestroyInstance),
    ENTRY(EnumeratePhysicalDevices),
    ENTRY(GetPhysicalDeviceProperties),
    ENTRY(GetPhysicalDeviceProperties2),
    ENTRY(GetPhysicalDeviceFeatures),
    ENTRY(GetPhysicalDeviceFeatures2),
    ENTRY(GetPhysicalDeviceMemoryProperties),
    ENTRY(GetPhysicalDeviceMemoryProperties2),
    ENTRY(GetPhysicalDeviceQueueFamilyProperties),
    ENTRY(EnumerateDeviceExtensionProperties),
    {NULL, NULL},
};
