#include "text/tokens.h"

#include <stdlib.h>

k3_status k3_tokens_reserve(k3_tokens *tokens, size_t n, k3_error *err)
{
    if (n <= tokens->capacity - tokens->n)
        return K3_OK;
    size_t capacity = tokens->n + n < 64 ? 64 : (tokens->n + n) + (tokens->n + n) / 2;
    int32_t *ids = n < SIZE_MAX / 16 - tokens->n ? realloc(tokens->ids, capacity * sizeof *ids) : NULL;
    if (!ids)
        return k3_fail(err, K3_E_NOMEM, "no memory for %zu more token ids", n);
    tokens->ids = ids;
    tokens->capacity = capacity;
    return K3_OK;
}

k3_status k3_tokens_add(k3_tokens *tokens, int32_t id, k3_error *err)
{
    K3_TRY(k3_tokens_reserve(tokens, 1, err));
    tokens->ids[tokens->n++] = id;
    return K3_OK;
}

void k3_tokens_free(k3_tokens *tokens)
{
    if (!tokens)
        return;
    free(tokens->ids);
    *tokens = (k3_tokens){0};
}
