#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api.h"

void srv_reply_open(srv_reply *reply, const srv_api *api, const srv_ask *ask, const k3_engine *engine, const char *model)
{
    *reply = (srv_reply){.api = api, .ask = ask, .engine = engine, .model = model, .created = (int64_t)time(NULL)};
    reply->state = (srv_state){.i_stop = -1, .n_prompt = ask->n_prompt};
    srv_add_id(&reply->id, api->id_prefix);
}

void srv_reply_free(srv_reply *reply)
{
    for (size_t i = 0; i < reply->n_calls; i++) {
        app_buffer_free(&reply->calls[i].name);
        app_buffer_free(&reply->calls[i].arguments);
        app_buffer_free(&reply->calls[i].id);
    }
    free(reply->calls);
    app_buffer_free(&reply->id);
    app_buffer_free(&reply->reasoning);
    app_buffer_free(&reply->content);
    app_buffer_free(&reply->entries);
    app_buffer_free(&reply->items);
    app_buffer_free(&reply->item_id);
    *reply = (srv_reply){0};
}

/* The id is the tool's name and the number of the call in the whole conversation, as the model's vendor has it. */
static void add_call(srv_reply *reply, const char *name, size_t n)
{
    if (reply->n_calls == reply->capacity) {
        size_t capacity = 2 * reply->capacity + 4;
        srv_call *calls = app_alloc(capacity, sizeof *calls);
        if (reply->n_calls)
            memcpy(calls, reply->calls, reply->n_calls * sizeof *calls);
        free(reply->calls);
        reply->calls = calls;
        reply->capacity = capacity;
    }
    srv_call *call = &reply->calls[reply->n_calls];
    app_buffer_add(&call->name, name, n);
    app_buffer_add(&call->arguments, "", 0);
    app_buffer_add(&call->id, name, n);
    srv_add(&call->id, "_%zu", reply->ask->n_calls + reply->n_calls++);
}

void srv_reply_take(srv_reply *reply, const srv_batch *batch, const srv_event *event)
{
    const char *text = batch->text.text + event->at;
    switch (event->kind) {
    case SRV_REASONING:
        app_buffer_add(&reply->reasoning, text, event->n);
        break;
    case SRV_CONTENT:
        app_buffer_add(&reply->content, text, event->n);
        app_buffer_text(&reply->entries, reply->entries.n && event->n_entries ? "," : "");
        srv_reply_add_entries(&reply->entries, reply->engine, batch, event);
        break;
    case SRV_CALL:
        add_call(reply, text, event->n);
        break;
    case SRV_ARGUMENTS:
        app_buffer_add(&reply->calls[reply->n_calls - 1].arguments, text, event->n);
        break;
    case SRV_CALL_END:
        break;
    }
}

/* A token may be a part of a character only; then it is spelled by its bytes. */
static void add_text(app_buffer *out, const char *bytes, size_t n)
{
    k3_utf8 utf8 = {0};
    app_buffer spelled = {0};
    char *text = app_alloc(3 * (n + 3), 1);
    size_t n_text = k3_utf8_push(&utf8, text, bytes, n);
    int is_whole = n_text == n && memcmp(text, bytes, n) == 0;
    free(text);
    if (is_whole) {
        app_buffer_json(out, bytes, n);
        return;
    }
    app_buffer_text(&spelled, "bytes:");
    for (size_t i = 0; i < n; i++)
        srv_add(&spelled, "\\x%02x", (unsigned char)bytes[i]);
    srv_add_string(out, &spelled);
    app_buffer_free(&spelled);
}

static void add_token(app_buffer *out, const k3_engine *engine, int32_t id, float logprob)
{
    const char *bytes = "";
    size_t n = 0;
    (void)k3_token_bytes(engine, &bytes, &n, id, NULL);
    app_buffer_text(out, "{\"token\":");
    add_text(out, bytes, n);
    srv_add(out, ",\"logprob\":%.9g,\"bytes\":[", logprob < -9999 ? -9999.0 : (double)logprob);
    for (size_t i = 0; i < n; i++)
        srv_add(out, "%s%d", i ? "," : "", (unsigned char)bytes[i]);
    app_buffer_text(out, "]");
}

void srv_reply_add_entries(app_buffer *out, const k3_engine *engine, const srv_batch *batch, const srv_event *event)
{
    for (size_t i = 0; i < event->n_entries; i++) {
        const srv_entry *e = &batch->entries[event->i_entry + i];
        app_buffer_text(out, i ? "," : "");
        add_token(out, engine, e->id, e->logprob);
        app_buffer_text(out, ",\"top_logprobs\":[");
        for (int k = 0; k < e->n_top; k++) {
            app_buffer_text(out, k ? "," : "");
            add_token(out, engine, e->top_ids[k], e->top_logprobs[k]);
            app_buffer_text(out, "}");
        }
        app_buffer_text(out, "]}");
    }
}

void srv_reply_add_usage(app_buffer *out, const srv_reply *reply)
{
    const srv_state *s = &reply->state;
    srv_add(out,
            "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,\"prompt_tokens_details\":{\"cached_tokens\":%lld},"
            "\"completion_tokens_details\":{\"reasoning_tokens\":%lld}}",
            (long long)s->n_prompt, (long long)s->n_new, (long long)(s->n_prompt + s->n_new), (long long)s->n_cached,
            (long long)s->n_reasoning);
}

void srv_reply_problem(srv_problem *problem, const srv_state *state)
{
    if (state->was_cancelled)
        srv_deny(problem, 503, "server_stopping", "the answer was stopped because the server is being stopped");
    else
        srv_deny_error(problem, &state->err);
    if (!problem->text[0])
        srv_deny(problem, 500, NULL, "the answer failed");
}

void srv_reply_start(srv_reply *reply, app_buffer *out)
{
    if (reply->started || (reply->api->starts_with_usage && !reply->state.has_begun))
        return;
    reply->started = 1;
    reply->api->start(reply, out);
}

int srv_reply_pump(srv_reply *reply, srv_turn *turn, srv_batch *batch, app_buffer *out)
{
    srv_batch_clear(batch);
    srv_turn_take(turn, batch, &reply->state);
    if (out)
        srv_reply_start(reply, out);
    for (size_t i = 0; i < batch->n; i++) {
        srv_reply_take(reply, batch, &batch->events[i]);
        if (out)
            reply->api->event(reply, out, batch, &batch->events[i]);
    }
    if (out && reply->state.has_failed) {
        srv_problem problem;
        srv_reply_problem(&problem, &reply->state);
        reply->api->fail(reply, out, &problem);
    } else if (out && reply->state.has_ended) {
        reply->api->end(reply, out);
    }
    return reply->state.has_ended;
}
