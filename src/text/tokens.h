/* Growing a k3_tokens. */
#ifndef K3_TEXT_TOKENS_H
#define K3_TEXT_TOKENS_H

#include "base/error.h"

/* Makes room for n more ids; the ids that are there stay. */
k3_status k3_tokens_reserve(k3_tokens *tokens, size_t n, k3_error *err);
k3_status k3_tokens_add(k3_tokens *tokens, int32_t id, k3_error *err);

#endif
