#include "backend/backend.h"

#include <string.h>

typedef struct k3_backend_entry {
    const char *name;
    k3_status (*open)(k3_backend **out, const char *level, const k3_backend_config *config, k3_error *err);
} k3_backend_entry;

/* In order of preference: "auto" takes the first that opens. */
static const k3_backend_entry entries[] = {
    {"cpu", k3_cpu_open},
};
enum { N_ENTRIES = sizeof entries / sizeof entries[0] };

static k3_status open_auto(k3_backend **out, const k3_backend_config *config, k3_error *err)
{
    k3_status status = K3_E_NOT_FOUND;
    for (int i = 0; i < N_ENTRIES; i++) {
        status = entries[i].open(out, "", config, err);
        if (status == K3_OK)
            break;
    }
    return status;
}

/* A name is "cpu" or "cpu:LEVEL": the entry, then what the entry makes of the rest. */
k3_status k3_backend_open(k3_backend **out, const k3_backend_config *config, k3_error *err)
{
    *out = NULL;
    static const k3_backend_config defaults;
    config = config ? config : &defaults;
    const char *name = config->name ? config->name : "auto";
    if (strcmp(name, "auto") == 0)
        return open_auto(out, config, err);
    const char *colon = strchr(name, ':');
    size_t n = colon ? (size_t)(colon - name) : strlen(name);
    for (int i = 0; i < N_ENTRIES; i++)
        if (strlen(entries[i].name) == n && memcmp(entries[i].name, name, n) == 0)
            return entries[i].open(out, colon ? colon + 1 : "", config, err);
    return k3_fail(err, K3_E_INVALID, "backend: \"%s\" found; this build has auto, cpu, cpu:scalar, cpu:avx2, cpu:avx512", name);
}
