/* The classes of the fake Metal. A command buffer is a list of steps that fake_run.m takes when somebody waits. */
#ifndef K3_TESTS_METAL_FAKE_OBJECTS_H
#define K3_TESTS_METAL_FAKE_OBJECTS_H

#import "metal/fake_foundation.h"
#import <Metal/Metal.h>

#include "metal/fake_memory.h"
#include "metal/fake_state.h"
#include "metal/msl.h"

enum { FAKE_MAX_BYTES = 4096, FAKE_NO_COPY_PAGE = 16384 };

/* What a committed command buffer does with each object that it holds: nothing at first, a release at the end. */
@interface NSObject (FakeFlight)
- (void)fly;
- (void)land;
@end

@interface FakeDevice : NSObject <MTLDevice> {
  @public
    int index;
    uint64_t allocated; /* bytes of its buffers */
}
@end

@interface FakeBuffer : NSObject <MTLBuffer> {
  @public
    FakeDevice *device;
    fake_memory memory;
    MTLStorageMode mode;
    NSUInteger in_flight; /* references that committed command buffers hold */
    int wanted;           /* protection during the dispatch that runs */
}
/* NULL where the system has no memory. A host's pages where `host` is not NULL. */
+ (instancetype)newOnDevice:(FakeDevice *)device length:(NSUInteger)length host:(void *)host mode:(MTLStorageMode)mode;
@end

@interface FakeEvent : NSObject <MTLSharedEvent> {
  @public
    uint64_t value; /* under the lock of fake_run.m */
    uint32_t polls;
}
@end

@interface FakeLibrary : NSObject <MTLLibrary> {
    NSString *text;
    NSArray<NSString *> *names;
}
+ (instancetype)newWithSource:(NSString *)source;
@end

@interface FakeFunction : NSObject <MTLFunction> {
  @public
    NSString *name;
    const msl_kernel *kernel;
}
@end

@interface FakePipeline : NSObject <MTLComputePipelineState> {
  @public
    FakeFunction *function;
    int device; /* its index */
    NSUInteger max_threads;
    BOOL whole_simdgroups;
}
@end

/* What one buffer index of a dispatch holds: a copy of bytes, or a buffer. */
typedef struct fake_binding {
    void *bytes;
    size_t length;
    FakeBuffer *buffer;
    size_t offset;
} fake_binding;

typedef struct fake_dispatch {
    FakePipeline *pipeline;
    fake_binding bindings[MSL_MAX_BUFFERS];
    uint32_t groups[3], threads[3];
    int n_uses; /* of the pass, those made before this dispatch */
    int batch;  /* dispatches of one number run in any order */
} fake_dispatch;

typedef struct fake_use {
    FakeBuffer *buffer;
    int protection;
} fake_use;

typedef enum fake_step_kind { FAKE_STEP_PASS, FAKE_STEP_COPY, FAKE_STEP_FILL, FAKE_STEP_SIGNAL, FAKE_STEP_WAIT } fake_step_kind;

typedef struct fake_step {
    fake_step_kind kind;
    /* pass */
    fake_dispatch *dispatches;
    fake_use *uses;
    int n_dispatches, room_dispatches, n_uses, room_uses;
    /* copy, fill */
    FakeBuffer *from, *to;
    size_t from_offset, to_offset, size;
    uint8_t fill;
    /* signal, wait */
    FakeEvent *event;
    uint64_t value;
} fake_step;

@interface FakeQueue : NSObject <MTLCommandQueue> {
  @public
    FakeDevice *device;
    NSString *label;
}
@end

@interface FakeCommandBuffer : NSObject <MTLCommandBuffer> {
  @public
    FakeQueue *queue;
    NSString *label;
    fake_step **steps;
    int n_steps, room_steps;
    id *held; /* what the steps refer to */
    int n_held, room_held;
    BOOL encoding;
    BOOL committed;
    /* Under the lock of fake_run.m from the commit on. */
    FakeCommandBuffer *next;
    int at; /* the next step */
    uint32_t polls;
    MTLCommandBufferStatus status;
    NSError *error;
    CFTimeInterval start, end;
}
- (fake_step *)addStep:(fake_step_kind)kind;
- (void)hold:(id)object;
@end

/* What both kinds of encoder share. */
@interface FakeEncoder : NSObject <MTLCommandEncoder> {
  @public
    FakeCommandBuffer *commands; /* nil after the end */
}
/* False, and a violation, after the end. */
- (BOOL)openFor:(const char *)what;
/* False, and a violation, for a buffer that is nil, released, or of another device. */
- (BOOL)takes:(id)buffer for:(const char *)what;
@end

@interface FakeComputeEncoder : FakeEncoder <MTLComputeCommandEncoder> {
  @public
    fake_step *pass;
    FakePipeline *pipeline;
    fake_binding bindings[MSL_MAX_BUFFERS];
    BOOL serial;
    int batch;
}
@end

@interface FakeBlitEncoder : FakeEncoder <MTLBlitCommandEncoder>
@end

/* `*items` has room for one more; doubles it where it has not. */
void *fake_grow(void *items, int n, int *room, size_t size);

/* fake_run.m */
void fake_commit(FakeCommandBuffer *commands);
void fake_wait(FakeCommandBuffer *commands);
BOOL fake_is_done(FakeCommandBuffer *commands);
MTLCommandBufferStatus fake_status(FakeCommandBuffer *commands);
uint64_t fake_event_value(FakeEvent *event);
void fake_event_set(FakeEvent *event, uint64_t value);
BOOL fake_event_wait(FakeEvent *event, uint64_t value, uint64_t milliseconds);

/* fake_dispatch.m: true, or false and the error of the command buffer. */
bool fake_run_pass(const fake_step *pass, NSInteger *code, char *message, size_t message_size);

#endif
