/* What is believed of the machine: free memory, and nodes of memory, on machines that are files below a folder. */
#include "base/nodes.h"
#include "base/os.h"
#include "base/pool.h"
#include "faults/calls/calls.h"
#include "support/mock_machine.h"
#include "support/tiny_checkpoint.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static const uint64_t GiB = (uint64_t)1 << 30;
static char *folder;

/* ---- free memory --------------------------------------------------------------------------------------------------------- */

static uint64_t half_of_this_machine(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
}

/* Case F04: a probe that gives nothing, or 0, has failed. */
static void F04_free_memory_that_is_not_known_is_no_zero(void **state)
{
    (void)state;
    static const char *const meminfo[] = {"MemTotal: 5 kB\n", "MemAvailable: 0 kB\n", "MemAvailable: much\n", ""};
    int is_guess = 0;
    calls.machine = folder; /* without any file */
    assert_true(k3_os_memory_available(&is_guess) == half_of_this_machine());
    assert_int_equal(is_guess, 1);
    for (size_t i = 0; i < sizeof meminfo / sizeof *meminfo; i++) {
        mock_put(folder, "/proc/meminfo", meminfo[i]);
        is_guess = 0;
        assert_true(k3_os_memory_available(&is_guess) == half_of_this_machine());
        assert_int_equal(is_guess, 1);
    }
    assert_true(k3_os_memory_available(NULL) == half_of_this_machine());
    /* The limit of a group is known all the same. */
    mock_memory(folder, 0, 2, GiB / 4, GiB / 16, 0);
    assert_true(k3_os_memory_available(&is_guess) == GiB / 4 - GiB / 16 && is_guess);
    mock_memory(folder, 3 * GiB, 0, 0, 0, 0);
    assert_true(k3_os_memory_available(&is_guess) == 3 * GiB && !is_guess);
}

/* Case F05. The limit is that of the group above the process's own. */
static void F05_page_cache_is_free_memory(void **state)
{
    (void)state;
    calls.machine = folder;
    for (int version = 1; version <= 2; version++) {
        mock_memory(folder, 64 * GiB, version, 8 * GiB, GiB, 0);
        uint64_t empty = k3_os_memory_available(NULL);
        mock_memory(folder, 64 * GiB, version, 8 * GiB, 8 * GiB, 7 * GiB);
        assert_true(empty == 7 * GiB && k3_os_memory_available(NULL) == empty);
        mock_memory(folder, 64 * GiB, version, 8 * GiB, 8 * GiB, 0); /* what is no page cache is taken */
        assert_true(k3_os_memory_available(NULL) == 0);
        mock_memory(folder, 2 * GiB, version, 8 * GiB, GiB, 0); /* the machine has less */
        assert_true(k3_os_memory_available(NULL) == 2 * GiB);
        mock_memory(folder, 64 * GiB, version, 8 * GiB, GiB, 4 * GiB); /* counters that do not fit together */
        assert_true(k3_os_memory_available(NULL) == 8 * GiB);
    }
}

/* Beyond memory.high a group is slowed down until it has given memory back; the lowest limit of all groups counts. */
static void a_limit_that_slows_down_is_one(void **state)
{
    (void)state;
    calls.machine = folder;
    mock_memory(folder, 64 * GiB, 2, 8 * GiB, GiB, 0);
    mock_put(folder, "/sys/fs/cgroup/a/memory.high", "max\n");
    assert_true(k3_os_memory_available(NULL) == 7 * GiB);
    mock_put(folder, "/sys/fs/cgroup/a/memory.high", "4294967296\n");
    assert_true(k3_os_memory_available(NULL) == 3 * GiB);
    mock_put(folder, "/sys/fs/cgroup/a/b/memory.high", "2147483648\n"); /* of which half a GiB is used */
    assert_true(k3_os_memory_available(NULL) == 3 * GiB / 2);
}

/* ---- nodes of memory ------------------------------------------------------------------------------------------------------- */

/* A scheduler that agrees to everything. */
static uint64_t allowed; /* bits of cores */
static int here;
static _Thread_local uint64_t kept_to;
static _Atomic int n_kept_to[64]; /* threads, by their first core */
static uint64_t dealt_to;         /* bits of nodes */

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    (void)pid;
    memset(set, 0, size);
    for (int i = 0; i < 64; i++)
        if (allowed >> i & 1)
            CPU_SET(i, set);
    return 0;
}

int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set)
{
    (void)pid;
    (void)size;
    kept_to = 0;
    for (int i = 63; i >= 0; i--)
        kept_to = kept_to << 1 | (CPU_ISSET(i, set) ? 1 : 0);
    for (int i = 0; i < 64; i++)
        if (kept_to >> i & 1) {
            n_kept_to[i]++;
            break;
        }
    return 0;
}

int sched_getcpu(void)
{
    return here;
}

/* Only the product's own calls come here, and they place memory. */
long syscall(long number, ...)
{
    va_list args;
    va_start(args, number);
    (void)va_arg(args, void *);
    assert_int_equal(number, SYS_mbind);
    assert_int_equal(va_arg(args, size_t), 8192);
    assert_int_equal(va_arg(args, int), MPOL_INTERLEAVE);
    dealt_to = *va_arg(args, const uint64_t *);
    va_end(args);
    return 0;
}

static void put_node(int node, const char *cores)
{
    char path[80];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    mock_put(folder, path, cores);
}

/* The cores that each of n threads keeps to, "" where nobody is placed; and the nodes that memory is dealt to. */
static void check_places(int n_threads, const char *wanted, uint64_t wanted_nodes)
{
    char got[512] = "";
    k3_nodes *nodes = k3_nodes_open(n_threads, folder);
    for (int i = 0; nodes && i < n_threads; i++) {
        k3_nodes_enter(nodes, i);
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%llx", i ? " " : "", (unsigned long long)kept_to);
    }
    dealt_to = 0;
    k3_nodes_spread(nodes, got, 8192);
    k3_nodes_close(nodes);
    assert_string_equal(got, wanted);
    assert_true(dealt_to == wanted_nodes);
}

/* Case F21: ids of a node's cores are not consecutive, and 0x55 are those of node 0 here. */
static void F21_threads_fill_node_after_node_of_a_machine_with_interleaved_ids(void **state)
{
    (void)state;
    allowed = 0xff;
    here = 0;
    mock_put(folder, "/sys/devices/system/node/possible", "0-5\n");
    put_node(0, "0,2,4,6\n");
    put_node(1, "1,3,5,7\n");
    put_node(5, "\n"); /* memory without cores */
    check_places(1, "55", 1);
    check_places(4, "55 55 55 55", 1);
    check_places(5, "55 55 55 55 aa", 3);
    check_places(8, "55 55 55 55 aa aa aa aa", 3);
    check_places(9, "", 0); /* more threads than cores */
    here = 3;               /* the caller's node is the first */
    check_places(4, "aa aa aa aa", 2);
    check_places(6, "aa aa aa aa 55 55", 3);
    allowed = 0x2f; /* node 0 has 0 and 2 left, node 1 has 1, 3 and 5 */
    here = 0;
    check_places(2, "2a 2a", 2);
    check_places(5, "2a 2a 2a 5 5", 3);
    allowed = 0x55; /* one node is left: nothing to decide */
    check_places(4, "", 0);
}

static void F21_a_machine_of_one_node_is_left_to_the_system(void **state)
{
    (void)state;
    allowed = 0xff;
    here = 0;
    check_places(4, "", 0); /* it tells of no nodes */
    put_node(0, "0-7\n");
    check_places(4, "", 0);
    put_node(1, "no cores, but words\n");
    check_places(4, "", 0);
    memset(n_kept_to, 0, sizeof n_kept_to);
    k3_pool *pool;
    assert_int_equal(k3_pool_open_at(&pool, 4, folder, NULL), K3_OK);
    k3_pool_close(pool);
    for (int i = 0; i < 64; i++)
        assert_int_equal(n_kept_to[i], 0);
}

/* The caller's thread is the first, and is nobody's to move. */
static void F21_threads_of_the_pool_are_placed(void **state)
{
    (void)state;
    k3_pool *pool;
    allowed = 0xff;
    here = 1;
    memset(n_kept_to, 0, sizeof n_kept_to);
    put_node(0, "0-1,4-5\n");
    put_node(1, "2-3,6-7\n");
    assert_int_equal(k3_pool_open_at(&pool, 6, folder, NULL), K3_OK);
    dealt_to = 0;
    k3_pool_spread(pool, pool, 8192);
    k3_pool_close(pool);
    assert_int_equal(n_kept_to[0], 3);
    assert_int_equal(n_kept_to[2], 2);
    assert_true(dealt_to == 3);
}

/* ---- shares of cores' time --------------------------------------------------------------------------------------------------- */

static void every_group_above_limits_the_cores(void **state)
{
    (void)state;
    calls.machine = folder;
    allowed = 0xffff;
    assert_int_equal(k3_os_cores(), 16); /* no file, no limit */
    mock_put(folder, "/proc/self/cgroup", "0::/a/b/c\n");
    mock_put(folder, "/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
    assert_int_equal(k3_os_cores(), 16);
    mock_put(folder, "/sys/fs/cgroup/a/cpu.max", "550000 100000\n"); /* b says nothing */
    assert_int_equal(k3_os_cores(), 6);
    mock_put(folder, "/sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
    assert_int_equal(k3_os_cores(), 6);
    mock_put(folder, "/sys/fs/cgroup/a/b/cpu.max", "20000 10000\n");
    assert_int_equal(k3_os_cores(), 2);
    mock_put(folder, "/sys/fs/cgroup/cpu.max", "50000 100000\n"); /* as a container sees its own group */
    assert_int_equal(k3_os_cores(), 1);
    mock_put(folder, "/proc/self/cgroup", "3:cpu,cpuacct:/x/y\n0::/none\n");
    mock_put(folder, "/sys/fs/cgroup/cpu.max", "max 100000\n");
    mock_put(folder, "/sys/fs/cgroup/cpu/x/y/cpu.cfs_quota_us", "-1\n");
    mock_put(folder, "/sys/fs/cgroup/cpu/x/y/cpu.cfs_period_us", "100000\n");
    assert_int_equal(k3_os_cores(), 16);
    mock_put(folder, "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "250000\n");
    mock_put(folder, "/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(k3_os_cores(), 3);
    allowed = 3;
    assert_int_equal(k3_os_cores(), 2);
}

/* ---- set-up ---------------------------------------------------------------------------------------------------------------- */

static int make_folder(void **state)
{
    (void)state;
    calls_reset();
    folder = tiny_folder();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    calls_reset();
    tiny_remove_folder(folder);
    return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(F04_free_memory_that_is_not_known_is_no_zero),
        TEST(F05_page_cache_is_free_memory),
        TEST(a_limit_that_slows_down_is_one),
        TEST(every_group_above_limits_the_cores),
        TEST(F21_threads_fill_node_after_node_of_a_machine_with_interleaved_ids),
        TEST(F21_a_machine_of_one_node_is_left_to_the_system),
        TEST(F21_threads_of_the_pool_are_placed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
