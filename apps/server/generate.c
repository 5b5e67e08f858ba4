/* Answers that the model makes: asked for, waited for, written whole or as they come. */
#include "http.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* Seconds between looks at a client that sends nothing, and that the beginning of an answer is waited for before its headers go out. */
#define LOOK 0.1
#define HEADERS 0.2

enum { BLOCK = 32 << 10 };

#ifndef POLLRDHUP
#define POLLRDHUP 0
#endif

/* A client that closed its end, or half of it, wants no answer. */
static int has_left(const srv_exchange *x)
{
    struct pollfd p = {.fd = x->connection->fd, .events = POLLIN | POLLRDHUP};
    char byte;
    if (poll(&p, 1, 0) <= 0)
        return 0;
    if (p.revents & (POLLERR | POLLHUP | POLLNVAL | POLLRDHUP))
        return 1;
    return recv(p.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void set_turn(srv_exchange *x, srv_turn *turn)
{
    pthread_mutex_lock(&x->server->lock);
    x->connection->turn = turn;
    pthread_cond_broadcast(&x->server->changed);
    pthread_mutex_unlock(&x->server->lock);
}

void srv_exchange_end(srv_exchange *x)
{
    if (x->turn) {
        set_turn(x, NULL);
        srv_turn_close(x->turn);
        srv_reply_free(&x->reply);
        srv_batch_free(&x->batch);
    }
    srv_ask_free(&x->ask);
    srv_fields_free(&x->fields);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static void fill(srv_exchange *x)
{
    double silence = x->server->config.silence, quiet = srv_now() - x->last_event;
    double wait = silence - quiet < LOOK ? silence - quiet : LOOK;
    if (srv_turn_wait(x->turn, wait > 0 ? wait : 0))
        x->is_finished = srv_reply_pump(&x->reply, x->turn, &x->batch, &x->out);
    else if (srv_now() - x->last_event >= silence)
        app_buffer_text(&x->out, x->reply.api->idle);
    if (x->out.n)
        x->last_event = srv_now();
}

static ssize_t read_stream(void *user, uint64_t position, char *out, size_t max)
{
    srv_exchange *x = user;
    (void)position;
    srv_connection_deadline(x->server, x->connection, 0);
    while (x->at == x->out.n) {
        app_buffer_clear(&x->out);
        x->at = 0;
        if (x->is_finished) {
            srv_connection_deadline(x->server, x->connection, x->server->config.write);
            return MHD_CONTENT_READER_END_OF_STREAM;
        }
        if (has_left(x)) {
            x->is_gone = 1;
            srv_turn_cancel(x->turn);
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
        fill(x);
    }
    size_t n = x->out.n - x->at < max ? x->out.n - x->at : max;
    memcpy(out, x->out.text + x->at, n);
    x->at += n;
    srv_connection_deadline(x->server, x->connection, x->server->config.write);
    return (ssize_t)n;
}

/* What is known of the prompt before the first token goes into headers, if it is known soon. */
static void add_counts(srv_exchange *x, struct MHD_Response *response)
{
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)x->ask.n_prompt);
    MHD_add_response_header(response, "X-Msh-Usage-Prompt-Tokens", number);
    if (!x->reply.state.has_begun)
        return;
    snprintf(number, sizeof number, "%lld", (long long)x->reply.state.n_cached);
    MHD_add_response_header(response, "X-Msh-Usage-Cached-Tokens", number);
}

static enum MHD_Result respond_stream(srv_exchange *x)
{
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_stream, x, NULL);
    if (!response)
        return MHD_NO;
    x->status = 200;
    x->last_event = srv_now();
    if (srv_turn_wait(x->turn, HEADERS))
        x->is_finished = srv_reply_pump(&x->reply, x->turn, &x->batch, &x->out);
    srv_reply_start(&x->reply, &x->out);
    add_counts(x, response);
    srv_add_headers(x, response, "text/event-stream");
    MHD_add_response_header(response, "X-Accel-Buffering", "no");
    enum MHD_Result result = MHD_queue_response(x->mhd, 200, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- whole answers ----------------------------------------------------------------------------------------------- */

static enum MHD_Result respond_whole(srv_exchange *x)
{
    while (!x->reply.state.has_ended) {
        if (srv_turn_wait(x->turn, LOOK))
            (void)srv_reply_pump(&x->reply, x->turn, &x->batch, NULL);
        if (!x->reply.state.has_ended && has_left(x)) {
            x->is_gone = 1;
            srv_turn_cancel(x->turn);
            return MHD_NO;
        }
    }
    if (x->reply.state.has_failed) {
        srv_reply_problem(&x->problem, &x->reply.state);
        return srv_respond_problem(x);
    }
    x->reply.api->whole(&x->reply, &x->out);
    app_buffer body = x->out;
    struct MHD_Response *response = MHD_create_response_from_buffer(body.n, body.text, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    x->status = 200;
    add_counts(x, response);
    srv_add_headers(x, response, "application/json");
    srv_connection_deadline(x->server, x->connection, x->server->config.write);
    enum MHD_Result result = MHD_queue_response(x->mhd, 200, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- a request --------------------------------------------------------------------------------------------------- */

static int read_request(srv_exchange *x)
{
    const srv_rules *rules = &x->server->config.rules;
    srv_ask_open(&x->ask);
    if (!x->body.n)
        return srv_refuse(&x->problem, NULL, "the body is empty; a JSON object is wanted");
    return srv_fields_read(&x->fields, x->body.text, x->body.n, &x->problem) && x->route->api->read(&x->ask, &x->fields, rules);
}

static int submit(srv_exchange *x)
{
    const srv_rules *rules = &x->server->config.rules;
    k3_error err = {0};
    if (srv_turn_open(&x->turn, rules->engine, &x->ask, &err) != K3_OK)
        return srv_deny_error(&x->problem, &err);
    srv_reply_open(&x->reply, x->route->api, &x->ask, rules->engine, rules->model);
    k3_status status = srv_turn_submit(x->turn, x->server->scheduler, &err);
    if (status == K3_E_NOMEM)
        return srv_deny(&x->problem, 429, "queue_full", "%s", err.text);
    if (status != K3_OK)
        return srv_deny_error(&x->problem, &err);
    set_turn(x, x->turn);
    pthread_mutex_lock(&x->server->lock);
    int is_stopping = x->server->is_stopping;
    pthread_mutex_unlock(&x->server->lock);
    if (is_stopping)
        srv_turn_cancel(x->turn);
    return 1;
}

enum MHD_Result srv_generate(srv_exchange *x)
{
    if (!read_request(x))
        return srv_respond_problem(x);
    if (x->route->counts_only) {
        app_buffer body = {0};
        srv_messages_count(&body, &x->ask);
        enum MHD_Result result = srv_respond(x, 200, "application/json", &body);
        app_buffer_free(&body);
        return result;
    }
    if (!submit(x))
        return srv_respond_problem(x);
    return x->ask.is_stream ? respond_stream(x) : respond_whole(x);
}
