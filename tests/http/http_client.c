#include "http_client.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "buffer.h"
#include "json.h"

enum { PATIENCE = 20000 }; /* ms */

void http_free(http_reply *reply)
{
    free(reply->head);
    free(reply->body);
    *reply = (http_reply){0};
}

const char *http_header(const http_reply *reply, const char *name)
{
    static char value[1024];
    for (const char *line = reply->head; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        size_t n = strlen(name);
        if (strncasecmp(line, name, n) == 0 && line[n] == ':') {
            snprintf(value, sizeof value, "%.*s", (int)strcspn(line + n + 2, "\r\n"), line + n + 2);
            return value;
        }
    }
    return NULL;
}

int http_open(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

void http_send(int fd, const char *text, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, text, n, 0);
        if (sent <= 0)
            return; /* the server has heard enough; its answer tells */
        text += sent;
        n -= (size_t)sent;
    }
}

void http_request(int fd, const char *method, const char *path, const char *headers, const char *body)
{
    app_buffer text = {0};
    char length[64];
    app_buffer_text(&text, method);
    app_buffer_text(&text, " ");
    app_buffer_text(&text, path);
    app_buffer_text(&text, " HTTP/1.1\r\n");
    if (!strcasestr(headers, "Host:"))
        app_buffer_text(&text, "Host: localhost\r\n");
    app_buffer_text(&text, headers);
    if (body) {
        snprintf(length, sizeof length, "Content-Length: %zu\r\n", strlen(body));
        app_buffer_text(&text, length);
    }
    app_buffer_text(&text, "\r\n");
    app_buffer_text(&text, body ? body : "");
    http_send(fd, text.text, text.n);
    app_buffer_free(&text);
}

static int more(int fd, app_buffer *all)
{
    char block[65536];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, PATIENCE) <= 0)
        fail_msg("nothing came for %d ms after: %.200s", PATIENCE, all->n ? all->text : "");
    ssize_t n = recv(fd, block, sizeof block, 0);
    if (n > 0)
        app_buffer_add(all, block, (size_t)n);
    return n > 0;
}

void http_wait(int fd, const char *text)
{
    app_buffer all = {0};
    while (!all.n || !strstr(all.text, text))
        if (!more(fd, &all))
            fail_msg("the connection ended before \"%s\": %.500s", text, all.n ? all.text : "");
    app_buffer_free(&all);
}

static void read_chunks(int fd, app_buffer *all, size_t at, http_reply *reply)
{
    app_buffer body = {0};
    for (;;) {
        char *line;
        while (!(line = strstr(all->text + at, "\r\n")))
            if (!more(fd, all))
                goto end;
        size_t n = strtoul(all->text + at, NULL, 16), from = (size_t)(line - all->text) + 2;
        while (all->n < from + n + 2)
            if (!more(fd, all))
                goto end;
        app_buffer_add(&body, all->text + from, n);
        at = from + n + 2;
        if (!n) {
            reply->is_whole = 1;
            break;
        }
    }
end:
    app_buffer_add(&body, "", 0);
    reply->body = body.text;
    reply->n_body = body.n;
}

http_reply http_read(int fd)
{
    http_reply reply = {0};
    app_buffer all = {0};
    char *end;
    while (!all.n || !(end = strstr(all.text, "\r\n\r\n")))
        if (!more(fd, &all)) {
            app_buffer_free(&all);
            reply.head = calloc(1, 1);
            reply.body = calloc(1, 1);
            return reply;
        }
    size_t at = (size_t)(end - all.text) + 4;
    reply.status = atoi(all.text + strlen("HTTP/1.1 "));
    reply.head = strndup(all.text, at);
    if (reply.status == 100) {
        http_free(&reply);
        memmove(all.text, all.text + at, all.n - at + 1);
        all.n -= at;
        while (!(end = strstr(all.text, "\r\n\r\n")))
            assert_true(more(fd, &all));
        at = (size_t)(end - all.text) + 4;
        reply.status = atoi(all.text + strlen("HTTP/1.1 "));
        reply.head = strndup(all.text, at);
    }
    if (http_header(&reply, "Transfer-Encoding")) {
        read_chunks(fd, &all, at, &reply);
    } else {
        const char *length = http_header(&reply, "Content-Length");
        size_t n = length ? strtoul(length, NULL, 10) : 0;
        while (all.n < at + n && more(fd, &all))
            ;
        reply.is_whole = all.n >= at + n;
        reply.n_body = all.n - at;
        reply.body = strndup(all.text + at, reply.n_body);
    }
    app_buffer_free(&all);
    return reply;
}

http_reply http_ask(int port, const char *method, const char *path, const char *headers, const char *body)
{
    int fd = http_open(port);
    http_request(fd, method, path, headers, body);
    http_reply reply;
    if (strcmp(method, "HEAD") == 0) {
        char block[4096];
        ssize_t n = recv(fd, block, sizeof block - 1, 0);
        assert_true(n > 0);
        block[n] = 0;
        reply = (http_reply){.status = atoi(block + 9), .head = strdup(block), .body = calloc(1, 1), .is_whole = 1};
        assert_string_equal(block + n - 4, "\r\n\r\n");
    } else {
        reply = http_read(fd);
    }
    close(fd);
    return reply;
}

http_reply http_post(int port, const char *path, const char *body)
{
    return http_ask(port, "POST", path, "", body);
}

int http_post_status(int port, const char *path, const char *body)
{
    http_reply reply = http_post(port, path, body);
    int status = reply.status;
    size_t wrong;
    if (status >= 400) {
        app_json error = app_json_get(app_json_whole(reply.body, reply.n_body, &wrong), "error");
        assert_int_equal(app_json_kind(app_json_get(error, "message")), '"');
        assert_int_equal(app_json_kind(app_json_get(error, "type")), '"');
        assert_string_equal(http_header(&reply, "Content-Type"), "application/json");
    }
    http_free(&reply);
    return status;
}
