/* A bounded list of names for one error message: what fits is written out, the rest is counted. */
#ifndef K3_CKPT_NAMES_H
#define K3_CKPT_NAMES_H

#include <stddef.h>

typedef struct k3_names {
    size_t limit;   /* at most so many are shown; 0: as many as fit */
    size_t n;       /* names added */
    size_t n_shown; /* of them, written into text */
    size_t n_bytes;
    char text[920]; /* "a, b, c", 0-terminated; k3_names_end appends " and 7 more" */
} k3_names;

/* Control characters of a name, which a hostile file may hold, become '?'. */
void k3_names_add(k3_names *names, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *k3_names_end(k3_names *names);

#endif
