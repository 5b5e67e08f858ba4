#include "merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void merged_free(merged *m)
{
    app_buffer *all[] = {&m->reasoning, &m->content, &m->finish, &m->usage, &m->logprobs, &m->internal};
    for (size_t i = 0; i < 6; i++)
        app_buffer_free(all[i]);
    for (size_t i = 0; i < m->n_calls; i++) {
        app_buffer_free(&m->calls[i].id);
        app_buffer_free(&m->calls[i].name);
        app_buffer_free(&m->calls[i].arguments);
    }
    *m = (merged){0};
}

static void assert_buffers_equal(const app_buffer *a, const app_buffer *b)
{
    assert_string_equal(a->n ? a->text : "", b->n ? b->text : "");
    assert_int_equal(a->n, b->n);
}

void assert_merged_equal(const merged *a, const merged *b)
{
    assert_buffers_equal(&a->reasoning, &b->reasoning);
    assert_buffers_equal(&a->content, &b->content);
    assert_buffers_equal(&a->finish, &b->finish);
    assert_buffers_equal(&a->usage, &b->usage);
    assert_buffers_equal(&a->logprobs, &b->logprobs);
    assert_int_equal(a->n_calls, b->n_calls);
    for (size_t i = 0; i < a->n_calls; i++) {
        assert_buffers_equal(&a->calls[i].id, &b->calls[i].id);
        assert_buffers_equal(&a->calls[i].name, &b->calls[i].name);
        assert_buffers_equal(&a->calls[i].arguments, &b->calls[i].arguments);
    }
}

app_json merge_at(app_json value, const char *path)
{
    while (*path) {
        char name[64];
        size_t n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        if (app_json_kind(value) == '[') {
            app_json item = {NULL, 0};
            size_t at = 0;
            for (int i = 0, wanted = atoi(name); i <= wanted; i++)
                if (!app_json_next(NULL, &item, &at, value))
                    return (app_json){NULL, 0};
            value = item;
        } else {
            value = app_json_get(value, name);
        }
        path += n + (path[n] == '.');
    }
    return value;
}

app_json merge_json(const char *text)
{
    size_t wrong;
    app_json value = app_json_whole(text, strlen(text), &wrong);
    if (!value.text)
        fail_msg("no JSON at byte %zu: %.500s", wrong, text);
    return value;
}

static void set_raw(app_buffer *out, app_json value)
{
    app_buffer_clear(out);
    app_buffer_add(out, value.text, value.n);
}

static size_t members(app_json object)
{
    app_json value;
    size_t n = 0;
    for (size_t at = 0; app_json_next(NULL, &value, &at, object);)
        n++;
    return n;
}

static struct merged_call *add_call(merged *m, app_json id, app_json name)
{
    assert_true(m->n_calls < MERGED_CALLS);
    struct merged_call *call = &m->calls[m->n_calls++];
    app_json_decode(&call->id, id);
    app_json_decode(&call->name, name);
    return call;
}

static void add_entries(merged *m, app_json entries)
{
    app_json entry;
    for (size_t at = 0; app_json_next(NULL, &entry, &at, entries);) {
        app_buffer_text(&m->logprobs, m->logprobs.n ? "," : "");
        app_buffer_add(&m->logprobs, entry.text, entry.n);
    }
}

/* ---- chat completions -------------------------------------------------------------------------------------------- */

typedef struct chat_state {
    app_buffer head; /* id, created and model of the first chunk */
    int has_role, reasoning_open, reasoning_done, has_finish;
} chat_state;

static void check_chat_head(chat_state *s, app_json chunk)
{
    app_buffer head = {0};
    assert_true(app_json_is(app_json_get(chunk, "object"), "chat.completion.chunk"));
    const char *const names[] = {"id", "created", "model"};
    for (size_t i = 0; i < 3; i++) {
        app_json value = app_json_get(chunk, names[i]);
        assert_non_null(value.text);
        app_buffer_add(&head, value.text, value.n);
    }
    if (!s->head.n)
        app_buffer_add(&s->head, head.text, head.n);
    assert_string_equal(s->head.text, head.text);
    app_buffer_free(&head);
}

static void merge_tool_calls(merged *m, app_json calls)
{
    int64_t index = -1;
    app_json call = merge_at(calls, "0"), function = app_json_get(call, "function");
    assert_int_equal(members(calls), 1);
    assert_true(app_json_int(app_json_get(call, "index"), &index));
    if (app_json_get(call, "id").text) {
        assert_int_equal(index, m->n_calls);
        assert_true(app_json_is(app_json_get(call, "type"), "function"));
        assert_true(app_json_is(app_json_get(function, "arguments"), ""));
        add_call(m, app_json_get(call, "id"), app_json_get(function, "name"));
    } else {
        assert_int_equal(index, m->n_calls - 1);
        assert_int_equal(members(call), 2);
        assert_int_equal(members(function), 1);
        app_json_decode(&m->calls[index].arguments, app_json_get(function, "arguments"));
    }
}

static void merge_delta(merged *m, chat_state *s, app_json choice)
{
    app_json delta = app_json_get(choice, "delta"), content = app_json_get(delta, "content");
    app_json reasoning = app_json_get(delta, "reasoning_content"), calls = app_json_get(delta, "tool_calls");
    size_t n_internal = app_json_get(delta, "internal_content").text != NULL;
    app_json id;
    for (size_t at = 0; app_json_next(NULL, &id, &at, merge_at(delta, "internal_content.token_ids"));) {
        app_buffer_add(&m->internal, id.text, id.n);
        app_buffer_text(&m->internal, ",");
    }
    assert_null(app_json_get(choice, "usage").text);
    assert_int_equal(members(delta), 1 + n_internal);
    if (reasoning.text) {
        assert_false(s->reasoning_done);
        s->reasoning_open = !app_json_is(reasoning, "");
        s->reasoning_done = !s->reasoning_open;
        app_json_decode(&m->reasoning, reasoning);
    } else {
        assert_false(s->reasoning_open);
    }
    if (content.text)
        app_json_decode(&m->content, content);
    if (calls.text)
        merge_tool_calls(m, calls);
    add_entries(m, merge_at(choice, "logprobs.content"));
}

static void merge_chat_chunk(merged *m, chat_state *s, app_json chunk)
{
    app_json choice = merge_at(chunk, "choices.0"), delta = app_json_get(choice, "delta"), finish = app_json_get(choice, "finish_reason");
    check_chat_head(s, chunk);
    if (app_json_get(chunk, "error").text) {
        m->has_error = 1;
        return;
    }
    if (!choice.text) {
        assert_true(s->has_finish);
        assert_true(app_json_equal(app_json_get(chunk, "usage"), merge_json(m->usage.text)));
        m->has_summary = 1;
        return;
    }
    assert_null(app_json_get(chunk, "usage").text);
    assert_non_null(finish.text);
    assert_false(s->has_finish);
    if (!s->has_role) {
        assert_true(app_json_is(app_json_get(delta, "role"), "assistant"));
        assert_true(app_json_is(app_json_get(delta, "content"), ""));
        assert_null(app_json_get(choice, "logprobs").text);
        s->has_role = 1;
    } else if (app_json_kind(finish) == 'n') {
        merge_delta(m, s, choice);
    } else {
        assert_int_equal(members(delta), 0);
        assert_false(s->reasoning_open);
        s->has_finish = 1;
        set_raw(&m->finish, finish);
        set_raw(&m->usage, app_json_get(choice, "usage"));
    }
}

static void merge_completion_chunk(merged *m, app_json chunk)
{
    app_json choice = merge_at(chunk, "choices.0"), finish = app_json_get(choice, "finish_reason");
    assert_true(app_json_is(app_json_get(chunk, "object"), "text_completion"));
    if (!choice.text) {
        set_raw(&m->usage, app_json_get(chunk, "usage"));
        m->has_summary = 1;
        return;
    }
    app_json_decode(&m->content, app_json_get(choice, "text"));
    if (app_json_kind(finish) != 'n')
        set_raw(&m->finish, finish);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

typedef struct messages_state {
    int started, stopped, open; /* open: 't' text, 'r' thinking, 'c' tool */
    int64_t index;
} messages_state;

static void merge_block_start(merged *m, messages_state *s, app_json data)
{
    app_json block = app_json_get(data, "content_block"), type = app_json_get(block, "type");
    int64_t index;
    assert_false(s->open);
    assert_true(app_json_int(app_json_get(data, "index"), &index));
    assert_int_equal(index, s->index);
    s->open = app_json_is(type, "text") ? 't' : app_json_is(type, "thinking") ? 'r' : 'c';
    if (s->open == 'c') {
        assert_true(app_json_is(type, "tool_use"));
        add_call(m, app_json_get(block, "id"), app_json_get(block, "name"));
    }
}

static void merge_block_delta(merged *m, messages_state *s, app_json data)
{
    app_json delta = app_json_get(data, "delta"), type = app_json_get(delta, "type");
    if (app_json_is(type, "text_delta") && s->open == 't')
        app_json_decode(&m->content, app_json_get(delta, "text"));
    else if (app_json_is(type, "thinking_delta") && s->open == 'r')
        app_json_decode(&m->reasoning, app_json_get(delta, "thinking"));
    else if (app_json_is(type, "input_json_delta") && s->open == 'c')
        app_json_decode(&m->calls[m->n_calls - 1].arguments, app_json_get(delta, "partial_json"));
    else
        assert_true(app_json_is(type, "signature_delta") && s->open == 'r');
}

static void merge_message_event(merged *m, messages_state *s, app_json data)
{
    app_json type = app_json_get(data, "type"), delta = app_json_get(data, "delta");
    if (app_json_is(type, "ping")) {
        m->n_comments++;
        return;
    }
    assert_false(s->stopped);
    if (app_json_is(type, "message_start")) {
        assert_false(s->started);
        assert_non_null(merge_at(data, "message.usage.input_tokens").text);
        s->started = 1;
    } else if (app_json_is(type, "error")) {
        m->has_error = s->stopped = 1;
        return;
    }
    assert_true(s->started);
    if (app_json_is(type, "content_block_start"))
        merge_block_start(m, s, data);
    if (app_json_is(type, "content_block_delta"))
        merge_block_delta(m, s, data);
    if (app_json_is(type, "content_block_stop")) {
        assert_true(s->open);
        s->open = 0;
        s->index++;
    }
    if (app_json_is(type, "message_delta")) {
        assert_false(s->open);
        set_raw(&m->finish, app_json_get(delta, "stop_reason"));
        app_json_decode(&m->finish, app_json_get(delta, "stop_sequence"));
        set_raw(&m->usage, app_json_get(data, "usage"));
    }
    if (app_json_is(type, "message_stop"))
        s->stopped = 1;
}

/* ---- responses --------------------------------------------------------------------------------------------------- */

static void merge_response(merged *m, app_json response)
{
    app_json item;
    for (size_t at = 0; app_json_next(NULL, &item, &at, app_json_get(response, "output"));) {
        app_json type = app_json_get(item, "type"), text = merge_at(item, "content.0.text");
        assert_true(app_json_is(app_json_get(item, "status"), "completed"));
        if (app_json_is(type, "reasoning")) {
            app_json_decode(&m->reasoning, text);
        } else if (app_json_is(type, "message")) {
            assert_non_null(merge_at(item, "content.0.annotations").text);
            app_json_decode(&m->content, text);
        } else {
            int is_custom = app_json_is(type, "custom_tool_call");
            assert_true(is_custom || app_json_is(type, "function_call"));
            struct merged_call *call = add_call(m, app_json_get(item, "call_id"), app_json_get(item, "name"));
            app_json_decode(&call->arguments, app_json_get(item, is_custom ? "input" : "arguments"));
        }
    }
    set_raw(&m->finish, app_json_get(response, "status"));
    set_raw(&m->usage, app_json_get(response, "usage"));
    m->has_error = app_json_kind(app_json_get(response, "error")) == '{';
}

typedef struct responses_state {
    app_buffer text; /* of the deltas of the open item */
    int has_ended, is_open;
} responses_state;

static void merge_response_event(merged *m, responses_state *s, app_json data)
{
    app_json type = app_json_get(data, "type");
    int64_t number;
    assert_true(app_json_int(app_json_get(data, "sequence_number"), &number));
    assert_int_equal(number, m->n_events);
    assert_false(s->has_ended);
    char name[80] = "";
    snprintf(name, sizeof name, "%.*s", (int)type.n - 2, type.text + 1);
    size_t n = strlen(name);
    if (strcmp(name, "response.output_item.added") == 0) {
        assert_false(s->is_open);
        s->is_open = 1;
        app_buffer_clear(&s->text);
    } else if (strcmp(name, "response.output_item.done") == 0) {
        assert_true(s->is_open);
        s->is_open = 0;
    } else if (n > 6 && strcmp(name + n - 6, ".delta") == 0) {
        assert_true(s->is_open);
        app_json_decode(&s->text, app_json_get(data, "delta"));
    } else if (n > 5 && strcmp(name + n - 5, ".done") == 0 && !strstr(name, "content_part")) {
        app_json whole = app_json_get(data, strstr(name, "text") ? "text" : strstr(name, "custom") ? "input" : "arguments");
        assert_true(app_json_is(whole, s->text.n ? s->text.text : ""));
    } else if (strcmp(name, "response.completed") == 0 || strcmp(name, "response.incomplete") == 0 ||
               strcmp(name, "response.failed") == 0) {
        s->has_ended = 1;
        merge_response(m, app_json_get(data, "response"));
    }
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

void merge_stream(merged *out, merge_api api, const char *text)
{
    chat_state chat = {0};
    messages_state messages = {0};
    responses_state responses = {0};
    char name[80] = "";
    int done = 0;
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        char *copy = strndup(line, n);
        if (strncmp(copy, "event: ", 7) == 0) {
            assert_true(api == MERGE_MESSAGES || api == MERGE_RESPONSES);
            snprintf(name, sizeof name, "%s", copy + 7);
        } else if (copy[0] == ':') {
            assert_true(api != MERGE_MESSAGES);
            out->n_comments++;
        } else if (strcmp(copy, "data: [DONE]") == 0) {
            assert_true(api == MERGE_CHAT || api == MERGE_COMPLETIONS);
            assert_false(done);
            done = 1;
        } else if (n) {
            assert_false(done);
            assert_int_equal(strncmp(copy, "data: ", 6), 0);
            app_json data = merge_json(copy + 6);
            assert_null(strstr(copy, "\xef\xbf\xbd"));
            if (api == MERGE_CHAT)
                merge_chat_chunk(out, &chat, data);
            else if (api == MERGE_COMPLETIONS)
                merge_completion_chunk(out, data);
            else
                assert_true(app_json_is(app_json_get(data, "type"), name));
            if (api == MERGE_MESSAGES)
                merge_message_event(out, &messages, data);
            if (api == MERGE_RESPONSES)
                merge_response_event(out, &responses, data);
            out->n_events++;
        }
        free(copy);
        line += n + (line[n] == '\n');
    }
    assert_true(api == MERGE_MESSAGES ? messages.stopped : api == MERGE_RESPONSES ? responses.has_ended : done);
    app_buffer_free(&chat.head);
    app_buffer_free(&responses.text);
}

/* ---- whole answers ----------------------------------------------------------------------------------------------- */

static void merge_message(merged *m, app_json body)
{
    app_json block;
    for (size_t at = 0; app_json_next(NULL, &block, &at, app_json_get(body, "content"));) {
        app_json type = app_json_get(block, "type");
        if (app_json_is(type, "thinking")) {
            app_json_decode(&m->reasoning, app_json_get(block, "thinking"));
        } else if (app_json_is(type, "text")) {
            app_json_decode(&m->content, app_json_get(block, "text"));
        } else {
            struct merged_call *call = add_call(m, app_json_get(block, "id"), app_json_get(block, "name"));
            set_raw(&call->arguments, app_json_get(block, "input"));
        }
    }
    set_raw(&m->finish, app_json_get(body, "stop_reason"));
    app_json_decode(&m->finish, app_json_get(body, "stop_sequence"));
    set_raw(&m->usage, app_json_get(body, "usage"));
}

void merge_whole(merged *out, merge_api api, const char *text)
{
    app_json body = merge_json(text), choice = merge_at(body, "choices.0"), call;
    assert_null(strstr(text, "\xef\xbf\xbd"));
    if (api == MERGE_MESSAGES) {
        merge_message(out, body);
        return;
    }
    if (api == MERGE_RESPONSES) {
        merge_response(out, body);
        return;
    }
    app_json message = app_json_get(choice, "message"), calls = app_json_get(message, "tool_calls");
    app_json_decode(&out->content, api == MERGE_CHAT ? app_json_get(message, "content") : app_json_get(choice, "text"));
    app_json_decode(&out->reasoning, app_json_get(message, "reasoning_content"));
    if (calls.text)
        assert_true(members(calls) > 0);
    for (size_t at = 0; app_json_next(NULL, &call, &at, calls);) {
        app_json function = app_json_get(call, "function");
        app_json_decode(&add_call(out, app_json_get(call, "id"), app_json_get(function, "name"))->arguments,
                        app_json_get(function, "arguments"));
    }
    add_entries(out, merge_at(choice, "logprobs.content"));
    set_raw(&out->finish, app_json_get(choice, "finish_reason"));
    set_raw(&out->usage, app_json_get(body, "usage"));
}

void merge_ask(merged *out, int port, merge_api api, const char *body)
{
    static const char *const paths[MERGE_APIS] = {"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"};
    http_reply reply = http_post(port, paths[api], body);
    if (reply.status != 200)
        fail_msg("%s: %d %s", body, reply.status, reply.body);
    if (strstr(body, "\"stream\":true"))
        merge_stream(out, api, reply.body);
    else
        merge_whole(out, api, reply.body);
    http_free(&reply);
}
