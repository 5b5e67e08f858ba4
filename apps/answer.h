/* One answer: draws ids until the model ends, a stop string comes, the limit is reached, or Ctrl-C. */
#ifndef K3_APPS_ANSWER_H
#define K3_APPS_ANSWER_H

#include "buffer.h"
#include "k3.h"
#include "options.h"

/* A call the model made, in the order of calls. */
typedef struct app_call {
    app_buffer name, arguments;
    int is_complete;
} app_call;

typedef struct app_answer {
    k3_tokens ids; /* all new ids, the one that ended the answer included */
    app_buffer thinking, content;
    app_call *calls;
    size_t n_calls;
    const char *finish; /* "stop", "length", "tool_calls" or "interrupted" */
    double seconds;
} app_answer;

void app_answer_free(app_answer *answer);

/* What is shown of the thinking channel: all of it, one line that counts, nothing. */
typedef enum app_thinking { APP_THINKING_SHOWN, APP_THINKING_FOLDED, APP_THINKING_HIDDEN } app_thinking;

/* How an answer is made; the session holds the prompt. */
typedef struct app_asking {
    k3_engine *engine;
    k3_session *session;
    const app_options *options;
    k3_sampler *sampler;
    long limit;      /* new ids at most; -1: the context */
    int is_chat;     /* parse K3's chat format; otherwise the ids are plain text */
    int is_thinking; /* the prompt left the thinking channel open */
    app_thinking thinking;
    int is_silent; /* nothing on stdout and stderr while it comes */
} app_asking;

/* Writes text as it comes: content to stdout, thinking to stderr, each complete call as a JSON line to stdout. On a terminal its title
 * tells the rate meanwhile. */
k3_status app_answer_run(app_answer *answer, const app_asking *asking, k3_error *err);

#endif
