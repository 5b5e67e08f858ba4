/* JSON as Python writes it, which is what K3 was trained on: only '"', '\' and controls below U+0020 are escaped, floats are the shortest
 * digits that read back as the same double (1e2 -> 100.0, 1e-7 -> 1e-07), integers keep all digits, 1e400 is Infinity. Of a repeated key
 * the last value counts, at the place of the first. Out of memory shows in buffer->failed. */
#ifndef K3_TEXT_JSON_WRITE_H
#define K3_TEXT_JSON_WRITE_H

#include "base/json.h"
#include "text/buffer.h"

typedef enum k3_json_style {
    K3_JSON_SPACED, /* ", " and ": ", keys in their order: values of arguments */
    K3_JSON_SORTED  /* "," and ":", keys sorted by code point at every level: tools and schemas */
} k3_json_style;

void k3_json_write(k3_buffer *out, const k3_json *value, k3_json_style style);
void k3_json_write_string(k3_buffer *out, const char *text, size_t n); /* with quotes */

/* The members of an object, each key once, malloc'd [*n]; NULL without memory or members. */
const k3_json **k3_json_members(const k3_json *object, k3_json_style style, size_t *n, int *failed);

#endif
