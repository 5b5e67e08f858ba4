/* Writing XTML: each marker, tag name, attribute part and text is encoded alone. Joined strings would look the same and give other ids. */
#ifndef K3_TEXT_CHAT_WRITER_H
#define K3_TEXT_CHAT_WRITER_H

#include "text/chat_markers.h"
#include "text/chat_render.h"
#include "text/tokenize.h"

typedef struct k3_chat_writer {
    k3_chat_markers markers;
    k3_encoder *encoder;
    k3_tokens *ids;
    k3_chat_segments *segments; /* may be NULL */
    k3_error *err;
} k3_chat_writer;

/* An attribute; a NULL value leaves it out. */
typedef struct k3_chat_attribute {
    const char *key, *value;
    size_t n_value;
} k3_chat_attribute;

k3_status k3_chat_write_open(k3_chat_writer *w, const char *tag, const k3_chat_attribute *attributes, size_t n_attributes);
k3_status k3_chat_write_close(k3_chat_writer *w, const char *tag);
k3_status k3_chat_write_end(k3_chat_writer *w); /* closes `message` and ends it */
/* Empty text writes nothing. */
k3_status k3_chat_write_text(k3_chat_writer *w, const char *text, size_t n);
k3_status k3_chat_write_trusted(k3_chat_writer *w, const char *text);

#endif
