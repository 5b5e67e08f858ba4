/* Who is read first, what is taken back, what is refused, and what is left behind. */
#include "faults/io/io_faults.h"
#include "io/io_files.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Reads of one piece each, in two parts of the file: wanted ones in the first, guesses in the second. */
enum { ONE = 100 * 1000, N = 12, FILE_BYTES = 2 * N * ONE, GUESSES = N * ONE, DEPTH = 2, GUESS_DEPTH = 4, MAX_EVENTS = 4096 };

static char path[256];
static unsigned char *memory;

static int make(void **state)
{
    (void)state;
    k3_io_faults("", 0);
    io_make_file(path, FILE_BYTES, 5);
    memory = io_memory(2 * N * k3_io_room(ONE));
    return 0;
}

static int remove_all(void **state)
{
    (void)state;
    k3_io_faults("", 0);
    io_remove_file(path);
    free(memory);
    return 0;
}

typedef void with_kind(k3_io_kind kind);

static void for_each_kind(with_kind *test)
{
    for (k3_io_kind kind = io_has_uring() ? K3_IO_URING : K3_IO_THREADS; kind <= K3_IO_THREADS; kind++) {
        k3_io_faults("", 0);
        test(kind);
        k3_io_faults("", 0);
    }
}

/* The i-th read of the wanted part, or of that of guesses; its tag is i, or N + i. */
static k3_io_read read_of(int file, int i, int is_guess)
{
    uint64_t tag = (uint64_t)(i + (is_guess ? N : 0));
    return (k3_io_read){
        .file = file, .is_guess = is_guess, .offset = tag * ONE, .bytes = ONE, .dst = memory + tag * k3_io_room(ONE), .tag = tag};
}

static void submit(k3_io *io, int file, int first, int n, int is_guess)
{
    k3_io_read reads[N];
    for (int i = 0; i < n; i++)
        reads[i] = read_of(file, first + i, is_guess);
    assert_int_equal(k3_io_submit(io, reads, n, NULL), K3_OK);
}

static void await_reads(uint64_t n)
{
    while (k3_io_faults_count("reads") < n)
        sched_yield();
}

static void collect_all(k3_io *io, int n)
{
    k3_io_done done[N];
    while (n) {
        int got = k3_io_collect(io, done, N, 1);
        assert_in_range(got, 1, n);
        for (int i = 0; i < got; i++) {
            k3_io_read read = read_of(0, (int)(done[i].tag % N), done[i].tag >= N);
            read.lead = read.offset % K3_IO_ALIGN;
            assert_int_equal(done[i].status, K3_OK);
            assert_int_equal(done[i].cancelled, 0);
            io_check(&read, 5);
        }
        n -= got;
    }
    assert_int_equal(k3_io_pending(io, NULL), 0);
    assert_int_equal(k3_io_collect(io, done, N, 1), 0); /* nothing to wait for */
}

static int is_guess_at(const k3_io_event *event)
{
    return event->offset + K3_IO_ALIGN > GUESSES;
}

/* After the first `before` starts of guesses no other starts until every wanted read is finished. */
static void check_log(int before, int n_wanted, int n_guesses)
{
    static k3_io_event events[MAX_EVENTS];
    int n = k3_io_faults_log(events, MAX_EVENTS), finished = 0, started = 0;
    assert_in_range(n, 1, MAX_EVENTS);
    for (int i = 0; i < n; i++) {
        int is_guess = is_guess_at(&events[i]);
        finished += !is_guess && !events[i].is_start;
        if (is_guess && events[i].is_start && started++ >= before)
            assert_int_equal(finished, n_wanted);
    }
    assert_int_equal(started, n_guesses);
    assert_int_equal(finished, n_wanted);
}

static void holds_guesses_back(k3_io_kind kind)
{
    k3_io *io = io_open(kind, DEPTH, 0);
    int file = io_add(io, path), guesses;
    k3_io_faults("hold=1", 0);
    submit(io, file, 0, N, 1);
    await_reads(DEPTH);
    submit(io, file, 0, N, 0);
    assert_int_equal(k3_io_pending(io, &guesses), 2 * N);
    assert_int_equal(guesses, N);
    assert_int_equal(k3_io_collect(io, NULL, 0, 1), 0);
    k3_io_done done;
    assert_int_equal(k3_io_collect(io, &done, 1, 0), 0); /* nothing is finished, and it does not wait */
    k3_io_faults("", 1);
    collect_all(io, 2 * N);
    check_log(DEPTH, N, N);
    k3_io_stat stat;
    k3_io_stats(io, &stat, 0);
    assert_int_equal(stat.reads, N);
    assert_int_equal(stat.guesses, N);
    assert_in_range(stat.bytes, (uint64_t)N * ONE, (uint64_t)N * (ONE + 2 * K3_IO_ALIGN));
    k3_io_close(io);
}

static void guesses_wait_for_what_is_wanted(void **state)
{
    (void)state;
    for_each_kind(holds_guesses_back);
}

static void starts_no_guess_beside(k3_io_kind kind)
{
    k3_io *io = io_open(kind, DEPTH, 0);
    int file = io_add(io, path);
    k3_io_faults("hold=1", 0);
    submit(io, file, 0, 1, 0);
    submit(io, file, 0, N, 1); /* the depth leaves room for one */
    await_reads(1);
    k3_io_faults("", 1);
    collect_all(io, N + 1);
    check_log(0, 1, N);
    k3_io_close(io);
}

static void guesses_wait_for_what_is_in_flight(void **state)
{
    (void)state;
    for_each_kind(starts_no_guess_beside);
}

/* However deep the queue may be, few guesses are in the way of what is wanted next. */
static void starts_few_guesses(k3_io_kind kind)
{
    k3_io *io = io_open(kind, 0, 0);
    int file = io_add(io, path);
    k3_io_faults("hold=1", 0);
    submit(io, file, 0, N, 1);
    await_reads(GUESS_DEPTH);
    submit(io, file, 0, N, 0);
    await_reads(GUESS_DEPTH + N);
    k3_io_faults("", 1);
    collect_all(io, 2 * N);
    check_log(GUESS_DEPTH, N, N);
    k3_io_close(io);
}

static void guesses_do_not_fill_the_queue(void **state)
{
    (void)state;
    for_each_kind(starts_few_guesses);
}

static void takes_back(k3_io_kind kind)
{
    k3_io *io = io_open(kind, DEPTH, 0);
    int file = io_add(io, path), n_cancelled = 0, guesses;
    k3_io_faults("hold=1", 0);
    submit(io, file, 0, N, 1);
    await_reads(DEPTH);
    k3_io_cancel_guesses(io);
    k3_io_cancel_guesses(io);
    assert_int_equal(k3_io_pending(io, &guesses), N);
    assert_int_equal(guesses, N);
    assert_int_equal(k3_io_want(io, N + DEPTH), 0); /* taken back is gone */
    k3_io_faults("", 1);
    k3_io_done done[N];
    for (int n = 0; n < N;) {
        int got = k3_io_collect(io, done, N, 1);
        for (int i = 0; i < got; i++) {
            assert_int_equal(done[i].status, K3_OK);
            assert_int_equal(done[i].cancelled, done[i].tag >= N + DEPTH);
            n_cancelled += done[i].cancelled;
        }
        n += got;
    }
    assert_int_equal(n_cancelled, N - DEPTH);
    assert_int_equal(k3_io_faults_count("reads"), DEPTH);
    k3_io_stat stat;
    k3_io_stats(io, &stat, 0);
    assert_int_equal(stat.guesses, DEPTH);
    assert_int_equal(stat.reads, 0);
    k3_io_close(io);
}

static void guesses_are_taken_back_until_they_start(void **state)
{
    (void)state;
    for_each_kind(takes_back);
}

static void wants(k3_io_kind kind)
{
    k3_io *io = io_open(kind, DEPTH, 0);
    int file = io_add(io, path), guesses;
    k3_io_faults("hold=1", 0);
    submit(io, file, 0, N, 1);
    await_reads(DEPTH);
    assert_int_equal(k3_io_want(io, N), 1);     /* in flight */
    assert_int_equal(k3_io_want(io, N + 7), 1); /* waiting */
    assert_int_equal(k3_io_want(io, N + 7), 1); /* wanted already */
    assert_int_equal(k3_io_want(io, 3 * N), 0);
    assert_int_equal(k3_io_pending(io, &guesses), N);
    assert_int_equal(guesses, N - 2);
    k3_io_faults("", 1);
    collect_all(io, N);
    static k3_io_event events[MAX_EVENTS];
    int n = k3_io_faults_log(events, MAX_EVENTS), starts = 0;
    for (int i = 0; i < n && starts <= DEPTH; i++)
        if (events[i].is_start && starts++ == DEPTH)
            assert_int_equal(events[i].offset, (N + 7) * ONE / K3_IO_ALIGN * K3_IO_ALIGN); /* before the guesses that came first */
    k3_io_stat stat;
    k3_io_stats(io, &stat, 0);
    assert_int_equal(stat.reads, 2);
    assert_int_equal(stat.guesses, N - 2);
    k3_io_close(io);
}

static void a_guess_becomes_wanted(void **state)
{
    (void)state;
    for_each_kind(wants);
}

enum { LONG = 8 << 20 };

/* A guess of many pieces makes way between them. */
static void interrupts_a_long_guess(k3_io_kind kind)
{
    char other[256];
    io_make_file(other, LONG, 9);
    k3_io *io = io_open(kind, 1, 0);
    int file = io_add(io, path), big = io_add(io, other);
    unsigned char *to = io_memory(LONG);
    k3_io_read guess = {.file = big, .is_guess = 1, .bytes = LONG, .dst = to, .tag = 99};
    k3_io_faults("hold=1", 0);
    assert_int_equal(k3_io_submit(io, &guess, 1, NULL), K3_OK);
    await_reads(1);
    submit(io, file, 1, 1, 0);
    k3_io_faults("", 1);
    k3_io_done done[2];
    assert_int_equal(k3_io_collect(io, &done[0], 1, 1), 1);
    assert_int_equal(k3_io_collect(io, &done[1], 1, 1), 1);
    assert_int_equal(done[0].tag, 1);
    assert_int_equal(done[1].tag, 99);
    assert_int_equal(done[1].cancelled, 0);
    io_check(&guess, 9);
    k3_io_event events[4];
    assert_true(k3_io_faults_log(events, 4) > 4);
    assert_int_equal(events[2].is_start, 1);
    assert_int_equal(events[2].offset, ONE / K3_IO_ALIGN * K3_IO_ALIGN); /* the second to start is the one that is wanted */
    k3_io_close(io);
    io_remove_file(other);
    free(to);
}

static void a_long_guess_makes_way(void **state)
{
    (void)state;
    for_each_kind(interrupts_a_long_guess);
}

/* A guess that is taken back halfway ends after the piece that is in flight, and what came of it is counted. */
static void cuts_a_long_guess(k3_io_kind kind)
{
    char other[256];
    io_make_file(other, LONG, 9);
    k3_io *io = io_open(kind, 1, 0);
    int big = io_add(io, other);
    unsigned char *to = io_memory(LONG);
    k3_io_read guess = {.file = big, .is_guess = 1, .bytes = LONG, .dst = to, .tag = 99};
    k3_io_faults("hold=1", 0);
    assert_int_equal(k3_io_submit(io, &guess, 1, NULL), K3_OK);
    await_reads(1);
    k3_io_cancel_guesses(io);
    assert_int_equal(k3_io_want(io, 99), 0);
    k3_io_faults("", 1);
    k3_io_done done;
    k3_io_stat stat;
    assert_int_equal(k3_io_collect(io, &done, 1, 1), 1);
    assert_int_equal(done.tag, 99);
    assert_int_equal(done.cancelled, 1);
    assert_int_equal(k3_io_faults_count("reads"), 1);
    k3_io_stats(io, &stat, 0);
    assert_int_equal(stat.guesses, 0);
    assert_in_range(stat.guess_bytes, 1, LONG / 2);
    k3_io_close(io);
    io_remove_file(other);
    free(to);
}

static void a_long_guess_is_taken_back_halfway(void **state)
{
    (void)state;
    for_each_kind(cuts_a_long_guess);
}

/* ---- readers that share drives ---------------------------------------------------------------------------------------------- */

static k3_io *open_beside(k3_io *other)
{
    k3_io *io;
    assert_int_equal(k3_io_open(&io, &(k3_io_config){.beside = other}, NULL), K3_OK);
    return io;
}

static void shares_drives(k3_io_kind kind)
{
    k3_io *ahead = io_open(kind, 1, 0), *now = open_beside(ahead);
    int file = io_add(ahead, path), same = io_add(now, path);
    k3_io_add_memory(ahead, memory, N * k3_io_room(ONE));
    k3_io_faults("hold=1", 0);
    submit(ahead, file, 0, 3, 0); /* the first of them is in flight */
    await_reads(1);
    submit(now, same, 0, 2, 1);
    submit(now, same, 3, 2, 0);
    k3_io_faults("", 1);
    k3_io_done done[4];
    for (int i = 0; i < 3; i++)
        assert_int_equal(k3_io_collect(ahead, &done[i], 1, 1), 1); /* each gets its own */
    for (int i = 0; i < 3; i++)
        assert_int_equal(done[i].tag, i);
    for (int i = 0; i < 4; i++)
        assert_int_equal(k3_io_collect(now, &done[i], 1, 1), 1);
    assert_true(done[0].tag == 3 && done[1].tag == 4 && done[2].tag == N && done[3].tag == N + 1);
    k3_io_event events[14];
    assert_int_equal(k3_io_faults_log(events, 14), 14);
    static const uint64_t order[] = {0, 3, 4, 1, 2, N, N + 1}; /* what is wanted now, what is read ahead, guesses */
    for (int i = 0; i < 7; i++)
        assert_int_equal(events[2 * i].offset, order[i] * ONE / K3_IO_ALIGN * K3_IO_ALIGN);
    k3_io_stat stat;
    k3_io_stats(now, &stat, 0);
    assert_int_equal(stat.reads, 2);
    assert_true(stat.drive_ns >= stat.busy_ns + stat.guess_busy_ns);
    k3_io_close(ahead); /* the other lives on, and nothing lands where the first one's memory was */
    k3_io_read read = read_of(same, 5, 0);
    assert_int_equal(io_read_one(now, &read).status, K3_OK);
    io_check(&read, 5);
    k3_io_close(now);
}

static void readers_share_drives_and_order(void **state)
{
    (void)state;
    for_each_kind(shares_drives);
}

/* A reader that goes leaves the other's reads alone, and takes its own back. */
static void leaves(k3_io_kind kind)
{
    k3_io *ahead = io_open(kind, 1, 0), *now = open_beside(ahead);
    int file = io_add(ahead, path), same = io_add(now, path);
    k3_io_faults("hold=1", 0);
    submit(ahead, file, 0, N, 0);
    await_reads(1);
    submit(now, same, 0, N, 1);
    k3_io_cancel_guesses(now);
    assert_int_equal(k3_io_pending(ahead, NULL), N);
    k3_io_close(now); /* nothing of it is in flight */
    k3_io_faults("", 1);
    collect_all(ahead, N);
    assert_int_equal(k3_io_faults_count("reads"), N);
    k3_io_close(ahead);
}

static void a_reader_that_goes_leaves_the_others_reads(void **state)
{
    (void)state;
    for_each_kind(leaves);
}

static void closes_early(k3_io_kind kind)
{
    int n_descriptors = io_n_descriptors(), n_threads = io_n_threads();
    for (int round = 0; round < 20; round++) {
        k3_io *io = io_open(kind, 0, round & 1);
        int file = io_add(io, path), none;
        assert_int_equal(k3_io_add_file(io, &none, "/nowhere/at/all", NULL), K3_E_NOT_FOUND);
        k3_io_add_memory(io, memory, 2 * N * k3_io_room(ONE));
        submit(io, file, 0, N, 0);
        submit(io, file, 0, N, 1);
        if (round % 3 == 0) {
            k3_io_done done;
            assert_int_equal(k3_io_collect(io, &done, 1, 1), 1);
        }
        k3_io_close(io);
    }
    k3_io_close(NULL);
    assert_int_equal(io_n_descriptors(), n_descriptors);
    assert_int_equal(io_n_threads(), n_threads);
}

static void closing_early_leaves_nothing(void **state)
{
    (void)state;
    for_each_kind(closes_early);
}

static void follows_links(k3_io_kind kind)
{
    char linked[256], other[] = "/dev/shm/k3-io-XXXXXX";
    snprintf(linked, sizeof linked, "%.200s.link", path);
    int fd = mkstemp(other), n_threads = io_n_threads();
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "abc", 3), 3);
    close(fd);
    assert_int_equal(symlink(other, linked), 0);
    k3_io *io = io_open(kind, 3, 0);
    int here = io_add(io, path), there = io_add(io, linked), again = io_add(io, path);
    assert_true(here == 0 && there == 1 && again == 2);
    assert_non_null(strstr(k3_io_describe(io), "depth 3, 1 files\n"));
    assert_non_null(strstr(k3_io_describe(io), "depth 3, 2 files\n"));
    /* Each drive has its own readers. */
    assert_int_equal(io_n_threads() - n_threads, kind == K3_IO_URING ? 1 : 6);
    k3_io_read read = {.file = there, .offset = 1, .bytes = 2, .dst = memory, .tag = 4};
    assert_int_equal(io_read_one(io, &read).status, K3_OK);
    assert_memory_equal(memory + read.lead, "bc", 2);
    submit(io, here, 0, N, 0);
    submit(io, again, 0, N, 1);
    collect_all(io, 2 * N);
    /* A guess of one drive waits for what is wanted of another, and no longer. */
    k3_io_faults("hold=1", 0);
    submit(io, here, 0, 1, 0);
    await_reads(1);
    read.is_guess = 1;
    assert_int_equal(k3_io_submit(io, &read, 1, NULL), K3_OK);
    k3_io_faults("", 1);
    k3_io_done done[2];
    assert_int_equal(k3_io_collect(io, &done[0], 1, 1), 1);
    assert_int_equal(k3_io_collect(io, &done[1], 1, 1), 1);
    assert_true(done[0].tag == 0 && done[1].tag == 4);
    k3_io_close(io);
    unlink(linked);
    unlink(other);
}

static void drives_are_told_apart_by_where_links_lead(void **state)
{
    (void)state;
    if (access("/dev/shm", W_OK))
        skip();
    for_each_kind(follows_links);
}

static void refuse(k3_io *io, k3_io_read read, const char *what)
{
    /* One wrong read of two: neither is taken. */
    k3_error err = {0};
    k3_io_read reads[2] = {read_of(0, 0, 0), read};
    assert_int_equal(k3_io_submit(io, reads, 2, &err), K3_E_INVALID);
    assert_non_null(strstr(err.text, what));
    assert_int_equal(k3_io_pending(io, NULL), 0);
}

static void wrong_arguments(void **state)
{
    (void)state;
    k3_io *io;
    k3_error err = {0};
    int file;
    assert_int_equal(k3_io_open(&io, &(k3_io_config){.kind = (k3_io_kind)7}, &err), K3_E_INVALID);
    assert_int_equal(k3_io_open(&io, &(k3_io_config){.depth = -1}, &err), K3_E_INVALID);
    assert_int_equal(k3_io_open(&io, &(k3_io_config){.depth = 100000}, &err), K3_E_INVALID);
    assert_null(io);
    io = io_open(K3_IO_AUTO, 0, 0);
    assert_string_equal(k3_io_describe(io), "");
    assert_int_equal(k3_io_add_file(io, &file, "/nowhere/at/all", &err), K3_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
    assert_int_equal(file, -1);
    assert_int_equal(k3_io_add_file(io, &file, "/tmp", &err), K3_E_INVALID);
    refuse(io, read_of(0, 0, 0), "file 0");
    file = io_add(io, path);
    assert_int_equal(file, 0);
    k3_io_read read = read_of(1, 0, 0);
    refuse(io, read, "file 1");
    read.file = -1;
    refuse(io, read, "file -1");
    read = read_of(0, 0, 0);
    read.bytes = 0;
    refuse(io, read, "0 bytes");
    read.bytes = UINT64_MAX;
    refuse(io, read, path);
    read = read_of(0, 0, 0);
    read.offset = UINT64_MAX - 10;
    refuse(io, read, path);
    read = read_of(0, 0, 0);
    read.dst = NULL;
    refuse(io, read, path);
    read.dst = memory + 512;
    refuse(io, read, path);
    assert_int_equal(k3_io_submit(io, NULL, -1, &err), K3_E_INVALID);
    assert_int_equal(k3_io_submit(io, NULL, 0, &err), K3_OK);
    assert_int_equal(k3_io_want(io, 0), 0);
    k3_io_cancel_guesses(io);
    submit(io, file, 0, 2, 0);
    collect_all(io, 2);
    k3_io_close(io);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guesses_wait_for_what_is_wanted),
        cmocka_unit_test(guesses_wait_for_what_is_in_flight),
        cmocka_unit_test(guesses_do_not_fill_the_queue),
        cmocka_unit_test(guesses_are_taken_back_until_they_start),
        cmocka_unit_test(a_guess_becomes_wanted),
        cmocka_unit_test(a_long_guess_makes_way),
        cmocka_unit_test(a_long_guess_is_taken_back_halfway),
        cmocka_unit_test(readers_share_drives_and_order),
        cmocka_unit_test(a_reader_that_goes_leaves_the_others_reads),
        cmocka_unit_test(closing_early_leaves_nothing),
        cmocka_unit_test(drives_are_told_apart_by_where_links_lead),
        cmocka_unit_test(wrong_arguments),
    };
    return cmocka_run_group_tests(tests, make, remove_all);
}
