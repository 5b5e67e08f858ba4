#include "answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "terminal.h"

/* What the callbacks of the chat parser work on. */
typedef struct sink {
    app_answer *answer;
    const app_asking *asking;
    k3_stop *stop;
    k3_utf8 utf8;
    double started;
    int matched; /* a stop string came */
    k3_status status;
    k3_error *err;
} sink;

void app_answer_free(app_answer *answer)
{
    k3_tokens_free(&answer->ids);
    app_buffer_free(&answer->thinking);
    app_buffer_free(&answer->content);
    for (size_t i = 0; i < answer->n_calls; i++) {
        app_buffer_free(&answer->calls[i].name);
        app_buffer_free(&answer->calls[i].arguments);
    }
    free(answer->calls);
    *answer = (app_answer){0};
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

static void show(sink *s, const char *text, size_t n)
{
    if (!n)
        return;
    app_end_thinking();
    app_buffer_add(&s->answer->content, text, n);
    if (!s->asking->is_silent)
        app_write(text, n);
}

static void push_content(sink *s, const char *text, size_t n)
{
    const char *safe = NULL;
    size_t n_safe = 0;
    if (s->status != K3_OK || s->matched)
        return;
    s->status = k3_stop_push(s->stop, &safe, &n_safe, &s->matched, text, n, s->err);
    if (s->status == K3_OK)
        show(s, safe, n_safe);
}

static void flush_content(sink *s)
{
    const char *safe = NULL;
    size_t n_safe = 0;
    k3_stop_flush(s->stop, &safe, &n_safe);
    show(s, safe, n_safe);
}

static app_call *call_at(app_answer *answer, int index)
{
    size_t i = (size_t)index;
    if (i >= answer->n_calls) {
        app_call *calls = app_alloc(i + 1, sizeof *calls);
        if (answer->n_calls)
            memcpy(calls, answer->calls, answer->n_calls * sizeof *calls);
        free(answer->calls);
        answer->calls = calls;
        answer->n_calls = i + 1;
    }
    return &answer->calls[i];
}

static void show_call(sink *s, const app_call *call)
{
    const app_buffer *content = &s->answer->content;
    app_buffer line = {0};
    flush_content(s);
    if (content->n && content->text[content->n - 1] != '\n' && call == s->answer->calls)
        app_buffer_text(&line, "\n");
    app_buffer_text(&line, "{\"name\": ");
    app_buffer_json(&line, call->name.text, call->name.n);
    app_buffer_text(&line, ", \"arguments\": ");
    app_buffer_add(&line, call->arguments.text, call->arguments.n);
    app_buffer_text(&line, "}\n");
    app_end_thinking();
    if (!s->asking->is_silent)
        app_write(line.text, line.n);
    app_buffer_free(&line);
}

static void on_event(void *user, k3_chat_event_kind kind, int index, const char *text, size_t n)
{
    sink *s = user;
    switch (kind) {
    case K3_CHAT_REASONING:
        app_buffer_add(&s->answer->thinking, text, n);
        if (!s->asking->is_silent && s->asking->thinking == APP_THINKING_SHOWN)
            app_write_thinking(text, n);
        break;
    case K3_CHAT_CONTENT:
        push_content(s, text, n);
        break;
    case K3_CHAT_CALL:
        app_buffer_add(&call_at(s->answer, index)->name, text, n);
        break;
    case K3_CHAT_ARGUMENTS:
        app_buffer_add(&call_at(s->answer, index)->arguments, text, n);
        break;
    case K3_CHAT_CALL_END:
        call_at(s->answer, index)->is_complete = 1;
        show_call(s, call_at(s->answer, index));
        break;
    }
}

/* Plain text of one id; special tokens show their names. */
static k3_status push_token(sink *s, int32_t id, k3_error *err)
{
    const char *bytes = NULL;
    size_t n = 0;
    k3_status status = k3_token_bytes(s->asking->engine, &bytes, &n, id, err);
    if (status != K3_OK)
        return status;
    char *text = app_alloc(3 * (n + 3), 1);
    push_content(s, text, k3_utf8_push(&s->utf8, text, bytes, n));
    free(text);
    return s->status;
}

static void flush_text(sink *s)
{
    char rest[16];
    push_content(s, rest, k3_utf8_push(&s->utf8, rest, NULL, 0));
    if (!s->matched)
        flush_content(s);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* The released configuration names <|end_of_msg|>, the tokenizer's names [EOS]: both end a message. */
static int is_end(const k3_engine *engine, int32_t id)
{
    const char *bytes = NULL;
    size_t n = 0;
    if (id == k3_engine_info(engine)->eos_id)
        return 1;
    return k3_token_is_special(engine, id) && k3_token_bytes(engine, &bytes, &n, id, NULL) == K3_OK && n == 5 &&
           memcmp(bytes, "[EOS]", 5) == 0;
}

/* Tokens and their rate: where thinking is folded, the one line that stands for it; else the terminal's title. */
static void show_rate(const sink *s)
{
    char text[80];
    double seconds = app_seconds() - s->started;
    size_t n = s->answer->ids.n;
    int is_thinking = s->asking->is_thinking && !s->answer->content.n && !s->answer->n_calls;
    if (s->asking->is_silent || s->asking->options->quiet || n < 2 || seconds <= 0)
        return;
    snprintf(text, sizeof text, "%s: %zu tokens, %.1f a second", is_thinking ? "thinking" : "k3", n, (double)(n - 1) / seconds);
    if (is_thinking && s->asking->thinking == APP_THINKING_FOLDED)
        app_fold(text);
    else
        app_title(text);
}

static k3_status draw(sink *s, k3_chat_parser *parser, k3_error *err)
{
    const app_asking *a = s->asking;
    app_answer *answer = s->answer;
    const k3_info *info = k3_engine_info(a->engine);
    int32_t id = 0;
    answer->finish = "length";
    for (long i = 0; a->limit < 0 || i < a->limit; i++) {
        int done = 0;
        k3_status status = i ? k3_session_append_pick(a->session, a->sampler, &id, &id, 1, err)
                             : k3_sampler_pick(a->sampler, &id, k3_session_logits(a->session), (size_t)info->vocab_size, err);
        if (status != K3_OK)
            return status;
        app_show_notice(a->engine, a->options);
        app_add_id(&answer->ids, id);
        show_rate(s);
        if (parser)
            status = k3_chat_parser_push(parser, id, &done, err);
        else if (!is_end(a->engine, id) && info->has_tokenizer)
            status = push_token(s, id, err);
        if (status == K3_OK)
            status = s->status;
        if (status != K3_OK)
            return status;
        if (done || s->matched || is_end(a->engine, id)) {
            answer->finish = "stop";
            return K3_OK;
        }
        if (app_interrupted() || app_write_status() != APP_OK || !app_write("", 0)) {
            answer->finish = "interrupted";
            return K3_OK;
        }
        if (k3_session_length(a->session) >= info->context_length || i + 1 == a->limit)
            return K3_OK;
    }
    return K3_OK;
}

k3_status app_answer_run(app_answer *answer, const app_asking *asking, k3_error *err)
{
    const app_options *o = asking->options;
    sink s = {.answer = answer, .asking = asking, .err = err};
    k3_chat_parser *parser = NULL;
    size_t *lengths = app_alloc(o->n_stops, sizeof *lengths);
    for (size_t i = 0; i < o->n_stops; i++)
        lengths[i] = strlen(o->stops[i]);
    k3_status status = k3_stop_open(&s.stop, o->stops, lengths, o->n_stops, err);
    free(lengths);
    if (status == K3_OK && asking->is_chat)
        status = k3_chat_parser_open(&parser, asking->engine, asking->is_thinking, on_event, &s, err);
    s.started = app_seconds();
    if (status == K3_OK)
        status = draw(&s, parser, err);
    answer->seconds = app_seconds() - s.started;
    if (status == K3_OK) {
        const char *finish = parser ? k3_chat_parser_finish(parser) : NULL;
        if (finish && strcmp(finish, "tool_calls") == 0 && strcmp(answer->finish, "stop") == 0)
            answer->finish = finish;
        flush_text(&s);
        status = s.status;
    }
    app_end_thinking();
    app_title(NULL);
    if (parser)
        k3_chat_parser_close(parser);
    k3_stop_close(s.stop);
    return status;
}
