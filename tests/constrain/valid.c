#define PCRE2_CODE_UNIT_WIDTH 8
#include "valid.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static int is_type(const k3_json *v, const char *name)
{
    if (strcmp(name, "null") == 0)
        return v->type == K3_JSON_NULL;
    if (strcmp(name, "boolean") == 0)
        return v->type == K3_JSON_TRUE || v->type == K3_JSON_FALSE;
    if (strcmp(name, "integer") == 0)
        return v->type == K3_JSON_NUMBER && !strpbrk(v->text, ".eE");
    if (strcmp(name, "number") == 0)
        return v->type == K3_JSON_NUMBER;
    if (strcmp(name, "string") == 0)
        return v->type == K3_JSON_STRING;
    return v->type == (strcmp(name, "array") == 0 ? K3_JSON_ARRAY : K3_JSON_OBJECT);
}

static int fits_type(const k3_json *v, const k3_json *schema)
{
    const k3_json *type = k3_json_get(schema, "type"), *nullable = k3_json_get(schema, "nullable");
    if (!type || (nullable && nullable->type == K3_JSON_TRUE && v->type == K3_JSON_NULL))
        return 1;
    if (type->type == K3_JSON_STRING)
        return is_type(v, type->text);
    for (const k3_json *t = type->first; t; t = t->next)
        if (is_type(v, t->text))
            return 1;
    return 0;
}

static int equal(const k3_json *a, const k3_json *b)
{
    if (a->type == K3_JSON_NUMBER && b->type == K3_JSON_NUMBER)
        return atof(a->text) == atof(b->text);
    if (a->type != b->type || a->n_children != b->n_children)
        return 0;
    if (a->type == K3_JSON_STRING)
        return a->text_bytes == b->text_bytes && memcmp(a->text, b->text, a->text_bytes) == 0;
    for (const k3_json *x = a->first, *y = b->first; x; x = x->next, y = y->next) {
        const k3_json *other = a->type == K3_JSON_OBJECT ? k3_json_get(b, x->key) : y;
        if (!other || !equal(x, other))
            return 0;
    }
    return 1;
}

static int64_t whole(const k3_json *schema, const char *key, int64_t otherwise)
{
    int64_t n;
    const k3_json *value = k3_json_get(schema, key);
    return value && k3_json_int(value, &n) ? n : otherwise;
}

static int matches(const k3_json *v, const k3_json *pattern)
{
    int code;
    PCRE2_SIZE at;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern->text, pattern->text_bytes,
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX, &code, &at, NULL);
    if (!re)
        abort();
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(re, NULL);
    int n = pcre2_match(re, (PCRE2_SPTR)v->text, v->text_bytes, 0, 0, data, NULL);
    pcre2_match_data_free(data);
    pcre2_code_free(re);
    return n > 0;
}

static int fits_string(const k3_json *v, const k3_json *schema)
{
    int64_t n = 0;
    for (size_t i = 0; i < v->text_bytes; n++) {
        int cut;
        i += (size_t)k3_utf8_length(v->text + i, v->text_bytes - i, &cut);
    }
    const k3_json *pattern = k3_json_get(schema, "pattern");
    return n >= whole(schema, "minLength", 0) && n <= whole(schema, "maxLength", INT64_MAX) && (!pattern || matches(v, pattern));
}

static int fits_number(const k3_json *v, const k3_json *schema)
{
    double x = atof(v->text), bound;
    return !((k3_json_double(k3_json_get(schema, "minimum"), &bound) && x < bound) ||
             (k3_json_double(k3_json_get(schema, "maximum"), &bound) && x > bound) ||
             (k3_json_double(k3_json_get(schema, "exclusiveMinimum"), &bound) && x <= bound) ||
             (k3_json_double(k3_json_get(schema, "exclusiveMaximum"), &bound) && x >= bound));
}

static int fits_array(const k3_json *v, const k3_json *schema, const k3_json *root)
{
    const k3_json *prefix = k3_json_get(schema, "prefixItems"), *items = k3_json_get(schema, "items");
    const k3_json *own = prefix ? prefix->first : NULL;
    if ((int64_t)v->n_children < whole(schema, "minItems", 0) || (int64_t)v->n_children > whole(schema, "maxItems", INT64_MAX))
        return 0;
    for (const k3_json *x = v->first; x; x = x->next, own = own ? own->next : NULL)
        if ((own || items) && !fits(x, own ? own : items, root))
            return 0;
    return 1;
}

static int fits_object(const k3_json *v, const k3_json *schema, const k3_json *root)
{
    const k3_json *all = k3_json_get(schema, "properties"), *others = k3_json_get(schema, "additionalProperties");
    const k3_json *required = k3_json_get(schema, "required");
    for (const k3_json *name = required ? required->first : NULL; name; name = name->next)
        if (!k3_json_get(v, name->text))
            return 0;
    for (const k3_json *x = v->first; x; x = x->next) {
        const k3_json *own = k3_json_get(all, x->key);
        if (!own)
            own = others;
        if (own && !fits(x, own, root))
            return 0;
    }
    return (int64_t)v->n_children >= whole(schema, "minProperties", 0) &&
           (int64_t)v->n_children <= whole(schema, "maxProperties", INT64_MAX);
}

static const k3_json *refer(const k3_json *root, const char *ref)
{
    for (ref++; *ref == '/';) {
        char name[100];
        size_t n = 0;
        for (ref++; *ref && *ref != '/'; ref++)
            name[n++] = *ref == '~' ? (*++ref == '0' ? '~' : '/') : *ref;
        name[n] = 0;
        root = k3_json_get(root, name);
    }
    return root;
}

static int fits_choice(const k3_json *v, const k3_json *list, const k3_json *root)
{
    for (const k3_json *x = list ? list->first : NULL; x; x = x->next)
        if (fits(v, x, root))
            return 1;
    return !list;
}

int fits(const k3_json *v, const k3_json *schema, const k3_json *root)
{
    if (schema->type != K3_JSON_OBJECT)
        return schema->type == K3_JSON_TRUE;
    const k3_json *values = k3_json_get(schema, "enum"), *one = k3_json_get(schema, "const"), *ref = k3_json_get(schema, "$ref");
    const k3_json *every = k3_json_get(schema, "allOf");
    int is_listed = !values;
    for (const k3_json *x = values ? values->first : NULL; x; x = x->next)
        is_listed |= equal(v, x);
    for (const k3_json *x = every ? every->first : NULL; x; x = x->next)
        if (!fits(v, x, root))
            return 0;
    if (!is_listed || (one && !equal(v, one)) || !fits_type(v, schema) || (ref && !fits(v, refer(root, ref->text), root)))
        return 0;
    if (!fits_choice(v, k3_json_get(schema, "anyOf"), root) || !fits_choice(v, k3_json_get(schema, "oneOf"), root))
        return 0;
    switch (v->type) {
    case K3_JSON_STRING:
        return fits_string(v, schema);
    case K3_JSON_NUMBER:
        return fits_number(v, schema);
    case K3_JSON_ARRAY:
        return fits_array(v, schema, root);
    case K3_JSON_OBJECT:
        return fits_object(v, schema, root);
    default:
        return 1;
    }
}
