/* The answer's frame: thinking, response and calls as tool_choice, response_format and strict tools leave them; and what is refused. */
#include "valid.h"
#include "walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_WALKS = 60 };

#define WEATHER                                                                                                                            \
    "{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":"    \
    "\"string\"},\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":14},\"unit\":{\"enum\":[\"C\",\"F\",null]},\"spots\":{\"type\":" \
    "\"array\",\"items\":{\"type\":\"number\"},\"maxItems\":3},\"more\":{\"anyOf\":[{\"type\":\"boolean\"},{\"type\":\"object\","          \
    "\"properties\":{\"deep\":{\"type\":\"string\"}},\"required\":[\"deep\"]}]}},\"required\":[\"city\",\"days\"]}}}"
#define NOTE                                                                                                                               \
    "{\"type\":\"function\",\"function\":{\"name\":\"a \\\"note\\\" & more\",\"strict\":true,\"parameters\":{\"type\":\"object\","         \
    "\"properties\":{\"\xe6\x96\x87\xf0\x9f\x98\x80\\\"&\":{\"type\":\"string\",\"minLength\":1}},\"required\":[\"\xe6\x96\x87\xf0\x9f"    \
    "\x98\x80\\\"&\"],\"additionalProperties\":{\"type\":\"integer\"}}}}"
#define PING "{\"type\":\"function\",\"function\":{\"name\":\"ping\"}}"
#define ROOT_CHOICE                                                                                                                        \
    "{\"type\":\"function\",\"function\":{\"name\":\"1.pick\",\"parameters\":{\"$defs\":{\"n\":{\"type\":\"integer\"}},\"anyOf\":["        \
    "{\"type\":\"object\",\"properties\":{\"by_id\":{\"$ref\":\"#/$defs/n\",\"minimum\":1}},\"required\":[\"by_id\"]},"                    \
    "{\"type\":\"object\",\"properties\":{\"by_name\":{\"type\":\"string\"}},\"required\":[\"by_name\"]}]}}}"
#define CALLED(name, index) OPEN "call tool=\"" name "\" index=\"" index "\"" SEP
#define GIVEN(key, type, value) OPEN "argument key=\"" key "\" type=\"" type "\"" SEP value CLOSE "argument" SEP
#define TOOLS CLOSE "response" SEP OPEN "tools" SEP
#define DONE CLOSE "message" SEP END
#define CALL_DONE CLOSE "call" SEP
#define TOOLS_DONE CLOSE "tools" SEP DONE

/* A script that must be taken, and its ids. */
static void add_ids(k3_constraint *c, const char *script, k3_tokens *ids)
{
    size_t n = feed_script(c, script, 0, ids);
    if (script[n])
        fail_msg("cut at byte %zu of %zu: %.60s", n, strlen(script), script + n);
}

/* ---- calls --------------------------------------------------------------------------------------------- */

static const k3_json *read(const char *text, size_t n)
{
    const k3_json *value;
    if (k3_json_parse(&value, text, n, K3_JSON_SURROGATES, NULL) != K3_OK)
        fail_msg("no JSON: %.*s", (int)n, text);
    return value;
}

/* Every call is of a tool of the request, and its arguments fit that tool's parameters. */
static void check_calls(const parts *p, const k3_json *request, int n_most)
{
    assert_true(p->done && p->n_calls >= 1 && p->n_calls <= n_most);
    assert_int_equal(p->content.n, 0);
    for (int i = 0; i < p->n_calls; i++) {
        const k3_json *found = NULL, *arguments = read(p->arguments[i].bytes, p->arguments[i].n);
        for (const k3_json *t = k3_json_get(request, "tools")->first; t; t = t->next) {
            const k3_json *function = k3_json_get(t, "function"), *name = k3_json_get(function, "name");
            if (name->text_bytes == p->names[i].n && memcmp(name->text, p->names[i].bytes, p->names[i].n) == 0)
                found = function;
        }
        assert_non_null(found);
        const k3_json *parameters = k3_json_get(found, "parameters");
        if (parameters && !fits(arguments, parameters, parameters))
            fail_msg("%.*s", (int)p->arguments[i].n, p->arguments[i].bytes);
        k3_json_free(arguments);
    }
}

/* Case C33: a forced call with thinking on and off, one to three tools, names in Han and emoji, always ends as a call. Case C32: a name
 * that begins with a digit, anyOf at the root, $ref beside other keys. */
static void c32_c33_forced_calls_are_calls(void **state)
{
    static const char *const requests[] = {
        "{\"tool_choice\":\"required\",\"tools\":[" WEATHER "]}",
        "{\"tool_choice\":\"required\",\"tools\":[" WEATHER "," NOTE "," PING "]}",
        "{\"tool_choice\":\"required\",\"tools\":[" PING "]}",
        "{\"tool_choice\":\"required\",\"tools\":[" NOTE "," ROOT_CHOICE "],\"parallel_tool_calls\":false}",
        "{\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"1.pick\"}},\"tools\":[" WEATHER "," ROOT_CHOICE "]}",
        "{\"tool_choice\":\"required\",\"response_format\":{\"type\":\"json_object\"},\"tools\":[" WEATHER "]}",
    };
    uint64_t random = 3;
    (void)state;
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        const k3_json *request = read(requests[i], strlen(requests[i]));
        int is_single = strstr(requests[i], "parallel_tool_calls") != NULL, only_pick = i == 4;
        for (int walk = 0; walk < N_WALKS; walk++) {
            k3_tokens ids = {0};
            k3_constraint *c = open_constraint(requests[i], walk % 2);
            random_answer(c, &ids, &random);
            parts p = take_apart(&ids, walk % 2);
            check_calls(&p, request, is_single ? 1 : 32);
            for (int k = 0; k < p.n_calls && only_pick; k++)
                assert_int_equal(memcmp(p.names[k].bytes, "1.pick", 6), 0);
            free_parts(&p);
            k3_constraint_close(c);
            k3_tokens_free(&ids);
        }
        k3_json_free(request);
    }
}

#define THREE "{\"tool_choice\":\"required\",\"tools\":[" WEATHER "," NOTE "," PING "]}"
#define ONE_CALL "{\"tool_choice\":\"required\",\"parallel_tool_calls\":false,\"tools\":[" PING "]}"

/* at: how many bytes of the script are taken; -1: all, and the answer is over. */
static const struct {
    const char *request;
    int thinking;
    const char *script;
    int at;
} scripts[] = {
    {THREE, 0, TOOLS CALLED("ping", "1") CALL_DONE TOOLS_DONE, -1},
    {THREE, 1,
     "I <call> it.\n" CLOSE "think" SEP OPEN "response" SEP TOOLS CALLED("ping", "1") CALL_DONE CALLED("ping", "2") CALL_DONE TOOLS_DONE,
     -1},
    {THREE, 1, "x" OPEN "response" SEP TOOLS CALLED("ping", "1") CALL_DONE TOOLS_DONE, -1},
    {THREE, 1, OPEN "think" SEP "x" CLOSE "think" SEP OPEN "response" SEP TOOLS CALLED("ping", "1") CALL_DONE TOOLS_DONE, -1},
    {THREE, 0, OPEN "response" SEP TOOLS CALLED("ping", "1") CALL_DONE TOOLS_DONE, -1},
    {THREE, 0,
     TOOLS CALLED("weather", "1") GIVEN("city", "string", "S\xc3\xa3o \"Paulo\"\n{1}") GIVEN("days", "number", "14") CALL_DONE TOOLS_DONE,
     -1},
    {THREE, 0,
     TOOLS CALLED("weather", "1") GIVEN("city", "string", "") GIVEN("days", "number", "1") GIVEN("unit", "null", "null")
         GIVEN("spots", "array", "[1, 2.50,-3]") GIVEN("more", "object", "{\"deep\": \"\\n\"}") CALL_DONE TOOLS_DONE,
     -1},
    {THREE, 0,
     TOOLS CALLED("weather", "1") GIVEN("city", "string", "x") GIVEN("days", "number", "1") GIVEN("unit", "string", "C")
         GIVEN("more", "boolean", "true") CALL_DONE TOOLS_DONE,
     -1},
    {THREE, 0,
     TOOLS CALLED("a &quot;note&quot; &amp; more", "1") GIVEN("\xe6\x96\x87\xf0\x9f\x98\x80&quot;&amp;", "string", "\xe4\xb8\xad")
         GIVEN("n", "number", "5") CALL_DONE TOOLS_DONE,
     -1},
    {THREE, 1, "x" END, 1}, /* thinking is not the answer */
    {THREE, 1, "x" CLOSE "message", 2},
    {THREE, 0, "I will", 0}, /* no text where a call is forced */
    {THREE, 0, CLOSE "response" SEP CLOSE, 10},
    {THREE, 0, TOOLS CLOSE, 17},
    {THREE, 0, TOOLS CALLED("pong", "1"), 30},
    {THREE, 0, TOOLS CALLED("ping", "2"), 42},
    {THREE, 0, TOOLS CALLED("ping", "1") OPEN, 45},                            /* no parameters, no arguments */
    {THREE, 0, TOOLS CALLED("weather", "1") GIVEN("days", "number", "1"), 63}, /* the order of the schema */
    {THREE, 0, TOOLS CALLED("weather", "1") GIVEN("city", "number", "1"), 75},
    {THREE, 0, TOOLS CALLED("weather", "1") GIVEN("city", "string", "x") GIVEN("days", "number", "15"), 130},
    {THREE, 0, TOOLS CALLED("weather", "1") GIVEN("city", "string", "x") CALL_DONE, 94},
    {ONE_CALL, 0, TOOLS CALLED("ping", "1") CALL_DONE OPEN, 51},
    {"{\"response_format\":\"json_object\"}", 0, "{}" CLOSE "response" SEP DONE, -1},
    {"{\"response_format\":\"json_object\"}", 1, "{" CLOSE "think" SEP OPEN "response" SEP "{\"a\": 1}" CLOSE "response" SEP DONE, -1},
    {"{\"response_format\":\"json_object\"}", 0, "{}}", 2},
    {"{\"response_format\":\"json_object\"}", 0, "{}" CLOSE "response" SEP OPEN, 12},
    {"{\"response_format\":\"json_object\"}", 0, CLOSE, 0},
    {"{\"response_format\":\"json_object\",\"tools\":[" PING "]}", 0,
     TOOLS CALLED("ping", "1") GIVEN("any", "string", "x") CALL_DONE TOOLS_DONE, -1},
    {"{\"response_format\":\"json_object\",\"tools\":[" PING "]}", 0, "{}" CLOSE "response" SEP DONE, -1},
    {"{\"response_format\":\"json_object\",\"tools\":[" PING "],\"tool_choice\":\"none\"}", 0, CLOSE, 0},
    {"{\"tools\":[" NOTE "," WEATHER "]}", 0, "Just text." CLOSE "response" SEP DONE, -1},
    {"{\"tools\":[" NOTE "," WEATHER "]}", 0, "Wait." TOOLS CALLED("weather", "1") GIVEN("days", "string", "loose") CALL_DONE TOOLS_DONE,
     -1},
    {"{\"tools\":[" NOTE "," WEATHER "]}", 0, TOOLS CALLED("a &quot;note&quot; &amp; more", "1") CALL_DONE, 70},
    {"{\"tool_choice\":\"required\",\"messages\":[{\"role\":\"system\",\"tools\":[" PING "]}]}", 0,
     TOOLS CALLED("ping", "1") CALL_DONE TOOLS_DONE, -1},
};

/* Case C24: tool_choice required and named, tools of a later system message, response_format: each held to, none ignored. */
static void c24_answers_are_taken_or_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        for (int by_bytes = 0; by_bytes < 2; by_bytes++) {
            k3_constraint *c = open_constraint(scripts[i].request, scripts[i].thinking);
            size_t n = strlen(scripts[i].script), n_taken = feed_script(c, scripts[i].script, by_bytes, NULL);
            int whole = n_taken == n && k3_constraint_is_over(c),
                cut = by_bytes ? (int)n_taken == scripts[i].at : (int)n_taken <= scripts[i].at;
            if (scripts[i].at < 0 ? !whole : !cut)
                fail_msg("script %zu: %zu bytes of %zu taken, wanted %d", i, n_taken, n, scripts[i].at);
            k3_constraint_close(c);
        }
    }
}

/* A token may not reach from one part of a tag into the next: `="` is a token of the vocabulary, and so are its two bytes, but what begins
 * in the key may not end in the value. */
static void tags_are_written_part_by_part(void **state)
{
    k3_constraint *c = open_constraint(THREE, 0);
    k3_error err;
    (void)state;
    add_ids(c, TOOLS OPEN "call tool", NULL);
    float *logits = calloc((size_t)k3_vocab_size(the_vocab()), sizeof *logits);
    assert_non_null(logits);
    assert_int_equal(k3_constraint_narrow(c, logits, (size_t)k3_vocab_size(the_vocab()), &err), K3_OK);
    for (int id = 0; id < k3_vocab_size(the_vocab()); id++) {
        const char *bytes;
        size_t n;
        assert_int_equal(k3_vocab_bytes(the_vocab(), &bytes, &n, id, &err), K3_OK);
        assert_int_equal(logits[id] == 0, (n == 1 && bytes[0] == '=') || (n == 2 && memcmp(bytes, "=\"", 2) == 0));
    }
    free(logits);
    k3_constraint_close(c);
}

/* Case C12: the parser gives a call's arguments as the model spelled them. */
static void c12_calls_parse_to_what_was_held(void **state)
{
    static const char script[] =
        TOOLS CALLED("a &quot;note&quot; &amp; more", "1") GIVEN("\xe6\x96\x87\xf0\x9f\x98\x80&quot;&amp;", "string", "a\"b\\n")
            GIVEN("n", "number", "12345678901234567890") CALL_DONE TOOLS_DONE;
    static const char wanted[] = "{\"\xe6\x96\x87\xf0\x9f\x98\x80\\\"&\": \"a\\\"b\\\\n\", \"n\": 12345678901234567890}";
    (void)state;
    k3_constraint *c = open_constraint(THREE, 0);
    k3_tokens ids = {0};
    add_ids(c, script, &ids);
    parts p = take_apart(&ids, 0);
    assert_int_equal(p.n_calls, 1);
    assert_int_equal(p.names[0].n, 15);
    assert_memory_equal(p.names[0].bytes, "a \"note\" & more", 15);
    assert_int_equal(p.arguments[0].n, sizeof wanted - 1);
    assert_memory_equal(p.arguments[0].bytes, wanted, sizeof wanted - 1);
    free_parts(&p);
    k3_tokens_free(&ids);
    k3_constraint_close(c);
}

/* ---- what narrows nothing, and what is refused --------------------------------------------------------- */

static void open_requests_have_no_constraint(void **state)
{
    static const char *const requests[] = {"{}", "{\"response_format\":{\"type\":\"text\"},\"tool_choice\":\"auto\"}",
                                           "{\"tools\":[" WEATHER "]}", "{\"tools\":[" NOTE "],\"tool_choice\":\"none\"}",
                                           "{\"response_format\":null,\"tools\":null,\"tool_choice\":null}"};
    (void)state;
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        k3_constraint *c;
        k3_error err;
        assert_int_equal(k3_constraint_make(&c, the_vocab(), the_trie(), requests[i], strlen(requests[i]), 1, &err), K3_OK);
        assert_null(c);
    }
}

#define FORMAT(schema) "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"t\",\"schema\":" schema "}}}"
#define AT "/response_format/json_schema/schema"

/* Each is refused with its place, what was found and what is wanted. */
static const struct {
    const char *request;
    k3_status status;
    const char *text;
} refused[] = {
    {"{\"tool_choice\":\"required\"}", K3_E_INVALID, "\"required\" in a request without tools"},
    {"{\"tool_choice\":\"required\",\"tools\":[]}", K3_E_INVALID, "without tools"},
    {"{\"tool_choice\":\"maybe\",\"tools\":[" PING "]}", K3_E_INVALID, "/tool_choice"},
    {"{\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"pong\"}},\"tools\":[" PING "]}", K3_E_INVALID,
     "\"pong\" is not among"},
    {"{\"tool_choice\":{\"type\":\"custom\"},\"tools\":[" PING "]}", K3_E_UNSUPPORTED, "/tool_choice"},
    {"{\"tool_choice\":\"required\",\"tools\":[{}]}", K3_E_INVALID, "/tools/0: a tool without a name"},
    {"{\"response_format\":{\"type\":\"xml\"}}", K3_E_INVALID, "/response_format"},
    {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"t\"}}}", K3_E_INVALID, "there is no schema"},
    {FORMAT("7"), K3_E_INVALID, AT ": this is no schema"},
    {FORMAT("false"), K3_E_INVALID, "no value fits"},
    {FORMAT("{\"type\":\"strung\"}"), K3_E_INVALID, AT "/type: "},
    {FORMAT("{\"type\":\"object\",\"properties\":{\"a/b\":{\"not\":{}}}}"), K3_E_UNSUPPORTED, AT "/properties/a~1b/not: not restricts"},
    {FORMAT("{\"type\":\"array\",\"uniqueItems\":true}"), K3_E_UNSUPPORTED, "uniqueItems"},
    {FORMAT("{\"type\":\"array\",\"items\":{\"multipleOf\":3}}"), K3_E_UNSUPPORTED, AT "/items/multipleOf"},
    {FORMAT("{\"type\":\"string\",\"pattern\":\"(?=a)b\"}"), K3_E_UNSUPPORTED, "look-around"},
    {FORMAT("{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}"), K3_E_UNSUPPORTED, "back reference"},
    {FORMAT("{\"type\":\"string\",\"pattern\":\"a+b+\",\"maxLength\":5}"), K3_E_UNSUPPORTED, "pattern"},
    {FORMAT("{\"type\":\"string\",\"minLength\":-1}"), K3_E_INVALID, "/minLength: minLength is something else: wanted a whole number"},
    {FORMAT("{\"type\":\"string\",\"minLength\":5,\"maxLength\":4}"), K3_E_INVALID, "no value fits"},
    {FORMAT("{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}"), K3_E_INVALID, "no value fits"},
    {FORMAT("{\"enum\":[1,[1e400]]}"), K3_E_UNSUPPORTED, AT "/enum/1: "},
    {FORMAT("{\"enum\":[\"a\"],\"minLength\":2}"), K3_E_UNSUPPORTED, "minLength beside enum or const"},
    {FORMAT("{\"$ref\":\"#/$defs/x\"}"), K3_E_INVALID, "there is nothing at that place"},
    {FORMAT("{\"$ref\":\"http://example.org/x\"}"), K3_E_UNSUPPORTED, "$ref"},
    {FORMAT("{\"$ref\":\"#\"}"), K3_E_INVALID, "refers to itself"},
    {FORMAT("{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"string\"}]}"), K3_E_INVALID, "leads back to it"},
    {FORMAT("{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}"), K3_E_INVALID, "no value fits"},
    {"{\"tool_choice\":\"required\",\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"if\":{}}}}}}]}",
     K3_E_UNSUPPORTED, "/tools/0/function/parameters/properties/a/if"},
    {"{\"tool_choice\":\"required\",\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"string\"}}}]}", K3_E_INVALID,
     "no arguments fit"},
    {"{", K3_E_INVALID, "line 1"},
};

static void requests_are_refused_with_their_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        k3_constraint *c;
        k3_error err = {0};
        k3_status status = k3_constraint_make(&c, the_vocab(), the_trie(), refused[i].request, strlen(refused[i].request), 0, &err);
        if (status != refused[i].status || !strstr(err.text, refused[i].text) || c)
            fail_msg("%s: status %d, \"%s\", wanted %d and \"%s\"", refused[i].request, (int)status, err.text, (int)refused[i].status,
                     refused[i].text);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c32_c33_forced_calls_are_calls),   cmocka_unit_test(c24_answers_are_taken_or_cut),
        cmocka_unit_test(tags_are_written_part_by_part),    cmocka_unit_test(c12_calls_parse_to_what_was_held),
        cmocka_unit_test(open_requests_have_no_constraint), cmocka_unit_test(requests_are_refused_with_their_place)};
    return cmocka_run_group_tests(tests, NULL, close_all);
}
