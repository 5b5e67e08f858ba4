/* Pipelines: a kernel's text is compiled to a library the first time it is wanted, and a function of it with values for its constants to a
 * pipeline. Files in a folder may replace the texts, for whoever works on kernels; they are looked at anew before each batch. */
#import "backend/metal/metal.h"

#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_TEXT = 1 << 20 };

/* 4 bytes a thread, at any address. */
static const char copy_text[] = "#include <metal_stdlib>\n"
                                "using namespace metal;\n"
                                "struct places { ulong dst; ulong src; uint bytes; uint zero; };\n"
                                "kernel void copy_bytes(constant places& p [[buffer(0)]], uint3 i [[thread_position_in_grid]])\n"
                                "{\n"
                                "    device uchar* dst = reinterpret_cast<device uchar*>(p.dst);\n"
                                "    device uchar* src = reinterpret_cast<device uchar*>(p.src);\n"
                                "    for (uint b = 4u * i.x; b < min(4u * i.x + 4u, p.bytes); b++)\n"
                                "        dst[b] = src[b];\n"
                                "}\n";

void k3_mt_reason(char *out, size_t size, NSError *error)
{
    const char *text = [[error localizedDescription] UTF8String];
    size_t n = 0;
    for (text = text && *text ? text : "no reason given"; *text && n + 1 < size; text++) {
        char c = (unsigned char)*text < ' ' ? ' ' : *text;
        if (c != ' ' || (n && out[n - 1] != ' '))
            out[n++] = c;
    }
    out[n] = 0;
}

/* ---- compiling --------------------------------------------------------------------------------------------------- */

static id<MTLLibrary> new_library(k3_mt *mt, const char *text, char *why, size_t size)
{
    NSError *error = nil;
    MTLCompileOptions *options = [MTLCompileOptions new];
    [options setFastMathEnabled:NO];
    [options setLanguageVersion:MTLLanguageVersion3_0];
    NSString *source = [NSString stringWithUTF8String:text];
    id<MTLLibrary> library = source ? [mt->device newLibraryWithSource:source options:options error:&error] : nil;
    if (!source)
        snprintf(why, size, "the text is not UTF-8");
    else if (!library)
        k3_mt_reason(why, size, error);
    [options release];
    return library;
}

static id<MTLFunction> new_function(id<MTLLibrary> library, const char *name, const uint32_t *spec, int n_spec, char *why, size_t size)
{
    NSError *error = nil;
    MTLFunctionConstantValues *values = [MTLFunctionConstantValues new];
    for (int i = 0; i < n_spec; i++)
        [values setConstantValue:&spec[i] type:MTLDataTypeUInt atIndex:(NSUInteger)i];
    id<MTLFunction> function = [library newFunctionWithName:[NSString stringWithUTF8String:name] constantValues:values error:&error];
    if (!function)
        k3_mt_reason(why, size, error);
    [values release];
    return function;
}

/* nil and the reason. */
static id<MTLComputePipelineState> new_state(k3_mt *mt, id<MTLLibrary> library, const char *name, const k3_gpu_pipeline *wanted,
                                             uint32_t threads, char *why, size_t size)
{
    const k3_gpu_limits *limits = &mt->gpu.limits;
    id<MTLFunction> function = new_function(library, name, wanted->spec, wanted->n_spec, why, size);
    if (!function)
        return nil;
    NSError *error = nil;
    MTLComputePipelineDescriptor *descriptor = [MTLComputePipelineDescriptor new];
    [descriptor setComputeFunction:function];
    [descriptor setMaxTotalThreadsPerThreadgroup:threads];
    id<MTLComputePipelineState> state = [mt->device newComputePipelineStateWithDescriptor:descriptor
                                                                                  options:MTLPipelineOptionNone
                                                                               reflection:NULL
                                                                                    error:&error];
    [descriptor release];
    [function release];
    if (!state) {
        k3_mt_reason(why, size, error);
        return nil;
    }
    unsigned most = (unsigned)[state maxTotalThreadsPerThreadgroup], width = (unsigned)[state threadExecutionWidth];
    unsigned shared = (unsigned)[state staticThreadgroupMemoryLength];
    if (most >= threads && shared <= limits->shared_bytes && (!wanted->full || width == limits->subgroup))
        return state;
    if (most < threads)
        snprintf(why, size, "groups of at most %u threads are possible, %u wanted", most, threads);
    else if (shared > limits->shared_bytes)
        snprintf(why, size, "%u bytes of group memory wanted, the device has %u", shared, limits->shared_bytes);
    else
        snprintf(why, size, "SIMD groups of %u threads found, %u wanted", width, limits->subgroup);
    [state release];
    return nil;
}

/* ---- texts from a folder ----------------------------------------------------------------------------------------- */

static void path_of(char *out, size_t size, const k3_mt *mt, k3_gpu_shader shader)
{
    snprintf(out, size, "%s/%s.metal", mt->kernels_dir, k3_mt_kernels[shader].name);
}

static k3_mt_stamp stamp_of(const k3_mt *mt, k3_gpu_shader shader)
{
    char path[sizeof mt->kernels_dir + 100];
    struct stat st;
    path_of(path, sizeof path, mt, shader);
    if (!mt->kernels_dir[0] || stat(path, &st) != 0)
        return (k3_mt_stamp){0};
#ifdef __APPLE__
    struct timespec changed = st.st_mtimespec;
#else
    struct timespec changed = st.st_mtim;
#endif
    return (k3_mt_stamp){changed, (int64_t)st.st_size, 1};
}

static int same_stamp(const k3_mt_stamp *a, const k3_mt_stamp *b)
{
    return a->there == b->there && a->bytes == b->bytes && a->changed.tv_sec == b->changed.tv_sec &&
           a->changed.tv_nsec == b->changed.tv_nsec;
}

/* A kernel's library, from its file or from the text in the program; nil and the reason. */
static id<MTLLibrary> load(k3_mt *mt, k3_gpu_shader shader, int from_file, char *why, size_t size)
{
    char path[sizeof mt->kernels_dir + 100], *text = NULL;
    size_t n;
    k3_error err;
    if (!from_file)
        return new_library(mt, k3_mt_kernels[shader].text, why, size);
    path_of(path, sizeof path, mt, shader);
    if (k3_os_read_file(&text, &n, path, MAX_TEXT, &err) != K3_OK) {
        snprintf(why, size, "%s", err.text);
        return nil;
    }
    id<MTLLibrary> library = new_library(mt, text, why, size);
    free(text);
    return library;
}

/* A file that cannot be used: said in one line, and the kernel stays what it was. */
static void refuse(k3_mt *mt, k3_gpu_shader shader, const char *why)
{
    snprintf(mt->gpu.notice, sizeof mt->gpu.notice, "%s.metal is left out: %s", k3_mt_kernels[shader].name, why);
    if (mt->gpu.progress)
        (void)mt->gpu.progress(mt->gpu.user, mt->gpu.notice, 0, 0);
}

/* Makes a kernel's pipelines anew from a library, all or none. */
static int replace_states(k3_mt *mt, k3_gpu_shader shader, id<MTLLibrary> library, char *why, size_t size)
{
    int well = 1;
    for (k3_mt_pipeline *p = mt->pipelines; p && well; p = p->next)
        if (p->wanted.shader == shader) {
            p->fresh = new_state(mt, library, k3_mt_kernels[shader].name, &p->wanted, p->threads, why, size);
            well = p->fresh != nil;
        }
    for (k3_mt_pipeline *p = mt->pipelines; p; p = p->next) {
        id<MTLComputePipelineState> old = p->fresh && well ? p->state : p->fresh;
        if (p->fresh && well)
            p->state = p->fresh;
        p->fresh = nil;
        [old release];
    }
    return well;
}

static void reload(k3_mt *mt, k3_gpu_shader shader)
{
    k3_mt_library *of = &mt->libraries[shader];
    k3_mt_stamp stamp = stamp_of(mt, shader);
    char why[400] = "";
    if (same_stamp(&stamp, &of->stamp))
        return;
    of->stamp = stamp;
    if (mt->gpu.progress)
        (void)mt->gpu.progress(mt->gpu.user, "compiling kernels", (uint64_t)mt->gpu.compiled, 0);
    id<MTLLibrary> library = load(mt, shader, stamp.there != 0, why, sizeof why);
    if (!library || !replace_states(mt, shader, library, why, sizeof why)) {
        refuse(mt, shader, why);
        [library release];
        return;
    }
    [of->library release];
    of->library = library;
    of->from_file = stamp.there != 0;
}

void k3_mt_reload(k3_mt *mt)
{
    for (int i = 0; mt->kernels_dir[0] && i < K3_GPU_N_SHADERS; i++)
        if (mt->libraries[i].library) {
            @autoreleasepool {
                reload(mt, (k3_gpu_shader)i);
            }
        }
}

/* ---- pipelines --------------------------------------------------------------------------------------------------- */

/* nil and the reason. A file that is no good for it is done without. */
static id<MTLComputePipelineState> state_for(k3_mt *mt, const k3_mt_pipeline *p, char *why, size_t size)
{
    k3_gpu_shader shader = p->wanted.shader;
    const char *name = k3_mt_kernels[shader].name;
    k3_mt_library *of = &mt->libraries[shader];
    if (!of->library) {
        of->stamp = stamp_of(mt, shader);
        of->from_file = of->stamp.there != 0;
        of->library = load(mt, shader, of->from_file, why, size);
    }
    id<MTLComputePipelineState> state = of->library ? new_state(mt, of->library, name, &p->wanted, p->threads, why, size) : nil;
    if (state || !of->from_file)
        return state;
    refuse(mt, shader, why);
    [of->library release];
    of->from_file = 0;
    of->library = load(mt, shader, 0, why, size);
    return of->library ? new_state(mt, of->library, name, &p->wanted, p->threads, why, size) : nil;
}

void *k3_mt_new_pipeline(k3_gpu *gpu, const k3_gpu_pipeline *wanted)
{
    k3_mt *mt = k3_mt_of(gpu);
    const k3_mt_kernel *kernel = &k3_mt_kernels[wanted->shader];
    char why[400] = "";
    if (!kernel->text) {
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "%s: there is no kernel %s", gpu->name, kernel->name);
        return NULL;
    }
    k3_mt_pipeline *p = calloc(1, sizeof *p);
    if (!p) {
        k3_gpu_fail(gpu, K3_E_NOMEM, "%s: the system has no memory left", kernel->name);
        return NULL;
    }
    p->wanted = *wanted;
    int constant = kernel->threads_constant;
    p->threads = constant >= 0 && constant < wanted->n_spec ? wanted->spec[constant] : kernel->threads;
    @autoreleasepool {
        p->state = state_for(mt, p, why, sizeof why);
    }
    if (!p->state) {
        k3_gpu_fail(gpu, K3_E_DEVICE, "%s: kernel %s: %s", gpu->name, kernel->name, why);
        free(p);
        return NULL;
    }
    p->next = mt->pipelines;
    mt->pipelines = p;
    return p;
}

void k3_mt_free_pipeline(k3_gpu *gpu, void *pipeline)
{
    k3_mt_pipeline *p = pipeline, **at = &k3_mt_of(gpu)->pipelines;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    [p->state release];
    free(p);
}

/* Compiles the driver's own kernel, which also tells how many threads a SIMD group has. */
int k3_mt_open_pipelines(k3_mt *mt)
{
    static const k3_gpu_pipeline plain;
    char why[400] = "";
    @autoreleasepool {
        id<MTLLibrary> library = new_library(mt, copy_text, why, sizeof why);
        mt->copy = library ? new_state(mt, library, "copy_bytes", &plain, 256, why, sizeof why) : nil;
        [library release];
    }
    if (!mt->copy)
        k3_gpu_fail(&mt->gpu, K3_E_DEVICE, "%s: kernel copy_bytes: %s", mt->gpu.name, why);
    return mt->copy != nil;
}

void k3_mt_close_pipelines(k3_mt *mt)
{
    for (int i = 0; i < K3_GPU_N_SHADERS; i++)
        [mt->libraries[i].library release];
    [mt->copy release];
}
