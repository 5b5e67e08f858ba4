/* POST /v1/messages and /v1/messages/count_tokens: reading a request. */
#include <string.h>

#include "api_messages.h"

/* ---- content ----------------------------------------------------------------------------------------------------- */

/* A line that begins so holds a checksum that changes with every request; it would make each prompt a new one. */
static const char changing[] = "x-anthropic-";

/* Appends a text as an element of K3's content parts, without the changing lines at its head. */
static void add_text(app_buffer *parts, app_json text, int is_system)
{
    app_buffer decoded = {0};
    app_json_decode(&decoded, text);
    const char *at = decoded.text, *end = decoded.text + decoded.n;
    while (is_system && (size_t)(end - at) >= sizeof changing - 1 && memcmp(at, changing, sizeof changing - 1) == 0) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        at = line ? line + 1 : end;
    }
    if (!is_system || at < end) {
        srv_ask_comma(parts);
        app_buffer_text(parts, "{\"type\":\"text\",\"text\":");
        app_buffer_json(parts, at, (size_t)(end - at));
        app_buffer_text(parts, "}");
    }
    app_buffer_free(&decoded);
}

/* A string or text blocks. */
static int read_text(app_buffer *parts, app_json content, int is_system, const char *where, srv_problem *problem)
{
    app_json block;
    size_t i = 0;
    if (!content.text)
        return 1;
    if (srv_is_string(content)) {
        add_text(parts, content, is_system);
        return 1;
    }
    if (!srv_is_array(content))
        return srv_refuse(problem, where, "%s must be a string or an array of blocks", where);
    for (size_t at = 0; app_json_next(NULL, &block, &at, content); i++) {
        app_json type = srv_get(block, "type"), text = srv_get(block, "text");
        if (app_json_is(type, "image") || app_json_is(type, "document"))
            return srv_refuse(problem, where, "%s: block %zu is an image or a document; those are not supported", where, i);
        if (!app_json_is(type, "text") || !srv_is_string(text))
            return srv_refuse(problem, where, "%s: block %zu is not {\"type\":\"text\",\"text\":...}", where, i);
        add_text(parts, text, is_system);
    }
    return 1;
}

static void add_message(app_buffer *messages, const char *role, const app_buffer *parts)
{
    srv_ask_comma(messages);
    srv_add(messages, "{\"role\":\"%s\",\"content\":[", role);
    app_buffer_add(messages, parts->text, parts->n);
    app_buffer_text(messages, "]}");
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* What a run of blocks of one message becomes. */
typedef struct collected {
    app_buffer parts, reasoning, calls, results;
} collected;

static void free_collected(collected *c)
{
    app_buffer_free(&c->parts);
    app_buffer_free(&c->reasoning);
    app_buffer_free(&c->calls);
    app_buffer_free(&c->results);
}

static int add_call(collected *c, app_json block, size_t i, srv_problem *problem)
{
    app_json name = srv_get(block, "name"), input = srv_get(block, "input");
    if (!srv_is_string(name) || !srv_is_string(srv_get(block, "id")))
        return srv_refuse(problem, "messages", "messages[%zu]: a tool_use block wants an id and a name", i);
    srv_ask_comma(&c->calls);
    app_buffer_text(&c->calls, "{\"type\":\"function\",\"id\":");
    srv_add_json(&c->calls, srv_get(block, "id"));
    app_buffer_text(&c->calls, ",\"function\":{\"name\":");
    srv_add_json(&c->calls, name);
    app_buffer_text(&c->calls, ",\"arguments\":");
    srv_add_json(&c->calls, input);
    app_buffer_text(&c->calls, "}}");
    return 1;
}

static int has_id(const app_buffer *ids, app_json id)
{
    app_buffer text = {0};
    app_json_decode(&text, id);
    int found = srv_ask_has_name(ids, text.text);
    app_buffer_free(&text);
    return found;
}

static int add_result(collected *c, app_json block, const app_buffer *ids, size_t i, srv_problem *problem)
{
    app_json id = srv_get(block, "tool_use_id");
    app_buffer parts = {0};
    if (!srv_is_string(id) || !has_id(ids, id))
        return srv_refuse(problem, "messages",
                          "messages[%zu]: a tool_result block has the tool_use_id %.*s, which no tool_use before it has", i,
                          id.n < 100 ? (int)id.n : 100, id.text ? id.text : "");
    if (app_json_kind(srv_get(block, "is_error")) == 't')
        app_buffer_text(&parts, "{\"type\":\"text\",\"text\":\"Error: \"}");
    if (!read_text(&parts, srv_get(block, "content"), 0, "tool_result.content", problem)) {
        app_buffer_free(&parts);
        return 0;
    }
    srv_ask_comma(&c->results);
    app_buffer_text(&c->results, "{\"role\":\"tool\",\"tool_call_id\":");
    srv_add_json(&c->results, id);
    app_buffer_text(&c->results, ",\"content\":[");
    app_buffer_add(&c->results, parts.text, parts.n);
    app_buffer_text(&c->results, "]}");
    app_buffer_free(&parts);
    return 1;
}

static int read_block(srv_ask *ask, collected *c, app_json block, app_buffer *ids, int is_assistant, size_t i, srv_problem *problem)
{
    app_json type = srv_get(block, "type");
    ask->n_calls += is_assistant && app_json_is(type, "tool_use");
    ask->n_results += app_json_is(type, "tool_result");
    if (!srv_ask_check_history(ask, "messages", problem))
        return 0;
    if (app_json_is(type, "text") && srv_is_string(srv_get(block, "text"))) {
        add_text(&c->parts, srv_get(block, "text"), 0);
        return 1;
    }
    if (is_assistant && app_json_is(type, "thinking")) {
        app_json_decode(&c->reasoning, srv_get(block, "thinking"));
        return 1;
    }
    if (is_assistant && app_json_is(type, "redacted_thinking"))
        return 1;
    if (is_assistant && app_json_is(type, "tool_use")) {
        srv_ask_add_name(ids, srv_get(block, "id"));
        return add_call(c, block, i, problem);
    }
    if (!is_assistant && app_json_is(type, "tool_result"))
        return add_result(c, block, ids, i, problem);
    return srv_refuse(problem, "messages", "messages[%zu] has a block of type %.*s, which is not supported there", i,
                      type.n < 40 ? (int)type.n : 40, type.text ? type.text : "");
}

static void add_collected(srv_ask *ask, collected *c, int is_assistant)
{
    app_buffer *messages = &ask->messages;
    if (!is_assistant) {
        /* Results come before what the user says to them, wherever they stand. */
        if (c->results.n) {
            srv_ask_comma(messages);
            app_buffer_add(messages, c->results.text, c->results.n);
        }
        if (c->parts.n || !c->results.n)
            add_message(messages, "user", &c->parts);
        return;
    }
    srv_ask_add_assistant(ask, &c->reasoning, &c->parts, &c->calls);
}

static int read_message(srv_ask *ask, app_json message, app_buffer *ids, size_t i, srv_problem *problem)
{
    app_json role = srv_get(message, "role"), content = srv_get(message, "content"), block;
    collected c = {0};
    int is_assistant = app_json_is(role, "assistant"), ok = 1;
    if (app_json_is(role, "system") || app_json_is(role, "developer")) {
        ok = read_text(&c.parts, content, 1, "messages", problem);
        if (ok)
            add_message(&ask->messages, "system", &c.parts);
    } else if (!is_assistant && !app_json_is(role, "user")) {
        ok = srv_refuse(problem, "messages", "messages[%zu].role is %.*s, wanted user, assistant or system", i,
                        role.n < 40 ? (int)role.n : 40, role.text ? role.text : "");
    } else if (srv_is_string(content)) {
        add_text(&c.parts, content, 0);
        add_collected(ask, &c, is_assistant);
    } else if (srv_is_array(content)) {
        for (size_t at = 0; ok && app_json_next(NULL, &block, &at, content);)
            ok = read_block(ask, &c, block, ids, is_assistant, i, problem);
        if (ok)
            add_collected(ask, &c, is_assistant);
    } else {
        ok = srv_refuse(problem, "messages", "messages[%zu].content must be a string or an array of blocks", i);
    }
    free_collected(&c);
    return ok;
}

static int read_messages(srv_ask *ask, const srv_fields *fields)
{
    app_json messages = srv_field(fields, "messages"), message;
    app_buffer parts = {0}, ids = {0};
    size_t i = 0;
    int ok = read_text(&parts, srv_field(fields, "system"), 1, "system", fields->problem);
    if (ok && parts.n)
        add_message(&ask->messages, "system", &parts);
    if (ok && !srv_is_array(messages))
        ok = srv_refuse(fields->problem, "messages", messages.text ? "messages must be an array" : "messages is missing");
    for (size_t at = 0; ok && app_json_next(NULL, &message, &at, messages); i++)
        ok = read_message(ask, message, &ids, i, fields->problem);
    if (ok && !i)
        ok = srv_refuse(fields->problem, "messages", "messages is empty; at least one is wanted");
    app_buffer_free(&parts);
    app_buffer_free(&ids);
    return ok;
}

/* ---- tools, thinking --------------------------------------------------------------------------------------------- */

/* Tools that Anthropic's own servers run have no schema, and are left out. */
static int read_tools(srv_ask *ask, const srv_fields *fields)
{
    app_json tools = srv_field(fields, "tools"), tool;
    size_t i = 0;
    if (tools.text && !srv_is_array(tools))
        return srv_refuse(fields->problem, "tools", "tools must be an array");
    for (size_t at = 0; app_json_next(NULL, &tool, &at, tools); i++) {
        app_json name = srv_get(tool, "name"), schema = srv_get(tool, "input_schema"), type = srv_get(tool, "type");
        if (!schema.text && type.text && !app_json_is(type, "custom"))
            continue;
        if (!srv_is_string(name) || app_json_is(name, ""))
            return srv_refuse(fields->problem, "tools", "tools[%zu].name must be a string that is not empty", i);
        srv_ask_add_tool(ask, name, srv_get(tool, "description"), schema, srv_get(tool, "strict"));
    }
    return 1;
}

static int read_choice(srv_ask *ask, const srv_fields *fields)
{
    app_json choice = srv_field(fields, "tool_choice"), type = srv_get(choice, "type");
    if (!choice.text)
        return 1;
    if (app_json_is(type, "tool") && srv_is_string(srv_get(choice, "name"))) {
        ask->choice = SRV_CHOICE_NAMED;
        app_json_decode(&ask->chosen, srv_get(choice, "name"));
    } else if (app_json_is(type, "any")) {
        ask->choice = SRV_CHOICE_REQUIRED;
    } else if (app_json_is(type, "none")) {
        ask->choice = SRV_CHOICE_NONE;
    } else if (!app_json_is(type, "auto")) {
        return srv_refuse(fields->problem, "tool_choice", "tool_choice.type is %.*s, wanted auto, any, none, or tool with a name",
                          type.n < 40 ? (int)type.n : 40, type.text ? type.text : "");
    }
    ask->one_call = app_json_kind(srv_get(choice, "disable_parallel_tool_use")) == 't';
    return srv_ask_check_choice(ask, fields->problem);
}

/* A budget is no limit here: it says how much to think, as far as the model has words for that. */
enum { LOW_BUDGET = 4096, HIGH_BUDGET = 16384 };

static int read_thinking(srv_ask *ask, const srv_fields *fields, const srv_rules *rules)
{
    app_json thinking = srv_field(fields, "thinking"), type = srv_get(thinking, "type"), value = srv_get(thinking, "budget_tokens");
    int64_t budget = INT64_MAX;
    ask->thinking = app_json_is(type, "enabled") || app_json_is(type, "adaptive");
    if (thinking.text && !ask->thinking && !app_json_is(type, "disabled"))
        return srv_refuse(fields->problem, "thinking", "thinking.type is %.*s, wanted enabled, adaptive or disabled",
                          type.n < 40 ? (int)type.n : 40, type.text ? type.text : "");
    if (value.text && (!app_json_int(value, &budget) || budget < 1))
        return srv_refuse(fields->problem, "thinking", "thinking.budget_tokens is %.*s, wanted a whole number from 1",
                          value.n < 40 ? (int)value.n : 40, value.text);
    ask->effort = budget < LOW_BUDGET ? "low" : budget < HIGH_BUDGET ? "high" : "max";
    return srv_ask_effort(ask, srv_get(srv_field(fields, "output_config"), "effort"), "output_config.effort", rules, fields->problem);
}

static int read_request(srv_ask *ask, const srv_fields *fields, const srv_rules *rules)
{
    if (!srv_ask_model(fields, rules) || !srv_field_flag(fields, "stream", &ask->is_stream) || !read_messages(ask, fields) ||
        !read_tools(ask, fields) || !read_choice(ask, fields) || !read_thinking(ask, fields, rules) ||
        !srv_ask_sampling(ask, fields, rules) || !srv_ask_stops(ask, fields, "stop_sequences", rules) ||
        !srv_ask_limit(ask, fields, "max_tokens"))
        return 0;
    return srv_ask_render(ask, rules, fields->problem);
}

void srv_messages_count(app_buffer *out, const srv_ask *ask)
{
    srv_add(out, "{\"input_tokens\":%lld}", (long long)ask->n_prompt);
}

const srv_api srv_api_messages = {.path = "/v1/messages",
                                  .is_anthropic = 1,
                                  .idle = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
                                  .id_prefix = "msg_",
                                  .starts_with_usage = 1,
                                  .read = read_request,
                                  .start = srv_messages_start,
                                  .event = srv_messages_event,
                                  .end = srv_messages_end,
                                  .fail = srv_messages_fail,
                                  .whole = srv_messages_whole};
