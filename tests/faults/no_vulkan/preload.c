/* Preloaded, hides the Vulkan loader: dlopen of it finds nothing, as on a machine that has none. */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

__attribute__((visibility("default"))) void *dlopen(const char *name, int flags)
{
    static void *(*next)(const char *name, int flags);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "dlopen");
    return name && strstr(name, "libvulkan") ? NULL : next(name, flags);
}
