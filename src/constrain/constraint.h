/* What k3.h calls a constraint, for a vocabulary. narrow, push and close are those of k3.h. */
#ifndef K3_CONSTRAIN_CONSTRAINT_H
#define K3_CONSTRAIN_CONSTRAINT_H

#include "constrain/token_trie.h"

/* *out is NULL where the request narrows nothing. Vocabulary and trie outlive the constraint. */
k3_status k3_constraint_make(k3_constraint **out, const k3_vocab *vocab, const k3_token_trie *trie, const char *request, size_t n,
                             int thinking, k3_error *err);
/* The answer is whole: its end was pushed. */
int k3_constraint_is_over(const k3_constraint *c);

#endif
