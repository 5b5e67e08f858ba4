#include "text/chat_call.h"

#include <stdlib.h>
#include <string.h>

#include "text/json_write.h"

/* ---- headers ------------------------------------------------------------------------------------------- */

static size_t tag_length(const k3_buffer *header)
{
    size_t n = 0;
    while (n < header->n && header->bytes[n] != ' ')
        n++;
    return n;
}

int k3_chat_header_tag_is(const k3_buffer *header, const char *tag)
{
    size_t n = tag_length(header);
    return n == strlen(tag) && (n == 0 || memcmp(header->bytes, tag, n) == 0);
}

static void unescape(k3_buffer *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (n - i >= 6 && memcmp(text + i, "&quot;", 6) == 0) {
            k3_buffer_add_char(out, '"');
            i += 6;
        } else if (n - i >= 5 && memcmp(text + i, "&amp;", 5) == 0) {
            k3_buffer_add_char(out, '&');
            i += 5;
        } else {
            k3_buffer_add_char(out, text[i++]);
        }
    }
}

int k3_chat_header_get(k3_buffer *value, const k3_buffer *header, const char *key)
{
    size_t n_key = strlen(key), i = tag_length(header);
    const char *s = header->bytes;
    while (i < header->n) {
        while (i < header->n && s[i] == ' ')
            i++;
        size_t key_start = i;
        while (i < header->n && s[i] != '=')
            i++;
        size_t n_found = i - key_start;
        if (header->n - i < 2 || s[i + 1] != '"')
            return 0;
        const char *start = s + i + 2, *stop = memchr(start, '"', header->n - i - 2);
        if (!stop)
            return 0;
        if (n_found == n_key && memcmp(s + key_start, key, n_key) == 0) {
            unescape(value, start, (size_t)(stop - start));
            return 1;
        }
        i = (size_t)(stop - s) + 1;
    }
    return 0;
}

/* ---- arguments ----------------------------------------------------------------------------------------- */

k3_chat_argument *k3_chat_call_add(k3_chat_call *call)
{
    if (call->n == call->capacity) {
        size_t capacity = 2 * call->capacity + 8;
        k3_chat_argument *arguments = realloc(call->arguments, capacity * sizeof *arguments);
        if (!arguments) {
            call->failed = 1;
            return NULL;
        }
        call->arguments = arguments;
        call->capacity = capacity;
    }
    call->arguments[call->n] = (k3_chat_argument){0};
    return &call->arguments[call->n++];
}

void k3_chat_call_free(k3_chat_call *call)
{
    for (size_t i = 0; i < call->n; i++) {
        k3_buffer_free(&call->arguments[i].key);
        k3_buffer_free(&call->arguments[i].type);
        k3_buffer_free(&call->arguments[i].value);
    }
    free(call->arguments);
    k3_buffer_free(&call->name);
    *call = (k3_chat_call){0};
}

static int buffer_is(const k3_buffer *buffer, const char *text)
{
    return buffer->n == strlen(text) && (buffer->n == 0 || memcmp(buffer->bytes, text, buffer->n) == 0);
}

/* Whether the text is strict JSON; *type is then its type. A byte-order mark, which the reader skips, would break the object around.
 * Without memory out->failed is set. */
static int is_json(k3_json_type *type, const k3_buffer *text, k3_buffer *out)
{
    const k3_json *value;
    if (text->n == 0 || (text->n >= 3 && memcmp(text->bytes, "\xef\xbb\xbf", 3) == 0))
        return 0;
    k3_status status = k3_json_parse(&value, text->bytes, text->n, K3_JSON_SURROGATES, NULL);
    if (status == K3_E_NOMEM) {
        k3_buffer_free(out);
        out->failed = 1;
    }
    if (status != K3_OK)
        return 0;
    *type = value->type;
    k3_json_free(value);
    return 1;
}

/* Values go out as the model spelled them (1e400, 0.10, long integers) if they are JSON of the type that it announced. A type that is
 * not K3's, such as integer, takes any JSON. Everything else is a string. */
static int is_literal(const k3_chat_argument *argument, k3_buffer *out)
{
    k3_json_type found;
    if (!argument->has_type || buffer_is(&argument->type, "string") || !is_json(&found, &argument->value, out))
        return 0;
    if (buffer_is(&argument->type, "number"))
        return found == K3_JSON_NUMBER;
    if (buffer_is(&argument->type, "boolean"))
        return found == K3_JSON_TRUE || found == K3_JSON_FALSE;
    if (buffer_is(&argument->type, "null"))
        return found == K3_JSON_NULL;
    if (buffer_is(&argument->type, "object"))
        return found == K3_JSON_OBJECT;
    if (buffer_is(&argument->type, "array"))
        return found == K3_JSON_ARRAY;
    return 1;
}

typedef struct keyed {
    const k3_chat_argument *argument;
    size_t place;
} keyed;

static int compare_keys(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    const k3_buffer *k = &x->argument->key, *l = &y->argument->key;
    size_t n = k->n < l->n ? k->n : l->n;
    int order = n > 0 ? memcmp(k->bytes, l->bytes, n) : 0;
    if (order == 0)
        order = (k->n > l->n) - (k->n < l->n);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

static int compare_places(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

static int same_key(const k3_chat_argument *a, const k3_chat_argument *b)
{
    return a->key.n == b->key.n && (a->key.n == 0 || memcmp(a->key.bytes, b->key.bytes, a->key.n) == 0);
}

/* Of a repeated key the last value stands at the place of the first. Arguments without a key are left out. */
static size_t distinct(keyed *out, const k3_chat_call *call)
{
    size_t n = 0, n_kept = 0;
    for (size_t i = 0; i < call->n; i++)
        if (call->arguments[i].has_key)
            out[n++] = (keyed){&call->arguments[i], i};
    if (n == 0)
        return 0;
    qsort(out, n, sizeof *out, compare_keys);
    for (size_t i = 0; i < n; i++) {
        if (n_kept > 0 && same_key(out[n_kept - 1].argument, out[i].argument))
            out[n_kept - 1].argument = out[i].argument;
        else
            out[n_kept++] = out[i];
    }
    qsort(out, n_kept, sizeof *out, compare_places);
    return n_kept;
}

static int has_failed(const k3_chat_call *call)
{
    int failed = call->failed;
    for (size_t i = 0; i < call->n; i++)
        failed |= call->arguments[i].key.failed | call->arguments[i].type.failed | call->arguments[i].value.failed;
    return failed;
}

int k3_chat_call_write(k3_buffer *out, const k3_chat_call *call)
{
    if (has_failed(call)) {
        k3_buffer_free(out);
        out->failed = 1;
        return 0;
    }
    if (call->i_raw > 0) {
        k3_json_type type;
        const k3_buffer *raw = &call->arguments[call->i_raw - 1].value;
        if (!is_json(&type, raw, out) || type != K3_JSON_OBJECT)
            return 0;
        k3_buffer_add(out, raw->bytes, raw->n);
        return !out->failed;
    }
    keyed *order = malloc((call->n + 1) * sizeof *order);
    if (!order) {
        k3_buffer_free(out);
        out->failed = 1;
        return 0;
    }
    size_t n = distinct(order, call);
    k3_buffer_add_char(out, '{');
    for (size_t i = 0; i < n; i++) {
        const k3_chat_argument *argument = order[i].argument;
        k3_buffer_add_text(out, i > 0 ? ", " : "");
        k3_json_write_string(out, argument->key.bytes, argument->key.n);
        k3_buffer_add_text(out, ": ");
        if (is_literal(argument, out))
            k3_buffer_add(out, argument->value.bytes, argument->value.n);
        else
            k3_json_write_string(out, argument->value.bytes, argument->value.n);
    }
    k3_buffer_add_char(out, '}');
    free(order);
    return !out->failed;
}
