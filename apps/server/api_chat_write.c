/* POST /v1/chat/completions: writing an answer. The stream keeps to the vendor's rules: one of content, reasoning_content and tool_calls in
 * a piece, an empty piece where reasoning ends, usage in the last choice. */
#include <string.h>

#include "api_chat.h"

enum { NOTHING, REASONING };

const char *srv_finish_name(srv_finish finish)
{
    static const char *const names[] = {"stop", "length", "tool_calls"};
    return names[finish];
}

static void begin_chunk(const srv_reply *reply, app_buffer *out)
{
    srv_add(out, "data: {\"id\":\"%s\",\"object\":\"chat.completion.chunk\",\"created\":%lld,\"model\":", reply->id.text,
            (long long)reply->created);
    app_buffer_json(out, reply->model, strlen(reply->model));
    app_buffer_text(out, ",\"choices\":[");
}

static void begin_delta(const srv_reply *reply, app_buffer *out)
{
    begin_chunk(reply, out);
    app_buffer_text(out, "{\"index\":0,\"delta\":{");
}

static void add_internal(const srv_reply *reply, app_buffer *out, const srv_batch *batch, const srv_event *event)
{
    if (!reply->ask->include_internal || !batch)
        return;
    app_buffer_text(out, ",\"internal_content\":{\"token_ids\":[");
    for (size_t i = 0; i < event->n_ids; i++)
        srv_add(out, "%s%d", i ? "," : "", batch->ids.ids[event->i_id + i]);
    app_buffer_text(out, "]}");
}

static void end_delta(app_buffer *out)
{
    app_buffer_text(out, "},\"finish_reason\":null}]}\n\n");
}

static void add_piece(const srv_reply *reply, app_buffer *out, const char *name, const srv_batch *batch, const srv_event *event)
{
    begin_delta(reply, out);
    srv_add(out, "\"%s\":", name);
    app_buffer_json(out, batch->text.text + event->at, event->n);
    add_internal(reply, out, batch, event);
    if (event->kind == SRV_CONTENT && reply->ask->n_top >= 0) {
        app_buffer_text(out, "},\"logprobs\":{\"content\":[");
        srv_reply_add_entries(out, reply->engine, batch, event);
        app_buffer_text(out, "]");
    }
    end_delta(out);
}

static void end_reasoning(srv_reply *reply, app_buffer *out)
{
    if (reply->block != REASONING)
        return;
    reply->block = NOTHING;
    begin_delta(reply, out);
    app_buffer_text(out, "\"reasoning_content\":\"\"");
    end_delta(out);
}

void srv_chat_start(srv_reply *reply, app_buffer *out)
{
    begin_delta(reply, out);
    app_buffer_text(out, "\"role\":\"assistant\",\"content\":\"\"");
    end_delta(out);
}

void srv_chat_event(srv_reply *reply, app_buffer *out, const srv_batch *batch, const srv_event *event)
{
    const srv_call *call = reply->n_calls ? &reply->calls[reply->n_calls - 1] : NULL;
    if (event->kind != SRV_REASONING)
        end_reasoning(reply, out);
    switch (event->kind) {
    case SRV_REASONING:
        reply->block = REASONING;
        add_piece(reply, out, "reasoning_content", batch, event);
        break;
    case SRV_CONTENT:
        add_piece(reply, out, "content", batch, event);
        break;
    case SRV_CALL:
        begin_delta(reply, out);
        srv_add(out, "\"tool_calls\":[{\"index\":%zu,\"id\":", reply->n_calls - 1);
        srv_add_string(out, &call->id);
        app_buffer_text(out, ",\"type\":\"function\",\"function\":{\"name\":");
        srv_add_string(out, &call->name);
        app_buffer_text(out, ",\"arguments\":\"\"}}]");
        add_internal(reply, out, batch, event);
        end_delta(out);
        break;
    case SRV_ARGUMENTS:
        begin_delta(reply, out);
        srv_add(out, "\"tool_calls\":[{\"index\":%zu,\"function\":{\"arguments\":", reply->n_calls - 1);
        app_buffer_json(out, batch->text.text + event->at, event->n);
        app_buffer_text(out, "}}]");
        add_internal(reply, out, batch, event);
        end_delta(out);
        break;
    case SRV_CALL_END:
        break;
    }
}

void srv_chat_end(srv_reply *reply, app_buffer *out)
{
    end_reasoning(reply, out);
    begin_delta(reply, out);
    srv_add(out, "},\"finish_reason\":\"%s\",\"usage\":", srv_finish_name(reply->state.finish));
    srv_reply_add_usage(out, reply);
    app_buffer_text(out, "}]}\n\n");
    if (reply->ask->include_usage) {
        begin_chunk(reply, out);
        app_buffer_text(out, "],\"usage\":");
        srv_reply_add_usage(out, reply);
        app_buffer_text(out, "}\n\n");
    }
    app_buffer_text(out, "data: [DONE]\n\n");
}

/* One event for two kinds of clients: those that look for an error, and those that wait for a reason to finish. */
void srv_chat_fail(srv_reply *reply, app_buffer *out, const srv_problem *problem)
{
    app_buffer error = {0};
    srv_add_problem(&error, problem, 0);
    begin_chunk(reply, out);
    srv_add(out, "{\"index\":0,\"delta\":{},\"finish_reason\":\"error\"}],%s\n\ndata: [DONE]\n\n", error.text + 1);
    app_buffer_free(&error);
}

void srv_chat_whole(srv_reply *reply, app_buffer *out)
{
    srv_add(out, "{\"id\":\"%s\",\"object\":\"chat.completion\",\"created\":%lld,\"model\":", reply->id.text, (long long)reply->created);
    app_buffer_json(out, reply->model, strlen(reply->model));
    app_buffer_text(out, ",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":");
    if (reply->content.n || !reply->n_calls)
        srv_add_string(out, &reply->content);
    else
        app_buffer_text(out, "null");
    if (reply->reasoning.n) {
        app_buffer_text(out, ",\"reasoning_content\":");
        srv_add_string(out, &reply->reasoning);
    }
    for (size_t i = 0; i < reply->n_calls; i++) {
        const srv_call *call = &reply->calls[i];
        app_buffer_text(out, i ? "},{\"id\":" : ",\"tool_calls\":[{\"id\":");
        srv_add_string(out, &call->id);
        app_buffer_text(out, ",\"type\":\"function\",\"function\":{\"name\":");
        srv_add_string(out, &call->name);
        app_buffer_text(out, ",\"arguments\":");
        srv_add_string(out, &call->arguments);
        app_buffer_text(out, "}");
    }
    app_buffer_text(out, reply->n_calls ? "}]}" : "}");
    if (reply->ask->n_top >= 0) {
        app_buffer_text(out, ",\"logprobs\":{\"content\":[");
        app_buffer_add(out, reply->entries.text, reply->entries.n);
        app_buffer_text(out, "]}");
    }
    srv_add(out, ",\"finish_reason\":\"%s\"}],\"usage\":", srv_finish_name(reply->state.finish));
    srv_reply_add_usage(out, reply);
    app_buffer_text(out, "}");
}
