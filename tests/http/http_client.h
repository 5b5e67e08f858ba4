/* A small HTTP client that can also behave badly. Everything here fails the test on trouble. */
#ifndef K3_TESTS_HTTP_CLIENT_H
#define K3_TESTS_HTTP_CLIENT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct http_reply {
    int status; /* 0: the connection was closed without an answer */
    char *head; /* header lines */
    char *body; /* without the coding of chunks; 0-terminated */
    size_t n_body;
    int is_whole; /* it came to its end */
} http_reply;

void http_free(http_reply *reply);
/* The value of a header, up to the end of its line, in a static buffer; NULL if it is not there. */
const char *http_header(const http_reply *reply, const char *name);

int http_open(int port);
void http_send(int fd, const char *text, size_t n);
/* Sends a request; `headers` are whole lines with their ends, or "". */
void http_request(int fd, const char *method, const char *path, const char *headers, const char *body);
http_reply http_read(int fd);
/* Reads until `text` has come, at most a few seconds; what was read is thrown away by the caller's next http_read. */
void http_wait(int fd, const char *text);

/* All of it on a connection of its own. */
http_reply http_ask(int port, const char *method, const char *path, const char *headers, const char *body);
http_reply http_post(int port, const char *path, const char *body);
/* The status of a POST, and that its body is a JSON error if it is 4xx or 5xx. */
int http_post_status(int port, const char *path, const char *body);

#endif
