/* A chat request in K3's own format (XTML), as token ids. docs/chat.md states every rule. */
#ifndef K3_TEXT_CHAT_RENDER_H
#define K3_TEXT_CHAT_RENDER_H

#include "text/vocab.h"

typedef enum k3_segment_kind {
    K3_SEGMENT_CONTROL, /* one of the four markers: one token */
    K3_SEGMENT_TEXT,    /* encoded alone; names of special tokens in it stay text */
    K3_SEGMENT_TRUSTED  /* encoded alone; names of special tokens in it are those tokens (image blocks) */
} k3_segment_kind;

typedef struct k3_chat_segment {
    k3_segment_kind kind;
    char *text;
    size_t n_bytes;
} k3_chat_segment;

/* What was encoded piece by piece; zero-initialise. */
typedef struct k3_chat_segments {
    k3_chat_segment *items;
    size_t n, capacity;
} k3_chat_segments;

void k3_chat_segments_free(k3_chat_segments *segments);

/* Appends the ids of a request: one JSON object with the fields of docs/chat.md. `segments` and `thinking` may be NULL; *thinking is 1 if
 * the generation prompt leaves `think` open, 0 for `response`. When it fails, ids and segments keep what they had before. */
k3_status k3_chat_render_request(const k3_vocab *vocab, k3_tokens *ids, k3_chat_segments *segments, int *thinking, const char *request_json,
                                 size_t n, k3_error *err);

#endif
