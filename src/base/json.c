#include "base/json.h"

#include "base/hash.h"
#include "base/utf8.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif

enum { MAX_DEPTH = 256, FIRST_CHUNK = 64, LARGEST_CHUNK = 16384, KEY_SHOWN = 80 };

typedef struct node_chunk node_chunk;
struct node_chunk {
    node_chunk *next;
    size_t used, size;
    k3_json nodes[];
};

/* The root node is the first member, so that k3_json_free gets from the root to everything else. */
typedef struct json_document {
    k3_json root;
    node_chunk *chunks;
    char *strings;
} json_document;

/* Newlines are legal between tokens only, so the line is counted there; `n_extra` counts the bytes of this line that continue a
 * character, so that columns are characters as an editor shows them. `room` walks through json_document.strings: one block of the
 * text's size holds every decoded string and number, because each is shorter than its spelling plus the delimiter that follows. */
typedef struct parser {
    json_document *document;
    const char *at, *end, *line_start;
    size_t line, n_extra;
    char *room;
    int flags, depth;
    k3_error *err;
} parser;

static k3_status fail_at(const parser *p, const char *at, const char *message)
{
    return k3_fail(p->err, K3_E_FORMAT, "line %zu, column %zu: %s", p->line, (size_t)(at - p->line_start) - p->n_extra + 1, message);
}

/* "found X, wanted Y" at the parser's position. */
static k3_status fail_unexpected(const parser *p, const char *wanted)
{
    char message[160];
    if (p->at == p->end)
        snprintf(message, sizeof message, "the text ends here, wanted %s", wanted);
    else if (*p->at > 0x20 && *p->at < 0x7f)
        snprintf(message, sizeof message, "found '%c', wanted %s", *p->at, wanted);
    else
        snprintf(message, sizeof message, "found byte 0x%02x, wanted %s", (unsigned char)*p->at, wanted);
    return fail_at(p, p->at, message);
}

static void skip_space(parser *p)
{
    for (; p->at < p->end; p->at++) {
        if (*p->at == '\n') {
            p->line++;
            p->line_start = p->at + 1;
            p->n_extra = 0;
        } else if (*p->at != ' ' && *p->at != '\t' && *p->at != '\r') {
            return;
        }
    }
}

static k3_json *new_node(parser *p)
{
    node_chunk *chunk = p->document->chunks;
    if (!chunk || chunk->used == chunk->size) {
        size_t size = !chunk ? FIRST_CHUNK : chunk->size < LARGEST_CHUNK ? chunk->size * 2 : LARGEST_CHUNK;
        node_chunk *fresh = malloc(sizeof *fresh + size * sizeof fresh->nodes[0]);
        if (!fresh)
            return NULL;
        *fresh = (node_chunk){.next = chunk, .used = 0, .size = size};
        p->document->chunks = chunk = fresh;
    }
    k3_json *node = &chunk->nodes[chunk->used++];
    *node = (k3_json){.type = K3_JSON_NULL};
    return node;
}

/* The four hexadecimal digits at `s`; -1 if they are not there. */
static int hex4(const char *s, const char *end)
{
    int value = 0;
    if (end - s < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* p->at is at the backslash of \uXXXX. A high half must be followed by the escape of a low half. */
static k3_status parse_unicode_escape(parser *p)
{
    int unit = hex4(p->at + 2, p->end);
    if (unit < 0)
        return fail_at(p, p->at, "\\u must be followed by four hexadecimal digits");
    unsigned c = (unsigned)unit;
    size_t n = 6;
    if (unit >= 0xd800 && unit <= 0xdfff) {
        int low = -1;
        if (unit < 0xdc00 && p->end - p->at >= 12 && p->at[6] == '\\' && p->at[7] == 'u')
            low = hex4(p->at + 8, p->end);
        if (low >= 0xdc00 && low <= 0xdfff) {
            c = 0x10000 + ((unsigned)(unit - 0xd800) << 10) + (unsigned)(low - 0xdc00);
            n = 12;
        } else if (p->flags & K3_JSON_SURROGATES) {
            c = 0xfffd;
        } else {
            return fail_at(p, p->at, "half a surrogate pair; write the character itself or both halves");
        }
    }
    p->room += k3_utf8_write(p->room, c);
    p->at += n;
    return K3_OK;
}

static k3_status parse_escape(parser *p)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = p->end - p->at >= 2 ? p->at[1] : 0;
    if (c == 'u')
        return parse_unicode_escape(p);
    const char *name = c ? strchr(names, c) : NULL;
    if (!name)
        return fail_at(p, p->at, "a backslash in a string must be followed by one of \" \\ / b f n r t u");
    *p->room++ = values[name - names];
    p->at += 2;
    return K3_OK;
}

/* p->at is at the opening quote. */
static k3_status parse_string(parser *p, const char **text, size_t *n_bytes)
{
    p->at++;
    char *out = p->room;
    for (;;) {
        const char *run = p->at;
        while (p->at < p->end && (unsigned char)*p->at >= 0x20 && (unsigned char)*p->at < 0x80 && *p->at != '"' && *p->at != '\\')
            p->at++;
        memcpy(p->room, run, (size_t)(p->at - run));
        p->room += p->at - run;
        if (p->at == p->end)
            return fail_at(p, p->at, "the text ends inside a string");
        unsigned char c = (unsigned char)*p->at;
        if (c == '"')
            break;
        if (c == '\\') {
            K3_TRY(parse_escape(p));
        } else if (c < 0x20) {
            return fail_at(p, p->at, "a control character inside a string must be written as an escape");
        } else {
            int cut, length = k3_utf8_length(p->at, (size_t)(p->end - p->at), &cut);
            size_t n = (size_t)length;
            if (length < 0)
                return fail_at(p, p->at, "invalid UTF-8 inside a string");
            memcpy(p->room, p->at, n);
            p->room += n;
            p->at += n;
            p->n_extra += n - 1;
        }
    }
    p->at++;
    *text = out;
    *n_bytes = (size_t)(p->room - out);
    *p->room++ = 0;
    return K3_OK;
}

static int is_digit(const parser *p)
{
    return p->at < p->end && *p->at >= '0' && *p->at <= '9';
}

static int take_word(parser *p, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0)
        return 0;
    p->at += n;
    return 1;
}

static k3_status parse_number(parser *p, k3_json *node)
{
    const char *start = p->at;
    p->at += *p->at == '-';
    if (p->at < p->end && *p->at == 'I' && (p->flags & K3_JSON_NONFINITE) && take_word(p, "Infinity")) {
        /* the spelling is complete */
    } else {
        if (!is_digit(p))
            return fail_unexpected(p, "a digit");
        if (*p->at++ == '0' && is_digit(p))
            return fail_at(p, start, "a number may not start with 0 and more digits");
        while (is_digit(p))
            p->at++;
        if (p->at < p->end && *p->at == '.') {
            p->at++;
            if (!is_digit(p))
                return fail_unexpected(p, "a digit after the decimal point");
            while (is_digit(p))
                p->at++;
        }
        if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
            p->at++;
            p->at += p->at < p->end && (*p->at == '+' || *p->at == '-');
            if (!is_digit(p))
                return fail_unexpected(p, "a digit of the exponent");
            while (is_digit(p))
                p->at++;
        }
    }
    node->type = K3_JSON_NUMBER;
    node->text = p->room;
    node->text_bytes = (size_t)(p->at - start);
    memcpy(p->room, start, node->text_bytes);
    p->room += node->text_bytes;
    *p->room++ = 0;
    return K3_OK;
}

static k3_status parse_word(parser *p, k3_json *node)
{
    static const struct {
        const char *word;
        k3_json_type type;
    } words[] = {{"null", K3_JSON_NULL}, {"true", K3_JSON_TRUE}, {"false", K3_JSON_FALSE}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (take_word(p, words[i].word)) {
            node->type = words[i].type;
            return K3_OK;
        }
    }
    static const char *const nonfinite[] = {"NaN", "Infinity"};
    for (size_t i = 0; i < 2; i++) {
        const char *start = p->at;
        if (!take_word(p, nonfinite[i]))
            continue;
        if (!(p->flags & K3_JSON_NONFINITE))
            return fail_at(p, start, "NaN and Infinity are not JSON");
        node->type = K3_JSON_NUMBER;
        node->text = nonfinite[i];
        node->text_bytes = strlen(nonfinite[i]);
        return K3_OK;
    }
    return fail_unexpected(p, "a JSON value");
}

static int same_key(const k3_json *a, const k3_json *b)
{
    return a->key_bytes == b->key_bytes && memcmp(a->key, b->key, a->key_bytes) == 0;
}

static k3_status fail_repeated(const parser *p, const k3_json *member)
{
    char shown[KEY_SHOWN + 1];
    size_t n = member->key_bytes < KEY_SHOWN ? member->key_bytes : KEY_SHOWN;
    for (size_t i = 0; i < n; i++)
        shown[i] = (unsigned char)member->key[i] < 0x20 ? '?' : member->key[i];
    shown[n] = 0;
    return k3_fail(p->err, K3_E_FORMAT, "line %u, column %u: key \"%s\" appears a second time in the same object", member->line,
                   member->column, shown);
}

/* The hash is seeded with an address, so that a hostile file cannot aim its keys at one slot. */
static k3_status check_unique(const parser *p, const k3_json *object)
{
    if (object->n_children <= 8) {
        for (const k3_json *b = object->first; b; b = b->next)
            for (const k3_json *a = object->first; a != b; a = a->next)
                if (same_key(a, b))
                    return fail_repeated(p, b);
        return K3_OK;
    }
    size_t size = 16;
    while (size < object->n_children * 2)
        size *= 2;
    const k3_json **table = calloc(size, sizeof *table);
    if (!table)
        return k3_fail(p->err, K3_E_NOMEM, "no memory to check %zu keys", object->n_children);
    const k3_json *repeated = NULL;
    for (const k3_json *m = object->first; m && !repeated; m = m->next) {
        size_t i = k3_hash_name(m->key, m->key_bytes, table) & (size - 1);
        while (table[i] && !same_key(table[i], m))
            i = (i + 1) & (size - 1);
        if (table[i])
            repeated = m;
        table[i] = m;
    }
    free(table);
    return repeated ? fail_repeated(p, repeated) : K3_OK;
}

static k3_status parse_value(parser *p, k3_json *node);

static k3_status parse_member(parser *p, const k3_json ***tail, k3_json *parent)
{
    const char *key = NULL;
    size_t key_bytes = 0;
    skip_space(p);
    if (parent->type == K3_JSON_OBJECT) {
        if (p->at == p->end || *p->at != '"')
            return fail_unexpected(p, "a member's name in quotes");
        K3_TRY(parse_string(p, &key, &key_bytes));
        skip_space(p);
        if (p->at == p->end || *p->at != ':')
            return fail_unexpected(p, "':' after a member's name");
        p->at++;
        skip_space(p);
    }
    k3_json *child = new_node(p);
    if (!child)
        return k3_fail(p->err, K3_E_NOMEM, "no memory for a JSON text of %zu bytes", (size_t)(p->end - p->line_start));
    child->key = key;
    child->key_bytes = key_bytes;
    K3_TRY(parse_value(p, child));
    **tail = child;
    *tail = &child->next;
    parent->n_children++;
    return K3_OK;
}

/* p->at is at the opening bracket or brace. */
static k3_status parse_container(parser *p, k3_json *node)
{
    int is_object = *p->at == '{';
    char close = is_object ? '}' : ']';
    if (p->depth == MAX_DEPTH)
        return fail_at(p, p->at, "nested deeper than 256 levels");
    p->depth++;
    node->type = is_object ? K3_JSON_OBJECT : K3_JSON_ARRAY;
    p->at++;
    skip_space(p);
    if (p->at < p->end && *p->at == close) {
        p->at++;
        p->depth--;
        return K3_OK;
    }
    const k3_json **tail = &node->first;
    for (;;) {
        K3_TRY(parse_member(p, &tail, node));
        skip_space(p);
        if (p->at < p->end && *p->at == close)
            break;
        if (p->at == p->end || *p->at != ',')
            return fail_unexpected(p, is_object ? "',' or '}'" : "',' or ']'");
        p->at++;
    }
    p->at++;
    p->depth--;
    return is_object && (p->flags & K3_JSON_UNIQUE_KEYS) ? check_unique(p, node) : K3_OK;
}

/* p->at is at the value's first character. */
static k3_status parse_value(parser *p, k3_json *node)
{
    node->line = (uint32_t)p->line;
    node->column = (uint32_t)((size_t)(p->at - p->line_start) - p->n_extra + 1);
    char c = p->at < p->end ? *p->at : 0;
    if (c == '{' || c == '[')
        return parse_container(p, node);
    if (c == '"') {
        node->type = K3_JSON_STRING;
        return parse_string(p, &node->text, &node->text_bytes);
    }
    if (c == '-' || (c >= '0' && c <= '9'))
        return parse_number(p, node);
    return parse_word(p, node);
}

k3_status k3_json_parse(const k3_json **out, const char *text, size_t n_bytes, int flags, k3_error *err)
{
    *out = NULL;
    json_document *document = calloc(1, sizeof *document);
    char *strings = n_bytes < SIZE_MAX - 2 ? malloc(n_bytes + 2) : NULL;
    if (!document || !strings) {
        free(document);
        free(strings);
        return k3_fail(err, K3_E_NOMEM, "no memory for a JSON text of %zu bytes", n_bytes);
    }
    document->strings = strings;
    parser p = {.document = document, .at = text, .end = text + n_bytes, .line = 1, .room = strings, .flags = flags, .err = err};
    if (n_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        p.at += 3;
    p.line_start = p.at;
    skip_space(&p);
    k3_status status = parse_value(&p, &document->root);
    if (status == K3_OK) {
        skip_space(&p);
        if (p.at != p.end)
            status = fail_unexpected(&p, "nothing after the value");
    }
    if (status != K3_OK) {
        k3_json_free(&document->root);
        return status;
    }
    *out = &document->root;
    return K3_OK;
}

void k3_json_free(const k3_json *root)
{
    if (!root)
        return;
    /* Through an integer: the caller's view is const, the document is ours. */
    json_document *document = (json_document *)(uintptr_t)root;
    for (node_chunk *chunk = document->chunks; chunk;) {
        node_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    free(document->strings);
    free(document);
}

const k3_json *k3_json_get(const k3_json *value, const char *key)
{
    const k3_json *found = NULL;
    if (!value || value->type != K3_JSON_OBJECT)
        return NULL;
    size_t n = strlen(key);
    for (const k3_json *m = value->first; m; m = m->next)
        if (m->key_bytes == n && memcmp(m->key, key, n) == 0)
            found = m;
    return found;
}

int k3_json_text_is(const k3_json *value, const char *text)
{
    return value && value->type == K3_JSON_STRING && value->text_bytes == strlen(text) && memcmp(value->text, text, value->text_bytes) == 0;
}

int k3_json_double(const k3_json *value, double *out)
{
    if (!value || value->type != K3_JSON_NUMBER)
        return 0;
    /* strtod alone would read "0.5" as 0 where the program's locale writes a decimal comma. */
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0)
        return 0;
    double x = strtod_l(value->text, NULL, plain);
    freelocale(plain);
    if (!isfinite(x))
        return 0;
    *out = x;
    return 1;
}

/* The power of ten written after 'e'; saturates far beyond any text's length. */
static int64_t exponent_of(const char *s)
{
    int negative = *s == '-';
    int64_t e = 0;
    for (s += *s == '-' || *s == '+'; *s; s++)
        if (e < INT64_MAX / 100)
            e = e * 10 + (*s - '0');
    return negative ? -e : e;
}

/* Works on the spelling: a double would round 9007199254740993. */
int k3_json_int(const k3_json *value, int64_t *out)
{
    if (!value || value->type != K3_JSON_NUMBER)
        return 0;
    const char *s = value->text, *point = NULL, *last = NULL;
    int negative = *s == '-';
    s += negative;
    if (*s < '0' || *s > '9')
        return 0;
    size_t n_mantissa = strspn(s, "0123456789.");
    for (size_t i = 0; i < n_mantissa; i++) {
        if (s[i] == '.')
            point = s + i;
        else if (s[i] != '0')
            last = s + i;
    }
    if (!last) {
        *out = 0;
        return 1;
    }
    /* Zeros the value has after its last nonzero digit; negative: a fraction remains. */
    const char *whole_end = point ? point : s + n_mantissa;
    int64_t zeros = last < whole_end ? whole_end - last - 1 : -(int64_t)(last - whole_end);
    zeros += s[n_mantissa] ? exponent_of(s + n_mantissa + 1) : 0;
    if (zeros < 0 || zeros > 18)
        return 0;
    uint64_t limit = (uint64_t)INT64_MAX + (uint64_t)negative, x = 0;
    while (s <= last || zeros > 0) {
        uint64_t digit = 0;
        if (s > last)
            zeros--;
        else if (*s++ == '.')
            continue;
        else
            digit = (uint64_t)(s[-1] - '0');
        if (x > (limit - digit) / 10)
            return 0;
        x = x * 10 + digit;
    }
    *out = negative ? (int64_t)(0 - x) : (int64_t)x;
    return 1;
}
