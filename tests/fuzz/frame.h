/* What fuzz targets share: a check that ends the run, and a vocabulary. */
#ifndef K3_TESTS_FUZZ_FRAME_H
#define K3_TESTS_FUZZ_FRAME_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "support/byte_vocab.h"
#include "text/buffer.h"
#include "text/vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void check(int holds)
{
    if (!holds)
        abort();
}

/* Single bytes, then `more`: lines of a tiktoken file from id 256 on. Is never closed. */
static inline const k3_vocab *open_vocab(const char *more)
{
    char bytes[BYTE_VOCAB_TEXT];
    k3_buffer model = {0};
    k3_vocab *vocab;
    k3_error err;
    int n = 256;
    k3_buffer_add(&model, bytes, byte_vocab(bytes));
    k3_buffer_add_text(&model, more);
    for (; *more; more++)
        n += *more == '\n';
    check(k3_vocab_parse(&vocab, model.bytes, model.n, NULL, 0, n + 256, &err) == K3_OK);
    k3_buffer_free(&model);
    return vocab;
}

#endif
