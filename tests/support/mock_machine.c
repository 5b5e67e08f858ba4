#include "support/mock_machine.h"

#include "support/tiny_checkpoint.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void mock_put(const char *folder, const char *path, const char *text)
{
    char full[600];
    snprintf(full, sizeof full, "%s%s", folder, path);
    for (char *at = full + strlen(folder) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        (void)mkdir(full, 0777);
    }
    tiny_put_file(folder, path + 1, text, strlen(text));
}

static void put_number(const char *folder, const char *path, uint64_t n)
{
    char text[32];
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)n);
    mock_put(folder, path, text);
}

void mock_memory(const char *folder, uint64_t available, int version, uint64_t limit, uint64_t used, uint64_t cached)
{
    char text[256];
    unsigned long long files = cached;
    snprintf(text, sizeof text, "MemTotal: 999999999 kB\nMemFree: 1 kB\nMemAvailable: %llu kB\n", (unsigned long long)available >> 10);
    mock_put(folder, "/proc/meminfo", text);
    mock_put(folder, "/proc/self/cgroup", version == 2 ? "0::/a/b\n" : version == 1 ? "3:cpu:/x\n2:memory:/a/b\n" : "\n");
    if (version == 2) {
        put_number(folder, "/sys/fs/cgroup/a/memory.max", limit);
        mock_put(folder, "/sys/fs/cgroup/a/b/memory.max", "max\n");
        put_number(folder, "/sys/fs/cgroup/a/memory.current", used);
        put_number(folder, "/sys/fs/cgroup/a/b/memory.current", used / 2);
        snprintf(text, sizeof text, "anon 5\nfile 1\nshmem 77\nactive_file %llu\ninactive_file %llu\n", files / 4, files - files / 4);
        mock_put(folder, "/sys/fs/cgroup/a/memory.stat", text);
    } else if (version == 1) {
        put_number(folder, "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", 9223372036854771712u);
        put_number(folder, "/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", used / 2);
        put_number(folder, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes", limit);
        put_number(folder, "/sys/fs/cgroup/memory/a/memory.usage_in_bytes", used);
        snprintf(text, sizeof text, "cache 9\nactive_file 1\ntotal_active_file %llu\ntotal_inactive_file %llu\n", files / 4,
                 files - files / 4);
        mock_put(folder, "/sys/fs/cgroup/memory/a/memory.stat", text);
    }
}
