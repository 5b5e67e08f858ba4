#import "metal/fake_objects.h"

#include <stdlib.h>

void *fake_grow(void *items, int n, int *room, size_t size)
{
    if (n < *room)
        return items;
    *room = *room ? 2 * *room : 16;
    items = realloc(items, (size_t)*room * size);
    if (!items)
        abort();
    return items;
}

@implementation FakeQueue
- (NSString *)label
{
    return label;
}

- (void)setLabel:(NSString *)text
{
    [text retain];
    [label release];
    label = text;
}

- (id<MTLCommandBuffer>)commandBuffer
{
    if (fake_call(K3_FAKE_COMMAND_BUFFER, NULL))
        return nil;
    FakeCommandBuffer *commands = [FakeCommandBuffer new];
    commands->queue = [self retain];
    return [commands autorelease];
}

- (void)dealloc
{
    [label release];
    [device release];
    [super dealloc];
}
@end

@implementation FakeCommandBuffer
- (NSString *)label
{
    return label;
}

- (void)setLabel:(NSString *)text
{
    [text retain];
    [label release];
    label = text;
}

- (fake_step *)addStep:(fake_step_kind)kind
{
    steps = fake_grow(steps, n_steps, &room_steps, sizeof *steps);
    fake_step *step = calloc(1, sizeof *step);
    if (!step)
        abort();
    step->kind = kind;
    return steps[n_steps++] = step;
}

- (void)hold:(id)object
{
    held = fake_grow(held, n_held, &room_held, sizeof *held);
    held[n_held++] = [object retain];
}

/* False, and a violation, where nothing can be encoded any more or just now. */
- (BOOL)openFor:(const char *)what
{
    if (committed)
        fake_violation("%s after commit", what);
    else if (encoding)
        fake_violation("%s while an encoder is open", what);
    return !committed && !encoding;
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type
{
    if (![self openFor:"computeCommandEncoder"] || fake_call(K3_FAKE_ENCODER, NULL))
        return nil;
    FakeComputeEncoder *encoder = [FakeComputeEncoder new];
    encoder->commands = [self retain];
    encoder->serial = type == MTLDispatchTypeSerial;
    encoder->pass = [self addStep:FAKE_STEP_PASS];
    encoding = YES;
    return [encoder autorelease];
}

- (id<MTLBlitCommandEncoder>)blitCommandEncoder
{
    if (![self openFor:"blitCommandEncoder"] || fake_call(K3_FAKE_ENCODER, NULL))
        return nil;
    FakeBlitEncoder *encoder = [FakeBlitEncoder new];
    encoder->commands = [self retain];
    encoding = YES;
    return [encoder autorelease];
}

- (void)addStep:(fake_step_kind)kind event:(id<MTLEvent>)event value:(uint64_t)value
{
    [self hold:event];
    fake_step *step = [self addStep:kind];
    step->event = (FakeEvent *)event;
    step->value = value;
}

- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value
{
    if ([self openFor:"encodeSignalEvent"] && !fake_call(K3_FAKE_SIGNAL, NULL))
        [self addStep:FAKE_STEP_SIGNAL event:event value:value];
}

- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value
{
    if ([self openFor:"encodeWaitForEvent"] && !fake_call(K3_FAKE_WAIT, NULL))
        [self addStep:FAKE_STEP_WAIT event:event value:value];
}

- (void)commit
{
    if (![self openFor:"commit"])
        return;
    committed = YES;
    fake_commit(self);
}

- (void)waitUntilCompleted
{
    if (committed)
        fake_wait(self);
    else
        fake_violation("waitUntilCompleted before commit");
}

- (MTLCommandBufferStatus)status
{
    return committed ? fake_status(self) : MTLCommandBufferStatusNotEnqueued;
}

/* A violation where what is asked is not known before the end. */
- (BOOL)doneFor:(const char *)what
{
    BOOL done = committed && fake_is_done(self);
    if (!done)
        fake_violation("%s before the command buffer is completed", what);
    return done;
}

- (NSError *)error
{
    return [self doneFor:"error"] ? error : nil;
}

- (CFTimeInterval)GPUStartTime
{
    return [self doneFor:"GPUStartTime"] ? start : 0;
}

- (CFTimeInterval)GPUEndTime
{
    return [self doneFor:"GPUEndTime"] ? end : 0;
}

- (void)dealloc
{
    for (int i = 0; i < n_steps; i++) {
        for (int j = 0; j < steps[i]->n_dispatches; j++)
            for (int k = 0; k < MSL_MAX_BUFFERS; k++)
                free(steps[i]->dispatches[j].bindings[k].bytes);
        free(steps[i]->dispatches);
        free(steps[i]->uses);
        free(steps[i]);
    }
    for (int i = 0; i < n_held; i++)
        [held[i] release];
    free(steps);
    free(held);
    [error release];
    [label release];
    [queue release];
    [super dealloc];
}
@end

@implementation FakeEncoder
- (BOOL)openFor:(const char *)what
{
    if (!commands)
        fake_violation("%s after endEncoding", what);
    return commands != nil;
}

- (BOOL)takes:(id)buffer for:(const char *)what
{
    if (!buffer)
        fake_violation("%s of nil", what);
    if (!buffer || !fake_lives(buffer, what))
        return NO;
    BOOL ours = ((FakeBuffer *)buffer)->device->index == commands->queue->device->index;
    if (!ours)
        fake_violation("%s of a buffer of another device", what);
    return ours;
}

- (void)endEncoding
{
    if (![self openFor:"endEncoding"])
        return;
    commands->encoding = NO;
    [commands release];
    commands = nil;
}

- (void)dealloc
{
    if (commands) {
        fake_violation("an encoder is released before endEncoding");
        [self endEncoding];
    }
    [super dealloc];
}
@end

@implementation FakeBlitEncoder
/* False, and a violation, for bytes that are not all in the buffer or no words of 4. */
- (BOOL)checks:(id<MTLBuffer>)buffer from:(NSUInteger)offset size:(NSUInteger)size
{
    if (![self takes:buffer for:"a blit"])
        return NO;
    if (!size || offset > buffer.length || size > buffer.length - offset || offset % 4 || size % 4)
        fake_violation("a blit of %lu bytes at %lu of a buffer of %lu", size, offset, buffer.length);
    else
        return YES;
    return NO;
}

- (void)copyFromBuffer:(id<MTLBuffer>)source
          sourceOffset:(NSUInteger)source_offset
              toBuffer:(id<MTLBuffer>)destination
     destinationOffset:(NSUInteger)destination_offset
                  size:(NSUInteger)size
{
    if (![self openFor:"copyFromBuffer"] || ![self checks:source from:source_offset size:size] ||
        ![self checks:destination from:destination_offset size:size] || fake_call(K3_FAKE_BLIT, NULL))
        return;
    NSUInteger apart = source_offset < destination_offset ? destination_offset - source_offset : source_offset - destination_offset;
    if (source == destination && apart < size)
        fake_violation("a copy onto itself");
    [commands hold:source];
    [commands hold:destination];
    fake_step *step = [commands addStep:FAKE_STEP_COPY];
    step->from = (FakeBuffer *)source;
    step->to = (FakeBuffer *)destination;
    step->from_offset = source_offset;
    step->to_offset = destination_offset;
    step->size = size;
}

- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value
{
    if (![self openFor:"fillBuffer"] || ![self checks:buffer from:range.location size:range.length] || fake_call(K3_FAKE_BLIT, NULL))
        return;
    [commands hold:buffer];
    fake_step *step = [commands addStep:FAKE_STEP_FILL];
    step->to = (FakeBuffer *)buffer;
    step->to_offset = range.location;
    step->size = range.length;
    step->fill = value;
}
@end
