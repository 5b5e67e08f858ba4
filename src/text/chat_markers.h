/* The four tokens that give a K3 conversation its structure, and the id that ends generation as well. */
#ifndef K3_TEXT_CHAT_MARKERS_H
#define K3_TEXT_CHAT_MARKERS_H

#include "text/vocab.h"

typedef struct k3_chat_markers {
    int32_t open, close, sep, end; /* end: <|end_of_msg|> */
    int32_t eos;                   /* [EOS]; -1 if the vocabulary has none */
} k3_chat_markers;

/* K3_E_UNSUPPORTED names the marker that the vocabulary lacks. */
k3_status k3_chat_markers_find(k3_chat_markers *markers, const k3_vocab *vocab, k3_error *err);

#endif
