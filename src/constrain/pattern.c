#include "constrain/pattern.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { MAX_PARTS = 4 * K3_PATTERN_MAX, MAX_NESTING = 24, MAX_COUNT = 1000000 };

typedef enum part_kind { PART_NOTHING, PART_SET, PART_THEN, PART_OR, PART_REPEAT } part_kind;

/* A piece of the expression; a and b are numbers of others, or of a set. */
typedef struct part {
    part_kind kind;
    uint32_t a, b, least, most;
} part;

typedef struct pattern {
    const char *text;
    size_t n, at;
    part *parts;
    uint32_t n_parts;
    k3_charset *sets;
    uint32_t n_sets, set_capacity;
    int nesting, ends_here; /* ends_here: a $ was read, so nothing may follow */
    k3_status status;
    k3_error *err;
} pattern;

static uint32_t refuse(pattern *p, const char *what)
{
    if (p->status == K3_OK)
        p->status = k3_fail(p->err, K3_E_UNSUPPORTED, "the pattern \"%.*s\" has %s at byte %zu, which is not supported",
                            (int)(p->n < 200 ? p->n : 200), p->text, what, p->at);
    return 0;
}

static uint32_t add_part(pattern *p, part_kind kind, uint32_t a, uint32_t b)
{
    if (p->n_parts == MAX_PARTS)
        return refuse(p, "too much");
    p->parts[p->n_parts] = (part){.kind = kind, .a = a, .b = b};
    return p->n_parts++;
}

static uint32_t add_set(pattern *p, k3_charset *set)
{
    k3_charset_sort(set);
    if (set->is_full)
        return refuse(p, "a class of too many ranges");
    if (p->n_sets == p->set_capacity) {
        uint32_t capacity = 2 * p->set_capacity + 8;
        k3_charset *sets = realloc(p->sets, capacity * sizeof *sets);
        if (!sets) {
            p->status = k3_fail(p->err, K3_E_NOMEM, "no memory for a pattern");
            return 0;
        }
        p->sets = sets;
        p->set_capacity = capacity;
    }
    p->sets[p->n_sets] = *set;
    return add_part(p, PART_SET, p->n_sets++, 0);
}

static uint32_t repeat(pattern *p, uint32_t what, uint32_t least, uint32_t most)
{
    uint32_t r = add_part(p, PART_REPEAT, what, 0);
    p->parts[r].least = least;
    p->parts[r].most = most;
    return r;
}

/* ---- characters and classes ---------------------------------------------------------------------------- */

static int peek(const pattern *p)
{
    return p->at < p->n ? (unsigned char)p->text[p->at] : -1;
}

static uint32_t read_character(pattern *p)
{
    int cut, length = k3_utf8_length(p->text + p->at, p->n - p->at, &cut);
    uint32_t c = length > 0 ? k3_utf8_code_point(p->text + p->at, length) : 0xfffd;
    p->at += (size_t)(length > 0 ? length : -length);
    return c;
}

static uint32_t read_hex(pattern *p, int n)
{
    uint32_t value = 0;
    for (; n > 0; n--, p->at++) {
        int c = peek(p) | 0x20;
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return refuse(p, "a \\u or \\x without its digits");
        value = value * 16 + (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return value;
}

static void add_spaces(k3_charset *set, int all)
{
    static const uint32_t others[][2] = {{0x1c, 0x1f},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
                                         {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    k3_charset_add(set, 9, 13);
    k3_charset_add(set, ' ', ' ');
    for (size_t i = 0; all && i < sizeof others / sizeof others[0]; i++)
        k3_charset_add(set, others[i][0], others[i][1]);
}

/* \d \w \s and their opposites: dialects differ beyond ASCII, so these are the sets that all of them agree on. in_not: inside [^...],
 * where more is on the safe side. 0 if it is none of them. */
static int add_class(k3_charset *set, int letter, int in_not)
{
    k3_charset own = {0};
    int lower = letter | 0x20, is_opposite = letter != lower;
    if (lower == 'd' || lower == 'w')
        k3_charset_add(&own, '0', '9');
    if (lower == 'w') {
        k3_charset_add(&own, 'A', 'Z');
        k3_charset_add(&own, 'a', 'z');
        k3_charset_add(&own, '_', '_');
    }
    if (lower == 's')
        add_spaces(&own, is_opposite || in_not);
    if (own.n == 0)
        return 0;
    if (is_opposite) {
        if (lower != 's' && !in_not)
            k3_charset_add(&own, 0x80, 0x10ffff);
        k3_charset_invert(&own);
    } else {
        k3_charset_sort(&own);
    }
    for (size_t i = 0; i < own.n; i++)
        k3_charset_add(set, own.lo[i], own.hi[i]);
    return 1;
}

/* Behind a backslash: one character, or a class that is added to `set` (*is_class). */
static uint32_t read_escape(pattern *p, k3_charset *set, int in_class, int in_not, int *is_class)
{
    static const char controls[] = "ntrfv", values[] = "\n\t\r\f\v";
    int c = peek(p);
    *is_class = c > 0 && add_class(set, c, in_not);
    if (*is_class) {
        p->at++;
        return 0;
    }
    const char *control = c > 0 ? strchr(controls, c) : NULL;
    if (c == 'u' || c == 'x') {
        p->at++;
        uint32_t high = read_hex(p, c == 'u' ? 4 : 2);
        if (high < 0xd800 || high > 0xdfff)
            return high;
        if (high > 0xdbff || p->n - p->at < 6 || memcmp(p->text + p->at, "\\u", 2) != 0)
            return refuse(p, "half a surrogate pair");
        p->at += 2;
        uint32_t low = read_hex(p, 4);
        return low >= 0xdc00 && low <= 0xdfff ? 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00) : refuse(p, "half a surrogate pair");
    }
    if (c == 'b' && in_class)
        return p->at++, 8;
    if (control)
        return p->at++, (unsigned char)values[control - controls];
    if (c < 0 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return refuse(p, c >= '1' && c <= '9' ? "a back reference" : "an escape that stands for no character");
    return read_character(p);
}

static uint32_t read_class(pattern *p)
{
    k3_charset set = {0};
    int is_not = peek(p) == '^';
    p->at += (size_t)is_not;
    for (int is_first = 1; p->status == K3_OK && (peek(p) != ']' || is_first); is_first = 0) {
        if (peek(p) == ']')
            break;
        int is_class = 0;
        if (peek(p) < 0)
            return refuse(p, "a [ without ]");
        uint32_t lo = peek(p) == '\\' ? (p->at++, read_escape(p, &set, 1, is_not, &is_class)) : read_character(p), hi = lo;
        if (is_class)
            continue;
        if (peek(p) == '-' && p->at + 1 < p->n && p->text[p->at + 1] != ']') {
            p->at++;
            hi = peek(p) == '\\' ? (p->at++, read_escape(p, &set, 1, is_not, &is_class)) : read_character(p);
            if (is_class || hi < lo)
                return refuse(p, "a range that is none");
        }
        k3_charset_add(&set, lo, hi);
    }
    p->at++;
    if (is_not) {
        k3_charset_invert(&set);
    } else {
        k3_charset_invert(&set); /* twice: surrogates go */
        k3_charset_invert(&set);
    }
    return add_set(p, &set);
}

/* ---- the expression ------------------------------------------------------------------------------------ */

static uint32_t read_either(pattern *p);

static uint32_t read_group(pattern *p)
{
    if (peek(p) == '?') {
        if (p->at + 1 >= p->n || p->text[p->at + 1] != ':')
            return refuse(p, "a look-around or named group");
        p->at += 2;
    }
    if (++p->nesting > MAX_NESTING)
        return refuse(p, "groups too deep inside groups");
    uint32_t inner = read_either(p);
    p->nesting--;
    if (peek(p) != ')')
        return refuse(p, "a ( without )");
    p->at++;
    return inner;
}

static uint32_t read_atom(pattern *p)
{
    k3_charset set = {0};
    int c = peek(p), is_class = 0;
    if (c == '(')
        return p->at++, read_group(p);
    if (c == '[')
        return p->at++, read_class(p);
    if (c == '*' || c == '+' || c == '?' || c == '{')
        return refuse(p, "a quantifier with nothing before it");
    if (c == '^' || c == '$')
        return refuse(p, "an anchor inside");
    if (c == '.') {
        p->at++;
        k3_charset_add(&set, '\n', '\n');
        k3_charset_add(&set, '\r', '\r');
        k3_charset_add(&set, 0x2028, 0x2029);
        k3_charset_invert(&set);
        return add_set(p, &set);
    }
    uint32_t one = c == '\\' ? (p->at++, read_escape(p, &set, 0, 0, &is_class)) : read_character(p);
    if (!is_class)
        k3_charset_add(&set, one, one);
    return add_set(p, &set);
}

/* Digits; -1 if there are none. */
static int64_t read_count(pattern *p)
{
    int64_t value = -1;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++)
        value = value > MAX_COUNT ? value : (value < 0 ? 0 : value * 10) + (peek(p) - '0');
    return value;
}

static uint32_t read_quantified(pattern *p)
{
    uint32_t what = read_atom(p);
    for (int is_first = 1; p->status == K3_OK; is_first = 0) {
        int c = peek(p);
        int64_t least = c == '+', most = c == '?' ? 1 : -1;
        if (c == '{') {
            p->at++;
            least = most = read_count(p);
            if (peek(p) == ',') {
                p->at++;
                most = read_count(p);
            }
            if (least < 0 || peek(p) != '}' || (most >= 0 && most < least) || most > MAX_COUNT || least > MAX_COUNT)
                return refuse(p, "a {m,n} that is none, or above a million");
        } else if (c != '*' && c != '+' && c != '?') {
            return what;
        }
        if (!is_first)
            return refuse(p, "a quantifier behind a quantifier");
        p->at++;
        if (peek(p) == '?')
            p->at++; /* lazy: the same texts */
        what = repeat(p, what, (uint32_t)least, most < 0 ? K3_GRAMMAR_NO_LIMIT : (uint32_t)most);
    }
    return what;
}

static uint32_t read_row(pattern *p)
{
    uint32_t row = add_part(p, PART_NOTHING, 0, 0);
    while (p->status == K3_OK && peek(p) >= 0 && peek(p) != '|' && peek(p) != ')') {
        if (peek(p) == '$' && p->nesting == 0) {
            p->at++;
            p->ends_here = 1;
            if (peek(p) >= 0 && peek(p) != '|')
                return refuse(p, "something behind $");
            break;
        }
        uint32_t next = read_quantified(p);
        row = p->parts[row].kind == PART_NOTHING ? next : add_part(p, PART_THEN, row, next);
    }
    return row;
}

static uint32_t read_either(pattern *p)
{
    uint32_t all = read_row(p);
    while (p->status == K3_OK && peek(p) == '|') {
        p->at++;
        uint32_t row = read_row(p);
        all = add_part(p, PART_OR, all, row);
    }
    return all;
}

/* ---- to the grammar ------------------------------------------------------------------------------------ */

static int may_be_nothing(const pattern *p, uint32_t i)
{
    const part *x = &p->parts[i];
    switch (x->kind) {
    case PART_SET:
        return 0;
    case PART_THEN:
        return may_be_nothing(p, x->a) && may_be_nothing(p, x->b);
    case PART_OR:
        return may_be_nothing(p, x->a) || may_be_nothing(p, x->b);
    case PART_REPEAT:
        return x->least == 0 || may_be_nothing(p, x->a);
    default:
        return 1;
    }
}

/* The same without the empty text; PART_SET of an empty set where there is no other. */
static uint32_t something_of(pattern *p, uint32_t i)
{
    if (p->status != K3_OK || !may_be_nothing(p, i))
        return i;
    part x = p->parts[i];
    k3_charset none = {0};
    if (x.kind == PART_OR)
        return add_part(p, PART_OR, something_of(p, x.a), something_of(p, x.b));
    if (x.kind == PART_THEN)
        return add_part(p, PART_OR, add_part(p, PART_THEN, something_of(p, x.a), x.b), something_of(p, x.b));
    if (x.kind == PART_REPEAT && x.most > 0) {
        uint32_t one = something_of(p, x.a);
        return add_part(p, PART_THEN, one, repeat(p, one, 0, x.most == K3_GRAMMAR_NO_LIMIT ? x.most : x.most - 1));
    }
    return add_set(p, &none);
}

static uint32_t build(pattern *p, k3_grammar *g, uint32_t i, k3_text_form form, uint32_t next)
{
    part x = p->parts[i];
    if (p->status != K3_OK || g->too_large || g->failed)
        return K3_GRAMMAR_DEAD;
    if (x.kind == PART_SET)
        return k3_charset_node(g, &p->sets[x.a], form, next);
    if (x.kind == PART_THEN)
        return build(p, g, x.a, form, build(p, g, x.b, form, next));
    if (x.kind == PART_OR)
        return k3_grammar_either(g, build(p, g, x.a, form, next), build(p, g, x.b, form, next));
    if (x.kind == PART_NOTHING)
        return next;
    uint32_t least = may_be_nothing(p, x.a) ? 0 : x.least, body = something_of(p, x.a);
    if (least == 0 && x.most == 1)
        return k3_grammar_either(g, build(p, g, body, form, next), next);
    uint32_t rule = k3_grammar_rule(g);
    k3_grammar_set(g, rule, build(p, g, body, form, K3_GRAMMAR_RETURN));
    return k3_grammar_loop_of(g, rule, least, x.most, next);
}

static uint32_t anything(k3_grammar *g, k3_text_form form, uint32_t next)
{
    k3_charset all = {0};
    k3_charset_invert(&all);
    uint32_t rule = k3_grammar_rule(g);
    k3_grammar_set(g, rule, k3_charset_node(g, &all, form, K3_GRAMMAR_RETURN));
    return k3_grammar_loop_of(g, rule, 0, K3_GRAMMAR_NO_LIMIT, next);
}

/* Counts the row's fixed characters and finds the part of it that is repeated; 0 if it is no such row. */
static int is_plain_row(const pattern *p, uint32_t i, uint32_t *n_fixed, uint32_t *repeated)
{
    const part *x = &p->parts[i];
    if (x->kind == PART_THEN)
        return is_plain_row(p, x->a, n_fixed, repeated) && is_plain_row(p, x->b, n_fixed, repeated);
    if (x->kind == PART_SET)
        return ++*n_fixed, 1;
    if (x->kind != PART_REPEAT || p->parts[x->a].kind != PART_SET || *repeated != UINT32_MAX)
        return x->kind == PART_NOTHING;
    *repeated = i;
    return 1;
}

static uint32_t less(uint32_t from, uint32_t n)
{
    return from == K3_GRAMMAR_NO_LIMIT ? from : from > n ? from - n : 0;
}

/* Narrows the repeated part so that the row has `least` to `most` characters; 0 if it has no length between. */
static int fit_lengths(pattern *p, uint32_t row, uint32_t least, uint32_t most)
{
    uint32_t n_fixed = 0, repeated = UINT32_MAX;
    if (!is_plain_row(p, row, &n_fixed, &repeated))
        return (int)refuse(p, "more than one part of open length beside minLength or maxLength") || 1;
    if (repeated == UINT32_MAX)
        return n_fixed >= least && n_fixed <= most;
    part *x = &p->parts[repeated];
    x->least = less(least, n_fixed) > x->least ? less(least, n_fixed) : x->least;
    x->most = less(most, n_fixed) < x->most ? less(most, n_fixed) : x->most;
    return n_fixed <= most && x->least <= x->most;
}

/* The alternatives of the whole expression, each with its own anchors. */
static uint32_t build_all(pattern *p, k3_grammar *g, uint32_t least, uint32_t most, k3_text_form form, uint32_t next)
{
    uint32_t start = K3_GRAMMAR_DEAD;
    do {
        int begins_here = peek(p) == '^';
        p->at += (size_t)begins_here;
        p->ends_here = 0;
        uint32_t row = read_row(p);
        if (p->status != K3_OK)
            return start;
        if (peek(p) == ')')
            return refuse(p, "a ) without (");
        if (least > 0 || most != K3_GRAMMAR_NO_LIMIT) {
            if (!begins_here || !p->ends_here)
                return refuse(p, "no ^ and $ around it beside minLength or maxLength");
            if (!fit_lengths(p, row, least, most))
                continue;
        }
        uint32_t one = build(p, g, row, form, p->ends_here ? next : anything(g, form, next));
        start = k3_grammar_either(g, begins_here ? one : anything(g, form, one), start);
    } while (p->status == K3_OK && peek(p) == '|' && ++p->at);
    return start;
}

k3_status k3_pattern_node(k3_grammar *g, uint32_t *start, const char *text, size_t n, uint32_t least, uint32_t most, k3_text_form form,
                          uint32_t next, k3_error *err)
{
    *start = K3_GRAMMAR_DEAD;
    if (n > K3_PATTERN_MAX)
        return k3_fail(err, K3_E_UNSUPPORTED, "a pattern of %zu bytes, wanted at most %d", n, K3_PATTERN_MAX);
    pattern p = {.text = text, .n = n, .parts = malloc(MAX_PARTS * sizeof *p.parts), .err = err};
    if (!p.parts)
        return k3_fail(err, K3_E_NOMEM, "no memory for a pattern of %zu bytes", n);
    *start = build_all(&p, g, least, most, form, next);
    free(p.parts);
    free(p.sets);
    return p.status;
}
