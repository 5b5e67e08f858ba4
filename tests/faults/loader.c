/* A Vulkan layer that makes a device smaller, older or faulty. faults.h says how it is told; this file is what the loader sees. */
#include "layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the layers below ------------------------------------------------------------------------------------------- */

below instances[MAX_INSTANCES], devices[MAX_DEVICES];

/* The loader puts a pointer to its dispatch table at the start of every dispatchable object; objects of one instance or device share it. */
static void *key_of(const void *handle)
{
    return *(void *const *)handle;
}

static below *find(below *list, int n, const void *handle)
{
    for (int i = 0; i < n; i++)
        if (list[i].key == key_of(handle))
            return &list[i];
    fprintf(stderr, "fault layer: unknown object\n");
    abort();
}

below *instance_of(const void *handle)
{
    return find(instances, MAX_INSTANCES, handle);
}

below *device_of(const void *handle)
{
    return find(devices, MAX_DEVICES, handle);
}

static below *new_below(below *list, int n, void *key)
{
    for (int i = 0; i < n; i++)
        if (!list[i].key) {
            memset(&list[i], 0, sizeof list[i]);
            list[i].key = key;
            return &list[i];
        }
    fprintf(stderr, "fault layer: too many objects\n");
    abort();
}

void *chained(const void *next, VkStructureType type)
{
    for (const VkBaseInStructure *s = next; s; s = s->pNext)
        if (s->sType == type)
            return (void *)(uintptr_t)s;
    return NULL;
}

int unchain(const void *head, VkStructureType type)
{
    for (VkBaseOutStructure *s = (void *)(uintptr_t)head; s->pNext; s = s->pNext)
        if (s->pNext->sType == type) {
            s->pNext = s->pNext->pNext;
            return 1;
        }
    return 0;
}

static void find_next(below *b)
{
    int n = 0;
    for (const entry *e = physical_entries; e->name && n < MAX_NEXT; e++)
        b->next[n++] = b->get_instance(b->instance, e->name);
}

PFN_vkVoidFunction next_of(const below *b, const char *name)
{
    int n = 0;
    for (const entry *e = physical_entries; e->name && n < MAX_NEXT; e++, n++)
        if (strcmp(e->name, name) == 0)
            return b->next[n];
    fprintf(stderr, "fault layer: %s is not among the functions looked up\n", name);
    abort();
}

/* ---- instance and device ---------------------------------------------------------------------------------------- */

/* The variable is read once: the counters of a process are those of all its instances. */
static int is_told;

static VKAPI_ATTR VkResult VKAPI_CALL CreateInstance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *allocator,
                                                     VkInstance *instance)
{
    VkLayerInstanceCreateInfo *link = chained(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    while (link && link->function != VK_LAYER_LINK_INFO)
        link = chained(link->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    if (!link)
        return VK_ERROR_INITIALIZATION_FAILED;
    if (!is_told && getenv("K3_FAULTS"))
        k3_faults_configure(getenv("K3_FAULTS"));
    is_told = 1;
    PFN_vkGetInstanceProcAddr get = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    VkResult result = ((PFN_vkCreateInstance)get(NULL, "vkCreateInstance"))(info, allocator, instance);
    if (result != VK_SUCCESS)
        return result;
    below *b = new_below(instances, MAX_INSTANCES, key_of(*instance));
    b->instance = *instance;
    b->get_instance = get;
    find_next(b);
    count(C_INSTANCES);
    return VK_SUCCESS;
}

static int asks_for_hidden(const VkDeviceCreateInfo *info)
{
    VkPhysicalDeviceFeatures2 core = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    if (info->pEnabledFeatures)
        core.features = *info->pEnabledFeatures;
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++)
        if (is_hidden(info->ppEnabledExtensionNames[i]))
            return 1;
    return hide_features((void *)(uintptr_t)info->pNext, 0) || hide_features(&core, 0);
}

static VKAPI_ATTR VkResult VKAPI_CALL CreateDevice(VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
                                                   const VkAllocationCallbacks *allocator, VkDevice *device)
{
    VkLayerDeviceCreateInfo *link = chained(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    while (link && link->function != VK_LAYER_LINK_INFO)
        link = chained(link->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    if (!link || wanted[S_FAIL_DEVICE])
        return VK_ERROR_INITIALIZATION_FAILED;
    if (asks_for_hidden(info))
        return VK_ERROR_FEATURE_NOT_PRESENT;
    VkInstance instance = instance_of(physical)->instance;
    PFN_vkGetDeviceProcAddr get = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    PFN_vkCreateDevice create = (PFN_vkCreateDevice)link->u.pLayerInfo->pfnNextGetInstanceProcAddr(instance, "vkCreateDevice");
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    VkDeviceCreateInfo changed = *info;
    const char *names[64];
    changed.ppEnabledExtensionNames = names;
    changed.enabledExtensionCount = 0;
    for (uint32_t i = 0; i < info->enabledExtensionCount && i < 64; i++)
        if (!is_mocked(info->ppEnabledExtensionNames[i]))
            names[changed.enabledExtensionCount++] = info->ppEnabledExtensionNames[i];
    if (is_mocked(VK_EXT_MEMORY_PRIORITY_EXTENSION_NAME))
        unchain(&changed, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PRIORITY_FEATURES_EXT);
    if (wanted[S_TRANSFER_QUEUE]) /* the family that is not there comes last and is the same queue */
        changed.queueCreateInfoCount = 1;
    VkResult result = create(physical, &changed, allocator, device);
    if (result != VK_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    below *b = new_below(devices, MAX_DEVICES, key_of(*device));
    b->device = *device;
    b->get_device = get;
    pthread_mutex_unlock(&lock);
    count(C_DEVICES);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL DestroyDevice(VkDevice device, const VkAllocationCallbacks *allocator)
{
    if (!device)
        return;
    below *b = device_of(device);
    NEXT_D(b, vkDeviceWaitIdle)(device);
    NEXT_D(b, vkDestroyDevice)(device, allocator);
    b->key = NULL;
}

/* ---- what the loader asks for ----------------------------------------------------------------------------------- */

static PFN_vkVoidFunction VKAPI_CALL get_instance_proc(VkInstance instance, const char *name);
static PFN_vkVoidFunction VKAPI_CALL get_device_proc(VkDevice device, const char *name);

static const entry own_entries[] = {
    {"vkGetInstanceProcAddr", (PFN_vkVoidFunction)get_instance_proc},
    {"vkGetDeviceProcAddr", (PFN_vkVoidFunction)get_device_proc},
    ENTRY(CreateInstance),
    ENTRY(CreateDevice),
    ENTRY(DestroyDevice),
    {NULL, NULL},
};

static PFN_vkVoidFunction look_up(const char *name)
{
    const entry *const lists[] = {own_entries, physical_entries, device_entries};
    for (int l = 0; l < 3; l++)
        for (const entry *e = lists[l]; e->name; e++)
            if (strcmp(e->name, name) == 0)
                return e->function;
    return NULL;
}

static PFN_vkVoidFunction VKAPI_CALL get_device_proc(VkDevice device, const char *name)
{
    PFN_vkVoidFunction own = look_up(name), next = device_of(device)->get_device(device, name);
    return next && own ? own : next;
}

static PFN_vkVoidFunction VKAPI_CALL get_instance_proc(VkInstance instance, const char *name)
{
    PFN_vkVoidFunction own = look_up(name);
    return own || !instance ? own : instance_of(instance)->get_instance(instance, name);
}

EXPORT VKAPI_ATTR VkResult VKAPI_CALL vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *version);
EXPORT VKAPI_ATTR VkResult VKAPI_CALL vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *version)
{
    version->loaderLayerInterfaceVersion = 2;
    version->pfnGetInstanceProcAddr = get_instance_proc;
    version->pfnGetDeviceProcAddr = get_device_proc;
    version->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
