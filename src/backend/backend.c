#include "backend/backend.h"

#include <stdio.h>
#include <string.h>

typedef struct k3_backend_entry {
    const char *name;
    k3_status (*open)(k3_backend **out, const char *level, const k3_backend_config *config, k3_error *err);
} k3_backend_entry;

#if K3_HAVE_VULKAN
enum { HAVE_VULKAN = 1 };
#else
enum { HAVE_VULKAN = 0 };

static k3_status k3_vulkan_absent(k3_backend **out, const char *level, const k3_backend_config *config, k3_error *err)
{
    (void)level;
    (void)config;
    *out = NULL;
    return k3_fail(err, K3_E_UNSUPPORTED,
                   "backend vulkan: this build has none; build where glslc, volk and the Vulkan headers are installed");
}
#define k3_vulkan_open k3_vulkan_absent

k3_status k3_vulkan_list(char **text, k3_error *err)
{
    *text = NULL;
    return k3_fail(err, K3_E_UNSUPPORTED, "this build has no Vulkan; build where glslc, volk and the Vulkan headers are installed");
}
#endif

/* In order of preference: "auto" takes the first that opens. */
static const k3_backend_entry entries[] = {
    {"vulkan", k3_vulkan_open},
    {"cpu", k3_cpu_open},
};
enum { N_ENTRIES = sizeof entries / sizeof entries[0] };

static k3_status open_auto(k3_backend **out, const k3_backend_config *config, char *note, size_t note_size, k3_error *err)
{
    k3_error why = {K3_OK, ""};
    k3_status status = K3_E_NOT_FOUND;
    for (int i = 0; i < N_ENTRIES && status != K3_OK; i++) {
        status = entries[i].open(out, "", config, &why);
        if (status != K3_OK && note && !*note)
            snprintf(note, note_size, "%s", why.text);
    }
    return status == K3_OK ? K3_OK : k3_fail(err, status, "%s", why.text);
}

/* A name is "cpu" or "cpu:LEVEL": the entry, then what the entry makes of the rest. */
k3_status k3_backend_open(k3_backend **out, const k3_backend_config *config, char *note, size_t note_size, k3_error *err)
{
    *out = NULL;
    static const k3_backend_config defaults;
    config = config ? config : &defaults;
    const char *name = config->name ? config->name : "auto";
    if (note && note_size)
        *note = 0;
    if (strcmp(name, "auto") == 0)
        return open_auto(out, config, note, note_size, err);
    const char *colon = strchr(name, ':');
    size_t n = colon ? (size_t)(colon - name) : strlen(name);
    for (int i = 0; i < N_ENTRIES; i++)
        if (strlen(entries[i].name) == n && memcmp(entries[i].name, name, n) == 0)
            return entries[i].open(out, colon ? colon + 1 : "", config, err);
    return k3_fail(err, K3_E_INVALID,
                   "backend: \"%s\" found; auto, cpu, cpu:scalar, cpu:avx2, cpu:avx512, vulkan and vulkan:DEVICE exist%s", name,
                   HAVE_VULKAN ? "" : ", of which this build has no vulkan");
}
