/* The fake Metal runs kernels as Apple's would, and sees each use that it is there to see. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#import "metal/fake_bench.h"

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

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void test_runs_a_kernel(void **state)
{
    (void)state;
    @autoreleasepool {
        id<MTLBuffer> from = fake_floats(&bench, 100), to = [bench.device newBufferWithLength:400 options:MTLResourceStorageModeShared];
        assert_true(((uint32_t *)to.contents)[99] == 0xffffffff);
        assert_true(from.gpuAddress != (uintptr_t)from.contents && from.gpuAddress != to.gpuAddress);
        id<MTLCommandBuffer> commands = fake_record(&bench, to, from, 100, 7);
        assert_int_equal(commands.status, MTLCommandBufferStatusNotEnqueued);
        [commands commit];
        [commands waitUntilCompleted];
        assert_int_equal(commands.status, MTLCommandBufferStatusCompleted);
        assert_null(commands.error);
        assert_true(commands.GPUEndTime > commands.GPUStartTime);
        for (uint32_t i = 0; i < 100; i++)
            assert_float_equal(fake_float(to, i), 3 * (float)i + 7, 0);
        assert_int_equal(k3_fake_metal_count(K3_FAKE_DISPATCH), 1);
        assert_int_equal(k3_fake_metal_count(K3_FAKE_USE), 2);
        [from release];
        [to release];
    }
}

static void test_runs_late_and_in_order(void **state)
{
    (void)state;
    @autoreleasepool {
        id<MTLBuffer> a = fake_floats(&bench, 8), b = fake_floats(&bench, 8);
        id<MTLCommandBuffer> first = fake_record(&bench, b, a, 8, 1), second = fake_record(&bench, a, b, 8, 1);
        [first commit];
        [second commit];
        ((float *)a.contents)[7] = 10;
        assert_float_equal(fake_float(b, 7), 7, 0);
        assert_int_equal(first.status, MTLCommandBufferStatusCommitted);
        [second waitUntilCompleted];
        assert_float_equal(fake_float(b, 7), 31, 0);
        assert_float_equal(fake_float(a, 7), 94, 0);
        assert_int_equal(first.status, MTLCommandBufferStatusCompleted);
        [a release];
        [b release];
    }
}

static void test_asking_runs_what_is_committed(void **state)
{
    (void)state;
    k3_fake_metal_set()->polls = 3;
    @autoreleasepool {
        id<MTLBuffer> a = fake_floats(&bench, 8);
        id<MTLSharedEvent> event = [bench.device newSharedEvent];
        for (int by_event = 0; by_event < 2; by_event++) {
            id<MTLCommandBuffer> commands = fake_record(&bench, a, a, 8, 0);
            [commands encodeSignalEvent:event value:(uint64_t)by_event + 5];
            [commands commit];
            for (int i = 0; i < 3; i++)
                assert_true(by_event ? event.signaledValue == 5 : commands.status == MTLCommandBufferStatusCommitted);
            assert_true(by_event ? event.signaledValue == 6 : commands.status == MTLCommandBufferStatusCompleted);
        }
        [event release];
        [a release];
    }
}

static void test_bytes_are_copied_when_set(void **state)
{
    (void)state;
    @autoreleasepool {
        id<MTLBuffer> a = fake_floats(&bench, 8), b = fake_floats(&bench, 8), c = fake_floats(&bench, 8);
        fake_args args = {b.gpuAddress, a.gpuAddress, 8, 1};
        id<MTLCommandBuffer> commands = [bench.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
        const id<MTLResource> all[] = {a, b, c};
        [encoder useResources:all count:3 usage:MTLResourceUsageRead | MTLResourceUsageWrite];
        [encoder setComputePipelineState:bench.scale];
        [encoder setBytes:&args length:sizeof args atIndex:0];
        args.to = 0;
        [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
        args.to = c.gpuAddress;
        args.add = 2;
        [encoder setBytes:&args length:sizeof args atIndex:0];
        [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
        [encoder endEncoding];
        [commands commit];
        [commands waitUntilCompleted];
        assert_float_equal(fake_float(b, 7), 22, 0);
        assert_float_equal(fake_float(c, 7), 23, 0);
        [a release];
        [b release];
        [c release];
    }
}

static void test_bound_buffers(void **state)
{
    (void)state;
    @autoreleasepool {
        id<MTLBuffer> a = fake_floats(&bench, 8), b = fake_floats(&bench, 8);
        fake_args args = {.n = 4, .add = 1};
        id<MTLCommandBuffer> commands = [bench.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
        [encoder setComputePipelineState:bench.bound];
        [encoder setBytes:&args length:sizeof args atIndex:0];
        [encoder setBuffer:b offset:4 * sizeof(float) atIndex:1];
        [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
        fake_expect("bound: nothing is bound at index 2");
        [encoder setBuffer:a offset:0 atIndex:2];
        [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
        [encoder endEncoding];
        [commands commit];
        [commands waitUntilCompleted];
        assert_int_equal(commands.status, MTLCommandBufferStatusCompleted);
        assert_float_equal(fake_float(b, 3), 3, 0);
        assert_float_equal(fake_float(b, 7), 10, 0);
        [a release];
        [b release];
    }
}

static void test_blits(void **state)
{
    (void)state;
    @autoreleasepool {
        id<MTLBuffer> a = fake_floats(&bench, 8), b = [bench.device newBufferWithLength:64 options:MTLResourceStorageModePrivate];
        assert_null(b.contents);
        assert_int_equal(b.storageMode, MTLStorageModePrivate);
        id<MTLCommandBuffer> commands = [bench.queue commandBuffer];
        id<MTLBlitCommandEncoder> encoder = [commands blitCommandEncoder];
        [encoder copyFromBuffer:a sourceOffset:4 toBuffer:b destinationOffset:8 size:4];
        [encoder copyFromBuffer:b sourceOffset:8 toBuffer:a destinationOffset:0 size:4];
        [encoder fillBuffer:a range:NSMakeRange(28, 4) value:0];
        fake_expect_none();
        [encoder copyFromBuffer:a sourceOffset:4 toBuffer:b destinationOffset:64 size:4];
        fake_expect("a blit of 4 bytes at 64 of a buffer of 64");
        [encoder copyFromBuffer:a sourceOffset:2 toBuffer:b destinationOffset:0 size:4];
        fake_expect("a blit of 4 bytes at 2");
        [encoder copyFromBuffer:a sourceOffset:0 toBuffer:a destinationOffset:4 size:8];
        fake_expect("onto itself");
        [encoder fillBuffer:a range:NSMakeRange(28, 8) value:0];
        fake_expect("a blit of 8 bytes at 28 of a buffer of 32");
        [encoder fillBuffer:(id _Nonnull)nil range:NSMakeRange(0, 4) value:0];
        fake_expect("a blit of nil");
        [encoder endEncoding];
        [encoder fillBuffer:a range:NSMakeRange(0, 4) value:0];
        fake_expect("fillBuffer after endEncoding");
        [commands commit];
        assert_float_equal(fake_float(a, 0), 0, 0);
        [commands waitUntilCompleted];
        assert_float_equal(fake_float(a, 0), 1, 0);
        assert_float_equal(fake_float(a, 7), 0, 0);
        [a release];
        [b release];
    }
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void *signal_soon(void *event)
{
    usleep(20000);
    ((id<MTLSharedEvent>)event).signaledValue = 1;
    return NULL;
}

static void test_events_between_queues_and_the_host(void **state)
{
    (void)state;
    @autoreleasepool {
        id<MTLBuffer> a = fake_floats(&bench, 8), b = fake_floats(&bench, 8);
        id<MTLSharedEvent> event = [bench.device newSharedEvent];
        id<MTLCommandQueue> other = [bench.device newCommandQueue];
        id<MTLCommandBuffer> waits = [other commandBuffer];
        [waits encodeWaitForEvent:event value:2];
        id<MTLBlitCommandEncoder> encoder = [waits blitCommandEncoder];
        [encoder copyFromBuffer:b sourceOffset:0 toBuffer:a destinationOffset:0 size:32];
        [encoder endEncoding];
        [waits commit];
        id<MTLCommandBuffer> signals = [bench.queue commandBuffer];
        [signals encodeWaitForEvent:event value:1];
        encoder = [signals blitCommandEncoder];
        [encoder fillBuffer:b range:NSMakeRange(0, 32) value:0];
        [encoder endEncoding];
        [signals encodeSignalEvent:event value:2];
        [signals commit];
        assert_false([event waitUntilSignaledValue:1 timeoutMS:1]);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, signal_soon, event), 0);
        [waits waitUntilCompleted];
        pthread_join(thread, NULL);
        assert_float_equal(fake_float(a, 7), 0, 0);
        assert_true([event waitUntilSignaledValue:2 timeoutMS:0]);
        assert_true(signals.status < MTLCommandBufferStatusCompleted); /* its signal is not its end */
        [signals waitUntilCompleted];
        assert_int_equal(signals.status, MTLCommandBufferStatusCompleted);
        event.signaledValue = 1;
        fake_expect("goes back from 2 to 1");
        [a release];
        [b release];
        [event release];
        [other release];
    }
}

static void test_an_event_that_never_comes(void **state)
{
    (void)state;
    k3_fake_metal_set()->event_timeout = 30;
    @autoreleasepool {
        id<MTLSharedEvent> event = [bench.device newSharedEvent];
        id<MTLCommandBuffer> waits = [bench.queue commandBuffer], later = [bench.queue commandBuffer];
        [waits encodeWaitForEvent:event value:3];
        [waits commit];
        [later commit];
        [later waitUntilCompleted];
        fake_expect("never comes: it is at 0 of 3");
        assert_int_equal(waits.status, MTLCommandBufferStatusError);
        assert_int_equal(waits.error.code, MTLCommandBufferErrorTimeout);
        assert_int_equal(later.status, MTLCommandBufferStatusCompleted);
        [event release];
    }
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

static void test_order_of_calls(void **state)
{
    (void)state;
    @autoreleasepool {
        id<MTLSharedEvent> event = [bench.device newSharedEvent];
        id<MTLCommandBuffer> commands = [bench.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
        assert_null([commands blitCommandEncoder]);
        fake_expect("blitCommandEncoder while an encoder is open");
        assert_null([commands computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial]);
        fake_expect("computeCommandEncoder while an encoder is open");
        [commands encodeSignalEvent:event value:1];
        fake_expect("encodeSignalEvent while an encoder is open");
        [commands encodeWaitForEvent:event value:1];
        fake_expect("encodeWaitForEvent while an encoder is open");
        [commands commit];
        fake_expect("commit while an encoder is open");
        [commands waitUntilCompleted];
        fake_expect("waitUntilCompleted before commit");
        [encoder endEncoding];
        [encoder endEncoding];
        fake_expect("endEncoding after endEncoding");
        [encoder setComputePipelineState:bench.scale];
        fake_expect("setComputePipelineState after");
        [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
        fake_expect("memoryBarrierWithScope after");
        [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
        fake_expect("dispatchThreadgroups after");
        [commands commit];
        assert_null(commands.error);
        fake_expect("error before the command buffer is completed");
        assert_true(commands.GPUStartTime <= 0);
        fake_expect("GPUStartTime before");
        [commands commit];
        fake_expect("commit after commit");
        assert_null([commands blitCommandEncoder]);
        fake_expect("blitCommandEncoder after commit");
        [commands waitUntilCompleted];
        [event release];
    }
}

static void test_an_encoder_without_end(void **state)
{
    (void)state;
    @autoreleasepool {
        (void)[[bench.queue commandBuffer] computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
    }
    fake_expect("an encoder is released before endEncoding");
}

static void test_arguments_of_an_encoder(void **state)
{
    (void)state;
    @autoreleasepool {
        static const char bytes[5000];
        id<MTLBuffer> a = fake_floats(&bench, 8);
        id<MTLCommandBuffer> commands = [bench.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
        [encoder setBytes:bytes length:4097 atIndex:0];
        fake_expect("setBytes of 4097 bytes");
        [encoder setBytes:bytes length:0 atIndex:0];
        fake_expect("setBytes of 0 bytes");
        [encoder setBytes:bytes length:4096 atIndex:31];
        fake_expect("buffer index 31");
        [encoder setBuffer:a offset:0 atIndex:31];
        fake_expect("buffer index 31");
        [encoder setBuffer:a offset:32 atIndex:0];
        fake_expect("setBuffer at offset 32 of 32 bytes");
        [encoder setBuffer:a offset:2 atIndex:0];
        fake_expect("setBuffer at offset 2");
        [encoder useResource:a usage:0];
        fake_expect("usage 0");
        [encoder useResource:(id _Nonnull)nil usage:MTLResourceUsageRead];
        fake_expect("useResource of nil");
        [encoder memoryBarrierWithScope:0];
        fake_expect("a barrier of scope 0");
        fake_args args = {a.gpuAddress, (uintptr_t)a.contents + 4, 1, 0};
        [encoder setBytes:&args length:sizeof args atIndex:0];
        fake_expect("the host's pointer into a buffer at 8");
        [encoder endEncoding];
        [a release];
    }
}

static void test_grids(void **state)
{
    (void)state;
    @autoreleasepool {
        id<MTLCommandBuffer> commands = [bench.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
        MTLSize one = MTLSizeMake(1, 1, 1);
        [encoder dispatchThreadgroups:one threadsPerThreadgroup:one];
        fake_expect("a dispatch without a pipeline");
        [encoder setComputePipelineState:bench.scale];
        [encoder dispatchThreadgroups:one threadsPerThreadgroup:one];
        fake_expect("scale: nothing is bound at index 0");
        [encoder setBytes:(fake_args[]) {
            {
                0
            }
        }
                   length:sizeof(fake_args)
                  atIndex:0];
        [encoder dispatchThreadgroups:MTLSizeMake(1, 0, 1) threadsPerThreadgroup:one];
        fake_expect("scale: a dispatch of no threads");
        [encoder dispatchThreadgroups:one threadsPerThreadgroup:MTLSizeMake(1, 1, 0)];
        fake_expect("scale: a dispatch of no threads");
        [encoder dispatchThreadgroups:MTLSizeMake(1ul << 32, 1, 1) threadsPerThreadgroup:one];
        fake_expect("scale: a grid of 4294967296 x 1 x 1 groups");
        [encoder dispatchThreadgroups:one threadsPerThreadgroup:MTLSizeMake(1025, 1, 1)];
        fake_expect("scale: 1025 threads a threadgroup, 1024 can be");
        [encoder setComputePipelineState:bench.bound];
        [encoder dispatchThreadgroups:one threadsPerThreadgroup:MTLSizeMake(8, 3, 3)];
        fake_expect("bound: 72 threads a threadgroup, 64 can be");
        [encoder endEncoding];
    }
}

static void test_whole_simdgroups(void **state)
{
    (void)state;
    @autoreleasepool {
        MTLComputePipelineDescriptor *descriptor = [[MTLComputePipelineDescriptor new] autorelease];
        MTLFunctionConstantValues *values = [[MTLFunctionConstantValues new] autorelease];
        [values setConstantValue:(uint32_t[]){1} type:MTLDataTypeUInt atIndex:0];
        descriptor.computeFunction = [[bench.library newFunctionWithName:@"part" constantValues:values error:NULL] autorelease];
        descriptor.threadGroupSizeIsMultipleOfThreadExecutionWidth = YES;
        id<MTLComputePipelineState> part = [bench.device newComputePipelineStateWithDescriptor:descriptor
                                                                                       options:MTLPipelineOptionNone
                                                                                    reflection:nil
                                                                                         error:NULL];
        assert_non_null(part);
        id<MTLCommandBuffer> commands = [bench.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
        [encoder setComputePipelineState:part];
        [encoder setBytes:(fake_args[]) {
            {
                .n = 5
            }
        }
                   length:sizeof(fake_args)
                  atIndex:0];
        [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(33, 1, 1)];
        fake_expect("part: 33 threads a threadgroup are no multiple of 32");
        [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
        [encoder endEncoding];
        [commands commit];
        [commands waitUntilCompleted];
        fake_expect("part: ");
        assert_int_equal(commands.error.code, MTLCommandBufferErrorInternal);
        [part release];
    }
}

/* ---- what kernels touch ------------------------------------------------------------------------------------------ */

/* Runs `scale` with these declared (0: not at all) and expects a page fault and the violation, or none. */
static void touch(uint64_t to, uint64_t from, uint32_t n, id<MTLBuffer> written, MTLResourceUsage written_usage, id<MTLBuffer> read,
                  MTLResourceUsage read_usage, const char *violation)
{
    @autoreleasepool {
        fake_args args = {to, from, n, 0};
        id<MTLCommandBuffer> commands = [bench.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
        [encoder setComputePipelineState:bench.scale];
        [encoder setBytes:&args length:sizeof args atIndex:0];
        if (written_usage)
            [encoder useResource:written usage:written_usage];
        if (read_usage)
            [encoder useResource:read usage:read_usage];
        [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(n, 1, 1)];
        [encoder endEncoding];
        [commands commit];
        [commands waitUntilCompleted];
        if (violation) {
            fake_expect(violation);
            assert_int_equal(commands.status, MTLCommandBufferStatusError);
            assert_int_equal(commands.error.code, MTLCommandBufferErrorPageFault);
            assert_non_null(strstr(commands.error.localizedDescription.UTF8String, violation));
        } else {
            fake_expect_none();
            assert_int_equal(commands.status, MTLCommandBufferStatusCompleted);
        }
    }
}

static void test_what_is_not_declared_faults(void **state)
{
    (void)state;
    @autoreleasepool {
        const MTLResourceUsage read = MTLResourceUsageRead, write = MTLResourceUsageWrite;
        id<MTLBuffer> a = fake_floats(&bench, 8), b = fake_floats(&bench, 8);
        uint64_t to = a.gpuAddress, from = b.gpuAddress;
        touch(to, from, 8, a, write, b, read, NULL);
        touch(to, from, 8, a, write, b, 0, "scale touches byte 0 of buffer");
        touch(to, from, 8, a, 0, b, read, "which is not declared");
        touch(to, from, 8, a, read, b, read, "which is declared for reading only");
        touch(to, from, 9, a, write, b, read, "byte 32 of buffer");
        touch(to, from - 4096, 8, a, write, b, read, "of 32 bytes, outside of it");
        touch(to, 64, 8, a, write, b, read, "address 0x40, which is no buffer's");
        [b release];
        touch(to, from, 8, a, write, nil, 0, "which is freed");
        assert_float_equal(fake_float(a, 7), 21, 0);
        [a release];
    }
}

static void test_a_pointer_of_the_host(void **state)
{
    (void)state;
    k3_fake_metal_set()->hide_host = true;
    float *pages = aligned_alloc(16384, 16384);
    assert_non_null(pages);
    @autoreleasepool {
        const MTLResourceUsage read = MTLResourceUsageRead, write = MTLResourceUsageWrite;
        id<MTLBuffer> a = fake_floats(&bench, 8), b = fake_floats(&bench, 8);
        id<MTLBuffer> view = [bench.device newBufferWithBytesNoCopy:pages
                                                             length:16384
                                                            options:MTLResourceStorageModeShared
                                                        deallocator:nil];
        touch(a.gpuAddress, b.gpuAddress, 8, a, write, b, read, NULL);
        assert_float_equal(fake_float(a, 7), 21, 0);
        uint64_t hosts[] = {(uintptr_t)b.contents, (uintptr_t)pages};
        for (int i = 0; i < 2; i++) {
            fake_args args = {a.gpuAddress, hosts[i], 8, 0};
            id<MTLCommandBuffer> commands = [bench.queue commandBuffer];
            id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
            [encoder useResource:a usage:write];
            [encoder setComputePipelineState:bench.scale];
            [encoder setBytes:&args length:sizeof args atIndex:0];
            k3_fake_metal_forgive();
            [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(8, 1, 1)];
            [encoder endEncoding];
            [commands commit];
            [commands waitUntilCompleted];
            fake_expect("scale touches the host's pointer into buffer");
        }
        pages[0] = 1;
        [view release];
        [a release];
        [b release];
    }
    free(pages);
}

static void test_declared_too_late(void **state)
{
    (void)state;
    k3_fake_metal_set()->dispatch_order = 0;
    @autoreleasepool {
        id<MTLBuffer> a = fake_floats(&bench, 8);
        id<MTLCommandBuffer> commands = [bench.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
        fake_encode(encoder, &bench, a, a, 8, 0);
        [encoder useResource:a usage:MTLResourceUsageWrite];
        [encoder endEncoding];
        encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
        [encoder endEncoding];
        [commands commit];
        [commands waitUntilCompleted];
        fake_expect("which is not declared");
        commands = fake_record(&bench, a, a, 8, 0);
        encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
        fake_encode(encoder, &bench, a, a, 8, 0);
        [encoder endEncoding];
        [commands commit];
        [commands waitUntilCompleted];
        fake_expect("which is not declared");
        [a release];
    }
}

static void test_bytes_beyond_a_short_buffer(void **state)
{
    (void)state;
    @autoreleasepool {
        id<MTLBuffer> a = fake_floats(&bench, 8), b = fake_floats(&bench, 5);
        touch(b.gpuAddress, a.gpuAddress, 6, b, MTLResourceUsageWrite, a, MTLResourceUsageRead, NULL);
        [a release];
        [b release];
        fake_expect("of 20 bytes: written outside of it");
    }
}

static void test_arguments_cannot_be_overrun(void **state)
{
    (void)state;
    @autoreleasepool {
        id<MTLCommandBuffer> commands = [bench.queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
        [encoder setComputePipelineState:bench.scale];
        [encoder setBytes:(uint64_t[]){0, 0} length:16 atIndex:0];
        [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
        [encoder endEncoding];
        [commands commit];
        [commands waitUntilCompleted];
        fake_expect("outside of the bytes bound at an index");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_runs_a_kernel, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_runs_late_and_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_asking_runs_what_is_committed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bytes_are_copied_when_set, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bound_buffers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_blits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_events_between_queues_and_the_host, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_event_that_never_comes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_order_of_calls, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_encoder_without_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_arguments_of_an_encoder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_grids, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_whole_simdgroups, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_not_declared_faults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_pointer_of_the_host, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_declared_too_late, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bytes_beyond_a_short_buffer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_arguments_cannot_be_overrun, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
