/* POST /v1/responses: reading a request. Items of the input are gathered into messages: reasoning, text and calls that follow one another
 * are one message of the assistant. */
#include "api_responses.h"

#include <string.h>

#include "api_chat.h"

typedef struct gathered {
    srv_ask *ask;
    srv_problem *problem;
    app_buffer parts, reasoning, calls; /* of an assistant message that is open */
    int is_open;
    app_buffer ids; /* of calls so far */
} gathered;

static void close_message(gathered *g)
{
    if (!g->is_open)
        return;
    srv_ask_add_assistant(g->ask, &g->reasoning, &g->parts, &g->calls);
    app_buffer_clear(&g->parts);
    app_buffer_clear(&g->reasoning);
    app_buffer_clear(&g->calls);
    g->is_open = 0;
}

/* ---- content ----------------------------------------------------------------------------------------------------- */

/* A string, or parts that are text of some kind. */
static int add_content(app_buffer *parts, app_json content, const char *where, srv_problem *problem)
{
    app_json part;
    size_t i = 0;
    if (srv_is_string(content)) {
        srv_ask_comma(parts);
        app_buffer_text(parts, "{\"type\":\"text\",\"text\":");
        srv_add_json(parts, content);
        app_buffer_text(parts, "}");
        return 1;
    }
    if (content.text && !srv_is_array(content))
        return srv_refuse(problem, "input", "%s must be a string or an array of parts", where);
    for (size_t at = 0; app_json_next(NULL, &part, &at, content); i++) {
        app_json type = srv_get(part, "type"), text = srv_get(part, app_json_is(type, "refusal") ? "refusal" : "text");
        if (!srv_is_string(text) || (!app_json_is(type, "input_text") && !app_json_is(type, "output_text") && !app_json_is(type, "text") &&
                                     !app_json_is(type, "refusal")))
            return srv_refuse(problem, "input", "%s[%zu] is of type %.*s; only text is supported", where, i, type.n < 40 ? (int)type.n : 40,
                              type.text ? type.text : "");
        if (!add_content(parts, text, where, problem))
            return 0;
    }
    return 1;
}

static int add_message(gathered *g, const char *role, app_json content)
{
    app_buffer parts = {0};
    close_message(g);
    int ok = add_content(&parts, content, "content", g->problem);
    if (ok) {
        srv_ask_comma(&g->ask->messages);
        srv_add(&g->ask->messages, "{\"role\":\"%s\",\"content\":[", role);
        app_buffer_add(&g->ask->messages, parts.text, parts.n);
        app_buffer_text(&g->ask->messages, "]}");
    }
    app_buffer_free(&parts);
    return ok;
}

static void add_texts(app_buffer *out, app_json parts)
{
    app_json part;
    for (size_t at = 0; app_json_next(NULL, &part, &at, parts);)
        app_json_decode(out, srv_get(part, "text"));
}

static void add_reasoning(gathered *g, app_json item)
{
    static const char prefix[] = SRV_REASONING_PREFIX;
    if (g->parts.n || g->calls.n)
        close_message(g);
    g->is_open = 1;
    size_t before = g->reasoning.n;
    add_texts(&g->reasoning, srv_get(item, "content"));
    if (g->reasoning.n == before && srv_is_string(srv_get(item, "encrypted_content"))) {
        app_buffer text = {0};
        app_json_decode(&text, srv_get(item, "encrypted_content"));
        if (text.n >= sizeof prefix - 1 && memcmp(text.text, prefix, sizeof prefix - 1) == 0)
            app_buffer_add(&g->reasoning, text.text + sizeof prefix - 1, text.n - (sizeof prefix - 1));
        app_buffer_free(&text);
    }
    if (g->reasoning.n == before)
        add_texts(&g->reasoning, srv_get(item, "summary"));
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* A free-form tool is a function with one argument for the model. */
static int add_call(gathered *g, app_json item, int is_custom)
{
    app_json name = srv_get(item, "name"), id = srv_get(item, "call_id");
    if (!srv_is_string(name) || !srv_is_string(id))
        return srv_refuse(g->problem, "input", "a call in input wants a name and a call_id");
    g->is_open = 1;
    srv_ask_add_name(&g->ids, id);
    srv_ask_comma(&g->calls);
    app_buffer_text(&g->calls, "{\"type\":\"function\",\"id\":");
    srv_add_json(&g->calls, id);
    app_buffer_text(&g->calls, ",\"function\":{\"name\":");
    srv_add_json(&g->calls, name);
    app_buffer_text(&g->calls, is_custom ? ",\"arguments\":{\"input\":" : ",\"arguments\":");
    srv_add_json(&g->calls, srv_get(item, is_custom ? "input" : "arguments"));
    app_buffer_text(&g->calls, is_custom ? "}}}" : "}}");
    g->ask->n_calls++;
    return srv_ask_check_history(g->ask, "input", g->problem);
}

static int add_output(gathered *g, app_json item)
{
    app_json id = srv_get(item, "call_id");
    app_buffer text = {0}, parts = {0};
    g->ask->n_results++;
    if (!srv_ask_check_history(g->ask, "input", g->problem))
        return 0;
    close_message(g);
    app_json_decode(&text, id);
    int ok = srv_is_string(id) && srv_ask_has_name(&g->ids, text.text);
    if (!ok)
        srv_refuse(g->problem, "input", "an output in input has the call_id \"%.100s\", which no call before it has", text.text);
    ok = ok && add_content(&parts, srv_get(item, "output"), "output", g->problem);
    if (ok) {
        app_buffer *messages = &g->ask->messages;
        srv_ask_comma(messages);
        app_buffer_text(messages, "{\"role\":\"tool\",\"tool_call_id\":");
        srv_add_json(messages, id);
        app_buffer_text(messages, ",\"content\":[");
        app_buffer_add(messages, parts.text, parts.n);
        app_buffer_text(messages, "]}");
    }
    app_buffer_free(&text);
    app_buffer_free(&parts);
    return ok;
}

/* ---- input ------------------------------------------------------------------------------------------------------- */

/* Items of tools that run elsewhere, in a history that another server made, are left out. */
static int read_item(gathered *g, app_json item, size_t i)
{
    app_json type = srv_get(item, "type"), role = srv_get(item, "role"), content = srv_get(item, "content");
    if (!srv_is_object(item))
        return srv_refuse(g->problem, "input", "input[%zu] is not an object", i);
    if (!type.text || app_json_is(type, "message")) {
        if (app_json_is(role, "assistant")) {
            if (g->calls.n)
                close_message(g);
            g->is_open = 1;
            return add_content(&g->parts, content, "content", g->problem);
        }
        if (app_json_is(role, "user"))
            return add_message(g, "user", content);
        if (app_json_is(role, "system") || app_json_is(role, "developer"))
            return add_message(g, "system", content);
        return srv_refuse(g->problem, "input", "input[%zu].role is %.*s, wanted user, assistant, system or developer", i,
                          role.n < 40 ? (int)role.n : 40, role.text ? role.text : "");
    }
    if (app_json_is(type, "reasoning"))
        add_reasoning(g, item);
    else if (app_json_is(type, "function_call") || app_json_is(type, "custom_tool_call"))
        return add_call(g, item, app_json_is(type, "custom_tool_call"));
    else if (app_json_is(type, "function_call_output") || app_json_is(type, "custom_tool_call_output"))
        return add_output(g, item);
    else if (app_json_is(type, "item_reference"))
        return srv_refuse(g->problem, "input", "input[%zu] refers to an item of another answer, and answers are not kept here", i);
    return 1;
}

static int read_input(srv_ask *ask, const srv_fields *fields)
{
    app_json input = srv_field(fields, "input"), item;
    gathered g = {.ask = ask, .problem = fields->problem};
    size_t i = 0;
    int ok = 1;
    ask->instructions = srv_field(fields, "instructions");
    if (ask->instructions.text && !srv_is_string(ask->instructions))
        return srv_refuse(fields->problem, "instructions", "instructions must be a string");
    if (ask->instructions.text)
        ok = add_message(&g, "system", ask->instructions);
    if (ok && srv_is_string(input)) {
        ok = app_json_is(input, "") || add_message(&g, "user", input);
    } else if (ok && srv_is_array(input)) {
        for (size_t at = 0; ok && app_json_next(NULL, &item, &at, input); i++)
            ok = read_item(&g, item, i);
        close_message(&g);
    } else if (ok) {
        ok = srv_refuse(fields->problem, "input", input.text ? "input must be a string or an array of items" : "input is missing");
    }
    app_buffer_free(&g.parts);
    app_buffer_free(&g.reasoning);
    app_buffer_free(&g.calls);
    app_buffer_free(&g.ids);
    return ok;
}

/* ---- tools, format ----------------------------------------------------------------------------------------------- */

static const char one_input[] = "{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},\"required\":[\"input\"]}";

static int read_tools(srv_ask *ask, const srv_fields *fields)
{
    app_json tool;
    size_t i = 0;
    ask->reply_tools = srv_field(fields, "tools");
    if (ask->reply_tools.text && !srv_is_array(ask->reply_tools))
        return srv_refuse(fields->problem, "tools", "tools must be an array");
    for (size_t at = 0; app_json_next(NULL, &tool, &at, ask->reply_tools); i++) {
        app_json type = srv_get(tool, "type"), name = srv_get(tool, "name");
        int is_custom = app_json_is(type, "custom");
        if (!is_custom && !app_json_is(type, "function"))
            continue; /* run by the vendor's servers, or grouped: the model is not told of them */
        if (!srv_is_string(name) || app_json_is(name, ""))
            return srv_refuse(fields->problem, "tools", "tools[%zu].name must be a string that is not empty", i);
        if (is_custom)
            srv_ask_add_name(&ask->custom, name);
        srv_ask_add_tool(ask, name, srv_get(tool, "description"),
                         is_custom ? (app_json){one_input, sizeof one_input - 1} : srv_get(tool, "parameters"), srv_get(tool, "strict"));
    }
    return 1;
}

static int read_choice(srv_ask *ask, const srv_fields *fields)
{
    static const char *const words[] = {"auto", "none", "required"};
    app_json choice = srv_field(fields, "tool_choice"), type = srv_get(choice, "type");
    int parallel = 1;
    if (!srv_field_flag(fields, "parallel_tool_calls", &parallel))
        return 0;
    ask->one_call = !parallel;
    ask->reply_choice = choice;
    if (!choice.text)
        return 1;
    for (int i = 0; i < 3; i++)
        if (app_json_is(choice, words[i])) {
            ask->choice = (srv_choice)i;
            return srv_ask_check_choice(ask, fields->problem);
        }
    if ((!app_json_is(type, "function") && !app_json_is(type, "custom")) || !srv_is_string(srv_get(choice, "name")))
        return srv_refuse(fields->problem, "tool_choice", "tool_choice is %.*s, wanted auto, none, required or a named function",
                          choice.n < 40 ? (int)choice.n : 40, choice.text);
    ask->choice = SRV_CHOICE_NAMED;
    app_json_decode(&ask->chosen, srv_get(choice, "name"));
    return srv_ask_check_choice(ask, fields->problem);
}

/* text.format is flat; the same in the form of chat completions. */
static int read_format(srv_ask *ask, const srv_fields *fields)
{
    app_json format = srv_get(srv_field(fields, "text"), "format"), type = srv_get(format, "type");
    app_buffer *text = &ask->format_text;
    size_t wrong;
    if (!format.text || !type.text)
        return 1;
    app_buffer_text(text, "{\"type\":");
    srv_add_json(text, type);
    if (app_json_is(type, "json_schema")) {
        app_buffer_text(text, ",\"json_schema\":{\"name\":");
        srv_add_json(text, srv_get(format, "name"));
        app_buffer_text(text, ",\"schema\":");
        srv_add_json(text, srv_get(format, "schema"));
        app_buffer_text(text, ",\"strict\":");
        srv_add_json(text, srv_get(format, "strict"));
        app_buffer_text(text, "}");
    }
    app_buffer_text(text, "}");
    return srv_ask_format(ask, app_json_whole(text->text, text->n, &wrong), fields->problem);
}

static int read_response(srv_ask *ask, const srv_fields *fields, const srv_rules *rules)
{
    static const char *const kept[] = {"previous_response_id", "conversation", "prompt"};
    app_json include = srv_field(fields, "include"), word;
    int background = 0;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (srv_field(fields, kept[i]).text)
            return srv_refuse(fields->problem, kept[i], "%s is not supported: answers are not kept here", kept[i]);
    if (!srv_field_flag(fields, "background", &background))
        return 0;
    if (background)
        return srv_refuse(fields->problem, "background", "background is not supported: answers are not kept here");
    for (size_t at = 0; app_json_next(NULL, &word, &at, include);)
        ask->include_encrypted |= app_json_is(word, "reasoning.encrypted_content");
    if (!srv_ask_model(fields, rules) || !srv_ask_stream(ask, fields) || !read_input(ask, fields) || !read_tools(ask, fields) ||
        !read_choice(ask, fields) || !read_format(ask, fields))
        return 0;
    if (!srv_ask_effort(ask, srv_get(srv_field(fields, "reasoning"), "effort"), "reasoning.effort", rules, fields->problem) ||
        !srv_ask_sampling(ask, fields, rules) || !srv_ask_stops(ask, fields, "stop", rules) ||
        !srv_ask_limit(ask, fields, "max_output_tokens"))
        return 0;
    return srv_ask_render(ask, rules, fields->problem);
}

const srv_api srv_api_responses = {.path = "/v1/responses",
                                   .idle = ": waiting\n\n",
                                   .id_prefix = "resp_",
                                   .read = read_response,
                                   .start = srv_responses_start,
                                   .event = srv_responses_event,
                                   .end = srv_responses_end,
                                   .fail = srv_responses_fail,
                                   .whole = srv_responses_whole};
