/* JSON numbers between bounds, digit by digit. */
#ifndef K3_CONSTRAIN_NUMBER_H
#define K3_CONSTRAIN_NUMBER_H

#include "constrain/grammar.h"

enum { K3_NUMBER_DIGITS = 20 }; /* at most so many before the point, and so many behind it */

typedef struct k3_bound {
    int is_set, is_exclusive, is_negative;
    char whole[K3_NUMBER_DIGITS + 1], fraction[K3_NUMBER_DIGITS + 1]; /* no needless zeros; the whole of 0.5 is "0" */
} k3_bound;

/* Reads a JSON number; 0 if it has more digits than K3_NUMBER_DIGITS on a side. */
int k3_bound_read(k3_bound *bound, const char *text, size_t n, int is_exclusive);
/* -1, 0 or 1; exclusive bounds count as their number. */
int k3_bound_compare(const k3_bound *a, const k3_bound *b);

/* A number from `least` to `most`, either of which may not be set. Without bounds a number may have an exponent of two digits. */
uint32_t k3_number_node(k3_grammar *g, const k3_bound *least, const k3_bound *most, int is_integer, uint32_t next);

#endif
