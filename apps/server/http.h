/* Inside the server: connections and the requests on them. */
#ifndef K3_APPS_SERVER_HTTP_H
#define K3_APPS_SERVER_HTTP_H

#include <microhttpd.h>
#include <pthread.h>

#include "api.h"
#include "server.h"

typedef struct srv_connection {
    struct srv_connection *next, **link;
    int fd;
    double deadline; /* seconds of the monotonic clock, after which it is cut; 0: none */
    srv_turn *turn;  /* under way */
} srv_connection;

enum { SRV_MAX_COUNTED = 96 };

struct srv_server {
    srv_config config;
    struct MHD_Daemon *daemon;
    pthread_t watch;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    srv_connection *connections;
    int is_ready, is_stopping;
    uint64_t body_bytes; /* of all requests, in memory */
    srv_scheduler *scheduler;
    struct counted {
        const char *path;
        int status;
        uint64_t n;
    } counted[SRV_MAX_COUNTED];
    size_t n_counted;
};

typedef struct srv_exchange srv_exchange;

/* A path, who answers it, and with which method. */
typedef struct srv_route {
    const char *path;
    int is_post, is_open; /* is_open: needs no key */
    int needs_engine;
    const srv_api *api; /* of POST */
    int counts_only;    /* count_tokens */
    /* GET: writes the body; *type is application/json before. `rest` is what follows a path that ends in a slash. 1, or 0 with a problem.
     */
    int (*get)(srv_server *server, app_buffer *out, const char **type, const char *rest, srv_problem *problem);
} srv_route;

/* NULL, with 404 or 405, if there is none. `path` is normalised; *rest is what follows a route that ends in a slash. */
const srv_route *srv_route_find(const char *path, const char *method, const char **rest, srv_problem *problem);

/* One request and its answer. */
struct srv_exchange {
    srv_server *server;
    srv_connection *connection;
    struct MHD_Connection *mhd;
    double started;
    char method[16];
    app_buffer path;
    const srv_route *route;
    const char *rest;
    int is_refused, is_complete, has_body_begun;
    srv_problem problem;
    app_buffer body;
    /* The answer. */
    int status;
    app_buffer nonce;  /* of the page; empty: it is none */
    app_buffer origin; /* a web page's that may read it; empty: none */
    srv_ask ask;
    srv_fields fields;
    srv_turn *turn;
    srv_reply reply;
    srv_batch batch;
    app_buffer out;
    size_t at; /* written of `out` */
    int is_finished, is_gone;
    double last_event;
};

double srv_now(void);
void srv_connection_deadline(srv_server *server, srv_connection *connection, double seconds);

/* Whether a request may be answered, by its headers. 1, or 0 with a problem; *origin is filled for a web page that may read the answer. */
int srv_access_check(const srv_config *config, struct MHD_Connection *mhd, const srv_route *route, app_buffer *origin,
                     srv_problem *problem);

/* Answers; the result is for MHD. */
enum MHD_Result srv_respond(srv_exchange *x, int status, const char *type, const app_buffer *body);
enum MHD_Result srv_respond_problem(srv_exchange *x);
/* A POST whose body is there. */
enum MHD_Result srv_generate(srv_exchange *x);
void srv_add_headers(srv_exchange *x, struct MHD_Response *response, const char *type);
/* Ends what the exchange has under way. */
void srv_exchange_end(srv_exchange *x);

#endif
