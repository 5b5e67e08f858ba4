#include "constrain/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "constrain/schema_parts.h"

/* A rule: the value fits all of these schemas and has one of the types. */
struct k3_schema_entry {
    k3_conjunct *items; /* [n], sorted */
    size_t n;
    unsigned types;
    k3_schema_form form;
    const k3_json *root;
    int is_loose;
    uint32_t hash, rule;
};

/* ---- errors -------------------------------------------------------------------------------------------- */

static size_t put(char *out, size_t size, size_t at, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *as = text[i] == '~' ? "~0" : text[i] == '/' ? "~1" : NULL;
        if (at + 3 > size)
            return at;
        out[at++] = as ? as[0] : text[i];
        if (as)
            out[at++] = as[1];
    }
    out[at] = 0;
    return at;
}

/* Writes the JSON pointer of `place` behind out[at]; 0 if it is not below `from`. */
static int find_pointer(char *out, size_t size, size_t at, const k3_json *from, const k3_json *place)
{
    out[at] = 0;
    if (from == place)
        return 1;
    size_t i = 0;
    for (const k3_json *child = from->first; child; child = child->next, i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        if (at + 2 > size)
            return 1;
        out[at] = '/';
        size_t end = from->type == K3_JSON_OBJECT ? put(out, size, at + 1, child->key, child->key_bytes)
                                                  : put(out, size, at + 1, number, strlen(number));
        if (find_pointer(out, size, end, child, place))
            return 1;
    }
    out[at] = 0;
    return 0;
}

uint32_t k3_schema_refuse(k3_schema *s, k3_status status, const k3_json *place, const char *format, ...)
{
    if (s->status != K3_OK)
        return K3_GRAMMAR_DEAD;
    char pointer[400] = "", text[600];
    if (!place || !s->document || !find_pointer(pointer, sizeof pointer, 0, s->document, place))
        pointer[0] = 0;
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    s->status = k3_fail(s->err, status, "%s: %s", pointer, text);
    return K3_GRAMMAR_DEAD;
}

uint32_t k3_schema_no_memory(k3_schema *s)
{
    return k3_schema_refuse(s, K3_E_NOMEM, NULL, "no memory for what a schema becomes");
}

int k3_schema_spend(k3_schema *s, size_t n)
{
    s->work += n;
    if (s->work > K3_SCHEMA_MAX_WORK)
        k3_schema_refuse(s, K3_E_UNSUPPORTED, s->root, "the schema takes more than %d steps to read; use fewer names and references",
                         K3_SCHEMA_MAX_WORK);
    return s->status == K3_OK;
}

/* ---- rules --------------------------------------------------------------------------------------------- */

int k3_conjunction_add(k3_schema *s, k3_conjunction *c, const k3_json *schema)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->items[i].schema == schema && !(c->items[i].done & ~(unsigned)K3_SPREAD_DONE))
            return 1;
    if (c->n == K3_SCHEMA_MAX_TOGETHER) {
        k3_schema_refuse(s, K3_E_UNSUPPORTED, schema, "more than %d schemas hold for one value here; use fewer in allOf and references",
                         K3_SCHEMA_MAX_TOGETHER);
        return 0;
    }
    c->items[c->n++] = (k3_conjunct){schema, 0};
    return 1;
}

static int compare_conjuncts(const void *a, const void *b)
{
    const k3_conjunct *x = a, *y = b;
    int order = ((uintptr_t)x->schema > (uintptr_t)y->schema) - ((uintptr_t)x->schema < (uintptr_t)y->schema);
    return order ? order : (x->done > y->done) - (x->done < y->done);
}

static uint32_t hash_entry(const k3_schema_entry *e)
{
    uint64_t h = ((uint64_t)e->types << 8 | (unsigned)e->form << 1 | (unsigned)e->is_loose) * 0x9e3779b97f4a7c15u ^ (uintptr_t)e->root;
    for (size_t i = 0; i < e->n; i++) {
        h = (h ^ (uintptr_t)e->items[i].schema) * 0xff51afd7ed558ccdu;
        h = (h ^ h >> 31 ^ e->items[i].done) * 0x9e3779b97f4a7c15u;
    }
    return (uint32_t)(h >> 32);
}

static int same_entry(const k3_schema_entry *a, const k3_schema_entry *b)
{
    int same = a->hash == b->hash && a->n == b->n && a->types == b->types && a->form == b->form && a->root == b->root &&
               a->is_loose == b->is_loose;
    for (size_t i = 0; same && i < a->n; i++)
        same = a->items[i].schema == b->items[i].schema && a->items[i].done == b->items[i].done;
    return same;
}

static int grow_entries(k3_schema *s)
{
    if (s->n_entries == s->entry_capacity) {
        size_t capacity = 2 * s->entry_capacity + 64;
        k3_schema_entry *entries = realloc(s->entries, capacity * sizeof *entries);
        if (!entries)
            return 0;
        s->entries = entries;
        s->entry_capacity = capacity;
    }
    if (s->index && s->n_entries * 2 < s->index_mask)
        return 1;
    uint32_t size = s->index ? 2 * (s->index_mask + 1) : 256;
    uint32_t *index = calloc(size, sizeof *index);
    if (!index)
        return 0;
    free(s->index);
    s->index = index;
    s->index_mask = size - 1;
    for (size_t e = 0; e < s->n_entries; e++) {
        uint32_t i = s->entries[e].hash & s->index_mask;
        while (index[i])
            i = (i + 1) & s->index_mask;
        index[i] = (uint32_t)e + 1;
    }
    return 1;
}

/* The entry of such a value, made if it is new. Returns its number, SIZE_MAX after an error. */
static size_t find_entry(k3_schema *s, const k3_conjunction *c, unsigned types, k3_schema_form form)
{
    k3_conjunct items[K3_SCHEMA_MAX_TOGETHER];
    memcpy(items, c->items, c->n * sizeof *items);
    qsort(items, c->n, sizeof *items, compare_conjuncts);
    size_t n = 0;
    for (size_t k = 0; k < c->n; k++)
        if (n == 0 || compare_conjuncts(&items[n - 1], &items[k]) != 0)
            items[n++] = items[k];
    k3_schema_entry e = {.items = items, .n = n, .types = types, .form = form, .root = s->root, .is_loose = s->is_loose};
    e.hash = hash_entry(&e);
    if (s->n_entries == K3_SCHEMA_MAX_RULES)
        return k3_schema_refuse(s, K3_E_UNSUPPORTED, s->root, "the schema combines to more than %d different values", K3_SCHEMA_MAX_RULES),
               SIZE_MAX;
    if (!grow_entries(s))
        return k3_schema_no_memory(s), SIZE_MAX;
    uint32_t i = e.hash & s->index_mask;
    for (; s->index[i]; i = (i + 1) & s->index_mask)
        if (same_entry(&s->entries[s->index[i] - 1], &e))
            return s->index[i] - 1;
    e.items = malloc((n + 1) * sizeof *e.items);
    if (!e.items)
        return k3_schema_no_memory(s), SIZE_MAX;
    memcpy(e.items, items, n * sizeof *items);
    e.rule = k3_grammar_rule(s->g);
    s->index[i] = (uint32_t)s->n_entries + 1;
    s->entries[s->n_entries] = e;
    return s->n_entries++;
}

uint32_t k3_schema_rule_of(k3_schema *s, const k3_conjunction *c, unsigned types, k3_schema_form form)
{
    size_t e = s->status == K3_OK ? find_entry(s, c, types, form) : SIZE_MAX;
    return e == SIZE_MAX ? 0 : s->entries[e].rule;
}

/* ---- references and allOf ------------------------------------------------------------------------------ */

static const k3_json *child_at(k3_schema *s, const k3_json *from, const char *name, size_t n)
{
    const k3_json *found = NULL;
    size_t i = 0, wanted = 0;
    if (!k3_schema_spend(s, from->n_children))
        return NULL;
    if (from->type == K3_JSON_ARRAY) {
        for (size_t k = 0; k < n; k++)
            wanted = name[k] >= '0' && name[k] <= '9' && wanted < SIZE_MAX / 16 ? wanted * 10 + (size_t)(name[k] - '0') : SIZE_MAX / 16;
        for (const k3_json *child = from->first; child && n > 0; child = child->next, i++)
            if (i == wanted)
                return child;
        return NULL;
    }
    for (const k3_json *child = from->type == K3_JSON_OBJECT ? from->first : NULL; child; child = child->next)
        if (child->key_bytes == n && (n == 0 || memcmp(child->key, name, n) == 0))
            found = child;
    return found;
}

static const k3_json *look_up(k3_schema *s, const k3_json *ref)
{
    char name[512];
    const k3_json *at = s->root;
    if (ref->type != K3_JSON_STRING || ref->text[0] != '#' || (ref->text[1] && ref->text[1] != '/'))
        return k3_schema_refuse(s, K3_E_UNSUPPORTED, ref, "$ref is not a string such as \"#/$defs/name\" into this schema"), NULL;
    for (const char *text = ref->text + 1; *text == '/' && at;) {
        size_t n = 0;
        for (text++; *text && *text != '/' && n < sizeof name; text++) {
            char c = *text;
            if (c == '~' && (text[1] == '0' || text[1] == '1'))
                c = *++text == '0' ? '~' : '/';
            name[n++] = c;
        }
        at = n < sizeof name ? child_at(s, at, name, n) : NULL;
    }
    if (!at)
        k3_schema_refuse(s, K3_E_INVALID, ref, "$ref is \"%.200s\", and there is nothing at that place", ref->text);
    return at;
}

/* The schemas of a conjunction and how they came in: from[i] is the item that named item i, i itself for those of the start. */
typedef struct spread {
    k3_conjunction c;
    size_t from[K3_SCHEMA_MAX_TOGETHER];
} spread;

static void spread_add(k3_schema *s, spread *sp, size_t by, const k3_json *schema)
{
    size_t n = sp->c.n;
    for (size_t i = by;; i = sp->from[i]) {
        if (sp->c.items[i].schema == schema) {
            k3_schema_refuse(s, K3_E_INVALID, schema, "the schema refers to itself by $ref or allOf, so it says nothing");
            return;
        }
        if (sp->from[i] == i)
            break;
    }
    if (k3_conjunction_add(s, &sp->c, schema) && sp->c.n > n)
        sp->from[n] = by;
}

/* Adds what references and allOf name. */
static void spread_out(k3_schema *s, spread *sp)
{
    for (size_t i = 0; i < sp->c.n; i++)
        sp->from[i] = i;
    for (size_t i = 0; i < sp->c.n && s->status == K3_OK; i++) {
        const k3_json *schema = sp->c.items[i].schema;
        if (sp->c.items[i].done & K3_SPREAD_DONE)
            continue;
        sp->c.items[i].done |= K3_SPREAD_DONE;
        if (!k3_schema_spend(s, 16 * (schema->n_children + 1)))
            break;
        k3_schema_check(s, schema);
        sp->c.is_false |= schema->type == K3_JSON_FALSE;
        const k3_json *ref = k3_json_get(schema, "$ref"), *all = k3_json_get(schema, "allOf");
        const k3_json *target = ref && s->status == K3_OK ? look_up(s, ref) : NULL;
        if (target)
            spread_add(s, sp, i, target);
        for (const k3_json *part = all ? all->first : NULL; part && s->status == K3_OK; part = part->next)
            spread_add(s, sp, i, part);
    }
    size_t n = 0; /* what says no more goes, so that equal values are one rule */
    for (size_t i = 0; i < sp->c.n && s->status == K3_OK; i++)
        if (k3_schema_says(sp->c.items[i].schema, sp->c.items[i].done))
            sp->c.items[n++] = sp->c.items[i];
    sp->c.n = n;
}

/* ---- one rule ------------------------------------------------------------------------------------------ */

static void note_edge(k3_schema *s, size_t from, size_t to)
{
    if (s->n_edges + 2 > s->edge_capacity) {
        size_t capacity = 2 * s->edge_capacity + 64;
        uint32_t *edges = realloc(s->edges, capacity * sizeof *edges);
        if (!edges) {
            k3_schema_no_memory(s);
            return;
        }
        s->edges = edges;
        s->edge_capacity = capacity;
    }
    s->edges[s->n_edges++] = (uint32_t)from;
    s->edges[s->n_edges++] = (uint32_t)to;
}

/* The first anyOf or oneOf that nothing was chosen from yet. */
static const k3_json *find_choice(k3_conjunction *c, size_t *i, unsigned *mark)
{
    static const char *const keys[] = {"anyOf", "oneOf"};
    for (*i = 0; *i < c->n; ++*i) {
        for (unsigned k = 0; k < 2; k++) {
            const k3_json *list = k3_json_get(c->items[*i].schema, keys[k]);
            *mark = k == 0 ? K3_ANYOF_DONE : K3_ONEOF_DONE;
            if (list && !(c->items[*i].done & *mark))
                return list;
        }
    }
    return NULL;
}

static uint32_t build_choice(k3_schema *s, size_t number, const k3_json *list, const k3_conjunction *c)
{
    uint32_t start = K3_GRAMMAR_DEAD;
    for (const k3_json *option = list->first; option && s->status == K3_OK; option = option->next) {
        k3_conjunction with = *c;
        if (!k3_conjunction_add(s, &with, option))
            break;
        spread sp = {.c = with};
        spread_out(s, &sp);
        if (sp.c.is_false || s->status != K3_OK)
            continue;
        size_t to = find_entry(s, &sp.c, s->entries[number].types, s->entries[number].form);
        if (to == SIZE_MAX)
            break;
        note_edge(s, number, to);
        start = k3_grammar_either(s->g, k3_grammar_call(s->g, s->entries[to].rule, K3_GRAMMAR_RETURN), start);
    }
    return start;
}

static uint32_t build_types(k3_schema *s, const k3_conjunction *c, unsigned types, k3_schema_form form)
{
    k3_grammar *g = s->g;
    uint32_t start = K3_GRAMMAR_DEAD;
    if (types & K3_TYPE_OBJECT)
        start = k3_grammar_either(g, k3_schema_object(s, c, form, K3_GRAMMAR_RETURN), start);
    if (types & K3_TYPE_ARRAY)
        start = k3_grammar_either(g, k3_schema_array(s, c, K3_GRAMMAR_RETURN), start);
    if (types & K3_TYPE_STRING)
        start = k3_grammar_either(g, k3_schema_string(s, c, form, K3_GRAMMAR_RETURN), start);
    if (types & K3_TYPE_NUMBER)
        start = k3_grammar_either(g, k3_schema_number(s, c, !(types & K3_TYPE_FRACTION), K3_GRAMMAR_RETURN), start);
    if (types & K3_TYPE_BOOLEAN) {
        start = k3_grammar_either(g, k3_grammar_word(g, "false", K3_GRAMMAR_RETURN), start);
        start = k3_grammar_either(g, k3_grammar_word(g, "true", K3_GRAMMAR_RETURN), start);
    }
    if (types & K3_TYPE_NULL)
        start = k3_grammar_either(g, k3_grammar_word(g, "null", K3_GRAMMAR_RETURN), start);
    return start;
}

static void build_entry(k3_schema *s, size_t number)
{
    k3_schema_entry e = s->entries[number];
    spread sp = {.c = {.n = e.n}};
    memcpy(sp.c.items, e.items, e.n * sizeof *e.items);
    spread_out(s, &sp);
    if (s->status != K3_OK || sp.c.is_false)
        return; /* the rule stays dead */
    size_t i;
    unsigned mark;
    const k3_json *choice = find_choice(&sp.c, &i, &mark);
    uint32_t start;
    if (choice) {
        sp.c.items[i].done |= mark;
        start = build_choice(s, number, choice, &sp.c);
    } else {
        unsigned types = k3_schema_types(s, &sp.c) & e.types;
        size_t first = 0;
        int is_listed = k3_schema_keyword(&sp.c, "enum", &first) != NULL;
        first = 0;
        is_listed |= k3_schema_keyword(&sp.c, "const", &first) != NULL;
        start = is_listed ? k3_schema_listed(s, &sp.c, types, e.form, K3_GRAMMAR_RETURN) : build_types(s, &sp.c, types, e.form);
    }
    k3_grammar_set(s->g, e.rule, start);
}

/* ---- all of them --------------------------------------------------------------------------------------- */

static int compare_edges(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return x[0] != y[0] ? (x[0] > y[0]) - (x[0] < y[0]) : (x[1] > y[1]) - (x[1] < y[1]);
}

/* A value that is, as one choice, itself again would be looked for without an end. Goes down the choices, first to last. */
static void check_edges(k3_schema *s)
{
    size_t n_edges = s->n_edges / 2, n = s->n_entries;
    size_t *at = calloc(n + 1, sizeof *at), *path = malloc((n + 1) * sizeof *path);
    char *seen = calloc(n + 1, 1); /* 1: on the path, 2: done */
    if (!at || !path || !seen) {
        k3_schema_no_memory(s);
    } else if (n_edges > 0) {
        qsort(s->edges, n_edges, 2 * sizeof *s->edges, compare_edges);
        for (size_t e = 0; e < n_edges; e++)
            at[s->edges[2 * e]] = at[s->edges[2 * e]] ? at[s->edges[2 * e]] : e + 1;
        for (size_t start = 0; start < n && s->status == K3_OK; start++) {
            size_t depth = 0;
            if (seen[start] || !at[start])
                continue;
            path[depth++] = start;
            seen[start] = 1;
            while (depth > 0 && s->status == K3_OK) {
                size_t here = path[depth - 1], e = at[here] - 1;
                if (at[here] == 0 || e >= n_edges || s->edges[2 * e] != here) {
                    seen[here] = 2;
                    depth--;
                    continue;
                }
                at[here]++;
                size_t to = s->edges[2 * e + 1];
                if (seen[to] == 1)
                    k3_schema_refuse(s, K3_E_INVALID, s->entries[to].n > 0 ? s->entries[to].items[0].schema : NULL,
                                     "a choice of anyOf or oneOf leads back to it with nothing between");
                else if (!seen[to]) {
                    seen[to] = 1;
                    path[depth++] = to;
                }
            }
        }
    }
    free(at);
    free(path);
    free(seen);
}

k3_status k3_schema_open(k3_schema **out, k3_grammar *g, const k3_json *document, k3_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return k3_fail(err, K3_E_NOMEM, "no memory for a schema");
    (*out)->g = g;
    (*out)->document = document;
    return K3_OK;
}

void k3_schema_close(k3_schema *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_entries; i++)
        free(s->entries[i].items);
    free(s->entries);
    free(s->index);
    free(s->edges);
    free(s);
}

k3_status k3_schema_rule(k3_schema *s, uint32_t *rule, const k3_json *root, unsigned types, k3_schema_form form, int is_loose,
                         k3_error *err)
{
    k3_conjunction c = {0};
    size_t n_done = s->n_entries;
    s->root = root;
    s->is_loose = is_loose;
    s->err = err;
    if (root)
        (void)k3_conjunction_add(s, &c, root);
    *rule = k3_schema_rule_of(s, &c, types, form);
    for (; n_done < s->n_entries && s->status == K3_OK && !s->g->too_large && !s->g->failed; n_done++)
        build_entry(s, n_done);
    if (s->status == K3_OK)
        check_edges(s);
    s->n_edges = 0;
    return s->status;
}
