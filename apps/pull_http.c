#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "options.h"
#include "pull.h"
#include "terminal.h"

enum { MAX_HOPS = 10, MAX_IDLE_BODY = 1 << 20, MAX_TEXT = 1 << 29, MAX_RETRY_AFTER = 3600, CONNECT_SECONDS = 30, POLL_MS = 100 };

/* A connection and the task it works on. */
typedef struct slot {
    CURL *easy;
    pull_source *source;
    pull_task *task; /* NULL: free */
    struct curl_slist *headers;
    char *url; /* of this hop */
    int n_hops, at_origin, is_waiting;
    int fd, folder;      /* NAME.part, -1 if it is not open; where it is */
    int n_failures;      /* since the part was longest */
    int n_mismatches;    /* checksums that were wrong */
    int64_t longest;     /* of the part */
    double wait_until;   /* app_seconds */
    double heard;        /* app_seconds of the last byte, or of the start */
    int has_begun;       /* the answer's body is being kept */
    int64_t n_ignored;   /* body bytes that are not kept */
    int64_t range_at;    /* first byte that the answer has; -1: not said */
    int64_t range_total; /* -1: not said */
    int64_t linked_size; /* -1: not said */
    int folder_failed;   /* after a message */
    char etag[160];
    char refusal[256]; /* why the answer was cut off by us; "": it was not */
    char curl_error[CURL_ERROR_SIZE];
} slot;

/* ---- URLs ---------------------------------------------------------------------------------------------------------- */

char *pull_text(const char *format, ...)
{
    char *text;
    va_list list;
    va_start(list, format);
    if (vasprintf(&text, format, list) < 0)
        text = app_alloc(SIZE_MAX, 1); /* ends the program */
    va_end(list);
    return text;
}

char *pull_origin(const char *url)
{
    CURLU *u = curl_url();
    char *scheme = NULL, *host = NULL, *port = NULL, *origin = NULL;
    if (u && !curl_url_set(u, CURLUPART_URL, url, 0) && !curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) &&
        !curl_url_get(u, CURLUPART_HOST, &host, 0) && !curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) &&
        (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0))
        origin = pull_text("%s://%s:%s", scheme, host, port);
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(u);
    return origin;
}

/* A percent-encoded copy; slashes stay if keep_slashes. */
static char *escaped(const char *text, int keep_slashes)
{
    app_buffer b = {0};
    for (const char *p = text; *p; p++) {
        char code[4] = {*p, 0};
        int plain = strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~", *p) || (*p == '/' && keep_slashes);
        if (!plain)
            snprintf(code, sizeof code, "%%%02X", (unsigned char)*p);
        app_buffer_text(&b, code);
    }
    return b.text;
}

char *pull_file_url(const pull_source *source, const char *name)
{
    char *path = escaped(name, 1);
    char *url = pull_text("%s/resolve/%s/%s", source->files, source->revision, path);
    free(path);
    return url;
}

static int has_part(CURLU *u, CURLUPart part)
{
    char *text = NULL;
    int found = curl_url_get(u, part, &text, 0) == CURLUE_OK && text;
    curl_free(text);
    return found;
}

/* The last two parts of the path, owner and name, and what stands before them. */
static size_t model_at(const char *url)
{
    size_t root = (size_t)(strstr(url, "://") + 3 - url), n = strlen(url), at = n;
    root += strcspn(url + root, "/");
    for (int i = 0; i < 2 && at > root; i++)
        while (at > root && url[--at] != '/')
            ;
    return at;
}

int pull_source_open(pull_source *source, const char *url, const char *revision)
{
    CURLU *u = curl_url();
    char *whole = NULL;
    const char *why = NULL;
    source->origin = pull_origin(url);
    if (!source->origin || curl_url_set(u, CURLUPART_URL, url, 0) || !strstr(url, "://"))
        why = "a URL wanted, such as http://host:port/owner/name";
    else if (has_part(u, CURLUPART_USER) || has_part(u, CURLUPART_PASSWORD))
        why = "a name or password in the URL; a token goes into a file, --token-file F";
    else if (has_part(u, CURLUPART_QUERY) || has_part(u, CURLUPART_FRAGMENT))
        why = "a URL without ? and # wanted";
    else if (curl_url_get(u, CURLUPART_URL, &whole, 0))
        why = "a URL wanted";
    for (size_t n = whole ? strlen(whole) : 0; n && whole[n - 1] == '/'; n--)
        whole[n - 1] = 0;
    if (!why && model_at(whole) == strlen(whole))
        why = "a URL with the model's owner and name wanted, such as http://host:port/owner/name";
    if (why) {
        pull_tell("%s: %s", url, why);
    } else {
        size_t at = model_at(whole);
        source->files = pull_text("%s", whole);
        source->api = pull_text("%.*s/api/models%s", (int)at, whole, whole + at);
        source->revision = escaped(revision, 0);
        source->multi = curl_multi_init();
    }
    curl_free(whole);
    curl_url_cleanup(u);
    return !why;
}

void pull_source_close(pull_source *source)
{
    free(source->files);
    free(source->api);
    free(source->revision);
    free(source->origin);
    free(source->token);
    curl_multi_cleanup(source->multi);
    *source = (pull_source){0};
}

void pull_task_free(pull_task *task)
{
    free(task->url);
    free(task->next);
    app_buffer_free(&task->body);
    *task = (pull_task){0};
}

/* ---- the answer ---------------------------------------------------------------------------------------------------- */

static int refuse(slot *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int refuse(slot *s, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(s->refusal, sizeof s->refusal, format, list);
    va_end(list);
    return 0;
}

/* The SHA-256 of a strong tag that is one, with or without quotes. Of the origin's tags only: where it redirects to, tags of this length
 * may be something else. */
static void take_tag(pull_file *file, const char *tag)
{
    size_t quoted = *tag == '"', n = strlen(tag);
    if (file->has_sha256 || n < 2 * quoted)
        return;
    file->has_sha256 = pull_parse_sha256(file->sha256, tag + quoted, n - 2 * quoted);
}

/* <https://host/path?cursor=x>; rel="next" */
static void take_link(slot *s, const char *value)
{
    const char *next = strstr(value, "rel=\"next\""), *open = NULL, *close = NULL;
    for (const char *p = value; next && p < next; p++) {
        if (*p == '<')
            open = p + 1;
        if (*p == '>')
            close = p;
    }
    CURLU *u = open && close > open ? curl_url() : NULL;
    char *relative = u ? pull_text("%.*s", (int)(close - open), open) : NULL, *url = NULL;
    if (u && !curl_url_set(u, CURLUPART_URL, s->url, 0) && !curl_url_set(u, CURLUPART_URL, relative, 0) &&
        !curl_url_get(u, CURLUPART_URL, &url, 0)) {
        free(s->task->next);
        s->task->next = pull_text("%s", url);
    }
    curl_free(url);
    free(relative);
    curl_url_cleanup(u);
}

static void take_header(slot *s, const char *name, const char *value)
{
    pull_task *task = s->task;
    char *end;
    if (strcasecmp(name, "Content-Range") == 0 && strncasecmp(value, "bytes ", 6) == 0) {
        s->range_at = strtoll(value + 6, &end, 10);
        end = strchr(value, '/');
        s->range_total = end && end[1] >= '0' && end[1] <= '9' ? strtoll(end + 1, NULL, 10) : -1;
    } else if (strcasecmp(name, "ETag") == 0) {
        snprintf(s->etag, sizeof s->etag, "%s", value);
    } else if (strcasecmp(name, "X-Linked-Etag") == 0 && s->at_origin && task->file) {
        take_tag(task->file, value);
    } else if (strcasecmp(name, "X-Linked-Size") == 0 && s->at_origin) {
        s->linked_size = *value >= '0' && *value <= '9' ? strtoll(value, NULL, 10) : -1;
    } else if (strcasecmp(name, "Link") == 0 && task->kind == PULL_TEXT) {
        take_link(s, value);
    }
}

static void reset_answer(slot *s)
{
    s->has_begun = 0;
    s->n_ignored = 0;
    s->range_at = s->range_total = -1;
    s->etag[0] = 0;
}

static size_t on_header(char *line, size_t size, size_t n, void *user)
{
    slot *s = user;
    char text[4096];
    s->heard = app_seconds();
    size_t n_text = size * n < sizeof text ? size * n : sizeof text - 1;
    memcpy(text, line, n_text);
    text[n_text] = 0;
    text[strcspn(text, "\r\n")] = 0;
    char *colon = strchr(text, ':');
    if (strncmp(text, "HTTP/", 5) == 0)
        reset_answer(s);
    if (colon) {
        *colon = 0;
        take_header(s, text, colon + 1 + strspn(colon + 1, " \t"));
    }
    return size * n;
}

/* Before the first byte of a file: which of its bytes these are. 0: they are not wanted. */
static int begin(slot *s, long status)
{
    pull_file *f = s->task->file;
    curl_off_t length = -1;
    curl_easy_getinfo(s->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    s->has_begun = 1;
    if (status == 206 && s->range_at != f->have && s->range_at != 0)
        return refuse(s, "bytes from %lld asked for, bytes from %lld came", (long long)f->have, (long long)s->range_at);
    int64_t total = status == 206 ? s->range_total : length;
    if (f->size < 0)
        f->size = total;
    if (total >= 0 && total != f->size)
        return refuse(s, "%lld bytes are listed, the server sends a file of %lld", (long long)f->size, (long long)total);
    if (s->at_origin)
        take_tag(f, s->etag);
    if (f->have > 0 && (status == 200 || s->range_at == 0) && !pull_part_restart(f, s->fd))
        s->folder_failed = 1;
    return !s->folder_failed;
}

static int keep(slot *s, const char *bytes, size_t n)
{
    pull_file *f = s->task->file;
    if (f->size >= 0 && f->have + (int64_t)n > f->size)
        return refuse(s, "%lld bytes are listed, the server sends more", (long long)f->size);
    if (!pull_part_write(f, s->fd, bytes, n))
        s->folder_failed = 1;
    pull_progress_add(n);
    return !s->folder_failed;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *user)
{
    slot *s = user;
    size_t n = size * count;
    long status = 0;
    int ok = 1;
    s->heard = app_seconds();
    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 && status != 206) {
        s->n_ignored += (int64_t)n;
        ok = s->n_ignored < MAX_IDLE_BODY;
    } else if (s->task->kind == PULL_TEXT) {
        ok = s->task->body.n + n <= MAX_TEXT || refuse(s, "a list of more than 512 MB");
        if (ok)
            app_buffer_add(&s->task->body, bytes, n);
    } else if (s->task->kind == PULL_BYTES) {
        ok = (s->has_begun || begin(s, status)) && keep(s, bytes, n);
    }
    return ok ? n : 0; /* 0 ends the transfer */
}

/* ---- one transfer -------------------------------------------------------------------------------------------------- */

static void add_header(slot *s, const char *text)
{
    struct curl_slist *longer = curl_slist_append(s->headers, text);
    if (longer)
        s->headers = longer;
}

static void set_headers(slot *s)
{
    const pull_file *f = s->task->file;
    char text[80];
    curl_slist_free_all(s->headers);
    s->headers = NULL;
    add_header(s, "Accept-Encoding: identity");
    if (s->at_origin && s->source->token) {
        char *line = pull_text("Authorization: Bearer %s", s->source->token);
        add_header(s, line);
        free(line);
    }
    /* Bytes of two versions of a file must not meet in it. A checksum tells; without one the server's clock has to. */
    time_t began = f ? (time_t)f->began : 0;
    struct tm utc;
    if (s->task->kind == PULL_BYTES && f->have > 0 && !f->has_sha256 && gmtime_r(&began, &utc) &&
        strftime(text, sizeof text, "If-Unmodified-Since: %a, %d %b %Y %H:%M:%S GMT", &utc))
        add_header(s, text);
    curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, s->headers);
}

static void start(slot *s)
{
    pull_task *task = s->task;
    CURL *e = s->easy;
    char range[32];
    curl_easy_reset(e);
    reset_answer(s);
    s->refusal[0] = s->curl_error[0] = 0;
    app_buffer_clear(&task->body);
    curl_easy_setopt(e, CURLOPT_URL, s->url);
    curl_easy_setopt(e, CURLOPT_PRIVATE, s);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, s->curl_error);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "k3");
    /* Redirects are followed by hop(), which knows who may see the token. A connection for each file: they are not to share one. */
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(e, CURLOPT_BUFFERSIZE, 512L * 1024);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, s);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, s);
    if (task->kind == PULL_SIZE)
        curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
    if (task->kind == PULL_BYTES && task->file->have > 0) {
        snprintf(range, sizeof range, "%lld-", (long long)task->file->have);
        curl_easy_setopt(e, CURLOPT_RANGE, range);
    }
    set_headers(s);
    s->is_waiting = 0;
    s->heard = app_seconds();
    curl_multi_add_handle(s->source->multi, e);
}

/* Takes a URL, malloc'd. */
static void go_to(slot *s, char *url)
{
    char *origin = pull_origin(url);
    free(s->url);
    s->url = url;
    s->at_origin = origin && strcasecmp(origin, s->source->origin) == 0;
    free(origin);
}

static void end(slot *s, int ok)
{
    pull_task *task = s->task;
    task->ok = ok;
    if (s->fd >= 0)
        close(s->fd);
    if (s->fd >= 0 && task->file->state != PULL_FETCHED && task->file->have == 0)
        pull_part_remove(task->file, s->folder);
    s->fd = -1;
    s->task = NULL;
    if (task->kind != PULL_BYTES)
        return;
    if (!ok) {
        task->file->state = PULL_FAILED;
        pull_tell("%s: %s", task->file->name, task->error);
    } else if (task->file->state == PULL_FETCHED) {
        pull_progress_file();
    }
}

static void fail(slot *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(slot *s, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(s->task->error, sizeof s->task->error, format, list);
    va_end(list);
    end(s, 0);
}

static void finish_part(slot *s)
{
    s->folder_failed = !pull_part_finish(s->task->file, s->fd, s->folder);
    if (!s->folder_failed)
        end(s, 1);
}

static void begin_task(slot *s, pull_task *task)
{
    s->task = task;
    s->n_hops = s->n_failures = s->n_mismatches = 0;
    s->longest = task->file ? task->file->have : 0;
    s->linked_size = -1;
    go_to(s, pull_text("%s", task->url));
    if (task->kind == PULL_BYTES) {
        s->fd = pull_part_open(task->file, s->folder);
        s->folder_failed = s->fd < 0;
    }
    if (s->folder_failed)
        return;
    if (task->kind == PULL_BYTES && task->file->have == task->file->size)
        finish_part(s); /* the last run was stopped just before it did that */
    else
        start(s);
}

/* After a failure that may pass. */
static void retry(slot *s, double retry_after, const char *why)
{
    pull_task *task = s->task;
    if (task->kind == PULL_BYTES && task->file->have > s->longest) {
        s->longest = task->file->have;
        s->n_failures = 0;
    }
    if (s->n_failures >= s->source->n_retries) {
        fail(s, "%s; given up after %d attempts", why, s->n_failures + 1);
        return;
    }
    double pause = s->n_failures < 8 ? 0.25 * (double)(1 << s->n_failures) : 60;
    s->n_failures++;
    if (retry_after > pause)
        pause = retry_after < MAX_RETRY_AFTER ? retry_after : MAX_RETRY_AFTER;
    if (pause >= 4)
        pull_tell("%s: %s; again in %.0f s", task->file ? task->file->name : "the list of files", why, pause);
    s->wait_until = app_seconds() + pause;
    s->is_waiting = 1;
    s->n_hops = 0;
    go_to(s, pull_text("%s", task->url));
}

static void hop(slot *s, long status)
{
    char *target = NULL;
    curl_easy_getinfo(s->easy, CURLINFO_REDIRECT_URL, &target);
    char *origin = target ? pull_origin(target) : NULL;
    int is_weaker = origin && strncmp(origin, "http:", 5) == 0 && strncmp(s->url, "https:", 6) == 0;
    if (!origin || is_weaker || ++s->n_hops > MAX_HOPS) {
        fail(s, "the server redirects (%ld) %s", status,
             !origin     ? "to no http or https URL"
             : is_weaker ? "from https to http"
                         : "in a circle");
        free(origin);
        return;
    }
    free(origin);
    go_to(s, pull_text("%s", target));
    start(s);
}

/* ---- how a transfer ended -------------------------------------------------------------------------------------------- */

static void restart(slot *s, const char *why)
{
    if (pull_part_restart(s->task->file, s->fd))
        retry(s, 0, why);
    else
        s->folder_failed = 1;
}

static void finish_bytes(slot *s, long status)
{
    pull_file *f = s->task->file;
    char text[200], got[2 * PULL_SHA256 + 1];
    if (!s->has_begun && !begin(s, status)) {
        if (!s->folder_failed)
            fail(s, "%s", s->refusal);
    } else if (f->size >= 0 && f->have < f->size) {
        snprintf(text, sizeof text, "the server ends after %lld of %lld bytes", (long long)f->have, (long long)f->size);
        retry(s, 0, text);
    } else if (pull_part_matches(f, got)) {
        f->size = f->have;
        finish_part(s);
    } else if (s->n_mismatches++ == 0) {
        s->longest = 0;
        restart(s, "the checksum is wrong");
    } else {
        f->have = 0;
        fail(s, "its SHA-256 is %s, which is not the server's, twice; %s.part is removed", got, f->name);
    }
}

static void finish_size(slot *s)
{
    pull_file *f = s->task->file;
    curl_off_t length = -1;
    curl_easy_getinfo(s->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    f->size = s->linked_size >= 0 ? s->linked_size : length;
    if (f->size > PULL_MAX_SIZE) {
        fail(s, "the server gives it %lld bytes; 2^50 at most wanted", (long long)f->size);
        return;
    }
    if (s->at_origin)
        take_tag(f, s->etag);
    end(s, 1);
}

static int is_redirect(long status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static int may_pass(long status)
{
    return status == 408 || status == 425 || status == 429 || (status >= 500 && status != 501 && status != 505);
}

static void refused(slot *s, long status)
{
    pull_task *task = s->task;
    if (task->file && task->file->is_optional && (status == 404 || status == 410)) {
        task->file->state = PULL_ABSENT;
        end(s, 1);
    } else if (task->kind == PULL_SIZE && (status == 405 || status == 501 || (status == 403 && s->n_hops))) {
        end(s, 1); /* no answers to HEAD here; the size comes with the file */
    } else if (status == 401 || status == 403) {
        fail(s, "the server answers %ld; %s", status,
             s->source->token ? "the token is not good for this" : "it may want a token, --token-file F");
    } else {
        fail(s, "the server answers %ld", status);
    }
}

static void settle(slot *s, CURLcode code)
{
    pull_task *task = s->task;
    long status = 0;
    char text[300];
    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
    task->status = status;
    if (s->folder_failed)
        return;
    if (s->refusal[0]) {
        fail(s, "%s", s->refusal);
    } else if (task->kind == PULL_SIZE && is_redirect(status) && s->linked_size >= 0) {
        finish_size(s);
    } else if (is_redirect(status)) {
        hop(s, status);
    } else if (may_pass(status)) {
        curl_off_t seconds = 0;
        curl_easy_getinfo(s->easy, CURLINFO_RETRY_AFTER, &seconds);
        snprintf(text, sizeof text, "the server answers %ld", status);
        retry(s, (double)seconds, text);
    } else if (task->kind == PULL_BYTES && task->file->have > 0 && (status == 412 || status == 416)) {
        restart(s, status == 412 ? "the file has changed" : "the server does not have the bytes that are missing");
    } else if (status >= 300) {
        refused(s, status);
    } else if (code != CURLE_OK) {
        snprintf(text, sizeof text, "%s", s->curl_error[0] ? s->curl_error : curl_easy_strerror(code));
        retry(s, 0, text);
    } else if (status != 200 && status != 206) {
        fail(s, "the server answers %ld; 200 wanted", status);
    } else if (task->kind == PULL_BYTES) {
        finish_bytes(s, status);
    } else if (task->kind == PULL_SIZE) {
        finish_size(s);
    } else {
        end(s, 1);
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------------ */

static int settle_all(pull_source *source)
{
    int n_left, n_settled = 0;
    for (CURLMsg *m; (m = curl_multi_info_read(source->multi, &n_left));) {
        void *s = NULL;
        CURLcode code = m->data.result;
        CURL *easy = m->easy_handle;
        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, &s);
        curl_multi_remove_handle(source->multi, easy);
        settle(s, code);
        n_settled++;
    }
    return n_settled;
}

/* Gives up connections on which nothing has come for too long. */
static void drop_silent(slot *slots, size_t n_slots)
{
    char text[80];
    for (slot *s = slots; s < slots + n_slots; s++)
        if (s->task && !s->is_waiting && !s->folder_failed && app_seconds() - s->heard > (double)s->source->timeout) {
            curl_multi_remove_handle(s->source->multi, s->easy);
            snprintf(text, sizeof text, "nothing came for %ld s", s->source->timeout);
            retry(s, 0, text);
        }
}

int pull_run(pull_source *source, pull_task *tasks, size_t n_tasks, int folder)
{
    size_t n_slots = (size_t)source->n_jobs < n_tasks ? (size_t)source->n_jobs : n_tasks, next = 0;
    slot *slots = app_alloc(n_slots, sizeof *slots);
    for (size_t i = 0; i < n_slots; i++) {
        slots[i] = (slot){.source = source, .fd = -1, .folder = folder, .easy = curl_easy_init()};
        if (!slots[i].easy)
            app_alloc(SIZE_MAX, 1); /* ends the program */
    }
    int status = APP_OK, n_active = 1, n_running;
    while (n_active && status == APP_OK) {
        n_active = 0;
        for (size_t i = 0; i < n_slots; i++) {
            slot *s = &slots[i];
            if (s->task && s->is_waiting && app_seconds() >= s->wait_until)
                start(s);
            while (!s->task && next < n_tasks && !s->folder_failed) /* a whole part ends at once */
                begin_task(s, &tasks[next++]);
            n_active += s->task != NULL;
            if (s->folder_failed)
                status = APP_FAILED;
        }
        curl_multi_perform(source->multi, &n_running);
        drop_silent(slots, n_slots);
        if (!settle_all(source) && n_active)
            curl_multi_poll(source->multi, NULL, 0, POLL_MS, NULL);
        pull_progress_show();
        if (app_interrupted())
            status = APP_INTERRUPTED;
    }
    for (size_t i = 0; i < n_slots; i++) {
        curl_multi_remove_handle(source->multi, slots[i].easy);
        curl_easy_cleanup(slots[i].easy);
        curl_slist_free_all(slots[i].headers);
        if (slots[i].fd >= 0)
            close(slots[i].fd);
        free(slots[i].url);
    }
    free(slots);
    return status;
}
