/* What the server does before the model is asked: paths, methods, limits, who may ask, and what happens when a client leaves. */
#include "fixture.h"
#include "merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"
#define ASK "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"
#define ASK_STREAM "{\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"

static int get_status(int port, const char *path, const char *headers)
{
    http_reply reply = http_ask(port, "GET", path, headers, NULL);
    int status = reply.status;
    http_free(&reply);
    return status;
}

/* ---- paths ------------------------------------------------------------------------------------------------------- */

/* Case E37: slashes and queries do not matter, created is a whole number; E13: a client's fault is never 5xx. */
static void e37_paths_and_methods(void **state)
{
    fixture *f = *state;
    static const char *const same[] = {"/v1/models", "/v1//models", "//v1/models", "/v1/models/", "/v1/models?beta=true", "/v1//models/?x"};
    static const struct {
        const char *method, *path;
        int status;
    } table[] = {{"GET", "/v1/models//k3-mini", 200},
                 {"GET", "/v1/models/kimi", 200},
                 {"GET", "/v1/models/nothing", 404},
                 {"GET", "/health?x=1", 200},
                 {"HEAD", "/health", 200},
                 {"GET", "/nothing", 404},
                 {"POST", "/nothing", 404},
                 {"GET", CHAT, 405},
                 {"POST", "/v1/models", 405},
                 {"DELETE", "/v1/models", 405},
                 {"GET", "/api/v0/models", 200},
                 {"GET", "/api/v1/models", 200},
                 {"GET", "/props", 200},
                 {"GET", "/metrics", 200},
                 {"GET", "/", 200},
                 {"HEAD", "/", 200},
                 {"OPTIONS", CHAT, 204}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        http_reply reply = http_ask(f->port, "GET", same[i], "", NULL);
        int64_t created = 0;
        assert_int_equal(reply.status, 200);
        assert_true(app_json_int(merge_at(merge_json(reply.body), "data.0.created"), &created));
        assert_true(created > 0);
        assert_int_equal(app_json_kind(app_json_get(merge_json(reply.body), "models")), '['); /* case E32 */
        http_free(&reply);
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        http_reply reply = http_ask(f->port, table[i].method, table[i].path, "", strcmp(table[i].method, "POST") == 0 ? "{}" : NULL);
        if (reply.status != table[i].status)
            fail_msg("%s %s: %d, wanted %d", table[i].method, table[i].path, reply.status, table[i].status);
        http_free(&reply);
    }
}

/* Case E49: the window in force, in all spellings. */
static void e49_the_window_in_force(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *path, *at;
    } spellings[] = {{"/v1/models", "data.0.max_model_len"},
                     {"/v1/models", "data.0.context_length"},
                     {"/v1/models", "data.0.meta.n_ctx"},
                     {"/v1/models/k3-mini", "max_model_len"},
                     {"/props", "default_generation_settings.n_ctx"},
                     {"/api/v0/models", "data.0.loaded_context_length"},
                     {"/api/v1/models", "models.0.loaded_instances.0.config.context_length"}};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        http_reply reply = http_ask(f->port, "GET", spellings[i].path, "", NULL);
        int64_t window = 0;
        assert_true(app_json_int(merge_at(merge_json(reply.body), spellings[i].at), &window));
        assert_int_equal(window, 8192);
        http_free(&reply);
    }
}

static void metrics_count_what_was_asked(void **state)
{
    fixture *f = *state;
    assert_int_equal(get_status(f->port, "/nothing", ""), 404);
    http_reply reply = http_ask(f->port, "GET", "/metrics", "", NULL);
    assert_non_null(strstr(reply.body, "\nk3_http_requests_total{path=\"other\",status=\"404\"} "));
    assert_non_null(strstr(reply.body, "\nk3_ready 1\n"));
    assert_non_null(strstr(reply.body, "\n# TYPE k3_generated_tokens_total counter\n"));
    http_free(&reply);
}

/* ---- who may ask ------------------------------------------------------------------------------------------------- */

/* Case E14: pages that are listed may ask, by preflight and in earnest; others not. */
static void e14_origins(void **state)
{
    fixture *f = *state;
    srv_config config = fixture_config();
    config.cors_origins = "https://a.example,http://b.example:8080";
    fixture_restart(f, &config, 1);
    http_reply reply = http_ask(f->port, "OPTIONS", CHAT,
                                "Origin: http://b.example:8080\r\nAccess-Control-Request-Method: POST\r\n"
                                "Access-Control-Request-Headers: x-stainless-os\r\n",
                                NULL);
    assert_int_equal(reply.status, 204);
    assert_string_equal(http_header(&reply, "Access-Control-Allow-Origin"), "http://b.example:8080");
    const char *allowed = http_header(&reply, "Access-Control-Allow-Headers");
    assert_non_null(strstr(allowed, "Authorization"));
    assert_non_null(strstr(allowed, "Content-Type"));
    assert_non_null(strstr(allowed, "x-api-key"));
    assert_non_null(strstr(allowed, "x-stainless-os"));
    http_free(&reply);
    reply = http_ask(f->port, "GET", "/v1/models", "Origin: https://a.example\r\n", NULL);
    assert_int_equal(reply.status, 200);
    assert_string_equal(http_header(&reply, "Access-Control-Allow-Origin"), "https://a.example");
    http_free(&reply);
    static const char *const methods[] = {"OPTIONS", "GET"};
    for (int i = 0; i < 2; i++) {
        reply = http_ask(f->port, methods[i], "/v1/models", "Origin: https://c.example\r\n", NULL);
        assert_int_equal(reply.status, 403);
        assert_null(http_header(&reply, "Access-Control-Allow-Origin"));
        http_free(&reply);
    }
    char own[64];
    snprintf(own, sizeof own, "Host: localhost:%d\r\nOrigin: http://localhost:%d\r\n", f->port, f->port);
    assert_int_equal(get_status(f->port, "/v1/models", own), 200);
    config = fixture_config();
    fixture_restart(f, &config, 1);
}

static void hosts_that_point_here_by_another_s_will_are_refused(void **state)
{
    fixture *f = *state;
    srv_config config = fixture_config();
    config.allow_hosts = "box.lan,other";
    fixture_restart(f, &config, 1);
    static const struct {
        const char *headers;
        int status;
    } table[] = {{"Host: localhost:1\r\n", 200},  {"Host: LOCALHOST\r\n", 200},
                 {"Host: 127.0.0.1:9\r\n", 200},  {"Host: [::1]:9\r\n", 200},
                 {"Host: 192.168.1.7\r\n", 200},  {"Host: box.lan:8080\r\n", 200},
                 {"Host: evil.example\r\n", 403}, {"Host: 127.0.0.1.evil.example\r\n", 403},
                 {"Host: box.lan.evil\r\n", 403}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (get_status(f->port, "/v1/models", table[i].headers) != table[i].status)
            fail_msg("%s", table[i].headers);
    config = fixture_config();
    fixture_restart(f, &config, 1);
}

/* Case E17: without a key everybody; with one, 401 as JSON on every path of /v1, Bearer or x-api-key. */
static void e17_keys(void **state)
{
    fixture *f = *state;
    assert_int_equal(get_status(f->port, "/v1/models", "Authorization: Bearer whatever\r\n"), 200);
    assert_int_equal(get_status(f->port, "/v1/models", ""), 200);
    static char text[] = "secret\0another";
    app_buffer keys = {.text = text, .n = sizeof text};
    srv_config config = fixture_config();
    config.keys = &keys;
    fixture_restart(f, &config, 1);
    static const struct {
        const char *headers;
        int status;
    } table[] = {{"", 401},
                 {"Authorization: Bearer secret\r\n", 200},
                 {"authorization: bearer another\r\n", 200},
                 {"x-api-key: secret\r\n", 200},
                 {"Authorization: Bearer wrong\r\nx-api-key: secret\r\n", 200},
                 {"Authorization: Bearer secre\r\n", 401},
                 {"Authorization: Bearer secrets\r\n", 401},
                 {"Authorization: Bearer secretsecret\r\n", 401},
                 {"Authorization: Bearer \r\n", 401},
                 {"x-api-key: \r\n", 401}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (get_status(f->port, "/v1/models", table[i].headers) != table[i].status)
            fail_msg("%s", table[i].headers);
    static const char *const paths[] = {CHAT,         "/v1/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses",
                                        "/v1/nothing"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        assert_int_equal(http_post_status(f->port, paths[i], ASK), 401);
    assert_int_equal(get_status(f->port, "/health", ""), 200);
    http_reply reply = http_ask(f->port, "OPTIONS", CHAT, "", NULL);
    assert_int_equal(reply.status, 204);
    http_free(&reply);
    config = fixture_config();
    fixture_restart(f, &config, 1);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

/* Case E20: lengths are not trusted. B16: a long text is refused before it is encoded. */
static void e20_limits(void **state)
{
    fixture *f = *state;
    int fd = http_open(f->port);
    static const char giant[] = "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\n";
    http_send(fd, giant, sizeof giant - 1);
    http_reply reply = http_read(fd);
    assert_int_equal(reply.status, 413);
    assert_true(app_json_is(merge_at(merge_json(reply.body), "error.type"), "request_too_large"));
    http_free(&reply);
    close(fd);
    char *text = malloc((1 << 20) + 100);
    memset(text, '[', 100000);
    text[100000] = 0;
    assert_int_equal(http_post_status(f->port, CHAT, text), 400);
    memset(text, 'a', 1 << 20);
    memcpy(text, "X-Long: ", 8);
    memcpy(text + (1 << 20), "\r\n", 3);
    reply = http_ask(f->port, "GET", "/health", text, NULL);
    assert_int_equal(reply.status, 431);
    http_free(&reply);
    strcpy(text + (16 << 10), "\r\n"); /* case E52: 16 KB of headers are usual */
    assert_int_equal(get_status(f->port, "/health", text), 200);
    free(text);
    size_t n = 3 * (1 << 20);
    char *han = malloc(n + 100);
    strcpy(han, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (size_t i = strlen(han); i < n; i += 3)
        strcpy(han + i, "\xe4\xb8\x96");
    strcat(han, "\"}]}");
    assert_int_equal(http_post_status(f->port, CHAT, han), 400);
    free(han);
}

/* Many long bodies together do not fill the memory, and an unknown length is no way around the context. */
static void e20_bodies(void **state)
{
    fixture *f = *state;
    static const char head[] = "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\n", chunk[] = "\r\n10000\r\n";
    char text[0x10001], body[900];
    memset(text, ' ', sizeof text);
    int fd = http_open(f->port);
    http_send(fd, head, sizeof head - 1);
    http_send(fd, "Transfer-Encoding: chunked\r\n", 28);
    for (int i = 0; i < 24; i++) {
        http_send(fd, chunk, sizeof chunk - 1);
        http_send(fd, text, 0x10000);
    }
    http_send(fd, "\r\n0\r\n\r\n", 7);
    http_reply reply = http_read(fd);
    assert_int_equal(reply.status, 400);
    assert_true(app_json_is(merge_at(merge_json(reply.body), "error.code"), "context_length_exceeded"));
    http_free(&reply);
    close(fd);

    srv_config config = fixture_config();
    config.body_limit = 1000;
    fixture_restart(f, &config, 1);
    fixture_say(f, RESPONSE("Hi") END);
    int fds[8], status = 200;
    for (int i = 0; i < 8; i++) {
        fds[i] = http_open(f->port);
        http_send(fds[i], head, sizeof head - 1);
        http_send(fds[i], "Content-Length: 1000\r\n\r\n", 24);
        http_send(fds[i], text, 990);
    }
    memset(body, ' ', sizeof body);
    strcpy(body + sizeof body - sizeof ASK, ASK);
    for (int i = 0; status == 200 && i < 10000; i++)
        status = http_post_status(f->port, CHAT, body);
    assert_int_equal(status, 503);
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    for (int i = 0; status == 503 && i < 10000; i++)
        status = http_post_status(f->port, CHAT, body);
    assert_int_equal(status, 200);
    config = fixture_config();
    fixture_restart(f, &config, 1);
}

/* Case E54: where the shell gives few descriptors, clients that only connect neither shut others out nor keep a core busy. */
static void e54_few_descriptors(void **state)
{
    fixture *f = *state;
    srv_config config = fixture_config();
    struct rlimit before, files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    files = before;
    files.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    fixture_restart(f, &config, 1);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    assert_true(files.rlim_cur >= 1280 || files.rlim_cur == files.rlim_max);
    assert_int_equal(get_status(f->port, "/health", ""), 200);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* What a client calls its method is shown, but not to a terminal. */
static void methods_are_shown_without_escapes(void **state)
{
    fixture *f = *state;
    int fd = http_open(f->port);
    static const char request[] = "\x1b[31mX /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    http_send(fd, request, sizeof request - 1);
    http_reply reply = http_read(fd);
    assert_int_equal(reply.status, 405);
    assert_non_null(strstr(reply.body, "not ?[31mX"));
    http_free(&reply);
    close(fd);
}

static void e20_clients_that_take_too_long(void **state)
{
    fixture *f = *state;
    srv_config config = fixture_config();
    config.idle = config.body = 0.2;
    fixture_restart(f, &config, 1);
    static const char *const beginnings[] = {"", "GET /hea", "GET /health HTTP/1.1\r\nHost: localh",
                                             "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"mess"};
    int fds[4];
    for (size_t i = 0; i < 4; i++) {
        fds[i] = http_open(f->port);
        http_send(fds[i], beginnings[i], strlen(beginnings[i]));
    }
    for (size_t i = 0; i < 4; i++) {
        http_reply reply = http_read(fds[i]);
        assert_int_equal(reply.status, 0);
        http_free(&reply);
        close(fds[i]);
    }
    config = fixture_config();
    fixture_restart(f, &config, 1);
}

/* Case E19: Expect is answered, chunked bodies are taken. */
static void e19_expect_and_chunks(void **state)
{
    fixture *f = *state;
    fixture_say(f, RESPONSE("Hi") END);
    int fd = http_open(f->port);
    char head[200];
    snprintf(head, sizeof head, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %zu\r\n\r\n",
             strlen(ASK));
    http_send(fd, head, strlen(head));
    http_wait(fd, "100 Continue\r\n\r\n");
    http_send(fd, ASK, strlen(ASK));
    http_reply reply = http_read(fd);
    assert_int_equal(reply.status, 200);
    http_free(&reply);
    /* The connection is kept. */
    static const char chunked[] = "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                                  "5\r\n{\"mes\r\n2a\r\nsages\":[{\"role\":\"user\",\"content\":\"x\"}],\"a\"\r\n3\r\n:1}\r\n0\r\n\r\n";
    http_send(fd, chunked, sizeof chunked - 1);
    reply = http_read(fd);
    assert_int_equal(reply.status, 200);
    http_free(&reply);
    close(fd);
}

/* Case E52: the headers of a coding client; answers are plain. */
static void e52_unknown_encodings_are_answered_plain(void **state)
{
    fixture *f = *state;
    fixture_say(f, RESPONSE("Hi") END);
    http_reply reply =
        http_ask(f->port, "POST", "/v1/messages/count_tokens?beta=true",
                 "Accept-Encoding: zstd, br, gzip\r\nanthropic-version: 2023-06-01\r\nanthropic-beta: a,b,c\r\nx-api-key: k\r\n", ASK);
    assert_int_equal(reply.status, 200);
    assert_null(http_header(&reply, "Content-Encoding"));
    http_free(&reply);
    reply = http_ask(f->port, "POST", CHAT, "Content-Encoding: zstd\r\n", ASK);
    assert_int_equal(reply.status, 415);
    http_free(&reply);
}

/* Case D22: strict JSON, and what is legal all the same. B10: half a surrogate pair and NUL pass. */
static void d22_json(void **state)
{
    fixture *f = *state;
    static const char *const illegal[] = {"",
                                          "x",
                                          "{",
                                          "[]",
                                          "null",
                                          "{\"temperature\":NaN}",
                                          "{\"temperature\":Infinity}",
                                          "{\"temperature\":+1}",
                                          "{\"temperature\":01}",
                                          "{\"temperature\":1.}",
                                          "{\"temperature\":.5}",
                                          "{\"temperature\":1e}",
                                          "{\"temperature\":0x1}",
                                          "{\"a\":\"\n\"}",
                                          "{\"a\":\"\x01\"}",
                                          "{\"a\":\"\xff\"}",
                                          "{\"a\":\"\xed\xa0\x80\"}",
                                          "{\"a\":\"\"}\xe4\xb8",
                                          "{\"a\":\"\\x41\"}",
                                          "{\"a\":\"\\u12\"}",
                                          "{'a':1}",
                                          "{\"a\":1,}",
                                          "{\"a\":tru}",
                                          "{\"a\" 1}",
                                          "{\"messages\":[]} x"};
    static const char *const legal[] = {"1E0", "-0", "1e-400", "0.5e+1"};
    fixture_say(f, RESPONSE("Hi") END);
    for (size_t i = 0; i < sizeof illegal / sizeof *illegal; i++)
        if (http_post_status(f->port, CHAT, illegal[i]) != 400)
            fail_msg("%s", illegal[i]);
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++) {
        char body[200];
        snprintf(body, sizeof body, "{\"temperature\":%s,\"messages\":[{\"role\":\"user\",\"content\":\"\\ud83d\\u0000\"}]}", legal[i]);
        assert_int_equal(http_post_status(f->port, CHAT, body), 200);
    }
}

/* ---- loading, a full queue --------------------------------------------------------------------------------------- */

static void e46_while_the_model_is_loaded(void **state)
{
    fixture *f = *state;
    srv_config config = fixture_config();
    fixture_restart(f, &config, 0);
    http_reply reply = http_ask(f->port, "GET", "/health", "", NULL);
    assert_int_equal(reply.status, 503);
    assert_non_null(http_header(&reply, "Retry-After"));
    http_free(&reply);
    assert_int_equal(http_post_status(f->port, CHAT, ASK), 503);
    assert_int_equal(get_status(f->port, "/v1/models", ""), 503);
    assert_int_equal(get_status(f->port, "/", ""), 200);
    srv_server_ready(f->server, f->engine, f->scheduler, 8192);
    assert_int_equal(get_status(f->port, "/health", ""), 200);
    k3_error err = {0};
    int port = f->port;
    assert_int_equal(srv_listen("127.0.0.1", &port, &err), -1); /* the port is taken, and the error names it */
    char number[16];
    snprintf(number, sizeof number, "%d", port);
    assert_non_null(strstr(err.text, number));
}

static void a_full_queue_is_429(void **state)
{
    fixture *f = *state;
    fake_script script = fixture_script();
    script.refusal = K3_E_NOMEM;
    fake_play(&script);
    http_reply reply = http_post(f->port, CHAT, ASK_STREAM);
    assert_int_equal(reply.status, 429);
    assert_non_null(http_header(&reply, "Retry-After"));
    assert_string_equal(http_header(&reply, "Content-Type"), "application/json");
    http_free(&reply);
}

/* ---- clients that leave ------------------------------------------------------------------------------------------ */

/* Case E05: a client that closes, or half closes, ends its answer: streamed or not, running, before the first token, or queued. E44: no
 * other answer ends with it. */
static void e05_hanging_up_cancels(void **state)
{
    fixture *f = *state;
    fake_reset();
    int n_ended = 0;
    size_t n_tokens = 0;
    for (int i = 0; i < 8; i++) {
        int is_stream = i & 1, is_half = i & 2, is_queued = i & 4;
        fake_script script = fixture_script();
        script.stop_before = 3;
        script.wait_to_begin = is_queued != 0;
        fixture_play(f, "Think about it" RESPONSE("Hi") END, &script);
        int leaves = http_open(f->port), stays = http_open(f->port);
        http_request(stays, "POST", CHAT, "", ASK);
        http_request(leaves, "POST", CHAT, "", is_stream ? ASK_STREAM : ASK);
        if (!is_queued)
            fake_wait_tokens(n_tokens + 6);
        if (is_stream)
            http_wait(leaves, "role");
        if (is_half)
            shutdown(leaves, SHUT_WR);
        else
            close(leaves);
        fake_wait_ended(++n_ended);
        assert_int_equal(fake_look()->n_cancelled, i + 1);
        fake_release();
        http_reply reply = http_read(stays);
        assert_int_equal(reply.status, 200);
        assert_non_null(strstr(reply.body, "\"content\":\"Hi\""));
        http_free(&reply);
        fake_wait_ended(++n_ended);
        assert_int_equal(fake_look()->n_cancelled, i + 1);
        n_tokens = fake_look()->n_tokens;
        if (is_half)
            close(leaves);
        close(stays);
    }
}

/* Case E44: of two, the one that waits leaves; the other's answer is what it would have been alone. Case E06: who waits gets comments, E41:
 * only after some silence, and pings where comments do not count. E01: headers come at once. E51: so no client's limit on silence fires. */
static void e06_e41_signs_of_life(void **state)
{
    fixture *f = *state;
    srv_config config = fixture_config();
    static const char *const paths[] = {CHAT, "/v1/messages", "/v1/responses", "/v1/completions"};
    static const char *const bodies[] = {ASK_STREAM, ASK_STREAM, "{\"stream\":true,\"input\":\"x\"}",
                                         "{\"stream\":true,\"prompt\":\"x\",\"max_tokens\":-1}"};
    static const char *const signs[] = {": waiting\n\n", "event: ping\n", ": waiting\n\n", ": waiting\n\n"};
    config.silence = 0.05;
    fixture_restart(f, &config, 1);
    for (int i = 0; i < 4; i++) {
        fake_script script = fixture_script();
        script.wait_to_begin = 1;
        fixture_play(f, RESPONSE("Hi") END, &script);
        int fd = http_open(f->port);
        http_request(fd, "POST", paths[i], "", bodies[i]);
        http_wait(fd, "text/event-stream");
        http_wait(fd, signs[i]);
        http_wait(fd, signs[i]);
        fake_release();
        http_wait(fd, i == 1 ? "message_stop" : i == 2 ? "response.completed" : "[DONE]");
        close(fd);
    }
    config.silence = 10;
    fixture_restart(f, &config, 1);
    fixture_say(f, "a" RESPONSE("Hi") END);
    http_reply reply = http_post(f->port, CHAT, ASK_STREAM);
    assert_null(strstr(reply.body, "\n:"));
    assert_true(reply.body[0] == 'd');
    http_free(&reply);
}

/* Case B09: a reader that does not read holds nobody up, and gets whole characters at last. */
static void b09_a_slow_reader(void **state)
{
    fixture *f = *state;
    size_t n = 60000;
    char *text = malloc(3 * n + 200);
    strcpy(text, RESPONSE(""));
    text[strlen(text) - strlen(CLOSE("response"))] = 0;
    for (size_t i = 0, at = strlen(text); i < n; i++)
        strcpy(text + at + 3 * i, i % 2 ? "\xe4\xb8\x96" : "\xe7\x95\x8c");
    strcat(text, CLOSE("response") END);
    fixture_say(f, text);
    fake_reset();
    int slow = http_open(f->port);
    http_request(slow, "POST", "/v1/chat/completions", "", ASK_STREAM);
    http_wait(slow, "role");
    fixture_say(f, RESPONSE("Hi") END);
    assert_int_equal(http_post_status(f->port, CHAT, ASK), 200);
    close(slow);
    fake_script script = fixture_script();
    fixture_play(f, text, &script);
    http_reply reply = http_post(f->port, CHAT, ASK_STREAM);
    merged m = {0};
    assert_true(reply.is_whole);
    merge_stream(&m, MERGE_CHAT, reply.body);
    assert_int_equal(m.content.n, 3 * n);
    merged_free(&m);
    http_free(&reply);
    free(text);
    fake_wait_ended(3); /* the slow one's tokens are not counted by the next test */
}

/* A stop ends what runs with an error that says so, in the form of its API. */
static void a_stop_ends_what_runs(void **state)
{
    fixture *f = *state;
    srv_config config = fixture_config();
    fake_script script = fixture_script();
    script.stop_before = 2;
    fixture_play(f, "Think about it" RESPONSE("Hi") END, &script);
    int streamed = http_open(f->port), whole = http_open(f->port);
    fake_reset();
    http_request(streamed, "POST", CHAT, "", ASK_STREAM);
    http_request(whole, "POST", CHAT, "", ASK);
    fake_wait_tokens(4);
    fixture_restart(f, &config, 1);
    http_reply reply = http_read(streamed);
    merged m = {0};
    merge_stream(&m, MERGE_CHAT, reply.body);
    assert_true(m.has_error);
    merged_free(&m);
    http_free(&reply);
    reply = http_read(whole);
    assert_int_equal(reply.status, 503);
    http_free(&reply);
    close(streamed);
    close(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e37_paths_and_methods),
        cmocka_unit_test(e49_the_window_in_force),
        cmocka_unit_test(metrics_count_what_was_asked),
        cmocka_unit_test(e14_origins),
        cmocka_unit_test(hosts_that_point_here_by_another_s_will_are_refused),
        cmocka_unit_test(e17_keys),
        cmocka_unit_test(e20_limits),
        cmocka_unit_test(e20_bodies),
        cmocka_unit_test(e54_few_descriptors),
        cmocka_unit_test(methods_are_shown_without_escapes),
        cmocka_unit_test(e20_clients_that_take_too_long),
        cmocka_unit_test(e19_expect_and_chunks),
        cmocka_unit_test(e52_unknown_encodings_are_answered_plain),
        cmocka_unit_test(d22_json),
        cmocka_unit_test(e46_while_the_model_is_loaded),
        cmocka_unit_test(a_full_queue_is_429),
        cmocka_unit_test(e05_hanging_up_cancels),
        cmocka_unit_test(e06_e41_signs_of_life),
        cmocka_unit_test(b09_a_slow_reader),
        cmocka_unit_test(a_stop_ends_what_runs),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
