#include "chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

void app_chat_open(app_chat *chat, const app_options *options)
{
    *chat = (app_chat){.no_think = options->no_think, .effort = options->effort};
    if (options->system)
        app_chat_set_system(chat, options->system, strlen(options->system));
}

void app_chat_close(app_chat *chat)
{
    app_buffer_free(&chat->system);
    app_buffer_free(&chat->messages);
}

void app_chat_set_system(app_chat *chat, const char *text, size_t n)
{
    app_buffer_clear(&chat->system);
    app_buffer_add(&chat->system, text, n);
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
    if (chat->system.n) {
        add_member(&out, "{\"role\": \"system\", \"content\": ", chat->system.text, chat->system.n);
        app_buffer_text(&out, chat->messages.n ? "}, " : "}");
    }
    app_buffer_add(&out, chat->messages.text, chat->messages.n);
    app_buffer_text(&out, chat->no_think ? "], \"thinking\": false" : "], \"thinking\": true");
    if (chat->effort)
        add_member(&out, ", \"thinking_effort\": ", chat->effort, strlen(chat->effort));
    app_buffer_text(&out, "}");
    return out.text;
}

const char *app_chat_take(app_chat *chat, const char *request, size_t n)
{
    static const char *const efforts[] = {"low", "high", "max"};
    size_t wrong = 0, at = 0;
    app_json whole = app_json_whole(request, n, &wrong), message;
    app_json messages = app_json_get(whole, "messages"), thinking = app_json_get(whole, "thinking"),
             effort = app_json_get(whole, "thinking_effort");
    if (!whole.text || app_json_kind(whole) != '{')
        return "it is no JSON object";
    if (app_json_kind(messages) != '[')
        return "it has no \"messages\", a list of messages";
    app_chat taken = {.no_think = app_json_kind(thinking) == 'f'};
    for (size_t i = 0; i < 3; i++)
        if (app_json_kind(effort) == '"' && app_json_is(effort, efforts[i]))
            taken.effort = efforts[i];
    for (int is_first = 1; app_json_next(NULL, &message, &at, messages); is_first = 0) {
        app_json role = app_json_get(message, "role"), content = app_json_get(message, "content");
        if (app_json_kind(role) != '"') {
            app_chat_close(&taken);
            return "a message has no \"role\"";
        }
        if (is_first && app_json_is(role, "system") && app_json_kind(content) == '"') {
            app_json_decode(&taken.system, content);
            continue;
        }
        app_buffer_text(&taken.messages, taken.messages.n ? ", " : "");
        app_buffer_add(&taken.messages, message.text, message.n);
    }
    app_chat_close(chat);
    *chat = taken;
    return NULL;
}
