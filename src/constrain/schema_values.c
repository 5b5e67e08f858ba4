/* Strings, numbers, arrays and listed values. */
#include <stdlib.h>
#include <string.h>

#include "constrain/number.h"
#include "constrain/pattern.h"
#include "constrain/schema_parts.h"
#include "text/json_write.h"

enum { MAX_INDENTATION = 32, MAX_PREFIX = 1000 };

uint32_t k3_schema_gap(k3_schema *s, int is_inside, uint32_t next)
{
    k3_grammar *g = s->g;
    uint32_t start = is_inside ? next : k3_grammar_either(g, k3_grammar_word(g, " ", next), next);
    if (!s->is_loose)
        return start;
    if (!s->space[0]) {
        s->space[0] = 1;
        s->space[1] = k3_grammar_rule(g);
        k3_grammar_set(g, s->space[1], k3_grammar_word(g, " ", K3_GRAMMAR_RETURN));
    }
    return k3_grammar_either(g, k3_grammar_word(g, "\n", k3_grammar_loop_of(g, s->space[1], 0, MAX_INDENTATION, next)), start);
}

/* ---- strings ------------------------------------------------------------------------------------------- */

/* \u and four hexadecimal digits, and a second such half where the first is one of a pair. */
static uint32_t hexadecimal(k3_grammar *g, const char *digits, uint32_t next)
{
    uint32_t start = K3_GRAMMAR_DEAD;
    for (const char *d = digits; *d; d++)
        start = k3_grammar_either(g, k3_grammar_bytes(g, (uint8_t)*d, (uint8_t)*d, next), start);
    return start;
}

static uint32_t escapes(k3_grammar *g, uint32_t next)
{
    static const char all[] = "0123456789abcdefABCDEF", *const signs = "\"\\/bfnrt";
    uint32_t three = hexadecimal(g, all, hexadecimal(g, all, hexadecimal(g, all, next))),
             two = hexadecimal(g, all, hexadecimal(g, all, next));
    uint32_t low = k3_grammar_word(g, "\\u", hexadecimal(g, "dD", hexadecimal(g, "cdefCDEF", two)));
    uint32_t low_two = hexadecimal(g, all, hexadecimal(g, all, low));
    uint32_t start = hexadecimal(g, "0123456789abcefABCEF", three);
    start = k3_grammar_either(g, hexadecimal(g, "dD", hexadecimal(g, "01234567", two)), start);
    start = k3_grammar_either(g, hexadecimal(g, "dD", hexadecimal(g, "89abAB", low_two)), start);
    start = k3_grammar_word(g, "u", start);
    for (const char *sign = signs; *sign; sign++)
        start = k3_grammar_either(g, k3_grammar_bytes(g, (uint8_t)*sign, (uint8_t)*sign, next), start);
    return k3_grammar_word(g, "\\", start);
}

uint32_t k3_schema_any_char(k3_schema *s, int is_raw)
{
    k3_grammar *g = s->g;
    if (s->any_char[is_raw][0])
        return s->any_char[is_raw][1];
    k3_charset set = {0};
    if (!is_raw) {
        k3_charset_add(&set, 0, 0x1f);
        k3_charset_add(&set, '"', '"');
        k3_charset_add(&set, '\\', '\\');
    }
    k3_charset_invert(&set);
    uint32_t start = k3_charset_node(g, &set, K3_FORM_RAW, K3_GRAMMAR_RETURN);
    if (!is_raw)
        start = k3_grammar_either(g, start, escapes(g, K3_GRAMMAR_RETURN));
    s->any_char[is_raw][0] = 1;
    s->any_char[is_raw][1] = k3_grammar_rule(g);
    k3_grammar_set(g, s->any_char[is_raw][1], start);
    return s->any_char[is_raw][1];
}

#define DAY "([1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8])))"
#define TIME "(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))"
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

/* The pattern of a format; NULL for those that are annotations here. */
static const char *format_pattern(const k3_json *format)
{
    static const struct {
        const char *name, *pattern;
    } formats[] = {{"date", "^" DAY "$"},
                   {"time", "^" TIME "$"},
                   {"date-time", "^" DAY "T" TIME "$"},
                   {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
                   {"ipv4", "^" BYTE "(\\." BYTE "){3}$"},
                   {"email", "^[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@[A-Za-z0-9]+(-[A-Za-z0-9]+)*(\\.[A-Za-z0-9]+(-[A-Za-z0-9]+)*)+$"}};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (k3_json_text_is(format, formats[i].name))
            return formats[i].pattern;
    return NULL;
}

static uint32_t characters(k3_schema *s, const k3_conjunction *c, int is_raw, uint32_t next)
{
    uint32_t least = k3_schema_count(s, c, "minLength", 1, 0), most = k3_schema_count(s, c, "maxLength", 0, K3_GRAMMAR_NO_LIMIT);
    size_t i = 0, i_format = 0;
    const k3_json *pattern = k3_schema_keyword(c, "pattern", &i), *format = k3_schema_keyword(c, "format", &i_format);
    const char *text = pattern ? pattern->text : least == 0 && most == K3_GRAMMAR_NO_LIMIT ? format_pattern(format) : NULL;
    if (least > most)
        return K3_GRAMMAR_DEAD;
    if (!text)
        return k3_grammar_loop_of(s->g, k3_schema_any_char(s, is_raw), least, most, next);
    const k3_json *second = pattern ? (i++, k3_schema_keyword(c, "pattern", &i)) : NULL;
    if (second && (second->text_bytes != pattern->text_bytes || memcmp(second->text, text, pattern->text_bytes) != 0))
        return k3_schema_refuse(s, K3_E_UNSUPPORTED, second, "a second pattern for the same value; write one");
    uint32_t start;
    k3_error why;
    k3_status status = k3_pattern_node(s->g, &start, text, pattern ? pattern->text_bytes : strlen(text), least, most,
                                       is_raw ? K3_FORM_RAW : K3_FORM_JSON, next, &why);
    return status == K3_OK ? start : k3_schema_refuse(s, status, pattern, "%.400s", why.text);
}

uint32_t k3_schema_string(k3_schema *s, const k3_conjunction *c, k3_schema_form form, uint32_t next)
{
    if (form == K3_SCHEMA_RAW)
        return characters(s, c, 1, next);
    uint32_t end = k3_grammar_word(s->g, "\"", next), inner = characters(s, c, 0, end);
    return inner == K3_GRAMMAR_DEAD ? inner : k3_grammar_word(s->g, "\"", inner);
}

/* ---- numbers ------------------------------------------------------------------------------------------- */

/* The bound that is tightest. What has more digits than numbers are written with is refused. */
static void take_bound(k3_schema *s, k3_bound *tightest, const k3_conjunction *c, const char *key, int is_least, int is_exclusive)
{
    const k3_json *value;
    for (size_t i = 0; (value = k3_schema_keyword(c, key, &i)); i++) {
        k3_bound bound;
        double real = 0;
        (void)k3_json_double(value, &real);
        if ((is_least && real < -1e20) || (!is_least && real > 1e20))
            continue; /* no number that is written reaches it */
        if (!k3_bound_read(&bound, value->text, value->text_bytes, is_exclusive)) {
            k3_schema_refuse(s, K3_E_UNSUPPORTED, value, "%s has more than %d digits on a side of its point", key, K3_NUMBER_DIGITS);
            return;
        }
        int order = tightest->is_set ? k3_bound_compare(&bound, tightest) * (is_least ? 1 : -1) : 1;
        if (order > 0 || (order == 0 && is_exclusive))
            *tightest = bound;
    }
}

uint32_t k3_schema_number(k3_schema *s, const k3_conjunction *c, int is_integer, uint32_t next)
{
    k3_bound least = {0}, most = {0};
    take_bound(s, &least, c, "minimum", 1, 0);
    take_bound(s, &least, c, "exclusiveMinimum", 1, 1);
    take_bound(s, &most, c, "maximum", 0, 0);
    take_bound(s, &most, c, "exclusiveMaximum", 0, 1);
    if (s->status != K3_OK || (least.is_set && most.is_set && k3_bound_compare(&least, &most) > 0))
        return K3_GRAMMAR_DEAD;
    return k3_number_node(s->g, &least, &most, is_integer, next);
}

/* ---- arrays -------------------------------------------------------------------------------------------- */

/* The rule of element `at`, which `prefix` (how many have a schema of their own) tells from the rest; 0 in *may if there can be none. */
static uint32_t element(k3_schema *s, const k3_conjunction *c, size_t at, int *may)
{
    k3_conjunction own = {0};
    *may = 1;
    for (size_t i = 0; i < c->n; i++) {
        const k3_json *prefix = k3_json_get(c->items[i].schema, "prefixItems"), *items = k3_json_get(c->items[i].schema, "items");
        if (!prefix && items && items->type == K3_JSON_ARRAY) {
            prefix = items; /* as older drafts have it */
            items = NULL;
        }
        const k3_json *schema = prefix ? prefix->first : NULL;
        if (!k3_schema_spend(s, at))
            return 0;
        for (size_t k = 0; k < at && schema; k++)
            schema = schema->next;
        schema = schema ? schema : items;
        *may &= !(schema && schema->type == K3_JSON_FALSE);
        if (schema && !k3_conjunction_add(s, &own, schema))
            return 0;
    }
    return k3_schema_rule_of(s, &own, K3_TYPE_ALL, K3_SCHEMA_JSON);
}

static size_t longest_prefix(const k3_conjunction *c, int *has_rest)
{
    size_t n = 0;
    *has_rest = 0;
    for (size_t i = 0; i < c->n; i++) {
        const k3_json *prefix = k3_json_get(c->items[i].schema, "prefixItems"), *items = k3_json_get(c->items[i].schema, "items");
        if (!prefix && items && items->type == K3_JSON_ARRAY)
            prefix = items;
        else
            *has_rest |= items != NULL;
        if (prefix)
            n = prefix->n_children > n ? prefix->n_children : n;
    }
    return n;
}

static uint32_t with_comma(k3_schema *s, uint32_t next)
{
    return k3_grammar_word(s->g, ",", k3_schema_gap(s, 0, next));
}

uint32_t k3_schema_array(k3_schema *s, const k3_conjunction *c, uint32_t next)
{
    k3_grammar *g = s->g;
    int has_rest, may;
    size_t n_prefix = longest_prefix(c, &has_rest);
    uint32_t least = k3_schema_count(s, c, "minItems", 1, 0), most = k3_schema_count(s, c, "maxItems", 0, K3_GRAMMAR_NO_LIMIT);
    if (n_prefix > MAX_PREFIX)
        return k3_schema_refuse(s, K3_E_UNSUPPORTED, c->items[0].schema, "prefixItems of %zu elements, wanted at most %d", n_prefix,
                                MAX_PREFIX);
    if (n_prefix > 0 && !has_rest && least <= n_prefix && most > n_prefix)
        most = (uint32_t)n_prefix; /* nothing is said about more elements: there are none */
    uint32_t rest = element(s, c, n_prefix, &may), close = k3_schema_gap(s, 1, k3_grammar_word(g, "]", next));
    if (!may && most > n_prefix)
        most = (uint32_t)n_prefix;
    if (least > most)
        return K3_GRAMMAR_DEAD;
    /* From the end: `at` elements have been read. */
    uint32_t n_open = (uint32_t)n_prefix > 0 ? (uint32_t)n_prefix : 1, start = close;
    if (most > n_open) {
        uint32_t more = k3_grammar_rule(g);
        k3_grammar_set(g, more, with_comma(s, k3_grammar_call(g, rest, K3_GRAMMAR_RETURN)));
        start = k3_grammar_loop_of(g, more, least > n_open ? least - n_open : 0, most == K3_GRAMMAR_NO_LIMIT ? most : most - n_open, close);
    }
    for (uint32_t at = n_open; at-- > 0 && s->status == K3_OK;) {
        uint32_t rule = n_prefix > 0 ? element(s, c, at, &may) : rest;
        uint32_t one = at < most && may ? k3_grammar_call(g, rule, start) : K3_GRAMMAR_DEAD;
        one = one == K3_GRAMMAR_DEAD ? one : at > 0 ? with_comma(s, one) : k3_schema_gap(s, 1, one);
        start = at >= least ? k3_grammar_either(g, one, close) : one;
    }
    return start == K3_GRAMMAR_DEAD ? start : k3_grammar_word(g, "[", start);
}

/* ---- listed values ------------------------------------------------------------------------------------- */

static unsigned type_of(const k3_json *value)
{
    int64_t whole;
    switch (value->type) {
    case K3_JSON_NULL:
        return K3_TYPE_NULL;
    case K3_JSON_FALSE:
    case K3_JSON_TRUE:
        return K3_TYPE_BOOLEAN;
    case K3_JSON_NUMBER:
        return k3_json_int(value, &whole) || !strpbrk(value->text, ".eE") ? K3_TYPE_WHOLE : K3_TYPE_FRACTION;
    case K3_JSON_STRING:
        return K3_TYPE_STRING;
    default:
        return value->type == K3_JSON_ARRAY ? K3_TYPE_ARRAY : K3_TYPE_OBJECT;
    }
}

static int is_in(const k3_json *list, const k3_buffer *text)
{
    int found = 0;
    k3_buffer other = {0};
    for (const k3_json *v = list->first; v && !found; v = v->next) {
        other.n = 0;
        k3_json_write(&other, v, K3_JSON_SORTED);
        found = other.n == text->n && memcmp(other.bytes, text->bytes, text->n) == 0;
    }
    k3_buffer_free(&other);
    return found;
}

/* Whether all other lists and constants of the conjunction have the value too. */
static int is_in_all(k3_schema *s, const k3_conjunction *c, const k3_json *value, const k3_json *except)
{
    k3_buffer text = {0};
    int fits = 1;
    for (size_t i = 0; i < c->n && fits; i++) {
        const k3_json *list = k3_json_get(c->items[i].schema, "enum"), *one = k3_json_get(c->items[i].schema, "const");
        k3_json_write(&text, value, K3_JSON_SORTED);
        if (list && list != except)
            fits = k3_schema_spend(s, 64 * list->n_children) && is_in(list, &text);
        if (one && one != except && fits) {
            k3_json alone = *one, list_of_one = {.type = K3_JSON_ARRAY, .first = &alone};
            alone.next = NULL;
            fits = is_in(&list_of_one, &text);
        }
        text.n = 0;
    }
    if (text.failed)
        k3_schema_no_memory(s);
    k3_buffer_free(&text);
    return fits;
}

/* Beside a list nothing but types is looked at. */
static void check_beside(k3_schema *s, const k3_conjunction *c)
{
    static const char *const keys[] = {"properties",      "required",      "additionalProperties",
                                       "minProperties",   "maxProperties", "items",
                                       "prefixItems",     "minItems",      "maxItems",
                                       "minLength",       "maxLength",     "pattern",
                                       "minimum",         "maximum",       "exclusiveMinimum",
                                       "exclusiveMaximum"};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        size_t i = 0;
        const k3_json *value = k3_schema_keyword(c, keys[k], &i);
        if (value)
            k3_schema_refuse(s, K3_E_UNSUPPORTED, value, "%s beside enum or const; list the values that are meant, without it", keys[k]);
    }
}

typedef struct listed {
    k3_grammar_choice *choices; /* texts are offsets into all until the end */
    size_t *at, n;
    k3_buffer all;
} listed;

/* A number beyond a double has no spelling that reads back. */
static void list_value(k3_schema *s, listed *l, const k3_json *value, k3_schema_form form)
{
    const k3_json *again;
    size_t from = l->at[l->n] = l->all.n;
    if (form == K3_SCHEMA_RAW)
        k3_buffer_add(&l->all, value->text, value->text_bytes);
    else
        k3_json_write(&l->all, value, K3_JSON_SPACED);
    l->choices[l->n].n = l->all.n - from;
    l->n++;
    if (value->type < K3_JSON_NUMBER || value->type == K3_JSON_STRING || l->all.failed)
        return;
    k3_status status = k3_json_parse(&again, l->all.bytes + from, l->all.n - from, K3_JSON_SURROGATES, NULL);
    if (status == K3_OK)
        k3_json_free(again);
    else
        k3_schema_refuse(s, status == K3_E_NOMEM ? status : K3_E_UNSUPPORTED, value,
                         "a number in the listed value is none of JSON's finite ones");
}

uint32_t k3_schema_listed(k3_schema *s, const k3_conjunction *c, unsigned types, k3_schema_form form, uint32_t next)
{
    size_t i_list = 0, i_one = 0, n_lists = 0;
    const k3_json *list = k3_schema_keyword(c, "enum", &i_list), *one = k3_schema_keyword(c, "const", &i_one);
    const k3_json *first = one ? one : list->first, *from = one ? one : list;
    size_t n = one ? 1 : list->n_children;
    check_beside(s, c);
    for (size_t i = 0; k3_schema_keyword(c, "enum", &i); i++)
        n_lists++;
    if (form == K3_SCHEMA_ARGUMENTS)
        return k3_schema_refuse(s, K3_E_UNSUPPORTED, from, "arguments of a tool that are listed by enum or const; use properties");
    if (n_lists > 1 && n > 1000)
        return k3_schema_refuse(s, K3_E_UNSUPPORTED, from, "several lists of values for one value, one of them of %zu, wanted at most 1000",
                                n);
    listed l = {.choices = malloc((n + 1) * sizeof *l.choices), .at = malloc((n + 1) * sizeof *l.at)};
    uint32_t start = K3_GRAMMAR_DEAD;
    if (l.choices && l.at) {
        int is_alone = one || n_lists == 1;
        for (const k3_json *v = first; v && s->status == K3_OK; v = one ? NULL : v->next)
            if (type_of(v) & types && ((is_alone && !one && c->n == 1) || is_in_all(s, c, v, from)))
                list_value(s, &l, v, form);
        for (size_t i = 0; i < l.n && !l.all.failed; i++) {
            l.choices[i].text = l.all.bytes + l.at[i];
            l.choices[i].next = next;
        }
        start = l.all.failed || s->status != K3_OK ? K3_GRAMMAR_DEAD : k3_grammar_one_of(s->g, l.choices, l.n);
    }
    if (!l.choices || !l.at || l.all.failed)
        k3_schema_no_memory(s);
    k3_buffer_free(&l.all);
    free(l.choices);
    free(l.at);
    return start;
}
