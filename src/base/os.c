#include "base/os.h"

#include "base/cgroup.h"

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

/* Cores whose time one group may use, rounded up; 0: it has no limit. */
static long long group_cores(const char *path, int is_v2)
{
    long long quota = 0, period = 0;
    int is_known = is_v2 ? k3_cgroup_numbers(&quota, &period, path, "cpu.max")
                         : k3_cgroup_number(&quota, path, "cpu.cfs_quota_us") && k3_cgroup_number(&period, path, "cpu.cfs_period_us");
    return is_known && quota > 0 && period > 0 ? (quota - 1) / period + 1 : 0;
}

/* The least of what the process's own group and each above it may use; `most`: none has a lower limit. */
static int quota_cores(int most)
{
    char path[1200];
    for (int is_v2 = 0; is_v2 < 2; is_v2++) {
        if (!k3_cgroup_path(path, sizeof path, is_v2 ? NULL : "cpu"))
            continue;
        do {
            long long cores = group_cores(path, is_v2);
            most = cores > 0 && cores < most ? (int)cores : most;
        } while (k3_cgroup_up(path));
    }
    return most;
}

int k3_os_cores(void)
{
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        cores = CPU_COUNT(&set);
#endif
    return quota_cores(cores < 1 ? 1 : cores);
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
