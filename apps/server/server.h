/* The HTTP server: any number of connections, a thread each, that share one scheduler. */
#ifndef K3_APPS_SERVER_SERVER_H
#define K3_APPS_SERVER_SERVER_H

#include "ask.h"
#include "scheduler.h"

typedef struct srv_config {
    srv_rules rules;          /* engine and context are set by srv_server_ready */
    const char *allow_hosts;  /* names in the Host header beside addresses and localhost, separated by commas; * for any; NULL: none */
    const char *cors_origins; /* web pages that may ask, by origin, separated by commas; * for any; NULL: only the server's own */
    const app_buffer *keys;   /* NUL after each; NULL: everybody may ask */
    int parallel;             /* told by /props */
    int is_quiet;             /* no line for each request */
    size_t body_limit;        /* bytes */
    double silence;           /* seconds without an event after which a stream shows that it lives */
    double idle, body,
        write; /* seconds that a client may take: between requests and for the head of one, for a body, to take what was written */
} srv_config;

/* The values that need no thought. */
srv_config srv_config_standard(void);

/* A socket that listens, -1 after a message in `err`. port 0: any; *port is the one it is. */
int srv_listen(const char *host, int *port, k3_error *err);

typedef struct srv_server srv_server;
/* Answers from now on; until srv_server_ready with 503. Takes the socket over. The configuration is copied, what it points to is not. */
k3_status srv_server_open(srv_server **out, int socket, const srv_config *config, k3_error *err);
/* context: tokens; 0: the model's. */
void srv_server_ready(srv_server *server, const k3_engine *engine, srv_scheduler *scheduler, int64_t context);
/* Takes no further connections, ends what runs with an error that says so, and waits for that. The scheduler stays open. */
void srv_server_close(srv_server *server);

#endif
