/* What the backend tests share: a backend on one level with buffers that go with it. Memory is filled by upload and read by download,
 * since a device shows the host nothing. */
#ifndef K3_TESTS_BACKEND_FIXTURE_H
#define K3_TESTS_BACKEND_FIXTURE_H

#include "backend/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* CPU levels, then devices. */
enum { N_CPU_LEVELS = 9, N_LEVELS = 13 };
extern const char *const level_names[N_LEVELS];

/* A level, or a level with "+exact": its kernels of exact mode. "vulkan" is the best device, a software one if there is no other; "metal"
 * that of tests/metal. NULL if this machine lacks the level: a skip that the caller counts. Any other trouble fails the test. */
k3_backend *open_level(const char *level, int threads);
/* Reports a kept failure as a test failure. */
void must_sync(k3_backend *be);
/* The kept failure has this status and names both words; afterwards nothing is kept. */
void must_fail(k3_backend *be, k3_status status, const char *a, const char *b);

/* Buffers made from keep_track on, all of one backend, are released by release_tracked. */
void keep_track(void);
void release_tracked(k3_backend *be);

/* From now on a buffer that there is no memory for is no place at all, and the failure stays with the backend. */
void allow_failures(int yes);
/* Every later buffer gets so many unused bytes in front, which give it a slab of its own, and ends with the slab; 0: none. */
void place_at_ends(uint64_t unused);

k3_ref new_bytes(k3_backend *be, size_t bytes);
k3_ref put_bytes(k3_backend *be, const void *data, size_t bytes);
k3_ref put_floats(k3_backend *be, const float *data, size_t n);
k3_ref new_floats(k3_backend *be, size_t n);
/* What a place holds after all work so far; free() it. */
void *get_bytes(k3_backend *be, k3_ref ref, size_t bytes);
float *get_floats(k3_backend *be, k3_ref ref, size_t n);

/* A repeatable stream: the same numbers on every machine. */
typedef struct random_stream {
    uint64_t state;
} random_stream;
uint32_t random_bits(random_stream *r);
int random_below(random_stream *r, int n);
float random_float(random_stream *r); /* about normal, deviation 1 */
void random_floats(random_stream *r, float *out, size_t n, float scale);
/* Random codes and scales of any type; if `odd`, at an odd address, on a device one that is a multiple of 4 only. */
k3_mat random_mat(k3_backend *be, random_stream *r, k3_type type, int rows, int cols, int odd);

#endif
