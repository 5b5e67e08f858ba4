/* A conversation as a chat request that grows by a message at a time. */
#ifndef K3_APPS_CHAT_H
#define K3_APPS_CHAT_H

#include "answer.h"

typedef struct app_chat {
    app_buffer messages; /* JSON objects separated by commas */
    const app_options *options;
} app_chat;

void app_chat_open(app_chat *chat, const app_options *options);
void app_chat_close(app_chat *chat);
void app_chat_add(app_chat *chat, const char *role, const char *text, size_t n);
void app_chat_add_answer(app_chat *chat, const app_answer *answer);
/* The whole request as JSON; the caller frees it. */
char *app_chat_request(const app_chat *chat);

/* Reads lines and answers them, until the end of input or a second Ctrl-C. Returns an exit status. */
int app_chat_converse(k3_engine *engine, k3_session *session, k3_sampler *sampler, const app_options *options);

#endif
