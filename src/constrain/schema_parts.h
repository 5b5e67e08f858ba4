/* What the files of the schema compiler share. */
#ifndef K3_CONSTRAIN_SCHEMA_PARTS_H
#define K3_CONSTRAIN_SCHEMA_PARTS_H

#include "constrain/charset.h"
#include "constrain/schema.h"

enum {
    K3_SCHEMA_MAX_TOGETHER = 64,     /* schemas that hold for one value */
    K3_SCHEMA_MAX_PROPERTIES = 2000, /* of one object */
    K3_SCHEMA_MAX_RULES = 1 << 15,
    K3_SCHEMA_MAX_WORK = 1 << 25, /* members and names looked at, which takes a second at most */
    K3_ANYOF_DONE = 1,            /* a choice among its anyOf stands in the conjunction */
    K3_ONEOF_DONE = 2,
    K3_SPREAD_DONE = 4 /* what it names by $ref and allOf stands in the conjunction */
};

typedef struct k3_conjunct {
    const k3_json *schema;
    unsigned done;
} k3_conjunct;

typedef struct k3_conjunction {
    k3_conjunct items[K3_SCHEMA_MAX_TOGETHER];
    size_t n;
    int is_false; /* one of them fits nothing */
} k3_conjunction;

typedef struct k3_schema_entry k3_schema_entry;

struct k3_schema {
    k3_grammar *g;
    const k3_json *document, *root;
    int is_loose;
    k3_schema_entry *entries; /* rules in the order in which they were asked for */
    size_t n_entries, entry_capacity;
    uint32_t *index, index_mask;
    uint32_t *edges; /* pairs of entries: the second is a choice of the first, with nothing read between */
    size_t n_edges, edge_capacity;
    uint32_t any_char[2][2]; /* rules by form (JSON, raw): made, number */
    uint32_t space[2];       /* the rule of one space of indentation: made, number */
    uint64_t work;
    k3_status status;
    k3_error *err;
};

/* All of these return K3_GRAMMAR_DEAD after an error, which s->status keeps. */
uint32_t k3_schema_refuse(k3_schema *s, k3_status status, const k3_json *place, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
uint32_t k3_schema_no_memory(k3_schema *s);
/* Counts what was looked at; 0 once it is too much. */
int k3_schema_spend(k3_schema *s, size_t n);
/* The rule of such a value; made now or later. */
uint32_t k3_schema_rule_of(k3_schema *s, const k3_conjunction *c, unsigned types, k3_schema_form form);
/* Adds a schema of which nothing is done, unless it is there so already. 0 after an error. */
int k3_conjunction_add(k3_schema *s, k3_conjunction *c, const k3_json *schema);

/* Checks the keywords of one schema. */
void k3_schema_check(k3_schema *s, const k3_json *schema);
/* Whether it says something about the value itself, choices that are done and references apart. */
int k3_schema_says(const k3_json *schema, unsigned done);
/* Types that the conjunction leaves. */
unsigned k3_schema_types(k3_schema *s, const k3_conjunction *c);
/* A keyword that is a whole number from 0; the largest or smallest of several wins. Returns `otherwise` where there is none. */
uint32_t k3_schema_count(k3_schema *s, const k3_conjunction *c, const char *key, int largest, uint32_t otherwise);
const k3_json *k3_schema_keyword(const k3_conjunction *c, const char *key, size_t *i); /* the next from item *i on; NULL: none */

/* White space that JSON may have: after a comma or colon, and (loose only) inside of brackets. */
uint32_t k3_schema_gap(k3_schema *s, int is_inside, uint32_t next);
/* One value of a type, or of the values listed. */
uint32_t k3_schema_string(k3_schema *s, const k3_conjunction *c, k3_schema_form form, uint32_t next);
uint32_t k3_schema_number(k3_schema *s, const k3_conjunction *c, int is_integer, uint32_t next);
uint32_t k3_schema_array(k3_schema *s, const k3_conjunction *c, uint32_t next);
uint32_t k3_schema_object(k3_schema *s, const k3_conjunction *c, k3_schema_form form, uint32_t next);
uint32_t k3_schema_listed(k3_schema *s, const k3_conjunction *c, unsigned types, k3_schema_form form, uint32_t next);
uint32_t k3_schema_any_char(k3_schema *s, int is_raw); /* a rule */

#endif
