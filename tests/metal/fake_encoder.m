#import "metal/fake_objects.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A pointer of the host in what a kernel is given: it would work here and nowhere else. */
static void check_addresses(const void *bytes, size_t length, unsigned long index)
{
    for (size_t at = 0; at + sizeof(uint64_t) <= length; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, (const char *)bytes + at, sizeof word);
        if (fake_memory_is_host(word))
            fake_violation("the bytes at index %lu have the host's pointer into a buffer at %zu, not its GPU address", index, at);
    }
}

@implementation FakeComputeEncoder
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state
{
    if (![self openFor:"setComputePipelineState"] || !fake_lives(state, "setComputePipelineState"))
        return;
    if (((FakePipeline *)state)->device != commands->queue->device->index)
        fake_violation("setComputePipelineState of a pipeline of another device");
    [commands hold:state];
    pipeline = (FakePipeline *)state;
}

/* The binding, emptied; NULL and a violation for an index that Metal has not. */
- (fake_binding *)bindingAt:(NSUInteger)index
{
    if (index >= MSL_MAX_BUFFERS) {
        fake_violation("buffer index %lu", index);
        return NULL;
    }
    free(bindings[index].bytes);
    bindings[index] = (fake_binding){0};
    return &bindings[index];
}

- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index
{
    if (![self openFor:"setBytes"] || fake_call(K3_FAKE_BYTES, NULL))
        return;
    if (!length || length > FAKE_MAX_BYTES) {
        fake_violation("setBytes of %lu bytes", length);
        return;
    }
    fake_binding *binding = [self bindingAt:index];
    if (!binding)
        return;
    check_addresses(bytes, length, index);
    binding->bytes = malloc(length);
    if (!binding->bytes)
        abort();
    binding->length = length;
    memcpy(binding->bytes, bytes, length);
}

- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index
{
    if (![self openFor:"setBuffer"] || (buffer && ![self takes:buffer for:"setBuffer"]) || fake_call(K3_FAKE_BUFFER, NULL))
        return;
    if (buffer && (offset >= buffer.length || offset % 4)) {
        fake_violation("setBuffer at offset %lu of %lu bytes", offset, buffer.length);
        return;
    }
    fake_binding *binding = [self bindingAt:index];
    if (!binding || !buffer)
        return;
    [commands hold:buffer];
    binding->buffer = (FakeBuffer *)buffer;
    binding->offset = offset;
}

- (void)use:(id<MTLResource>)resource usage:(MTLResourceUsage)usage
{
    if (!usage || usage > (MTLResourceUsageRead | MTLResourceUsageWrite))
        fake_violation("useResource for usage %lu", usage);
    if (![self takes:resource for:"useResource"] || fake_call(K3_FAKE_RESOURCE, NULL))
        return;
    [commands hold:resource];
    pass->uses = fake_grow(pass->uses, pass->n_uses, &pass->room_uses, sizeof *pass->uses);
    pass->uses[pass->n_uses++] = (fake_use){(FakeBuffer *)resource, usage & MTLResourceUsageWrite ? PROT_READ | PROT_WRITE : PROT_READ};
}

- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage
{
    if ([self openFor:"useResource"] && !fake_call(K3_FAKE_USE, NULL))
        [self use:resource usage:usage];
}

- (void)useResources:(const id<MTLResource> _Nonnull[])resources count:(NSUInteger)count usage:(MTLResourceUsage)usage
{
    if (![self openFor:"useResources"] || fake_call(K3_FAKE_USE, NULL))
        return;
    for (NSUInteger i = 0; i < count; i++)
        [self use:resources[i] usage:usage];
}

/* False, and a violation, for a grid that this pipeline cannot run. */
- (BOOL)takes:(MTLSize)groups of:(MTLSize)threads
{
    NSUInteger total = threads.width * threads.height * threads.depth, most = pipeline->max_threads;
    const char *name = pipeline->function->name.UTF8String;
    if (!groups.width || !groups.height || !groups.depth || !total)
        fake_violation("%s: a dispatch of no threads", name);
    else if (groups.width > UINT32_MAX || groups.height > UINT32_MAX || groups.depth > UINT32_MAX)
        fake_violation("%s: a grid of %lu x %lu x %lu groups", name, groups.width, groups.height, groups.depth);
    else if (total > most)
        fake_violation("%s: %lu threads a threadgroup, %lu can be", name, total, most);
    else if (pipeline->whole_simdgroups && total % fake_options.width)
        fake_violation("%s: %lu threads a threadgroup are no multiple of %u as promised", name, total, fake_options.width);
    else
        return YES;
    return NO;
}

/* False, and a violation, where the kernel has a buffer index that nothing is bound to. */
- (BOOL)isBound
{
    uint32_t wanted = msl_buffers(pipeline->function->kernel);
    BOOL bound = YES;
    for (int i = 0; i < MSL_MAX_BUFFERS; i++)
        if (wanted >> i & 1 && !bindings[i].bytes && !bindings[i].buffer) {
            fake_violation("%s: nothing is bound at index %d", pipeline->function->name.UTF8String, i);
            bound = NO;
        }
    return bound;
}

- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads
{
    if (![self openFor:"dispatchThreadgroups"] || fake_call(K3_FAKE_DISPATCH, NULL))
        return;
    if (!pipeline) {
        fake_violation("a dispatch without a pipeline");
        return;
    }
    if (![self takes:groups of:threads] || ![self isBound])
        return;
    pass->dispatches = fake_grow(pass->dispatches, pass->n_dispatches, &pass->room_dispatches, sizeof *pass->dispatches);
    fake_dispatch *dispatch = &pass->dispatches[pass->n_dispatches++];
    *dispatch = (fake_dispatch){.pipeline = pipeline,
                                .groups = {(uint32_t)groups.width, (uint32_t)groups.height, (uint32_t)groups.depth},
                                .threads = {(uint32_t)threads.width, (uint32_t)threads.height, (uint32_t)threads.depth},
                                .n_uses = pass->n_uses,
                                .batch = batch};
    batch += serial;
    for (int i = 0; i < MSL_MAX_BUFFERS; i++) {
        dispatch->bindings[i] = bindings[i];
        if (bindings[i].bytes) {
            dispatch->bindings[i].bytes = malloc(bindings[i].length);
            if (!dispatch->bindings[i].bytes)
                abort();
            memcpy(dispatch->bindings[i].bytes, bindings[i].bytes, bindings[i].length);
        }
        if (fake_options.forget)
            (void)[self bindingAt:(NSUInteger)i];
    }
}

- (void)memoryBarrierWithScope:(MTLBarrierScope)scope
{
    if (![self openFor:"memoryBarrierWithScope"] || fake_call(K3_FAKE_BARRIER, NULL))
        return;
    if (scope != MTLBarrierScopeBuffers)
        fake_violation("a barrier of scope %lu, not of buffers", scope);
    batch++;
}

- (void)dealloc
{
    for (int i = 0; i < MSL_MAX_BUFFERS; i++)
        free(bindings[i].bytes);
    [super dealloc];
}
@end
