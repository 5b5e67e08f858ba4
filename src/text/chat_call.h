/* One tool call while it is read. Internal to the parser. */
#ifndef K3_TEXT_CHAT_CALL_H
#define K3_TEXT_CHAT_CALL_H

#include "base/error.h"
#include "text/buffer.h"

typedef struct k3_chat_argument {
    k3_buffer key, type, value; /* valid UTF-8 */
    int has_key, has_type;
} k3_chat_argument;

typedef struct k3_chat_call {
    k3_buffer name;
    int has_name;
    size_t i_raw; /* a `json` element holds all arguments: number of its argument, from 1; 0: none */
    k3_chat_argument *arguments;
    size_t n, capacity;
    int failed; /* no memory */
} k3_chat_call;

/* Begins an argument; NULL without memory. */
k3_chat_argument *k3_chat_call_add(k3_chat_call *call);
/* The arguments as one JSON object. 0 if they are not one (a broken `json` element) or there is no memory
 * (out->failed). */
int k3_chat_call_write(k3_buffer *out, const k3_chat_call *call);
void k3_chat_call_free(k3_chat_call *call);

/* The header of an element, "tag key="value" ...". Values are unescaped. */
int k3_chat_header_tag_is(const k3_buffer *header, const char *tag);
/* 0 if the header has no such attribute. */
int k3_chat_header_get(k3_buffer *value, const k3_buffer *header, const char *key);

#endif
