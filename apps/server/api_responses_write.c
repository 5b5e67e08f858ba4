#include <string.h>

#include "api_responses.h"

enum { NOTHING, REASONING, MESSAGE, CALL };

/* ---- items ------------------------------------------------------------------------------------------------------- */

static int is_custom(const srv_reply *reply, const srv_call *call)
{
    return srv_ask_has_name(&reply->ask->custom, call->name.text);
}

/* Ids of items follow from the answer's and their place. */
static void add_item_id(const srv_reply *reply, app_buffer *out, int kind, size_t i_call)
{
    static const char *const prefixes[] = {"", "rs", "msg", "fc"};
    const char *hex = reply->id.text + strlen(reply->api->id_prefix);
    if (kind == CALL)
        srv_add(out, "\"%s_%s%zu\"", is_custom(reply, &reply->calls[i_call]) ? "ctc" : "fc", hex, i_call);
    else
        srv_add(out, "\"%s_%s\"", prefixes[kind], hex);
}

static void add_part(app_buffer *out, int kind, const app_buffer *text)
{
    app_buffer_text(out, kind == REASONING ? "{\"type\":\"reasoning_text\",\"text\":" : "{\"type\":\"output_text\",\"text\":");
    srv_add_string(out, text);
    app_buffer_text(out, kind == REASONING ? "}" : ",\"annotations\":[],\"logprobs\":[]}");
}

/* What a free-form tool is given: the text of its one argument. */
static void add_input(app_buffer *out, const srv_call *call)
{
    size_t wrong;
    app_json input = srv_get(app_json_whole(call->arguments.text, call->arguments.n, &wrong), "input");
    if (srv_is_string(input))
        srv_add_json(out, input);
    else
        srv_add_string(out, &call->arguments);
}

static void add_call(const srv_reply *reply, app_buffer *out, const srv_call *call, int is_done)
{
    int custom = is_custom(reply, call);
    static const app_buffer empty;
    app_buffer_text(out, custom ? ",\"type\":\"custom_tool_call\",\"call_id\":" : ",\"type\":\"function_call\",\"call_id\":");
    srv_add_string(out, &call->id);
    app_buffer_text(out, ",\"name\":");
    srv_add_string(out, &call->name);
    app_buffer_text(out, custom ? ",\"input\":" : ",\"arguments\":");
    if (is_done && custom)
        add_input(out, call);
    else
        srv_add_string(out, is_done ? &call->arguments : &empty);
}

static void add_item(const srv_reply *reply, app_buffer *out, int kind, size_t i_call, int is_done)
{
    app_buffer_text(out, "{\"id\":");
    add_item_id(reply, out, kind, i_call);
    if (kind == CALL) {
        add_call(reply, out, &reply->calls[i_call], is_done);
    } else {
        app_buffer_text(out, kind == REASONING ? ",\"type\":\"reasoning\",\"summary\":[],\"content\":["
                                               : ",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
        if (is_done)
            add_part(out, kind, kind == REASONING ? &reply->reasoning : &reply->content);
        app_buffer_text(out, "]");
    }
    if (kind == REASONING && reply->ask->include_encrypted) {
        app_buffer text = {0};
        app_buffer_text(&text, SRV_REASONING_PREFIX);
        app_buffer_add(&text, reply->reasoning.text, is_done ? reply->reasoning.n : 0);
        app_buffer_text(out, ",\"encrypted_content\":");
        srv_add_string(out, &text);
        app_buffer_free(&text);
    }
    srv_add(out, ",\"status\":\"%s\"}", is_done ? "completed" : "in_progress");
}

/* ---- the response ------------------------------------------------------------------------------------------------ */

static void add_usage(const srv_reply *reply, app_buffer *out)
{
    const srv_state *s = &reply->state;
    srv_add(out,
            "{\"input_tokens\":%lld,\"input_tokens_details\":{\"cached_tokens\":%lld},\"output_tokens\":%lld,"
            "\"output_tokens_details\":{\"reasoning_tokens\":%lld},\"total_tokens\":%lld}",
            (long long)s->n_prompt, (long long)s->n_cached, (long long)s->n_new, (long long)s->n_reasoning,
            (long long)(s->n_prompt + s->n_new));
}

static void add_format(const srv_ask *ask, app_buffer *out)
{
    app_json schema = srv_get(ask->format, "json_schema");
    if (!ask->format.text) {
        app_buffer_text(out, "{\"type\":\"text\"}");
        return;
    }
    app_buffer_text(out, "{\"type\":");
    srv_add_json(out, srv_get(ask->format, "type"));
    if (schema.text) {
        app_buffer_text(out, ",\"name\":");
        srv_add_json(out, srv_get(schema, "name"));
        app_buffer_text(out, ",\"schema\":");
        srv_add_json(out, srv_get(schema, "schema"));
    }
    app_buffer_text(out, "}");
}

/* status: in_progress, completed, incomplete or failed. */
static void add_response(const srv_reply *reply, app_buffer *out, const char *status, const srv_problem *problem)
{
    const srv_ask *ask = reply->ask;
    int is_running = strcmp(status, "in_progress") == 0;
    srv_add(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"error\":", reply->id.text,
            (long long)reply->created, status);
    if (problem) {
        srv_add(out, "{\"code\":\"%s\",\"message\":", problem->code ? problem->code : "server_error");
        app_buffer_json(out, problem->text, strlen(problem->text));
        app_buffer_text(out, "}");
    } else {
        app_buffer_text(out, "null");
    }
    srv_add(out, ",\"incomplete_details\":%s,\"instructions\":",
            strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
    srv_add_json(out, ask->instructions);
    app_buffer_text(out, ",\"max_output_tokens\":");
    if (ask->max_tokens)
        srv_add(out, "%lld", (long long)ask->max_tokens);
    else
        app_buffer_text(out, "null");
    app_buffer_text(out, ",\"metadata\":{},\"model\":");
    app_buffer_json(out, reply->model, strlen(reply->model));
    app_buffer_text(out, ",\"output\":[");
    app_buffer_add(out, reply->items.text, reply->items.n);
    srv_add(out, "],\"parallel_tool_calls\":%s,\"previous_response_id\":null,\"reasoning\":{\"effort\":\"%s\",\"summary\":null},",
            ask->one_call ? "false" : "true",
            !ask->thinking ? "none"
            : ask->effort  ? ask->effort
                           : "max");
    srv_add(out, "\"store\":false,\"temperature\":%g,\"top_p\":%g,\"text\":{\"format\":", (double)ask->sampling.temperature,
            (double)ask->sampling.top_p);
    add_format(ask, out);
    app_buffer_text(out, "},\"tool_choice\":");
    if (ask->reply_choice.text)
        srv_add_json(out, ask->reply_choice);
    else
        app_buffer_text(out, "\"auto\"");
    app_buffer_text(out, ",\"tools\":");
    if (ask->reply_tools.text)
        srv_add_json(out, ask->reply_tools);
    else
        app_buffer_text(out, "[]");
    app_buffer_text(out, ",\"truncation\":\"disabled\",\"usage\":");
    if (is_running)
        app_buffer_text(out, "null");
    else
        add_usage(reply, out);
    app_buffer_text(out, "}");
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */

static void begin_event(srv_reply *reply, app_buffer *out, const char *type)
{
    srv_add(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%zu", type, type, reply->sequence++);
}

static void add_response_event(srv_reply *reply, app_buffer *out, const char *type, const char *status, const srv_problem *problem)
{
    begin_event(reply, out, type);
    app_buffer_text(out, ",\"response\":");
    add_response(reply, out, status, problem);
    app_buffer_text(out, "}\n\n");
}

static size_t last_call(const srv_reply *reply)
{
    return reply->n_calls ? reply->n_calls - 1 : 0;
}

static void begin_item_event(srv_reply *reply, app_buffer *out, const char *type)
{
    begin_event(reply, out, type);
    srv_add(out, ",\"output_index\":%zu,\"item_id\":", reply->i_block);
    add_item_id(reply, out, reply->block, last_call(reply));
    if (reply->block != CALL)
        app_buffer_text(out, ",\"content_index\":0");
}

static void add_item_event(srv_reply *reply, app_buffer *out, const char *type, int is_done)
{
    begin_event(reply, out, type);
    srv_add(out, ",\"output_index\":%zu,\"item\":", reply->i_block);
    add_item(reply, out, reply->block, last_call(reply), is_done);
    app_buffer_text(out, "}\n\n");
}

void srv_responses_start(srv_reply *reply, app_buffer *out)
{
    add_response_event(reply, out, "response.created", "in_progress", NULL);
    add_response_event(reply, out, "response.in_progress", "in_progress", NULL);
}

static void keep_item(srv_reply *reply, int kind, size_t i_call)
{
    srv_ask_comma(&reply->items);
    add_item(reply, &reply->items, kind, i_call, 1);
}

static void close_text(srv_reply *reply, app_buffer *out)
{
    int kind = reply->block;
    const app_buffer *text = kind == REASONING ? &reply->reasoning : &reply->content;
    begin_item_event(reply, out, kind == REASONING ? "response.reasoning_text.done" : "response.output_text.done");
    app_buffer_text(out, ",\"text\":");
    srv_add_string(out, text);
    app_buffer_text(out, kind == REASONING ? "}\n\n" : ",\"logprobs\":[]}\n\n");
    begin_item_event(reply, out, "response.content_part.done");
    app_buffer_text(out, ",\"part\":");
    add_part(out, kind, text);
    app_buffer_text(out, "}\n\n");
}

static void close_call(srv_reply *reply, app_buffer *out)
{
    const srv_call *call = &reply->calls[last_call(reply)];
    int custom = is_custom(reply, call);
    if (custom) {
        begin_item_event(reply, out, "response.custom_tool_call_input.delta");
        app_buffer_text(out, ",\"delta\":");
        add_input(out, call);
        app_buffer_text(out, "}\n\n");
    }
    begin_item_event(reply, out, custom ? "response.custom_tool_call_input.done" : "response.function_call_arguments.done");
    app_buffer_text(out, custom ? ",\"input\":" : ",\"arguments\":");
    if (custom)
        add_input(out, call);
    else
        srv_add_string(out, &call->arguments);
    app_buffer_text(out, ",\"name\":");
    srv_add_string(out, &call->name);
    app_buffer_text(out, "}\n\n");
}

static void close_item(srv_reply *reply, app_buffer *out)
{
    if (reply->block == NOTHING)
        return;
    if (reply->block == CALL)
        close_call(reply, out);
    else
        close_text(reply, out);
    add_item_event(reply, out, "response.output_item.done", 1);
    keep_item(reply, reply->block, last_call(reply));
    reply->block = NOTHING;
    reply->i_block++;
}

static void open_item(srv_reply *reply, app_buffer *out, int kind)
{
    static const app_buffer empty;
    if (reply->block == kind && kind != CALL)
        return;
    close_item(reply, out);
    reply->block = kind;
    add_item_event(reply, out, "response.output_item.added", 0);
    if (kind == CALL)
        return;
    begin_item_event(reply, out, "response.content_part.added");
    app_buffer_text(out, ",\"part\":");
    add_part(out, kind, &empty);
    app_buffer_text(out, "}\n\n");
}

void srv_responses_event(srv_reply *reply, app_buffer *out, const srv_batch *batch, const srv_event *event)
{
    const char *type = "response.function_call_arguments.delta";
    if (event->kind == SRV_CALL) {
        /* What came before ends before the call is known of. */
        reply->n_calls--;
        close_item(reply, out);
        reply->n_calls++;
        open_item(reply, out, CALL);
        return;
    }
    if (event->kind == SRV_CALL_END) {
        close_item(reply, out);
        return;
    }
    if (event->kind == SRV_ARGUMENTS && is_custom(reply, &reply->calls[last_call(reply)]))
        return;
    if (event->kind != SRV_ARGUMENTS) {
        open_item(reply, out, event->kind == SRV_REASONING ? REASONING : MESSAGE);
        type = event->kind == SRV_REASONING ? "response.reasoning_text.delta" : "response.output_text.delta";
    }
    begin_item_event(reply, out, type);
    app_buffer_text(out, ",\"delta\":");
    app_buffer_json(out, batch->text.text + event->at, event->n);
    app_buffer_text(out, event->kind == SRV_CONTENT ? ",\"logprobs\":[]}\n\n" : "}\n\n");
}

void srv_responses_end(srv_reply *reply, app_buffer *out)
{
    int is_cut = reply->state.finish == SRV_FINISH_LENGTH;
    close_item(reply, out);
    add_response_event(reply, out, is_cut ? "response.incomplete" : "response.completed", is_cut ? "incomplete" : "completed", NULL);
}

void srv_responses_fail(srv_reply *reply, app_buffer *out, const srv_problem *problem)
{
    add_response_event(reply, out, "response.failed", "failed", problem);
}

void srv_responses_whole(srv_reply *reply, app_buffer *out)
{
    if (reply->reasoning.n)
        keep_item(reply, REASONING, 0);
    if (reply->content.n)
        keep_item(reply, MESSAGE, 0);
    for (size_t i = 0; i < reply->n_calls; i++)
        keep_item(reply, CALL, i);
    add_response(reply, out, reply->state.finish == SRV_FINISH_LENGTH ? "incomplete" : "completed", NULL);
}
