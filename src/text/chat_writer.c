#include "text/chat_writer.h"

#include <stdlib.h>
#include <string.h>

#include "text/buffer.h"
#include "text/tokens.h"

void k3_chat_segments_free(k3_chat_segments *segments)
{
    for (size_t i = 0; i < segments->n; i++)
        free(segments->items[i].text);
    free(segments->items);
    *segments = (k3_chat_segments){0};
}

static k3_status note_segment(k3_chat_writer *w, k3_segment_kind kind, const char *text, size_t n)
{
    k3_chat_segments *s = w->segments;
    if (!s)
        return K3_OK;
    if (s->n == s->capacity) {
        size_t capacity = 2 * s->capacity + 32;
        k3_chat_segment *items = realloc(s->items, capacity * sizeof *items);
        if (!items)
            return k3_fail(w->err, K3_E_NOMEM, "no memory for the segments of a chat");
        s->items = items;
        s->capacity = capacity;
    }
    char *copy = malloc(n + 1);
    if (!copy)
        return k3_fail(w->err, K3_E_NOMEM, "no memory for a text of %zu bytes", n);
    memcpy(copy, text, n);
    copy[n] = 0;
    s->items[s->n++] = (k3_chat_segment){kind, copy, n};
    return K3_OK;
}

static k3_status write_marker(k3_chat_writer *w, int32_t id, const char *name)
{
    K3_TRY(note_segment(w, K3_SEGMENT_CONTROL, name, strlen(name)));
    return k3_tokens_add(w->ids, id, w->err);
}

k3_status k3_chat_write_text(k3_chat_writer *w, const char *text, size_t n)
{
    if (n == 0)
        return K3_OK;
    K3_TRY(note_segment(w, K3_SEGMENT_TEXT, text, n));
    return k3_encoder_add(w->encoder, w->ids, text, n, 0, w->err);
}

k3_status k3_chat_write_trusted(k3_chat_writer *w, const char *text)
{
    K3_TRY(note_segment(w, K3_SEGMENT_TRUSTED, text, strlen(text)));
    return k3_encoder_add(w->encoder, w->ids, text, strlen(text), 1, w->err);
}

static k3_status write_word(k3_chat_writer *w, const char *word)
{
    return k3_chat_write_text(w, word, strlen(word));
}

/* '&' and '"' are all that is escaped in an attribute's value. */
static k3_status write_value(k3_chat_writer *w, const char *value, size_t n)
{
    k3_buffer escaped = {0};
    for (size_t i = 0; i < n; i++) {
        if (value[i] == '&')
            k3_buffer_add_text(&escaped, "&amp;");
        else if (value[i] == '"')
            k3_buffer_add_text(&escaped, "&quot;");
        else
            k3_buffer_add_char(&escaped, value[i]);
    }
    k3_status status = escaped.failed ? k3_fail(w->err, K3_E_NOMEM, "no memory for an attribute of %zu bytes", n)
                                      : k3_chat_write_text(w, escaped.bytes, escaped.n);
    k3_buffer_free(&escaped);
    return status;
}

k3_status k3_chat_write_open(k3_chat_writer *w, const char *tag, const k3_chat_attribute *attributes, size_t n_attributes)
{
    K3_TRY(write_marker(w, w->markers.open, "<|open|>"));
    K3_TRY(write_word(w, tag));
    for (size_t i = 0; i < n_attributes; i++) {
        if (!attributes[i].value)
            continue;
        char key[32] = " ";
        strncat(key, attributes[i].key, sizeof key - 2);
        K3_TRY(write_word(w, key));
        K3_TRY(write_word(w, "=\""));
        K3_TRY(write_value(w, attributes[i].value, attributes[i].n_value));
        K3_TRY(write_word(w, "\""));
    }
    return write_marker(w, w->markers.sep, "<|sep|>");
}

k3_status k3_chat_write_close(k3_chat_writer *w, const char *tag)
{
    K3_TRY(write_marker(w, w->markers.close, "<|close|>"));
    K3_TRY(write_word(w, tag));
    return write_marker(w, w->markers.sep, "<|sep|>");
}

k3_status k3_chat_write_end(k3_chat_writer *w)
{
    K3_TRY(k3_chat_write_close(w, "message"));
    return write_marker(w, w->markers.end, "<|end_of_msg|>");
}
