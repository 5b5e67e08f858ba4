/* `k3 serve`: the port is taken first, then the model is loaded, then requests are answered until a signal comes. */
#include "app.h"

#include <stdio.h>

#if K3_HAVE_MICROHTTPD

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buffer.h"
#include "server/server.h"
#include "terminal.h"

/* ---- what the command line says ---------------------------------------------------------------------------------- */

/* The lines of a file that are not empty, without a byte-order mark: NUL after each. */
static int read_keys(app_buffer *keys, const char *path)
{
    size_t n = 0;
    char *text = app_read_file(path, &n);
    if (!text)
        return APP_FAILED;
    for (char *line = strtok(strncmp(text, "\xef\xbb\xbf", 3) == 0 ? text + 3 : text, "\r\n"); line; line = strtok(NULL, "\r\n")) {
        line += strspn(line, " \t");
        size_t length = strlen(line);
        while (length && strchr(" \t", line[length - 1]))
            length--;
        if (!length)
            continue;
        app_buffer_add(keys, line, length);
        app_buffer_add(keys, "", 1);
    }
    free(text);
    if (keys->n)
        return APP_OK;
    fprintf(stderr, "k3 serve: --api-key-file %s: no key found, at least one line wanted\n", path);
    return APP_FAILED;
}

/* The folder's own name is the model's. */
static char *model_name(const char *path)
{
    char *full = realpath(path, NULL);
    const char *from = full ? full : path, *slash = strrchr(from, '/');
    char *name = strdup(slash && slash[1] ? slash + 1 : from);
    free(full);
    return name;
}

static srv_limits limits_of(const app_options *o)
{
    srv_limits limits = {.max_running = (int)o->parallel, .max_waiting = (int)o->queue, .context = o->context, .mark_interval = 1024};
    if (!app_parse_size(&limits.cache_bytes, o->prefix_cache)) {
        limits.cache_folder = o->prefix_cache;
        limits.cache_bytes = UINT64_C(1) << 30;
    }
    return limits;
}

/* ---- signals ----------------------------------------------------------------------------------------------------- */

static int signalled[2] = {-1, -1};

static void on_signal(int number)
{
    static volatile sig_atomic_t n;
    int saved = errno;
    if (n++)
        _exit(128 + number);
    if (write(signalled[1], "", 1) != 1)
        _exit(128 + number);
    errno = saved;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* Meanwhile tells, once each, what is wrong with the folder of kept conversations. */
static void wait_for_signal(srv_scheduler *scheduler)
{
    struct pollfd p = {.fd = signalled[0], .events = POLLIN};
    char shown[sizeof((srv_counts *)0)->notice] = "";
    while (!app_interrupted() && poll(&p, 1, 1000) <= 0) {
        srv_counts counts;
        srv_count(scheduler, &counts);
        if (strcmp(counts.notice, shown) != 0)
            fprintf(stderr, "k3: %s\n", strcpy(shown, counts.notice));
    }
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

/* Opens engine and scheduler; what was opened is there after a failure too. */
static int load(k3_engine **engine, srv_scheduler **scheduler, const app_options *options)
{
    srv_limits limits = limits_of(options);
    k3_error err = {0};
    int status = app_open_engine(engine, options);
    if (status != APP_OK)
        return status;
    const k3_info *info = k3_engine_info(*engine);
    if (!info->has_tokenizer) {
        fprintf(stderr, "k3 serve: %s/tiktoken.model: not there, and clients speak text\n", options->model);
        return APP_FAILED;
    }
    if (limits.context > info->context_length) {
        fprintf(stderr, "k3 serve: --ctx %ld: at most the model's context of %d tokens wanted\n", options->context, info->context_length);
        return APP_USAGE;
    }
    return srv_scheduler_open(scheduler, *engine, &limits, &err) == K3_OK ? APP_OK : app_fail(&err);
}

static int serve(srv_server *server, const app_options *options, int port)
{
    k3_engine *engine = NULL;
    srv_scheduler *scheduler = NULL;
    int status = load(&engine, &scheduler, options);
    if (status == APP_OK) {
        catch_signals();
        srv_server_ready(server, engine, scheduler, options->context);
        fprintf(stderr, strchr(options->host, ':') ? "k3: ready at http://[%s]:%d\n" : "k3: ready at http://%s:%d\n", options->host, port);
        wait_for_signal(scheduler);
    }
    srv_server_close(server);
    if (scheduler)
        srv_scheduler_close(scheduler);
    app_close_engine(engine, options);
    return status;
}

int app_serve(const app_options *options)
{
    app_buffer keys = {0};
    k3_error err = {0};
    srv_server *server = NULL;
    srv_config config = srv_config_standard();
    int port = (int)options->port;
    if (options->api_key_file && read_keys(&keys, options->api_key_file) != APP_OK)
        return APP_FAILED;
    int fd = srv_listen(options->host, &port, &err);
    if (fd < 0 || pipe(signalled) != 0) {
        app_buffer_free(&keys);
        return fd < 0 ? app_fail(&err) : (perror("k3: pipe"), APP_FAILED);
    }
    char *name = model_name(options->model);
    config.rules =
        (srv_rules){.is_strict = options->strict, .is_strict_model = options->strict_model, .model = name, .aliases = options->aliases};
    config.allow_hosts = options->allow_hosts;
    config.cors_origins = options->cors_origins;
    config.keys = keys.n ? &keys : NULL;
    config.parallel = (int)options->parallel;
    config.is_quiet = options->quiet;
    int status = srv_server_open(&server, fd, &config, &err) == K3_OK ? serve(server, options, port) : app_fail(&err);
    free(name);
    app_buffer_free(&keys);
    return status;
}

#else

int app_serve(const app_options *options)
{
    (void)options;
    fprintf(stderr, "k3 serve: this k3 was built without libmicrohttpd; install libmicrohttpd-dev and build again\n");
    return APP_FAILED;
}

#endif
