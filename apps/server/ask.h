/* What a client asks for, in one form for all APIs: the conversation as K3's chat request (k3_chat_render), or a plain prompt, and how to
 * go on from it. */
#ifndef K3_APPS_SERVER_ASK_H
#define K3_APPS_SERVER_ASK_H

#include "scheduler.h"
#include "text.h"

/* What of the server a request is read against. */
typedef struct srv_rules {
    const k3_engine *engine;
    int64_t context;     /* tokens in force */
    int is_strict;       /* the vendor's fixed settings and limits (--strict) */
    int is_strict_model; /* unknown names are refused */
    const char *model;   /* the served name */
    const char *aliases; /* further names, separated by commas; NULL: none */
} srv_rules;

typedef enum srv_choice { SRV_CHOICE_AUTO, SRV_CHOICE_NONE, SRV_CHOICE_REQUIRED, SRV_CHOICE_NAMED } srv_choice;

typedef struct srv_ask {
    int is_stream, include_usage, include_internal;
    /* The prompt. A chat request is built in parts: */
    int is_chat;
    app_buffer messages, tools; /* elements of the arrays, with commas between */
    size_t n_calls;             /* of the history: new ones are numbered on */
    size_t n_results;           /* of calls, in the history */
    int has_tools;              /* any, in a system message too */
    app_buffer names;           /* of the tools: NUL after each */
    srv_choice choice;
    app_buffer chosen;  /* the tool that a named choice names */
    app_json format;    /* response_format as K3 renders it; no value: text */
    int thinking;       /* afterwards: whether the prompt leaves the thinking channel open */
    const char *effort; /* low, high or max; NULL: max */
    k3_tokens ids;
    k3_constraint *constraint; /* of what the answer may be; NULL: anything */
    int64_t n_prompt;          /* as counted: without the ids that open the answer's channel */
    /* Sampling. */
    k3_sampling sampling;
    k3_adjustment adjust; /* its arrays are the ask's */
    int64_t max_tokens;   /* 0: as many as fit */
    int n_top;            /* -1: no log-probabilities */
    app_buffer *stops;    /* [n_stops] */
    size_t n_stops;
    int one_call; /* the answer ends with its first call */
    /* Responses. */
    app_buffer custom;                                /* names of free-form tools: NUL after each */
    app_json reply_tools, reply_choice, instructions; /* told back as they came */
    app_buffer format_text;                           /* what `format` lies in */
    int include_encrypted;                            /* reasoning comes back in encrypted_content */
} srv_ask;

void srv_ask_open(srv_ask *ask);
void srv_ask_free(srv_ask *ask);

/* Fields that several APIs share; each returns 1, or 0 with a problem. */
int srv_ask_model(const srv_fields *fields, const srv_rules *rules);
int srv_ask_sampling(srv_ask *ask, const srv_fields *fields, const srv_rules *rules);
/* stop of OpenAI's APIs, stop_sequences of Anthropic's: a string, a list or null. */
int srv_ask_stops(srv_ask *ask, const srv_fields *fields, const char *name, const srv_rules *rules);
/* Number of new tokens: -1 or nothing is as many as fit. 1 if the field was there. */
int srv_ask_limit(srv_ask *ask, const srv_fields *fields, const char *name);
int srv_ask_effort(srv_ask *ask, app_json effort, const char *param, const srv_rules *rules, srv_problem *problem);

/* Begins an element of a list. */
void srv_ask_comma(app_buffer *list);
/* Adds a name to a list of names; looks one up. */
void srv_ask_add_name(app_buffer *names, app_json name);
int srv_ask_has_name(const app_buffer *names, const char *name);
/* Adds a tool in the form of chat completions from its parts, any of which may be no value. */
void srv_ask_add_tool(srv_ask *ask, app_json name, app_json description, app_json parameters, app_json strict);
/* Adds an assistant message: what it thought, and the elements of its content and of its calls, with commas between. */
void srv_ask_add_assistant(srv_ask *ask, const app_buffer *reasoning, const app_buffer *parts, const app_buffer *calls);
/* Whether the calls and results of the history, each of which is looked up among the others, are few enough for that. */
int srv_ask_check_history(const srv_ask *ask, const char *param, srv_problem *problem);
int srv_ask_check_choice(const srv_ask *ask, srv_problem *problem);

/* Renders the conversation, checks that its answer fits, and opens what narrows the answer. */
int srv_ask_render(srv_ask *ask, const srv_rules *rules, srv_problem *problem);
/* The same check for ids that are there. */
int srv_ask_check_window(const srv_ask *ask, const srv_rules *rules, srv_problem *problem);
/* Whether a name is served: the model's, an alias, or one of the families that clients ask for whatever they talk to. */
int srv_model_is_known(const srv_rules *rules, const char *name);
/* The same for the model's own names only. */
int srv_model_is_ours(const srv_rules *rules, const char *name);

#endif
