/* The kernels that a software Vulkan driver compiles leak a little memory, and the leak checker cannot tell whose it is: they are code
 * without a library, run by the thread that submits. So a program that loaded such a driver is not checked for leaks. */
#include "support/leaks.h"

#include <stdlib.h>

#if defined __has_feature
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#include <link.h>
#include <sanitizer/lsan_interface.h>
#include <string.h>

/* A driver stays loaded, so that it is seen at the end. */
__attribute__((visibility("default"))) int dlclose(void *library)
{
    (void)library;
    return 0;
}

static int is_driver(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    *(int *)found |= info->dlpi_name && strstr(info->dlpi_name, "libvulkan_lvp") != NULL;
    return 0;
}

int __lsan_is_turned_off(void)
{
    int found = 0;
    dl_iterate_phdr(is_driver, &found);
    return found;
}
#elif __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifndef SANITIZED
#define SANITIZED 0
#endif

int is_sanitized(void)
{
    return SANITIZED;
}

void children_may_leak(void)
{
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
}
