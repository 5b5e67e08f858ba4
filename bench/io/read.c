/* bench_io FILE [BYTES [READS [KIND [DEPTH [buffered]]]]]: reads of BYTES at random offsets of a file, as experts are read. KIND is uring
 * or threads. To be compared with fio: docs/performance.md has the commands. */
#include "io/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { SLOTS = 32 };

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static double cpu_seconds(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) + 1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* Keeps SLOTS reads wanted until n were finished. */
static k3_status read_all(k3_io *io, k3_io_read read, char *memory, int n, uint64_t file_bytes, k3_error *err)
{
    k3_io_done done[SLOTS];
    uint64_t state = 1, slot_bytes = k3_io_room(read.bytes);
    int submitted = 0, finished = 0;
    for (; submitted < SLOTS && submitted < n; submitted++) {
        read.tag = (uint64_t)submitted;
        read.dst = memory + slot_bytes * read.tag;
        read.offset = next_random(&state) % ((file_bytes - read.bytes) / K3_IO_ALIGN) * K3_IO_ALIGN;
        K3_TRY(k3_io_submit(io, &read, 1, err));
    }
    while (finished < n) {
        int got = k3_io_collect(io, done, SLOTS, 1);
        for (int i = 0; i < got; i++, finished++) {
            if (done[i].status != K3_OK)
                return k3_fail(err, done[i].status, "%s", done[i].text);
            if (submitted++ >= n)
                continue;
            read.tag = done[i].tag;
            read.dst = memory + slot_bytes * read.tag;
            read.offset = next_random(&state) % ((file_bytes - read.bytes) / K3_IO_ALIGN) * K3_IO_ALIGN;
            K3_TRY(k3_io_submit(io, &read, 1, err));
        }
    }
    return K3_OK;
}

int main(int argc, char **argv)
{
    struct stat st;
    if (argc < 2 || stat(argv[1], &st)) {
        fprintf(stderr, "usage: bench_io FILE [BYTES [READS [uring|threads [DEPTH [buffered]]]]]\n");
        return 2;
    }
    k3_io_read read = {.bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 4386816};
    int n = argc > 3 ? atoi(argv[3]) : 2000;
    k3_io_config config = {.kind = argc > 4 && !strcmp(argv[4], "threads") ? K3_IO_THREADS : K3_IO_AUTO,
                           .depth = argc > 5 ? atoi(argv[5]) : 0,
                           .buffered = argc > 6};
    uint64_t memory_bytes = SLOTS * k3_io_room(read.bytes);
    void *memory = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    k3_error err = {0};
    k3_io *io = NULL;
    k3_io_stat stat;
    if (memory == MAP_FAILED || k3_io_open(&io, &config, &err) != K3_OK || k3_io_add_file(io, &read.file, argv[1], &err) != K3_OK) {
        fprintf(stderr, "bench_io: %s\n", err.text);
        return 1;
    }
    memset(memory, 1, memory_bytes);
    k3_io_add_memory(io, memory, memory_bytes);
    double cpu = cpu_seconds();
    if (read_all(io, read, memory, n, (uint64_t)st.st_size, &err) != K3_OK) {
        fprintf(stderr, "bench_io: %s\n", err.text);
        return 1;
    }
    cpu = cpu_seconds() - cpu;
    k3_io_stats(io, &stat, 0);
    double seconds = 1e-9 * (double)stat.busy_ns;
    printf("%s%s%llu bytes, %llu reads: %.1f MB/s, %.2f s, %.3f s of processor a GB\n", k3_io_notice(io), k3_io_describe(io),
           (unsigned long long)read.bytes, (unsigned long long)stat.reads, 1e-6 * (double)stat.bytes / seconds, seconds,
           cpu / (1e-9 * (double)stat.bytes));
    k3_io_close(io);
    return 0;
}
