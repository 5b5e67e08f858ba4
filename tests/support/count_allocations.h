/* Counts what a program allocates. For one file of a test: its definitions take the place of the C library's. */
#ifndef K3_TESTS_COUNT_ALLOCATIONS_H
#define K3_TESTS_COUNT_ALLOCATIONS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_OWN_MALLOC 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define HAS_OWN_MALLOC 1
#endif

static _Atomic long n_allocations;

#ifndef HAS_OWN_MALLOC
/* glibc's allocator under its internal names; the linker gives these definitions to everybody. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t n)
{
    atomic_fetch_add(&n_allocations, 1);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    atomic_fetch_add(&n_allocations, 1);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    atomic_fetch_add(&n_allocations, 1);
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t alignment, size_t n)
{
    atomic_fetch_add(&n_allocations, 1);
    return __libc_memalign(alignment, n);
}
#endif

#endif
