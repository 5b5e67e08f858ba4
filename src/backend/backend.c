#include "backend/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In order of preference: "auto" takes the first that opens. What a build lacks stays here without functions, so that it can be named. */
static k3_backend_entry entries[] = {
    {"metal", "Metal; build on a Mac",
#if K3_HAVE_METAL
     k3_metal_open, k3_metal_list
#else
     NULL, NULL
#endif
    },
    {"vulkan", "Vulkan; build where glslc, volk and the Vulkan headers are installed",
#if K3_HAVE_VULKAN
     k3_vulkan_open, k3_vulkan_list
#else
     NULL, NULL
#endif
    },
    {"cpu", "", k3_cpu_open, NULL},
};
enum { N_ENTRIES = sizeof entries / sizeof entries[0] };

static k3_backend_entry *entry_of(const char *name, size_t n)
{
    for (int i = 0; i < N_ENTRIES; i++)
        if (strlen(entries[i].name) == n && memcmp(entries[i].name, name, n) == 0)
            return &entries[i];
    return NULL;
}

void k3_backend_register(const k3_backend_entry *entry)
{
    k3_backend_entry *place = entry_of(entry->name, strlen(entry->name));
    if (place)
        *place = *entry;
}

static k3_status lacks(const k3_backend_entry *entry, k3_error *err)
{
    return k3_fail(err, K3_E_UNSUPPORTED, "backend %s: this build has no %s", entry->name, entry->needs);
}

/* The note names the first backend of the build that found no device; that a build has no Metal is no news. */
static k3_status open_auto(k3_backend **out, const k3_backend_config *config, char *note, size_t note_size, k3_error *err)
{
    k3_error why = {K3_OK, ""};
    k3_status status = K3_E_NOT_FOUND;
    for (int i = 0; i < N_ENTRIES && status != K3_OK; i++) {
        if (!entries[i].open)
            continue;
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
    const k3_backend_entry *entry = entry_of(name, colon ? (size_t)(colon - name) : strlen(name));
    if (entry)
        return entry->open ? entry->open(out, colon ? colon + 1 : "", config, err) : lacks(entry, err);
    return k3_fail(
        err, K3_E_INVALID,
        "backend: \"%s\" found; auto, cpu, cpu:scalar, cpu:avx2, cpu:avx512, cpu:neon, metal, metal:DEVICE, vulkan and vulkan:DEVICE exist",
        name);
}

k3_status k3_backend_devices(char **text, k3_error *err)
{
    size_t n = 0;
    k3_status status = K3_OK;
    char *all = calloc(1, 1);
    k3_error why = {K3_OK, ""};
    for (int i = 0; all && i < N_ENTRIES; i++) {
        char *lines = NULL;
        if (strcmp(entries[i].name, "cpu") == 0)
            continue;
        k3_error said;
        if ((entries[i].list ? entries[i].list(&lines, &said) : lacks(&entries[i], &said)) != K3_OK) {
            if (!why.text[0] || entries[i].list) /* a driver that is missing tells more than a build that never had it */
                why = said;
            continue;
        }
        size_t more = strlen(lines);
        char *grown = realloc(all, n + more + 1);
        if (grown) {
            memcpy(grown + n, lines, more + 1);
            n += more;
            all = grown;
        } else {
            status = K3_E_NOMEM;
        }
        free(lines);
    }
    *text = all;
    if (!all || status != K3_OK)
        return k3_fail(err, K3_E_NOMEM, "devices: out of memory");
    if (!n)
        return k3_fail(err, K3_E_NOT_FOUND, "%s", why.text[0] ? why.text : "no driver finds a device");
    return K3_OK;
}
