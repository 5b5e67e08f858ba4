/* JSON read in place: a value is a piece of the text, so that a request inside a file can be handed on word for word. */
#ifndef K3_APPS_JSON_H
#define K3_APPS_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "buffer.h"

typedef struct app_json {
    const char *text; /* of the value, without spaces around it; NULL: there is none */
    size_t n;
} app_json;

/* The value that makes up the whole text. A text that is not JSON gives .text == NULL and the offset of the first wrong byte. */
app_json app_json_whole(const char *text, size_t n, size_t *wrong);
/* '{', '[', '"', '0' for a number, 't', 'f', 'n' for null; 0 if there is no value. */
char app_json_kind(app_json value);
/* Walks an array or object: zero-initialise *at, call until it returns 0. key may be NULL; in an array it is no value. */
int app_json_next(app_json *key, app_json *value, size_t *at, app_json container);
/* The last member of this name, which has no escapes. */
app_json app_json_get(app_json object, const char *name);
/* Appends the decoded text of a string. */
void app_json_decode(app_buffer *out, app_json string);
int app_json_is(app_json string, const char *text);
/* A finite number; 0 if it is none. */
int app_json_double(app_json number, double *out);
/* A whole number, as 2 or 2.0 or 2e0; with a point or an exponent up to 2^53. */
int app_json_int(app_json number, int64_t *out);
/* Equal as data: order of members and spelling of numbers and strings do not matter. */
int app_json_equal(app_json a, app_json b);

#endif
