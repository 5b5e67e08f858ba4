/* Strict JSON (RFC 8259) into a tree. Our own because three needs meet that no packaged C library serves:
 * numbers must keep their spelling (tool arguments such as 1e400 or 12345678901234567890), config files hold
 * bare NaN and Infinity, and errors in a config must name line and column. */
#ifndef K3_BASE_JSON_H
#define K3_BASE_JSON_H

#include "base/error.h"

typedef enum k3_json_type {
    K3_JSON_NULL,
    K3_JSON_FALSE,
    K3_JSON_TRUE,
    K3_JSON_NUMBER, /* text is its spelling */
    K3_JSON_STRING, /* text is its decoded UTF-8, may hold NUL bytes; 0-terminated as well */
    K3_JSON_ARRAY,
    K3_JSON_OBJECT
} k3_json_type;

typedef struct k3_json k3_json;
struct k3_json {
    k3_json_type type;
    uint32_t line, column; /* 1-based position of the value */
    const char *text;      /* NUMBER, STRING */
    size_t text_bytes;
    const char *key; /* the member's name when the parent is an object */
    size_t key_bytes;
    const k3_json *first, *next; /* children in file order, also duplicates; siblings */
    size_t n_children;
};

enum {
    K3_JSON_NONFINITE = 1,   /* bare NaN, Infinity, -Infinity are NUMBERs with that spelling */
    K3_JSON_UNIQUE_KEYS = 2, /* a repeated key in one object is an error that names it */
    K3_JSON_SURROGATES = 4   /* half a surrogate pair becomes U+FFFD instead of an error */
};

/* Depth is limited to 256. A byte-order mark at the start is skipped. Errors are K3_E_FORMAT "line L, column C: ...". */
k3_status k3_json_parse(const k3_json **out, const char *text, size_t n_bytes, int flags, k3_error *err);
void k3_json_free(const k3_json *root); /* the root only; NULL is fine */

/* The last member with this 0-terminated key; NULL if there is none, or value is not an object (or NULL). */
const k3_json *k3_json_get(const k3_json *value, const char *key);
int k3_json_text_is(const k3_json *value, const char *text); /* a STRING equal to text */
/* The number as a double (finite) or as an integer that fits int64 exactly (1e3 and 4.0 count, 4.5 does not); 0 if it is not one. */
int k3_json_double(const k3_json *value, double *out);
int k3_json_int(const k3_json *value, int64_t *out);

#endif
