/* A Metal for machines without one, stricter than Apple's: runs the kernels of the command buffers that were committed with msl.h, late,
 * when somebody waits or asks, and writes down every use of the interface that Apple does not promise to work. This is its C side, for
 * tests. */
#ifndef K3_TESTS_METAL_FAKE_H
#define K3_TESTS_METAL_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the devices say of themselves and how they behave. Devices that are there already keep to what is set later, too. */
typedef struct k3_fake_metal_options {
    int devices;                     /* 8 at most; 0: a machine without a GPU */
    uint64_t max_buffer_length;      /* bytes */
    uint64_t working_set;            /* bytes, recommendedMaxWorkingSetSize */
    uint64_t memory;                 /* bytes of all buffers of a device; more cannot be allocated */
    uint32_t width;                  /* threads of a simdgroup: 8, 16, 32 or 64 */
    uint32_t max_threads;            /* of a threadgroup */
    uint32_t pipeline_threads;       /* of a threadgroup of any one pipeline, as registers allow */
    uint32_t max_threadgroup_memory; /* bytes */
    uint32_t families;               /* Apple GPU families up to this one, such as 7; 0: a GPU of another maker, without any */
    bool metal3;                     /* supports MTLGPUFamilyMetal3 */
    bool unified;                    /* hasUnifiedMemory */
    bool first_apart;                /* the first device has memory of its own all the same */
    uint32_t dispatch_order;         /* between two barriers of a concurrent encoder. 0: as encoded, 1: reversed, else a seed to shuffle */
    uint32_t thread_order;           /* seed of msl_options */
    uint32_t polls;                  /* status and signaledValue say "not yet" so often before what was committed runs */
    uint32_t event_timeout;          /* ms that a device waits for an event before it gives up */
    bool no_pages;                   /* newBufferWithBytesNoCopy takes no pages of the host */
    bool forget;                     /* an encoder forgets what is bound with each dispatch: the next one brings its own */
    bool hide_host;                  /* a kernel faults at a pointer of the host; for tests whose other threads touch no buffers */
    const char *cache;               /* folder for compiled kernels */
} k3_fake_metal_options;

/* What is counted, and can fail or be ignored the n-th time. */
typedef enum k3_fake_metal_call {
    K3_FAKE_LIBRARY,        /* newLibraryWithSource */
    K3_FAKE_FUNCTION,       /* newFunctionWithName */
    K3_FAKE_PIPELINE,       /* newComputePipelineState */
    K3_FAKE_ALLOCATION,     /* newBuffer, both kinds */
    K3_FAKE_QUEUE,          /* newCommandQueue */
    K3_FAKE_EVENT,          /* newSharedEvent */
    K3_FAKE_COMMAND_BUFFER, /* commandBuffer: fails by giving nil */
    K3_FAKE_ENCODER,        /* computeCommandEncoder and blitCommandEncoder: fails by giving nil */
    K3_FAKE_RUN,            /* a committed command buffer that runs: fails by status and error code, without running */
    K3_FAKE_DISPATCH,       /* dispatchThreadgroups */
    K3_FAKE_BARRIER,        /* memoryBarrierWithScope */
    K3_FAKE_USE,            /* useResource and useResources */
    K3_FAKE_RESOURCE,       /* one resource of a useResource or useResources */
    K3_FAKE_BYTES,          /* setBytes */
    K3_FAKE_BUFFER,         /* setBuffer */
    K3_FAKE_BLIT,           /* copyFromBuffer and fillBuffer */
    K3_FAKE_SIGNAL,         /* encodeSignalEvent */
    K3_FAKE_WAIT,           /* encodeWaitForEvent */
    K3_FAKE_CALLS
} k3_fake_metal_call;

/* Options as at the start of the program, no counts, no violations, nothing that fails. What lives is left alone. */
void k3_fake_metal_reset(void);
k3_fake_metal_options *k3_fake_metal_set(void);

/* Calls since the reset. */
uint64_t k3_fake_metal_count(k3_fake_metal_call call);
/* The n-th call from now (1: the next) fails; `code` is that of the error, and
 * not 0 for a run. A run that fails with 11, device removed, takes every later one
 * with it. Only the calls down to K3_FAKE_RUN can fail. */
void k3_fake_metal_fail(k3_fake_metal_call call, uint64_t n, int code);
/* The n-th call from now has no effect. For those from K3_FAKE_DISPATCH on. */
void k3_fake_metal_drop(k3_fake_metal_call call, uint64_t n);

/* Violations since the reset; the text of the first 64. */
int k3_fake_metal_violations(void);
const char *k3_fake_metal_violation(int index);
/* Forgets the violations alone. */
void k3_fake_metal_forgive(void);

/* Objects that live, of a class such as "FakeBuffer"; NULL: of all classes, constant strings left out. */
int k3_fake_metal_live(const char *class_name);
/* Bytes of all buffers of all devices. */
uint64_t k3_fake_metal_allocated(void);

#endif
