/* What is read is what is in the files, whatever reads it. */
#include "io/io_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { FILE_BYTES = 9 * 1000 * 1000 + 123, SLOTS = 24, ROUNDS = 2000, MOST = 3 << 20, GUARD = 0xA5, GUARD_BYTES = K3_IO_ALIGN };

static char paths[2][256];
static const char *names[] = {"auto", "io_uring", "threads"};

static int make_files(void **state)
{
    (void)state;
    io_make_file(paths[0], FILE_BYTES, 1);
    io_make_file(paths[1], FILE_BYTES, 2);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    io_remove_file(paths[0]);
    io_remove_file(paths[1]);
    return 0;
}

static uint64_t random_below(uint64_t *state, uint64_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 20) % n;
}

/* Lengths of every size, places that often touch the ends of pages and of the file. */
static void choose(uint64_t *state, k3_io_read *read)
{
    read->bytes = 1 + random_below(state, (uint64_t)1 << (1 + random_below(state, 21)));
    if (!random_below(state, 40))
        read->bytes = 1 + random_below(state, MOST);
    read->offset = random_below(state, FILE_BYTES - read->bytes + 1);
    switch (random_below(state, 8)) {
    case 0:
        read->offset -= read->offset % K3_IO_ALIGN;
        break;
    case 1:
        read->offset = FILE_BYTES - read->bytes;
        break;
    case 2:
        if (read->offset + read->bytes > K3_IO_ALIGN && read->offset > (read->offset + read->bytes) % K3_IO_ALIGN)
            read->offset -= (read->offset + read->bytes) % K3_IO_ALIGN;
        break;
    default:
        break;
    }
}

/* Nothing is written beyond the room that a read may use. */
static unsigned char *guard_of(const k3_io_read *read)
{
    return (unsigned char *)read->dst + k3_io_room(read->bytes);
}

static void check_guard(const k3_io_read *read)
{
    for (int i = 0; i < GUARD_BYTES; i++)
        if (guard_of(read)[i] != GUARD)
            fail_msg("byte %d after the room of %llu bytes was written", i, (unsigned long long)read->bytes);
}

static void read_at_random(k3_io_kind kind, int buffered, int registered)
{
    enum { ROOM = MOST + 4 * K3_IO_ALIGN };
    uint64_t state = 7 + (uint64_t)kind, bytes = 0;
    k3_io *io = io_open(kind, 0, buffered);
    int files[2] = {io_add(io, paths[0]), io_add(io, paths[1])}, free_slots[SLOTS], n_free = SLOTS, submitted = 0;
    char *memory = io_memory((uint64_t)SLOTS * ROOM);
    k3_io_read reads[SLOTS];
    k3_io_done done[SLOTS];
    if (registered)
        k3_io_add_memory(io, memory, (uint64_t)SLOTS * ROOM);
    for (int i = 0; i < SLOTS; i++)
        free_slots[i] = i;
    for (int finished = 0; finished < ROUNDS;) {
        for (; n_free && submitted < ROUNDS; submitted++) {
            int slot = free_slots[--n_free];
            k3_io_read *read = &reads[slot];
            memset(read, 0, sizeof *read);
            read->lead = 99999;
            read->tag = (uint64_t)slot;
            read->file = files[random_below(&state, 2)];
            read->is_guess = !random_below(&state, 4);
            read->dst = memory + (uint64_t)slot * ROOM;
            choose(&state, read);
            memset(guard_of(read), GUARD, GUARD_BYTES);
            assert_int_equal(k3_io_submit(io, read, 1, NULL), K3_OK);
        }
        int n = k3_io_collect(io, done, SLOTS, 1);
        assert_in_range(n, 1, SLOTS);
        for (int i = 0; i < n; i++, finished++) {
            k3_io_read *read = &reads[done[i].tag];
            assert_string_equal(done[i].text, "");
            assert_int_equal(done[i].status, K3_OK);
            assert_int_equal(done[i].cancelled, 0);
            io_check(read, read->file == files[0] ? 1 : 2);
            check_guard(read);
            bytes += read->bytes;
            free_slots[n_free++] = (int)done[i].tag;
        }
    }
    k3_io_stat stat;
    k3_io_stats(io, &stat, 1);
    assert_int_equal(stat.reads + stat.guesses, ROUNDS);
    assert_in_range(stat.bytes + stat.guess_bytes, bytes, bytes + (uint64_t)ROUNDS * 2 * K3_IO_ALIGN);
    assert_true(stat.guesses > 0 && stat.guess_bytes > 0);
    assert_true(stat.busy_ns > 0 && stat.guess_busy_ns > 0);
    assert_int_equal(stat.retries, 0);
    k3_io_stats(io, &stat, 0);
    assert_int_equal(stat.reads + stat.guesses + stat.bytes + stat.guess_bytes + stat.busy_ns + stat.guess_busy_ns, 0);
    assert_int_equal(k3_io_pending(io, NULL), 0);
    assert_string_equal(k3_io_notice(io), "");
    if (kind != K3_IO_AUTO)
        assert_non_null(strstr(k3_io_describe(io), names[kind]));
    assert_non_null(strstr(k3_io_describe(io), buffered ? "buffered" : "direct"));
    k3_io_close(io);
    free(memory);
}

static void random_reads_by_io_uring(void **state)
{
    (void)state;
    if (!io_has_uring())
        skip();
    read_at_random(K3_IO_URING, 0, 0);
    read_at_random(K3_IO_URING, 0, 1);
    read_at_random(K3_IO_URING, 1, 1);
}

static void random_reads_by_threads(void **state)
{
    (void)state;
    read_at_random(K3_IO_THREADS, 0, 0);
    read_at_random(K3_IO_THREADS, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_reads_by_io_uring),
        cmocka_unit_test(random_reads_by_threads),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
