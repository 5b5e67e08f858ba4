/* What there is to ask for, and the answers that need no model. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "http.h"
#include "page.h"

/* ---- models ------------------------------------------------------------------------------------------------------ */

static void add_name(app_buffer *out, const char *name)
{
    app_buffer_json(out, name, strlen(name));
}

/* The window that is in force, in the spellings that clients look for. */
static void add_model(const srv_server *server, app_buffer *out)
{
    const srv_rules *r = &server->config.rules;
    long long window = (long long)r->context, trained = k3_engine_info(r->engine)->context_length;
    app_buffer_text(out, "{\"id\":");
    add_name(out, r->model);
    app_buffer_text(out, ",\"object\":\"model\",\"type\":\"model\",\"display_name\":");
    add_name(out, r->model);
    srv_add(out,
            ",\"created\":%d,\"created_at\":\"2026-01-01T00:00:00Z\",\"owned_by\":\"k3\",\"max_model_len\":%lld,\"context_length\":%lld,"
            "\"meta\":{\"n_ctx\":%lld,\"n_ctx_train\":%lld}}",
            1767225600, window, window, window, trained);
}

static int get_models(srv_server *server, app_buffer *out, const char **type, const char *rest, srv_problem *problem)
{
    (void)type, (void)rest, (void)problem;
    app_buffer_text(out, "{\"object\":\"list\",\"data\":[");
    add_model(server, out);
    app_buffer_text(out, "],\"models\":[],\"has_more\":false,\"first_id\":");
    add_name(out, server->config.rules.model);
    app_buffer_text(out, ",\"last_id\":");
    add_name(out, server->config.rules.model);
    app_buffer_text(out, "}");
    return 1;
}

static int get_model(srv_server *server, app_buffer *out, const char **type, const char *rest, srv_problem *problem)
{
    (void)type;
    if (!srv_model_is_ours(&server->config.rules, rest))
        return srv_deny(problem, 404, "model_not_found", "there is no model \"%.100s\" here; %s is served", rest,
                        server->config.rules.model);
    add_model(server, out);
    return 1;
}

static int get_local_models(srv_server *server, app_buffer *out, const char **type, const char *rest, srv_problem *problem)
{
    (void)type, (void)rest, (void)problem;
    const srv_rules *r = &server->config.rules;
    int trained = k3_engine_info(r->engine)->context_length;
    app_buffer_text(out, "{\"object\":\"list\",\"data\":[{\"id\":");
    add_name(out, r->model);
    srv_add(
        out,
        ",\"object\":\"model\",\"type\":\"llm\",\"publisher\":\"moonshotai\",\"arch\":\"kimi_k3\",\"state\":\"loaded\","
        "\"max_context_length\":%d,\"loaded_context_length\":%lld}],\"models\":[{\"type\":\"llm\",\"publisher\":\"moonshotai\",\"key\":",
        trained, (long long)r->context);
    add_name(out, r->model);
    app_buffer_text(out, ",\"display_name\":");
    add_name(out, r->model);
    app_buffer_text(out, ",\"architecture\":\"kimi_k3\",\"loaded_instances\":[{\"id\":");
    add_name(out, r->model);
    srv_add(out, ",\"config\":{\"context_length\":%lld}}],\"max_context_length\":%d}]}", (long long)r->context, trained);
    return 1;
}

static int get_props(srv_server *server, app_buffer *out, const char **type, const char *rest, srv_problem *problem)
{
    (void)type, (void)rest, (void)problem;
    const srv_rules *r = &server->config.rules;
    srv_add(out, "{\"default_generation_settings\":{\"n_ctx\":%lld,\"params\":{\"temperature\":1.0,\"top_p\":0.95}},\"total_slots\":%d,",
            (long long)r->context, server->config.parallel);
    app_buffer_text(out, "\"model_alias\":");
    add_name(out, r->model);
    srv_add(out, ",\"build_info\":\"k3 %s\"}", K3_VERSION);
    return 1;
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

static int get_health(srv_server *server, app_buffer *out, const char **type, const char *rest, srv_problem *problem)
{
    (void)type, (void)rest;
    pthread_mutex_lock(&server->lock);
    int ready = server->is_ready, stopping = server->is_stopping;
    pthread_mutex_unlock(&server->lock);
    if (stopping)
        return srv_deny(problem, 503, "server_stopping", "the server is being stopped");
    if (!ready)
        return srv_deny(problem, 503, "loading", "the model is still being loaded");
    app_buffer_text(out, "{\"status\":\"ok\"}");
    return 1;
}

static void add_metric(app_buffer *out, const char *name, const char *kind, const char *help)
{
    srv_add(out, "# HELP k3_%s %s\n# TYPE k3_%s %s\n", name, help, name, kind);
}

static void add_number(app_buffer *out, const char *name, const char *kind, const char *help, double value)
{
    add_metric(out, name, kind, help);
    srv_add(out, "k3_%s %.15g\n", name, value);
}

static void add_counts(const srv_counts *c, app_buffer *out)
{
    add_number(out, "requests_running", "gauge", "Answers being made.", c->running);
    add_number(out, "requests_waiting", "gauge", "Requests in the queue.", c->waiting);
    add_number(out, "requests_total", "counter", "Requests that were queued.", (double)c->requests);
    add_number(out, "requests_refused_total", "counter", "Requests that found the queue full.", (double)c->refused);
    add_number(out, "requests_cancelled_total", "counter", "Requests whose client left.", (double)c->cancelled);
    add_number(out, "requests_failed_total", "counter", "Requests that ended with an error.", (double)c->failed);
    add_number(out, "prompt_tokens_total", "counter", "Tokens of prompts.", (double)c->prompt_tokens);
    add_number(out, "cached_tokens_total", "counter", "Tokens of prompts that were kept from earlier requests.", (double)c->cached_tokens);
    add_number(out, "generated_tokens_total", "counter", "Tokens of answers.", (double)c->new_tokens);
    add_number(out, "passes_total", "counter", "Passes through the model.", (double)c->passes);
    add_number(out, "rows_total", "counter", "Rows of all passes.", (double)c->rows);
    add_number(out, "prompt_seconds_total", "counter", "Time spent on prompts.", c->prompt_seconds);
    add_number(out, "decode_seconds_total", "counter", "Time spent on answers.", c->decode_seconds);
}

static int get_metrics(srv_server *server, app_buffer *out, const char **type, const char *rest, srv_problem *problem)
{
    (void)rest, (void)problem;
    *type = "text/plain; version=0.0.4";
    add_metric(out, "http_requests_total", "counter", "Answered requests by path and status.");
    pthread_mutex_lock(&server->lock);
    for (size_t i = 0; i < server->n_counted; i++)
        srv_add(out, "k3_http_requests_total{path=\"%s\",status=\"%d\"} %llu\n", server->counted[i].path, server->counted[i].status,
                (unsigned long long)server->counted[i].n);
    srv_scheduler *scheduler = server->is_ready && !server->is_stopping ? server->scheduler : NULL;
    pthread_mutex_unlock(&server->lock);
    add_number(out, "ready", "gauge", "1 when the model is loaded.", scheduler != NULL);
    if (scheduler) {
        srv_counts counts;
        srv_count(scheduler, &counts);
        add_counts(&counts, out);
    }
    return 1;
}

static int get_page(srv_server *server, app_buffer *out, const char **type, const char *rest, srv_problem *problem)
{
    (void)server, (void)rest, (void)problem;
    *type = "text/html; charset=utf-8";
    app_buffer_add(out, srv_page, srv_page_bytes);
    return 1;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const srv_route routes[] = {
    {.path = "/v1/chat/completions", .is_post = 1, .needs_engine = 1, .api = &srv_api_chat},
    {.path = "/v1/completions", .is_post = 1, .needs_engine = 1, .api = &srv_api_completions},
    {.path = "/v1/messages", .is_post = 1, .needs_engine = 1, .api = &srv_api_messages},
    {.path = "/v1/messages/count_tokens", .is_post = 1, .needs_engine = 1, .api = &srv_api_messages, .counts_only = 1},
    {.path = "/v1/responses", .is_post = 1, .needs_engine = 1, .api = &srv_api_responses},
    {.path = "/v1/models", .needs_engine = 1, .get = get_models},
    {.path = "/v1/models/", .needs_engine = 1, .get = get_model},
    {.path = "/api/v0/models", .needs_engine = 1, .get = get_local_models},
    {.path = "/api/v1/models", .needs_engine = 1, .get = get_local_models},
    {.path = "/props", .needs_engine = 1, .get = get_props},
    {.path = "/metrics", .get = get_metrics},
    {.path = "/health", .is_open = 1, .get = get_health},
    {.path = "/", .is_open = 1, .get = get_page},
};

const srv_route *srv_route_find(const char *path, const char *method, const char **rest, srv_problem *problem)
{
    const srv_route *found = NULL;
    *rest = "";
    for (size_t i = 0; i < sizeof routes / sizeof *routes && !found; i++) {
        size_t n = strlen(routes[i].path);
        if (strcmp(routes[i].path, path) == 0)
            found = &routes[i];
        else if (n > 1 && routes[i].path[n - 1] == '/' && strncmp(routes[i].path, path, n) == 0) {
            found = &routes[i];
            *rest = path + n;
        }
    }
    int is_post = strcmp(method, "POST") == 0, is_get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    if (!found) {
        srv_deny(problem, 404, "not_found", "there is nothing at %.200s", path);
    } else if (found->is_post ? !is_post : !is_get) {
        srv_deny(problem, 405, found->is_post ? "use_post" : "use_get", "%s is asked with %s, not %.20s", found->path,
                 found->is_post ? "POST" : "GET", method);
        found = NULL;
    }
    return found;
}
