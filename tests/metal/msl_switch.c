#include "msl_switch.h"

#include <stdint.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define MSL_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MSL_ADDRESS_SANITIZER 1
#endif
#endif

#ifdef MSL_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(MSL_ADDRESS_SANITIZER) || defined(MSL_THREAD_SANITIZER)
enum { STACK_BYTES = 1 << 18 };
#else
enum { STACK_BYTES = 1 << 16 };
#endif
enum { PAGE_BYTES = 4096 };

/* Saves what a call must keep, and the stack pointer at *from; takes up what was saved at `to`. */
void msl_switch_stacks(void **from, void *to);

#if defined(__x86_64__)
enum { SAVED_WORDS = 8, ENTRY_WORD = 6 };
__asm__(".text\n"
        ".globl msl_switch_stacks\n"
        ".type msl_switch_stacks, @function\n"
        "msl_switch_stacks:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\n"
        "mov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\n"
        "ret\n"
        ".size msl_switch_stacks, . - msl_switch_stacks\n");
#elif defined(__aarch64__)
enum { SAVED_WORDS = 20, ENTRY_WORD = 11 };
__asm__(".text\n"
        ".globl msl_switch_stacks\n"
        ".type msl_switch_stacks, %function\n"
        "msl_switch_stacks:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
        "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
        "mov x9, sp\n"
        "str x9, [x0]\n"
        "mov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\n"
        "ret\n"
        ".size msl_switch_stacks, . - msl_switch_stacks\n");
#else
#error "the executor of MSL knows x86-64 and aarch64"
#endif

static msl_fiber *previous, *current;

/* Tops of stacks lie at different places of a page: threads that do the same would otherwise all use the same few sets of the cache. */
static void lay_down(msl_fiber *fiber, int index, void (*entry)(void))
{
    void **top = (void **)(fiber->stack + fiber->stack_bytes - (size_t)(index % 61) * 64) - SAVED_WORDS;
    for (int i = 0; i < SAVED_WORDS; i++)
        top[i] = NULL;
    top[ENTRY_WORD] = (void *)(uintptr_t)entry;
    fiber->top = top;
}

bool msl_fiber_start(msl_fiber *fiber, int index, void (*entry)(void))
{
    if (fiber->stack == NULL) {
        char *memory = mmap(NULL, STACK_BYTES + PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, PAGE_BYTES, PROT_NONE) != 0)
            return false;
        fiber->stack = memory + PAGE_BYTES;
        fiber->stack_bytes = STACK_BYTES;
    }
#ifdef MSL_ADDRESS_SANITIZER
    __asan_unpoison_memory_region(fiber->stack, fiber->stack_bytes);
    fiber->asan = NULL;
#endif
#ifdef MSL_THREAD_SANITIZER
    if (fiber->tsan != NULL)
        __tsan_destroy_fiber(fiber->tsan);
    fiber->tsan = __tsan_create_fiber(0);
#endif
    lay_down(fiber, index, entry);
    return true;
}

void msl_fiber_adopt(msl_fiber *fiber)
{
    current = fiber;
#ifdef MSL_THREAD_SANITIZER
    fiber->tsan = __tsan_get_current_fiber();
#endif
}

void msl_fiber_arrived(void)
{
#ifdef MSL_ADDRESS_SANITIZER
    const void *stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(current->asan, &stack, &bytes);
    previous->stack = (char *)(uintptr_t)stack;
    previous->stack_bytes = bytes;
#endif
}

void msl_fiber_switch(msl_fiber *from, msl_fiber *to)
{
    previous = from;
    current = to;
#ifdef MSL_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(&from->asan, to->stack, to->stack_bytes);
#endif
#ifdef MSL_THREAD_SANITIZER
    __tsan_switch_to_fiber(to->tsan, __tsan_switch_to_fiber_no_sync);
#endif
    msl_switch_stacks(&from->top, to->top);
    msl_fiber_arrived();
}

void msl_fiber_jump(msl_fiber *to)
{
    current = to;
#ifdef MSL_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(NULL, to->stack, to->stack_bytes);
    __sanitizer_finish_switch_fiber(to->asan, NULL, NULL);
#endif
#ifdef MSL_THREAD_SANITIZER
    __tsan_switch_to_fiber(to->tsan, __tsan_switch_to_fiber_no_sync);
#endif
}

void msl_order_release_for(msl_fiber *fiber, void *point)
{
#ifdef MSL_THREAD_SANITIZER
    __tsan_switch_to_fiber(fiber->tsan, __tsan_switch_to_fiber_no_sync);
    __tsan_release(point);
    __tsan_switch_to_fiber(current->tsan, __tsan_switch_to_fiber_no_sync);
#else
    (void)fiber, (void)point;
#endif
}
