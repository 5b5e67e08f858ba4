/* A conversation as a chat request that grows by a message at a time. */
#ifndef K3_APPS_CHAT_H
#define K3_APPS_CHAT_H

#include "answer.h"

typedef struct app_chat {
    app_buffer system;   /* text; empty: there is none */
    app_buffer messages; /* JSON objects separated by commas */
    int no_think;
    const char *effort; /* "low", "high", "max", or NULL */
} app_chat;

void app_chat_open(app_chat *chat, const app_options *options);
void app_chat_close(app_chat *chat);
void app_chat_set_system(app_chat *chat, const char *text, size_t n);
void app_chat_add(app_chat *chat, const char *role, const char *text, size_t n);
void app_chat_add_answer(app_chat *chat, const app_answer *answer);
/* The whole request as JSON; the caller frees it. */
char *app_chat_request(const app_chat *chat);
/* Takes the conversation of a request as app_chat_request writes it: system message, messages, thinking. Returns NULL, or what is wrong;
 * then the chat is as it was. */
const char *app_chat_take(app_chat *chat, const char *request, size_t n);

#endif
