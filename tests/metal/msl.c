#include "msl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "msl_build.h"
#include "msl_fibers.h"
#include "msl_thunk.h"

enum { MAX_THREADGROUP_BYTES = 32768, MAX_NAME_BYTES = 128 };

struct msl_kernel {
    char name[MAX_NAME_BYTES];
    char path[1024];
    msl_thunk *thunk;
    uint32_t buffers;
    uint64_t memory[2]; /* where threadgroup memory begins and ends */
    msl_kernel *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static msl_kernel *kernels;

static msl_kernel *find(const char *path)
{
    for (msl_kernel *k = kernels; k != NULL; k = k->next)
        if (strcmp(k->path, path) == 0)
            return k;
    return NULL;
}

static msl_kernel *load(const char *path, const char *entry, uint32_t buffers, char *message, size_t message_size)
{
    msl_kernel *k = calloc(1, sizeof *k);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (k == NULL || object == NULL) {
        snprintf(message, message_size, "%s", object == NULL ? dlerror() : "no memory");
        free(k);
        return NULL;
    }
    void (*memory)(uint64_t *);
    *(void **)&k->thunk = dlsym(object, "msl_thunk");
    *(void **)&memory = dlsym(object, "msl_threadgroup_memory");
    memory(k->memory);
    snprintf(k->name, sizeof k->name, "%s", entry);
    snprintf(k->path, sizeof k->path, "%s", path);
    k->buffers = buffers;
    k->next = kernels;
    return kernels = k;
}

const msl_kernel *msl_compile(const char *source, const char *entry, const msl_constant *constants, int n_constants,
                              const msl_options *options, char *message, size_t message_size)
{
    char *thunk = NULL;
    size_t n = 0;
    uint32_t buffers;
    msl_kernel *kernel = NULL;
    if (strlen(entry) >= MAX_NAME_BYTES) {
        snprintf(message, message_size, "the name is too long: %s", entry);
        return NULL;
    }
    FILE *f = open_memstream(&thunk, &n);
    if (f == NULL) {
        snprintf(message, message_size, "no memory");
        return NULL;
    }
    int rc = msl_write_thunk(f, source, entry, &buffers, message, message_size);
    if (fclose(f) == 0 && rc == 0) {
        char path[sizeof kernel->path];
        msl_text text = {.source = source, .entry = entry, .thunk = thunk, .constants = constants, .n_constants = n_constants};
        pthread_mutex_lock(&lock);
        if (msl_build(&text, options->cache, path, sizeof path, message, message_size) == 0) {
            kernel = find(path);
            if (kernel == NULL)
                kernel = load(path, entry, buffers, message, message_size);
        }
        pthread_mutex_unlock(&lock);
    }
    free(thunk);
    return kernel;
}

uint32_t msl_buffers(const msl_kernel *kernel)
{
    return kernel->buffers;
}

uint32_t msl_threadgroup_bytes(const msl_kernel *kernel)
{
    return (uint32_t)(kernel->memory[1] - kernel->memory[0]);
}

/* What is wrong with a launch; NULL when nothing is. */
static const char *refuse(const msl_kernel *kernel, void *const *buffers, const uint32_t threads[3], uint32_t width)
{
    if (width != 8 && width != 16 && width != 32 && width != 64)
        return "a simdgroup has 8, 16, 32 or 64 threads";
    uint64_t n = (uint64_t)threads[0] * threads[1];
    if (n == 0 || threads[2] == 0 || n > MSL_MAX_THREADS || n * threads[2] > MSL_MAX_THREADS)
        return "a threadgroup has 1 to 1024 threads";
    if (msl_threadgroup_bytes(kernel) > MAX_THREADGROUP_BYTES)
        return "more than 32768 bytes of threadgroup memory";
    for (int i = 0; i < MSL_MAX_BUFFERS; i++)
        if ((kernel->buffers >> i & 1) != 0 && buffers[i] == NULL)
            return "a buffer is not bound";
    return NULL;
}

int msl_run(const msl_kernel *kernel, void *const buffers[MSL_MAX_BUFFERS], const uint32_t groups[3], const uint32_t threads[3],
            const msl_options *options, char *message, size_t message_size)
{
    const char *wrong = refuse(kernel, buffers, threads, options->width);
    if (wrong != NULL) {
        snprintf(message, message_size, "kernel %s: %s", kernel->name, wrong);
        return -1;
    }
    msl_launch launch = {
        .name = kernel->name,
        .thunk = kernel->thunk,
        .buffers = buffers,
        .memory = (char *)(uintptr_t)kernel->memory[0],
        .memory_bytes = msl_threadgroup_bytes(kernel),
        .groups = {groups[0], groups[1], groups[2]},
        .threads = {threads[0], threads[1], threads[2]},
        .width = options->width,
        .seed = options->seed,
    };
    return msl_fibers_run(&launch, message, message_size);
}

void msl_abandon(void)
{
    msl_fibers_abandon();
}
