/* Device memory: slabs, each one VkDeviceMemory under the device's limits, handed out in ranges of 256 bytes. A buffer is one range, or
 * several where alloc_rows had to cut it. */
#include "backend/vulkan/device.h"

#include <stdlib.h>
#include <string.h>

/* Requests from half a slab up get a slab of their own. */
static const uint64_t slab_bytes = (uint64_t)256 << 20;

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + K3_VK_ALIGN - 1) / K3_VK_ALIGN * K3_VK_ALIGN;
}

/* ---- heaps ------------------------------------------------------------------------------------------------- */

static void heap_room(const k3_vk *vk, uint64_t room[VK_MAX_MEMORY_HEAPS])
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 now = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, vk->has_budget ? &budget : NULL, {0}};
    vkGetPhysicalDeviceMemoryProperties2(vk->physical, &now);
    for (uint32_t h = 0; h < vk->memory.memoryHeapCount; h++)
        room[h] = vk->memory.memoryHeaps[h].size;
    for (int i = 0; !vk->has_budget && i < vk->n_slabs; i++) {
        uint64_t *r = &room[vk->slabs[i]->heap], bytes = vk->slabs[i]->wrapped ? 0 : vk->slabs[i]->bytes;
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

uint64_t k3_vk_free_bytes(k3_vk *vk, uint64_t *total)
{
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
static int fitness(const k3_vk *vk, uint32_t type, k3_vk_purpose purpose)
{
    VkMemoryPropertyFlags flags = vk->memory.memoryTypes[type].propertyFlags;
    int local = (flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0;
    int visible = (flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) && (flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
    int cached = (flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
    if (flags & (VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT | VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD))
        return 0;
    if (purpose == K3_VK_FOR_DEVICE) {
        if (!heap_is_ours(vk, vk->memory.memoryTypes[type].heapIndex))
            return 0;
        return local ? (vk->is_unified == visible ? 4 : 3) : visible ? 2 : 1;
    }
    if (!visible)
        return 0;
    return purpose == K3_VK_FOR_TABLES ? 1 + 2 * local : purpose == K3_VK_FOR_READING ? 1 + 2 * cached : 2 - local;
}

/* ---- slabs ------------------------------------------------------------------------------------------------- */

static VkResult fill_slab(k3_vk *vk, k3_vk_slab *slab, uint32_t type_bits, uint32_t type, const void *host)
{
    VkImportMemoryHostPointerInfoEXT import = {VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT, NULL,
                                               VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, (void *)(uintptr_t)host};
    VkMemoryPriorityAllocateInfoEXT priority = {VK_STRUCTURE_TYPE_MEMORY_PRIORITY_ALLOCATE_INFO_EXT, host ? &import : NULL, vk->priority};
    VkMemoryAllocateFlagsInfo flags = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, NULL, VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
    flags.pNext = vk->has_priority ? (const void *)&priority : priority.pNext;
    VkMemoryAllocateInfo info = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, slab->bytes, type};
    if (!(type_bits & (1u << type)))
        return VK_ERROR_FEATURE_NOT_PRESENT;
    VkResult result = vk->fn.vkAllocateMemory(vk->device, &info, NULL, &slab->memory);
    if (result != VK_SUCCESS)
        return result;
    result = vk->fn.vkBindBufferMemory(vk->device, slab->buffer, slab->memory, 0);
    if (result == VK_SUCCESS && !host && (vk->memory.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)) {
        void *at = NULL;
        result = vk->fn.vkMapMemory(vk->device, slab->memory, 0, VK_WHOLE_SIZE, 0, &at);
        slab->host = at;
    }
    return result;
}

static void free_slab(k3_vk *vk, k3_vk_slab *slab)
{
    if (slab->buffer)
        vk->fn.vkDestroyBuffer(vk->device, slab->buffer, NULL);
    if (slab->memory)
        vk->fn.vkFreeMemory(vk->device, slab->memory, NULL);
    free(slab->gaps);
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
                               .size = slab->bytes,
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

static int keep_slab(k3_vk *vk, k3_vk_slab *slab)
{
    if (vk->n_slabs == vk->max_slabs) {
        int max = vk->max_slabs ? 2 * vk->max_slabs : 64;
        k3_vk_slab **grown = realloc(vk->slabs, (size_t)max * sizeof *grown);
        if (!grown)
            return 0;
        vk->slabs = grown;
        vk->max_slabs = max;
    }
    slab->gaps = malloc(8 * sizeof *slab->gaps);
    if (!slab->gaps)
        return 0;
    slab->max_gaps = 8;
    slab->gaps[slab->n_gaps++] = (k3_vk_range){0, slab->bytes};
    VkBufferDeviceAddressInfo where = {VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, NULL, slab->buffer};
    slab->address = vk->fn.vkGetBufferDeviceAddress(vk->device, &where);
    vk->slabs[vk->n_slabs++] = slab;
    return 1;
}

/* Tries the memory types from the fittest on, and of equally fit ones the heap with the most room; a heap without room is passed over,
 * since allocations beyond the budget may succeed and lose the device later. */
static VkResult place_slab(k3_vk *vk, k3_vk_slab *slab, uint32_t type_bits, k3_vk_purpose purpose)
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
            if ((tried & (1u << t)) || !(type_bits & (1u << t)) || !fits || room[heap] < slab->bytes)
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

static k3_vk_slab *new_slab(k3_vk *vk, uint64_t bytes, k3_vk_purpose purpose, VkResult *result)
{
    k3_vk_slab *slab = calloc(1, sizeof *slab);
    *result = VK_ERROR_OUT_OF_HOST_MEMORY;
    if (!slab)
        return NULL;
    slab->bytes = bytes;
    VkMemoryRequirements needs;
    *result = make_buffer(vk, slab, NULL, &needs);
    if (*result == VK_SUCCESS) {
        slab->bytes = needs.size > bytes ? needs.size : bytes; /* what the device rounds it up to */
        *result = place_slab(vk, slab, needs.memoryTypeBits, purpose);
        slab->bytes = bytes;
    }
    if (*result == VK_SUCCESS && !keep_slab(vk, slab))
        *result = VK_ERROR_OUT_OF_HOST_MEMORY;
    if (*result == VK_SUCCESS)
        return slab;
    free_slab(vk, slab);
    return NULL;
}

/* First gap that fits; UINT64_MAX if there is none. */
static uint64_t take_gap(k3_vk_slab *slab, uint64_t bytes)
{
    for (int i = 0; i < slab->n_gaps; i++) {
        k3_vk_range *gap = &slab->gaps[i];
        if (gap->bytes < bytes)
            continue;
        uint64_t at = gap->at;
        gap->at += bytes;
        gap->bytes -= bytes;
        if (!gap->bytes)
            memmove(gap, gap + 1, (size_t)(--slab->n_gaps - i) * sizeof *gap);
        return at;
    }
    return UINT64_MAX;
}

/* Gives a range back and joins it with its neighbours. If there is no memory to note it, the range is lost until the slab goes. */
static void give_gap(k3_vk_slab *slab, uint64_t at, uint64_t bytes)
{
    int i = 0;
    while (i < slab->n_gaps && slab->gaps[i].at < at)
        i++;
    k3_vk_range *before = i ? &slab->gaps[i - 1] : NULL, *after = i < slab->n_gaps ? &slab->gaps[i] : NULL;
    int joins_before = before && before->at + before->bytes == at, joins_after = after && at + bytes == after->at;
    if (joins_before && joins_after) {
        before->bytes += bytes + after->bytes;
        memmove(after, after + 1, (size_t)(--slab->n_gaps - i) * sizeof *after);
    } else if (joins_before) {
        before->bytes += bytes;
    } else if (joins_after) {
        after->at = at;
        after->bytes += bytes;
    } else {
        if (slab->n_gaps == slab->max_gaps) {
            k3_vk_range *grown = realloc(slab->gaps, (size_t)(2 * slab->max_gaps) * sizeof *grown);
            if (!grown)
                return;
            slab->gaps = grown;
            slab->max_gaps *= 2;
        }
        memmove(slab->gaps + i + 1, slab->gaps + i, (size_t)(slab->n_gaps++ - i) * sizeof *slab->gaps);
        slab->gaps[i] = (k3_vk_range){at, bytes};
    }
}

static void drop_empty_slab(k3_vk *vk, k3_vk_slab *slab)
{
    if (slab->n_gaps != 1 || slab->gaps[0].bytes != slab->bytes)
        return;
    for (int i = 0; i < vk->n_slabs; i++)
        if (vk->slabs[i] == slab)
            vk->slabs[i] = vk->slabs[--vk->n_slabs];
    free_slab(vk, slab);
}

/* Whether slabs of small requests serve a purpose: the kinds of memory are not mixed in one. */
static int serves(const k3_vk_slab *slab, k3_vk_purpose purpose)
{
    return purpose == K3_VK_FOR_DEVICE && !slab->wrapped && slab->bytes == slab_bytes;
}

static VkResult take(k3_vk *vk, k3_vk_piece_of *piece, uint64_t bytes, k3_vk_purpose purpose)
{
    piece->bytes = bytes;
    for (int i = 0; bytes < slab_bytes / 2 && i < vk->n_slabs; i++)
        if (serves(vk->slabs[i], purpose)) {
            piece->at = take_gap(vk->slabs[i], bytes);
            piece->slab = vk->slabs[i];
            if (piece->at != UINT64_MAX)
                return VK_SUCCESS;
        }
    VkResult result;
    uint64_t wanted = purpose == K3_VK_FOR_DEVICE && bytes < slab_bytes / 2 ? slab_bytes : bytes;
    wanted = wanted > vk->max_allocation && bytes <= vk->max_allocation ? bytes : wanted;
    piece->slab = new_slab(vk, wanted, purpose, &result);
    if (!piece->slab && wanted > bytes) /* little is left: exactly what is needed, then */
        piece->slab = new_slab(vk, bytes, purpose, &result);
    piece->at = piece->slab ? take_gap(piece->slab, bytes) : 0;
    return result;
}

/* ---- buffers ----------------------------------------------------------------------------------------------- */

static void give_back(k3_vk *vk, k3_vk_buf *buf)
{
    for (int i = 0; i < buf->n_pieces; i++) {
        k3_vk_slab *slab = buf->pieces[i].slab;
        if (!slab)
            continue;
        give_gap(slab, buf->pieces[i].at, buf->pieces[i].bytes);
        drop_empty_slab(vk, slab);
    }
    free(buf->pieces);
    free(buf);
}

static k3_vk_buf *keep(k3_vk *vk, k3_vk_buf *buf)
{
    buf->base.address = buf->pieces[0].slab->address + buf->pieces[0].at;
    buf->next = vk->buffers;
    if (vk->buffers)
        vk->buffers->previous = buf;
    vk->buffers = buf;
    vk->n_buffers++;
    vk->used += buf->counted;
    return buf;
}

/* A buffer of pieces of piece_bytes (the last may be shorter). */
static k3_vk_buf *new_buf(k3_vk *vk, uint64_t bytes, uint64_t piece_bytes, k3_vk_purpose purpose, const char *what)
{
    uint64_t n = bytes ? (bytes + piece_bytes - 1) / piece_bytes : 1;
    k3_vk_buf *buf = calloc(1, sizeof *buf);
    if (buf)
        buf->pieces = calloc(n, sizeof *buf->pieces);
    if (!buf || !buf->pieces) {
        free(buf);
        k3_vk_fail(vk, K3_E_NOMEM, "%s: the system has no memory left", what);
        return NULL;
    }
    buf->base.bytes = bytes;
    buf->piece_bytes = piece_bytes;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t left = bytes - i * piece_bytes;
        VkResult result = take(vk, &buf->pieces[i], round_up(left < piece_bytes ? (left ? left : 1) : piece_bytes), purpose);
        buf->n_pieces = (int)i + 1;
        if (result == VK_SUCCESS) {
            buf->counted += purpose == K3_VK_FOR_DEVICE ? buf->pieces[i].bytes : 0;
            continue;
        }
        buf->n_pieces = (int)i;
        uint64_t total, room = k3_vk_free_bytes(vk, &total);
        k3_vk_fail(vk, result == VK_ERROR_DEVICE_LOST ? K3_E_DEVICE : K3_E_NOMEM,
                   "%s: %llu bytes wanted of %s, which has %llu of %llu free and answered %s; lower --vram or use smaller types", what,
                   (unsigned long long)bytes, vk->base.name, (unsigned long long)room, (unsigned long long)total,
                   k3_vk_result_name(result));
        give_back(vk, buf);
        return NULL;
    }
    return keep(vk, buf);
}

k3_vk_buf *k3_vk_host_buf(k3_vk *vk, uint64_t bytes, k3_vk_purpose purpose, char **host, const char *what)
{
    k3_vk_buf *buf = new_buf(vk, bytes, round_up(bytes), purpose, what);
    *host = buf ? buf->pieces[0].slab->host + buf->pieces[0].at : NULL;
    return buf;
}

static int fits_budget(k3_vk *vk, uint64_t bytes, const char *what)
{
    if (!vk->budget || (vk->used <= vk->budget && bytes <= vk->budget - vk->used))
        return 1;
    k3_vk_fail(vk, K3_E_NOMEM, "%s: %llu bytes wanted, %llu of the budget of %llu are in use; raise --vram or ask for less", what,
               (unsigned long long)bytes, (unsigned long long)vk->used, (unsigned long long)vk->budget);
    return 0;
}

static k3_buf *memory_alloc(k3_backend *be, uint64_t bytes, const char *what)
{
    k3_vk *vk = k3_vk_of(be);
    if (k3_vk_failed(vk) || !fits_budget(vk, bytes, what))
        return NULL;
    if (round_up(bytes) > vk->max_allocation || bytes > UINT64_MAX - K3_VK_ALIGN) {
        k3_vk_fail(vk, K3_E_NOMEM, "%s: %llu bytes in one piece wanted, %s allows %llu an allocation", what, (unsigned long long)bytes,
                   vk->base.name, (unsigned long long)vk->max_allocation);
        return NULL;
    }
    k3_vk_buf *buf = new_buf(vk, bytes, round_up(bytes ? bytes : 1), K3_VK_FOR_DEVICE, what);
    if (buf)
        k3_vk_zero(vk, buf);
    return buf ? &buf->base : NULL;
}

static k3_buf *memory_alloc_rows(k3_backend *be, uint64_t rows, uint64_t row_bytes, const char *what)
{
    k3_vk *vk = k3_vk_of(be);
    uint64_t bytes = rows * row_bytes;
    if (round_up(bytes) <= vk->max_allocation)
        return memory_alloc(be, bytes, what);
    if (k3_vk_failed(vk) || !fits_budget(vk, bytes, what))
        return NULL;
    /* Rows are kept whole, and each piece but the last is a multiple of 16 bytes for vector loads of what follows. */
    uint64_t group = row_bytes % 16 ? 16 : 1, n = vk->max_allocation / K3_VK_ALIGN * K3_VK_ALIGN / row_bytes / group * group;
    if (!n) {
        k3_vk_fail(vk, K3_E_NOMEM, "%s: a row of %llu bytes wanted in one piece, %s allows %llu an allocation", what,
                   (unsigned long long)row_bytes, vk->base.name, (unsigned long long)vk->max_allocation);
        return NULL;
    }
    k3_vk_buf *buf = new_buf(vk, bytes, n * row_bytes, K3_VK_FOR_DEVICE, what);
    if (buf)
        k3_vk_zero(vk, buf);
    return buf ? &buf->base : NULL;
}

/* A buffer over the host's own pages, which must be aligned as the device asks; NULL if the device does not take them. */
static k3_vk_buf *import_pages(k3_vk *vk, void *host, uint64_t bytes)
{
    if (!vk->has_host_import || (uintptr_t)host % vk->host_alignment || bytes % vk->host_alignment || bytes > vk->max_allocation)
        return NULL;
    VkMemoryHostPointerPropertiesEXT allowed = {.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    if (vk->fn.vkGetMemoryHostPointerPropertiesEXT(vk->device, VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, host, &allowed))
        return NULL;
    k3_vk_slab *slab = calloc(1, sizeof *slab);
    k3_vk_buf *buf = calloc(1, sizeof *buf);
    k3_vk_piece_of *piece = calloc(1, sizeof *piece);
    VkMemoryRequirements needs = {0};
    VkResult result = VK_ERROR_OUT_OF_HOST_MEMORY;
    if (slab && buf && piece) {
        slab->bytes = bytes;
        slab->wrapped = 1;
        result = make_buffer(vk, slab, host, &needs);
    }
    for (uint32_t t = 0, found = 0; result == VK_SUCCESS && !found && t <= vk->memory.memoryTypeCount; t++) {
        if (t == vk->memory.memoryTypeCount)
            result = VK_ERROR_FEATURE_NOT_PRESENT;
        else if (needs.memoryTypeBits & allowed.memoryTypeBits & (1u << t))
            found = (result = fill_slab(vk, slab, needs.memoryTypeBits, t, host)) == VK_SUCCESS;
    }
    if (result != VK_SUCCESS || !keep_slab(vk, slab)) {
        if (slab)
            free_slab(vk, slab);
        free(buf);
        free(piece);
        return NULL;
    }
    *piece = (k3_vk_piece_of){slab, take_gap(slab, bytes), bytes};
    *buf = (k3_vk_buf){.base = {bytes, host, 0}, .pieces = piece, .n_pieces = 1, .piece_bytes = bytes};
    return keep(vk, buf);
}

static k3_buf *memory_wrap(k3_backend *be, void *host, uint64_t bytes, const char *what)
{
    k3_vk *vk = k3_vk_of(be);
    if (k3_vk_failed(vk))
        return NULL;
    k3_vk_buf *buf = import_pages(vk, host, bytes);
    if (buf)
        return &buf->base;
    k3_buf *copy = memory_alloc(be, bytes, what);
    if (copy)
        k3_vk_upload(be, (k3_ref){copy, 0}, host, bytes);
    return copy;
}

void k3_vk_release_buf(k3_vk *vk, k3_vk_buf *buf)
{
    if (!buf)
        return;
    if (buf->last_use > vk->completed)
        k3_vk_wait(vk, buf->last_use);
    k3_vk_wait_upload(vk, buf->last_upload);
    if (buf->previous)
        buf->previous->next = buf->next;
    else
        vk->buffers = buf->next;
    if (buf->next)
        buf->next->previous = buf->previous;
    vk->n_buffers--;
    vk->used -= buf->counted;
    give_back(vk, buf);
}

static void memory_release(k3_backend *be, k3_buf *buf)
{
    k3_vk_release_buf(k3_vk_of(be), (k3_vk_buf *)buf);
}

static void memory_info(k3_backend *be, k3_memory_info *info)
{
    k3_vk *vk = k3_vk_of(be);
    *info = (k3_memory_info){.used = vk->used, .budget = vk->budget, .n_buffers = vk->n_buffers, .n_slabs = vk->n_slabs};
    info->free = k3_vk_free_bytes(vk, &info->total);
}

static void memory_set_budget(k3_backend *be, uint64_t bytes)
{
    k3_vk_of(be)->budget = bytes;
}

static void memory_set_priority(k3_backend *be, float priority)
{
    k3_vk_of(be)->priority = priority < 0 ? 0 : priority > 1 ? 1 : priority;
}

const k3_memory_ops k3_vk_memory_ops = {
    .alloc = memory_alloc,
    .alloc_rows = memory_alloc_rows,
    .wrap = memory_wrap,
    .release = memory_release,
    .upload = k3_vk_upload,
    .download = k3_vk_download,
    .copy = k3_vk_copy,
    .info = memory_info,
    .set_budget = memory_set_budget,
    .set_priority = memory_set_priority,
};

void k3_vk_close_memory(k3_vk *vk)
{
    while (vk->buffers)
        k3_vk_release_buf(vk, vk->buffers);
    while (vk->n_slabs)
        free_slab(vk, vk->slabs[--vk->n_slabs]);
    free(vk->slabs);
}

/* ---- places ------------------------------------------------------------------------------------------------ */

const k3_vk_piece_of *k3_vk_piece_at(const k3_vk_buf *buf, uint64_t at, uint64_t *within)
{
    uint64_t i = at / buf->piece_bytes;
    if (i >= (uint64_t)buf->n_pieces)
        i = (uint64_t)buf->n_pieces - 1;
    *within = at - i * buf->piece_bytes;
    return &buf->pieces[i];
}

uint64_t k3_vk_piece(k3_vk *vk, k3_ref ref, uint64_t *bytes_left)
{
    (void)vk;
    const k3_vk_buf *buf = (const k3_vk_buf *)ref.buf;
    uint64_t within, all = ref.at < ref.buf->bytes ? ref.buf->bytes - ref.at : 0;
    const k3_vk_piece_of *piece = k3_vk_piece_at(buf, ref.at, &within);
    uint64_t here = within < buf->piece_bytes ? buf->piece_bytes - within : 0;
    *bytes_left = all < here ? all : here;
    return piece->slab->address + piece->at + within;
}

int k3_vk_within(k3_vk *vk, k3_ref ref, uint64_t bytes, const char *call)
{
    if (ref.buf && ref.at <= ref.buf->bytes && bytes <= ref.buf->bytes - ref.at)
        return 1;
    k3_vk_fail(vk, K3_E_INVALID, "%s: bytes %llu to %llu asked for, the buffer has %llu", call, (unsigned long long)ref.at,
               (unsigned long long)(ref.at + bytes), (unsigned long long)(ref.buf ? ref.buf->bytes : 0));
    return 0;
}
