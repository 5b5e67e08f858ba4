/* /v1/messages and /v1/responses: what clients of these APIs send, and what they get. */
#include "fixture.h"
#include "merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGES "/v1/messages"
#define COUNT "/v1/messages/count_tokens"
#define RESPONSES "/v1/responses"

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Case E23: a session of a coding client: blocks, thinking, calls and their results, a system message in the middle (C38), tools that
 * others run, cache_control. Case C18: thinking goes back into the prompt. */
static void e23_a_coding_session(void **state)
{
    fixture *f = *state;
    merged m = {0};
    fixture_say(f, "more" CLOSE("think") OPEN("response") "Done." CLOSE("response") CALLS(CALL("Bash", ARGUMENT("command", "string", "ls")))
                       END);
    merge_ask(
        &m, f->port, MERGE_MESSAGES,
        "{\"model\":\"claude-x\",\"max_tokens\":32000,\"stream\":true,\"thinking\":{\"type\":\"adaptive\"},\"metadata\":{\"user_id\":\"u\"}"
        ","
        "\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cc_version=1; cch=abc;\"},"
        "{\"type\":\"text\",\"text\":\"Be brief.\",\"cache_control\":{\"type\":\"ephemeral\"}}],"
        "\"messages\":[{\"role\":\"user\",\"content\":\"list\"},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"why\",\"signature\":\"whatever\"},{\"type\":\"text\","
        "\"text\":\"ok\"},"
        "{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"Bash\",\"input\":{\"command\":\"pwd\"}}]},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"so\"},{\"type\":\"tool_result\",\"tool_use_id\":\"toolu_1\","
        "\"content\":"
        "[{\"type\":\"text\",\"text\":\"/x\"}]}]},"
        "{\"role\":\"system\",\"content\":\"Remember.\"}],"
        "\"tools\":[{\"name\":\"Bash\",\"description\":\"runs\",\"input_schema\":{\"type\":\"object\"},\"cache_control\":{\"type\":"
        "\"ephemeral\"}},"
        "{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]}");
    fixture_check_prompt(
        f,
        "{\"thinking_effort\":\"max\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"Bash\",\"description\":\"runs\","
        "\"parameters\":{\"type\":\"object\"}}}],\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},"
        "{\"role\":\"user\",\"content\":\"list\"},{\"role\":\"assistant\",\"reasoning_content\":\"why\",\"content\":\"ok\",\"tool_calls\":"
        "[{\"id\":\"1\",\"function\":{\"name\":\"Bash\",\"arguments\":{\"command\":\"pwd\"}}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"/x\"},{\"role\":\"user\",\"content\":\"so\"},"
        "{\"role\":\"system\",\"content\":\"Remember.\"}]}");
    assert_string_equal(m.reasoning.text, "more");
    assert_string_equal(m.content.text, "Done.");
    assert_string_equal(m.calls[0].id.text, "Bash_1");
    assert_string_equal(m.calls[0].arguments.text, "{\"command\": \"ls\"}");
    assert_string_equal(m.finish.text, "\"tool_use\"");
    assert_int_equal(fake_look()->max_tokens, 32000);
    merged_free(&m);
}

/* Case E30: two requests that differ in the changing line only are the same prompt; thinking is off unless asked for. */
static void e30_the_changing_line(void **state)
{
    fixture *f = *state;
    static const char *const systems[] = {
        "\"x-anthropic-billing-header: a; cch=1;\\nBe brief.\"", "\"x-anthropic-billing-header: b; cch=2;\\nBe brief.\"",
        "[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: c\"},{\"type\":\"text\",\"text\":\"Be brief.\"}]"};
    fixture_say(f, "Hi" CLOSE("response") END);
    for (size_t i = 0; i < 3; i++) {
        merged m = {0};
        char body[300];
        snprintf(body, sizeof body, "{\"max_tokens\":9,\"system\":%s,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", systems[i]);
        merge_ask(&m, f->port, MERGE_MESSAGES, body);
        fixture_check_prompt(
            f, "{\"thinking\":false,\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"x\"}]}");
        assert_string_equal(m.content.text, "Hi");
        merged_free(&m);
    }
}

/* Case E24: the count is the usage of the same request, whatever was kept; E53: and the same in a stream. */
static void e24_counts(void **state)
{
    fixture *f = *state;
    static const char body[] = "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"What is the count?\"}]%s}";
    char text[200];
    snprintf(text, sizeof text, body, "");
    http_reply reply = http_post(f->port, COUNT "?beta=true", text);
    int64_t counted = 0;
    assert_true(app_json_int(app_json_get(merge_json(reply.body), "input_tokens"), &counted));
    http_free(&reply);
    fake_script script = fixture_script();
    script.n_cached = 7;
    fixture_play(f, "Hi" CLOSE("response") END, &script);
    merged m[2] = {{.n_calls = 0}, {.n_calls = 0}};
    merge_ask(&m[0], f->port, MERGE_MESSAGES, text);
    snprintf(text, sizeof text, body, ",\"stream\":true");
    merge_ask(&m[1], f->port, MERGE_MESSAGES, text);
    assert_merged_equal(&m[0], &m[1]);
    int64_t fresh = 0, cached = 0;
    assert_true(app_json_int(app_json_get(merge_json(m[0].usage.text), "input_tokens"), &fresh));
    assert_true(app_json_int(app_json_get(merge_json(m[0].usage.text), "cache_read_input_tokens"), &cached));
    assert_int_equal(cached, 7);
    assert_int_equal(fresh + cached, counted);
    merged_free(&m[0]);
    merged_free(&m[1]);
}

static void messages_are_checked(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *body;
        int status;
    } table[] = {{"{}", 400},
                 {"{\"messages\":[]}", 400},
                 {"{\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}", 200},
                 {"{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", 200},
                 {"{\"messages\":[{\"role\":\"user\",\"content\":5}]}", 400},
                 {"{\"messages\":[{\"role\":\"robot\",\"content\":\"x\"}]}", 400},
                 {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"file:///etc/"
                  "passwd\"}}]}]}",
                  400},
                 {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"nothing\"}]}]}", 400},
                 {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":0}", 400},
                 {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"thinking\":{\"type\":\"maybe\"}}", 400},
                 {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":100}}", 200},
                 {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":0}}", 400},
                 {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tool_choice\":{\"type\":\"any\"}}", 400},
                 {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tool_choice\":{\"type\":\"sometimes\"}}", 400},
                 {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tool_choice\":{\"type\":\"any\"},\"tools\":[{\"name\":\"a\","
                  "\"input_schema\":{}}]}",
                  200},
                 {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{\"input_schema\":{}}]}", 400},
                 {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stop_sequences\":[\"\"]}", 400},
                 {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"temperature\":-1}", 400}};
    fixture_say(f, "Hi" CLOSE("response") END);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        http_reply reply = http_post(f->port, MESSAGES, table[i].body);
        if (reply.status != table[i].status)
            fail_msg("%s: %d %s", table[i].body, reply.status, reply.body);
        if (reply.status != 200)
            assert_true(app_json_is(app_json_get(merge_json(reply.body), "type"), "error"));
        http_free(&reply);
    }
    fake_script script = fixture_script();
    script.error = "logits that are no numbers";
    fixture_play(f, "a", &script);
    merged m = {0};
    merge_ask(&m, f->port, MERGE_MESSAGES, "{\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    assert_true(m.has_error);
    merged_free(&m);
}

/* ---- responses --------------------------------------------------------------------------------------------------- */

/* Cases E25, E31, E32: a coding client that speaks Responses only: instructions, items of every kind, tools that are no functions, a
 * free-form tool and its calls, reasoning that comes back encrypted. Ids of items are foreign or missing. */
static void e25_a_recorded_session(void **state)
{
    fixture *f = *state;
    merged m = {0};
    static const char tools[] =
        "\"tools\":[{\"type\":\"function\",\"name\":\"shell\",\"description\":\"d\",\"strict\":false,\"parameters\":{\"type\":"
        "\"object\"}},{\"type\":\"custom\",\"name\":\"apply_patch\",\"description\":\"p\",\"format\":{\"type\":\"grammar\"}},"
        "{\"type\":\"web_search\"},{\"type\":\"image_generation\"},{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[]}]";
    char body[3000];
    snprintf(
        body, sizeof body,
        "{\"model\":\"gpt-9\",\"stream\":true,\"store\":false,\"instructions\":\"Be "
        "brief.\",\"reasoning\":{\"effort\":\"medium\",\"summary\":\"auto\"},"
        "\"include\":[\"reasoning.encrypted_content\"],\"parallel_tool_calls\":true,\"tool_choice\":\"auto\",\"prompt_cache_key\":\"k\",%s,"
        "\"input\":[{\"type\":\"message\",\"role\":\"developer\",\"content\":[{\"type\":\"input_text\",\"text\":\"rules\"}]},"
        "{\"role\":\"user\",\"content\":\"do\"},"
        "{\"type\":\"reasoning\",\"id\":\"rs_x\",\"summary\":[],\"encrypted_content\":\"k3:why\"},"
        "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"ok\"}]},"
        "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"shell\",\"arguments\":\"{\\\"a\\\":1}\"},"
        "{\"type\":\"custom_tool_call\",\"call_id\":\"c2\",\"name\":\"apply_patch\",\"input\":\"*** Begin\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"one\"},"
        "{\"type\":\"custom_tool_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":\"input_text\",\"text\":\"two\"}]},"
        "{\"type\":\"web_search_call\",\"id\":\"ws\"},{\"type\":\"local_shell_call\",\"id\":\"ls\"}]}",
        tools);
    fixture_say(f, "hm" CLOSE("think") CALLS(CALL("apply_patch", ARGUMENT("input", "string", "*** Patch\n\"x\"")) CALL("shell", "")) END);
    merge_ask(&m, f->port, MERGE_RESPONSES, body);
    fixture_check_prompt(
        f,
        "{\"thinking_effort\":\"high\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"shell\",\"description\":\"d\",\"strict\":"
        "false,"
        "\"parameters\":{\"type\":\"object\"}}},{\"type\":\"function\",\"function\":{\"name\":\"apply_patch\",\"description\":\"p\","
        "\"parameters\":"
        "{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},\"required\":[\"input\"]}}}],"
        "\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"system\",\"content\":\"rules\"},"
        "{\"role\":\"user\",\"content\":\"do\"},{\"role\":\"assistant\",\"reasoning_content\":\"why\",\"content\":\"ok\",\"tool_calls\":["
        "{\"id\":\"1\",\"function\":{\"name\":\"shell\",\"arguments\":{\"a\":1}}},"
        "{\"id\":\"2\",\"function\":{\"name\":\"apply_patch\",\"arguments\":{\"input\":\"*** Begin\"}}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"one\"},{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"two\"}]}");
    assert_int_equal(m.n_calls, 2);
    assert_string_equal(m.calls[0].name.text, "apply_patch");
    assert_string_equal(m.calls[0].id.text, "apply_patch_2");
    assert_string_equal(m.calls[0].arguments.text, "*** Patch\n\"x\"");
    assert_string_equal(m.calls[1].arguments.text, "{}");
    assert_string_equal(m.finish.text, "\"completed\"");
    merged_free(&m);
}

/* Case E38: what must be in an answer whatever was asked; text {} is fine. E32: the empty probe of one token is answered. */
static void e38_the_answer_is_complete(void **state)
{
    fixture *f = *state;
    static const char *const bodies[] = {"{\"input\":\"x\"}", "{\"input\":\"x\",\"text\":{},\"instructions\":\"Say hi.\"}",
                                         "{\"input\":[],\"max_output_tokens\":1}",
                                         "{\"input\":\"\",\"instructions\":\"\",\"max_output_tokens\":1,\"tools\":[]}",
                                         "{\"input\":[{\"role\":\"user\",\"content\":\"x\"}],\"text\":{\"format\":{\"type\":\"text\"}}}"};
    static const char *const members[] = {
        "id",          "object",      "created_at", "status", "error", "incomplete_details", "instructions", "model", "output", "tools",
        "tool_choice", "temperature", "top_p",      "text",   "usage", "parallel_tool_calls"};
    fixture_say(f, "a" RESPONSE("Hi") END);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        http_reply reply = http_post(f->port, RESPONSES, bodies[i]);
        assert_int_equal(reply.status, 200);
        app_json answer = merge_json(reply.body);
        for (size_t k = 0; k < sizeof members / sizeof *members; k++)
            if (!app_json_get(answer, members[k]).text)
                fail_msg("no %s in %s", members[k], reply.body);
        int64_t n = 0;
        assert_true(app_json_int(merge_at(answer, "usage.output_tokens"), &n));
        if (strstr(bodies[i], "max_output_tokens")) {
            assert_true(app_json_is(merge_at(answer, "incomplete_details.reason"), "max_output_tokens"));
            assert_int_equal(n, 1);
        }
        http_free(&reply);
    }
}

/* A request written over several lines comes back in one, as an event of a stream needs it. */
static void a_spread_request(void **state)
{
    fixture *f = *state;
    merged m = {0};
    fixture_say(f, RESPONSE("Hi") END);
    merge_ask(&m, f->port, MERGE_RESPONSES,
              "{\"stream\":true,\r\n \"input\": \"x\",\n \"tools\": [\n\t{ \"type\" : \"function\",\r\"name\":\"a  \\\" b\",\n"
              "\"parameters\": {\"type\": \n\"object\"} }\n],\n \"tool_choice\":\n{\"type\":\n\"function\", \"name\":\"a  \\\" b\"}}");
    assert_string_equal(m.content.text, "Hi");
    merged_free(&m);
}

/* Each call is looked up among the others: there may be many, but not so many that it takes minutes. */
static void histories_are_limited(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *path, *head, *one, *tail;
        int most;
    } table[] = {{"/v1/chat/completions", "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[", "{\"id\":\"a\"}", "]}]}", 1024},
                 {"/v1/chat/completions", "{\"messages\":[", "{\"role\":\"tool\"}", "]}", 16384},
                 {MESSAGES, "{\"messages\":[{\"role\":\"assistant\",\"content\":[", "{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\"}",
                  "]}]}", 16384},
                 {RESPONSES, "{\"input\":[", "{\"type\":\"function_call\",\"call_id\":\"a\",\"name\":\"f\"}", "]}", 16384}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        app_buffer body = {0};
        app_buffer_text(&body, table[i].head);
        for (int k = 0; k <= table[i].most; k++) {
            app_buffer_text(&body, k ? "," : "");
            app_buffer_text(&body, table[i].one);
        }
        app_buffer_text(&body, table[i].tail);
        http_reply reply = http_post(f->port, table[i].path, body.text);
        char number[16];
        snprintf(number, sizeof number, "%d", table[i].most);
        assert_int_equal(reply.status, 400);
        if (!strstr(reply.body, number))
            fail_msg("%s", reply.body);
        http_free(&reply);
        app_buffer_free(&body);
    }
    assert_int_equal(
        http_post_status(f->port, "/v1/chat/completions",
                         "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\"}}]},"
                         "{\"role\":\"tool\",\"tool_call_id\":{\"a\":1}}]}"),
        400);
}

static void responses_are_checked(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *body;
        int status;
    } table[] = {{"{}", 400},
                 {"{\"input\":5}", 400},
                 {"{\"input\":[5]}", 400},
                 {"{\"input\":\"x\",\"previous_response_id\":\"resp_1\"}", 400},
                 {"{\"input\":\"x\",\"previous_response_id\":null}", 200},
                 {"{\"input\":\"x\",\"background\":true}", 400},
                 {"{\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]}", 400},
                 {"{\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"x\",\"output\":\"y\"}]}", 400},
                 {"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"file:///etc/passwd\"}]}]}", 400},
                 {"{\"input\":\"x\",\"max_output_tokens\":0}", 400},
                 {"{\"input\":\"x\",\"reasoning\":{\"effort\":\"huge\"}}", 400},
                 {"{\"input\":\"x\",\"tool_choice\":\"required\"}", 400},
                 {"{\"input\":\"x\",\"tools\":[{\"type\":\"function\"}]}", 400},
                 {"{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"yaml\"}}}", 400},
                 {"{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\",\"schema\":{}}}}", 400},
                 {"{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"a\",\"schema\":{\"type\":\"object\"},"
                  "\"strict\":true}}}",
                  200}};
    fixture_say(f, RESPONSE("Hi") END);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (http_post_status(f->port, RESPONSES, table[i].body) != table[i].status)
            fail_msg("%s", table[i].body);
    assert_true(fake_look()->is_narrowed);
    fake_script script = fixture_script();
    script.error = "logits that are no numbers";
    fixture_play(f, "a", &script);
    merged m = {0};
    merge_ask(&m, f->port, MERGE_RESPONSES, "{\"stream\":true,\"input\":\"x\"}");
    assert_true(m.has_error);
    assert_string_equal(m.finish.text, "\"failed\"");
    merged_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e23_a_coding_session),  cmocka_unit_test(e30_the_changing_line),  cmocka_unit_test(e24_counts),
        cmocka_unit_test(messages_are_checked),  cmocka_unit_test(e25_a_recorded_session), cmocka_unit_test(e38_the_answer_is_complete),
        cmocka_unit_test(responses_are_checked), cmocka_unit_test(a_spread_request),       cmocka_unit_test(histories_are_limited),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
