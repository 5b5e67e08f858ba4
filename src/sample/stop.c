/* Stop strings over text that arrives in pieces. Every stop string is followed by its own prefix automaton, so what must be held back
 * is known exactly: the longest end of the text that begins some stop string. The first match to be complete wins, and among those
 * that end at the same byte the longest, so the result does not depend on how the text was cut. */
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

typedef struct k3_stop_string {
    unsigned char *bytes;
    size_t *border; /* border[i]: longest proper prefix of bytes[0..i] that also ends it */
    size_t n, matched;
} k3_stop_string;

struct k3_stop {
    k3_stop_string *strings;
    size_t n_strings;
    char *text; /* held back bytes, then what is handed out */
    size_t n_text, n_held, capacity;
    int done;
};

static k3_status add_string(k3_stop_string *s, const char *bytes, size_t n, size_t i_stop, k3_error *err)
{
    if (!n)
        return k3_fail(err, K3_E_INVALID, "stop string %zu: empty; at least one byte wanted (leave it out to have none)", i_stop);
    s->bytes = malloc(n);
    s->border = malloc(n * sizeof *s->border);
    if (!s->bytes || !s->border)
        return k3_fail(err, K3_E_NOMEM, "stop string %zu: no memory for %zu bytes", i_stop, n);
    s->n = n;
    memcpy(s->bytes, bytes, n);
    s->border[0] = 0;
    for (size_t i = 1, k = 0; i < n; i++) {
        while (k && s->bytes[i] != s->bytes[k])
            k = s->border[k - 1];
        k += s->bytes[i] == s->bytes[k];
        s->border[i] = k;
    }
    return K3_OK;
}

k3_status k3_stop_open(k3_stop **out, const char *const *stops, const size_t *n_bytes, size_t n_stops, k3_error *err)
{
    *out = NULL;
    k3_stop *stop = calloc(1, sizeof *stop);
    if (stop)
        stop->strings = calloc(n_stops ? n_stops : 1, sizeof *stop->strings);
    if (!stop || !stop->strings) {
        free(stop);
        return k3_fail(err, K3_E_NOMEM, "stop strings: out of memory");
    }
    stop->n_strings = n_stops;
    for (size_t i = 0; i < n_stops; i++) {
        k3_status status = add_string(&stop->strings[i], stops[i], n_bytes[i], i, err);
        if (status != K3_OK) {
            k3_stop_close(stop);
            return status;
        }
    }
    *out = stop;
    return K3_OK;
}

void k3_stop_close(k3_stop *stop)
{
    if (!stop)
        return;
    for (size_t i = 0; i < stop->n_strings; i++) {
        free(stop->strings[i].bytes);
        free(stop->strings[i].border);
    }
    free(stop->strings);
    free(stop->text);
    free(stop);
}

/* One byte for every automaton. Returns the length of the longest stop string that ends here, 0 if none does. */
static size_t advance(k3_stop *stop, unsigned char c)
{
    size_t longest = 0;
    for (size_t i = 0; i < stop->n_strings; i++) {
        k3_stop_string *s = &stop->strings[i];
        while (s->matched && s->bytes[s->matched] != c)
            s->matched = s->border[s->matched - 1];
        s->matched += s->bytes[s->matched] == c;
        if (s->matched == s->n && s->n > longest)
            longest = s->n;
    }
    return longest;
}

k3_status k3_stop_push(k3_stop *stop, const char **safe, size_t *n_safe, int *matched, const char *text, size_t n, k3_error *err)
{
    *safe = stop->text;
    *n_safe = 0;
    *matched = stop->done;
    if (stop->done)
        return K3_OK;
    if (stop->n_held + n > stop->capacity) {
        size_t capacity = 2 * (stop->n_held + n);
        char *grown = malloc(capacity);
        if (!grown)
            return k3_fail(err, K3_E_NOMEM, "stop strings: no memory for %zu bytes of text", capacity);
        if (stop->n_held)
            memcpy(grown, stop->text + stop->n_text - stop->n_held, stop->n_held);
        free(stop->text);
        stop->text = grown;
        stop->capacity = capacity;
    } else if (stop->n_held) {
        memmove(stop->text, stop->text + stop->n_text - stop->n_held, stop->n_held);
    }
    stop->n_text = stop->n_held;
    *safe = stop->text;
    for (size_t i = 0; i < n; i++) {
        stop->text[stop->n_text++] = text[i];
        size_t length = advance(stop, (unsigned char)text[i]);
        if (length) {
            stop->done = *matched = 1;
            stop->n_held = 0;
            *n_safe = stop->n_text - length;
            return K3_OK;
        }
    }
    stop->n_held = 0;
    for (size_t i = 0; i < stop->n_strings; i++)
        if (stop->strings[i].matched > stop->n_held)
            stop->n_held = stop->strings[i].matched;
    *n_safe = stop->n_text - stop->n_held;
    return K3_OK;
}

void k3_stop_flush(k3_stop *stop, const char **safe, size_t *n_safe)
{
    *safe = stop->n_held ? stop->text + stop->n_text - stop->n_held : "";
    *n_safe = stop->n_held;
    stop->n_held = 0;
    for (size_t i = 0; i < stop->n_strings; i++)
        stop->strings[i].matched = 0;
}
