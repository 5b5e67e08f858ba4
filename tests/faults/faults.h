/* What a test asks of the fault layer and what the layer counts. A layer is loaded by the Vulkan loader, so a test finds these functions in
 * the shared library by name (support/vulkan_faults.h); a child process is told by the variable K3_FAULTS, read when it makes its first
 * instance.
 *
 * The text is NAME=VALUE,NAME=VALUE...; places are counted from 1 and 0 is never:
 *   api=N                    the device claims Vulkan 1.N
 *   max_allocation=B         maxMemoryAllocationSize; more is refused with out of device memory
 *   max_buffer=B             maxBufferSize; the same
 *   storage_range=B push_constants=B shared_memory=B invocations=N groups=N   limits
 *   hide=A:B:...             features, extensions or "subgroupArithmetic" that are not there; asking for one fails
 *   devices=0                no device
 *   discrete=1               a software device claims to be a discrete GPU
 *   no_timestamps=1          queues keep no time
 *   transfer_queue=1         a second queue family that only copies
 *   fail_allocate=N fail_allocate_from=N fail_buffer=N fail_pipeline=N        the n-th call (any from the n-th) runs out of device memory
 *   fail_device=1            vkCreateDevice fails
 *   lost_submit=N lost_wait=N                    the device is lost at the n-th submission or wait and stays so
 *   drop_barrier=N           the n-th barrier is left out
 *   heaps=d32:h16:v8         memory heaps in MiB: device, host, both; with the extensions for budget and priority
 *   budget=N:N               bytes that each heap may hold; overcommit=1: going past that loses the device at the next submission
 *   time=1                   each submission is waited for and timed
 *   falsify=N                the kernel whose SPIR-V words have this hash (FNV-1a, a word at a time) does nothing
 *   report=PATH              counters are written there when the instance goes */
#ifndef K3_TESTS_FAULTS_H
#define K3_TESTS_FAULTS_H

#include <stdint.h>

/* Replaces what was asked for and sets the counters to 0. */
typedef void k3_faults_configure_fn(const char *text);
/* Counters: instances, devices, allocate, priorities (allocations with one), free, live_bytes, buffers, modules, falsified, pipelines,
 * submits, waits, dispatches, barriers, copies, cache_reads, longest_us, longest_cpu_us (of this process meanwhile), total_us. UINT64_MAX
 * for an unknown name. */
typedef uint64_t k3_faults_count_fn(const char *name);

#endif
