/* How much memory is free for new use: of the machine, and within the limits of the process and of every group that it is in. Page cache
 * counts as free, since the kernel drops it on demand: a model that was just read fills it. */
#include "base/os.h"

#include "base/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef __APPLE__
#include <mach/mach.h>
#endif

/* Where the system does not even say how much there is. */
#define FALLBACK ((uint64_t)4 << 30)

#ifdef __APPLE__
/* Free pages, those of files, and those that their owners can do without; 0: unknown. */
static uint64_t machine_available(void)
{
    vm_statistics64_data_t vm;
    mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
    mach_port_t host = mach_host_self();
    int known = host_statistics64(host, HOST_VM_INFO64, (host_info64_t)&vm, &n) == KERN_SUCCESS;
    mach_port_deallocate(mach_task_self(), host);
    return known ? ((uint64_t)vm.free_count + vm.external_page_count + vm.purgeable_count) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}
#else
/* 0: unknown. */
static uint64_t machine_available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[256];
    unsigned long long kib = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return (uint64_t)kib << 10;
}
#endif

static uint64_t half_of_the_machine(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size / 2 : FALLBACK;
}

/* Page cache of a group and of those below it: pages of files, those that only live in memory (tmpfs) left out. */
static uint64_t cached_in(const char *path, const char *const names[2])
{
    char full[1400], line[256], name[64];
    uint64_t bytes = 0;
    unsigned long long n;
    snprintf(full, sizeof full, "%s/memory.stat", path);
    FILE *file = fopen(full, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%63s %llu", name, &n) == 2 && (!strcmp(name, names[0]) || !strcmp(name, names[1])))
            bytes += n;
    if (file)
        fclose(file);
    return bytes;
}

/* Bytes that a group may have; LLONG_MAX: it has no limit. Beyond memory.high it is slowed down until it has given some back. */
static long long group_limit(const char *path, int is_v2)
{
    static const char *const names[][2] = {{"memory.limit_in_bytes", NULL}, {"memory.max", "memory.high"}};
    long long least = LLONG_MAX, limit;
    for (int i = 0; i < 2; i++)
        if (names[is_v2][i] && k3_cgroup_number(&limit, path, names[is_v2][i]))
            least = limit < least ? limit : least;
    return least;
}

/* What the process's own group and each above it leave; UINT64_MAX: none has a limit. */
static uint64_t groups_available(int is_v2)
{
    static const char *const v1_names[2] = {"total_active_file", "total_inactive_file"}, *const v2_names[2] = {"active_file",
                                                                                                               "inactive_file"};
    char path[1200];
    uint64_t least = UINT64_MAX;
    if (!k3_cgroup_path(path, sizeof path, is_v2 ? NULL : "memory"))
        return least;
    do {
        long long limit = group_limit(path, is_v2), used = 0;
        if (limit == LLONG_MAX || !k3_cgroup_number(&used, path, is_v2 ? "memory.current" : "memory.usage_in_bytes"))
            continue;
        uint64_t left = (limit > used ? (uint64_t)(limit - used) : 0) + cached_in(path, is_v2 ? v2_names : v1_names);
        left = left < (uint64_t)limit ? left : (uint64_t)limit;
        least = left < least ? left : least;
    } while (k3_cgroup_up(path));
    return least;
}

/* What a limit of the process's addresses (ulimit -v) leaves; UINT64_MAX: there is none. */
static uint64_t addresses_available(void)
{
    struct rlimit limit;
    unsigned long long pages = 0;
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    FILE *file = fopen("/proc/self/statm", "re");
    int is_known = file && fscanf(file, "%llu", &pages) == 1;
    if (file)
        fclose(file);
    uint64_t used = is_known ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0, most = (uint64_t)limit.rlim_cur;
    return most > used ? most - used : 1;
}

uint64_t k3_os_memory_available(int *is_guess)
{
    uint64_t least = machine_available(), limits[] = {groups_available(0), groups_available(1), addresses_available()};
    if (is_guess)
        *is_guess = !least;
    least = least ? least : half_of_the_machine();
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        least = limits[i] < least ? limits[i] : least;
    return least;
}

void k3_os_lock_limit(char *out, size_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit))
        snprintf(out, size, "unknown");
    else if (limit.rlim_cur == RLIM_INFINITY)
        snprintf(out, size, "none (ulimit -l)");
    else
        snprintf(out, size, "%llu KiB (ulimit -l)", (unsigned long long)limit.rlim_cur >> 10);
}
