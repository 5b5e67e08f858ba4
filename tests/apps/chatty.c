#include "chatty.h"

#include "process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/byte_vocab.h"
#include "support/tiny_checkpoint.h"

/* Rows 0..255 keep their numbers; the rows of the special slots repeat them or are zero. */
static void widen(tiny_checkpoint *tiny, const char *name, int only_letters)
{
    tiny_tensor *t = tiny_find(tiny, name);
    size_t row = t->n_bytes / TINY_VOCAB;
    t->data = realloc(t->data, CHATTY_VOCAB * row + 1);
    assert_non_null(t->data);
    memcpy(t->data + t->n_bytes, t->data, t->n_bytes);
    for (size_t i = 0; only_letters && i < CHATTY_VOCAB; i++)
        if (!(i >= 'a' && i <= 'z'))
            memset(t->data + i * row, 0, row);
    t->n_bytes = CHATTY_VOCAB * row;
    t->shape[0] = CHATTY_VOCAB;
}

static void put_tokenizer(const char *folder)
{
    char text[BYTE_VOCAB_TEXT];
    tiny_put_file(folder, "tiktoken.model", text, byte_vocab(text));
}

char *chatty_folder(void)
{
    tiny_checkpoint *tiny = tiny_new(1);
    widen(tiny, TINY_BODY "embed_tokens.weight", 0);
    widen(tiny, "language_model.lm_head.weight", 1);
    tiny_replace(&tiny->config, "\"vocab_size\": 256", "\"vocab_size\": 512");
    tiny_replace(&tiny->config, "\"bos_token_id\": 253", "\"bos_token_id\": 256");
    tiny_replace(&tiny->config, "\"eos_token_id\": 255", "\"eos_token_id\": 258");
    tiny_replace(&tiny->config, "\"pad_token_id\": 254", "\"pad_token_id\": 511");
    char *folder = tiny_settle(tiny);
    put_tokenizer(folder);
    return folder;
}

int chatty_setup(void **state)
{
    *state = chatty_folder();
    return 0;
}

int chatty_teardown(void **state)
{
    tiny_remove_folder(*state);
    return 0;
}
