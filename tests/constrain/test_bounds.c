/* Schemas that are made to cost: they are refused, with the bound, or cost little; and what a token costs does not grow with the answer. */
#include "walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "constrain/automaton.h"
#include "constrain/schema.h"
#include "support/byte_vocab.h"

/* before, n times `piece` with %d as its number (and the next as a second %d), after: malloc'd. */
static char *repeated(const char *before, const char *piece, int n, const char *after)
{
    k3_buffer text = {0};
    char one[200];
    k3_buffer_add_text(&text, before);
    for (int i = 0; i < n; i++) {
        const char *in = piece;
        size_t at = 0;
        for (int k = 0; *in; in++) {
            if (in[0] == '%' && in[1] == 'd') {
                at += (size_t)snprintf(one + at, sizeof one - at, "%d", i + (k++ > 0));
                in++;
            } else {
                one[at++] = *in;
            }
        }
        k3_buffer_add(&text, one, at);
    }
    k3_buffer_add(&text, after, strlen(after) + 1);
    assert_false(text.failed);
    return text.bytes;
}

static void expect(char *schema, k3_status wanted, const char *words)
{
    char *request = request_of(schema);
    k3_constraint *c;
    k3_error err = {0};
    k3_status status = k3_constraint_make(&c, the_vocab(), the_trie(), request, strlen(request), 0, &err);
    if (status != wanted || (words && !strstr(err.text, words)))
        fail_msg("%.60s...: status %d, \"%s\"", schema, (int)status, err.text);
    k3_constraint_close(c);
    free(request);
    free(schema);
}

static void schemas_that_cost_are_refused(void **state)
{
    (void)state;
    expect(repeated("", "{\"items\":", 100000, "{}"), K3_E_INVALID, "deeper than 256");
    expect(repeated("{\"allOf\":[", "{\"title\":\"%d\",\"minLength\":%d},", 100, "{}]}"), K3_E_UNSUPPORTED, "more than 64 schemas");
    expect(repeated("{\"properties\":{", "\"p%d\":{},", 2001, "\"p\":{}}}"), K3_E_UNSUPPORTED, "more than 2000 properties");
    expect(repeated("{\"$defs\":{", "\"d%d\":{\"items\":{\"$ref\":\"#/$defs/d%d\"}},", 20000, "\"d20000\":{}},\"$ref\":\"#/$defs/d0\"}"),
           K3_E_UNSUPPORTED, "steps to read");
    expect(repeated("{\"type\":\"object\",\"allOf\":[", "{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]},", 25, "{}]}"),
           K3_E_UNSUPPORTED, "combines to more than 32768");
    expect(repeated("{\"type\":\"string\",\"pattern\":\"", "(", 30, "\"}"), K3_E_UNSUPPORTED, "groups too deep");
    expect(repeated("{\"type\":\"string\",\"pattern\":\"", "abcdefgh", 520, "\"}"), K3_E_UNSUPPORTED, "a pattern of 4160 bytes");
}

/* What is written often but says little: many values share their beginnings and ends, references and choices are made once each. */
static void schemas_that_repeat_are_cheap(void **state)
{
    (void)state;
    expect(repeated("{\"enum\":[", "\"value%d\",", 100000, "0]}"), K3_OK, NULL);
    expect(repeated("{\"$defs\":{", "\"d%d\":{\"anyOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]},", 60,
                    "\"d60\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/d0\"}"),
           K3_OK, NULL);
    expect(repeated("{\"$defs\":{", "\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]},", 20,
                    "\"d20\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/d0\"}"),
           K3_OK, NULL);
    expect(repeated("{\"$defs\":{",
                    "\"d%d\":{\"type\":\"object\",\"properties\":{\"l\":{\"$ref\":\"#/$defs/d%d\"},\"r\":{\"$ref\":\"#/$defs/d%d\"}},"
                    "\"required\":[\"l\",\"r\"]},",
                    60, "\"d60\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/d0\"}"),
           K3_OK, NULL);
    expect(repeated("{\"type\":\"array\",\"minItems\":2000000000,\"items\":{\"type\":\"string\",\"minLength\":1000000000", "", 0, "}}"),
           K3_OK, NULL);
}

/* Two readings of every level, decided only at its end: 2^100 ways through the grammar, and each step takes one more set a level. */
static void readings_are_shared(void **state)
{
    static const char schema[] =
        "{\"$defs\":{\"e\":{\"anyOf\":[{\"type\":\"null\"},{\"properties\":{\"l\":{\"$ref\":\"#/$defs/e\"},\"a\":{\"type\":"
        "\"null\"}},\"required\":[\"l\",\"a\"]},{\"properties\":{\"l\":{\"$ref\":\"#/$defs/e\"},\"b\":{\"type\":\"null\"}},"
        "\"required\":[\"l\",\"b\"]}]}},\"$ref\":\"#/$defs/e\"}";
    enum { LEVELS = 100 };
    char *request = request_of(schema);
    k3_constraint *c = open_constraint(request, 0);
    (void)state;
    for (int i = 0; i < LEVELS; i++)
        assert_int_equal(feed_text(c, "{\"l\":", 5, 0, NULL), 5);
    assert_int_equal(feed_text(c, "null", 4, 0, NULL), 4);
    for (int i = 0; i < LEVELS; i++)
        assert_int_equal(feed_text(c, i % 3 ? ",\"a\":null}" : ",\"b\":null}", 10, 0, NULL), 10);
    assert_int_equal(feed_script(c, CLOSE "response" SEP CLOSE "message" SEP END, 0, NULL), 20);
    k3_constraint_close(c);
    free(request);
}

/* No answer nests deeper than its reader takes, and every nesting that was begun can be closed. */
static void nesting_has_an_end(void **state)
{
    k3_constraint *c = open_constraint("{\"response_format\":{\"type\":\"json_object\"}}", 0);
    size_t n = 0;
    (void)state;
    assert_int_equal(feed_text(c, "{\"a\":", 5, 1, NULL), 5);
    while (feed_text(c, "[", 1, 1, NULL) == 1)
        n++;
    assert_true(n > 60 && n < 250);
    while (n-- > 0)
        assert_int_equal(feed_text(c, "]", 1, 1, NULL), 1);
    assert_int_equal(feed_text(c, "}", 1, 1, NULL), 1);
    k3_constraint_close(c);
}

/* A long answer through many different places: what is remembered is forgotten again, and the answer goes on. */
static void long_answers_are_forgotten(void **state)
{
    enum { ELEMENTS = 3000 };
    k3_grammar g = {0};
    k3_automaton *a;
    k3_schema *schema;
    k3_error err;
    const k3_json *root;
    uint32_t rule, config;
    int n_trims = 0, did_trim;
    static const char text[] = "{\"type\":\"array\",\"minItems\":3000,\"maxItems\":3000,\"items\":{\"type\":\"string\",\"maxLength\":9}}";
    (void)state;
    assert_int_equal(k3_json_parse(&root, text, sizeof text - 1, 0, &err), K3_OK);
    assert_int_equal(k3_schema_open(&schema, &g, root, &err), K3_OK);
    assert_int_equal(k3_schema_rule(schema, &rule, root, K3_TYPE_ALL, K3_SCHEMA_JSON, 0, &err), K3_OK);
    k3_schema_close(schema);
    k3_json_free(root);
    assert_int_equal(k3_grammar_finish(&g, &err), K3_OK);
    assert_int_equal(k3_automaton_open(&a, &config, &g, rule, &err), K3_OK);
    for (int i = 0; i < ELEMENTS; i++) {
        for (const char *s = i == 0 ? "[\"abcdefghi\"" : ",\"abcdefghi\""; *s; s++)
            config = k3_automaton_byte(a, config, (uint8_t)*s);
        assert_int_not_equal(config, K3_CONFIG_DEAD);
        config = k3_automaton_trim(a, config, &did_trim);
        n_trims += did_trim;
    }
    assert_true(n_trims > 2);
    assert_int_equal(k3_automaton_byte(a, config, ','), K3_CONFIG_DEAD);
    assert_true(k3_automaton_is_over(a, k3_automaton_byte(a, config, ']')));
    assert_int_equal(k3_automaton_state(a, &err), K3_OK);
    k3_automaton_close(a);
    k3_grammar_free(&g);
}

/* Tokens of 20 and of 40 equal letters, which are long ones, and of 10 and of one in a string of at most 50: each stays as long as it fits,
 * whatever was remembered of other counts.
 */
static void long_tokens_are_counted(void **state)
{
    static const char twenty[] = "YWFhYWFhYWFhYWFhYWFhYWFhYWE=", ten[] = "YWFhYWFhYWFhYQ==";
    k3_buffer model = {0};
    k3_vocab *vocab;
    k3_token_trie trie;
    k3_constraint *c;
    k3_error err;
    char *request = request_of("{\"type\":\"string\",\"maxLength\":50}"), forty[64] = "", bytes[BYTE_VOCAB_TEXT];
    float logits[260 + 256];
    (void)state;
    k3_buffer_add(&model, bytes, byte_vocab(bytes));
    for (int i = 0; i < 13; i++)
        strcat(forty, "YWFh");
    strcat(forty, "YQ==");
    k3_buffer_add_text(&model, twenty);
    k3_buffer_add_text(&model, " 256\n");
    k3_buffer_add_text(&model, forty);
    k3_buffer_add_text(&model, " 257\n");
    k3_buffer_add_text(&model, ten);
    k3_buffer_add_text(&model, " 258\nbD0= 259\n");
    assert_int_equal(k3_vocab_parse(&vocab, model.bytes, model.n, NULL, 0, 260 + 256, &err), K3_OK);
    assert_int_equal(k3_token_trie_build(&trie, vocab, &err), K3_OK);
    assert_int_equal(trie.deepest, 40);
    assert_int_equal(trie.n_long_tokens, 2);
    assert_int_equal(k3_constraint_make(&c, vocab, &trie, request, strlen(request), 0, &err), K3_OK);
    assert_int_equal(k3_constraint_push(c, '"', &err), K3_OK);
    for (int n = 0; n <= 50; n++) {
        memset(logits, 0, sizeof logits);
        assert_int_equal(k3_constraint_narrow(c, logits, 260 + 256, &err), K3_OK);
        assert_int_equal(logits[256] == 0, n + 20 <= 50);
        assert_int_equal(logits[257] == 0, n + 40 <= 50);
        assert_int_equal(logits[258] == 0, n + 10 <= 50);
        assert_int_equal(logits['a'] == 0, n < 50);
        assert_true(logits['"'] == 0 && logits['\n'] != 0);
        assert_int_equal(k3_constraint_push(c, 'a', &err), n < 50 ? K3_OK : K3_E_INVALID);
    }
    k3_constraint_close(c);
    /* `l=` reaches from one part of a tag into the next, so it is no way to write one. */
    static const char forced[] = "{\"tool_choice\":\"required\",\"tools\":[{\"name\":\"f\"}]}",
                      script[] = CLOSE "response" SEP OPEN "tools" SEP OPEN "call too";
    static const char *const names[] = {"<|open|>", "<|close|>", "<|sep|>"};
    assert_int_equal(k3_constraint_make(&c, vocab, &trie, forced, sizeof forced - 1, 0, &err), K3_OK);
    for (const char *sign = script; *sign; sign++) {
        int32_t id = *sign < 4 ? k3_vocab_special(vocab, names[*sign - 1]) : *sign;
        assert_int_equal(k3_constraint_push(c, id, &err), K3_OK);
    }
    memset(logits, 0, sizeof logits);
    assert_int_equal(k3_constraint_narrow(c, logits, 260 + 256, &err), K3_OK);
    assert_true(logits['l'] == 0 && logits[259] != 0);
    assert_int_equal(k3_constraint_push(c, 259, &err), K3_E_INVALID);
    k3_constraint_close(c);
    k3_token_trie_free(&trie);
    k3_vocab_close(vocab);
    k3_buffer_free(&model);
    free(request);
}

/* Patterns that keep thousands of places open at once are given up with words, not with minutes. */
static void ambiguity_is_given_up(void **state)
{
    char *schema = repeated("{\"anyOf\":[", "{\"type\":\"string\",\"pattern\":\"^[a-m%d]*.{0,900}[n-z]*x.{3,900}%d$\"},", 1500,
                            "{\"type\":\"null\"}]}");
    char *request = request_of(schema);
    k3_constraint *c = open_constraint(request, 0);
    float *logits = calloc(2048, sizeof *logits);
    k3_error err = {0};
    k3_status status = k3_constraint_narrow(c, logits, 2048, &err);
    (void)state;
    for (int i = 0; i < 4 && status == K3_OK; i++) {
        status = k3_constraint_push(c, k3_vocab_rank(the_vocab(), i == 0 ? "\"" : "a", 1), &err);
        if (status == K3_OK)
            status = k3_constraint_narrow(c, logits, 2048, &err);
    }
    assert_true(status == K3_E_UNSUPPORTED || status == K3_E_NOMEM);
    assert_non_null(strstr(err.text, "the schema leaves"));
    free(logits);
    k3_constraint_close(c);
    free(request);
    free(schema);
}

static int close_all(void **state)
{
    (void)state;
    close_vocab();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(schemas_that_cost_are_refused), cmocka_unit_test(schemas_that_repeat_are_cheap),
                                       cmocka_unit_test(readings_are_shared),           cmocka_unit_test(nesting_has_an_end),
                                       cmocka_unit_test(long_answers_are_forgotten),    cmocka_unit_test(ambiguity_is_given_up),
                                       cmocka_unit_test(long_tokens_are_counted)};
    return cmocka_run_group_tests(tests, NULL, close_all);
}
