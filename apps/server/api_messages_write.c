#include <string.h>

#include "api_messages.h"

enum { NOTHING, THINKING, TEXT, TOOL };

/* Any text will do as a signature: thinking that comes back is taken as it is. */
static const char signature[] = "k3";

static void begin_event(app_buffer *out, const char *type)
{
    srv_add(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

/* Tokens that were kept count apart, as the API has it: the prompt is the sum. */
static void add_usage(app_buffer *out, const srv_state *state, int64_t n_new)
{
    srv_add(out, "{\"input_tokens\":%lld,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%lld,\"output_tokens\":%lld}",
            (long long)(state->n_prompt - state->n_cached), (long long)state->n_cached, (long long)n_new);
}

static void begin_message(const srv_reply *reply, app_buffer *out)
{
    srv_add(out, "\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", reply->id.text);
    app_buffer_json(out, reply->model, strlen(reply->model));
    app_buffer_text(out, ",\"content\":[");
}

static void add_reason(const srv_reply *reply, app_buffer *out)
{
    static const char *const names[] = {"end_turn", "max_tokens", "tool_use"};
    int i_stop = reply->state.i_stop;
    int by_stop = reply->state.finish == SRV_FINISH_STOP && i_stop >= 0;
    srv_add(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", by_stop ? "stop_sequence" : names[reply->state.finish]);
    if (by_stop)
        srv_add_string(out, &reply->ask->stops[i_stop]);
    else
        app_buffer_text(out, "null");
}

void srv_messages_start(srv_reply *reply, app_buffer *out)
{
    begin_event(out, "message_start");
    app_buffer_text(out, ",\"message\":{");
    begin_message(reply, out);
    app_buffer_text(out, "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    add_usage(out, &reply->state, 0);
    app_buffer_text(out, "}}\n\n");
}

static void begin_delta(const srv_reply *reply, app_buffer *out, const char *type, const char *member)
{
    begin_event(out, "content_block_delta");
    srv_add(out, ",\"index\":%zu,\"delta\":{\"type\":\"%s\",\"%s\":", reply->i_block, type, member);
}

static void close_block(srv_reply *reply, app_buffer *out)
{
    if (reply->block == NOTHING)
        return;
    if (reply->block == THINKING) {
        begin_delta(reply, out, "signature_delta", "signature");
        srv_add(out, "\"%s\"}}\n\n", signature);
    }
    begin_event(out, "content_block_stop");
    srv_add(out, ",\"index\":%zu}\n\n", reply->i_block++);
    reply->block = NOTHING;
}

static void open_block(srv_reply *reply, app_buffer *out, int block)
{
    if (reply->block == block && block != TOOL)
        return;
    close_block(reply, out);
    reply->block = block;
    begin_event(out, "content_block_start");
    srv_add(out, ",\"index\":%zu,\"content_block\":", reply->i_block);
    if (block == THINKING) {
        app_buffer_text(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    } else if (block == TEXT) {
        app_buffer_text(out, "{\"type\":\"text\",\"text\":\"\"}");
    } else {
        const srv_call *call = &reply->calls[reply->n_calls - 1];
        app_buffer_text(out, "{\"type\":\"tool_use\",\"id\":");
        srv_add_string(out, &call->id);
        app_buffer_text(out, ",\"name\":");
        srv_add_string(out, &call->name);
        app_buffer_text(out, ",\"input\":{}}");
    }
    app_buffer_text(out, "}\n\n");
}

void srv_messages_event(srv_reply *reply, app_buffer *out, const srv_batch *batch, const srv_event *event)
{
    static const struct {
        int block;
        const char *type, *member;
    } deltas[] = {[SRV_REASONING] = {THINKING, "thinking_delta", "thinking"},
                  [SRV_CONTENT] = {TEXT, "text_delta", "text"},
                  [SRV_ARGUMENTS] = {TOOL, "input_json_delta", "partial_json"}};
    if (event->kind == SRV_CALL) {
        open_block(reply, out, TOOL);
        return;
    }
    if (event->kind == SRV_CALL_END) {
        close_block(reply, out);
        return;
    }
    if (event->kind != SRV_ARGUMENTS)
        open_block(reply, out, deltas[event->kind].block);
    begin_delta(reply, out, deltas[event->kind].type, deltas[event->kind].member);
    app_buffer_json(out, batch->text.text + event->at, event->n);
    app_buffer_text(out, "}}\n\n");
}

void srv_messages_end(srv_reply *reply, app_buffer *out)
{
    close_block(reply, out);
    begin_event(out, "message_delta");
    app_buffer_text(out, ",\"delta\":{");
    add_reason(reply, out);
    app_buffer_text(out, "},\"usage\":");
    add_usage(out, &reply->state, reply->state.n_new);
    app_buffer_text(out, "}\n\n");
    begin_event(out, "message_stop");
    app_buffer_text(out, "}\n\n");
}

void srv_messages_fail(srv_reply *reply, app_buffer *out, const srv_problem *problem)
{
    (void)reply;
    app_buffer_text(out, "event: error\ndata: ");
    srv_add_problem(out, problem, 1);
    app_buffer_text(out, "\n\n");
}

static void begin_block(app_buffer *out, size_t *n, const char *type)
{
    srv_add(out, "%s{\"type\":\"%s\",", (*n)++ ? "," : "", type);
}

void srv_messages_whole(srv_reply *reply, app_buffer *out)
{
    size_t n = 0;
    app_buffer_text(out, "{");
    begin_message(reply, out);
    if (reply->reasoning.n) {
        begin_block(out, &n, "thinking");
        app_buffer_text(out, "\"thinking\":");
        srv_add_string(out, &reply->reasoning);
        srv_add(out, ",\"signature\":\"%s\"}", signature);
    }
    if (reply->content.n) {
        begin_block(out, &n, "text");
        app_buffer_text(out, "\"text\":");
        srv_add_string(out, &reply->content);
        app_buffer_text(out, "}");
    }
    for (size_t i = 0; i < reply->n_calls; i++) {
        const srv_call *call = &reply->calls[i];
        begin_block(out, &n, "tool_use");
        app_buffer_text(out, "\"id\":");
        srv_add_string(out, &call->id);
        app_buffer_text(out, ",\"name\":");
        srv_add_string(out, &call->name);
        app_buffer_text(out, ",\"input\":");
        app_buffer_add(out, call->arguments.text, call->arguments.n);
        app_buffer_text(out, "}");
    }
    app_buffer_text(out, "],");
    add_reason(reply, out);
    app_buffer_text(out, ",\"usage\":");
    add_usage(out, &reply->state, reply->state.n_new);
    app_buffer_text(out, "}");
}
