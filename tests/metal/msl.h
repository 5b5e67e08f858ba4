/* Metal's shading language on the CPU: compiles the text of a .metal file unmodified with clang (as C++ for OpenCL 2021, against our own
 * <metal_stdlib>) and runs its kernels, one fiber a thread, one threadgroup after another. */
#ifndef K3_TESTS_METAL_MSL_H
#define K3_TESTS_METAL_MSL_H

#include <stddef.h>
#include <stdint.h>

enum { MSL_MAX_BUFFERS = 31, MSL_MAX_CONSTANTS = 32 };

/* Value of one [[function_constant(id)]]. */
typedef struct msl_constant {
    uint32_t id, value;
} msl_constant;

/* How threads are laid out and ordered, and what is watched; the same for every launch until changed. */
typedef struct msl_options {
    uint32_t width;    /* threads of a simdgroup: 8, 16, 32 or 64 */
    uint32_t seed;     /* order in which threads run between barriers; 0: ascending */
    const char *cache; /* folder for compiled kernels, by hash of text and constants */
} msl_options;

typedef struct msl_kernel msl_kernel;

/* Compiles `entry` of `source`. NULL and what the compiler said in `message` (a constant that is used and missing, a type error, two
 * parameters at one index are such). Kernels are kept until the process ends; the same text and constants give the same kernel. */
const msl_kernel *msl_compile(const char *source, const char *entry, const msl_constant *constants, int n_constants,
                              const msl_options *options, char *message, size_t message_size);

/* Bit i: the kernel has a parameter at [[buffer(i)]]. */
uint32_t msl_buffers(const msl_kernel *kernel);
/* Bytes of threadgroup memory that the kernel declares. */
uint32_t msl_threadgroup_bytes(const msl_kernel *kernel);

/* One launch at a time. Runs groups[0] x groups[1] x groups[2] threadgroups of threads[0] x threads[1] x threads[2]. 0, or -1 and a
 * message: threads that wait at different barriers, a barrier that some threads never reach, too many threads, too much threadgroup memory.
 */
int msl_run(const msl_kernel *kernel, void *const buffers[MSL_MAX_BUFFERS], const uint32_t groups[3], const uint32_t threads[3],
            const msl_options *options, char *message, size_t message_size);

/* For a signal handler that leaves msl_run() by siglongjmp(), just before that: forgets the launch. */
void msl_abandon(void);

/* Data races that were seen between threads of a group since the last call; always 0 unless the program is built with ThreadSanitizer. */
int msl_races(void);

#endif
