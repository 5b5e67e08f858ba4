/* Objects: as JSON, and as the arguments of a call. Properties come in the order of the schema. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "constrain/markup.h"
#include "constrain/schema_parts.h"

enum { MAX_OTHER_KEY = 400 };

typedef struct property {
    const k3_json *name; /* key of a member of `properties`, or text of an element of `required` */
    const char *key;
    size_t n_key;
    int is_required;
} property;

typedef struct object {
    k3_schema *s;
    const k3_conjunction *c;
    property *properties;
    size_t n;
    int is_open; /* others are allowed as well */
} object;

/* ---- what it has --------------------------------------------------------------------------------------- */

static int same_key(const property *p, const char *key, size_t n)
{
    return p->n_key == n && (n == 0 || memcmp(p->key, key, n) == 0);
}

static property *find_property(const object *o, const char *key, size_t n)
{
    for (size_t i = 0; i < o->n; i++)
        if (same_key(&o->properties[i], key, n))
            return &o->properties[i];
    return NULL;
}

static void add_property(object *o, const k3_json *place, const char *key, size_t n, int is_required)
{
    property *found = k3_schema_spend(o->s, o->n) ? find_property(o, key, n) : NULL;
    if (found) {
        found->is_required |= is_required;
        return;
    }
    if (o->s->status == K3_OK && o->n == K3_SCHEMA_MAX_PROPERTIES) {
        k3_schema_refuse(o->s, K3_E_UNSUPPORTED, place, "an object of more than %d properties", K3_SCHEMA_MAX_PROPERTIES);
        return;
    }
    if (o->s->status == K3_OK)
        o->properties[o->n++] = (property){place, key, n, is_required};
}

/* An object is open if a schema of it says so, or if none of them says anything about properties. */
static void collect(object *o)
{
    int is_closed = 0, is_opened = 0, has_any = 0;
    for (size_t i = 0; i < o->c->n && o->s->status == K3_OK; i++) {
        const k3_json *schema = o->c->items[i].schema, *all = k3_json_get(schema, "properties");
        const k3_json *others = k3_json_get(schema, "additionalProperties"), *rest = k3_json_get(schema, "unevaluatedProperties");
        for (const k3_json *p = all ? all->first : NULL; p && o->s->status == K3_OK; p = p->next)
            add_property(o, p, p->key, p->key_bytes, 0);
        has_any |= all != NULL;
        is_closed |= (others && others->type == K3_JSON_FALSE) || rest;
        is_opened |= others && others->type != K3_JSON_FALSE;
    }
    for (size_t i = 0; i < o->c->n && o->s->status == K3_OK; i++) {
        const k3_json *required = k3_json_get(o->c->items[i].schema, "required");
        for (const k3_json *name = required ? required->first : NULL; name && o->s->status == K3_OK; name = name->next)
            add_property(o, name, name->text, name->text_bytes, 1);
    }
    o->is_open = !is_closed && (is_opened || !has_any);
}

/* What the schemas say about a property, or (key NULL) about those that they do not name. 0 if it is not allowed. */
static int schemas_of(object *o, k3_conjunction *own, const char *key, size_t n_key)
{
    *own = (k3_conjunction){0};
    for (size_t i = 0; i < o->c->n; i++) {
        const k3_json *schema = o->c->items[i].schema, *all = k3_json_get(schema, "properties"), *found = NULL;
        if (!k3_schema_spend(o->s, all ? all->n_children : 1))
            return 0;
        for (const k3_json *p = key && all ? all->first : NULL; p; p = p->next)
            if (p->key_bytes == n_key && (n_key == 0 || memcmp(p->key, key, n_key) == 0))
                found = p;
        if (!found)
            found = k3_json_get(schema, "additionalProperties");
        if (found && found->type == K3_JSON_FALSE)
            return 0;
        if (found && !k3_conjunction_add(o->s, own, found))
            return 0;
    }
    return 1;
}

/* ---- other keys ---------------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    const property *x = *(const property *const *)a, *y = *(const property *const *)b;
    size_t n = x->n_key < y->n_key ? x->n_key : y->n_key;
    int order = n > 0 ? memcmp(x->key, y->key, n) : 0;
    return order ? order : (x->n_key > y->n_key) - (x->n_key < y->n_key);
}

typedef struct other_keys {
    object *o;
    k3_text_form form;
    k3_charset all; /* characters of a key */
    uint32_t rest, end;
} other_keys;

/* A key of which `at` bytes are read, which are those of names [n], sorted. */
static uint32_t other_key(other_keys *k, const property *const *names, size_t n, size_t at)
{
    k3_grammar *g = k->o->s->g;
    k3_charset rest = k->all;
    uint32_t start = K3_GRAMMAR_DEAD;
    size_t i = 0;
    if (n == 0)
        return at == 0 ? k3_charset_node(g, &rest, k->form, k->rest) : k->rest;
    while (i < n && names[i]->n_key == at)
        i++;
    uint32_t end = i == 0 && at > 0 ? k->end : K3_GRAMMAR_DEAD;
    k3_charset_invert(&rest); /* what cannot stand here */
    while (i < n && k->o->s->status == K3_OK) {
        int cut, length = k3_utf8_length(names[i]->key + at, names[i]->n_key - at, &cut);
        size_t last = i + 1;
        while (last < n && names[last]->n_key >= at + (size_t)length &&
               memcmp(names[last]->key + at, names[i]->key + at, (size_t)length) == 0)
            last++;
        uint32_t c = k3_utf8_code_point(names[i]->key + at, length);
        uint32_t inner = other_key(k, names + i, last - i, at + (size_t)length);
        start = k3_grammar_either(g, k3_form_text(g, names[i]->key + at, (size_t)length, k->form, inner), start);
        k3_charset_add(&rest, c, c);
        i = last;
    }
    k3_charset_invert(&rest);
    if (rest.is_full)
        return k3_schema_refuse(k->o->s, K3_E_UNSUPPORTED, k->o->c->items[0].schema,
                                "additionalProperties beside names that go on with more than %d different characters", K3_CHARSET_MAX - 8);
    start = k3_grammar_either(g, k3_charset_node(g, &rest, k->form, k->rest), start);
    return k3_grammar_either(g, start, end);
}

/* The text of a key that is none of the object's own. */
static uint32_t key_of_others(object *o, k3_text_form form, uint32_t next)
{
    k3_grammar *g = o->s->g;
    other_keys k = {.o = o, .form = form, .end = next};
    const property **names = malloc((o->n + 1) * sizeof *names);
    if (!names)
        return k3_schema_no_memory(o->s);
    for (size_t i = 0; i < o->n; i++) {
        names[i] = &o->properties[i];
        if (o->properties[i].n_key > MAX_OTHER_KEY)
            k3_schema_refuse(o->s, K3_E_UNSUPPORTED, o->properties[i].name,
                             "a name of %zu bytes beside additionalProperties, wanted at most %d", o->properties[i].n_key, MAX_OTHER_KEY);
    }
    qsort(names, o->n, sizeof *names, compare_names);
    k3_charset_add(&k.all, 0, 0x1f);
    k3_charset_invert(&k.all);
    uint32_t one = k3_grammar_rule(g);
    k3_grammar_set(g, one, k3_charset_node(g, &k.all, form, K3_GRAMMAR_RETURN));
    k.rest = k3_grammar_loop_of(g, one, 0, K3_GRAMMAR_NO_LIMIT, next);
    uint32_t start = o->s->status == K3_OK ? other_key(&k, names, o->n, 0) : K3_GRAMMAR_DEAD;
    free(names);
    return start;
}

/* ---- as JSON ------------------------------------------------------------------------------------------- */

/* "key": value; property NULL: one of the others. */
static uint32_t json_member(object *o, const property *p, uint32_t next)
{
    k3_grammar *g = o->s->g;
    k3_conjunction own;
    if (!schemas_of(o, &own, p ? p->key : NULL, p ? p->n_key : 0))
        return K3_GRAMMAR_DEAD;
    uint32_t value = k3_grammar_call(g, k3_schema_rule_of(o->s, &own, K3_TYPE_ALL, K3_SCHEMA_JSON), next);
    uint32_t end = k3_grammar_word(g, "\":", k3_schema_gap(o->s, 0, value));
    uint32_t key = p ? k3_form_text(g, p->key, p->n_key, K3_FORM_JSON, end) : key_of_others(o, K3_FORM_JSON, end);
    return key == K3_GRAMMAR_DEAD ? key : k3_grammar_word(g, "\"", key);
}

static uint32_t after_comma(object *o, uint32_t member)
{
    return member == K3_GRAMMAR_DEAD ? member : k3_grammar_word(o->s->g, ",", k3_schema_gap(o->s, 0, member));
}

/* From the end: `first` leads on where no member was written yet, `later` where one was. */
static uint32_t json_object(object *o, uint32_t least, uint32_t most, uint32_t next)
{
    k3_grammar *g = o->s->g;
    uint32_t close = k3_schema_gap(o->s, 1, k3_grammar_word(g, "}", next)), first = close, later = close;
    if (o->is_open && most > 0) {
        uint32_t more = k3_grammar_rule(g);
        k3_grammar_set(g, more, after_comma(o, json_member(o, NULL, K3_GRAMMAR_RETURN)));
        later = k3_grammar_loop_of(g, more, 0, most == K3_GRAMMAR_NO_LIMIT ? most : most - 1, close);
        first = json_member(o, NULL, later);
        first = first == K3_GRAMMAR_DEAD ? first : k3_schema_gap(o->s, 1, first);
        if (least == 0 || o->n > 0)
            first = k3_grammar_either(g, first, close);
    }
    for (size_t i = o->n; i-- > 0 && o->s->status == K3_OK;) {
        const property *p = &o->properties[i];
        uint32_t member = json_member(o, p, later), then = after_comma(o, member);
        uint32_t begin = member == K3_GRAMMAR_DEAD ? member : k3_schema_gap(o->s, 1, member);
        first = p->is_required ? begin : k3_grammar_either(g, begin, first);
        later = p->is_required ? then : k3_grammar_either(g, then, later);
    }
    return first == K3_GRAMMAR_DEAD ? first : k3_grammar_word(g, "{", first);
}

/* ---- as arguments -------------------------------------------------------------------------------------- */

/* type="..." and the value, for each type that it may have. */
static uint32_t typed_value(object *o, const k3_conjunction *own, uint32_t next)
{
    static const struct {
        const char *name;
        unsigned types;
    } kinds[] = {{"null", K3_TYPE_NULL},     {"boolean", K3_TYPE_BOOLEAN}, {"array", K3_TYPE_ARRAY},
                 {"object", K3_TYPE_OBJECT}, {"number", K3_TYPE_NUMBER},   {"string", K3_TYPE_STRING}};
    k3_grammar *g = o->s->g;
    uint32_t start = K3_GRAMMAR_DEAD, end = k3_markup_close(g, "argument", next);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        k3_schema_form form = kinds[i].types == K3_TYPE_STRING ? K3_SCHEMA_RAW : K3_SCHEMA_JSON;
        uint32_t value = k3_grammar_call(g, k3_schema_rule_of(o->s, own, kinds[i].types, form), end);
        uint32_t quote = k3_markup_quote(g, k3_markup_sep(g, value));
        start = k3_grammar_either(g, k3_grammar_word(g, kinds[i].name, quote), start);
    }
    return k3_markup_key(g, "type", start);
}

static uint32_t argument(object *o, const property *p, uint32_t next)
{
    k3_grammar *g = o->s->g;
    k3_conjunction own;
    if (!schemas_of(o, &own, p ? p->key : NULL, p ? p->n_key : 0))
        return K3_GRAMMAR_DEAD;
    uint32_t type = k3_markup_quote(g, typed_value(o, &own, next));
    uint32_t key = p ? k3_form_text(g, p->key, p->n_key, K3_FORM_ATTRIBUTE, type) : key_of_others(o, K3_FORM_ATTRIBUTE, type);
    return key == K3_GRAMMAR_DEAD ? key : k3_markup_open(g, "argument", k3_markup_key(g, "key", key));
}

static uint32_t arguments(object *o, uint32_t least, uint32_t most, uint32_t next)
{
    k3_grammar *g = o->s->g;
    uint32_t start = next;
    if (o->is_open) {
        uint32_t more = k3_grammar_rule(g);
        k3_grammar_set(g, more, argument(o, NULL, K3_GRAMMAR_RETURN));
        start = k3_grammar_loop_of(g, more, o->n == 0 ? least : 0, most, next);
    }
    for (size_t i = o->n; i-- > 0 && o->s->status == K3_OK;) {
        uint32_t one = argument(o, &o->properties[i], start);
        start = o->properties[i].is_required ? one : k3_grammar_either(g, one, start);
    }
    return start;
}

/* ---- both ---------------------------------------------------------------------------------------------- */

/* How many members there may be is counted only where none of them has a name; elsewhere the names must say it. */
static void check_counts(object *o, uint32_t *least, uint32_t *most)
{
    size_t n_required = 0, i = 0, k = 0;
    for (size_t p = 0; p < o->n; p++)
        n_required += (size_t)o->properties[p].is_required;
    const k3_json *min = k3_schema_keyword(o->c, "minProperties", &i), *max = k3_schema_keyword(o->c, "maxProperties", &k);
    *least = k3_schema_count(o->s, o->c, "minProperties", 1, 0);
    *most = k3_schema_count(o->s, o->c, "maxProperties", 0, K3_GRAMMAR_NO_LIMIT);
    int only_others = o->n == 0 && o->is_open;
    if (*least > n_required && !(only_others && *least == 1))
        k3_schema_refuse(o->s, K3_E_UNSUPPORTED, min, "minProperties above the number of required properties; name those in required");
    if (*most != K3_GRAMMAR_NO_LIMIT && !only_others && (o->is_open || *most < o->n))
        k3_schema_refuse(o->s, K3_E_UNSUPPORTED, max, "maxProperties below the number of properties; leave it out");
}

uint32_t k3_schema_object(k3_schema *s, const k3_conjunction *c, k3_schema_form form, uint32_t next)
{
    object o = {.s = s, .c = c};
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const k3_json *all = k3_json_get(c->items[i].schema, "properties"), *required = k3_json_get(c->items[i].schema, "required");
        n += (all ? all->n_children : 0) + (required ? required->n_children : 0);
    }
    n = n < K3_SCHEMA_MAX_PROPERTIES ? n : K3_SCHEMA_MAX_PROPERTIES;
    o.properties = malloc((n + 1) * sizeof *o.properties);
    if (!o.properties)
        return k3_schema_no_memory(s);
    uint32_t start = K3_GRAMMAR_DEAD, least, most;
    collect(&o);
    if (s->status == K3_OK)
        check_counts(&o, &least, &most);
    if (s->status == K3_OK)
        start = form == K3_SCHEMA_ARGUMENTS ? arguments(&o, least, most, next) : json_object(&o, least, most, next);
    free(o.properties);
    return s->status == K3_OK ? start : K3_GRAMMAR_DEAD;
}
