#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#import "metal/fake_bench.h"

static const char source[] = "#include <metal_stdlib>\n"
                             "using namespace metal;\n"
                             "constant uint factor [[function_constant(0)]];\n"
                             "struct args { ulong to; ulong from; uint n; uint add; };\n"
                             "kernel void scale(constant args& a [[buffer(0)]], uint3 i [[thread_position_in_grid]])\n"
                             "{\n"
                             "    device float* to = reinterpret_cast<device float*>(a.to);\n"
                             "    device float* from = reinterpret_cast<device float*>(a.from);\n"
                             "    if (i.x < a.n)\n"
                             "        to[i.x] = from[i.x] * float(factor) + float(a.add);\n"
                             "}\n"
                             "kernel void bound(constant args& a [[buffer(0)]], device float* to [[buffer(1)]],\n"
                             "                  device float* from [[buffer(2)]], uint3 i [[thread_position_in_grid]])\n"
                             "{\n"
                             "    if (i.x < a.n)\n"
                             "        to[i.x] = from[i.x] * float(factor) + float(a.add);\n"
                             "}\n"
                             "kernel void part(constant args& a [[buffer(0)]], uint3 i [[thread_position_in_threadgroup]])\n"
                             "{\n"
                             "    if (i.x < a.n)\n"
                             "        threadgroup_barrier(mem_flags::mem_threadgroup);\n"
                             "}\n";

id<MTLComputePipelineState> fake_pipeline(const fake_bench *bench, const char *name, uint32_t factor, uint32_t threads, NSError **error)
{
    MTLFunctionConstantValues *values = [MTLFunctionConstantValues new];
    if (factor)
        [values setConstantValue:&factor type:MTLDataTypeUInt atIndex:0];
    id<MTLFunction> function = [bench->library newFunctionWithName:[NSString stringWithUTF8String:name] constantValues:values error:error];
    [values release];
    if (!function)
        return nil;
    MTLComputePipelineDescriptor *descriptor = [MTLComputePipelineDescriptor new];
    descriptor.computeFunction = function;
    descriptor.maxTotalThreadsPerThreadgroup = threads;
    id<MTLComputePipelineState> pipeline = [bench->device newComputePipelineStateWithDescriptor:descriptor
                                                                                        options:MTLPipelineOptionNone
                                                                                     reflection:nil
                                                                                          error:error];
    [descriptor release];
    [function release];
    return pipeline;
}

fake_bench fake_bench_open(void)
{
    fake_bench bench = {.device = MTLCreateSystemDefaultDevice()};
    MTLCompileOptions *options = [MTLCompileOptions new];
    NSError *error = nil;
    options.fastMathEnabled = NO;
    options.languageVersion = MTLLanguageVersion3_0;
    bench.queue = [bench.device newCommandQueue];
    bench.library = [bench.device newLibraryWithSource:[NSString stringWithUTF8String:source] options:options error:&error];
    assert_non_null(bench.library);
    [options release];
    bench.scale = fake_pipeline(&bench, "scale", 3, 0, &error);
    if (!bench.scale)
        fail_msg("%s", error.localizedDescription.UTF8String);
    bench.bound = fake_pipeline(&bench, "bound", 3, 64, &error);
    assert_non_null(bench.bound);
    return bench;
}

void fake_bench_close(fake_bench *bench)
{
    [bench->bound release];
    [bench->scale release];
    [bench->library release];
    [bench->queue release];
    [bench->device release];
    *bench = (fake_bench){0};
}

id<MTLBuffer> fake_floats(const fake_bench *bench, uint32_t n)
{
    id<MTLBuffer> buffer = [bench->device newBufferWithLength:n * sizeof(float) options:MTLResourceStorageModeShared];
    assert_non_null(buffer);
    for (uint32_t i = 0; i < n; i++)
        ((float *)buffer.contents)[i] = (float)i;
    return buffer;
}

void fake_encode(id<MTLComputeCommandEncoder> encoder, const fake_bench *bench, id<MTLBuffer> to, id<MTLBuffer> from, uint32_t n,
                 uint32_t add)
{
    fake_args args = {to.gpuAddress, from.gpuAddress, n, add};
    [encoder setComputePipelineState:bench->scale];
    [encoder setBytes:&args length:sizeof args atIndex:0];
    [encoder dispatchThreadgroups:MTLSizeMake((n + 31) / 32, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
}

id<MTLCommandBuffer> fake_record(const fake_bench *bench, id<MTLBuffer> to, id<MTLBuffer> from, uint32_t n, uint32_t add)
{
    id<MTLCommandBuffer> commands = [bench->queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
    [encoder useResource:from usage:MTLResourceUsageRead];
    [encoder useResource:to usage:MTLResourceUsageWrite];
    fake_encode(encoder, bench, to, from, n, add);
    [encoder endEncoding];
    return commands;
}

void fake_expect(const char *part)
{
    if (k3_fake_metal_violations() != 1 || !strstr(k3_fake_metal_violation(0), part))
        fail_msg("%d violations, wanted one of \"%s\": \"%s\", \"%s\"", k3_fake_metal_violations(), part, k3_fake_metal_violation(0),
                 k3_fake_metal_violation(1));
    k3_fake_metal_forgive();
}

void fake_expect_none(void)
{
    if (k3_fake_metal_violations())
        fail_msg("%d violations: \"%s\"", k3_fake_metal_violations(), k3_fake_metal_violation(0));
}
