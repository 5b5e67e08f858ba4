/* A device with a queue and three small kernels, for the tests of the fake Metal. The third kernel, "part", has a barrier that only some
 * threads reach. */
#ifndef K3_TESTS_METAL_FAKE_BENCH_H
#define K3_TESTS_METAL_FAKE_BENCH_H

#import <Metal/Metal.h>

#include "metal/fake.h"

/* Of the kernels "scale" and "bound": to[i] = from[i] * factor + add for i < n. */
typedef struct fake_args {
    uint64_t to, from;
    uint32_t n, add;
} fake_args;

typedef struct fake_bench {
    id<MTLDevice> device;
    id<MTLCommandQueue> queue;
    id<MTLLibrary> library;
    id<MTLComputePipelineState> scale; /* factor 3, addresses in the arguments at index 0 */
    id<MTLComputePipelineState> bound; /* to and from are buffers at indices 1 and 2 */
} fake_bench;

/* What a test leaves must be as it was found; k3_fake_metal_reset is called first, options may be set in between. */
fake_bench fake_bench_open(void);
void fake_bench_close(fake_bench *bench);

/* nil and *error where it cannot be; `factor` 0: the constant is not set. */
id<MTLComputePipelineState> fake_pipeline(const fake_bench *bench, const char *name, uint32_t factor, uint32_t threads, NSError **error);
/* A shared buffer of n floats that are 0, 1, 2... */
id<MTLBuffer> fake_floats(const fake_bench *bench, uint32_t n);
/* Declares nothing. */
void fake_encode(id<MTLComputeCommandEncoder> encoder, const fake_bench *bench, id<MTLBuffer> to, id<MTLBuffer> from, uint32_t n,
                 uint32_t add);
/* The whole way: a command buffer that declares both and is not committed. */
id<MTLCommandBuffer> fake_record(const fake_bench *bench, id<MTLBuffer> to, id<MTLBuffer> from, uint32_t n, uint32_t add);

static inline float fake_float(id<MTLBuffer> buffer, uint32_t i)
{
    return ((const float *)buffer.contents)[i];
}

/* Exactly one violation, which says `part`; it is forgotten. */
void fake_expect(const char *part);
/* None. */
void fake_expect_none(void);

#endif
