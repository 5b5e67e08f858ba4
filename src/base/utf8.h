/* UTF-8 in one dialect for all of k3: invalid input becomes U+FFFD, one for each maximal part of a character that broke off,
 * which is what Python's errors="replace" and the WHATWG decoder do. */
#ifndef K3_BASE_UTF8_H
#define K3_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Looks at the character that begins at bytes[0], n >= 1. Returns its length 1..4 if it is whole and valid. Otherwise returns minus the
 * number of bytes that one U+FFFD stands for; *cut is 1 if those are all n bytes and more bytes could still complete the character. */
int k3_utf8_length(const char *bytes, size_t n, int *cut);
/* The code point of a whole valid character of this length. */
uint32_t k3_utf8_code_point(const char *bytes, int length);
/* Writes a code point (not a surrogate) and returns its length. */
int k3_utf8_write(char *out, uint32_t code_point);
int k3_utf8_is_valid(const char *bytes, size_t n);
/* Python's str.isspace, which the tokenizer's cuts and the chat format's "blank" use. */
int k3_utf8_is_space(uint32_t code_point);
/* 1 if the text is empty or made of such characters only. */
int k3_utf8_is_blank(const char *bytes, size_t n);

#endif
