/* What kernels are tested with: matrices, rows of x and outputs in guarded rooms (guarded.h), by rounds of fixed seeds. */
#ifndef K3_TESTS_BACKEND_KERNEL_INPUTS_H
#define K3_TESTS_BACKEND_KERNEL_INPUTS_H

#include "fixture.h"

#include "backend/cpu/kernels.h"

/* What values are like: normal; subnormal; about 1e30; zeros of both signs among others; every size from 1e-38 to 1e15. */
typedef enum flavour { PLAIN, SUBNORMAL, LARGE, ZEROS, MIXED } flavour;

/* Level, kernel and number of the round, for messages. */
extern char round_text[128];

/* Begins a round: places alternate between the ends of rooms and odd starts, which for floats are multiples of 4. */
flavour begin_round(const char *level_name, const char *kernel, int round);
/* The next random number of the round, 0 to n - 1. */
int below(int n);

/* Rooms of bytes may lie anywhere: at starts an odd byte further, at ends wherever their length puts them. */
unsigned char *bytes_room(size_t n);
float *floats(size_t n, flavour f);
/* Floats that are NaN, with all bits set. */
float *empty(size_t n);
void *copy_of(const void *data, size_t n);

/* Codes and scales of any type. */
k3_cpu_mat matrix(k3_type type, int rows, int cols, flavour f);
/* Room for n rows of x in 8 bits. */
k3_q8 new_q8(int n, int cols, int has_codes, int has_by_nibble);
/* In the rounds of zeros, a value of every other row is not finite. */
void spoil(float *x, int cols, flavour f);

/* Fails unless the bits are equal; any NaN equals any. */
void same_bits(const char *what, const float *got, const float *want, size_t n);

/* The teardown of a group of tests. */
int close_rooms(void **state);

#endif
