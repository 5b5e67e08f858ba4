/* The text functions of k3.h for an engine's vocabulary. */
#include "engine/engine.h"

#include "constrain/constraint.h"
#include "text/chat_parse.h"
#include "text/chat_render.h"
#include "text/tokenize.h"

#include <stdlib.h>
#include <string.h>

static k3_status need_vocab(const k3_engine *engine, k3_error *err)
{
    return engine->vocab ? K3_OK
                         : k3_fail(err, K3_E_NOT_FOUND,
                                   "%s/tiktoken.model: not there, and text needs it; copy it from the model's repository, or work with ids",
                                   k3_ckpt_folder(engine->ckpt));
}

/* No text averages this many bytes a token (long runs of blanks apart), so what is longer cannot fit the context and is refused before
 * minutes are spent on encoding it. */
enum { K3_BYTES_A_TOKEN = 32 };

static k3_status check_length(const k3_engine *engine, size_t n_bytes, k3_error *err)
{
    uint64_t limit = (uint64_t)engine->hp->context * K3_BYTES_A_TOKEN;
    return n_bytes <= limit ? K3_OK
                            : k3_fail(err, K3_E_INVALID, "text of %zu bytes: a context of %d tokens takes at most %llu bytes (%d a token)",
                                      n_bytes, engine->hp->context, (unsigned long long)limit, (int)K3_BYTES_A_TOKEN);
}

k3_status k3_tokenize(const k3_engine *engine, k3_tokens *out, const char *text, size_t n_bytes, k3_error *err)
{
    K3_TRY(need_vocab(engine, err));
    K3_TRY(check_length(engine, n_bytes, err));
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

k3_status k3_chat_render(const k3_engine *engine, k3_tokens *out, int *thinking, const char *request_json, k3_error *err)
{
    K3_TRY(need_vocab(engine, err));
    size_t n_bytes = strlen(request_json);
    K3_TRY(check_length(engine, n_bytes, err));
    return k3_chat_render_request(engine->vocab, out, NULL, thinking, request_json, n_bytes, err);
}

struct k3_chat_parser {
    k3_chat_parse *parse;
};

k3_status k3_chat_parser_open(k3_chat_parser **out, const k3_engine *engine, int thinking, k3_chat_sink sink, void *user, k3_error *err)
{
    *out = NULL;
    K3_TRY(need_vocab(engine, err));
    k3_chat_parser *parser = malloc(sizeof *parser);
    if (!parser)
        return k3_fail(err, K3_E_NOMEM, "chat parser: out of memory");
    k3_status status = k3_chat_parse_open(&parser->parse, engine->vocab, thinking, sink, user, err);
    if (status != K3_OK) {
        free(parser);
        return status;
    }
    *out = parser;
    return K3_OK;
}

k3_status k3_chat_parser_push(k3_chat_parser *parser, int32_t id, int *done, k3_error *err)
{
    return k3_chat_parse_push(parser->parse, id, done, err);
}

const char *k3_chat_parser_finish(k3_chat_parser *parser)
{
    return k3_chat_parse_finish(parser->parse);
}

void k3_chat_parser_close(k3_chat_parser *parser)
{
    if (!parser)
        return;
    k3_chat_parse_close(parser->parse);
    free(parser);
}

k3_status k3_constraint_open(k3_constraint **out, const k3_engine *engine, const char *request_json, int thinking, k3_error *err)
{
    const k3_token_trie *trie;
    *out = NULL;
    K3_TRY(need_vocab(engine, err));
    size_t n_bytes = strlen(request_json);
    K3_TRY(check_length(engine, n_bytes, err));
    K3_TRY(k3_shared_trie_get(engine->trie, &trie, err));
    return k3_constraint_make(out, engine->vocab, trie, request_json, n_bytes, thinking, err);
}
