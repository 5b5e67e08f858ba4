/* What the files of the fault layer share. */
#ifndef K3_TESTS_FAULTS_LAYER_H
#define K3_TESTS_FAULTS_LAYER_H

#include "faults.h"

#include <pthread.h>

#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#define EXPORT __attribute__((visibility("default")))

enum { TEXT_BYTES = 1024, MAX_INSTANCES = 8, MAX_DEVICES = 8, MAX_LIVE = 4096, MAX_HEAPS = 8, MAX_NEXT = 16 };

/* ---- settings.c ------------------------------------------------------------------------------------------------- */

typedef enum setting {
    S_API,
    S_MAX_ALLOCATION,
    S_MAX_BUFFER,
    S_STORAGE_RANGE,
    S_PUSH_CONSTANTS,
    S_SHARED_MEMORY,
    S_INVOCATIONS,
    S_GROUPS,
    S_DISCRETE,
    S_NO_TIMESTAMPS,
    S_TRANSFER_QUEUE,
    S_FAIL_ALLOCATE,
    S_FAIL_ALLOCATE_FROM,
    S_FAIL_BUFFER,
    S_FAIL_PIPELINE,
    S_FAIL_DEVICE,
    S_LOST_SUBMIT,
    S_LOST_WAIT,
    S_DROP_BARRIER,
    S_OVERCOMMIT,
    S_TIME,
    S_FALSIFY,
    N_SETTINGS
} setting;

typedef enum counter {
    C_INSTANCES,
    C_DEVICES,
    C_ALLOCATE,
    C_PRIORITIES,
    C_FREE,
    C_LIVE_BYTES,
    C_BUFFERS,
    C_MODULES,
    C_FALSIFIED,
    C_PIPELINES,
    C_SUBMITS,
    C_WAITS,
    C_DISPATCHES,
    C_BARRIERS,
    C_COPIES,
    C_CACHE_READS,
    C_LONGEST_US,
    C_LONGEST_CPU_US,
    C_TOTAL_US,
    N_COUNTERS
} counter;

/* What was asked for, and what happened; `lock` guards the counters and the lists of living memory. */
extern pthread_mutex_t lock;
extern uint64_t wanted[N_SETTINGS], counts[N_COUNTERS];
extern char hidden[TEXT_BYTES], heaps_text[TEXT_BYTES], budget_text[TEXT_BYTES], report[TEXT_BYTES];
extern int no_devices;

k3_faults_configure_fn k3_faults_configure;
k3_faults_count_fn k3_faults_count;
/* One more; returns how many that makes. */
uint64_t count(counter c);
int is_hidden(const char *name);
void write_report(void);

/* The smaller of a limit and what is asked for. */
static inline uint64_t least(uint64_t value, setting s)
{
    return wanted[s] && wanted[s] < value ? wanted[s] : value;
}

#define LOWER(field, s) ((field) = (uint32_t)least(field, s))

/* ---- the layers below ------------------------------------------------------------------------------------------- */

typedef struct live {
    VkDeviceMemory memory;
    uint64_t bytes;
    uint32_t type;
} live;

typedef struct below {
    void *key;
    VkInstance instance;
    VkDevice device;
    PFN_vkGetInstanceProcAddr get_instance;
    PFN_vkVoidFunction next[MAX_NEXT];
    PFN_vkGetDeviceProcAddr get_device;
    int lost, n_live;
    live memory[MAX_LIVE];
} below;

extern below instances[MAX_INSTANCES], devices[MAX_DEVICES];
below *instance_of(const void *handle); /* also of its physical devices */
below *device_of(const void *handle);   /* also of its queues and command buffers */

/* The next layer's function of that name. Those of an instance are looked up while it is made: afterwards the loader answers with the first
 * layer's. */
PFN_vkVoidFunction next_of(const below *b, const char *name);
#define NEXT_I(b, name) ((PFN_##name)next_of(b, #name))
#define NEXT_D(b, name) ((PFN_##name)(b)->get_device((b)->device, #name))

/* The structure of a type in a pNext chain, or NULL. */
void *chained(const void *next, VkStructureType type);
/* Takes it out of the chain that hangs on a structure; 1 if it was there. */
int unchain(const void *head, VkStructureType type);

/* ---- memory heaps that are not there ---------------------------------------------------------------------------- */

typedef struct mock {
    uint32_t n_heaps, n_types;
    VkMemoryHeap heaps[MAX_HEAPS];
    VkMemoryType types[2 * MAX_HEAPS];
    uint32_t host_types; /* bits of types that host pages can be wrapped as */
} mock;

/* What `heaps` asks for; n_heaps 0: nothing. */
mock mock_of(void);
uint64_t used_of(const mock *m, uint32_t heap);
uint64_t budget_of(uint32_t heap, uint64_t otherwise);
uint32_t heap_of_type(const mock *m, uint32_t type);

/* ---- what a device claims to be ------------------------------------------------------------------------------------ */

/* Extensions that come with mock memory, whether or not the device has them; it is never asked for them. */
extern const char *const mocked_extensions[];
int is_mocked(const char *extension);

/* Counts the hidden features that a chain of structures holds, and clears them if asked to. */
int hide_features(void *chain, int clear);

typedef struct entry {
    const char *name;
    PFN_vkVoidFunction function;
} entry;
#define ENTRY(name)                                                                                                                        \
    {                                                                                                                                      \
        "vk" #name, (PFN_vkVoidFunction)name                                                                                               \
    }

/* Functions of this layer that tell what a device is, and those that work with one; a NULL name ends a list. */
extern const entry physical_entries[], device_entries[];

#endif
