/* The chat format's tags as a grammar. Each part of a tag is tokens of its own, as the renderer writes it. */
#ifndef K3_CONSTRAIN_MARKUP_H
#define K3_CONSTRAIN_MARKUP_H

#include "constrain/grammar.h"

enum { K3_MARK_OPEN, K3_MARK_CLOSE, K3_MARK_SEP, K3_MARK_END, K3_N_MARKS };

/* <|open|>tag, to which attributes and k3_markup_sep follow. */
uint32_t k3_markup_open(k3_grammar *g, const char *tag, uint32_t next);
/* The parts before and behind a value: " key", "=\"" and "\"". */
uint32_t k3_markup_key(k3_grammar *g, const char *key, uint32_t value);
uint32_t k3_markup_quote(k3_grammar *g, uint32_t next);
uint32_t k3_markup_sep(k3_grammar *g, uint32_t next);
uint32_t k3_markup_close(k3_grammar *g, const char *tag, uint32_t next);

#endif
