/* Connections: libmicrohttpd reads requests and writes answers, a thread for each connection. A watch cuts those that take too long. */
#include "http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

double srv_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void srv_connection_deadline(srv_server *server, srv_connection *connection, double seconds)
{
    double deadline = seconds > 0 ? srv_now() + seconds : 0;
    pthread_mutex_lock(&server->lock);
    connection->deadline = deadline;
    pthread_mutex_unlock(&server->lock);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

void srv_add_headers(srv_exchange *x, struct MHD_Response *response, const char *type)
{
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (x->nonce.n) {
        char policy[320];
        snprintf(policy, sizeof policy,
                 "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; img-src data:; connect-src 'self'; base-uri 'none'; "
                 "form-action 'none'; frame-ancestors 'none'",
                 x->nonce.text, x->nonce.text);
        MHD_add_response_header(response, "Content-Security-Policy", policy);
        MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    }
    if (x->origin.n) {
        MHD_add_response_header(response, "Access-Control-Allow-Origin", x->origin.text);
        MHD_add_response_header(response, "Vary", "Origin");
    }
}

enum MHD_Result srv_respond(srv_exchange *x, int status, const char *type, const app_buffer *body)
{
    char empty[1] = "";
    struct MHD_Response *response = MHD_create_response_from_buffer(body->n, body->n ? body->text : empty, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    x->status = status;
    srv_add_headers(x, response, type);
    if (status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (status == 429 || status == 503)
        MHD_add_response_header(response, "Retry-After", status == 429 ? "1" : "5");
    if (status == 405)
        MHD_add_response_header(response, "Allow", x->problem.code && strcmp(x->problem.code, "use_post") == 0 ? "POST" : "GET, HEAD");
    srv_connection_deadline(x->server, x->connection, x->server->config.write);
    enum MHD_Result result = MHD_queue_response(x->mhd, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result srv_respond_problem(srv_exchange *x)
{
    app_buffer body = {0};
    srv_add_problem(&body, &x->problem, x->route && x->route->api && x->route->api->is_anthropic);
    enum MHD_Result result = srv_respond(x, x->problem.status, "application/json", &body);
    app_buffer_free(&body);
    return result;
}

/* A page's own script and style carry a number that is new each time, which its policy names: nothing that gets into it otherwise runs. */
static void number_page(srv_exchange *x, app_buffer *page)
{
    static const char mark[] = "K3_NONCE";
    app_buffer numbered = {0};
    app_buffer_clear(&x->nonce);
    srv_add_id(&x->nonce, "");
    const char *at = page->text;
    for (const char *next; (next = strstr(at, mark)); at = next + sizeof mark - 1) {
        app_buffer_add(&numbered, at, (size_t)(next - at));
        app_buffer_add(&numbered, x->nonce.text, x->nonce.n);
    }
    app_buffer_text(&numbered, at);
    app_buffer_free(page);
    *page = numbered;
}

/* What a browser asks before it lets a page ask. */
static enum MHD_Result respond_options(srv_exchange *x)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(0, (char[1]){""}, MHD_RESPMEM_MUST_COPY);
    const char *wanted = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Access-Control-Request-Headers");
    if (!response)
        return MHD_NO;
    x->status = 204;
    MHD_add_response_header(response, "Allow", "GET, HEAD, POST, OPTIONS");
    if (x->origin.n) {
        app_buffer headers = {0};
        app_buffer_text(&headers, "Authorization, Content-Type, x-api-key, anthropic-version, anthropic-beta");
        if (wanted)
            srv_add(&headers, ", %s", wanted);
        MHD_add_response_header(response, "Access-Control-Allow-Origin", x->origin.text);
        MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
        MHD_add_response_header(response, "Access-Control-Allow-Headers", headers.text);
        MHD_add_response_header(response, "Access-Control-Max-Age", "600");
        MHD_add_response_header(response, "Vary", "Origin");
        app_buffer_free(&headers);
    }
    srv_connection_deadline(x->server, x->connection, x->server->config.write);
    enum MHD_Result result = MHD_queue_response(x->mhd, 204, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* Repeated slashes are one, one at the end is none. */
static void normalise(app_buffer *out, const char *url)
{
    for (size_t i = 0; url[i]; i++)
        if (url[i] != '/' || url[i + 1] != '/')
            app_buffer_add(out, url + i, 1);
    while (out->n > 1 && out->text[out->n - 1] == '/')
        out->text[--out->n] = 0;
    if (!out->n)
        app_buffer_text(out, "/");
}

/* A text that cannot fit is refused unread: no token is as long as this on average. 0: the context is not known yet. */
static uint64_t most_bytes(srv_server *server)
{
    enum { BYTES_A_TOKEN = 32 };
    pthread_mutex_lock(&server->lock);
    uint64_t most = server->is_ready ? (uint64_t)server->config.rules.context * BYTES_A_TOKEN + (1 << 20) : 0;
    pthread_mutex_unlock(&server->lock);
    return most;
}

static void check_length(srv_exchange *x, uint64_t n)
{
    uint64_t limit = x->server->config.body_limit, most = most_bytes(x->server);
    if (n > limit)
        srv_deny(&x->problem, 413, "request_too_large", "the body has %llu bytes or more, and at most %llu are taken",
                 (unsigned long long)n, (unsigned long long)limit);
    else if (most && n > most)
        srv_deny(&x->problem, 400, "context_length_exceeded", "the body has %llu bytes or more, and the context takes at most %llu",
                 (unsigned long long)n, (unsigned long long)most);
    x->is_refused |= n > limit || (most && n > most);
}

static void check_head(srv_exchange *x)
{
    const char *length = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Content-Length");
    const char *encoding = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Content-Encoding");
    check_length(x, length ? strtoull(length, NULL, 10) : 0);
    if (x->is_refused || !encoding || strcmp(encoding, "identity") == 0)
        return;
    srv_deny(&x->problem, 415, NULL, "the body has the Content-Encoding \"%.40s\"; only identity is read", encoding);
    x->is_refused = 1;
}

/* ---- bodies ------------------------------------------------------------------------------------------------------ */

/* Many clients that send long bodies at the same time do not fill the memory: all bodies together are as many of the longest as this. */
enum { LONGEST_BODIES = 8 };

static int reserve_body(srv_server *server, size_t n)
{
    pthread_mutex_lock(&server->lock);
    int fits = server->body_bytes + n <= (uint64_t)LONGEST_BODIES * server->config.body_limit;
    server->body_bytes += fits ? n : 0;
    pthread_mutex_unlock(&server->lock);
    return fits;
}

static void free_body(srv_exchange *x)
{
    pthread_mutex_lock(&x->server->lock);
    x->server->body_bytes -= x->body.n;
    pthread_mutex_unlock(&x->server->lock);
    app_buffer_free(&x->body);
}

static void add_to_body(srv_exchange *x, const char *data, size_t n)
{
    if (!x->is_refused)
        check_length(x, x->body.n + n);
    if (!x->is_refused && !reserve_body(x->server, n)) {
        srv_deny(&x->problem, 503, "busy", "the bodies of other requests take all memory that there is for bodies; try again later");
        x->is_refused = 1;
    }
    if (x->is_refused)
        free_body(x);
    else
        app_buffer_add(&x->body, data, n);
}

static srv_exchange *begin_exchange(srv_server *server, struct MHD_Connection *mhd, const char *url, const char *method)
{
    srv_exchange *x = app_alloc(1, sizeof *x);
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    *x = (srv_exchange){.server = server, .mhd = mhd, .connection = info->socket_context, .started = srv_now()};
    for (size_t i = 0; i + 1 < sizeof x->method && method[i]; i++)
        x->method[i] = method[i] > ' ' && method[i] < 127 ? method[i] : '?';
    normalise(&x->path, url);
    int is_options = strcmp(method, "OPTIONS") == 0;
    if (!is_options)
        x->route = srv_route_find(x->path.text, x->method, &x->rest, &x->problem);
    srv_problem refused = {0};
    /* Who may not ask is not told which paths there are. */
    if (!srv_access_check(&server->config, mhd, is_options ? NULL : x->route ? x->route : &(srv_route){0}, &x->origin, &refused))
        x->problem = refused;
    x->is_refused = x->problem.status != 0;
    if (!x->is_refused)
        check_head(x);
    srv_connection_deadline(server, x->connection, server->config.body);
    return x;
}

static int is_ready(srv_exchange *x)
{
    pthread_mutex_lock(&x->server->lock);
    int ready = x->server->is_ready && !x->server->is_stopping;
    int stopping = x->server->is_stopping;
    pthread_mutex_unlock(&x->server->lock);
    if (!ready)
        srv_deny(&x->problem, 503, stopping ? "server_stopping" : "loading", "%s",
                 stopping ? "the server is being stopped" : "the model is still being loaded");
    return ready;
}

static enum MHD_Result answer(srv_exchange *x)
{
    app_buffer body = {0};
    const char *type = "application/json";
    x->is_complete = 1;
    srv_connection_deadline(x->server, x->connection, 0);
    if (x->is_refused)
        return srv_respond_problem(x);
    if (strcmp(x->method, "OPTIONS") == 0)
        return respond_options(x);
    if (x->route->needs_engine && !is_ready(x))
        return srv_respond_problem(x);
    if (x->route->is_post)
        return srv_generate(x);
    int ok = x->route->get(x->server, &body, &type, x->rest, &x->problem);
    if (ok && strncmp(type, "text/html", 9) == 0)
        number_page(x, &body);
    enum MHD_Result result = ok ? srv_respond(x, 200, type, &body) : srv_respond_problem(x);
    app_buffer_free(&body);
    return result;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *mhd, const char *url, const char *method, const char *version,
                                  const char *data, size_t *n_data, void **context)
{
    srv_server *server = user;
    srv_exchange *x = *context;
    (void)version;
    if (!x) {
        *context = x = begin_exchange(server, mhd, url, method);
        /* A body that is too long is not waited for. */
        return x->problem.status == 413 ? srv_respond_problem(x) : MHD_YES;
    }
    if (!*n_data)
        return x->is_complete ? MHD_YES : answer(x);
    add_to_body(x, data, *n_data);
    *n_data = 0;
    return MHD_YES;
}

/* ---- the end of a request ---------------------------------------------------------------------------------------- */

static void count(srv_server *server, const char *path, int status)
{
    pthread_mutex_lock(&server->lock);
    size_t i = 0;
    while (i < server->n_counted && (server->counted[i].path != path || server->counted[i].status != status))
        i++;
    if (i == server->n_counted && i < SRV_MAX_COUNTED)
        server->counted[server->n_counted++] = (struct counted){path, status, 0};
    if (i < server->n_counted)
        server->counted[i].n++;
    pthread_mutex_unlock(&server->lock);
}

/* Paths are a client's text, as methods are: only what cannot confuse a terminal or a log is shown. */
static void show_line(const srv_exchange *x)
{
    char path[81];
    size_t n = x->path.n < 80 ? x->path.n : 80;
    for (size_t i = 0; i < n; i++)
        path[i] = x->path.text[i] > ' ' && x->path.text[i] < 127 ? x->path.text[i] : '?';
    path[n] = 0;
    const srv_state *s = &x->reply.state;
    if (x->turn)
        fprintf(stderr, "k3: %s %s %d%s, %lld prompt tokens (%lld cached), %lld new, %.2f s\n", x->method, path, x->status,
                x->is_gone || !s->has_ended ? " (client left)" : "", (long long)s->n_prompt, (long long)s->n_cached, (long long)s->n_new,
                srv_now() - x->started);
    else
        fprintf(stderr, "k3: %s %s %d, %.2f s\n", x->method, path, x->status, srv_now() - x->started);
}

static void on_completed(void *user, struct MHD_Connection *mhd, void **context, enum MHD_RequestTerminationCode code)
{
    srv_server *server = user;
    srv_exchange *x = *context;
    (void)mhd;
    (void)code;
    if (!x)
        return;
    if (!x->status)
        x->status = 499; /* the client left before there was an answer */
    count(server, x->route ? x->route->path : "other", x->status);
    if (!server->config.is_quiet)
        show_line(x);
    srv_connection_deadline(server, x->connection, server->config.idle);
    srv_exchange_end(x);
    app_buffer_free(&x->path);
    free_body(x);
    app_buffer_free(&x->nonce);
    app_buffer_free(&x->origin);
    app_buffer_free(&x->out);
    free(x);
    *context = NULL;
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

static void on_connection(void *user, struct MHD_Connection *mhd, void **context, enum MHD_ConnectionNotificationCode code)
{
    srv_server *server = user;
    pthread_mutex_lock(&server->lock);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        srv_connection *c = app_alloc(1, sizeof *c);
        c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        c->deadline = srv_now() + server->config.idle;
        c->next = server->connections;
        c->link = &server->connections;
        if (c->next)
            c->next->link = &c->next;
        server->connections = c;
        *context = c;
    } else {
        srv_connection *c = *context;
        *c->link = c->next;
        if (c->next)
            c->next->link = c->link;
        free(c);
    }
    pthread_mutex_unlock(&server->lock);
}

/* Half a second is fine enough for limits of seconds. */
static void *watch(void *user)
{
    srv_server *server = user;
    pthread_mutex_lock(&server->lock);
    while (!server->is_stopping) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 500000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&server->changed, &server->lock, &until);
        double now = srv_now();
        for (srv_connection *c = server->connections; c; c = c->next)
            if (c->deadline > 0 && now > c->deadline)
                shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

/* ---- the server -------------------------------------------------------------------------------------------------- */

enum { MAX_CONNECTIONS = 1024, OTHER_FILES = 256, HEADER_BYTES = 256 << 10 };

/* As many connections as there are descriptors for, beside those of the model's files. The system is asked for more where they are few:
 * without one left, a client that waits to be accepted would be tried again and again. */
static unsigned most_connections(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return MAX_CONNECTIONS;
    rlim_t wanted = MAX_CONNECTIONS + OTHER_FILES, before = files.rlim_cur;
    if (before >= wanted)
        return MAX_CONNECTIONS;
    files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
    rlim_t have = setrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : before;
    return have >= 2 * OTHER_FILES ? (unsigned)(have - OTHER_FILES) : (unsigned)(have / 2);
}

k3_status srv_server_open(srv_server **out, int socket, const srv_config *config, k3_error *err)
{
    srv_server *server = app_alloc(1, sizeof *server);
    server->config = *config;
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->changed, NULL);
    server->daemon = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0, NULL,
                                      NULL, on_request, server, MHD_OPTION_LISTEN_SOCKET, socket, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
                                      server, MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_CONNECTION_LIMIT,
                                      most_connections(), MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES, MHD_OPTION_END);
    if (!server->daemon || pthread_create(&server->watch, NULL, watch, server) != 0) {
        *err = (k3_error){K3_E_IO, "the HTTP server could not be started: no threads or descriptors are left"};
        if (server->daemon)
            MHD_stop_daemon(server->daemon);
        free(server);
        return K3_E_IO;
    }
    *out = server;
    return K3_OK;
}

void srv_server_ready(srv_server *server, const k3_engine *engine, srv_scheduler *scheduler, int64_t context)
{
    pthread_mutex_lock(&server->lock);
    server->config.rules.engine = engine;
    server->config.rules.context = context ? context : k3_engine_info(engine)->context_length;
    server->scheduler = scheduler;
    server->is_ready = 1;
    pthread_mutex_unlock(&server->lock);
}

/* Seconds that clients get to read how their answers ended. */
enum { FAREWELL = 3 };

static int has_turns(const srv_server *server)
{
    for (const srv_connection *c = server->connections; c; c = c->next)
        if (c->turn)
            return 1;
    return 0;
}

void srv_server_close(srv_server *server)
{
    if (!server)
        return;
    MHD_socket listening = MHD_quiesce_daemon(server->daemon);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += FAREWELL;
    pthread_mutex_lock(&server->lock);
    server->is_stopping = 1;
    for (srv_connection *c = server->connections; c; c = c->next)
        if (c->turn)
            srv_turn_cancel(c->turn);
    pthread_cond_broadcast(&server->changed);
    while (has_turns(server) && pthread_cond_timedwait(&server->changed, &server->lock, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&server->lock);
    pthread_join(server->watch, NULL);
    MHD_stop_daemon(server->daemon);
    if (listening != MHD_INVALID_SOCKET)
        close(listening);
    pthread_mutex_destroy(&server->lock);
    pthread_cond_destroy(&server->changed);
    free(server);
}
