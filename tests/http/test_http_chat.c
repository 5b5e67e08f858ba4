/* /v1/chat/completions and /v1/completions: what is taken, what is refused, and what comes back. */
#include "fixture.h"
#include "merge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"
#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}"

typedef struct fields_case {
    const char *fields;
    int status;
} fields_case;

/* Asks with these fields beside a message; both modes answer with the same status. */
static void check_table(int port, const fields_case *table, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int is_stream = 0; is_stream < 2; is_stream++) {
            app_buffer body = {0};
            app_buffer_text(&body, "{" USER);
            app_buffer_text(&body, *table[i].fields ? "," : "");
            app_buffer_text(&body, table[i].fields);
            app_buffer_text(&body, is_stream ? ",\"stream\":true}" : "}");
            int status = http_post_status(port, CHAT, body.text);
            if (status != table[i].status)
                fail_msg("%s: %d, wanted %d", body.text, status, table[i].status);
            app_buffer_free(&body);
        }
}
#define CHECK_TABLE(port, table) check_table(port, table, sizeof(table) / sizeof *(table))

/* ---- fields ------------------------------------------------------------------------------------------------------ */

/* Case D02: temperature 0 and next to 0 are greedy, null is the default, the rest is refused. D04, D10, D14, D18, E21 and C23 where all is
 * free: what is off, what is capped, what is no number. */
static void d02_sampling_fields(void **state)
{
    fixture *f = *state;
    static const fields_case table[] = {{"\"temperature\":0", 200},
                                        {"\"temperature\":1e-9", 200},
                                        {"\"temperature\":-1", 400},
                                        {"\"temperature\":\"0\"", 400},
                                        {"\"temperature\":null", 200},
                                        {"\"temperature\":1e400", 400},
                                        {"\"temperature\":2", 200},
                                        {"\"top_p\":1.1", 400},
                                        {"\"top_p\":0", 200},
                                        {"\"top_k\":-1", 200},
                                        {"\"top_k\":1.5", 400},
                                        {"\"min_p\":2", 400},
                                        {"\"n\":1", 200},
                                        {"\"n\":2", 400},
                                        {"\"n\":0", 400},
                                        {"\"seed\":-5", 200},
                                        {"\"seed\":1.5", 400},
                                        {"\"seed\":-9223372036854775808", 200},
                                        {"\"seed\":9223372036854775807", 200},
                                        {"\"seed\":9223372036854775808", 400},
                                        {"\"presence_penalty\":101", 400},
                                        {"\"repetition_penalty\":1.1", 200},
                                        {"\"repeat_last_n\":-2", 400},
                                        {"\"logit_bias\":null", 200},
                                        {"\"logit_bias\":{}", 200},
                                        {"\"logit_bias\":{\"5\":1}", 200},
                                        {"\"logit_bias\":{\"2048\":1}", 400},
                                        {"\"logit_bias\":{\"-1\":1}", 400},
                                        {"\"logit_bias\":{\"abc\":1}", 400},
                                        {"\"logit_bias\":{\"1.5\":1}", 400},
                                        {"\"logit_bias\":{\"\":1}", 400},
                                        {"\"logit_bias\":{\"5\":\"x\"}", 400},
                                        {"\"logit_bias\":{\"5\":1e9}", 400},
                                        {"\"logit_bias\":[1]", 400},
                                        {"\"max_tokens\":0", 400},
                                        {"\"max_tokens\":-1", 200},
                                        {"\"max_tokens\":-2", 400},
                                        {"\"max_tokens\":1000000000", 200},
                                        {"\"max_tokens\":1.5", 400},
                                        {"\"logprobs\":true,\"top_logprobs\":20", 200},
                                        {"\"logprobs\":true,\"top_logprobs\":21", 400},
                                        {"\"top_logprobs\":2", 400},
                                        {"\"logprobs\":3", 400},
                                        {"\"stream_options\":5", 400},
                                        {"\"user\":\"somebody\",\"unknown\":{\"x\":[]}", 200}};
    fixture_say(f, RESPONSE("Hi") END);
    CHECK_TABLE(f->port, table);
    assert_int_equal(http_post_status(f->port, CHAT, "{" USER ",\"stream\":1}"), 400);
    merged m = {0};
    merge_ask(&m, f->port, MERGE_CHAT,
              "{" USER ",\"temperature\":0.25,\"top_p\":0.5,\"top_k\":7,\"min_p\":0.125,\"seed\":42,\"presence_penalty\":0.5,"
              "\"frequency_penalty\":-0.5,\"repetition_penalty\":1.5,\"repeat_last_n\":-1,\"logit_bias\":{\"5\":-100,\"6\":2.5},"
              "\"max_tokens\":9,\"max_completion_tokens\":8}");
    const fake_seen *seen = fake_look();
    assert_float_equal(seen->sampling.temperature, 0.25, 0);
    assert_float_equal(seen->sampling.top_p, 0.5, 0);
    assert_float_equal(seen->sampling.min_p, 0.125, 0);
    assert_int_equal(seen->sampling.top_k, 7);
    assert_int_equal(seen->sampling.seed, 42);
    assert_float_equal(seen->presence, 0.5, 0);
    assert_float_equal(seen->frequency, -0.5, 0);
    assert_float_equal(seen->repetition, 1.5, 0);
    assert_int_equal(seen->window, -1);
    assert_int_equal(seen->n_biases, 2);
    assert_int_equal(seen->bias_ids[1], 6);
    assert_float_equal(seen->biases[0], -100, 0);
    assert_int_equal(seen->max_tokens, 8);
    assert_int_equal(seen->n_top, -1);
    merged_free(&m);
    merge_ask(&m, f->port, MERGE_CHAT, "{" USER "}");
    assert_float_equal(seen->sampling.temperature, 1, 0);
    assert_float_equal(seen->sampling.top_p, 0.95f, 0);
    assert_int_equal(seen->max_tokens, 0);
    merged_free(&m);
}

/* Cases D07, D08, D10: stops of every form, over the borders of tokens and inside characters; what is held back comes once. */
static void d10_stops(void **state)
{
    fixture *f = *state;
    app_buffer many = {0};
    app_buffer_text(&many, "\"stop\":[");
    for (int i = 0; i < 64; i++)
        app_buffer_text(&many, i ? ",\"zz\"" : "\"zz\"");
    app_buffer_text(&many, "]");
    const fields_case table[] = {{"\"stop\":null", 200},
                                 {"\"stop\":[]", 200},
                                 {"\"stop\":\"zz\"", 200},
                                 {"\"stop\":[null,\"zz\"]", 200},
                                 {many.text, 200},
                                 {"\"stop\":\"\"", 400},
                                 {"\"stop\":[\"a\",\"\"]", 400},
                                 {"\"stop\":5", 400},
                                 {"\"stop\":[5]", 400},
                                 {"\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]", 200}};
    fixture_say(f, RESPONSE("Hi") END);
    CHECK_TABLE(f->port, table);
    static const struct {
        const char *stop, *text, *shown;
    } texts[] = {{"[\"O P Q\"]", "M N O P Q R", "M N "},
                 {"[\"\\n\",\"Alice:\"]", " Alice!", " Alice!"},
                 {"[\"\xe7\x95\x8c\"]", "\xe4\xb8\x96\xe7\x95\x8c", "\xe4\xb8\x96"},
                 {"\"Hi\"", "Hi", ""}};
    for (size_t i = 0; i < 2 * (sizeof texts / sizeof *texts); i++) {
        char text[200], body[200];
        merged m = {0};
        snprintf(text, sizeof text, "Hi, M N O P Q" RESPONSE("%s") END, texts[i / 2].text); /* the thinking is looked at by no stop */
        fixture_say(f, text);
        snprintf(body, sizeof body, "{" USER ",\"stop\":%s%s}", texts[i / 2].stop, i % 2 ? ",\"stream\":true" : "");
        merge_ask(&m, f->port, MERGE_CHAT, body);
        assert_string_equal(m.content.text ? m.content.text : "", texts[i / 2].shown);
        assert_string_equal(m.reasoning.text, "Hi, M N O P Q");
        assert_string_equal(m.finish.text, "\"stop\"");
        merged_free(&m);
    }
    app_buffer_free(&many);
}

/* Case C23: the vendor's fixed settings, one switch; C32: its rules for tools; D10: its limits for stops. */
static void c23_strict(void **state)
{
    fixture *f = *state;
    static const fields_case both[] = {{"\"temperature\":1", 200},
                                       {"\"temperature\":0", 200},
                                       {"\"temperature\":0.6", 200},
                                       {"\"temperature\":-0.1", 400},
                                       {"\"thinking\":{\"type\":\"disabled\"},\"temperature\":0.6", 200}};
    static const char *const differ[] = {
        "\"temperature\":1.1",
        "\"temperature\":2.0",
        "\"top_p\":0.5",
        "\"presence_penalty\":1",
        "\"frequency_penalty\":1",
        "\"thinking\":{\"type\":\"disabled\"},\"temperature\":1.0",
        "\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\"]",
        "\"stop\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
        "\"tools\":[" TOOL("1st") "]",
        "\"tools\":[" TOOL("a.b") "]",
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{\"anyOf\":[{\"type\":\"object\"}]}}}]",
        ("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":"
         "{\"$ref\":\"#/$defs/y\",\"description\":\"z\"}}}}}]"),
        "\"reasoning_effort\":\"medium\""};
    fixture_say(f, RESPONSE("Hi") END);
    for (int is_strict = 0; is_strict < 2; is_strict++) {
        srv_config config = fixture_config();
        config.rules.is_strict = is_strict;
        fixture_restart(f, &config, 1);
        CHECK_TABLE(f->port, both);
        for (size_t i = 0; i < sizeof differ / sizeof *differ; i++) {
            fields_case one = {differ[i], is_strict ? 400 : 200};
            check_table(f->port, &one, 1);
        }
    }
    srv_config config = fixture_config();
    fixture_restart(f, &config, 1);
}

/* Cases C24, C41: what is asked of tools and of the answer's form is checked, never ignored; E28: no path of a client's is opened. */
static void c41_tools_and_formats(void **state)
{
    fixture *f = *state;
    static const fields_case table[] = {
        {"\"tools\":[]", 200},
        {"\"tools\":null", 200},
        {"\"tools\":5", 400},
        {"\"tools\":[" TOOL("a") "]", 200},
        {"\"tools\":[" TOOL("") "]", 400},
        {"\"tools\":[{\"type\":\"function\"}]", 400},
        {"\"tools\":[{\"type\":\"web_search\"}]", 400},
        {"\"tool_choice\":\"auto\"", 200},
        {"\"tool_choice\":\"none\"", 200},
        {"\"tool_choice\":\"required\"", 400},
        {"\"tool_choice\":\"required\",\"tools\":[]", 400},
        {"\"tool_choice\":\"sometimes\",\"tools\":[" TOOL("a") "]", 400},
        {"\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"b\"}},\"tools\":[" TOOL("a") "]", 400},
        {"\"tool_choice\":{\"type\":\"function\"},\"tools\":[" TOOL("a") "]", 400},
        {"\"parallel_tool_calls\":\"no\"", 400},
        {"\"response_format\":{\"type\":\"text\"}", 200},
        {"\"response_format\":null", 200},
        {"\"response_format\":\"json_object\"", 400},
        {"\"response_format\":{\"type\":\"yaml\"}", 400},
        {"\"response_format\":{\"type\":\"json_schema\"}", 400},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":5}", 400},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{}}}", 400},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\"}}", 400},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":[]}}", 400},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":{},\"strict\":\"yes\"}}", 400},
        {"\"thinking\":{\"type\":\"enabled\",\"keep\":\"all\",\"effort\":\"low\"}", 200},
        {"\"thinking\":{\"type\":\"maybe\"}", 400},
        {"\"thinking\":true", 400},
        {"\"thinking\":{\"effort\":\"huge\"}", 400},
        {"\"reasoning_effort\":\"huge\"", 400},
        {"\"chat_template_kwargs\":{\"thinking\":5}", 400}};
    static const char *const forced[] = {
        "\"tool_choice\":\"required\",\"tools\":[" TOOL("a") "]",
        "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"a\"}},\"tools\":[" TOOL("a") "]",
        "\"response_format\":{\"type\":\"json_object\"}",
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":{\"type\":\"object\"},\"strict\":true}}"};
    static const char *const messages[] = {
        "{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"file:///etc/passwd\"}}]}",
        "{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"../nothing\"}}]}",
        "{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\"}]}",
        "{\"role\":\"user\",\"content\":5}",
        "{\"role\":\"robot\",\"content\":\"x\"}",
        "{\"content\":\"x\"}",
        "5",
        "{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"x\",\"partial\":true}"};
    fixture_say(f, RESPONSE("Hi") END);
    CHECK_TABLE(f->port, table);
    for (size_t i = 0; i < sizeof forced / sizeof *forced; i++) {
        CHECK_TABLE(f->port, ((fields_case[]){{forced[i], 200}}));
        assert_true(fake_look()->is_narrowed);
    }
    CHECK_TABLE(f->port, ((fields_case[]){{"", 200}}));
    assert_false(fake_look()->is_narrowed);
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        char body[300];
        snprintf(body, sizeof body, "{\"messages\":[%s]}", messages[i]);
        http_reply reply = http_post(f->port, CHAT, body);
        assert_int_equal(reply.status, 400);
        assert_null(strstr(reply.body, "No such file"));
        http_free(&reply);
    }
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

/* Case B15: prompts of nothing get an answer or 400, and the next request is fine. */
static void b15_empty_prompts(void **state)
{
    fixture *f = *state;
    static const fields_case table[] = {{"{\"prompt\":\"\"}", 400},
                                        {"{\"prompt\":[\"\"]}", 400},
                                        {"{\"prompt\":[]}", 400},
                                        {"{\"prompt\":[[]]}", 400},
                                        {"{}", 400},
                                        {"{\"prompt\":5}", 400},
                                        {"{\"prompt\":[2048]}", 400},
                                        {"{\"prompt\":[-1]}", 400},
                                        {"{\"prompt\":[\"a\",\"b\"]}", 400},
                                        {"{\"prompt\":\"\\n\"}", 200},
                                        {"{\"prompt\":[[1,2]]}", 200},
                                        {"{\"prompt\":[1,2,3]}", 200},
                                        {"{\"prompt\":\"a\",\"echo\":true}", 400},
                                        {"{\"prompt\":\"a\",\"best_of\":2}", 400},
                                        {"{\"prompt\":\"a\",\"logprobs\":1}", 400},
                                        {"{\"prompt\":\"a\",\"suffix\":\"b\"}", 400}};
    static const fields_case chats[] = {
        {"{\"messages\":[]}", 400},
        {"{\"messages\":null}", 400},
        {"{}", 400},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}", 200},
        {"{\"messages\":[{\"role\":\"system\",\"content\":\"\"},{\"role\":\"user\",\"content\":null}]}", 200},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"\\n\"}]}", 200}};
    fixture_say(f, RESPONSE("Hi") END);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (http_post_status(f->port, "/v1/completions", table[i].fields) != table[i].status)
            fail_msg("%s", table[i].fields);
    for (size_t i = 0; i < sizeof chats / sizeof *chats; i++)
        if (http_post_status(f->port, CHAT, chats[i].fields) != chats[i].status)
            fail_msg("%s", chats[i].fields);
    assert_int_equal(http_post_status(f->port, CHAT, "{" USER "}"), 200);
    assert_int_equal(http_post_status(f->port, "/v1/completions", "{\"prompt\":[1,2,3]}"), 200);
    assert_int_equal(fake_look()->max_tokens, 16);
    assert_int_equal(fake_look()->n, 3);
}

/* Case C18: reasoning comes back into the prompt under both names; C37: arguments in four forms are one; C38: system and developer
 * anywhere; C15: results by any id; C24: tools in a system message; C36: arguments that are no JSON; effort and thinking reach the prompt.
 */
static void c18_what_the_model_is_given(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *body, *request;
    } same[] = {
        {USER, "\"thinking_effort\":\"max\"," USER},
        {USER ",\"reasoning_effort\":\"low\"", "\"thinking_effort\":\"low\"," USER},
        {USER ",\"reasoning_effort\":\"low\",\"thinking\":{\"type\":\"enabled\",\"effort\":\"high\"}",
         "\"thinking_effort\":\"high\"," USER},
        {USER ",\"reasoning_effort\":\"none\"", "\"thinking\":false," USER},
        {USER ",\"thinking\":{\"type\":\"disabled\"}", "\"thinking\":false," USER},
        {USER ",\"chat_template_kwargs\":{\"enable_thinking\":false}", "\"thinking\":false," USER},
        {"\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\",\"reasoning\":\"why\"},"
         "{\"role\":\"developer\",\"content\":\"c\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"d\"}]}]",
         "\"thinking_effort\":\"max\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\","
         "\"reasoning_content\":\"why\"},{\"role\":\"system\",\"content\":\"c\"},{\"role\":\"user\",\"content\":\"d\"}]"},
        {USER ",\"tools\":[" TOOL("a") "],\"tool_choice\":\"none\"",
         "\"thinking_effort\":\"max\"," USER ",\"tools\":[" TOOL("a") "],\"tool_choice\":\"none\""},
        {"\"messages\":[{\"role\":\"system\",\"tools\":[" TOOL("late") "]},{\"role\":\"user\",\"content\":\"x\"}]",
         "\"thinking_effort\":\"max\",\"messages\":[{\"role\":\"system\",\"tools\":[" TOOL(
             "late") "]},{\"role\":\"user\",\"content\":\"x\"}]"},
    };
    fixture_say(f, RESPONSE("Hi") END);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char body[800], request[800];
        snprintf(body, sizeof body, "{%s}", same[i].body);
        snprintf(request, sizeof request, "{%s}", same[i].request);
        assert_int_equal(http_post_status(f->port, CHAT, body), 200);
        fixture_check_prompt(f, request);
    }
    static const char *const arguments[] = {"\"{}\"", "{}", "\"\"", "null", "\"{broken\""};
    static const struct {
        const char *call, *result;
        int status;
    } ids[] = {{"call_1", "call_1", 200}, {"functions.f:0", "functions.f:0", 200}, {"", "", 200}, {"f_0", "f_1", 400}};
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < 4; k++) {
            char body[600];
            snprintf(
                body, sizeof body,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"type\":"
                "\"function\",\"id\":\"%s\",\"function\":{\"name\":\"f\",\"arguments\":%s}}]},{\"role\":\"tool\",\"tool_call_id\":\"%s\","
                "\"content\":\"r\"}]}",
                ids[k].call, arguments[i], ids[k].result);
            assert_int_equal(http_post_status(f->port, CHAT, body), ids[k].status);
            if (ids[k].status == 200 && i < 4)
                fixture_check_prompt(
                    f, "{\"thinking_effort\":\"max\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"tool_"
                       "calls\":"
                       "[{\"id\":\"1\",\"function\":{\"name\":\"f\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"r\"}]}");
        }
}

/* Case E43: what does not fit is refused before a byte of a stream; E50: names of models. */
static void e43_e50_before_the_stream(void **state)
{
    fixture *f = *state;
    app_buffer body = {0};
    app_buffer_text(&body, "{\"stream\":true,\"prompt\":[1");
    for (int i = 1; i < 8191; i++)
        app_buffer_text(&body, ",1");
    size_t n = body.n;
    app_buffer_text(&body, "]}");
    fixture_say(f, "x");
    assert_int_equal(http_post_status(f->port, "/v1/completions", body.text), 200);
    body.n = n;
    app_buffer_text(&body, ",1]}");
    http_reply reply = http_post(f->port, "/v1/completions", body.text);
    assert_int_equal(reply.status, 400);
    assert_true(app_json_is(merge_at(merge_json(reply.body), "error.code"), "context_length_exceeded"));
    http_free(&reply);
    app_buffer_clear(&body);
    app_buffer_text(&body, "{\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < 8200; i++)
        app_buffer_text(&body, "7,");
    app_buffer_text(&body, "\"}]}");
    reply = http_post(f->port, CHAT, body.text);
    assert_int_equal(reply.status, 400);
    assert_true(app_json_is(merge_at(merge_json(reply.body), "error.code"), "context_length_exceeded"));
    http_free(&reply);
    app_buffer_free(&body);
    fixture_say(f, RESPONSE("Hi") END);
    for (int is_strict = 0; is_strict < 2; is_strict++) {
        srv_config config = fixture_config();
        config.rules.is_strict_model = is_strict;
        fixture_restart(f, &config, 1);
        const fields_case table[] = {{"\"model\":\"k3-mini\"", 200},
                                     {"\"model\":\"kimi\"", 200},
                                     {"\"model\":\"claude-opus-9\"", 200},
                                     {"\"model\":\"gpt-9\"", 200},
                                     {"\"model\":null", 200},
                                     {"\"model\":\"\"", is_strict ? 404 : 200},
                                     {"\"model\":\"nonsense\"", is_strict ? 404 : 200},
                                     {"\"model\":5", 400}};
        CHECK_TABLE(f->port, table);
    }
    srv_config config = fixture_config();
    fixture_restart(f, &config, 1);
    reply = http_post(f->port, CHAT, "{" USER ",\"model\":\"gpt-9\"}");
    assert_true(app_json_is(app_json_get(merge_json(reply.body), "model"), "k3-mini"));
    http_free(&reply);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Cases E08, E09, E10, C09: whatever way an answer ends, a stream has one reason, then usage if it was asked for, then [DONE]; merge_stream
 * checks the order. E53: usage of both modes is the same. */
static void e10_ways_to_end(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *text, *fields, *finish;
    } ends[] = {{"a" RESPONSE("b") END, "", "\"stop\""},
                {"a" RESPONSE("b") "[EOS]", "", "\"stop\""},
                {"a" RESPONSE("b c d") END, ",\"stop\":\"c\"", "\"stop\""},
                {"a" RESPONSE("b c d") END, ",\"max_tokens\":2", "\"length\""},
                {"a b c d e f g h", ",\"max_tokens\":5", "\"length\""}, /* case C08 */
                {"a" CLOSE("think") CALLS(CALL("f", "")) END, ",\"tools\":[" TOOL("f") "]", "\"tool_calls\""},
                {"a" CLOSE("think") CALLS(CALL("f", "")) END, "", "\"stop\""}, /* case C30: no tools, no calls */
                {"a" CLOSE("think") CALLS(CALL("f", "")) END, ",\"tools\":[]", "\"stop\""},
                {"a" CLOSE("think") CALLS(CALL("f", "")) END, ",\"tools\":[" TOOL("f") "],\"tool_choice\":\"none\"", "\"stop\""},
                {"a" CLOSE("think") CALLS(CALL("g", "")) END, ",\"tools\":[" TOOL("f") "]", "\"tool_calls\""}}; /* case C34: as it is */
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        merged m[2] = {{.n_calls = 0}, {.n_calls = 0}};
        fake_script script = fixture_script();
        script.n_cached = 5;
        fixture_play(f, ends[i].text, &script);
        for (int is_stream = 0; is_stream < 2; is_stream++) {
            char body[400];
            snprintf(body, sizeof body, "{" USER "%s%s}", ends[i].fields,
                     is_stream ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}" : "");
            merge_ask(&m[is_stream], f->port, MERGE_CHAT, body);
        }
        assert_merged_equal(&m[0], &m[1]);
        assert_true(m[1].has_summary);
        assert_string_equal(m[0].finish.text, ends[i].finish);
        assert_null(strstr(m[0].content.n ? m[0].content.text : "", "tools"));
        assert_non_null(strstr(m[0].usage.text, "\"cached_tokens\":5"));
        merged_free(&m[0]);
        merged_free(&m[1]);
    }
    merged m = {0};
    fixture_say(f, "a" RESPONSE("b") END);
    merge_ask(&m, f->port, MERGE_CHAT, "{" USER ",\"stream\":true}");
    assert_false(m.has_summary);
    assert_false(m.has_error);
    merged_free(&m);
    fake_script script = fixture_script();
    script.error = "logits that are no numbers";
    fixture_play(f, "a", &script);
    merge_ask(&m, f->port, MERGE_CHAT, "{" USER ",\"stream\":true}");
    assert_true(m.has_error);
    merged_free(&m);
    assert_int_equal(http_post_status(f->port, CHAT, "{" USER "}"), 500); /* case D01 */
    fixture_say(f, RESPONSE("b") END);
    assert_int_equal(http_post_status(f->port, CHAT, "{" USER "}"), 200);
}

/* Case C13: ids are a tool's name and a number that runs through the conversation; parallel_tool_calls false ends after the first. */
static void c13_ids_of_calls(void **state)
{
    fixture *f = *state;
    merged m = {0};
    fixture_say(f, CLOSE("think") CALLS(CALL("f", "") CALL("g", "") CALL("f", "")) END);
    merge_ask(&m, f->port, MERGE_CHAT,
              "{\"stream\":true,\"tools\":[" TOOL("f") "],\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\","
                                                       "\"tool_calls\":[{\"id\":\"f_0\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                                                       "\"arguments\":\"{}\"}}]},{\"role\":\"tool\","
                                                       "\"tool_call_id\":\"f_0\",\"content\":\"y\"}]}");
    assert_int_equal(m.n_calls, 3);
    assert_string_equal(m.calls[0].id.text, "f_1");
    assert_string_equal(m.calls[1].id.text, "g_2");
    assert_string_equal(m.calls[2].id.text, "f_3");
    merged_free(&m);
    merge_ask(&m, f->port, MERGE_CHAT, "{\"tools\":[" TOOL("f") "]," USER ",\"parallel_tool_calls\":false}");
    assert_int_equal(m.n_calls, 1);
    merged_free(&m);
}

/* Case B13: quotes and ampersands in names of tools and arguments come through. */
static void b13_names_that_need_quoting(void **state)
{
    fixture *f = *state;
    merged m = {0};
    fixture_say(f, CLOSE("think") CALLS(CALL("a&quot;b&amp;c", ARGUMENT("x&amp;quot;y", "number", "1"))) END);
    merge_ask(&m, f->port, MERGE_CHAT, "{\"tools\":[" TOOL("a\\\"b&c") "]," USER "}");
    assert_string_equal(m.calls[0].name.text, "a\"b&c");
    assert_string_equal(m.calls[0].id.text, "a\"b&c_0");
    assert_string_equal(m.calls[0].arguments.text, "{\"x&quot;y\": 1}");
    merged_free(&m);
}

/* The vendor's headers tell what is known before the first token. Case C21: the three ids that open the answer are not counted. */
static void c21_counts(void **state)
{
    fixture *f = *state;
    fake_script script = fixture_script();
    script.n_cached = 1000000;
    fixture_play(f, "a" RESPONSE("b") END, &script);
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        http_reply reply = http_post(f->port, CHAT, is_stream ? "{" USER ",\"stream\":true}" : "{" USER "}");
        merged m = {0};
        char usage[100];
        (is_stream ? merge_stream : merge_whole)(&m, MERGE_CHAT, reply.body);
        size_t n_opener = 0;
        while (fake_look()->ids[fake_look()->n - 1 - n_opener] != fake_look()->ids[0])
            n_opener++;
        snprintf(usage, sizeof usage, "{\"prompt_tokens\":%zu,", fake_look()->n - 1 - n_opener);
        assert_memory_equal(m.usage.text, usage, strlen(usage));
        assert_int_equal(atoi(http_header(&reply, "X-Msh-Usage-Prompt-Tokens")), fake_look()->n - 1 - n_opener);
        assert_int_equal(atoi(http_header(&reply, "X-Msh-Usage-Cached-Tokens")), fake_look()->n - 1 - n_opener);
        merged_free(&m);
        http_free(&reply);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d02_sampling_fields),         cmocka_unit_test(d10_stops),         cmocka_unit_test(c23_strict),
        cmocka_unit_test(c41_tools_and_formats),       cmocka_unit_test(b15_empty_prompts), cmocka_unit_test(c18_what_the_model_is_given),
        cmocka_unit_test(e43_e50_before_the_stream),   cmocka_unit_test(e10_ways_to_end),   cmocka_unit_test(c13_ids_of_calls),
        cmocka_unit_test(b13_names_that_need_quoting), cmocka_unit_test(c21_counts),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
