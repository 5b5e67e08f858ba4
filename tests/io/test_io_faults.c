/* Drives and file systems that fail: what is read is right, or an error says which file, where, what was wanted and what came. The names
 * G01 to G15 are those of the cases that users reported. */
#include "faults/io/io_faults.h"
#include "io/io_files.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { FILE_BYTES = 6000 * 1000 + 77, BIG = 3 << 20 };

static char path[256];
static unsigned char *memory;

static int make(void **state)
{
    (void)state;
    k3_io_faults("", 0);
    io_make_file(path, FILE_BYTES, 3);
    memory = io_memory(BIG);
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

/* Every test runs for each way of reading that there is here. */
typedef void with_kind(k3_io_kind kind, int buffered);

static void for_each_kind(with_kind *test)
{
    k3_io_faults("", 0);
    for (int i = io_has_uring() ? 0 : 2; i < 4; i++)
        test(i < 2 ? K3_IO_URING : K3_IO_THREADS, i & 1);
    k3_io_faults("", 0);
}

static k3_io_read read_of(int file, uint64_t offset, uint64_t bytes)
{
    return (k3_io_read){.file = file, .offset = offset, .bytes = bytes, .dst = memory, .tag = offset};
}

/* A few reads of all kinds; they are right. */
static void expect_right(k3_io *io, int file)
{
    static const uint64_t places[][2] = {{0, 1}, {4095, 2}, {12345, 700}, {8192, 4096}, {777, BIG - 4096}, {FILE_BYTES - 5000, 5000}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        k3_io_read read = read_of(file, places[i][0], places[i][1]);
        memset(memory, 0, k3_io_room(read.bytes));
        k3_io_done done = io_read_one(io, &read);
        assert_string_equal(done.text, "");
        assert_int_equal(done.status, K3_OK);
        io_check(&read, 3);
    }
}

static int n_lines(const char *text)
{
    int n = 0;
    for (; (text = strchr(text, '\n')); text++)
        n++;
    return n;
}

/* ---- G01: short reads, interruptions ---------------------------------------------------------------------------------- */

static void gives_too_little(k3_io_kind kind, int buffered)
{
    static const char *faults[] = {"short=2", "short=3", "short=2,eintr=3", "eintr=2", "eagain=2", "short=5,eagain=4,eintr=3"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        k3_io *io = io_open(kind, 0, buffered);
        int file = io_add(io, path);
        k3_io_faults(faults[i], 0);
        expect_right(io, file);
        assert_true(k3_io_faults_count("faults") > 6);
        k3_io_faults("", 0);
        expect_right(io, file);
        k3_io_close(io);
    }
}

static void G01_short_and_interrupted_reads_go_on(void **state)
{
    (void)state;
    for_each_kind(gives_too_little);
}

static void gives_a_byte(k3_io_kind kind, int buffered)
{
    k3_io *io = io_open(kind, 0, buffered);
    k3_io_read read = read_of(io_add(io, path), 4096 + 100, 300);
    k3_io_faults("short=1000000", 0);
    k3_io_done done = io_read_one(io, &read);
    assert_int_equal(done.status, K3_OK);
    assert_int_equal(k3_io_faults_count("reads"), 400); /* from the start of the page to the last byte that is wanted */
    io_check(&read, 3);
    k3_io_close(io);
}

static void G01_a_byte_at_a_time(void **state)
{
    (void)state;
    for_each_kind(gives_a_byte);
}

static void interrupts_always(k3_io_kind kind, int buffered)
{
    static const char *faults[] = {"eintr=1", "eagain=1"};
    for (int i = 0; i < 2; i++) {
        k3_io *io = io_open(kind, 0, buffered);
        k3_io_read read = read_of(io_add(io, path), 5000, 300);
        k3_io_faults(faults[i], 0);
        k3_io_done done = io_read_one(io, &read);
        assert_int_equal(done.status, K3_E_IO);
        assert_non_null(strstr(done.text, strerror(i ? EAGAIN : EINTR)));
        k3_io_close(io);
    }
}

static void G01_what_is_always_interrupted_ends(void **state)
{
    (void)state;
    for_each_kind(interrupts_always);
}

/* ---- G03: direct reads that are refused ------------------------------------------------------------------------------- */

static void refuses_direct(k3_io_kind kind, int buffered)
{
    static const char *faults[] = {"no_direct=1", "no_direct_reads=1", "no_direct_reads=3", "no_direct_reads=4,short=3"};
    if (buffered)
        return;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        k3_io *io = io_open(kind, 0, 0);
        k3_io_faults(faults[i], 0);
        int file = io_add(io, path);
        (void)io_add(io, path);
        assert_int_equal(*k3_io_notice(io) != 0, i < 2); /* the others are refused later */
        expect_right(io, file);
        if (i < 2)
            assert_non_null(strstr(k3_io_describe(io), "buffered"));
        assert_int_equal(n_lines(k3_io_notice(io)), 1);
        assert_non_null(strstr(k3_io_notice(io), path));
        assert_true(k3_io_faults_count("dropped") >= BIG);
        k3_io_stat stat;
        k3_io_stats(io, &stat, 0);
        assert_int_equal(stat.reads, 6);
        assert_int_equal(stat.retries, 0);
        k3_io_close(io);
    }
}

static void G03_direct_reads_refused_at_open_or_later(void **state)
{
    (void)state;
    for_each_kind(refuses_direct);
}

static void reads_memory_file(k3_io_kind kind, int buffered)
{
    char other[] = "/dev/shm/k3-io-XXXXXX";
    int fd = mkstemp(other);
    unsigned char *bytes = malloc(FILE_BYTES);
    assert_true(fd >= 0 && bytes);
    io_fill(bytes, 0, FILE_BYTES, 3);
    assert_int_equal(write(fd, bytes, FILE_BYTES), FILE_BYTES);
    k3_io *io = io_open(kind, 0, buffered);
    expect_right(io, io_add(io, other));
    expect_right(io, io_add(io, path));
    assert_int_equal(n_lines(k3_io_describe(io)), 2); /* two drives */
    assert_in_range(n_lines(k3_io_notice(io)), 0, 1);
    k3_io_close(io);
    close(fd);
    unlink(other);
    free(bytes);
}

static void G03_a_file_system_in_memory(void **state)
{
    (void)state;
    if (access("/dev/shm", W_OK))
        skip();
    for_each_kind(reads_memory_file);
}

/* ---- G05: more than one request can give ------------------------------------------------------------------------------ */

static void reads_2_5_gb(k3_io_kind kind, int buffered)
{
    enum { WINDOW = 32 << 20 };
    if (buffered)
        return;
    const uint64_t bytes = 2500ull << 20, at = 5ull << 30;
    char sparse[256];
    snprintf(sparse, sizeof sparse, "%.200s.sparse", path);
    int fd = open(sparse, O_RDWR | O_CREAT | O_TRUNC, 0600), window = memfd_create("k3-io", 0);
    assert_true(fd >= 0 && window >= 0);
    assert_int_equal(ftruncate(fd, (off_t)(at + bytes)), 0);
    assert_int_equal(pwrite(fd, "end", 3, (off_t)(at + bytes - 3)), 3);
    assert_int_equal(ftruncate(window, WINDOW), 0);
    /* The same memory again and again, but for the last stretch, which is looked at. */
    uint64_t room = (k3_io_room(bytes) + WINDOW - 1) / WINDOW * WINDOW, last = room - 2 * WINDOW;
    char *to = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(to != MAP_FAILED);
    for (uint64_t i = 0; i < last; i += WINDOW)
        assert_true(mmap(to + i, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, window, 0) != MAP_FAILED);
    k3_io *io = io_open(kind, 0, buffered);
    k3_io_read read = read_of(io_add(io, sparse), at, bytes);
    read.dst = to;
    k3_io_faults("", 0);
    k3_io_done done = io_read_one(io, &read);
    assert_string_equal(done.text, "");
    assert_int_equal(done.status, K3_OK);
    assert_memory_equal(to + bytes - 3, "end", 3);
    assert_in_range(k3_io_faults_count("longest"), 4096, K3_IO_MAX_BYTES);
    assert_in_range(k3_io_faults_count("bytes"), bytes, bytes + 8 * K3_IO_ALIGN);
    k3_io_stat stat;
    k3_io_stats(io, &stat, 0);
    assert_int_equal(stat.bytes, bytes);
    k3_io_close(io);
    munmap(to, room);
    close(fd);
    close(window);
    unlink(sparse);
}

static void G05_a_read_of_2_5_gb_beyond_4_gb(void **state)
{
    (void)state;
    for_each_kind(reads_2_5_gb);
}

/* ---- G07: files that change ------------------------------------------------------------------------------------------- */

static void copy_file(char to[256], const char *suffix)
{
    unsigned char *bytes = malloc(FILE_BYTES);
    assert_non_null(bytes);
    io_fill(bytes, 0, FILE_BYTES, 3);
    snprintf(to, 256, "%.200s%s", path, suffix);
    FILE *f = fopen(to, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, FILE_BYTES, f), FILE_BYTES);
    assert_int_equal(fclose(f), 0);
    free(bytes);
}

static void is_cut(k3_io_kind kind, int buffered)
{
    char copy[256];
    copy_file(copy, ".cut");
    k3_io *io = io_open(kind, 1, buffered);
    k3_io_read read = read_of(io_add(io, copy), 4096, BIG - 4096);
    k3_io_faults("cut=2,cut_to=1500000", 0);
    k3_io_done done = io_read_one(io, &read);
    assert_int_equal(k3_io_faults_count("faults"), 1);
    assert_int_equal(done.status, K3_E_IO);
    assert_non_null(strstr(done.text, ".cut"));
    assert_non_null(strstr(done.text, "1500000"));
    assert_non_null(strstr(done.text, "changed"));
    k3_io_stat stat;
    k3_io_stats(io, &stat, 0);
    assert_int_equal(stat.reads, 0);
    /* What is before the cut is not taken either: nobody knows what it belongs to. */
    read = read_of(read.file, 0, 100);
    done = io_read_one(io, &read);
    assert_int_equal(done.status, K3_E_IO);
    assert_non_null(strstr(done.text, "6000077 bytes when it was opened, 1500000 now"));
    k3_io_close(io);
    unlink(copy);
}

static void G07_a_file_that_is_cut_while_it_is_read(void **state)
{
    (void)state;
    for_each_kind(is_cut);
}

static void is_replaced(k3_io_kind kind, int buffered)
{
    char copy[256], other[256];
    copy_file(copy, ".old");
    snprintf(other, sizeof other, "%.200s.new", path);
    k3_io *io = io_open(kind, 0, buffered);
    int file = io_add(io, copy);
    FILE *f = fopen(other, "wb");
    assert_true(f && fputs("something else", f) >= 0);
    fclose(f);
    assert_int_equal(rename(other, copy), 0);
    expect_right(io, file); /* the file that was opened, whole */
    k3_io_close(io);
    unlink(copy);
}

static void G07_a_file_that_is_replaced_stays_what_it_was(void **state)
{
    (void)state;
    for_each_kind(is_replaced);
}

static void is_rewritten(k3_io_kind kind, int buffered)
{
    char copy[256];
    copy_file(copy, ".edited");
    k3_io *io = io_open(kind, 0, buffered);
    k3_io_read read = read_of(io_add(io, copy), 5000, 10000);
    assert_int_equal(io_read_one(io, &read).status, K3_OK);
    int fd = open(copy, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "x", 1, 9000), 1);
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}}; /* the clock of the file system may be coarse */
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    k3_io_done done = io_read_one(io, &read);
    assert_int_equal(done.status, K3_E_IO);
    assert_non_null(strstr(done.text, "written to"));
    k3_io_close(io);
    unlink(copy);
}

static void G07_a_file_that_is_written_to(void **state)
{
    (void)state;
    for_each_kind(is_rewritten);
}

static void ends_early(k3_io_kind kind, int buffered)
{
    k3_io *io = io_open(kind, 0, buffered);
    int file = io_add(io, path);
    static const uint64_t places[][2] = {{FILE_BYTES - 100, 101}, {FILE_BYTES, 1}, {FILE_BYTES + 100000, 10}, {FILE_BYTES - 2000000, BIG}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        k3_io_read read = read_of(file, places[i][0], places[i][1]);
        k3_io_done done = io_read_one(io, &read);
        assert_int_equal(done.status, K3_E_IO);
        assert_non_null(strstr(done.text, "the file ends at"));
        assert_null(strstr(done.text, "changed"));
    }
    k3_io_read read = read_of(file, FILE_BYTES - 100, 101);
    assert_non_null(strstr(io_read_one(io, &read).text, "offset 5999977: wanted 101 bytes, got 100: the file ends at 6000077"));
    expect_right(io, file);
    k3_io_close(io);
}

static void the_end_of_a_file(void **state)
{
    (void)state;
    for_each_kind(ends_early);
}

/* ---- G15: direct reads that are not ----------------------------------------------------------------------------------- */

static int n_cached_pages(const char *name)
{
    int fd = open(name, O_RDONLY), n = 0;
    size_t n_pages = (FILE_BYTES + 4095) / 4096;
    unsigned char *bits = calloc(n_pages, 1);
    void *at = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(fd >= 0 && bits && at != MAP_FAILED);
    assert_int_equal(mincore(at, FILE_BYTES, bits), 0);
    for (size_t i = 0; i < n_pages; i++)
        n += bits[i] & 1;
    munmap(at, FILE_BYTES);
    close(fd);
    free(bits);
    return n;
}

static void drop_cache(const char *name)
{
    int fd = open(name, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
}

static void read_by_others(const char *name)
{
    FILE *f = fopen(name, "rb");
    unsigned char *bytes = malloc(FILE_BYTES);
    assert_true(f && bytes);
    assert_int_equal(fread(bytes, 1, FILE_BYTES, f), FILE_BYTES);
    fclose(f);
    free(bytes);
}

static void caches_all_the_same(k3_io_kind kind, int buffered)
{
    for (int is_warm = 0; is_warm < 2; is_warm++) {
        drop_cache(path);
        if (n_cached_pages(path))
            return; /* a file system that lives in the page cache */
        if (is_warm)
            read_by_others(path);
        k3_io *io = io_open(kind, 0, buffered);
        k3_io_faults("cached=1", 0);
        int file = io_add(io, path);
        assert_int_equal(n_lines(k3_io_notice(io)), !buffered);
        assert_non_null(strstr(k3_io_describe(io), "buffered"));
        k3_io_faults("cached=1", 0);
        expect_right(io, file);
        assert_true(k3_io_faults_count("dropped") >= BIG);
        assert_int_equal(k3_io_faults_count("direct"), 0);
        if (!is_warm)
            assert_in_range(n_cached_pages(path), 0, 64); /* what the probe read, with what the system read ahead */
        k3_io_close(io);
    }
}

/* Direct reads that work are used, whoever has the file in the page cache. */
static void stays_direct(k3_io_kind kind, int buffered)
{
    if (buffered)
        return;
    read_by_others(path);
    k3_io *io = io_open(kind, 0, 0);
    int file = io_add(io, path);
    if (!*k3_io_notice(io)) {
        k3_io_faults("", 0);
        expect_right(io, file);
        assert_int_equal(k3_io_faults_count("direct"), k3_io_faults_count("reads"));
        assert_int_equal(k3_io_faults_count("dropped"), 0);
        assert_non_null(strstr(k3_io_describe(io), "direct"));
    }
    k3_io_close(io);
}

static void G15_direct_reads_that_work(void **state)
{
    (void)state;
    for_each_kind(stays_direct);
}

static void G15_direct_reads_that_go_through_the_page_cache(void **state)
{
    (void)state;
    for_each_kind(caches_all_the_same);
}

/* ---- drives that fail ------------------------------------------------------------------------------------------------- */

static void fails_and_recovers(k3_io_kind kind, int buffered)
{
    for (int times = 1; times <= K3_IO_RETRIES; times++) {
        char faults[64];
        k3_io *io = io_open(kind, 1, buffered);
        k3_io_read read = read_of(io_add(io, path), 4096, BIG - 8192);
        snprintf(faults, sizeof faults, "eio=2,eio_times=%d", times);
        k3_io_faults(faults, 0);
        assert_int_equal(io_read_one(io, &read).status, K3_OK);
        io_check(&read, 3);
        k3_io_stat stat;
        k3_io_stats(io, &stat, 0);
        assert_int_equal(stat.retries, times);
        k3_io_close(io);
    }
}

static void an_error_that_passes(void **state)
{
    (void)state;
    for_each_kind(fails_and_recovers);
}

static void has_a_bad_place(k3_io_kind kind, int buffered)
{
    enum { N = 8, BYTES = 600 * 1000 };
    k3_io *io = io_open(kind, 0, buffered);
    int file = io_add(io, path), n_right = 0;
    unsigned char *more = io_memory(N * k3_io_room(BYTES));
    k3_io_read reads[N];
    k3_io_done done[N];
    k3_io_faults("bad=2000000", 0);
    for (int i = 0; i < N; i++) {
        reads[i] = read_of(file, (uint64_t)(i * 700 * 1000 + 5000), BYTES);
        reads[i].dst = more + (uint64_t)i * k3_io_room(BYTES);
        reads[i].tag = (uint64_t)i;
    }
    assert_int_equal(k3_io_submit(io, reads, N, NULL), K3_OK);
    for (int n = 0; n < N; n++) {
        assert_int_equal(k3_io_collect(io, done, 1, 1), 1);
        if (done->status == K3_OK) {
            io_check(&reads[done->tag], 3);
            n_right++;
            continue;
        }
        assert_int_equal(done->tag, 2); /* 1405000 to 2005000 */
        assert_int_equal(done->status, K3_E_IO);
        assert_non_null(strstr(done->text, path));
        assert_non_null(strstr(done->text, "read at offset 1405000: wanted 600000 bytes, got 0: "));
        assert_non_null(strstr(done->text, strerror(EIO)));
    }
    assert_int_equal(n_right, N - 1);
    assert_int_equal(k3_io_faults_count("faults"), 1 + K3_IO_RETRIES);
    k3_io_stat stat;
    k3_io_stats(io, &stat, 0);
    assert_int_equal(stat.retries, K3_IO_RETRIES);
    assert_int_equal(stat.reads, N - 1);
    k3_io_close(io);
    free(more);
}

static void an_error_that_stays(void **state)
{
    (void)state;
    for_each_kind(has_a_bad_place);
}

static void io_uring_is_refused(void **state)
{
    (void)state;
    static const int errors[] = {EPERM, ENOSYS, ENOMEM};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        char faults[64];
        snprintf(faults, sizeof faults, "no_uring=%d", errors[i]);
        k3_io_faults(faults, 0);
        k3_io *io = io_open(K3_IO_AUTO, 0, 0), *none;
        expect_right(io, io_add(io, path));
        assert_non_null(strstr(k3_io_describe(io), "threads"));
        assert_non_null(strstr(k3_io_notice(io), "io_uring"));
        k3_io_close(io);
        k3_error err = {0};
        assert_int_equal(k3_io_open(&none, &(k3_io_config){.kind = K3_IO_URING}, &err), K3_E_UNSUPPORTED);
        assert_null(none);
        assert_non_null(strstr(err.text, "io_uring"));
    }
    k3_io_faults("", 0);
}

/* What sandboxes do that forbid one of its calls and not the other. */
static void io_uring_can_be_set_up_and_not_entered(void **state)
{
    (void)state;
    static const int errors[] = {EPERM, ENOSYS};
    if (!io_has_uring()) {
        print_message("SKIP: there is no io_uring\n");
        skip();
    }
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        char faults[64];
        snprintf(faults, sizeof faults, "no_enter=%d", errors[i]);
        k3_io_faults(faults, 0);
        k3_io *io = io_open(K3_IO_AUTO, 0, 0), *none;
        expect_right(io, io_add(io, path));
        assert_non_null(strstr(k3_io_describe(io), "threads"));
        assert_non_null(strstr(k3_io_notice(io), strerror(errors[i])));
        k3_io_close(io);
        assert_int_equal(k3_io_open(&none, &(k3_io_config){.kind = K3_IO_URING}, NULL), K3_E_UNSUPPORTED);
    }
    k3_io_faults("", 0);
}

static void io_uring_that_is_refused_later_fails_what_is_read(void **state)
{
    (void)state;
    if (!io_has_uring()) {
        print_message("SKIP: there is no io_uring\n");
        skip();
    }
    static const int errors[] = {EPERM, EINVAL, EIO};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        char faults[64];
        k3_io *io = io_open(K3_IO_URING, 0, 0);
        k3_io_read read = {.file = io_add(io, path), .bytes = 3 << 20, .dst = io_memory(3 << 20)};
        assert_int_equal(io_read_one(io, &read).status, K3_OK);
        snprintf(faults, sizeof faults, "no_enter=%d", errors[i]);
        k3_io_faults(faults, 0);
        for (int times = 0; times < 200; times++) { /* more than fit the ring */
            k3_io_done done = io_read_one(io, &read);
            assert_int_equal(done.status, K3_E_IO);
            assert_non_null(strstr(done.text, strerror(errors[i])));
        }
        assert_true(k3_io_faults_count("faults") == 1);
        assert_int_equal(k3_io_pending(io, NULL), 0);
        k3_io_close(io);
        free(read.dst);
        k3_io_faults("", 0);
    }
}

/* What waits behind as many pieces as are in flight at once fails too. */
static void io_uring_that_is_refused_fails_what_waits(void **state)
{
    (void)state;
    enum { N = 8 };
    if (!io_has_uring()) {
        print_message("SKIP: there is no io_uring\n");
        skip();
    }
    k3_io *io = io_open(K3_IO_URING, 2, 0);
    k3_io_read reads[N] = {{0}};
    k3_io_done done;
    int file = io_add(io, path);
    for (int i = 0; i < N; i++)
        reads[i] = (k3_io_read){.file = file, .bytes = 3 << 20, .dst = io_memory(3 << 20)};
    char faults[64];
    snprintf(faults, sizeof faults, "no_enter=%d", EPERM);
    k3_io_faults(faults, 0);
    assert_int_equal(k3_io_submit(io, reads, N, NULL), K3_OK);
    for (int i = 0; i < N; i++) {
        assert_int_equal(k3_io_collect(io, &done, 1, 1), 1);
        assert_int_equal(done.status, K3_E_IO);
    }
    k3_io_close(io);
    for (int i = 0; i < N; i++)
        free(reads[i].dst);
    k3_io_faults("", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(G01_short_and_interrupted_reads_go_on),
        cmocka_unit_test(G01_a_byte_at_a_time),
        cmocka_unit_test(G01_what_is_always_interrupted_ends),
        cmocka_unit_test(G03_direct_reads_refused_at_open_or_later),
        cmocka_unit_test(G03_a_file_system_in_memory),
        cmocka_unit_test(G05_a_read_of_2_5_gb_beyond_4_gb),
        cmocka_unit_test(G07_a_file_that_is_cut_while_it_is_read),
        cmocka_unit_test(G07_a_file_that_is_replaced_stays_what_it_was),
        cmocka_unit_test(G07_a_file_that_is_written_to),
        cmocka_unit_test(the_end_of_a_file),
        cmocka_unit_test(G15_direct_reads_that_work),
        cmocka_unit_test(G15_direct_reads_that_go_through_the_page_cache),
        cmocka_unit_test(an_error_that_passes),
        cmocka_unit_test(an_error_that_stays),
        cmocka_unit_test(io_uring_is_refused),
        cmocka_unit_test(io_uring_can_be_set_up_and_not_entered),
        cmocka_unit_test(io_uring_that_is_refused_later_fails_what_is_read),
        cmocka_unit_test(io_uring_that_is_refused_fails_what_waits),
    };
    return cmocka_run_group_tests(tests, make, remove_all);
}
