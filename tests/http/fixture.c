#include "fixture.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"

srv_config fixture_config(void)
{
    srv_config config = srv_config_standard();
    config.rules.model = "k3-mini";
    config.rules.aliases = "kimi,other";
    config.parallel = 4;
    config.is_quiet = 1;
    return config;
}

void fixture_restart(fixture *f, const srv_config *config, int is_ready)
{
    k3_error err = {0};
    srv_server_close(f->server);
    f->server = NULL;
    f->port = 0;
    int fd = srv_listen("127.0.0.1", &f->port, &err);
    if (fd < 0 || srv_server_open(&f->server, fd, config, &err) != K3_OK)
        fail_msg("%s", err.text);
    if (is_ready)
        srv_server_ready(f->server, f->engine, f->scheduler, 8192);
}

int fixture_setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    k3_error err = {0};
    k3_config config = {.backend = "cpu", .threads = 1};
    signal(SIGPIPE, SIG_IGN);
    if (k3_engine_open(&f->engine, "models/k3-mini", &config, &err) != K3_OK)
        fail_msg("%s", err.text);
    srv_limits limits = {.max_running = 4, .max_waiting = 4};
    srv_scheduler_open(&f->scheduler, f->engine, &limits, &err);
    srv_config usual = fixture_config();
    fixture_restart(f, &usual, 1);
    *state = f;
    return 0;
}

int fixture_teardown(void **state)
{
    fixture *f = *state;
    srv_server_close(f->server);
    srv_scheduler_close(f->scheduler);
    k3_engine_close(f->engine);
    k3_tokens_free(&f->script);
    free(f);
    return 0;
}

/* ---- scripts ----------------------------------------------------------------------------------------------------- */

static int32_t marker_id(const fixture *f, const char *name, size_t n)
{
    int vocab = k3_engine_info(f->engine)->vocab_size;
    for (int32_t id = vocab - 256; id < vocab; id++) {
        const char *bytes;
        size_t n_bytes;
        assert_int_equal(k3_token_bytes(f->engine, &bytes, &n_bytes, id, NULL), K3_OK);
        if (n_bytes == n && memcmp(bytes, name, n) == 0)
            return id;
    }
    fail_msg("no token %.*s", (int)n, name);
    return 0;
}

static void add_id(k3_tokens *out, int32_t id)
{
    if (out->n == out->capacity) {
        out->capacity = 2 * out->capacity + 64;
        out->ids = realloc(out->ids, out->capacity * sizeof *out->ids);
    }
    out->ids[out->n++] = id;
}

/* Any token that the text begins with, again and again. */
static void cut_randomly(const fixture *f, k3_tokens *out, const char *text, size_t n, unsigned *seed)
{
    int vocab = k3_engine_info(f->engine)->vocab_size;
    while (n) {
        int32_t fits[64];
        size_t lengths[64], n_fits = 0;
        for (int32_t id = 0; id < vocab - 256 && n_fits < 64; id++) {
            const char *bytes;
            size_t n_bytes;
            (void)k3_token_bytes(f->engine, &bytes, &n_bytes, id, NULL);
            if (n_bytes > n || bytes[0] != text[0] || memcmp(bytes, text, n_bytes) != 0)
                continue;
            fits[n_fits] = id;
            lengths[n_fits++] = n_bytes;
        }
        assert_true(n_fits > 0);
        size_t i = (size_t)rand_r(seed) % n_fits;
        add_id(out, fits[i]);
        text += lengths[i];
        n -= lengths[i];
    }
}

void fixture_ids(const fixture *f, k3_tokens *out, const char *text, unsigned *seed)
{
    static const char *const names[] = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "[EOS]"};
    while (*text) {
        size_t n = strlen(text), n_name = 0;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const char *found = strstr(text, names[i]);
            if (found && (size_t)(found - text) < n) {
                n = (size_t)(found - text);
                n_name = strlen(names[i]);
            }
        }
        if (seed)
            cut_randomly(f, out, text, n, seed);
        else if (n)
            assert_int_equal(k3_tokenize(f->engine, out, text, n, NULL), K3_OK);
        if (n_name)
            add_id(out, marker_id(f, text + n, n_name));
        text += n + n_name;
    }
}

fake_script fixture_script(void)
{
    return (fake_script){.stop_before = SIZE_MAX};
}

void fixture_play(fixture *f, const char *text, fake_script *script)
{
    f->script.n = 0;
    fixture_ids(f, &f->script, text, NULL);
    script->ids = f->script.ids;
    script->n = f->script.n;
    fake_play(script);
}

void fixture_say(fixture *f, const char *text)
{
    fake_script script = fixture_script();
    fixture_play(f, text, &script);
}

void fixture_check_prompt(const fixture *f, const char *request)
{
    k3_tokens ids = {0};
    int thinking;
    k3_error err = {0};
    if (k3_chat_render(f->engine, &ids, &thinking, request, &err) != K3_OK)
        fail_msg("%s", err.text);
    if (fake_look()->n != ids.n || memcmp(fake_look()->ids, ids.ids, ids.n * sizeof *ids.ids) != 0)
        fail_msg("another prompt than that of %s", request);
    k3_tokens_free(&ids);
}
