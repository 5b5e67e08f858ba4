/* Batches: one command buffer with one concurrent encoder each. The queue runs them in order, and an encoder starts when what earlier ones
 * write is written, because every buffer is declared to each of them as written. A shared event counts submissions. */
#import "backend/metal/metal.h"

#include <stdio.h>

enum { WAIT_SECONDS = 60, SLICES_A_SECOND = 10, COPY_THREADS = 256, COPY_BYTES = 4 };

static int lost(k3_mt *mt)
{
    if (mt->gpu.lost)
        k3_gpu_fail(&mt->gpu, K3_E_DEVICE, "%s: the device is lost since an earlier failure; start again or use the CPU", mt->gpu.name);
    return mt->gpu.lost;
}

static void end_encoder(k3_mt_commands *commands)
{
    [commands->encoder endEncoding];
    [commands->encoder release];
    commands->encoder = nil;
}

/* Lets go of commands that have run, or never will. */
static void drop(k3_mt_commands *commands)
{
    end_encoder(commands);
    [commands->buffer release];
    *commands = (k3_mt_commands){0};
}

/* Keeps the failure of commands that ended in one and lets go of them. What was in flight behind them can still be waited for. */
static int ended_well(k3_mt *mt, k3_mt_commands *commands)
{
    char why[400];
    if ([commands->buffer status] != MTLCommandBufferStatusError)
        return 1;
    NSError *error = [commands->buffer error];
    int memory = [error code] == MTLCommandBufferErrorOutOfMemory;
    k3_mt_reason(why, sizeof why, error);
    k3_gpu_fail(&mt->gpu, memory ? K3_E_NOMEM : K3_E_DEVICE, "%s: submission %llu failed%s: %s (error %ld)", mt->gpu.name,
                (unsigned long long)commands->value, memory ? "" : " and the device is lost", why, (long)[error code]);
    mt->gpu.lost |= !memory;
    mt->over = commands->value > mt->over ? commands->value : mt->over;
    drop(commands);
    return 0;
}

int k3_mt_begin(k3_gpu *gpu, int batch)
{
    k3_mt *mt = k3_mt_of(gpu);
    k3_mt_commands *commands = &mt->commands[batch];
    drop(commands);
    k3_mt_reload(mt);
    @autoreleasepool {
        commands->buffer = [[mt->queue commandBuffer] retain];
    }
    if (!commands->buffer)
        k3_gpu_fail(gpu, K3_E_NOMEM, "%s: no command buffer is to be had", gpu->name);
    return commands->buffer != nil;
}

int k3_mt_submit(k3_gpu *gpu, int batch)
{
    k3_mt *mt = k3_mt_of(gpu);
    k3_mt_commands *commands = &mt->commands[batch];
    if (lost(mt))
        return 0;
    @autoreleasepool {
        end_encoder(commands);
        commands->value = gpu->batches[batch].value;
        [commands->buffer encodeSignalEvent:mt->event value:commands->value];
        [commands->buffer commit];
    }
    return 1;
}

/* One slice of waiting. -1: a failure is kept; 1: submissions up to `value` have run. The event says that they are through, their command
 * buffers a moment later whether they went well. */
static int wait_slice(k3_mt *mt, uint64_t value)
{
    int there = value <= mt->over || [mt->event waitUntilSignaledValue:value timeoutMS:1000 / SLICES_A_SECOND], well = 1;
    for (int i = 0; i < K3_GPU_BATCHES; i++) {
        k3_mt_commands *commands = &mt->commands[i];
        if (!commands->value)
            continue;
        if (there && commands->value <= value)
            [commands->buffer waitUntilCompleted];
        well &= ended_well(mt, commands);
    }
    return well ? there : -1;
}

int k3_mt_wait(k3_gpu *gpu, uint64_t value)
{
    k3_mt *mt = k3_mt_of(gpu);
    if (lost(mt))
        return 0;
    for (int i = 0; i < WAIT_SECONDS * SLICES_A_SECOND; i++) {
        int result = 0;
        @autoreleasepool {
            result = wait_slice(mt, value);
        }
        if (result)
            return result > 0;
    }
    gpu->lost = 1;
    k3_gpu_fail(gpu, K3_E_DEVICE, "%s: submission %llu has not ended after %d seconds; the device is given up", gpu->name,
                (unsigned long long)value, (int)WAIT_SECONDS);
    return 0;
}

/* The batch's encoder, which knows all buffers there are. */
static id<MTLComputeCommandEncoder> encoder_of(k3_mt *mt, int batch)
{
    k3_mt_commands *commands = &mt->commands[batch];
    if (!commands->encoder) {
        @autoreleasepool {
            commands->encoder = [[commands->buffer computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent] retain];
        }
        commands->n_declared = 0;
        if (!commands->encoder)
            k3_gpu_fail(&mt->gpu, K3_E_NOMEM, "%s: no command encoder is to be had", mt->gpu.name);
    }
    if (commands->encoder && commands->n_declared < mt->n_resources) {
        [commands->encoder useResources:mt->resources + commands->n_declared
                                  count:(NSUInteger)(mt->n_resources - commands->n_declared)
                                  usage:MTLResourceUsageRead | MTLResourceUsageWrite];
        commands->n_declared = mt->n_resources;
    }
    return commands->encoder;
}

void k3_mt_barrier(k3_gpu *gpu, int batch)
{
    [k3_mt_of(gpu)->commands[batch].encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
}

static void encode(k3_mt *mt, int batch, id<MTLComputePipelineState> state, const void *args, size_t args_bytes, MTLSize groups,
                   uint32_t threads)
{
    id<MTLComputeCommandEncoder> encoder = encoder_of(mt, batch);
    [encoder setComputePipelineState:state];
    if (args_bytes)
        [encoder setBytes:args length:args_bytes atIndex:0];
    [encoder dispatchThreadgroups:groups threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
}

void k3_mt_dispatch(k3_gpu *gpu, int batch, void *pipeline, const void *args, size_t args_bytes, const uint32_t groups[3])
{
    const k3_mt_pipeline *p = pipeline;
    encode(k3_mt_of(gpu), batch, p->state, args, args_bytes, MTLSizeMake(groups[0], groups[1], groups[2]), p->threads);
}

/* By a kernel: a copy command wants an encoder of its own, and multiples of 4 bytes. */
void k3_mt_copy(k3_gpu *gpu, int batch, k3_gpu_slab *dst, uint64_t dst_at, k3_gpu_slab *src, uint64_t src_at, uint64_t bytes)
{
    k3_mt *mt = k3_mt_of(gpu);
    struct {
        uint64_t dst, src;
        uint32_t bytes, zero;
    } args = {dst->address + dst_at, src->address + src_at, (uint32_t)bytes, 0};
    uint64_t groups = k3_gpu_groups(k3_gpu_groups(bytes, COPY_BYTES), COPY_THREADS);
    encode(mt, batch, mt->copy, &args, sizeof args, MTLSizeMake(groups, 1, 1), COPY_THREADS);
}

int k3_mt_times(k3_gpu *gpu, int batch, uint64_t *ns, uint64_t *whole)
{
    const k3_mt_commands *commands = &k3_mt_of(gpu)->commands[batch];
    double seconds = commands->value ? [commands->buffer GPUEndTime] - [commands->buffer GPUStartTime] : 0;
    if (!(seconds > 0))
        return 0;
    *whole = (uint64_t)(seconds * 1e9);
    for (int i = 0; i < gpu->batches[batch].n_stamps; i++)
        ns[i] = *whole;
    return 1;
}

void k3_mt_settle(k3_mt *mt)
{
    for (int i = 0; i < K3_GPU_BATCHES; i++)
        if (mt->commands[i].value && !mt->gpu.lost)
            (void)k3_mt_wait(&mt->gpu, mt->commands[i].value);
    for (int i = 0; i < K3_GPU_BATCHES; i++)
        drop(&mt->commands[i]);
}
