#import "metal/fake_objects.h"

#include <stdio.h>
#include <string.h>

@implementation NSObject (FakeFlight)
- (void)fly
{
}

- (void)land
{
    [self release];
}
@end

@implementation MTLCompileOptions
@synthesize fastMathEnabled = _fastMathEnabled, languageVersion = _languageVersion;

- (instancetype)init
{
    _fastMathEnabled = YES;
    _languageVersion = MTLLanguageVersion3_1;
    return self;
}
@end

@implementation MTLComputePipelineDescriptor
@synthesize threadGroupSizeIsMultipleOfThreadExecutionWidth = _threadGroupSizeIsMultipleOfThreadExecutionWidth;
@synthesize maxTotalThreadsPerThreadgroup = _maxTotalThreadsPerThreadgroup, computeFunction = _computeFunction;

- (void)dealloc
{
    [_computeFunction release];
    [super dealloc];
}
@end

/* As a kernel's text has it; NULL for what is not part of the fake. */
static const char *type_name(MTLDataType type)
{
    switch (type) {
    case MTLDataTypeFloat:
        return "float";
    case MTLDataTypeInt:
        return "int";
    case MTLDataTypeUInt:
        return "uint";
    case MTLDataTypeBool:
        return "bool";
    }
    return NULL;
}

@implementation MTLFunctionConstantValues
- (void)setConstantValue:(const void *)value type:(MTLDataType)type atIndex:(NSUInteger)index
{
    int i = 0;
    while (i < _count && _ids[i] != index)
        i++;
    if (i == MSL_MAX_CONSTANTS || !type_name(type)) {
        fake_violation("function constant %lu of type %lu, of %d others", index, type, i);
        return;
    }
    _count += i == _count;
    _ids[i] = (uint32_t)index;
    _types[i] = type;
    if (type == MTLDataTypeBool)
        _values[i] = *(const bool *)value;
    else
        memcpy(&_values[i], value, sizeof _values[i]);
}
@end

@implementation FakeFunction
- (void)dealloc
{
    [name release];
    [super dealloc];
}
@end

@implementation FakeLibrary
+ (instancetype)newWithSource:(NSString *)source
{
    static const char mark[] = "kernel void ";
    enum { MOST = 64 };
    NSString *found[MOST];
    NSUInteger n = 0;
    for (const char *at = source.UTF8String; n < MOST && (at = strstr(at, mark));) {
        at += strlen(mark);
        char word[128] = "";
        size_t length = strcspn(at, "( \n");
        memcpy(word, at, length < sizeof word ? length : sizeof word - 1);
        found[n++] = [NSString stringWithUTF8String:word];
    }
    FakeLibrary *library = [self new];
    library->text = [source retain];
    library->names = [NSArray newWithObjects:found count:n];
    return library;
}

- (NSArray<NSString *> *)functionNames
{
    return names;
}

/* True where the function is there. */
- (BOOL)has:(NSString *)name
{
    for (NSUInteger i = 0; i < names.count; i++)
        if (!strcmp([names objectAtIndex:i].UTF8String, name.UTF8String))
            return YES;
    return NO;
}

/* A violation for each value of another type than the text declares: "constant uint name [[function_constant(3)]]". */
- (void)check:(MTLFunctionConstantValues *)values
{
    for (int i = 0; i < values->_count; i++) {
        char mark[48], type[16];
        snprintf(mark, sizeof mark, "[[function_constant(%u)]]", values->_ids[i]);
        const char *start = text.UTF8String, *at = strstr(start, mark);
        for (; at && at > start && at[-1] != ';' && at[-1] != '\n'; at--)
            ;
        if (at && sscanf(at, " constant %15s", type) == 1 && strcmp(type, type_name(values->_types[i])) != 0)
            fake_violation("function constant %u is a %s, not a %s", values->_ids[i], type, type_name(values->_types[i]));
    }
}

- (const msl_kernel *)compile:(NSString *)name with:(MTLFunctionConstantValues *)values message:(char *)message size:(size_t)size
{
    msl_constant constants[MSL_MAX_CONSTANTS];
    for (int i = 0; i < values->_count; i++)
        constants[i] = (msl_constant){values->_ids[i], values->_values[i]};
    msl_options options = {.width = fake_options.width, .seed = fake_options.thread_order, .cache = fake_options.cache};
    return msl_compile(text.UTF8String, name.UTF8String, constants, values->_count, &options, message, size);
}

- (id<MTLFunction>)newFunctionWithName:(NSString *)name constantValues:(MTLFunctionConstantValues *)values error:(NSError **)error
{
    char message[2048] = "a function that is to fail";
    BOOL there = [self has:name];
    int code = there ? MTLLibraryErrorCompileFailure : MTLLibraryErrorFunctionNotFound;
    const msl_kernel *kernel = NULL;
    if (!values) {
        fake_violation("a function without an object for its constants");
        return nil;
    }
    [self check:values];
    if (!fake_call(K3_FAKE_FUNCTION, &code)) {
        snprintf(message, sizeof message, "there is no function %s", name.UTF8String);
        kernel = there ? [self compile:name with:values message:message size:sizeof message] : NULL;
    }
    if (!kernel) {
        if (error)
            *error = [NSError errorWithCode:code text:message];
        return nil;
    }
    FakeFunction *function = [FakeFunction new];
    function->name = [name retain];
    function->kernel = kernel;
    return function;
}

- (void)dealloc
{
    [text release];
    [names release];
    [super dealloc];
}
@end

@implementation FakePipeline
- (NSUInteger)maxTotalThreadsPerThreadgroup
{
    return max_threads;
}

- (NSUInteger)threadExecutionWidth
{
    return fake_options.width;
}

- (NSUInteger)staticThreadgroupMemoryLength
{
    return msl_threadgroup_bytes(function->kernel);
}

- (void)dealloc
{
    [function release];
    [super dealloc];
}
@end

@implementation FakeBuffer
+ (instancetype)newOnDevice:(FakeDevice *)device length:(NSUInteger)length host:(void *)host mode:(MTLStorageMode)mode
{
    fake_memory memory;
    if (!(host ? fake_memory_share(&memory, host, length) : fake_memory_make(&memory, length)))
        return nil;
    FakeBuffer *buffer = [self new];
    buffer->memory = memory;
    fake_memory_enlist(&buffer->memory);
    buffer->mode = mode;
    buffer->device = [device retain];
    __atomic_add_fetch(&device->allocated, length, __ATOMIC_RELAXED);
    return buffer;
}

- (void *)contents
{
    return mode == MTLStorageModePrivate ? NULL : memory.host;
}

- (NSUInteger)length
{
    return memory.length;
}

- (uint64_t)gpuAddress
{
    return (uintptr_t)memory.device;
}

- (MTLStorageMode)storageMode
{
    return mode;
}

/* The host may not drop its last reference in flight. Called where `left` references will be left. */
- (void)checkFlight:(NSUInteger)left
{
    NSUInteger flying = __atomic_load_n(&in_flight, __ATOMIC_RELAXED);
    if (flying && left == flying)
        fake_violation("buffer %d is released while a command buffer that uses it is not completed", memory.serial);
}

- (void)fly
{
    __atomic_add_fetch(&in_flight, 1, __ATOMIC_RELAXED);
    [self checkFlight:self.retainCount];
}

- (void)land
{
    __atomic_sub_fetch(&in_flight, 1, __ATOMIC_RELAXED);
    [super release];
}

- (oneway void)release
{
    [self checkFlight:self.retainCount - 1];
    [super release];
}

- (void)dealloc
{
    if (!fake_memory_intact(&memory))
        fake_violation("buffer %d of %lu bytes: written outside of it, or its host pages are gone before it", memory.serial, memory.length);
    __atomic_sub_fetch(&device->allocated, memory.length, __ATOMIC_RELAXED);
    fake_memory_free(&memory);
    [device release];
    [super dealloc];
}
@end

@implementation FakeEvent
- (uint64_t)signaledValue
{
    return fake_event_value(self);
}

- (void)setSignaledValue:(uint64_t)to
{
    fake_event_set(self, to);
}

- (BOOL)waitUntilSignaledValue:(uint64_t)to timeoutMS:(uint64_t)milliseconds
{
    return fake_event_wait(self, to, milliseconds);
}
@end
