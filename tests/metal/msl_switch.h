/* Stacks, and going from one to another. Knows the sanitizers, which want to be told. Built without the thread sanitizer's instrumentation:
 * the executor's own data are none of its business. */
#ifndef K3_TESTS_METAL_MSL_SWITCH_H
#define K3_TESTS_METAL_MSL_SWITCH_H

#include <stdbool.h>
#include <stddef.h>
#ifdef MSL_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

typedef struct msl_fiber {
    void *top; /* saved stack pointer */
    char *stack;
    size_t stack_bytes;
    void *asan, *tsan;
} msl_fiber;

/* Makes a fiber, or starts it over; `entry` never returns. False: no memory. */
bool msl_fiber_start(msl_fiber *fiber, int index, void (*entry)(void));
/* Describes the stack that runs now. */
void msl_fiber_adopt(msl_fiber *fiber);
/* Leaves `from`, which runs, for `to`; returns when somebody comes back to it. */
void msl_fiber_switch(msl_fiber *from, msl_fiber *to);
/* Says that the caller is about to jump to the stack of `to`. */
void msl_fiber_jump(msl_fiber *to);
/* The first thing on a new stack. */
void msl_fiber_arrived(void);

/* What happened before the releases of a point happened before what follows an acquisition. Nothing without the thread sanitizer. That one
 * has 255 places for threads; one that is given another place says so in its history when it next releases, and a race whose first half is
 * not found in a history is not reported. So who acquires also releases what nobody acquires. */
static inline void msl_order_release(void *point)
{
#ifdef MSL_THREAD_SANITIZER
    __tsan_release(point);
#else
    (void)point;
#endif
}

static inline void msl_order_acquire(void *point)
{
#ifdef MSL_THREAD_SANITIZER
    static char nothing;
    __tsan_acquire(point);
    __tsan_release(&nothing);
#else
    (void)point;
#endif
}

/* Releases the point on behalf of a fiber that never runs on. */
void msl_order_release_for(msl_fiber *fiber, void *point);

#endif
