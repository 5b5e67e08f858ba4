/* The text functions of k3.h for an engine's vocabulary. */
#include "engine/engine.h"

#include "text/tokenize.h"

static k3_status need_vocab(const k3_engine *engine, k3_error *err)
{
    return engine->vocab ? K3_OK
                         : k3_fail(err, K3_E_NOT_FOUND,
                                   "%s/tiktoken.model: not there, and text needs it; copy it from the model's repository, or work with ids",
                                   k3_ckpt_folder(engine->ckpt));
}

k3_status k3_tokenize(const k3_engine *engine, k3_tokens *out, const char *text, size_t n_bytes, k3_error *err)
{
    K3_TRY(need_vocab(engine, err));
    return k3_text_encode(engine->vocab, out, text, n_bytes, 0, err);
}

k3_status k3_token_bytes(const k3_engine *engine, const char **bytes, size_t *n_bytes, int32_t id, k3_error *err)
{
    K3_TRY(need_vocab(engine, err));
    return k3_vocab_bytes(engine->vocab, bytes, n_bytes, id, err);
}

int k3_token_is_special(const k3_engine *engine, int32_t id)
{
    return engine->vocab && k3_vocab_is_special(engine->vocab, id);
}
