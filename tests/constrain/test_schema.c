/* response_format json_schema: what is drawn from the ids that stay fits the schema, what fits is taken, and what does not is cut at the
 * byte where that shows. */
#include "valid.h"
#include "walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { N_WALKS = 12 };

#define TREE                                                                                                                               \
    "{\"$ref\":\"#/$defs/node\",\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"value\":{\"type\":\"integer\"},"                \
    "\"children\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/node\"}}},\"required\":[\"value\",\"children\"],"                      \
    "\"additionalProperties\":false}}}"
#define EXPRESSION                                                                                                                         \
    "{\"definitions\":{\"e\":{\"anyOf\":[{\"type\":\"number\"},{\"$ref\":\"#/definitions/add\"},{\"$ref\":\"#/definitions/sub\"}]},"       \
    "\"add\":{\"type\":\"object\",\"properties\":{\"l\":{\"$ref\":\"#/definitions/e\"},\"r\":{\"$ref\":\"#/definitions/e\"},"              \
    "\"op\":{\"const\":\"+\"}},\"required\":[\"l\",\"r\",\"op\"]},\"sub\":{\"type\":\"object\",\"properties\":{\"l\":{\"$ref\":"           \
    "\"#/definitions/e\"},\"r\":{\"$ref\":\"#/definitions/e\"},\"op\":{\"const\":\"-\"}},\"required\":[\"l\",\"r\",\"op\"]}},"             \
    "\"$ref\":\"#/definitions/e\"}"
#define LIST "{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#\"}},\"required\":[\"next\"]}]}"
#define PERSON                                                                                                                             \
    "{\"type\":\"object\",\"title\":\"Person\",\"properties\":{\"name\":{\"type\":\"string\",\"description\":\"who\"},\"age\":"            \
    "{\"type\":\"integer\",\"minimum\":0,\"maximum\":130},\"mail\":{\"type\":[\"string\",\"null\"],\"default\":null},\"address\":"         \
    "{\"type\":\"object\",\"properties\":{\"street\":{\"type\":\"string\"},\"no\":{\"type\":\"integer\"}},\"required\":[\"street\"]}},"    \
    "\"required\":[\"name\",\"age\"],\"additionalProperties\":false}"

/* The groups of the vendor's verifier and more: plain types, nesting, arrays, lists of values, unions, recursion, options, Unicode. */
static const char *const schemas[] = {
    "{\"type\":\"string\"}",
    "{\"type\":\"integer\"}",
    "{\"type\":\"number\"}",
    "{\"type\":\"boolean\"}",
    "{\"type\":\"null\"}",
    "{\"type\":\"object\"}",
    "{\"type\":\"array\"}",
    "{}",
    "true",
    "{\"type\":[\"string\",\"null\"]}",
    "{\"type\":\"string\",\"nullable\":true}",
    "{\"type\":[\"integer\",\"boolean\",\"array\"],\"maxItems\":2,\"items\":{\"type\":\"null\"}}",
    PERSON,
    TREE,
    EXPRESSION,
    LIST,
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"object\",\"properties\":{\"c\":"
    "{\"type\":\"object\",\"properties\":{\"d\":{\"type\":\"boolean\"}},\"required\":[\"d\"]}},\"required\":[\"c\"]}},\"required\":[\"b\"]}"
    "},"
    "\"required\":[\"a\"]}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"},\"c\":{\"type\":\"null\"},\"d\":{\"type\":"
    "\"null\"}}}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"},\"c\":{\"type\":\"null\"}},\"required\":["
    "\"b\"]}",
    "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}",
    "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\",\"minimum\":5}}",
    "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\"}},\"required\":[\"id\"],\"additionalProperties\":{\"type\":"
    "\"string\"}}",
    "{\"type\":\"object\",\"properties\":{\"\xc3\xa4\":{\"type\":\"null\"},\"a\\\"b\":{\"type\":\"null\"},\"ab\":{\"type\":\"null\"}},"
    "\"additionalProperties\":true}",
    "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"},\"minProperties\":1,\"maxProperties\":3}",
    "{\"type\":\"object\",\"required\":[\"x\",\"y\"],\"additionalProperties\":{\"type\":\"integer\"}}",
    "{\"properties\":{\"\xe5\x9f\x8e\xe5\xb8\x82\":{\"type\":\"string\"},\"\xf0\x9f\x98\x80\":{\"type\":\"integer\"}},\"required\":[\"\xf0"
    "\x9f\x98\x80\",\"\xe5\x9f\x8e\xe5\xb8\x82\"]}",
    "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":4}",
    "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":3}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":0}",
    "{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"enum\":[0,1]},\"minItems\":2,\"maxItems\":2},\"maxItems\":3}",
    "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"integer\"}],\"minItems\":2,\"maxItems\":2}",
    "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"boolean\"},{\"type\":\"null\"}],\"items\":{\"type\":\"integer\"},\"minItems\":1}",
    "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"boolean\"}],\"items\":false}",
    "{\"enum\":[\"red\",\"green\",\"blue\"]}",
    "{\"enum\":[1,\"one\",null,true,[1,\"x\"],{\"a\":1,\"b\":[]},1.5,\"on\",\"\"]}",
    "{\"type\":\"string\",\"enum\":[\"a\",1,\"ab\",null,\"abc\"]}",
    "{\"enum\":[\"\\u00e9t\\u00e9\",\"\\u4e2d\\u6587\",\"\\\"quoted\\\"\\n\",\"\\ud83d\\ude00\"]}",
    "{\"const\":\"fixed\"}",
    "{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"x\"},\"n\":{\"type\":\"integer\"}},\"required\":[\"kind\",\"n\"]}",
    "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":3}]}",
    "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"cat\"},\"lives\":{\"type\":\"integer\"}},\"required\":[\"t\","
    "\"lives\"]},{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"dog\"},\"good\":{\"type\":\"boolean\"}},\"required\":[\"t\","
    "\"good\"]}]}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"}},\"anyOf\":[{\"required\":[\"a\"]},"
    "{\"required\":[\"b\"]}]}",
    "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},{\"type\":\"object\","
    "\"properties\":"
    "{\"b\":{\"type\":\"string\"}},\"required\":[\"b\"]}]}",
    "{\"allOf\":[{\"type\":\"integer\",\"minimum\":3},{\"maximum\":12},{\"type\":\"number\"}]}",
    "{\"allOf\":[{\"enum\":[1,2,3,4]},{\"enum\":[3,4,5]}]}",
    "{\"$defs\":{\"s\":{\"type\":\"string\"}},\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":\"#/$defs/s\",\"maxLength\":4}},"
    "\"required\":[\"x\"]}",
    "{\"$defs\":{\"a~b/c\":{\"type\":\"boolean\"}},\"$ref\":\"#/$defs/a~0b~1c\"}",
    "{\"type\":\"string\",\"minLength\":3,\"maxLength\":5}",
    "{\"type\":\"string\",\"minLength\":6}",
    "{\"type\":\"string\",\"maxLength\":0}",
    "{\"type\":\"string\",\"pattern\":\"^[a-z]+-[0-9]{2,3}$\"}",
    "{\"type\":\"string\",\"pattern\":\"[a-w](yz|w)?\"}",
    "{\"type\":\"string\",\"pattern\":\"^(a|bc)*$\"}",
    "{\"type\":\"string\",\"pattern\":\"^((a*)b?)*$\"}",
    "{\"type\":\"string\",\"pattern\":\"^[a-z][a-z0-9_]*$\",\"maxLength\":6}",
    "{\"type\":\"string\",\"pattern\":\"^[^\\\\s\\\"]{2}\\\\d\\\\w\\\\D\\\\W\\\\S\\\\s.$\"}",
    "{\"type\":\"string\",\"pattern\":\"^[\\u00e0-\\u00ff\\u4e00-\\u9fff]{1,4}$|^\\\\u263a\\\\x41\\\\\\\\$\"}",
    "{\"type\":\"string\",\"format\":\"date\"}",
    "{\"type\":\"string\",\"format\":\"date-time\"}",
    "{\"type\":\"string\",\"format\":\"uuid\"}",
    "{\"type\":\"string\",\"format\":\"email\"}",
    "{\"type\":\"string\",\"format\":\"ipv4\"}",
    "{\"type\":\"integer\",\"minimum\":-17,\"maximum\":230}",
    "{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":11}",
    "{\"type\":\"integer\",\"minimum\":12345678}",
    "{\"type\":\"integer\",\"maximum\":-5}",
    "{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
    "{\"type\":\"number\",\"exclusiveMinimum\":0.25,\"exclusiveMaximum\":0.5}",
    "{\"type\":\"number\",\"minimum\":-1.5e1,\"maximum\":-0.125}",
};

static void draw_answers(const char *schema_text, uint64_t *random)
{
    const k3_json *schema;
    char *request = request_of(schema_text);
    assert_int_equal(k3_json_parse(&schema, schema_text, strlen(schema_text), 0, NULL), K3_OK);
    for (int walk = 0; walk < N_WALKS; walk++) {
        k3_tokens ids = {0};
        int thinking = walk == 0;
        k3_constraint *c = open_constraint(request, thinking);
        random_answer(c, &ids, random);
        parts p = take_apart(&ids, thinking);
        const k3_json *value;
        assert_true(p.done && p.n_calls == 0);
        if (k3_json_parse(&value, p.content.bytes, p.content.n, 0, NULL) != K3_OK || !fits(value, schema, schema))
            fail_msg("%s: %.*s", schema_text, (int)p.content.n, p.content.bytes);
        assert_null(memchr(p.content.bytes, '\n', p.content.n));
        k3_json_free(value);
        free_parts(&p);
        k3_constraint_close(c);
        k3_tokens_free(&ids);
    }
    k3_json_free(schema);
    free(request);
}

/* Case C41: an answer to a schema has no raw line breaks. Case C43: thinking on and off. Case C33: Han and emoji names. */
static void c33_c41_c43_random_answers_fit(void **state)
{
    uint64_t random = 7;
    (void)state;
    for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++)
        draw_answers(schemas[i], &random);
}

/* ---- texts that fit, and texts that do not ------------------------------------------------------------- */

/* at: how many bytes are taken; -1: all of it, and the end may come; -2: all of it, and the end may not. */
static const struct {
    const char *schema, *text;
    int at;
} texts[] = {
    {PERSON, "{\"name\": \"Ada\", \"age\": 36}", -1},
    {PERSON, "{\"name\":\"Ada\",\"age\":36,\"mail\":null,\"address\":{\"street\":\"x\"}}", -1},
    {PERSON, "{\"name\":\"\xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80\\u00e9\\ud83d\\ude00\\n\",\"age\":130}", -1},
    {PERSON, "{\"name\":\"Ada\",\"age\":131}", 22},
    {PERSON, "{\"name\":\"Ada\",\"age\":3.5}", 21},
    {PERSON, "{\"name\":\"Ada\",\"age\":036}", 21},
    {PERSON, "{\"name\":\"Ada\"}", 13},
    {PERSON, "{\"age\":36}", 2},
    {PERSON, "{\"name\":\"Ada\",\"age\":36,\"extra\":1}", 24},
    {PERSON, "{\"name\":\"Ada\",\n\"age\":36}", 14},
    {PERSON, "{\"name\":\"Ada\",  \"age\":36}", 15},
    {PERSON, "{\"name\":\"a\nb\"}", 10},
    {PERSON, "{\"name\":\"\\ud83dx\"}", 15},
    {PERSON, "{\"name\":\"\\ude00\"}", 12},
    {PERSON, "{\"name\":\"\\x\"}", 10},
    {PERSON, "{\"name\":\"\xc3(\"}", 10},
    {PERSON, "{\"name\":\"\xed\xa0\x80\"}", 10},
    {PERSON, "```json", 0},
    {TREE, "{\"value\": 1, \"children\": [{\"value\": 2, \"children\": []}, {\"value\": -3, \"children\": []}]}", -1},
    {TREE, "{\"value\":1,\"children\":[1]}", 23},
    {EXPRESSION, "{\"l\":{\"l\":1,\"r\":{\"l\":2e5,\"r\":3.5,\"op\":\"-\"},\"op\":\"+\"},\"r\":4,\"op\":\"-\"}", -1},
    {EXPRESSION, "{\"l\":1,\"r\":2,\"op\":\"*\"}", 19},
    {LIST, "{\"next\": {\"next\": null}}", -1},
    {LIST, "{\"next\":{}", 9},
    {"{\"type\":\"object\"}", "{\"a\": [1, {\"b\": null}], \"c\": \"d\", \"\xc3\xa9\": -0.5e-3}", -1},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":\"integer\"}}",
     "{\"a\":1,\"abc\":2}", -1},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":\"integer\"}}",
     "{\"ab\":null,\"b\":2}", -1},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":\"integer\"}}",
     "{\"a\":1,\"ab\":2}", 10},
    {"{\"type\":\"integer\"}", "12345678901234567890", -1},
    {"{\"type\":\"integer\"}", "123456789012345678901", 20},
    {"{\"type\":\"integer\"}", "-0", 1},
    {"{\"type\":\"number\"}", "-0.25E+10", -1},
    {"{\"type\":\"number\"}", "1.", -2},
    {"{\"type\":\"number\"}", "1e999", 4},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}", "0.97", -1},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}", "1.000", -1},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}", "1.01", 3},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":11}", "10", -1},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":11}", "11", 1},
    {"{\"type\":\"integer\",\"minimum\":-17,\"maximum\":230}", "-17", -1},
    {"{\"type\":\"integer\",\"minimum\":-17,\"maximum\":230}", "-18", 2},
    {"{\"type\":\"integer\",\"minimum\":-17,\"maximum\":230}", "230", -1},
    {"{\"type\":\"integer\",\"minimum\":-17,\"maximum\":230}", "231", 2},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"\xe4\xb8\xad\xe6\x96\x87\\n\"", -1},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"a\"", 2},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"abcd\"", 4},
    {"{\"type\":\"string\",\"format\":\"date\"}", "\"2024-02-30\"", 9},
    {"{\"type\":\"string\",\"format\":\"date\"}", "\"2026-11-30\"", -1},
    {"{\"type\":\"string\",\"format\":\"date-time\"}", "\"2026-11-30T23:59:59.25+01:00\"", -1},
    {"{\"type\":\"string\",\"format\":\"uuid\"}", "\"123e4567-e89b-12d3-a456-426614174000\"", -1},
    {"{\"type\":\"string\",\"format\":\"email\"}", "\"a.b+c@mail.example.org\"", -1},
    {"{\"type\":\"string\",\"format\":\"email\"}", "\"a.b@c\"", 6},
    {"{\"type\":\"string\",\"pattern\":\"b+$\"}", "\"aabb\"", -1},
    {"{\"type\":\"string\",\"pattern\":\"^a.c$\"}", "\"a\\nc\"", 3},
    {"{\"type\":\"string\",\"pattern\":\"^\\\"\\\\\\\\$\"}", "\"\\\"\\\\\"", -1},
    {"{\"enum\":[\"red\",\"green\",\"grey\"]}", "\"grey\"", -1},
    {"{\"enum\":[\"red\",\"green\",\"grey\"]}", "\"gray\"", 3},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}", "[1, 2, 3]", -1},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}", "[1]", 2},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}", "[1,2,3,", 6},
};

static void feed(size_t i, int by_bytes)
{
    char *request = request_of(texts[i].schema);
    k3_constraint *c = open_constraint(request, 0);
    size_t n = strlen(texts[i].text), n_taken = feed_text(c, texts[i].text, n, by_bytes, NULL), at = (size_t)texts[i].at;
    int is_right = n_taken == n && (feed_script(c, CLOSE "response" SEP, by_bytes, NULL) == 10) == (texts[i].at == -1);
    if (texts[i].at >= 0) /* a token that goes too far is cut where it begins */
        is_right = by_bytes ? n_taken == at : n_taken <= at;
    if (!is_right)
        fail_msg("%s: %s: %zu bytes taken, wanted %d", texts[i].schema, texts[i].text, n_taken, texts[i].at);
    k3_constraint_close(c);
    free(request);
}

static void texts_are_taken_or_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (k3_utf8_is_valid(texts[i].text, strlen(texts[i].text))) /* the tokenizer mends what is not */
            feed(i, 0);
        feed(i, 1);
    }
}

/* json_object: an object of any members, on lines of its own if the model likes it, but never more than one break at a place. */
static void objects_may_be_indented(void **state)
{
    static const char request[] = "{\"response_format\":{\"type\":\"json_object\"}}",
                      good[] = "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}";
    static const struct {
        const char *text;
        size_t at;
    } bad[] = {{"{\n\n", 2}, {"{ ", 1}, {"[", 0}, {"{\n                                  ", 34}, {"{\t", 1}, {"1", 0}, {"{\"a\": \n", 6}};
    (void)state;
    for (int by_bytes = 0; by_bytes < 2; by_bytes++) {
        k3_constraint *c = open_constraint(request, 0);
        assert_int_equal(feed_text(c, good, sizeof good - 1, by_bytes, NULL), sizeof good - 1);
        assert_int_equal(feed_script(c, CLOSE "response" SEP CLOSE "message" SEP END, 0, NULL), 20);
        assert_true(k3_constraint_is_over(c));
        k3_constraint_close(c);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        k3_constraint *c = open_constraint(request, 0);
        assert_int_equal(feed_text(c, bad[i].text, strlen(bad[i].text), 1, NULL), bad[i].at);
        k3_constraint_close(c);
    }
}

static int close_all(void **state)
{
    (void)state;
    close_vocab();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(c33_c41_c43_random_answers_fit), cmocka_unit_test(texts_are_taken_or_cut),
                                       cmocka_unit_test(objects_may_be_indented)};
    return cmocka_run_group_tests(tests, NULL, close_all);
}
