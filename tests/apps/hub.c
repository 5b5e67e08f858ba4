#include "hub.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "process.h"

enum { MAX_CONNECTIONS = 256, MAX_REQUEST = 8192, PIECE = 16384 };

struct hub_state {
    hub *h;
    pthread_mutex_t lock;
    pthread_cond_t gone; /* a connection */
    pthread_t thread;
    int listener, stopping, n_open;
    int connections[MAX_CONNECTIONS]; /* [n_open] */
    char *log;
    size_t n_log;
    pid_t victim; /* 0: none */
    int signal;
    int64_t signal_after; /* bytes of files to be sent before */
};

typedef struct connection {
    struct hub_state *s;
    int fd;
} connection;

typedef struct request {
    char line[1024], path[1024], range[64], token[256], unless[64];
    int is_head;
} request;

/* ---- the log --------------------------------------------------------------------------------------------------------- */

static void log_request(struct hub_state *s, const request *r)
{
    char text[1600];
    int n =
        snprintf(text, sizeof text, "%s%s%s%s%s\n", r->line, *r->range ? " range=" : "", r->range, *r->token ? " token=" : "", r->token);
    pthread_mutex_lock(&s->lock);
    s->log = realloc(s->log, s->n_log + (size_t)n + 1);
    memcpy(s->log + s->n_log, text, (size_t)n + 1);
    s->n_log += (size_t)n;
    pthread_mutex_unlock(&s->lock);
}

int hub_count(hub *h, const char *text)
{
    int n = 0;
    pthread_mutex_lock(&h->state->lock);
    for (char *line = h->state->log; line && *line;) {
        char *end = strchr(line, '\n');
        *end = 0;
        n += strstr(line, text) != NULL;
        *end = '\n';
        line = end + 1;
    }
    pthread_mutex_unlock(&h->state->lock);
    return n;
}

void hub_forget(hub *h)
{
    pthread_mutex_lock(&h->state->lock);
    free(h->state->log);
    h->state->log = NULL;
    h->state->n_log = 0;
    pthread_mutex_unlock(&h->state->lock);
}

void hub_signal_after(hub *h, int64_t n_bytes, pid_t pid, int signal)
{
    pthread_mutex_lock(&h->state->lock);
    h->state->victim = pid;
    h->state->signal = signal;
    h->state->signal_after = n_bytes;
    pthread_mutex_unlock(&h->state->lock);
}

/* ---- sending --------------------------------------------------------------------------------------------------------- */

static int send_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, bytes, n, 0);
        if (sent <= 0)
            return 0;
        bytes += sent;
        n -= (size_t)sent;
    }
    return 1;
}

/* Until the other side goes away. */
static int hang(connection *c)
{
    char byte;
    while (recv(c->fd, &byte, 1, 0) > 0)
        ;
    return 0;
}

static void count_sent(struct hub_state *s, size_t n)
{
    pthread_mutex_lock(&s->lock);
    s->signal_after -= (int64_t)n;
    if (s->victim && s->signal_after <= 0) {
        kill(s->victim, s->signal);
        s->victim = 0;
    }
    pthread_mutex_unlock(&s->lock);
}

static int send_body(connection *c, const char *bytes, size_t n, const hub_fault *fault)
{
    long cut = fault->cut_after;
    size_t n_sent = cut < 0 ? 0 : cut > 0 && (size_t)cut < n ? (size_t)cut : n;
    for (size_t at = 0; at < n_sent; at += PIECE) {
        size_t piece = n_sent - at < PIECE ? n_sent - at : PIECE;
        count_sent(c->s, 0);
        if (!send_all(c->fd, bytes + at, piece))
            return 0;
        count_sent(c->s, piece);
    }
    if (fault->hang)
        return hang(c);
    return cut == 0 || (size_t)cut >= n;
}

static int send_answer(connection *c, const request *r, int status, const char *headers, const char *body, size_t n, const hub_fault *fault)
{
    char head[2048];
    int has_length = !c->s->h->no_lengths || r->is_head;
    int n_head = snprintf(head, sizeof head, "HTTP/1.1 %d Said\r\n%s%s", status, headers, fault->extra ? fault->extra : "");
    if (has_length)
        n_head += snprintf(head + n_head, sizeof head - (size_t)n_head, "Content-Length: %lld\r\n\r\n",
                           (long long)(fault->length ? fault->length : (int64_t)n));
    else
        n_head += snprintf(head + n_head, sizeof head - (size_t)n_head, "Connection: close\r\n\r\n");
    if (!send_all(c->fd, head, (size_t)n_head))
        return 0;
    if (r->is_head)
        return 1;
    return send_body(c, body, n, fault) && has_length;
}

/* ---- the answers ------------------------------------------------------------------------------------------------------ */

static hub_fault fault_of(struct hub_state *s, const request *r)
{
    hub_fault found = {0};
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < HUB_MAX_FAULTS && !found.match; i++) {
        hub_fault *f = &s->h->faults[i];
        if (f->match && f->n_times > 0 && strstr(r->line, f->match)) {
            f->n_times--;
            found = *f;
        }
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

static int answer_fault(connection *c, const request *r, const hub_fault *fault)
{
    char headers[2048] = "";
    size_t n = 0, n_location = fault->location ? strlen(fault->location) : 0;
    if (fault->retry_after)
        n += (size_t)snprintf(headers, sizeof headers, "Retry-After: %d\r\n", fault->retry_after);
    if (n_location)
        snprintf(headers + n, sizeof headers - n, "Location: %s%s\r\n", fault->location,
                 fault->location[n_location - 1] >= '0' && fault->location[n_location - 1] <= '9' ? r->path : "");
    return send_answer(c, r, fault->status, headers, "said no", 7, &(hub_fault){.extra = fault->extra});
}

static int answer_list(connection *c, const request *r, const hub_fault *fault)
{
    const hub *h = c->s->h;
    const char *cursor = strstr(r->path, "cursor=");
    int first = cursor ? atoi(cursor + 7) : 0, last = h->page && first + h->page < h->n_files ? first + h->page : h->n_files;
    size_t size = 1024 * (size_t)(h->n_files + 1), n = 0;
    char *text = calloc(size, 1), link[256] = "";
    n += (size_t)snprintf(text, size, "[{\"type\": \"directory\", \"path\": \"folder\", \"size\": 0}");
    for (int i = first; i < last; i++) {
        const hub_file *f = &h->files[i];
        n += (size_t)snprintf(text + n, size - n, ",\n{\"type\": \"file\", \"oid\": \"0\", \"size\": %lld, \"path\": \"%s\"",
                              f->listed_size >= 0 ? (long long)f->listed_size : (long long)f->n, f->name);
        if (*f->sha256)
            n += (size_t)snprintf(text + n, size - n, ", \"lfs\": {\"oid\": \"%s\", \"size\": %zu}", f->sha256, f->n);
        n += (size_t)snprintf(text + n, size - n, "}");
    }
    n += (size_t)snprintf(text + n, size - n, "]");
    if (last < h->n_files)
        snprintf(link, sizeof link, "Link: </api/models/owner/mini/tree/main?recursive=true&cursor=%d>; rel=\"next\"\r\n", last);
    int open = h->list ? send_answer(c, r, 200, "", h->list, strlen(h->list), fault) : send_answer(c, r, 200, link, text, n, fault);
    free(text);
    return open;
}

static int hex(char c)
{
    return c <= '9' ? c - '0' : c - 'A' + 10;
}

static const hub_file *find(const hub *h, const char *path)
{
    static const char prefix[] = "/owner/mini/resolve/main/";
    char name[1024];
    size_t n = 0;
    if (strncmp(path, prefix, sizeof prefix - 1) != 0)
        return NULL;
    for (const char *p = path + sizeof prefix - 1; *p && *p != '?'; p++) {
        name[n++] = *p == '%' ? (char)(hex(p[1]) << 4 | hex(p[2])) : *p;
        p += *p == '%' ? 2 : 0;
    }
    name[n] = 0;
    for (int i = 0; i < h->n_files; i++)
        if (strcmp(h->files[i].name, name) == 0)
            return &h->files[i];
    return NULL;
}

static int answer_file(connection *c, const request *r, const hub_file *f, const hub_fault *fault)
{
    const hub *h = c->s->h;
    char headers[600];
    long long from = 0;
    size_t n = 0;
    headers[0] = 0;
    if (h->linked && *f->sha256)
        n += (size_t)snprintf(headers, sizeof headers, "X-Linked-Etag: \"%s\"\r\nX-Linked-Size: %zu\r\n", f->sha256, f->n);
    struct tm unless = {0};
    if (*r->unless && strptime(r->unless, "%a, %d %b %Y %H:%M:%S GMT", &unless) && timegm(&unless) < h->changed)
        return send_answer(c, r, 412, "", "", 0, fault);
    int is_range = !h->no_ranges && sscanf(r->range, "bytes=%lld-", &from) == 1;
    if (!is_range)
        return send_answer(c, r, 200, headers, f->bytes, f->n, fault);
    if (from >= (long long)f->n)
        return send_answer(c, r, 416, headers, "", 0, fault);
    snprintf(headers + n, sizeof headers - n, "Content-Range: bytes %lld-%zu/%zu\r\n", from, f->n - 1, f->n);
    return send_answer(c, r, 206, headers, f->bytes + from, f->n - (size_t)from, fault);
}

/* 0: the connection is to be closed. */
static int answer(connection *c, const request *r)
{
    const hub *h = c->s->h;
    hub_fault fault = fault_of(c->s, r);
    const hub_file *f = find(h, r->path);
    log_request(c->s, r);
    if (fault.hang && !fault.cut_after)
        return hang(c);
    if (fault.status)
        return answer_fault(c, r, &fault);
    if (r->is_head && h->no_heads)
        return send_answer(c, r, 405, "", "", 0, &fault);
    if (strncmp(r->path, "/api/models/owner/mini/tree/main?recursive=true", 47) == 0 && !h->no_api)
        return answer_list(c, r, &fault);
    if (f)
        return answer_file(c, r, f, &fault);
    return send_answer(c, r, 404, "", "there is no such file", 21, &fault);
}

/* ---- connections ------------------------------------------------------------------------------------------------------ */

static void take_header(char *out, size_t size, const char *text, const char *name)
{
    const char *at = strcasestr(text, name);
    if (at)
        snprintf(out, size, "%.*s", (int)strcspn(at + strlen(name), "\r\n"), at + strlen(name));
}

static int read_request(int fd, request *r)
{
    char text[MAX_REQUEST];
    size_t n = 0;
    do {
        ssize_t got = recv(fd, text + n, 1, 0);
        if (got <= 0 || ++n == sizeof text)
            return 0;
        text[n] = 0;
    } while (n < 4 || strcmp(text + n - 4, "\r\n\r\n") != 0);
    *r = (request){.is_head = strncmp(text, "HEAD ", 5) == 0};
    snprintf(r->line, sizeof r->line, "%.*s", (int)(strcspn(text, "\r") > 9 ? strcspn(text, "\r") - 9 : 0), text);
    const char *space = strchr(r->line, ' ');
    snprintf(r->path, sizeof r->path, "%s", space ? space + 1 : "");
    take_header(r->range, sizeof r->range, text, "\r\nRange: ");
    take_header(r->token, sizeof r->token, text, "\r\nAuthorization: ");
    take_header(r->unless, sizeof r->unless, text, "\r\nIf-Unmodified-Since: ");
    return 1;
}

static void *serve(void *argument)
{
    connection c = *(connection *)argument;
    struct hub_state *s = c.s;
    request r;
    free(argument);
    while (read_request(c.fd, &r) && answer(&c, &r))
        ;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n_open; i++)
        if (s->connections[i] == c.fd)
            s->connections[i] = s->connections[--s->n_open];
    close(c.fd);
    pthread_cond_signal(&s->gone);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void *listen_on(void *argument)
{
    struct hub_state *s = argument;
    for (int fd; (fd = accept(s->listener, NULL, NULL)) >= 0;) {
        pthread_t thread;
        connection *c = malloc(sizeof *c);
        int room = 1 << 16; /* so that what was sent is nearly what came */
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        *c = (connection){s, fd};
        pthread_mutex_lock(&s->lock);
        int ok = !s->stopping && s->n_open < MAX_CONNECTIONS;
        if (ok)
            s->connections[s->n_open++] = fd;
        pthread_mutex_unlock(&s->lock);
        if (ok && pthread_create(&thread, NULL, serve, c) == 0) {
            pthread_detach(thread);
        } else {
            close(fd);
            free(c);
        }
    }
    return NULL;
}

hub *hub_start(void)
{
    hub *h = calloc(1, sizeof *h);
    struct hub_state *s = calloc(1, sizeof *s);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    assert_true(h && s);
    signal(SIGPIPE, SIG_IGN); /* who goes away in the middle of an answer is no trouble */
    h->state = s;
    s->h = h;
    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->gone, NULL);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(s->listener, 64), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&address, &n), 0);
    h->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&s->thread, NULL, listen_on, s), 0);
    return h;
}

void hub_stop(hub *h)
{
    struct hub_state *s = h->state;
    pthread_mutex_lock(&s->lock);
    s->stopping = 1;
    for (int i = 0; i < s->n_open; i++)
        shutdown(s->connections[i], SHUT_RDWR);
    shutdown(s->listener, SHUT_RDWR);
    while (s->n_open)
        pthread_cond_wait(&s->gone, &s->lock);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    close(s->listener);
    free(s->log);
    free(s);
    free(h);
}

hub_file *hub_add(hub *h, const char *name, const void *bytes, size_t n)
{
    assert_true(h->n_files < HUB_MAX_FILES);
    hub_file *f = &h->files[h->n_files++];
    *f = (hub_file){.bytes = bytes, .n = n, .listed_size = -1};
    snprintf(f->name, sizeof f->name, "%s", name);
    return f;
}

void hub_add_fault(hub *h, hub_fault fault)
{
    for (int i = 0; i < HUB_MAX_FAULTS; i++)
        if (!h->faults[i].match) {
            h->faults[i] = fault;
            return;
        }
    fail_msg("more than %d faults", HUB_MAX_FAULTS);
}
