/* Sets of code points, and how one character of such a set is written in an answer. */
#ifndef K3_CONSTRAIN_CHARSET_H
#define K3_CONSTRAIN_CHARSET_H

#include "constrain/grammar.h"

enum { K3_CHARSET_MAX = 128 };

typedef struct k3_charset {
    uint32_t lo[K3_CHARSET_MAX], hi[K3_CHARSET_MAX]; /* sorted and apart after k3_charset_sort */
    size_t n;
    int is_full; /* more ranges than fit */
} k3_charset;

void k3_charset_add(k3_charset *set, uint32_t lo, uint32_t hi);
void k3_charset_sort(k3_charset *set);
/* All code points but surrogates that are not in it; sorted. */
void k3_charset_invert(k3_charset *set);

/* How text stands in the answer. */
typedef enum k3_text_form {
    K3_FORM_JSON,     /* inside a JSON string */
    K3_FORM_RAW,      /* as it is */
    K3_FORM_ATTRIBUTE /* in the value of a tag's attribute */
} k3_text_form;

/* One character of the sorted set. Each has one spelling: what need not be escaped is not. */
uint32_t k3_charset_node(k3_grammar *g, const k3_charset *set, k3_text_form form, uint32_t next);
/* Text of valid UTF-8 in that form. */
uint32_t k3_form_text(k3_grammar *g, const char *text, size_t n, k3_text_form form, uint32_t next);

#endif
