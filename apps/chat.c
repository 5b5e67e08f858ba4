#include "chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "terminal.h"

void app_chat_open(app_chat *chat, const app_options *options)
{
    *chat = (app_chat){.options = options};
    if (options->system)
        app_chat_add(chat, "system", options->system, strlen(options->system));
}

void app_chat_close(app_chat *chat)
{
    app_buffer_free(&chat->messages);
}

static void add_member(app_buffer *out, const char *name, const char *text, size_t n)
{
    app_buffer_text(out, name);
    app_buffer_json(out, text, n);
}

void app_chat_add(app_chat *chat, const char *role, const char *text, size_t n)
{
    app_buffer *m = &chat->messages;
    add_member(m, m->n ? ", {\"role\": " : "{\"role\": ", role, strlen(role));
    add_member(m, ", \"content\": ", text, n);
    app_buffer_text(m, "}");
}

void app_chat_add_answer(app_chat *chat, const app_answer *answer)
{
    app_buffer *m = &chat->messages;
    app_buffer_text(m, m->n ? ", {\"role\": \"assistant\"" : "{\"role\": \"assistant\"");
    if (answer->thinking.n)
        add_member(m, ", \"reasoning_content\": ", answer->thinking.text, answer->thinking.n);
    add_member(m, ", \"content\": ", answer->content.text, answer->content.n);
    const char *before = ", \"tool_calls\": [";
    for (size_t i = 0; i < answer->n_calls; i++) {
        const app_call *call = &answer->calls[i];
        char id[32];
        if (!call->is_complete)
            continue;
        snprintf(id, sizeof id, "call_%zu", i);
        app_buffer_text(m, before);
        add_member(m, "{\"type\": \"function\", \"id\": ", id, strlen(id));
        add_member(m, ", \"function\": {\"name\": ", call->name.text, call->name.n);
        add_member(m, ", \"arguments\": ", call->arguments.text, call->arguments.n);
        app_buffer_text(m, "}}");
        before = ", ";
    }
    app_buffer_text(m, strcmp(before, ", ") == 0 ? "]}" : "}");
}

char *app_chat_request(const app_chat *chat)
{
    app_buffer out = {0};
    app_buffer_text(&out, "{\"messages\": [");
    app_buffer_add(&out, chat->messages.text, chat->messages.n);
    app_buffer_text(&out, chat->options->no_think ? "], \"thinking\": false" : "], \"thinking\": true");
    if (chat->options->effort)
        add_member(&out, ", \"thinking_effort\": ", chat->options->effort, strlen(chat->options->effort));
    app_buffer_text(&out, "}");
    return out.text;
}

/* ---- a conversation ------------------------------------------------------------------------------------------------ */

/* Brings the session to exactly these ids, keeping what it holds of them already. A mark is left at the end, because the tokens of the
 * answer may come back spelled by other tokens. */
static k3_status follow(k3_session *session, const k3_tokens *ids, k3_error *err)
{
    const int32_t *held = k3_session_ids(session);
    int64_t length = k3_session_length(session), same = 0;
    while (same < length && (size_t)same < ids->n && held[same] == ids->ids[same])
        same++;
    k3_status status = K3_OK;
    if (same == (int64_t)ids->n && same) /* all there, but the logits of its last token are needed: take that one again */
        same--;
    if (same < length)
        status = k3_session_rewind(session, same, err);
    int64_t from = k3_session_length(session);
    if (status == K3_OK && (size_t)from < ids->n)
        status = k3_session_append(session, ids->ids + from, ids->n - (size_t)from, err);
    if (status == K3_OK)
        status = k3_session_mark(session, err);
    app_progress_end();
    return status;
}

static k3_status reply(app_chat *chat, app_asking *asking, k3_error *err)
{
    k3_tokens ids = {0};
    app_answer answer = {0};
    char *request = app_chat_request(chat);
    k3_status status = k3_chat_render(asking->engine, &ids, &asking->is_thinking, request, err);
    free(request);
    if (status == K3_OK)
        status = follow(asking->session, &ids, err);
    if (status == K3_OK)
        status = app_answer_run(&answer, asking, err);
    if (status == K3_OK) {
        app_write("\n", answer.content.n && answer.content.text[answer.content.n - 1] != '\n' && !answer.n_calls);
        if (strcmp(answer.finish, "interrupted") == 0)
            fputs("(stopped)\n", stderr);
        else if (strcmp(answer.finish, "length") == 0)
            fputs("(cut: the limit of tokens is reached)\n", stderr);
        app_chat_add_answer(chat, &answer);
    }
    app_answer_free(&answer);
    k3_tokens_free(&ids);
    return status;
}

int app_chat_converse(k3_engine *engine, k3_session *session, k3_sampler *sampler, const app_options *options)
{
    app_chat chat;
    app_asking asking = {.engine = engine, .session = session, .options = options, .sampler = sampler, .limit = options->n, .is_chat = 1};
    int exit_status = APP_OK;
    app_chat_open(&chat, options);
    while (app_write("", 0)) {
        int interrupted = 0;
        char *line = app_read_line("> ", &interrupted);
        if (interrupted) {
            fputs("\n(Ctrl-C again or Ctrl-D leaves)\n", stderr);
            continue;
        }
        if (!line)
            break;
        app_interrupt_reset();
        if (line[strspn(line, " \t\r")]) {
            k3_error err = {0};
            size_t before = chat.messages.n;
            app_chat_add(&chat, "user", line, strlen(line));
            if (reply(&chat, &asking, &err) != K3_OK) {
                /* The question is taken back, so that the next one does not fail with it. */
                chat.messages.n = before;
                app_progress_end();
                fprintf(stderr, "k3: %s\n", err.text);
                exit_status = err.status == K3_E_CANCELLED ? APP_OK : APP_FAILED;
            }
        }
        free(line);
    }
    app_chat_close(&chat);
    return exit_status;
}
