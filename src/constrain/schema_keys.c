/* The keywords of a schema: which are known, what they must look like, which types they leave. */
#include <string.h>

#include "constrain/schema_parts.h"

typedef enum keyword_kind {
    KEY_TYPE,     /* type, nullable */
    KEY_SCHEMA,   /* a schema; for items also a list of them */
    KEY_SCHEMAS,  /* a list of schemas, not empty */
    KEY_LIST,     /* a list */
    KEY_NAMES,    /* a list of strings */
    KEY_MEMBERS,  /* an object of schemas */
    KEY_COUNT,    /* a whole number from 0 */
    KEY_NUMBER,   /* a number */
    KEY_TEXT,     /* a string */
    KEY_ANY,      /* anything */
    KEY_REFUSED,  /* restricts in a way that is not supported */
    KEY_IF_FALSE, /* supported as far as it is false */
    KEY_IF_TRUE   /* supported as far as it is true */
} keyword_kind;

typedef struct keyword {
    const char *name;
    keyword_kind kind;
    unsigned types; /* that it says something about; what is meant where there is no `type` */
} keyword;

static const keyword keywords[] = {
    {"type", KEY_TYPE, 0},
    {"nullable", KEY_ANY, 0},
    {"enum", KEY_LIST, 0},
    {"const", KEY_ANY, 0},
    {"anyOf", KEY_SCHEMAS, 0},
    {"oneOf", KEY_SCHEMAS, 0},
    {"allOf", KEY_SCHEMAS, 0},
    {"$ref", KEY_TEXT, 0},
    {"properties", KEY_MEMBERS, K3_TYPE_OBJECT},
    {"required", KEY_NAMES, K3_TYPE_OBJECT},
    {"additionalProperties", KEY_SCHEMA, K3_TYPE_OBJECT},
    {"unevaluatedProperties", KEY_IF_FALSE, K3_TYPE_OBJECT},
    {"minProperties", KEY_COUNT, K3_TYPE_OBJECT},
    {"maxProperties", KEY_COUNT, K3_TYPE_OBJECT},
    {"patternProperties", KEY_REFUSED, 0},
    {"propertyNames", KEY_REFUSED, 0},
    {"dependencies", KEY_REFUSED, 0},
    {"dependentRequired", KEY_REFUSED, 0},
    {"dependentSchemas", KEY_REFUSED, 0},
    {"items", KEY_SCHEMA, K3_TYPE_ARRAY},
    {"prefixItems", KEY_SCHEMAS, K3_TYPE_ARRAY},
    {"minItems", KEY_COUNT, K3_TYPE_ARRAY},
    {"maxItems", KEY_COUNT, K3_TYPE_ARRAY},
    {"uniqueItems", KEY_IF_FALSE, 0},
    {"additionalItems", KEY_REFUSED, 0},
    {"unevaluatedItems", KEY_REFUSED, 0},
    {"contains", KEY_REFUSED, 0},
    {"minContains", KEY_REFUSED, 0},
    {"maxContains", KEY_REFUSED, 0},
    {"minLength", KEY_COUNT, K3_TYPE_STRING},
    {"maxLength", KEY_COUNT, K3_TYPE_STRING},
    {"pattern", KEY_TEXT, K3_TYPE_STRING},
    {"format", KEY_TEXT, 0},
    {"minimum", KEY_NUMBER, K3_TYPE_NUMBER},
    {"maximum", KEY_NUMBER, K3_TYPE_NUMBER},
    {"exclusiveMinimum", KEY_NUMBER, K3_TYPE_NUMBER},
    {"exclusiveMaximum", KEY_NUMBER, K3_TYPE_NUMBER},
    {"multipleOf", KEY_REFUSED, 0},
    {"not", KEY_REFUSED, 0},
    {"if", KEY_REFUSED, 0},
    {"then", KEY_REFUSED, 0},
    {"else", KEY_REFUSED, 0},
    {"$dynamicRef", KEY_REFUSED, 0},
    {"$recursiveRef", KEY_REFUSED, 0},
};

static const keyword *find_keyword(const k3_json *member)
{
    for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++)
        if (strlen(keywords[i].name) == member->key_bytes && memcmp(keywords[i].name, member->key, member->key_bytes) == 0)
            return &keywords[i];
    return NULL;
}

/* ---- what a keyword must look like --------------------------------------------------------------------- */

static int is_schema(const k3_json *value)
{
    return value->type == K3_JSON_OBJECT || value->type == K3_JSON_TRUE || value->type == K3_JSON_FALSE;
}

static int all_are(const k3_json *list, int (*is)(const k3_json *))
{
    for (const k3_json *v = list->first; v; v = v->next)
        if (!is(v))
            return 0;
    return 1;
}

static int is_string(const k3_json *value)
{
    return value->type == K3_JSON_STRING;
}

static unsigned type_named(const k3_json *name)
{
    static const struct {
        const char *name;
        unsigned types;
    } types[] = {{"null", K3_TYPE_NULL},     {"boolean", K3_TYPE_BOOLEAN}, {"integer", K3_TYPE_WHOLE}, {"number", K3_TYPE_NUMBER},
                 {"string", K3_TYPE_STRING}, {"array", K3_TYPE_ARRAY},     {"object", K3_TYPE_OBJECT}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (k3_json_text_is(name, types[i].name))
            return types[i].types;
    return 0;
}

/* What is wrong with a keyword's value; NULL if it is as it should be. */
static const char *fault_of(const k3_json *value, keyword_kind kind)
{
    int64_t number;
    double real;
    switch (kind) {
    case KEY_TYPE:
        if (type_named(value) || (value->type == K3_JSON_ARRAY && value->n_children > 0))
            return NULL;
        return "wanted null, boolean, integer, number, string, array, object or a list of them";
    case KEY_SCHEMA:
        return is_schema(value) || (value->type == K3_JSON_ARRAY && all_are(value, is_schema))
                   ? NULL
                   : "wanted a schema: an object, true or false";
    case KEY_SCHEMAS:
        return value->type == K3_JSON_ARRAY && value->n_children > 0 && all_are(value, is_schema) ? NULL
                                                                                                  : "wanted a list of schemas, not empty";
    case KEY_LIST:
        return value->type == K3_JSON_ARRAY && value->n_children > 0 ? NULL : "wanted a list, not empty";
    case KEY_NAMES:
        return value->type == K3_JSON_ARRAY && all_are(value, is_string) ? NULL : "wanted a list of names";
    case KEY_MEMBERS:
        return value->type == K3_JSON_OBJECT && all_are(value, is_schema) ? NULL : "wanted an object of schemas";
    case KEY_COUNT:
        return k3_json_int(value, &number) && number >= 0 ? NULL : "wanted a whole number from 0";
    case KEY_NUMBER:
        return k3_json_double(value, &real) ? NULL : "wanted a number";
    case KEY_TEXT:
        return is_string(value) ? NULL : "wanted a string";
    default:
        return NULL;
    }
}

void k3_schema_check(k3_schema *s, const k3_json *schema)
{
    if (!is_schema(schema)) {
        k3_schema_refuse(s, K3_E_INVALID, schema, "this is no schema: wanted an object, true or false");
        return;
    }
    for (const k3_json *member = schema->first; member && s->status == K3_OK; member = member->next) {
        const keyword *key = find_keyword(member);
        if (!key)
            continue; /* an annotation */
        const char *fault = fault_of(member, key->kind);
        int is_refused = key->kind == KEY_REFUSED || (key->kind == KEY_IF_FALSE && member->type != K3_JSON_FALSE);
        if (fault)
            k3_schema_refuse(s, K3_E_INVALID, member, "%s is something else: %s", key->name, fault);
        else if (is_refused)
            k3_schema_refuse(s, K3_E_UNSUPPORTED, member, "%s restricts values in a way that answers cannot be held to; leave it out",
                             key->name);
        else if (key->kind == KEY_TYPE && member->type == K3_JSON_ARRAY)
            for (const k3_json *name = member->first; name; name = name->next)
                if (!type_named(name))
                    k3_schema_refuse(s, K3_E_INVALID, name, "no type; %s", fault_of(name, KEY_TYPE));
    }
}

/* ---- what they say ------------------------------------------------------------------------------------- */

int k3_schema_says(const k3_json *schema, unsigned done)
{
    for (const k3_json *member = schema->first; member && schema->type == K3_JSON_OBJECT; member = member->next) {
        const keyword *key = find_keyword(member);
        if (!key || strcmp(key->name, "$ref") == 0 || strcmp(key->name, "allOf") == 0)
            continue;
        int is_done =
            (strcmp(key->name, "anyOf") == 0 && done & K3_ANYOF_DONE) || (strcmp(key->name, "oneOf") == 0 && done & K3_ONEOF_DONE);
        if (!is_done)
            return 1;
    }
    return 0;
}

static unsigned types_of(const k3_json *schema)
{
    const k3_json *type = k3_json_get(schema, "type"), *nullable = k3_json_get(schema, "nullable");
    unsigned types = type ? type_named(type) : K3_TYPE_ALL;
    if (type && type->type == K3_JSON_ARRAY)
        for (const k3_json *name = type->first; name; name = name->next)
            types |= type_named(name);
    return nullable && nullable->type == K3_JSON_TRUE ? types | K3_TYPE_NULL : types;
}

/* Where no schema names a type, those are meant that its keywords are about. */
unsigned k3_schema_types(k3_schema *s, const k3_conjunction *c)
{
    unsigned types = K3_TYPE_ALL, meant = 0;
    int has_type = 0;
    (void)s;
    for (size_t i = 0; i < c->n; i++) {
        const k3_json *schema = c->items[i].schema;
        types &= types_of(schema);
        for (const k3_json *member = schema->first; member; member = member->next) {
            const keyword *key = find_keyword(member);
            meant |= key ? key->types : 0;
            has_type |= key && (key->kind == KEY_TYPE || key->kind == KEY_LIST || strcmp(key->name, "const") == 0);
        }
    }
    return has_type || !meant ? types : types & meant;
}

const k3_json *k3_schema_keyword(const k3_conjunction *c, const char *key, size_t *i)
{
    for (; *i < c->n; ++*i) {
        const k3_json *value = k3_json_get(c->items[*i].schema, key);
        if (value)
            return value;
    }
    return NULL;
}

uint32_t k3_schema_count(k3_schema *s, const k3_conjunction *c, const char *key, int largest, uint32_t otherwise)
{
    uint32_t found = otherwise;
    int has_one = 0;
    const k3_json *value;
    (void)s;
    for (size_t i = 0; (value = k3_schema_keyword(c, key, &i)); i++) {
        int64_t number = 0;
        (void)k3_json_int(value, &number);
        uint32_t count = number > INT32_MAX ? (uint32_t)INT32_MAX : (uint32_t)number;
        if (!has_one || (largest ? count > found : count < found))
            found = count;
        has_one = 1;
    }
    return found;
}
