#include "constrain/charset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

void k3_charset_add(k3_charset *set, uint32_t lo, uint32_t hi)
{
    if (set->n == K3_CHARSET_MAX) {
        set->is_full = 1;
        return;
    }
    set->lo[set->n] = lo;
    set->hi[set->n++] = hi;
}

void k3_charset_sort(k3_charset *set)
{
    for (size_t i = 1; i < set->n; i++) {
        uint32_t lo = set->lo[i], hi = set->hi[i];
        size_t j = i;
        for (; j > 0 && set->lo[j - 1] > lo; j--) {
            set->lo[j] = set->lo[j - 1];
            set->hi[j] = set->hi[j - 1];
        }
        set->lo[j] = lo;
        set->hi[j] = hi;
    }
    size_t n = 0;
    for (size_t i = 0; i < set->n; i++) {
        if (n > 0 && set->lo[i] <= set->hi[n - 1] + 1) {
            set->hi[n - 1] = set->hi[i] > set->hi[n - 1] ? set->hi[i] : set->hi[n - 1];
        } else {
            set->lo[n] = set->lo[i];
            set->hi[n++] = set->hi[i];
        }
    }
    set->n = n;
}

void k3_charset_invert(k3_charset *set)
{
    k3_charset_add(set, 0xd800, 0xdfff);
    k3_charset_sort(set);
    k3_charset out = {.is_full = set->is_full};
    uint32_t from = 0;
    for (size_t i = 0; i < set->n; i++) {
        if (set->lo[i] > from)
            k3_charset_add(&out, from, set->lo[i] - 1);
        from = set->hi[i] + 1;
    }
    if (from <= 0x10ffff)
        k3_charset_add(&out, from, 0x10ffff);
    *set = out;
}

/* ---- UTF-8 --------------------------------------------------------------------------------------------- */

/* Code points that take `length` bytes, whose first `at` bytes are the same and stand before. */
static uint32_t range_tail(k3_grammar *g, uint32_t lo, uint32_t hi, int n_left, uint32_t next)
{
    if (n_left == 0)
        return next;
    int shift = 6 * (n_left - 1);
    uint32_t mask = ((uint32_t)1 << shift) - 1, first = lo >> shift & 0x3f, last = hi >> shift & 0x3f;
    if (first == last)
        return k3_grammar_bytes(g, (uint8_t)(0x80 | first), (uint8_t)(0x80 | last), range_tail(g, lo & mask, hi & mask, n_left - 1, next));
    uint32_t start = K3_GRAMMAR_DEAD;
    if (lo & mask) {
        uint32_t tail = range_tail(g, lo & mask, mask, n_left - 1, next);
        start = k3_grammar_bytes(g, (uint8_t)(0x80 | first), (uint8_t)(0x80 | first), tail);
        first++;
    }
    if ((hi & mask) != mask) {
        uint32_t tail = range_tail(g, 0, hi & mask, n_left - 1, next);
        start = k3_grammar_either(g, k3_grammar_bytes(g, (uint8_t)(0x80 | last), (uint8_t)(0x80 | last), tail), start);
        last--;
    }
    if (first <= last) {
        uint32_t tail = range_tail(g, 0, mask, n_left - 1, next);
        start = k3_grammar_either(g, k3_grammar_bytes(g, (uint8_t)(0x80 | first), (uint8_t)(0x80 | last), tail), start);
    }
    return start;
}

/* A range inside code points that take as many bytes. */
static uint32_t range_of_length(k3_grammar *g, uint32_t lo, uint32_t hi, int length, uint32_t next)
{
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    if (length == 1)
        return k3_grammar_bytes(g, (uint8_t)lo, (uint8_t)hi, next);
    int shift = 6 * (length - 1);
    uint32_t mask = ((uint32_t)1 << shift) - 1, start = K3_GRAMMAR_DEAD;
    while (lo <= hi) { /* lead by lead, and those that are whole together */
        uint32_t end = lo | mask;
        if ((lo & mask) == 0 && end < hi) {
            end = (hi + 1) >> shift << shift;
            end = end > lo ? end - 1 : hi;
        }
        end = end < hi ? end : hi;
        uint32_t whole = (lo & mask) == 0 && (end & mask) == mask;
        uint32_t tail = whole ? range_tail(g, 0, mask, length - 1, next) : range_tail(g, lo & mask, end & mask, length - 1, next);
        start = k3_grammar_either(
            g, k3_grammar_bytes(g, (uint8_t)(lead[length] | lo >> shift), (uint8_t)(lead[length] | end >> shift), tail), start);
        lo = end + 1;
    }
    return start;
}

static uint32_t range_node(k3_grammar *g, uint32_t lo, uint32_t hi, uint32_t next)
{
    static const uint32_t last[] = {0, 0x7f, 0x7ff, 0xffff, 0x10ffff};
    uint32_t start = K3_GRAMMAR_DEAD;
    for (int length = 1; length <= 4; length++) {
        uint32_t from = length == 1 ? 0 : last[length - 1] + 1;
        uint32_t a = lo > from ? lo : from, b = hi < last[length] ? hi : last[length];
        if (a <= b)
            start = k3_grammar_either(g, range_of_length(g, a, b, length, next), start);
    }
    return start;
}

/* ---- forms --------------------------------------------------------------------------------------------- */

/* How a character is escaped; 0 if it stands as it is. */
static int escape(char out[8], uint32_t c, k3_text_form form)
{
    static const char letters[] = "btn\vfr";
    if (form == K3_FORM_ATTRIBUTE)
        return c == '"' ? (strcpy(out, "&quot;"), 1) : c == '&' ? (strcpy(out, "&amp;"), 1) : 0;
    if (form != K3_FORM_JSON || (c >= 0x20 && c != '"' && c != '\\'))
        return 0;
    if (c == '"' || c == '\\')
        snprintf(out, 8, "\\%c", (int)c);
    else if (c >= 8 && c <= 13 && c != 11)
        snprintf(out, 8, "\\%c", letters[c - 8]);
    else
        snprintf(out, 8, "\\u%04x", (unsigned)c);
    return 1;
}

uint32_t k3_charset_node(k3_grammar *g, const k3_charset *set, k3_text_form form, uint32_t next)
{
    uint32_t start = K3_GRAMMAR_DEAD;
    for (size_t i = set->n; i-- > 0;) {
        uint32_t lo = set->lo[i], hi = set->hi[i];
        char spelling[8];
        /* Whatever is escaped is below 128. */
        uint32_t from = lo;
        for (uint32_t c = lo; c <= hi && c < 128; c++) {
            if (!escape(spelling, c, form))
                continue;
            if (c > from)
                start = k3_grammar_either(g, range_node(g, from, c - 1, next), start);
            start = k3_grammar_either(g, k3_grammar_word(g, spelling, next), start);
            from = c + 1;
        }
        if (from <= hi)
            start = k3_grammar_either(g, range_node(g, from, hi, next), start);
    }
    return start;
}

uint32_t k3_form_text(k3_grammar *g, const char *text, size_t n, k3_text_form form, uint32_t next)
{
    char spelling[8];
    while (n-- > 0) {
        uint8_t byte = (uint8_t)text[n];
        next = escape(spelling, byte, form) ? k3_grammar_word(g, spelling, next) : k3_grammar_bytes(g, byte, byte, next);
    }
    return next;
}
