/* Requests to a scheduler, and what came of them. */
#ifndef K3_TESTS_SERVER_CLIENTS_H
#define K3_TESTS_SERVER_CLIENTS_H

#include "server/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { CLIENT_NEW = 400 };

typedef struct client {
    srv_settings settings;
    srv_job *job;
    int stop_after;      /* tokens after which the sink asks for the end; 0: never */
    int cancel_after;    /* tokens after which the request is cancelled; 0: never */
    int64_t cancel_done; /* of the prompt, from where on it is; 0: never */
    int holds;           /* the request begins when clients_go is called */

    /* What the sink heard. */
    int32_t ids[CLIENT_NEW];
    float logprobs[CLIENT_NEW];
    int n, n_begins, n_ends;
    int64_t n_cached, n_done;
    struct client *other; /* NULL, or a request beside it, and how far that was when this one had its first token */
    int64_t other_n, other_done;
    srv_end how;
    k3_error err;
} client;

void must(k3_status status, const k3_error *err);
void refused(k3_status status, k3_status wanted, const k3_error *err, const char *part);

/* The ids of a prompt, as different as ids of the tiny checkpoint can be. */
void client_text(int32_t *ids, int n);
/* Greedy, no log-probabilities; the ids are not copied before client_submit. */
client client_new(const int32_t *ids, size_t n, int64_t max_tokens);
void client_submit(client *c, srv_scheduler *scheduler);
/* Waits for the end; the handle is gone. */
void client_wait(client *c);
/* Both, and the request has ended by itself. */
void client_run(client *c, srv_scheduler *scheduler);
/* What holds, goes on; and what comes later does not wait. */
void clients_go(void);
void clients_hold(void);

/* The same request computed alone by the engine's own calls. */
void client_solo(client *c, k3_engine *engine);
void client_equal(const client *got, const client *want);

srv_scheduler *scheduler_open(k3_engine *engine, const srv_limits *limits);

#endif
