/* JSON Schema to a grammar: the keywords of docs/chat.md, section 6. What a value has to be is the conjunction of some schemas; a rule is
 * made for each such conjunction that occurs, so recursion costs nothing and nothing is made twice. */
#ifndef K3_CONSTRAIN_SCHEMA_H
#define K3_CONSTRAIN_SCHEMA_H

#include "base/json.h"
#include "constrain/grammar.h"

typedef enum k3_schema_form {
    K3_SCHEMA_JSON,     /* JSON text */
    K3_SCHEMA_RAW,      /* a string as it is: the text of a string argument */
    K3_SCHEMA_ARGUMENTS /* the members of an object as elements `argument` */
} k3_schema_form;

enum {
    K3_TYPE_NULL = 1,
    K3_TYPE_BOOLEAN = 2,
    K3_TYPE_WHOLE = 4,    /* numbers without a fraction */
    K3_TYPE_FRACTION = 8, /* other numbers */
    K3_TYPE_STRING = 16,
    K3_TYPE_ARRAY = 32,
    K3_TYPE_OBJECT = 64,
    K3_TYPE_ALL = 127,
    K3_TYPE_NUMBER = K3_TYPE_WHOLE | K3_TYPE_FRACTION
};

typedef struct k3_schema k3_schema;

/* `document` is what errors give JSON pointers into. */
k3_status k3_schema_open(k3_schema **out, k3_grammar *g, const k3_json *document, k3_error *err);
void k3_schema_close(k3_schema *s);
/* The rule of a value that fits `root` (NULL: any) and has one of the types. references are looked up in `root`. is_loose: JSON may
 * have line breaks and indentation. Everything that it needs is made before it returns. */
k3_status k3_schema_rule(k3_schema *s, uint32_t *rule, const k3_json *root, unsigned types, k3_schema_form form, int is_loose,
                         k3_error *err);

#endif
