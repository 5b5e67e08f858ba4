#include "text/pretokenize.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/utf8.h"

/* K3's pattern in PCRE2's words. Three things would look right and be wrong: `\p{Han}` means Script_Extensions here and is 94,503 code
 * points instead of 99,030; `\s` holds U+180E, which is no white space; and a class intersection with "not Han" does not exist, so the
 * letter classes are written as "none of the other categories". */
#define HAN "\\p{sc:Han}"
#define SPACE "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define OTHER "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}"
#define UPPER_NOT_HAN "[^" HAN "\\p{Ll}" OTHER "]"
#define LOWER_NOT_HAN "[^" HAN "\\p{Lu}\\p{Lt}" OTHER "]"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

static const char pattern[] =
    "[" HAN "]+"
    "|" LEAD UPPER_NOT_HAN "*" LOWER_NOT_HAN "+" CONTRACTION "|" LEAD UPPER_NOT_HAN "+" LOWER_NOT_HAN "*" CONTRACTION "|\\p{N}{1,3}"
    "|\\x{20}?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*"
    "|[" SPACE "]*[\\r\\n]+"
    "|[" SPACE "]+(?![^" SPACE "])"
    "|[" SPACE "]+";

/* The reference classifies by Unicode 16, the oldest PCRE2 in use by Unicode 14. Every code point whose class differs between the two is
 * here; for matching it is replaced by an older one of the same class and the same length in UTF-8, so that offsets stay.
 * tests/text/test_tiktoken.c goes through all code points. */
typedef enum late_class { UPPER, LOWER, LETTER, MARK, NUMBER, HAN_LETTER } late_class;
typedef struct late_range {
    uint32_t first, last;
    late_class class;
} late_range;
static const late_range late_ranges[] = {
    {0x897, 0x897, MARK},           {0xcf3, 0xcf3, MARK},           {0xece, 0xece, MARK},          {0x1c89, 0x1c89, UPPER},
    {0x1c8a, 0x1c8a, LOWER},        {0xa7cb, 0xa7cc, UPPER},        {0xa7cd, 0xa7cd, LOWER},       {0xa7da, 0xa7da, UPPER},
    {0xa7db, 0xa7db, LOWER},        {0xa7dc, 0xa7dc, UPPER},        {0x105c0, 0x105f3, LETTER},    {0x10d40, 0x10d49, NUMBER},
    {0x10d4a, 0x10d4f, LETTER},     {0x10d50, 0x10d65, UPPER},      {0x10d69, 0x10d6d, MARK},      {0x10d6f, 0x10d6f, LETTER},
    {0x10d70, 0x10d85, LOWER},      {0x10ec2, 0x10ec4, LETTER},     {0x10efc, 0x10eff, MARK},      {0x1123f, 0x11240, LETTER},
    {0x11241, 0x11241, MARK},       {0x11380, 0x11389, LETTER},     {0x1138b, 0x1138b, LETTER},    {0x1138e, 0x1138e, LETTER},
    {0x11390, 0x113b5, LETTER},     {0x113b7, 0x113b7, LETTER},     {0x113b8, 0x113c0, MARK},      {0x113c2, 0x113c2, MARK},
    {0x113c5, 0x113c5, MARK},       {0x113c7, 0x113ca, MARK},       {0x113cc, 0x113d0, MARK},      {0x113d1, 0x113d1, LETTER},
    {0x113d2, 0x113d2, MARK},       {0x113d3, 0x113d3, LETTER},     {0x113e1, 0x113e2, MARK},      {0x116d0, 0x116e3, NUMBER},
    {0x11bc0, 0x11be0, LETTER},     {0x11bf0, 0x11bf9, NUMBER},     {0x11f00, 0x11f01, MARK},      {0x11f02, 0x11f02, LETTER},
    {0x11f03, 0x11f03, MARK},       {0x11f04, 0x11f10, LETTER},     {0x11f12, 0x11f33, LETTER},    {0x11f34, 0x11f3a, MARK},
    {0x11f3e, 0x11f42, MARK},       {0x11f50, 0x11f59, NUMBER},     {0x11f5a, 0x11f5a, MARK},      {0x1342f, 0x1342f, LETTER},
    {0x13440, 0x13440, MARK},       {0x13441, 0x13446, LETTER},     {0x13447, 0x13455, MARK},      {0x13460, 0x143fa, LETTER},
    {0x16100, 0x1611d, LETTER},     {0x1611e, 0x1612f, MARK},       {0x16130, 0x16139, NUMBER},    {0x16d40, 0x16d6c, LETTER},
    {0x16d70, 0x16d79, NUMBER},     {0x18cff, 0x18cff, LETTER},     {0x1b132, 0x1b132, LETTER},    {0x1b155, 0x1b155, LETTER},
    {0x1ccf0, 0x1ccf9, NUMBER},     {0x1d2c0, 0x1d2d3, NUMBER},     {0x1df25, 0x1df2a, LOWER},     {0x1e030, 0x1e06d, LETTER},
    {0x1e08f, 0x1e08f, MARK},       {0x1e4d0, 0x1e4eb, LETTER},     {0x1e4ec, 0x1e4ef, MARK},      {0x1e4f0, 0x1e4f9, NUMBER},
    {0x1e5d0, 0x1e5ed, LETTER},     {0x1e5ee, 0x1e5ef, MARK},       {0x1e5f0, 0x1e5f0, LETTER},    {0x1e5f1, 0x1e5fa, NUMBER},
    {0x2b739, 0x2b739, HAN_LETTER}, {0x2ebf0, 0x2ee5d, HAN_LETTER}, {0x31350, 0x323af, HAN_LETTER}};
static const uint32_t stand_ins[][2] = {
    /* three bytes, four bytes */
    [UPPER] = {0x1e00, 0x10400}, [LOWER] = {0x1e01, 0x10428},  [LETTER] = {0x0e01, 0x10450},
    [MARK] = {0x0e31, 0x1d165},  [NUMBER] = {0x0e50, 0x1d7ce}, [HAN_LETTER] = {0x4e00, 0x20000},
};

struct k3_pretokenizer {
    pcre2_code *code;
};

struct k3_splitter {
    const pcre2_code *code;
    pcre2_match_data *match;
    char *copy; /* the text with stand-ins, when it needs any */
    size_t copy_bytes;
    const char *at, *end;
};

static const late_range *find_late(uint32_t code_point)
{
    size_t low = 0, high = sizeof late_ranges / sizeof late_ranges[0];
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code_point > late_ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    const late_range *range = &late_ranges[low];
    return low < sizeof late_ranges / sizeof late_ranges[0] && code_point >= range->first ? range : NULL;
}

/* U+3000..U+A7CA (kana, the common Han block) and U+1C8B..U+2FFF hold none: most text never searches the table. */
static int may_be_late(uint32_t c)
{
    return c >= 0xa7cb || (c >= 0x897 && c <= 0x1c8a);
}

size_t k3_cut_next(k3_cut *cut, const char *text, size_t n, int *late)
{
    int broken;
    *late = 0;
    for (size_t i = 0; i < n;) {
        int length = k3_utf8_length(text + i, n - i, &broken);
        uint32_t c = k3_utf8_code_point(text + i, length);
        int is_space = k3_utf8_is_space(c);
        if (cut->n_slice == K3_CUT_SLICE) {
            *cut = (k3_cut){0};
            if (i > 0)
                return i;
        }
        if (cut->n_slice > 0 && is_space == cut->is_space && cut->n_run == K3_CUT_RUN) {
            cut->n_run = 0;
            if (i > 0)
                return i;
        }
        cut->n_run = is_space == cut->is_space ? cut->n_run + 1 : 1;
        cut->is_space = is_space;
        cut->n_slice++;
        if (may_be_late(c) && find_late(c))
            *late = 1;
        i += (size_t)length;
    }
    return n;
}

k3_status k3_pretokenizer_open(k3_pretokenizer **out, k3_error *err)
{
    *out = NULL;
    int code_error;
    PCRE2_SIZE offset;
    /* Anchored when compiled: the just-in-time matcher refuses it as an option of the match. */
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, &code_error, &offset, NULL);
    if (!code) {
        char message[128] = "";
        pcre2_get_error_message(code_error, (PCRE2_UCHAR *)message, sizeof message);
        return k3_fail(err, K3_E_UNSUPPORTED, "PCRE2 refuses the tokenizer's pattern at offset %zu: %s; PCRE2 10.40 or newer is needed",
                       (size_t)offset, message);
    }
    /* Without just-in-time compilation (some hardened systems) the interpreter gives the same matches, slower. */
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    k3_pretokenizer *p = calloc(1, sizeof *p);
    if (!p) {
        pcre2_code_free(code);
        return k3_fail(err, K3_E_NOMEM, "no memory for the tokenizer's pattern");
    }
    p->code = code;
    *out = p;
    return K3_OK;
}

void k3_pretokenizer_close(k3_pretokenizer *pretokenizer)
{
    if (!pretokenizer)
        return;
    pcre2_code_free(pretokenizer->code);
    free(pretokenizer);
}

k3_status k3_splitter_open(k3_splitter **out, const k3_pretokenizer *pretokenizer, k3_error *err)
{
    *out = NULL;
    k3_splitter *s = calloc(1, sizeof *s);
    if (s) {
        s->code = pretokenizer->code;
        s->match = pcre2_match_data_create(1, NULL);
    }
    if (!s || !s->match) {
        k3_splitter_close(s);
        return k3_fail(err, K3_E_NOMEM, "no memory to split text into words");
    }
    *out = s;
    return K3_OK;
}

void k3_splitter_close(k3_splitter *s)
{
    if (!s)
        return;
    pcre2_match_data_free(s->match);
    free(s->copy);
    free(s);
}

k3_status k3_splitter_start(k3_splitter *s, const char *text, size_t n, int late, k3_error *err)
{
    s->at = text;
    s->end = text + n;
    if (!late || n == 0)
        return K3_OK;
    if (n > s->copy_bytes) {
        char *copy = realloc(s->copy, n);
        if (!copy)
            return k3_fail(err, K3_E_NOMEM, "no memory to split a text of %zu bytes into words", n);
        s->copy = copy;
        s->copy_bytes = n;
    }
    memcpy(s->copy, text, n);
    int cut;
    for (size_t i = 0; i < n;) {
        int length = k3_utf8_length(text + i, n - i, &cut);
        uint32_t c = k3_utf8_code_point(text + i, length);
        const late_range *range = may_be_late(c) ? find_late(c) : NULL;
        if (range)
            k3_utf8_write(s->copy + i, stand_ins[range->class][length - 3]);
        i += (size_t)length;
    }
    s->at = s->copy;
    s->end = s->copy + n;
    return K3_OK;
}

k3_status k3_splitter_next(k3_splitter *s, size_t *n_piece, k3_error *err)
{
    *n_piece = 0;
    if (s->at == s->end)
        return K3_OK;
    size_t n = (size_t)(s->end - s->at);
    int rc = pcre2_match(s->code, (PCRE2_SPTR)s->at, n, 0, PCRE2_NO_UTF_CHECK, s->match, NULL);
    /* This pattern needs the same little stack for a word of any length; should a PCRE2 compile it to something that needs more, the
     * interpreter, which keeps its state on the heap, gives the same match. */
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(s->code, (PCRE2_SPTR)s->at, n, 0, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->match, NULL);
    size_t length = rc > 0 ? pcre2_get_ovector_pointer(s->match)[1] : 0;
    if (length == 0)
        return k3_fail(err, K3_E_UNSUPPORTED, "PCRE2 finds no word at the beginning of %zu bytes of text (code %d)", n, rc);
    s->at += length;
    *n_piece = length;
    return K3_OK;
}
