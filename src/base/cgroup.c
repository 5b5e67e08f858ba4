#include "base/cgroup.h"

#include <stdio.h>
#include <string.h>

#define ROOT "/sys/fs/cgroup"

/* A name of a list such as cpu,cpuacct. */
static int is_among(const char *names, const char *name)
{
    size_t n = strlen(name);
    while (strcspn(names, ",:") != n || memcmp(names, name, n)) {
        names += strcspn(names, ",:");
        if (!*names++)
            return 0;
    }
    return 1;
}

int k3_cgroup_path(char *out, size_t size, const char *controller)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return 0;
    char line[1024];
    int found = 0;
    while (!found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        names++;
        if (!controller && *names == 0)
            found = snprintf(out, size, ROOT "%s", path) < (int)size;
        if (controller && is_among(names, controller))
            found = snprintf(out, size, ROOT "/%s%s", controller, path) < (int)size;
    }
    fclose(file);
    return found;
}

int k3_cgroup_up(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || strlen(path) <= strlen(ROOT))
        return 0;
    *slash = 0;
    return 1;
}

static int read_numbers(long long *first, long long *second, const char *path, const char *name)
{
    char full[1400];
    snprintf(full, sizeof full, "%s/%s", path, name);
    FILE *file = fopen(full, "re");
    if (!file)
        return 0;
    int n = fscanf(file, "%lld %lld", first, second);
    fclose(file);
    return n;
}

int k3_cgroup_number(long long *out, const char *path, const char *name)
{
    long long unused;
    return read_numbers(out, &unused, path, name) >= 1;
}

int k3_cgroup_numbers(long long *first, long long *second, const char *path, const char *name)
{
    return read_numbers(first, second, path, name) == 2;
}
