/* POST /v1/chat/completions: reading a request. */
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "api_chat.h"

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Parts are text; what would make the server open something of the client's choice is refused without a look at it. */
static int check_content(app_json content, size_t i, srv_problem *problem)
{
    app_json part;
    size_t i_part = 0;
    if (!content.text || srv_is_string(content))
        return 1;
    if (!srv_is_array(content))
        return srv_refuse(problem, "messages", "messages[%zu].content must be a string, null or an array of parts", i);
    for (size_t at = 0; app_json_next(NULL, &part, &at, content); i_part++) {
        app_json type = srv_get(part, "type");
        if (app_json_is(type, "image_url") || app_json_is(type, "image"))
            return srv_refuse(problem, "messages", "messages[%zu].content[%zu] is an image; images are not supported", i, i_part);
        if (!app_json_is(type, "text") || !srv_is_string(srv_get(part, "text")))
            return srv_refuse(problem, "messages", "messages[%zu].content[%zu] is not {\"type\":\"text\",\"text\":...}", i, i_part);
    }
    return 1;
}

/* Of one message; each result is looked up among them. */
enum { MAX_CALLS = 1024 };

static int has_call(app_json calls, app_json id)
{
    app_json call;
    for (size_t at = 0; app_json_next(NULL, &call, &at, calls);)
        if (app_json_equal(srv_get(call, "id"), id))
            return 1;
    return 0;
}

/* A result whose id is none of those of the calls before it belongs to nothing. */
static int check_result(app_json message, app_json calls, size_t i, srv_problem *problem)
{
    app_json id = srv_get(message, "tool_call_id");
    if (id.text && !srv_is_string(id))
        return srv_refuse(problem, "messages", "messages[%zu].tool_call_id must be a string", i);
    if (!id.text || !calls.text || app_json_is(id, "") || has_call(calls, id))
        return 1;
    return srv_refuse(problem, "messages", "messages[%zu].tool_call_id is %.*s, and the calls before it have other ids", i,
                      id.n < 100 ? (int)id.n : 100, id.text);
}

static int read_tools(srv_ask *ask, app_json tools, const char *where, const srv_rules *rules, srv_problem *problem);

static int read_message(srv_ask *ask, app_json message, app_json *calls, size_t i, const srv_rules *rules, srv_problem *problem)
{
    app_json role = srv_get(message, "role"), content = srv_get(message, "content");
    if (!srv_is_object(message) || !srv_is_string(role))
        return srv_refuse(problem, "messages", "messages[%zu] is not an object with a role", i);
    if (!check_content(content, i, problem))
        return 0;
    if (app_json_kind(srv_get(message, "partial")) == 't')
        return srv_refuse(problem, "messages", "messages[%zu].partial: going on with a given answer is not supported", i);
    if (app_json_is(role, "assistant")) {
        *calls = srv_get(message, "tool_calls");
        if (calls->text && !srv_is_array(*calls))
            return srv_refuse(problem, "messages", "messages[%zu].tool_calls must be an array", i);
        size_t n_calls = srv_length(*calls);
        if (n_calls > MAX_CALLS)
            return srv_refuse(problem, "messages", "messages[%zu].tool_calls has %zu calls, and at most %d are taken", i, n_calls,
                              (int)MAX_CALLS);
        ask->n_calls += n_calls;
        if (!srv_ask_check_history(ask, "messages", problem))
            return 0;
    }
    ask->n_results += app_json_is(role, "tool");
    if (app_json_is(role, "tool") && (!srv_ask_check_history(ask, "messages", problem) || !check_result(message, *calls, i, problem)))
        return 0;
    app_json tools = srv_get(message, "tools");
    if ((app_json_is(role, "system") || app_json_is(role, "developer")) && tools.text) {
        char where[48];
        snprintf(where, sizeof where, "messages[%zu].tools", i);
        return read_tools(ask, tools, where, rules, problem);
    }
    return 1;
}

static int read_messages(srv_ask *ask, const srv_fields *fields, const srv_rules *rules)
{
    app_json messages = srv_field(fields, "messages"), message, calls = {NULL, 0};
    size_t i = 0;
    if (!srv_is_array(messages))
        return srv_refuse(fields->problem, "messages", messages.text ? "messages must be an array" : "messages is missing");
    for (size_t at = 0; app_json_next(NULL, &message, &at, messages); i++)
        if (!read_message(ask, message, &calls, i, rules, fields->problem))
            return 0;
    if (!i)
        return srv_refuse(fields->problem, "messages", "messages is empty; at least one is wanted");
    app_buffer_add(&ask->messages, messages.text + 1, messages.n - 2);
    return 1;
}

/* ---- tools ------------------------------------------------------------------------------------------------------- */

/* The vendor's own rules: a name of letters, digits, _ and - that begins with a letter or _; parameters without a choice at their root, and
 * no $ref beside other keys. */
static int has_loose_ref(app_json schema)
{
    app_json key, value;
    size_t n = srv_length(schema);
    for (size_t at = 0; app_json_next(&key, &value, &at, schema);)
        if ((key.text && app_json_is(key, "$ref") && n > 1) || has_loose_ref(value))
            return 1;
    return 0;
}

static int check_strict_tool(app_json function, const char *where, srv_problem *problem)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", more[] = "0123456789-";
    app_json name = srv_get(function, "name"), parameters = srv_get(function, "parameters");
    for (size_t i = 1; i + 1 < name.n; i++)
        if (!memchr(letters, name.text[i], sizeof letters - 1) && (i == 1 || !memchr(more, name.text[i], sizeof more - 1)))
            return srv_refuse(problem, "tools", "%s: the name %.*s is none of the vendor's: a letter, then letters, digits, _ and -", where,
                              name.n < 80 ? (int)name.n : 80, name.text);
    if (srv_get(parameters, "anyOf").text || srv_get(parameters, "oneOf").text || srv_get(parameters, "allOf").text)
        return srv_refuse(problem, "tools", "%s: parameters have a choice at their root, which the vendor refuses", where);
    if (has_loose_ref(parameters))
        return srv_refuse(problem, "tools", "%s: a $ref stands beside other keys, which the vendor refuses", where);
    return 1;
}

static int read_tools(srv_ask *ask, app_json tools, const char *where, const srv_rules *rules, srv_problem *problem)
{
    app_json tool;
    size_t i = 0;
    if (!srv_is_array(tools))
        return srv_refuse(problem, where, "%s must be an array", where);
    for (size_t at = 0; app_json_next(NULL, &tool, &at, tools); i++) {
        app_json type = srv_get(tool, "type"), function = srv_get(tool, "function"), name = srv_get(function, "name");
        char place[80];
        snprintf(place, sizeof place, "%s[%zu]", where, i);
        if (type.text && !app_json_is(type, "function"))
            return srv_refuse(problem, where, "%s.type is %.*s, wanted \"function\"", place, type.n < 40 ? (int)type.n : 40, type.text);
        if (!srv_is_string(name) || app_json_is(name, ""))
            return srv_refuse(problem, where, "%s.function.name must be a string that is not empty", place);
        if (rules->is_strict && !check_strict_tool(function, place, problem))
            return 0;
        srv_ask_add_name(&ask->names, name);
        ask->has_tools = 1;
    }
    return 1;
}

static int read_choice(srv_ask *ask, const srv_fields *fields)
{
    static const char *const words[] = {"auto", "none", "required"};
    app_json choice = srv_field(fields, "tool_choice"), name = srv_get(srv_get(choice, "function"), "name");
    int parallel = 1;
    if (!srv_field_flag(fields, "parallel_tool_calls", &parallel))
        return 0;
    ask->one_call = !parallel;
    if (!choice.text)
        return 1;
    if (srv_is_object(choice)) {
        if (!app_json_is(srv_get(choice, "type"), "function") || !srv_is_string(name))
            return srv_refuse(fields->problem, "tool_choice",
                              "tool_choice is an object, wanted {\"type\":\"function\",\"function\":{\"name\":...}}");
        ask->choice = SRV_CHOICE_NAMED;
        app_json_decode(&ask->chosen, name);
        return srv_ask_check_choice(ask, fields->problem);
    }
    for (int i = 0; i < 3; i++)
        if (app_json_is(choice, words[i])) {
            ask->choice = (srv_choice)i;
            return srv_ask_check_choice(ask, fields->problem);
        }
    return srv_refuse(fields->problem, "tool_choice", "tool_choice is %.*s, wanted auto, none, required or a named function",
                      choice.n < 40 ? (int)choice.n : 40, choice.text);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

int srv_ask_format(srv_ask *ask, app_json format, srv_problem *problem)
{
    app_json type = srv_get(format, "type"), outer = srv_get(format, "json_schema"), strict = srv_get(outer, "strict");
    if (!format.text || app_json_is(type, "text"))
        return 1;
    if (!srv_is_object(format))
        return srv_refuse(problem, "response_format", "response_format must be an object");
    int has_schema = app_json_is(type, "json_schema");
    if (!has_schema && !app_json_is(type, "json_object"))
        return srv_refuse(problem, "response_format", "response_format.type is %.*s, wanted text, json_object or json_schema",
                          type.n < 40 ? (int)type.n : 40, type.text ? type.text : "");
    if (has_schema && !srv_is_object(outer))
        return srv_refuse(problem, "response_format", "response_format.json_schema must be an object");
    if (has_schema && (!srv_is_string(srv_get(outer, "name")) || app_json_is(srv_get(outer, "name"), "")))
        return srv_refuse(problem, "response_format", "response_format.json_schema.name must be a string that is not empty");
    if (has_schema && !srv_is_object(srv_get(outer, "schema")))
        return srv_refuse(problem, "response_format", "response_format.json_schema.schema must be an object");
    if (strict.text && app_json_kind(strict) != 't' && app_json_kind(strict) != 'f')
        return srv_refuse(problem, "response_format", "response_format.json_schema.strict must be true or false");
    ask->format = format;
    return 1;
}

/* thinking.type decides, then chat_template_kwargs, then an effort of none; thinking.effort goes before reasoning_effort. */
static int read_thinking(srv_ask *ask, const srv_fields *fields, const srv_rules *rules)
{
    app_json thinking = srv_field(fields, "thinking"), type = srv_get(thinking, "type"), keep = srv_get(thinking, "keep");
    app_json extra = srv_field(fields, "chat_template_kwargs"), flag = srv_get(extra, "thinking"), effort = srv_get(thinking, "effort");
    srv_problem *problem = fields->problem;
    if (!flag.text)
        flag = srv_get(extra, "enable_thinking");
    if (thinking.text && !srv_is_object(thinking))
        return srv_refuse(problem, "thinking", "thinking must be an object with type, effort and keep");
    if (type.text && !app_json_is(type, "enabled") && !app_json_is(type, "disabled"))
        return srv_refuse(problem, "thinking", "thinking.type is %.*s, wanted enabled or disabled", type.n < 40 ? (int)type.n : 40,
                          type.text);
    if (keep.text && !app_json_is(keep, "all"))
        return srv_refuse(problem, "thinking", "thinking.keep is %.*s, wanted all", keep.n < 40 ? (int)keep.n : 40, keep.text);
    if (flag.text && app_json_kind(flag) != 't' && app_json_kind(flag) != 'f')
        return srv_refuse(problem, "chat_template_kwargs", "chat_template_kwargs.thinking must be true or false");
    if (!srv_ask_effort(ask, effort.text ? effort : srv_field(fields, "reasoning_effort"),
                        effort.text ? "thinking.effort" : "reasoning_effort", rules, problem))
        return 0;
    if (type.text)
        ask->thinking = app_json_is(type, "enabled");
    else if (flag.text)
        ask->thinking = app_json_kind(flag) == 't';
    return 1;
}

static int read_logprobs(srv_ask *ask, const srv_fields *fields)
{
    int wanted = 0;
    int64_t n_top = 0;
    if (!srv_field_flag(fields, "logprobs", &wanted) || !srv_field_int(fields, "top_logprobs", 0, 20, &n_top))
        return 0;
    if (!wanted && n_top)
        return srv_refuse(fields->problem, "top_logprobs", "top_logprobs is %d, but logprobs is not true", (int)n_top);
    ask->n_top = wanted ? (int)n_top : -1;
    return 1;
}

int srv_ask_stream(srv_ask *ask, const srv_fields *fields)
{
    app_json options = srv_field(fields, "stream_options");
    if (!srv_field_flag(fields, "stream", &ask->is_stream))
        return 0;
    if (options.text && !srv_is_object(options))
        return srv_refuse(fields->problem, "stream_options", "stream_options must be an object");
    ask->include_usage = app_json_kind(srv_get(options, "include_usage")) == 't';
    ask->include_internal = app_json_kind(srv_get(options, "include_internal_content")) == 't';
    return 1;
}

static int read_chat(srv_ask *ask, const srv_fields *fields, const srv_rules *rules)
{
    app_json tools = srv_field(fields, "tools");
    if (!srv_ask_model(fields, rules) || !srv_ask_stream(ask, fields) || !read_messages(ask, fields, rules))
        return 0;
    if (tools.text && !read_tools(ask, tools, "tools", rules, fields->problem))
        return 0;
    if (tools.text)
        app_buffer_add(&ask->tools, tools.text + 1, tools.n - 2);
    if (!read_choice(ask, fields) || !srv_ask_format(ask, srv_field(fields, "response_format"), fields->problem))
        return 0;
    if (!read_thinking(ask, fields, rules) || !srv_ask_sampling(ask, fields, rules) || !srv_ask_stops(ask, fields, "stop", rules))
        return 0;
    if (!read_logprobs(ask, fields) || !srv_ask_limit(ask, fields, "max_tokens") || !srv_ask_limit(ask, fields, "max_completion_tokens"))
        return 0;
    return srv_ask_render(ask, rules, fields->problem);
}

const srv_api srv_api_chat = {.path = "/v1/chat/completions",
                              .idle = ": waiting\n\n",
                              .id_prefix = "chatcmpl-",
                              .read = read_chat,
                              .start = srv_chat_start,
                              .event = srv_chat_event,
                              .end = srv_chat_end,
                              .fail = srv_chat_fail,
                              .whole = srv_chat_whole};
