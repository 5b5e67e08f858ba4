/* The APIs: how each reads a request, and how it writes the events of an answer, as a stream or whole. */
#ifndef K3_APPS_SERVER_API_H
#define K3_APPS_SERVER_API_H

#include "ask.h"
#include "turn.h"

/* A call of an answer. */
typedef struct srv_call {
    app_buffer name, arguments, id;
} srv_call;

typedef struct srv_api srv_api;

/* An answer as it is told to a client. */
typedef struct srv_reply {
    const srv_api *api;
    const srv_ask *ask;
    const k3_engine *engine;
    const char *model; /* the served name */
    app_buffer id;
    int64_t created; /* seconds since 1970 */
    srv_state state;
    /* What has come so far. */
    app_buffer reasoning, content, entries; /* entries: log-probabilities as elements of a JSON array */
    srv_call *calls;                        /* [n_calls] */
    size_t n_calls, capacity;
    /* A stream's place. */
    int started, block; /* block: what is open, an API's own number; 0: nothing */
    size_t i_block, sequence;
    app_buffer items;   /* Responses: the items that are complete */
    app_buffer item_id; /* of the open one */
} srv_reply;

struct srv_api {
    const char *path;
    int is_anthropic; /* the form of its errors */
    const char *idle; /* sent during silence */
    const char *id_prefix;
    /* 1, or 0 with a problem. Afterwards the prompt is there as ids. */
    int (*read)(srv_ask *ask, const srv_fields *fields, const srv_rules *rules);
    /* A stream: its first events, which may wait for the beginning; an event, which is part of the reply already; the end; an error. */
    int starts_with_usage;
    void (*start)(srv_reply *reply, app_buffer *out);
    void (*event)(srv_reply *reply, app_buffer *out, const srv_batch *batch, const srv_event *event);
    void (*end)(srv_reply *reply, app_buffer *out);
    void (*fail)(srv_reply *reply, app_buffer *out, const srv_problem *problem);
    /* The whole answer. */
    void (*whole)(srv_reply *reply, app_buffer *out);
};

extern const srv_api srv_api_chat, srv_api_completions, srv_api_messages, srv_api_responses;

void srv_reply_open(srv_reply *reply, const srv_api *api, const srv_ask *ask, const k3_engine *engine, const char *model);
void srv_reply_free(srv_reply *reply);
/* Adds an event to what has come. */
void srv_reply_take(srv_reply *reply, const srv_batch *batch, const srv_event *event);
/* A stream's first events, if they can be written now and were not. */
void srv_reply_start(srv_reply *reply, app_buffer *out);
/* Takes all that is new of an answer, and writes a stream's part of it to `out`; NULL: it is wanted whole. Nonzero when it has ended. */
int srv_reply_pump(srv_reply *reply, srv_turn *turn, srv_batch *batch, app_buffer *out);
/* The elements of a logprobs list for an event's tokens. */
void srv_reply_add_entries(app_buffer *out, const k3_engine *engine, const srv_batch *batch, const srv_event *event);
/* {"prompt_tokens":...} of OpenAI's older APIs. */
void srv_reply_add_usage(app_buffer *out, const srv_reply *reply);
/* The problem that a failed answer is. */
void srv_reply_problem(srv_problem *problem, const srv_state *state);

/* Count of a prompt without an answer; `ask` as read by srv_api_messages. */
void srv_messages_count(app_buffer *out, const srv_ask *ask);

#endif
