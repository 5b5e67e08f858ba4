/* The fake Metal's memory, the lives of its objects, and what tests can set: limits, failures, calls without effect. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#import "metal/fake_bench.h"

enum { PAGE = 16384, PAGE_FLOATS = PAGE / sizeof(float) };

static fake_bench bench;
static int lived; /* objects before the test */

static int set_up(void **state)
{
    (void)state;
    k3_fake_metal_reset();
    lived = k3_fake_metal_live(NULL);
    @autoreleasepool {
        bench = fake_bench_open();
    }
    fake_expect_none();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_bench_close(&bench);
    fake_expect_none();
    assert_int_equal(k3_fake_metal_live(NULL), lived);
    return 0;
}

static id<MTLBuffer> view(void *pages, size_t bytes)
{
    return [bench.device newBufferWithBytesNoCopy:pages length:bytes options:MTLResourceStorageModeShared deallocator:nil];
}

static MTLCommandBufferStatus run(id<MTLCommandBuffer> commands)
{
    [commands commit];
    [commands waitUntilCompleted];
    return commands.status;
}

/* ---- pages of the host ------------------------------------------------------------------------------------------- */

static void test_views_of_the_hosts_pages(void **state)
{
    (void)state;
    float *pages = aligned_alloc(PAGE, 3 * PAGE);
    assert_non_null(pages);
    for (int i = 0; i < 3 * PAGE_FLOATS; i++)
        pages[i] = 1;
    @autoreleasepool {
        id<MTLBuffer> low = view(pages, 2 * PAGE), high = view(pages + PAGE_FLOATS, 2 * PAGE);
        assert_ptr_equal(low.contents, pages);
        assert_true(low.gpuAddress != (uintptr_t)pages);
        assert_int_equal(low.length, 2 * PAGE);
        /* The last float of the second page is in both views. */
        id<MTLCommandBuffer> first = fake_record(&bench, low, low, 2 * PAGE_FLOATS, 0);
        id<MTLCommandBuffer> second = fake_record(&bench, high, high, 2 * PAGE_FLOATS, 1);
        [first commit];
        pages[0] = 5;
        assert_int_equal(run(second), MTLCommandBufferStatusCompleted);
        assert_float_equal(pages[0], 15, 0);
        assert_float_equal(pages[2 * PAGE_FLOATS - 1], 10, 0);
        assert_float_equal(pages[3 * PAGE_FLOATS - 1], 4, 0);
        [low release];
        [high release];
    }
    assert_float_equal(pages[0], 15, 0);
    free(pages);
}

static void test_views_of_pages_that_cannot_be_written(void **state)
{
    (void)state;
    float *pages = mmap(NULL, PAGE * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    float *aligned = (float *)(((uintptr_t)pages + PAGE - 1) / PAGE * PAGE);
    aligned[1] = 2;
    assert_int_equal(mprotect(aligned, PAGE, PROT_READ), 0);
    @autoreleasepool {
        id<MTLBuffer> from = view(aligned, PAGE), to = fake_floats(&bench, 2);
        assert_int_equal(run(fake_record(&bench, to, from, 2, 0)), MTLCommandBufferStatusCompleted);
        assert_float_equal(fake_float(to, 1), 6, 0);
        assert_int_equal(run(fake_record(&bench, from, to, 2, 0)), MTLCommandBufferStatusError);
        fake_expect("which is what the host cannot write");
        [from release];
        [to release];
    }
    munmap(pages, PAGE * 4);
}

static void test_views_that_cannot_be(void **state)
{
    (void)state;
    char *pages = aligned_alloc(PAGE, 2 * PAGE);
    assert_non_null(pages);
    assert_null(view(pages + 4096, PAGE));
    fake_expect("not whole pages of 16384");
    assert_null(view(pages, PAGE + 4096));
    fake_expect("not whole pages of 16384");
    assert_null(view(pages, 0));
    fake_expect("not whole pages of 16384");
    id<MTLBuffer> owned = [bench.device newBufferWithBytesNoCopy:pages
                                                          length:PAGE
                                                         options:MTLResourceStorageModeShared
                                                     deallocator:(MTLBufferDeallocator)(void *)pages];
    fake_expect("a buffer has a deallocator");
    [owned release];
    k3_fake_metal_set()->max_buffer_length = PAGE;
    assert_null(view(pages, 2 * PAGE));
    fake_expect_none();
    free(pages);
    char *gap = mmap(NULL, PAGE * 4, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(gap != MAP_FAILED);
    assert_null(view((void *)(((uintptr_t)gap + PAGE - 1) / PAGE * PAGE), PAGE));
    munmap(gap, PAGE * 4);
    assert_int_equal(k3_fake_metal_live("FakeBuffer"), 0);
}

static void test_pages_that_go_before_their_view(void **state)
{
    (void)state;
    char *pages = mmap(NULL, PAGE * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    id<MTLBuffer> buffer = view((void *)(((uintptr_t)pages + PAGE - 1) / PAGE * PAGE), PAGE);
    assert_non_null(buffer);
    munmap(pages, PAGE * 2);
    [buffer release];
    fake_expect("its host pages are gone before it");
}

/* ---- concurrent dispatches --------------------------------------------------------------------------------------- */

/* a = 3 a + 1 and b = 3 a + 2, in this order where the barrier is kept; what is in b[1] then. */
static float two_dispatches(MTLDispatchType type, int barrier, uint32_t order)
{
    float result = 0;
    k3_fake_metal_set()->dispatch_order = order;
    @autoreleasepool {
        id<MTLBuffer> a = fake_floats(&bench, 2), b = fake_floats(&bench, 2);
        const id<MTLResource> both[] = {a, b};
        id<MTLCommandBuffer> commands = [bench.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:type];
        [encoder useResources:both count:2 usage:MTLResourceUsageRead | MTLResourceUsageWrite];
        fake_encode(encoder, &bench, a, a, 2, 1);
        if (barrier)
            [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
        fake_encode(encoder, &bench, b, a, 2, 2);
        [encoder endEncoding];
        assert_int_equal(run(commands), MTLCommandBufferStatusCompleted);
        result = fake_float(b, 1);
        [a release];
        [b release];
    }
    return result;
}

static void test_a_missing_barrier_shows(void **state)
{
    (void)state;
    assert_float_equal(two_dispatches(MTLDispatchTypeConcurrent, 1, 1), 14, 0);
    assert_float_equal(two_dispatches(MTLDispatchTypeConcurrent, 0, 1), 5, 0);
    assert_float_equal(two_dispatches(MTLDispatchTypeConcurrent, 0, 0), 14, 0);
    assert_float_equal(two_dispatches(MTLDispatchTypeSerial, 0, 1), 14, 0);
    k3_fake_metal_drop(K3_FAKE_BARRIER, 2);
    assert_float_equal(two_dispatches(MTLDispatchTypeConcurrent, 1, 1), 14, 0);
    assert_float_equal(two_dispatches(MTLDispatchTypeConcurrent, 1, 1), 5, 0);
    int first = 0;
    for (int i = 0; i < 20; i++)
        first += two_dispatches(MTLDispatchTypeConcurrent, 0, 2) > 10;
    assert_in_range(first, 1, 19);
    for (int i = 0; i < 5; i++)
        assert_float_equal(two_dispatches(MTLDispatchTypeConcurrent, 1, 2), 14, 0);
}

/* ---- lives of objects -------------------------------------------------------------------------------------------- */

static void test_leaks_are_counted(void **state)
{
    (void)state;
    int others = k3_fake_metal_live(NULL);
    id<MTLBuffer> a = [bench.device newBufferWithLength:100 options:MTLResourceStorageModeShared];
    assert_int_equal(k3_fake_metal_live("FakeBuffer"), 1);
    assert_int_equal(k3_fake_metal_live(NULL), others + 1);
    assert_int_equal(k3_fake_metal_allocated(), 100);
    assert_int_equal(bench.device.currentAllocatedSize, 100);
    [a release];
    assert_int_equal(k3_fake_metal_live("FakeBuffer"), 0);
    assert_int_equal(bench.device.currentAllocatedSize, 0);
}

static void test_late_and_double_releases(void **state)
{
    (void)state;
    id<MTLBuffer> a = fake_floats(&bench, 8);
    [a release];
    [a release];
    fake_expect("a FakeBuffer is released more often than retained");
    assert_int_equal(a.length, 0);
    fake_expect("length is sent to a FakeBuffer that was released");
    (void)[a retain];
    fake_expect("a FakeBuffer is retained that was released");
    @autoreleasepool {
        [a autorelease];
        fake_expect("a FakeBuffer is autoreleased more often");
    }
    @autoreleasepool {
        id<MTLCommandBuffer> commands = [bench.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
        [encoder useResource:a usage:MTLResourceUsageRead];
        fake_expect("useResource of a FakeBuffer that was released");
        [encoder endEncoding];
    }
}

static void test_pools(void **state)
{
    (void)state;
    NSString *text = [NSString stringWithUTF8String:"alone"];
    fake_expect("a FakeString is autoreleased outside of any pool");
    assert_string_equal(text.UTF8String, "alone");
    [text release];
    NSString *constant = @"constant";
    [[constant retain] release];
    [constant release];
    assert_string_equal(constant.UTF8String, "constant");
    int strings = k3_fake_metal_live("FakeString");
    @autoreleasepool {
        (void)[NSString stringWithUTF8String:"outer"];
        @autoreleasepool {
            (void)[NSString stringWithUTF8String:"inner"];
            assert_int_equal(k3_fake_metal_live("FakeString"), strings + 2);
        }
        assert_int_equal(k3_fake_metal_live("FakeString"), strings + 1);
    }
    assert_int_equal(k3_fake_metal_live("FakeString"), strings);
}

static void *drain(void *pool)
{
    [(NSAutoreleasePool *)pool drain];
    return NULL;
}

static void test_a_pool_of_another_thread(void **state)
{
    (void)state;
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drain, pool), 0);
    pthread_join(thread, NULL);
    fake_expect("a pool is drained on another thread");
    [pool drain];
    [pool drain];
    fake_expect("drain is sent to a NSAutoreleasePool that was released");
}

static void test_a_buffer_released_before_the_commit(void **state)
{
    (void)state;
    @autoreleasepool {
        id<MTLBuffer> a = fake_floats(&bench, 8);
        id<MTLCommandBuffer> commands = fake_record(&bench, a, a, 8, 0);
        [a release];
        fake_expect_none();
        [commands commit];
        fake_expect("is released while a command buffer that uses it is not completed");
        [commands waitUntilCompleted];
        assert_int_equal(k3_fake_metal_live("FakeBuffer"), 0);
    }
}

static void test_a_buffer_released_in_flight(void **state)
{
    (void)state;
    @autoreleasepool {
        id<MTLBuffer> a = fake_floats(&bench, 8), b = fake_floats(&bench, 8);
        id<MTLCommandBuffer> first = fake_record(&bench, a, a, 8, 0), second = fake_record(&bench, a, b, 8, 0);
        [first commit];
        [second commit];
        [b release];
        fake_expect("is released while a command buffer that uses it is not completed");
        [first waitUntilCompleted];
        [second waitUntilCompleted];
        [a release];
        fake_expect_none();
        assert_int_equal(k3_fake_metal_live("FakeBuffer"), 0);
    }
}

static void test_a_command_buffer_that_is_not_committed(void **state)
{
    (void)state;
    @autoreleasepool {
        id<MTLBuffer> a = fake_floats(&bench, 8);
        (void)fake_record(&bench, a, a, 8, 0);
        [a release];
        assert_int_equal(k3_fake_metal_live("FakeBuffer"), 1);
    }
    assert_int_equal(k3_fake_metal_live("FakeBuffer"), 0);
}

/* ---- what tests can set ------------------------------------------------------------------------------------------ */

static void test_limits(void **state)
{
    (void)state;
    k3_fake_metal_options *options = k3_fake_metal_set();
    options->max_buffer_length = 4096;
    options->memory = 6000;
    options->working_set = 5000;
    options->width = 16;
    options->max_threads = 512;
    options->pipeline_threads = 48;
    options->max_threadgroup_memory = 1024;
    options->families = 7;
    options->unified = false;
    options->metal3 = false;
    assert_int_equal(bench.device.maxBufferLength, 4096);
    assert_int_equal(bench.device.recommendedMaxWorkingSetSize, 5000);
    assert_int_equal(bench.device.maxThreadsPerThreadgroup.width, 512);
    assert_int_equal(bench.device.maxThreadgroupMemoryLength, 1024);
    assert_true([bench.device supportsFamily:MTLGPUFamilyApple7] && ![bench.device supportsFamily:MTLGPUFamilyApple8]);
    assert_false([bench.device supportsFamily:MTLGPUFamilyMetal3] || bench.device.hasUnifiedMemory);
    assert_null([bench.device newBufferWithLength:4097 options:MTLResourceStorageModeShared]);
    id<MTLBuffer> a = [bench.device newBufferWithLength:4096 options:MTLResourceStorageModeShared];
    assert_non_null(a);
    assert_null([bench.device newBufferWithLength:4096 options:MTLResourceStorageModeShared]);
    [a release];
    fake_expect_none();
    assert_null([bench.device newBufferWithLength:0 options:MTLResourceStorageModeShared]);
    fake_expect("a buffer of no bytes");
    [[bench.device newBufferWithLength:16 options:MTLResourceStorageModeManaged] release];
    fake_expect("a buffer of storage mode 1");
    @autoreleasepool {
        NSError *error = nil;
        id<MTLComputePipelineState> pipeline = fake_pipeline(&bench, "scale", 2, 0, &error);
        assert_int_equal(pipeline.maxTotalThreadsPerThreadgroup, 48);
        assert_int_equal(pipeline.threadExecutionWidth, 16);
        assert_int_equal(pipeline.staticThreadgroupMemoryLength, 0);
        [pipeline release];
        assert_null(fake_pipeline(&bench, "scale", 2, 513, &error));
        assert_string_equal(error.localizedDescription.UTF8String, "scale wants 513 threads of 512");
    }
}

static void test_devices(void **state)
{
    (void)state;
    k3_fake_metal_set()->devices = 2;
    @autoreleasepool {
        NSArray<id<MTLDevice>> *all = MTLCopyAllDevices();
        assert_int_equal(all.count, 2);
        id<MTLDevice> first = [all objectAtIndex:0], second = [all objectAtIndex:1];
        assert_string_not_equal(first.name.UTF8String, second.name.UTF8String);
        assert_true(first.registryID == bench.device.registryID && second.registryID != first.registryID);
        assert_null([all objectAtIndex:2]);
        fake_expect("object 2 of an array of 2");
        id<MTLBuffer> strange = [second newBufferWithLength:16 options:MTLResourceStorageModeShared], own = fake_floats(&bench, 4);
        id<MTLCommandQueue> queue = [second newCommandQueue];
        id<MTLCommandBuffer> commands = [bench.queue commandBuffer], others = [queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
        [encoder useResource:strange usage:MTLResourceUsageRead];
        fake_expect("useResource of a buffer of another device");
        [encoder setBuffer:strange offset:0 atIndex:0];
        fake_expect("setBuffer of a buffer of another device");
        [encoder endEncoding];
        id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
        [blit copyFromBuffer:own sourceOffset:0 toBuffer:strange destinationOffset:0 size:16];
        fake_expect("a blit of a buffer of another device");
        [blit endEncoding];
        encoder = [others computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
        [encoder setComputePipelineState:bench.scale];
        fake_expect("a pipeline of another device");
        [encoder endEncoding];
        [strange release];
        [own release];
        [queue release];
        [all release];
    }
    k3_fake_metal_set()->devices = 0;
    assert_null(MTLCreateSystemDefaultDevice());
    NSArray *none = MTLCopyAllDevices();
    assert_int_equal(none.count, 0);
    [none release];
}

static void test_libraries(void **state)
{
    (void)state;
    @autoreleasepool {
        NSError *error = nil;
        assert_int_equal(bench.library.functionNames.count, 3);
        assert_string_equal([bench.library.functionNames objectAtIndex:1].UTF8String, "bound");
        assert_null(fake_pipeline(&bench, "missing", 2, 0, &error));
        assert_int_equal(error.code, MTLLibraryErrorFunctionNotFound);
        assert_null(fake_pipeline(&bench, "scale", 0, 0, &error));
        assert_int_equal(error.code, MTLLibraryErrorCompileFailure);
        MTLCompileOptions *options = [[MTLCompileOptions new] autorelease];
        NSString *text = @"#include <metal_stdlib>\nkernel void wrong() { oops }\n";
        id<MTLLibrary> library = [bench.device newLibraryWithSource:text options:options error:&error];
        fake_expect("fast math");
        options.fastMathEnabled = NO;
        options.languageVersion = MTLLanguageVersion2_4;
        [library release];
        library = [bench.device newLibraryWithSource:text options:options error:&error];
        fake_expect("older than Metal 3");
        assert_null([library newFunctionWithName:@"wrong" constantValues:[[MTLFunctionConstantValues new] autorelease] error:&error]);
        assert_int_equal(error.code, MTLLibraryErrorCompileFailure);
        assert_non_null(strstr(error.localizedDescription.UTF8String, "oops"));
        [library release];
        library = [bench.device newLibraryWithSource:text options:nil error:&error];
        fake_expect("fast math");
        [library release];
        assert_null([bench.device newComputePipelineStateWithDescriptor:[[MTLComputePipelineDescriptor new] autorelease]
                                                                options:MTLPipelineOptionNone
                                                             reflection:nil
                                                                  error:&error]);
        fake_expect("a pipeline is made without a function");
        MTLComputePipelineReflection *reflection;
        assert_null([bench.device newComputePipelineStateWithDescriptor:[[MTLComputePipelineDescriptor new] autorelease]
                                                                options:MTLPipelineOptionNone
                                                             reflection:&reflection
                                                                  error:&error]);
        assert_non_null(strstr(k3_fake_metal_violation(0), "asked for reflection"));
        k3_fake_metal_forgive();
    }
}

static void test_function_constants(void **state)
{
    (void)state;
    @autoreleasepool {
        NSError *error = nil;
        MTLFunctionConstantValues *values = [[MTLFunctionConstantValues new] autorelease];
        const int32_t three = 3;
        [values setConstantValue:&three type:MTLDataTypeInt atIndex:0];
        [[bench.library newFunctionWithName:@"scale" constantValues:values error:&error] release];
        fake_expect("function constant 0 is a uint, not a int");
        [values setConstantValue:&three type:(MTLDataType)37 atIndex:1];
        fake_expect("function constant 1 of type 37");
        for (NSUInteger i = 0; i < 33; i++)
            [values setConstantValue:&three type:MTLDataTypeUInt atIndex:i];
        fake_expect("function constant 32 of type 33, of 32 others");
        [[bench.library newFunctionWithName:@"scale" constantValues:values error:&error] release];
        fake_expect_none();
        assert_null([bench.library newFunctionWithName:@"scale" constantValues:(id _Nonnull)nil error:&error]);
        fake_expect("a function without an object for its constants");
    }
}

static void test_things_that_fail(void **state)
{
    (void)state;
    @autoreleasepool {
        NSError *error = nil;
        k3_fake_metal_fail(K3_FAKE_ALLOCATION, 2, 0);
        id<MTLBuffer> a = fake_floats(&bench, 8);
        assert_null([bench.device newBufferWithLength:32 options:MTLResourceStorageModeShared]);
        k3_fake_metal_fail(K3_FAKE_QUEUE, 1, 0);
        assert_null([bench.device newCommandQueue]);
        k3_fake_metal_fail(K3_FAKE_EVENT, 1, 0);
        assert_null([bench.device newSharedEvent]);
        k3_fake_metal_fail(K3_FAKE_COMMAND_BUFFER, 1, 0);
        assert_null([bench.queue commandBuffer]);
        k3_fake_metal_fail(K3_FAKE_ENCODER, 1, 0);
        assert_null([[bench.queue commandBuffer] computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial]);
        k3_fake_metal_fail(K3_FAKE_PIPELINE, 1, 7);
        assert_null(fake_pipeline(&bench, "scale", 3, 0, &error));
        assert_int_equal(error.code, 7);
        k3_fake_metal_fail(K3_FAKE_FUNCTION, 1, MTLLibraryErrorInternal);
        assert_null(fake_pipeline(&bench, "scale", 3, 0, &error));
        assert_int_equal(error.code, MTLLibraryErrorInternal);
        k3_fake_metal_fail(K3_FAKE_RUN, 1, MTLCommandBufferErrorOutOfMemory);
        id<MTLCommandBuffer> commands = fake_record(&bench, a, a, 8, 0);
        assert_int_equal(run(commands), MTLCommandBufferStatusError);
        assert_int_equal(commands.error.code, MTLCommandBufferErrorOutOfMemory);
        assert_float_equal(fake_float(a, 7), 7, 0);
        assert_int_equal(run(fake_record(&bench, a, a, 8, 0)), MTLCommandBufferStatusCompleted);
        k3_fake_metal_fail(K3_FAKE_RUN, 1, MTLCommandBufferErrorDeviceRemoved);
        assert_int_equal(run(fake_record(&bench, a, a, 8, 0)), MTLCommandBufferStatusError);
        commands = fake_record(&bench, a, a, 8, 0);
        assert_int_equal(run(commands), MTLCommandBufferStatusError);
        assert_int_equal(commands.error.code, MTLCommandBufferErrorDeviceRemoved);
        [a release];
    }
}

/* Runs what needs every call, without one of them. */
static void without(k3_fake_metal_call call, uint64_t n, const char *violation)
{
    @autoreleasepool {
        id<MTLBuffer> a = fake_floats(&bench, 8), b = fake_floats(&bench, 8);
        const id<MTLResource> both[] = {a, b};
        fake_args args = {.n = 8};
        id<MTLCommandBuffer> commands = [bench.queue commandBuffer];
        k3_fake_metal_drop(call, n);
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
        [encoder useResources:both count:2 usage:MTLResourceUsageRead | MTLResourceUsageWrite];
        fake_encode(encoder, &bench, a, b, 8, 0);
        [encoder setComputePipelineState:bench.bound];
        [encoder setBytes:&args length:sizeof args atIndex:0];
        [encoder setBuffer:a offset:0 atIndex:1];
        [encoder setBuffer:a offset:0 atIndex:2];
        [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
        [encoder endEncoding];
        (void)run(commands);
        if (violation)
            fake_expect(violation);
        else
            assert_float_equal(fake_float(a, 1), 9, 0);
        fake_expect_none();
        [a release];
        [b release];
    }
}

static void test_calls_without_effect(void **state)
{
    (void)state;
    without(K3_FAKE_BARRIER, 1, NULL);
    without(K3_FAKE_USE, 1, "not declared");
    without(K3_FAKE_RESOURCE, 1, "not declared");
    without(K3_FAKE_RESOURCE, 2, "not declared");
    without(K3_FAKE_BYTES, 1, "scale: nothing is bound at index 0");
    without(K3_FAKE_BUFFER, 1, "bound: nothing is bound at index 1");
    without(K3_FAKE_BUFFER, 2, "bound: nothing is bound at index 2");
    @autoreleasepool {
        id<MTLBuffer> a = fake_floats(&bench, 8);
        k3_fake_metal_drop(K3_FAKE_DISPATCH, 1);
        assert_int_equal(run(fake_record(&bench, a, a, 8, 0)), MTLCommandBufferStatusCompleted);
        assert_float_equal(fake_float(a, 7), 7, 0);
        k3_fake_metal_drop(K3_FAKE_SIGNAL, 1);
        id<MTLSharedEvent> event = [bench.device newSharedEvent];
        id<MTLCommandBuffer> commands = [bench.queue commandBuffer];
        [commands encodeSignalEvent:event value:1];
        assert_int_equal(run(commands), MTLCommandBufferStatusCompleted);
        assert_int_equal(event.signaledValue, 0);
        [event release];
        [a release];
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_views_of_the_hosts_pages, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_views_of_pages_that_cannot_be_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_views_that_cannot_be, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pages_that_go_before_their_view, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_missing_barrier_shows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_leaks_are_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_late_and_double_releases, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pools, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_pool_of_another_thread, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_buffer_released_before_the_commit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_buffer_released_in_flight, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_command_buffer_that_is_not_committed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_limits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_devices, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_libraries, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_function_constants, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_things_that_fail, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_calls_without_effect, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
