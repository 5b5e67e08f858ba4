#include "guarded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* Rooms, pages of a room, bytes on each side that are looked at. 0xff in all bytes of a float is a NaN. */
enum { ROOMS = 96, PAGES = 128, SIDE = 512, PATTERN = 0xff };

static struct {
    unsigned char *memory;
    size_t page, stride, shift;
    int at_start, n;
    struct {
        unsigned char *at;
        size_t n;
    } room[ROOMS];
} all;

void guarded_at_end(void)
{
    all.at_start = 0;
}

void guarded_at_start(size_t shift)
{
    all.at_start = 1;
    all.shift = shift;
}

/* One unmapped page, then PAGES for a room, and so on; an unmapped page ends it. */
static void open_memory(void)
{
    all.page = (size_t)sysconf(_SC_PAGESIZE);
    all.stride = (PAGES + 1) * all.page;
    all.memory = mmap(NULL, ROOMS * all.stride + all.page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(all.memory != MAP_FAILED);
    for (size_t i = 0; i < ROOMS; i++)
        assert_int_equal(mprotect(all.memory + i * all.stride + all.page, PAGES * all.page, PROT_READ | PROT_WRITE), 0);
}

/* The bytes of room i's pages from `first` on that belong to nobody: before the room and behind it. */
static void sides(int i, unsigned char **before, size_t *n_before, unsigned char **behind, size_t *n_behind)
{
    unsigned char *first = all.memory + (size_t)i * all.stride + all.page, *end = first + PAGES * all.page;
    unsigned char *at = all.room[i].at, *last = at + all.room[i].n;
    *n_before = (size_t)(at - first) < SIDE ? (size_t)(at - first) : SIDE;
    *before = at - *n_before;
    *n_behind = (size_t)(end - last) < SIDE ? (size_t)(end - last) : SIDE;
    *behind = last;
}

void *guarded_room(size_t n)
{
    if (!all.memory)
        open_memory();
    assert_true(all.n < ROOMS && n + all.shift <= PAGES * all.page);
    unsigned char *first = all.memory + (size_t)all.n * all.stride + all.page, *before, *behind;
    size_t n_before, n_behind;
    all.room[all.n].at = all.at_start ? first + all.shift : first + PAGES * all.page - n;
    all.room[all.n].n = n;
    sides(all.n, &before, &n_before, &behind, &n_behind);
    memset(before, PATTERN, n_before + n + n_behind);
    return all.room[all.n++].at;
}

static void check_side(const char *what, const unsigned char *bytes, size_t n, const char *side)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != PATTERN)
            fail_msg("%s: byte %zu of the %zu %s a tensor was written", what, i, n, side);
}

void guarded_check(const char *what)
{
    for (int i = 0; i < all.n; i++) {
        unsigned char *before, *behind;
        size_t n_before, n_behind;
        sides(i, &before, &n_before, &behind, &n_behind);
        check_side(what, before, n_before, "before");
        check_side(what, behind, n_behind, "behind");
    }
    all.n = 0;
}

void guarded_close(void)
{
    if (all.memory)
        munmap(all.memory, ROOMS * all.stride + all.page);
    memset(&all, 0, sizeof all);
}
