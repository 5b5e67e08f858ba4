/* The smallest vocabulary there is. */
#ifndef K3_TESTS_BYTE_VOCAB_H
#define K3_TESTS_BYTE_VOCAB_H

#include <stdio.h>

enum { BYTE_VOCAB_TEXT = 256 * 10 };

/* Lines of a tiktoken file for single bytes, each of which is its own id. Returns their length. */
static inline size_t byte_vocab(char out[BYTE_VOCAB_TEXT])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = 0;
    for (int b = 0; b < 256; b++)
        n += (size_t)snprintf(out + n, BYTE_VOCAB_TEXT - n, "%c%c== %d\n", digits[b >> 2], digits[(b & 3) << 4], b);
    return n;
}

#endif
