/* `k3 serve` as a user starts it, with the bundled model. */
#include "http_client.h"
#include "merge.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"
#define SUM "{\"role\":\"user\",\"content\":\"What is 58 plus 67?\"}"

typedef struct served {
    pid_t pid;
    int fd, port;
    app_buffer said; /* on stderr */
} served;

static int hear(served *s)
{
    char block[4096];
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    if (poll(&p, 1, 60000) <= 0)
        fail_msg("nothing said for a minute after: %s", s->said.n ? s->said.text : "");
    ssize_t n = read(s->fd, block, sizeof block);
    if (n > 0)
        app_buffer_add(&s->said, block, (size_t)n);
    return n > 0;
}

static const char *home; /* of servers that follow, and their working directory; NULL: that of the test */

/* Arguments after `serve models/k3-mini`, ended by NULL. */
static void start(served *s, const char *const *arguments)
{
    char model[4096];
    const char *argv[24] = {K3_BINARY, "serve", realpath("models/k3-mini", model), "--backend", "cpu", "--threads", "1"};
    int ends[2];
    *s = (served){0};
    for (size_t i = 0; arguments[i]; i++)
        argv[7 + i] = arguments[i];
    assert_int_equal(pipe(ends), 0);
    s->pid = fork();
    if (s->pid == 0) {
#ifdef __linux__
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no server behind */
#endif
        if (home && (setenv("HOME", home, 1) || setenv("TMPDIR", home, 1) || chdir(home)))
            _exit(127);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(ends[1]);
    s->fd = ends[0];
}

static void wait_ready(served *s)
{
    const char *at = NULL;
    while (!s->said.n || !(at = strstr(s->said.text, "ready at http://127.0.0.1:")) || !strchr(at, '\n'))
        if (!hear(s))
            fail_msg("it did not start: %s", s->said.n ? s->said.text : "");
    s->port = atoi(at + strlen("ready at http://127.0.0.1:"));
}

/* Hears it out; returns the exit status. */
static int finish(served *s)
{
    int status;
    while (hear(s))
        ;
    close(s->fd);
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int stop(served *s)
{
    kill(s->pid, SIGTERM);
    int status = finish(s);
    app_buffer_free(&s->said);
    return status;
}

/* Case J08: every API, streamed and not, answers a sum right; usage is the same in both modes. */
static void every_api_answers(void **state)
{
    static const struct {
        merge_api api;
        const char *path, *body;
    } asks[] = {{MERGE_CHAT, CHAT, "{\"messages\":[" SUM "],\"temperature\":0%s}"},
                {MERGE_MESSAGES, "/v1/messages",
                 "{\"max_tokens\":300,\"thinking\":{\"type\":\"enabled\"},\"messages\":[" SUM "],\"temperature\":0%s}"},
                {MERGE_RESPONSES, "/v1/responses", "{\"input\":[" SUM "],\"temperature\":0%s}"}};
    served s;
    (void)state;
    start(&s, (const char *const[]){"--port", "0", NULL});
    wait_ready(&s);
    for (size_t i = 0; i < 3; i++) {
        merged m[2] = {{.n_calls = 0}, {.n_calls = 0}};
        for (int is_stream = 0; is_stream < 2; is_stream++) {
            char body[300];
            snprintf(body, sizeof body, asks[i].body, is_stream ? ",\"stream\":true" : "");
            http_reply reply = http_post(s.port, asks[i].path, body);
            assert_int_equal(reply.status, 200);
            (is_stream ? merge_stream : merge_whole)(&m[is_stream], asks[i].api, reply.body);
            http_free(&reply);
        }
        assert_string_equal(m[0].content.text, m[1].content.text);
        assert_string_equal(m[0].reasoning.text, m[1].reasoning.text);
        assert_non_null(strstr(m[0].content.text, "125"));
        merged_free(&m[0]);
        merged_free(&m[1]);
    }
    assert_int_equal(stop(&s), 0);
}

/* Case C33: a call that is asked for comes, thinking on or off; C43: with a schema the content is JSON, and cut inside think it is empty.
 */
static void c33_c43_narrowed_answers(void **state)
{
    static const char *const thinking[] = {"enabled", "disabled"};
    served s;
    (void)state;
    start(&s, (const char *const[]){"--port", "0", NULL});
    wait_ready(&s);
    for (int i = 0; i < 2; i++) {
        char body[700];
        merged m = {0};
        snprintf(body, sizeof body,
                 "{\"messages\":[" SUM
                 "],\"temperature\":0,\"max_tokens\":400,\"thinking\":{\"type\":\"%s\"},\"tool_choice\":\"required\",\"tools\":[{\"type\":"
                 "\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"type\":\"object\",\"properties\":{\"\xe6\x95\xb0\":{"
                 "\"type\":\"integer\"}},"
                 "\"required\":[\"\xe6\x95\xb0\"],\"additionalProperties\":false}}}]}",
                 thinking[i]);
        http_reply reply = http_post(s.port, CHAT, body);
        assert_int_equal(reply.status, 200);
        merge_whole(&m, MERGE_CHAT, reply.body);
        http_free(&reply);
        assert_string_equal(m.finish.text, "\"tool_calls\"");
        assert_string_equal(m.calls[0].name.text, "add");
        assert_non_null(merge_at(merge_json(m.calls[0].arguments.text), "\xe6\x95\xb0").text);
        merged_free(&m);
        for (int is_cut = 0; is_cut < 2; is_cut++) {
            snprintf(body, sizeof body,
                     "{\"messages\":[" SUM
                     "],\"temperature\":0,\"max_tokens\":%d,\"thinking\":{\"type\":\"%s\"},\"response_format\":{\"type\":\"json_schema\","
                     "\"json_schema\":{\"name\":\"a\",\"schema\":{\"type\":\"object\",\"properties\":{\"sum\":{\"type\":\"integer\","
                     "\"minimum\":0,"
                     "\"maximum\":999}},\"required\":[\"sum\"],\"additionalProperties\":false}}}}",
                     is_cut ? 1 : 400, thinking[i]);
            reply = http_post(s.port, CHAT, body);
            assert_int_equal(reply.status, 200);
            merge_whole(&m, MERGE_CHAT, reply.body);
            http_free(&reply);
            assert_string_equal(m.finish.text, is_cut ? "\"length\"" : "\"stop\"");
            if (is_cut && i == 0)
                assert_int_equal(m.content.n, 0);
            if (!is_cut)
                assert_non_null(app_json_get(merge_json(m.content.text), "sum").text);
            merged_free(&m);
        }
    }
    assert_int_equal(stop(&s), 0);
}

/* Names of files in a folder, and when it last got or lost one. */
static void list(app_buffer *out, const char *folder)
{
    struct dirent **entries;
    struct stat st;
    int n = scandir(folder, &entries, NULL, alphasort);
    assert_true(n >= 0 && stat(folder, &st) == 0);
    for (int i = 0; i < n; i++) {
        app_buffer_text(out, entries[i]->d_name);
        app_buffer_text(out, "\n");
        free(entries[i]);
    }
    free(entries);
    app_buffer_add(out, (const char *)&st.st_mtime, sizeof st.st_mtime);
}

/* Case J15: a server writes nothing, neither into the model's folder nor into its home or where it was started. */
static void j15_nothing_is_written(void **state)
{
    char folder[] = P_tmpdir "/k3-home-XXXXXX";
    app_buffer listed[2] = {{0}, {0}};
    served s;
    (void)state;
    home = mkdtemp(folder);
    assert_non_null(home);
    for (int i = 0; i < 2; i++) {
        list(&listed[i], home);
        list(&listed[i], "models/k3-mini");
        if (i)
            break;
        start(&s, (const char *const[]){"--port", "0", NULL});
        wait_ready(&s);
        http_reply reply = http_post(s.port, CHAT, "{\"messages\":[" SUM "]}");
        assert_int_equal(reply.status, 200);
        http_free(&reply);
        assert_int_equal(stop(&s), 0);
    }
    assert_int_equal(listed[0].n, listed[1].n);
    assert_memory_equal(listed[0].text, listed[1].text, listed[0].n);
    app_buffer_free(&listed[0]);
    app_buffer_free(&listed[1]);
    assert_int_equal(rmdir(home), 0);
    home = NULL;
}

static int64_t usage_of(const char *body, const char *path)
{
    int64_t n = -1;
    assert_true(app_json_int(merge_at(merge_json(body), path), &n));
    return n;
}

/* Case C20: the second turn of a conversation that thinks finds what the first computed. C45: the same request again computes next to
 * nothing. E30: nor does one that differs in a coding client's changing line only. */
static void c20_what_was_computed_is_found(void **state)
{
    served s;
    (void)state;
    start(&s, (const char *const[]){"--port", "0", NULL});
    wait_ready(&s);
    static const char first[] = "{\"messages\":[" SUM "],\"temperature\":0}";
    http_reply reply = http_post(s.port, CHAT, first);
    assert_int_equal(usage_of(reply.body, "usage.prompt_tokens_details.cached_tokens"), 0);
    int64_t total = usage_of(reply.body, "usage.total_tokens"), prompt = usage_of(reply.body, "usage.prompt_tokens");
    app_json message = merge_at(merge_json(reply.body), "choices.0.message");
    app_buffer second = {0};
    app_buffer_text(&second, "{\"messages\":[" SUM ",");
    app_buffer_add(&second, message.text, message.n);
    app_buffer_text(&second, "," SUM "],\"temperature\":0,\"max_tokens\":1}");
    http_free(&reply);
    reply = http_post(s.port, CHAT, second.text);
    assert_true(usage_of(reply.body, "usage.prompt_tokens_details.cached_tokens") * 100 > total * 95);
    http_free(&reply);
    app_buffer_free(&second);
    reply = http_post(s.port, CHAT, first);
    assert_true(usage_of(reply.body, "usage.prompt_tokens_details.cached_tokens") * 100 > prompt * 95);
    http_free(&reply);
    for (int i = 0; i < 2; i++) {
        char body[300];
        snprintf(body, sizeof body,
                 "{\"max_tokens\":1,\"system\":\"x-anthropic-billing-header: cch=%d;\\nYou are a careful helper.\",\"messages\":[" SUM "]}",
                 i);
        reply = http_post(s.port, "/v1/messages", body);
        int64_t fresh = usage_of(reply.body, "usage.input_tokens"), cached = usage_of(reply.body, "usage.cache_read_input_tokens");
        assert_true(i ? cached * 100 > (cached + fresh) * 95 : cached == 0);
        http_free(&reply);
    }
    assert_int_equal(stop(&s), 0);
}

/* Case E46: a port that is taken ends a start before the model is loaded, and the message names it; a restart needs no wait. */
static void e46_ports(void **state)
{
    served s, other;
    char port[16];
    (void)state;
    start(&s, (const char *const[]){"--port", "0", NULL});
    wait_ready(&s);
    http_reply reply = http_ask(s.port, "GET", "/health", "", NULL);
    assert_int_equal(reply.status, 200);
    http_free(&reply);
    snprintf(port, sizeof port, "%d", s.port);
    start(&other, (const char *const[]){"--port", port, NULL});
    assert_int_equal(finish(&other), 1);
    assert_non_null(strstr(other.said.text, port));
    assert_null(strstr(other.said.text, "trunk")); /* the plan of a model that was loaded */
    app_buffer_free(&other.said);
    assert_int_equal(stop(&s), 0);
    start(&s, (const char *const[]){"--port", port, NULL});
    wait_ready(&s);
    assert_int_equal(stop(&s), 0);
}

/* A signal in the middle of an answer ends it with an error that says so, and k3 with 0. */
static void a_signal_ends_answers(void **state)
{
    served s;
    (void)state;
    start(&s, (const char *const[]){"--port", "0", "--parallel", "1", NULL});
    wait_ready(&s);
    int runs = http_open(s.port), waits = http_open(s.port);
    static const char endless[] = "{\"stream\":true,\"max_tokens\":-1,\"prompt\":\"a\",\"logit_bias\":{\"1793\":-100,\"1794\":-100}}";
    http_request(runs, "POST", "/v1/completions", "", endless);
    http_wait(runs, "\"text\":");
    http_request(waits, "POST", "/v1/completions", "", endless);
    http_wait(waits, "text/event-stream");
    kill(s.pid, SIGINT);
    http_wait(runs, "server_stopping");
    http_wait(waits, "[DONE]");
    assert_int_equal(finish(&s), 0);
    app_buffer_free(&s.said);
    close(runs);
    close(waits);
}

/* Case E17 from a file; one line a request on stderr, without a word of what was said. */
static void keys_and_lines(void **state)
{
    char path[] = P_tmpdir "/k3-keys-XXXXXX";
    int fd = mkstemp(path);
    served s;
    (void)state;
    assert_int_equal(write(fd, "\xef\xbb\xbfsecond\n\n first \r\n", 20), 20); /* case A32: with the mark that some editors write */
    close(fd);
    start(&s, (const char *const[]){"--port", "0", "--api-key-file", path, "--strict-model", "--alias", "a,b", NULL});
    wait_ready(&s);
    static const char body[] = "{\"model\":\"b\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"whisper\"}]}";
    http_reply reply = http_post(s.port, CHAT, body);
    assert_int_equal(reply.status, 401);
    http_free(&reply);
    reply = http_ask(s.port, "POST", CHAT, "Authorization: Bearer second\r\n", body);
    assert_int_equal(reply.status, 200);
    http_free(&reply);
    kill(s.pid, SIGTERM);
    assert_int_equal(finish(&s), 0);
    assert_non_null(strstr(s.said.text, "POST " CHAT " 401"));
    assert_non_null(strstr(s.said.text, "POST " CHAT " 200, "));
    assert_null(strstr(s.said.text, "whisper"));
    assert_null(strstr(s.said.text, "second"));
    app_buffer_free(&s.said);
    unlink(path);
}

static void wrong_options_are_refused(void **state)
{
    static const struct {
        const char *option, *value;
        int status;
    } table[] = {{"--port", "70000", 2},
                 {"--port", "x", 2},
                 {"--parallel", "0", 2},
                 {"--queue", "-1", 2},
                 {"--ctx", "99999", 2},
                 {"--host", "!!", 1},
                 {"--api-key-file", "/nowhere", 1},
                 {"--api-key-file", "/dev/null", 1}};
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        served s;
        start(&s, (const char *const[]){table[i].option, table[i].value, strcmp(table[i].option, "--port") ? "--port" : NULL, "0", NULL});
        if (finish(&s) != table[i].status)
            fail_msg("%s %s: %s", table[i].option, table[i].value, s.said.text);
        assert_non_null(strstr(s.said.text, table[i].value));
        app_buffer_free(&s.said);
    }
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_api_answers),
        cmocka_unit_test(c33_c43_narrowed_answers),
        cmocka_unit_test(c20_what_was_computed_is_found),
        cmocka_unit_test(j15_nothing_is_written),
        cmocka_unit_test(e46_ports),
        cmocka_unit_test(a_signal_ends_answers),
        cmocka_unit_test(keys_and_lines),
        cmocka_unit_test(wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
