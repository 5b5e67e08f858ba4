/* Finding a device and opening it. The loader is looked for at run time; a machine without one, or without a device, gets one clear line.
 */
#include "backend/vulkan/khr_matrix.h"
#include "backend/vulkan/vulkan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 16, MAX_EXTENSIONS = 512 };

/* ---- the instance ------------------------------------------------------------------------------------------ */

static k3_status open_instance(VkInstance *out, k3_error *err)
{
    if (volkInitialize() != VK_SUCCESS)
        return k3_fail(err, K3_E_NOT_FOUND,
                       "vulkan: there is no Vulkan loader (libvulkan.so.1) here; install the GPU's driver or use the CPU");
    if (volkGetInstanceVersion() < VK_API_VERSION_1_2)
        return k3_fail(err, K3_E_UNSUPPORTED, "vulkan: the loader knows Vulkan %u.%u, 1.2 is wanted",
                       VK_API_VERSION_MAJOR(volkGetInstanceVersion()), VK_API_VERSION_MINOR(volkGetInstanceVersion()));
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                             .pApplicationName = "k3",
                             .pEngineName = "k3",
                             .apiVersion = volkGetInstanceVersion() < VK_API_VERSION_1_3 ? VK_API_VERSION_1_2 : VK_API_VERSION_1_3};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
    VkResult result = vkCreateInstance(&info, NULL, out);
    if (result != VK_SUCCESS)
        return k3_fail(err, K3_E_NOT_FOUND, "vulkan: the loader found no driver (%s); install the GPU's driver, or use the CPU",
                       k3_vk_result_name(result));
    volkLoadInstanceOnly(*out);
    return K3_OK;
}

static uint32_t list_devices(VkInstance instance, VkPhysicalDevice out[MAX_DEVICES])
{
    uint32_t n = MAX_DEVICES;
    VkResult result = vkEnumeratePhysicalDevices(instance, &n, out);
    return result == VK_SUCCESS || result == VK_INCOMPLETE ? n : 0;
}

static const char *kind_of(VkPhysicalDeviceType type)
{
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
        return "discrete";
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return "integrated";
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
        return "virtual";
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        return "software";
    default:
        return "other";
    }
}

/* ---- choosing ----------------------------------------------------------------------------------------------- */

/* Without a wish: discrete before integrated before the rest; software only when it is asked for. */
static int preference(VkPhysicalDeviceType type)
{
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
        return 4;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return 3;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
        return 2;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        return 0;
    default:
        return 1;
    }
}

static k3_status choose(k3_vk *vk, const char *wish, k3_error *err)
{
    VkPhysicalDevice devices[MAX_DEVICES];
    uint32_t n = list_devices(vk->instance, devices);
    char *end, names[600] = "";
    unsigned long number = wish ? strtoul(wish, &end, 10) : 0;
    int by_number = wish && *wish && !*end, best = 0;
    for (uint32_t i = 0; i < n; i++) {
        VkPhysicalDeviceProperties p;
        vkGetPhysicalDeviceProperties(devices[i], &p);
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%u: %s (%s)", i ? ", " : "", i, p.deviceName, kind_of(p.deviceType));
        int score = !wish || !*wish ? preference(p.deviceType) : by_number ? number == i : k3_gpu_name_has(p.deviceName, wish);
        if (score > best) {
            best = score;
            vk->physical = devices[i];
            vk->properties = p;
        }
    }
    if (!n)
        return k3_fail(err, K3_E_NOT_FOUND, "vulkan: there is no device; install the GPU's driver or use the CPU");
    if (!best && wish && *wish)
        return k3_fail(err, K3_E_NOT_FOUND, "vulkan: no device \"%s\"; here are %s", wish, names);
    if (!best)
        return k3_fail(err, K3_E_NOT_FOUND, "vulkan: only software devices are here (%s); name one to use it, as in vulkan:0", names);
    return K3_OK;
}

/* ---- what the device has -------------------------------------------------------------------------------------- */

typedef struct k3_vk_extensions {
    VkExtensionProperties list[MAX_EXTENSIONS];
    uint32_t n;
    const char *enabled[16];
    uint32_t n_enabled;
} k3_vk_extensions;

static int enable(k3_vk_extensions *x, const char *name)
{
    for (uint32_t i = 0; i < x->n; i++)
        if (strcmp(x->list[i].extensionName, name) == 0) {
            x->enabled[x->n_enabled++] = name;
            return 1;
        }
    return 0;
}

static k3_status check_features(k3_vk *vk, const VkPhysicalDeviceFeatures2 *core, const VkPhysicalDeviceVulkan12Features *v12,
                                const VkPhysicalDeviceSubgroupProperties *subgroup, k3_error *err)
{
    static const VkSubgroupFeatureFlags wanted = VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
    const VkPhysicalDeviceLimits *limits = &vk->properties.limits;
    const char *missing = NULL;
    if (vk->properties.apiVersion < VK_API_VERSION_1_2)
        missing = "Vulkan 1.2";
    else if (!v12->bufferDeviceAddress)
        missing = "bufferDeviceAddress";
    else if (!v12->timelineSemaphore)
        missing = "timelineSemaphore";
    else if (!core->features.shaderInt64)
        missing = "shaderInt64";
    else if ((subgroup->supportedOperations & wanted) != wanted || !(subgroup->supportedStages & VK_SHADER_STAGE_COMPUTE_BIT))
        missing = "subgroup arithmetic in compute shaders";
    else if (limits->maxComputeSharedMemorySize < 32768)
        missing = "32 KiB of shared memory";
    else if (limits->maxComputeWorkGroupInvocations < 256)
        missing = "workgroups of 256";
    return missing ? k3_fail(err, K3_E_UNSUPPORTED, "vulkan: %s lacks %s, which the kernels need; use the CPU or another driver",
                             vk->properties.deviceName, missing)
                   : K3_OK;
}

static int find_families(k3_vk *vk)
{
    VkQueueFamilyProperties families[32];
    uint32_t n = 32, found = UINT32_MAX, transfer = UINT32_MAX;
    vkGetPhysicalDeviceQueueFamilyProperties(vk->physical, &n, families);
    for (uint32_t i = n; i-- > 0;) {
        VkQueueFlags flags = families[i].queueFlags;
        if (flags & VK_QUEUE_COMPUTE_BIT)
            found = i;
        else if (flags & VK_QUEUE_TRANSFER_BIT && !(flags & VK_QUEUE_GRAPHICS_BIT))
            transfer = i;
    }
    vk->family = found;
    vk->transfer_family = transfer == UINT32_MAX ? found : transfer;
    vk->stamp_ns = found != UINT32_MAX && families[found].timestampValidBits ? (double)vk->properties.limits.timestampPeriod : 0;
    return found != UINT32_MAX;
}

/* Multiprocessors, where an extension tells; else a middling GPU. */
static uint32_t count_cores(k3_vk *vk, int nvidia, int amd)
{
    VkPhysicalDeviceShaderSMBuiltinsPropertiesNV sm = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
    VkPhysicalDeviceShaderCorePropertiesAMD core = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    p.pNext = nvidia ? (void *)&sm : amd ? (void *)&core : NULL;
    vkGetPhysicalDeviceProperties2(vk->physical, &p);
    uint32_t n =
        sm.shaderSMCount ? sm.shaderSMCount : core.shaderEngineCount * core.shaderArraysPerEngineCount * core.computeUnitsPerShaderArray;
    return n ? n : vk->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU ? 4 : 32;
}

/* Whether 16x16x16 products of f16 with f32 sums are there, a subgroup each. */
static int has_matrices(const k3_vk *vk)
{
#ifdef K3_HAVE_MATRIX_SHADERS
    enum { MAX_SHAPES = 128 };
    PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR list =
        (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)(vkGetInstanceProcAddr(vk->instance,
                                                                                      "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
    VkCooperativeMatrixPropertiesKHR shapes[MAX_SHAPES];
    uint32_t n = MAX_SHAPES;
    for (int i = 0; i < MAX_SHAPES; i++)
        shapes[i] = (VkCooperativeMatrixPropertiesKHR){.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
    VkResult result = list ? list(vk->physical, &n, shapes) : VK_ERROR_EXTENSION_NOT_PRESENT;
    for (uint32_t i = 0; (result == VK_SUCCESS || result == VK_INCOMPLETE) && i < n; i++)
        if (shapes[i].MSize == 16 && shapes[i].NSize == 16 && shapes[i].KSize == 16 && shapes[i].AType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
            shapes[i].BType == VK_COMPONENT_TYPE_FLOAT16_KHR && shapes[i].CType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
            shapes[i].ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR && shapes[i].scope == VK_SCOPE_SUBGROUP_KHR)
            return 1;
#else
    (void)vk;
#endif
    return 0;
}

static void learn_limits(k3_vk *vk, const VkPhysicalDeviceMaintenance3Properties *m3, uint64_t max_buffer)
{
    const VkPhysicalDeviceLimits *limits = &vk->properties.limits;
    static const uint64_t four_gib = (uint64_t)4 << 30;
    /* Some drivers take sizes of 4 GiB modulo 2^32. */
    vk->gpu.max_allocation = m3->maxMemoryAllocationSize < four_gib ? m3->maxMemoryAllocationSize : four_gib - K3_GPU_ALIGN;
    if (max_buffer && max_buffer < vk->gpu.max_allocation)
        vk->gpu.max_allocation = max_buffer;
    vk->gpu.max_allocation = vk->gpu.max_allocation / K3_GPU_ALIGN * K3_GPU_ALIGN;
    vk->gpu.limits.shared_bytes = limits->maxComputeSharedMemorySize;
    vk->gpu.limits.groups_x = limits->maxComputeWorkGroupCount[0];
    uint32_t y = limits->maxComputeWorkGroupCount[1], z = limits->maxComputeWorkGroupCount[2];
    vk->gpu.limits.groups_yz = y < z ? y : z;
    vk->gpu.limits.invocations = limits->maxComputeWorkGroupInvocations;
    vkGetPhysicalDeviceMemoryProperties(vk->physical, &vk->memory);
    vk->is_unified =
        vk->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU || vk->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
}

/* ---- the device ------------------------------------------------------------------------------------------------ */

/* Everything optional that the device may be opened with; chained in front of one another as they are found. */
typedef struct k3_vk_features {
    VkPhysicalDeviceFeatures2 core;
    VkPhysicalDeviceVulkan12Features v12;
    VkPhysicalDeviceSubgroupSizeControlFeatures size;
    VkPhysicalDeviceMemoryPriorityFeaturesEXT priority;
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix;
} k3_vk_features;

static void chain(k3_vk_features *f, void *next)
{
    ((VkBaseOutStructure *)next)->pNext = f->core.pNext;
    f->core.pNext = next;
}

/* Asks what there is, refuses what lacks too much, and leaves in `f` and `x` what to open the device with. */
static k3_status survey(k3_vk *vk, const k3_backend_config *config, k3_vk_features *f, k3_vk_extensions *x, k3_error *err)
{
    x->n = MAX_EXTENSIONS;
    VkResult listed = vkEnumerateDeviceExtensionProperties(vk->physical, NULL, &x->n, x->list);
    if (listed != VK_SUCCESS && listed != VK_INCOMPLETE)
        x->n = 0;
    int is_13 = vk->properties.apiVersion >= VK_API_VERSION_1_3 && volkGetInstanceVersion() >= VK_API_VERSION_1_3;
    int size = is_13 || enable(x, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME), priority = enable(x, VK_EXT_MEMORY_PRIORITY_EXTENSION_NAME);
    vk->has_budget = enable(x, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    vk->has_host_import = enable(x, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
    int sm = enable(x, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME), cores = enable(x, VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME);
    int matrix = enable(x, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
    f->matrix.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR;
    f->core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    f->v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    f->size.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES;
    f->priority.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PRIORITY_FEATURES_EXT;
    chain(f, &f->v12);
    if (size)
        chain(f, &f->size);
    if (priority)
        chain(f, &f->priority);
    if (matrix)
        chain(f, &f->matrix);
    vkGetPhysicalDeviceFeatures2(vk->physical, &f->core);

    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceSubgroupSizeControlProperties sizes = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
    VkPhysicalDeviceMaintenance4Properties m4 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
    VkPhysicalDeviceMaintenance3Properties m3 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES};
    VkPhysicalDeviceSubgroupProperties subgroup = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES, .pNext = &m3};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &subgroup};
    m3.pNext = size ? &sizes : NULL;
    *(size ? &sizes.pNext : &m3.pNext) = is_13 ? &m4 : NULL;
    m4.pNext = vk->has_host_import ? &host : NULL;
    if (!is_13)
        *(size ? &sizes.pNext : &m3.pNext) = vk->has_host_import ? (void *)&host : NULL;
    vkGetPhysicalDeviceProperties2(vk->physical, &p);
    K3_TRY(check_features(vk, &f->core, &f->v12, &subgroup, err));
    learn_limits(vk, &m3, m4.maxBufferSize);
    vk->host_alignment = host.minImportedHostPointerAlignment;
    vk->has_priority = priority && f->priority.memoryPriority;
    vk->has_size_control = size && f->size.subgroupSizeControl && f->size.computeFullSubgroups &&
                           (sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
    vk->gpu.limits.subgroup =
        vk->has_size_control && sizes.minSubgroupSize <= 32 && sizes.maxSubgroupSize >= 32 ? 32 : subgroup.subgroupSize;
    vk->gpu.limits.cores = count_cores(vk, sm, cores);
    vk->gpu.limits.f16 = f->v12.shaderFloat16 && !config->exact;
    if (vk->gpu.limits.f16 && matrix && f->matrix.cooperativeMatrix && vk->gpu.limits.subgroup == 32 &&
        vk->gpu.limits.shared_bytes >= 49152 && has_matrices(vk))
        vk->gpu.limits.matrix = 1u << K3_GPU_MATMUL | 1u << K3_GPU_KDA_CHUNK | 1u << K3_GPU_MLA_ATTEND | 1u << K3_GPU_MOE_EXPERTS;
    return K3_OK;
}

static k3_status open_device(k3_vk *vk, const k3_backend_config *config, k3_error *err)
{
    k3_vk_extensions *x = calloc(1, sizeof *x);
    k3_vk_features f = {0};
    if (!x)
        return k3_fail(err, K3_E_NOMEM, "vulkan: out of memory");
    k3_status status = survey(vk, config, &f, x, err);
    if (status == K3_OK && !find_families(vk))
        status = k3_fail(err, K3_E_UNSUPPORTED, "vulkan: %s has no compute queue", vk->properties.deviceName);
    if (status == K3_OK) {
        /* Only what the kernels use is switched on. */
        f.core.features = (VkPhysicalDeviceFeatures){.shaderInt64 = VK_TRUE};
        void *next = f.v12.pNext;
        f.v12 = (VkPhysicalDeviceVulkan12Features){.sType = f.v12.sType,
                                                   .pNext = next,
                                                   .bufferDeviceAddress = VK_TRUE,
                                                   .timelineSemaphore = VK_TRUE,
                                                   .shaderFloat16 = f.v12.shaderFloat16,
                                                   .vulkanMemoryModel = f.v12.vulkanMemoryModel,
                                                   .vulkanMemoryModelDeviceScope = f.v12.vulkanMemoryModelDeviceScope};
        f.matrix.cooperativeMatrixRobustBufferAccess = VK_FALSE;
        float one = 1;
        VkDeviceQueueCreateInfo queues[2] = {
            {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, NULL, 0, vk->family, 1, &one},
            {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, NULL, 0, vk->transfer_family, 1, &one},
        };
        VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                   .pNext = &f.core,
                                   .queueCreateInfoCount = vk->family == vk->transfer_family ? 1 : 2,
                                   .pQueueCreateInfos = queues,
                                   .enabledExtensionCount = x->n_enabled,
                                   .ppEnabledExtensionNames = x->enabled};
        VkResult result = vkCreateDevice(vk->physical, &info, NULL, &vk->device);
        if (result != VK_SUCCESS)
            status = k3_fail(err, result == VK_ERROR_OUT_OF_DEVICE_MEMORY ? K3_E_NOMEM : K3_E_DEVICE, "vulkan: %s cannot be opened: %s",
                             vk->properties.deviceName, k3_vk_result_name(result));
    }
    free(x);
    return status;
}

/* ---- the backend ----------------------------------------------------------------------------------------------- */

static void vulkan_close(k3_backend *be)
{
    if (!be)
        return;
    k3_vk *vk = (k3_vk *)be;
    if (vk->device) {
        vk->fn.vkDeviceWaitIdle(vk->device);
        vk->uploaded = 0;
        k3_vk_close_transfer(vk);
        k3_vk_close_commands(vk);
        k3_gpu_close(&vk->gpu);
        k3_vk_close_pipelines(vk);
        vk->fn.vkDestroyDevice(vk->device, NULL);
    }
    if (vk->instance)
        vkDestroyInstance(vk->instance, NULL);
    free(vk);
}

static const k3_gpu_driver vulkan_driver = {
    .new_slab = k3_vk_new_slab,
    .free_slab = k3_vk_free_slab,
    .free_bytes = k3_vk_free_bytes,
    .begin = k3_vk_begin,
    .submit = k3_vk_submit,
    .wait = k3_vk_wait,
    .barrier = k3_vk_barrier,
    .dispatch = k3_vk_dispatch,
    .copy = k3_vk_copy,
    .zero = k3_vk_zero,
    .stamp = k3_vk_stamp,
    .times = k3_vk_times,
    .new_pipeline = k3_vk_new_pipeline,
    .free_pipeline = k3_vk_free_pipeline,
    .upload = k3_vk_upload,
    .wait_upload = k3_vk_wait_upload,
};

static k3_status open_parts(k3_vk *vk, const char *device, const k3_backend_config *config, k3_error *err)
{
    k3_gpu *gpu = &vk->gpu;
    K3_TRY(open_instance(&vk->instance, err));
    K3_TRY(choose(vk, device, err));
    snprintf(gpu->name, sizeof gpu->name, "vulkan:%s", vk->properties.deviceName);
    K3_TRY(open_device(vk, config, err));
    volkLoadDeviceTable(&vk->fn, vk->device);
    vk->fn.vkGetDeviceQueue(vk->device, vk->family, 0, &vk->queue);
    vk->fn.vkGetDeviceQueue(vk->device, vk->transfer_family, 0, &vk->transfer_queue);
    gpu->timing = config->timing && vk->stamp_ns > 0;
    gpu->is_software = vk->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    if (config->cache_dir)
        snprintf(vk->cache_path, sizeof vk->cache_path, "%s/vulkan-%04x-%04x.cache", config->cache_dir, vk->properties.vendorID,
                 vk->properties.deviceID);
    if (!k3_vk_open_pipelines(vk) || !k3_vk_open_commands(vk) || !k3_vk_open_transfer(vk))
        return k3_fail(err, gpu->failure.status, "%s", gpu->failure.text);
    return k3_gpu_open(gpu, config, kind_of(vk->properties.deviceType), err);
}

k3_status k3_vulkan_open(k3_backend **out, const char *device, const k3_backend_config *config, k3_error *err)
{
    *out = NULL;
    k3_vk *vk = calloc(1, sizeof *vk);
    if (!vk)
        return k3_fail(err, K3_E_NOMEM, "vulkan: out of memory");
    k3_gpu_init(&vk->gpu, &vulkan_driver, config, vulkan_close);
    k3_status status = open_parts(vk, device, config, err);
    if (status != K3_OK) {
        vulkan_close(&vk->gpu.base);
        return status;
    }
    *out = &vk->gpu.base;
    return K3_OK;
}

k3_status k3_vulkan_list(char **text, k3_error *err)
{
    enum { A_LINE = 400 };
    VkInstance instance = VK_NULL_HANDLE;
    VkPhysicalDevice devices[MAX_DEVICES];
    *text = NULL;
    K3_TRY(open_instance(&instance, err));
    uint32_t n = list_devices(instance, devices);
    char *lines = calloc((size_t)n + 1, A_LINE);
    for (uint32_t i = 0; lines && i < n; i++) {
        VkPhysicalDeviceProperties p;
        VkPhysicalDeviceMemoryProperties memory;
        uint64_t bytes = 0;
        vkGetPhysicalDeviceProperties(devices[i], &p);
        vkGetPhysicalDeviceMemoryProperties(devices[i], &memory);
        for (uint32_t h = 0; h < memory.memoryHeapCount; h++)
            if (memory.memoryHeaps[h].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
                bytes += memory.memoryHeaps[h].size;
        snprintf(lines + strlen(lines), A_LINE, "vulkan:%u  %s  %s  %.1f GB  Vulkan %u.%u.%u%s\n", i, p.deviceName, kind_of(p.deviceType),
                 (double)bytes * 1e-9, VK_API_VERSION_MAJOR(p.apiVersion), VK_API_VERSION_MINOR(p.apiVersion),
                 VK_API_VERSION_PATCH(p.apiVersion), p.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU ? "  only when asked for" : "");
    }
    vkDestroyInstance(instance, NULL);
    if (!lines)
        return k3_fail(err, K3_E_NOMEM, "vulkan: out of memory");
    *text = lines;
    return K3_OK;
}
