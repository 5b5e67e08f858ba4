#import "metal/fake_objects.h"

#include <stdio.h>
#include <unistd.h>

/* Whether the system can read there: not behind the end of a mapped file, where a program that reads is ended. */
static BOOL readable(const char *at)
{
    int ends[2];
    if (pipe(ends))
        return NO;
    BOOL is = write(ends[1], at, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return is;
}

@implementation FakeDevice
- (NSString *)name
{
    return index ? @"Second fake GPU" : @"Fake GPU";
}

- (uint64_t)registryID
{
    return 0x100 + (uint64_t)index;
}

- (NSUInteger)maxBufferLength
{
    return fake_options.max_buffer_length;
}

- (uint64_t)recommendedMaxWorkingSetSize
{
    return fake_options.working_set;
}

- (NSUInteger)currentAllocatedSize
{
    return __atomic_load_n(&allocated, __ATOMIC_RELAXED);
}

- (BOOL)hasUnifiedMemory
{
    return fake_options.unified && (index || !fake_options.first_apart);
}

- (NSUInteger)maxThreadgroupMemoryLength
{
    return fake_options.max_threadgroup_memory;
}

- (MTLSize)maxThreadsPerThreadgroup
{
    return MTLSizeMake(fake_options.max_threads, fake_options.max_threads, fake_options.max_threads);
}

- (BOOL)supportsFamily:(MTLGPUFamily)family
{
    if (family == MTLGPUFamilyMetal3)
        return fake_options.metal3;
    if (family == MTLGPUFamilyMac2)
        return YES;
    return family > 1000 && family <= 1000 + (MTLGPUFamily)fake_options.families;
}

- (id<MTLCommandQueue>)newCommandQueue
{
    if (fake_call(K3_FAKE_QUEUE, NULL))
        return nil;
    FakeQueue *queue = [FakeQueue new];
    queue->device = [self retain];
    return queue;
}

- (id<MTLSharedEvent>)newSharedEvent
{
    return fake_call(K3_FAKE_EVENT, NULL) ? nil : [FakeEvent new];
}

- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source options:(MTLCompileOptions *)options error:(NSError **)error
{
    if (!options || options.fastMathEnabled)
        fake_violation("a library is compiled with fast math, which the kernels are not tested with");
    if (options && options.languageVersion < MTLLanguageVersion3_0)
        fake_violation("a library is compiled as a language older than Metal 3, which knows no addresses in structures");
    int code = 0;
    if (fake_call(K3_FAKE_LIBRARY, &code)) {
        if (error)
            *error = [NSError errorWithCode:code text:"a library that is to fail"];
        return nil;
    }
    return [FakeLibrary newWithSource:source];
}

/* Sets *error and says false where a pipeline of this kernel cannot be. */
- (BOOL)takes:(FakeFunction *)function threads:(NSUInteger)threads error:(NSError **)error
{
    int code = 0;
    char text[256] = "";
    if (fake_call(K3_FAKE_PIPELINE, &code))
        snprintf(text, sizeof text, "a pipeline that is to fail");
    else if (msl_threadgroup_bytes(function->kernel) > fake_options.max_threadgroup_memory)
        snprintf(text, sizeof text, "%s declares %u bytes of threadgroup memory of %u", function->name.UTF8String,
                 msl_threadgroup_bytes(function->kernel), fake_options.max_threadgroup_memory);
    else if (threads > fake_options.max_threads)
        snprintf(text, sizeof text, "%s wants %lu threads of %u", function->name.UTF8String, threads, fake_options.max_threads);
    if (*text && error)
        *error = [NSError errorWithCode:code text:text];
    return !*text;
}

- (id<MTLComputePipelineState>)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                                             options:(MTLPipelineOption)options
                                                          reflection:(MTLComputePipelineReflection **)reflection
                                                               error:(NSError **)error
{
    FakeFunction *function = (FakeFunction *)descriptor.computeFunction;
    NSUInteger threads = descriptor.maxTotalThreadsPerThreadgroup;
    if (options != MTLPipelineOptionNone || reflection)
        fake_violation("a pipeline is asked for reflection, which is not part of the fake");
    if (!function) {
        fake_violation("a pipeline is made without a function");
        return nil;
    }
    if (![self takes:function threads:threads error:error])
        return nil;
    FakePipeline *pipeline = [FakePipeline new];
    pipeline->function = [function retain];
    pipeline->device = index;
    pipeline->max_threads = threads ? threads : fake_options.pipeline_threads;
    pipeline->whole_simdgroups = descriptor.threadGroupSizeIsMultipleOfThreadExecutionWidth;
    return pipeline;
}

- (FakeBuffer *)newBuffer:(NSUInteger)length host:(void *)host options:(MTLResourceOptions)options
{
    MTLStorageMode mode = (MTLStorageMode)(options >> 4 & 15);
    if (mode != MTLStorageModeShared && mode != MTLStorageModePrivate)
        fake_violation("a buffer of storage mode %lu", mode);
    bool fails = fake_call(K3_FAKE_ALLOCATION, NULL);
    if (fails || length > fake_options.max_buffer_length || allocated + length > fake_options.memory)
        return nil;
    return [FakeBuffer newOnDevice:self length:length host:host mode:mode];
}

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options
{
    if (length)
        return [self newBuffer:length host:NULL options:options];
    fake_violation("a buffer of no bytes");
    return nil;
}

- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(MTLBufferDeallocator)deallocator
{
    if (deallocator)
        fake_violation("a buffer has a deallocator, which is not part of the fake");
    if (pointer && length && (uintptr_t)pointer % FAKE_NO_COPY_PAGE == 0 && length % FAKE_NO_COPY_PAGE == 0 &&
        (options >> 4 & 15) == MTLStorageModeShared) {
        BOOL taken = !fake_options.no_pages && readable((const char *)pointer + length - FAKE_NO_COPY_PAGE);
        return taken ? [self newBuffer:length host:pointer options:options] : nil;
    }
    fake_violation("a buffer of %lu bytes over the host's at %p: not whole pages of %d, or not shared", length, pointer, FAKE_NO_COPY_PAGE);
    return nil;
}
@end

static FakeDevice *new_device(int index)
{
    FakeDevice *device = [FakeDevice new];
    device->index = index;
    return device;
}

id<MTLDevice> MTLCreateSystemDefaultDevice(void)
{
    return fake_options.devices ? new_device(0) : nil;
}

NSArray<id<MTLDevice>> *MTLCopyAllDevices(void)
{
    id devices[8];
    int n = fake_options.devices < 8 ? fake_options.devices : 8;
    for (int i = 0; i < n; i++)
        devices[i] = new_device(i);
    NSArray *array = [NSArray newWithObjects:devices count:(NSUInteger)n];
    for (int i = 0; i < n; i++)
        [devices[i] release];
    return array;
}
