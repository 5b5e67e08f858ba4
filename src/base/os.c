#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef __APPLE__
#include <mach/mach.h>
#endif

/* First integer of a small text file; 0 if there is none (also for "max"). */
static int read_number(long long *out, const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    int found = fscanf(file, "%lld", out) == 1;
    fclose(file);
    return found;
}

/* Path of this process's cgroup in hierarchy v2, or of a v1 controller; 0 if there is none. */
static int cgroup_path(char *out, size_t size, const char *controller)
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
            found = snprintf(out, size, "/sys/fs/cgroup%s", path) < (int)size;
        if (controller && strstr(names, controller))
            found = snprintf(out, size, "/sys/fs/cgroup/%s%s", controller, path) < (int)size;
    }
    fclose(file);
    return found;
}

/* Number `name` of the nearest group that has one, from the process's own group up to the root. */
static int cgroup_number(long long *out, const char *controller, const char *name)
{
    char path[1200], full[1400];
    if (!cgroup_path(path, sizeof path, controller))
        return 0;
    for (;;) {
        snprintf(full, sizeof full, "%s/%s", path, name);
        if (read_number(out, full))
            return 1;
        char *slash = strrchr(path, '/');
        if (!slash || strlen(path) <= strlen("/sys/fs/cgroup"))
            return 0;
        *slash = 0;
    }
}

static int quota_cores(void)
{
    char path[1200], full[1400];
    long long quota = 0, period = 0;
    if (cgroup_path(path, sizeof path, NULL)) {
        snprintf(full, sizeof full, "%s/cpu.max", path);
        FILE *file = fopen(full, "re");
        if (file) {
            int n = fscanf(file, "%lld %lld", &quota, &period);
            fclose(file);
            if (n == 2 && quota > 0 && period > 0)
                return (int)((quota + period - 1) / period);
        }
    }
    if (cgroup_number(&quota, "cpu", "cpu.cfs_quota_us") && cgroup_number(&period, "cpu", "cpu.cfs_period_us") && quota > 0 && period > 0)
        return (int)((quota + period - 1) / period);
    return 0;
}

int k3_os_cores(void)
{
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        cores = CPU_COUNT(&set);
#endif
    int quota = quota_cores();
    if (quota > 0 && quota < cores)
        cores = quota;
    return cores < 1 ? 1 : cores;
}

#ifdef __APPLE__
/* Free pages, those of files, and those that their owners can do without. */
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
static uint64_t machine_available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[256];
    unsigned long long kib = 0;
    if (!file) {
#ifdef _SC_AVPHYS_PAGES
        return (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
#else
        return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
#endif
    }
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            break;
    fclose(file);
    return (uint64_t)kib << 10;
}
#endif

uint64_t k3_os_memory_available(void)
{
    uint64_t available = machine_available();
    long long limit = 0, used = 0;
    int v2 = cgroup_number(&limit, NULL, "memory.max") && cgroup_number(&used, NULL, "memory.current");
    int v1 = !v2 && cgroup_number(&limit, "memory", "memory.limit_in_bytes") && cgroup_number(&used, "memory", "memory.usage_in_bytes");
    if (v2 || v1) {
        /* The group's usage counts page cache, which the kernel drops on demand; what is left when it is added back may not exceed the
         * limit. */
        uint64_t left = limit > used ? (uint64_t)(limit - used) : 0;
        char path[1200], full[1400], line[256];
        unsigned long long file_bytes = 0;
        if (cgroup_path(path, sizeof path, v2 ? NULL : "memory")) {
            snprintf(full, sizeof full, "%s/memory.stat", path);
            FILE *file = fopen(full, "re");
            while (file && fgets(line, sizeof line, file))
                if (sscanf(line, v2 ? "file %llu" : "total_cache %llu", &file_bytes) == 1)
                    break;
            if (file)
                fclose(file);
        }
        left += file_bytes;
        if (left > (uint64_t)limit)
            left = (uint64_t)limit;
        if (left < available)
            available = left;
    }
    return available;
}

uint64_t k3_os_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void k3_os_yield(void)
{
    sched_yield();
}

void k3_os_allow_files(void)
{
#ifdef OPEN_MAX
    rlim_t most = OPEN_MAX; /* macOS refuses more, whatever its limit says */
#else
    rlim_t most = 65536;
#endif
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= most || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max < most ? limit.rlim_max : most;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* whoever cannot open a file then says so */
}

int k3_os_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static k3_status read_all(char *text, size_t n, int fd, const char *path, k3_error *err)
{
    for (size_t at = 0; at < n;) {
        ssize_t got = read(fd, text + at, n - at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return k3_fail(err, K3_E_IO, "%s: %s after %zu of %zu bytes", path, got < 0 ? strerror(errno) : "end of file", at, n);
        at += (size_t)got;
    }
    return K3_OK;
}

k3_status k3_os_read_file(char **text, size_t *n_bytes, const char *path, uint64_t max_bytes, k3_error *err)
{
    *text = NULL;
    *n_bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe is refused below, not waited for */
    if (fd < 0)
        return k3_fail(err, errno == ENOENT ? K3_E_NOT_FOUND : K3_E_IO, "%s: %s", path, strerror(errno));
    struct stat st;
    k3_status status = K3_OK;
    if (fstat(fd, &st))
        status = k3_fail(err, K3_E_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = k3_fail(err, K3_E_IO, "%s: not a regular file", path);
    else if ((uint64_t)st.st_size > max_bytes)
        status = k3_fail(err, K3_E_FORMAT, "%s: %llu bytes, at most %llu are read", path, (unsigned long long)st.st_size,
                         (unsigned long long)max_bytes);
    size_t n = status == K3_OK ? (size_t)st.st_size : 0;
    char *buffer = status == K3_OK ? malloc(n + 1) : NULL;
    if (status == K3_OK && !buffer)
        status = k3_fail(err, K3_E_NOMEM, "%s: no memory for %zu bytes", path, n);
    if (status == K3_OK)
        status = read_all(buffer, n, fd, path, err);
    close(fd);
    if (status != K3_OK) {
        free(buffer);
        return status;
    }
    buffer[n] = 0;
    *text = buffer;
    *n_bytes = n;
    return K3_OK;
}
