#include "constrain/markup.h"

static uint32_t part(k3_grammar *g, const char *text, uint32_t next)
{
    return k3_grammar_word(g, text, k3_grammar_border(g, next));
}

uint32_t k3_markup_open(k3_grammar *g, const char *tag, uint32_t next)
{
    return k3_grammar_marker(g, K3_MARK_OPEN, part(g, tag, next));
}

uint32_t k3_markup_key(k3_grammar *g, const char *key, uint32_t value)
{
    return k3_grammar_word(g, " ", part(g, key, part(g, "=\"", value)));
}

uint32_t k3_markup_quote(k3_grammar *g, uint32_t next)
{
    return k3_grammar_border(g, part(g, "\"", next));
}

uint32_t k3_markup_sep(k3_grammar *g, uint32_t next)
{
    return k3_grammar_marker(g, K3_MARK_SEP, next);
}

uint32_t k3_markup_close(k3_grammar *g, const char *tag, uint32_t next)
{
    return k3_grammar_marker(g, K3_MARK_CLOSE, part(g, tag, k3_markup_sep(g, next)));
}
