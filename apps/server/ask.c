#include "ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STOPS = 64, MAX_STOP_BYTES = 4096, STRICT_STOPS = 5, STRICT_STOP_BYTES = 32, PENALTY_WINDOW = 1024 };

void srv_ask_open(srv_ask *ask)
{
    *ask = (srv_ask){.thinking = 1, .n_top = -1, .sampling = {.temperature = 1, .top_p = 0.95f}, .adjust = {.window = PENALTY_WINDOW}};
    srv_random(&ask->sampling.seed, sizeof ask->sampling.seed);
}

void srv_ask_free(srv_ask *ask)
{
    app_buffer_free(&ask->messages);
    app_buffer_free(&ask->tools);
    app_buffer_free(&ask->names);
    app_buffer_free(&ask->chosen);
    app_buffer_free(&ask->custom);
    app_buffer_free(&ask->format_text);
    k3_tokens_free(&ask->ids);
    k3_constraint_close(ask->constraint);
    free((void *)(uintptr_t)ask->adjust.bias_ids);
    free((void *)(uintptr_t)ask->adjust.biases);
    for (size_t i = 0; i < ask->n_stops; i++)
        app_buffer_free(&ask->stops[i]);
    free(ask->stops);
    *ask = (srv_ask){0};
}

/* ---- the model's name -------------------------------------------------------------------------------------------- */

int srv_model_is_ours(const srv_rules *rules, const char *name)
{
    if (strcmp(name, rules->model) == 0)
        return 1;
    size_t n = strlen(name);
    for (const char *at = rules->aliases; at && n; at += *at == ',') {
        size_t n_alias = strcspn(at, ",");
        if (n_alias == n && memcmp(at, name, n) == 0)
            return 1;
        at += n_alias;
        if (!*at)
            break;
    }
    return 0;
}

int srv_model_is_known(const srv_rules *rules, const char *name)
{
    return srv_model_is_ours(rules, name) || strncmp(name, "claude-", 7) == 0 || strncmp(name, "gpt-", 4) == 0;
}

int srv_ask_model(const srv_fields *fields, const srv_rules *rules)
{
    app_json model = srv_field(fields, "model");
    if (!model.text)
        return 1;
    if (!srv_is_string(model))
        return srv_refuse(fields->problem, "model", "model must be a string");
    app_buffer name = {0};
    app_json_decode(&name, model);
    int known = !rules->is_strict_model || srv_model_is_known(rules, name.text);
    if (!known) {
        srv_deny(fields->problem, 404, "model_not_found", "there is no model \"%.100s\" here; %s is served", name.text, rules->model);
        snprintf(fields->problem->param, sizeof fields->problem->param, "model");
    }
    app_buffer_free(&name);
    return known;
}

/* ---- sampling ---------------------------------------------------------------------------------------------------- */

/* {"ID": bias, ...} */
static int read_biases(srv_ask *ask, const srv_fields *fields, const srv_rules *rules)
{
    app_json biases = srv_field(fields, "logit_bias"), key, value;
    int64_t vocab = k3_engine_info(rules->engine)->vocab_size;
    if (!biases.text)
        return 1;
    if (!srv_is_object(biases))
        return srv_refuse(fields->problem, "logit_bias", "logit_bias must be an object of token ids and numbers");
    size_t n = srv_length(biases), i = 0;
    int32_t *ids = app_alloc(n, sizeof *ids);
    float *values = app_alloc(n, sizeof *values);
    ask->adjust.bias_ids = ids;
    ask->adjust.biases = values;
    for (size_t at = 0; app_json_next(&key, &value, &at, biases); i++) {
        double x;
        char text[24] = "", *end;
        if (key.n - 2 < sizeof text)
            memcpy(text, key.text + 1, key.n - 2);
        long id = strtol(text, &end, 10);
        if (text[0] < '0' || text[0] > '9' || *end || id >= vocab)
            return srv_refuse(fields->problem, "logit_bias", "logit_bias has the key %.*s, wanted a token id from 0 to %lld",
                              key.n < 40 ? (int)key.n : 40, key.text, (long long)vocab - 1);
        if (!app_json_double(value, &x) || !(x >= -100 && x <= 100))
            return srv_refuse(fields->problem, "logit_bias", "logit_bias of token %ld is %.*s, wanted a number from -100 to 100", id,
                              value.n < 40 ? (int)value.n : 40, value.text);
        ids[i] = (int32_t)id;
        values[i] = (float)x;
    }
    ask->adjust.n_biases = n;
    return 1;
}

static int check_strict(const srv_ask *ask, const srv_fields *fields, double temperature, double top_p)
{
    srv_problem *p = fields->problem;
    if (ask->thinking ? temperature != 0 && temperature != 0.6 && temperature != 1.0
                      : temperature != 0.6 && srv_field(fields, "temperature").text)
        return srv_refuse(p, "temperature", "temperature is %g, and this server keeps to the vendor's: %s", temperature,
                          ask->thinking ? "0, 0.6 or 1 with thinking" : "0.6 without thinking");
    if (top_p != 0.95)
        return srv_refuse(p, "top_p", "top_p is %g, and this server keeps to the vendor's 0.95", top_p);
    if (ask->adjust.presence != 0 || ask->adjust.frequency != 0 || ask->adjust.repetition != 1)
        return srv_refuse(p, ask->adjust.presence != 0 ? "presence_penalty" : "frequency_penalty",
                          "penalties are fixed at 0, as the vendor has it");
    return 1;
}

int srv_ask_sampling(srv_ask *ask, const srv_fields *fields, const srv_rules *rules)
{
    double temperature = 1, top_p = 0.95, min_p = 0, presence = 0, frequency = 0, repetition = 1;
    int64_t top_k = 0, seed = (int64_t)ask->sampling.seed, n = 1, window = PENALTY_WINDOW;
    if (!srv_field_number(fields, "temperature", 0, 100, &temperature) || !srv_field_number(fields, "top_p", 0, 1, &top_p) ||
        !srv_field_int(fields, "top_k", -1, INT32_MAX, &top_k) || !srv_field_number(fields, "min_p", 0, 1, &min_p) ||
        !srv_field_number(fields, "presence_penalty", -100, 100, &presence) ||
        !srv_field_number(fields, "frequency_penalty", -100, 100, &frequency) ||
        !srv_field_number(fields, "repetition_penalty", 0, 100, &repetition) || !srv_field_int(fields, "n", -1000, 1000, &n) ||
        !srv_field_int(fields, "repeat_last_n", -1, INT32_MAX, &window) || !srv_field_int(fields, "seed", INT64_MIN, INT64_MAX, &seed) ||
        !read_biases(ask, fields, rules))
        return 0;
    if (n != 1)
        return srv_refuse(fields->problem, "n", "n is %lld, and only 1 answer is given", (long long)n);
    ask->sampling = (k3_sampling){.temperature = (float)temperature,
                                  .top_p = (float)top_p,
                                  .top_k = top_k < 0 ? 0 : (int)top_k,
                                  .min_p = (float)min_p,
                                  .seed = (uint64_t)seed};
    ask->adjust.repetition = (float)repetition;
    ask->adjust.presence = (float)presence;
    ask->adjust.frequency = (float)frequency;
    ask->adjust.window = window;
    return !rules->is_strict || check_strict(ask, fields, temperature, top_p);
}

static int add_stop(srv_ask *ask, app_json value, const char *name, const srv_rules *rules, srv_problem *problem)
{
    size_t n_stops = rules->is_strict ? STRICT_STOPS : MAX_STOPS, n_bytes = rules->is_strict ? STRICT_STOP_BYTES : MAX_STOP_BYTES;
    if (app_json_kind(value) == 'n')
        return 1;
    if (!srv_is_string(value))
        return srv_refuse(problem, name, "%s must be a string or an array of strings", name);
    if (ask->n_stops == n_stops)
        return srv_refuse(problem, name, "%s has more than %zu strings", name, n_stops);
    app_buffer *stop = &ask->stops[ask->n_stops++];
    app_json_decode(stop, value);
    if (!stop->n)
        return srv_refuse(problem, name, "%s[%zu] is empty; leave it out to have none", name, ask->n_stops - 1);
    if (stop->n > n_bytes)
        return srv_refuse(problem, name, "%s[%zu] has %zu bytes, and at most %zu are taken", name, ask->n_stops - 1, stop->n, n_bytes);
    return 1;
}

int srv_ask_stops(srv_ask *ask, const srv_fields *fields, const char *name, const srv_rules *rules)
{
    app_json stops = srv_field(fields, name), value;
    if (!stops.text)
        return 1;
    ask->stops = app_alloc(MAX_STOPS, sizeof *ask->stops);
    if (!srv_is_array(stops))
        return add_stop(ask, stops, name, rules, fields->problem);
    for (size_t at = 0; app_json_next(NULL, &value, &at, stops);)
        if (!add_stop(ask, value, name, rules, fields->problem))
            return 0;
    return 1;
}

int srv_ask_limit(srv_ask *ask, const srv_fields *fields, const char *name)
{
    int64_t limit = -1;
    if (!srv_field_int(fields, name, -1, INT64_C(1) << 53, &limit))
        return 0;
    if (limit == 0)
        return srv_refuse(fields->problem, name, "%s is 0, wanted a whole number from 1, or -1 for as many as fit", name);
    if (srv_field(fields, name).text)
        ask->max_tokens = limit < 0 ? 0 : limit;
    return 1;
}

int srv_ask_effort(srv_ask *ask, app_json effort, const char *param, const srv_rules *rules, srv_problem *problem)
{
    static const struct {
        const char *name, *effort;
        int is_own;
    } words[] = {{"low", "low", 1},     {"high", "high", 1}, {"max", "max", 1}, {"minimal", "low", 0},
                 {"medium", "high", 0}, {"xhigh", "max", 0}, {"none", NULL, 0}};
    if (!effort.text)
        return 1;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (app_json_is(effort, words[i].name) && (words[i].is_own || !rules->is_strict)) {
            ask->effort = words[i].effort;
            ask->thinking = ask->thinking && words[i].effort;
            return 1;
        }
    return srv_refuse(problem, param, "%s is %.*s, wanted low, high or max", param, effort.n < 40 ? (int)effort.n : 40, effort.text);
}

/* ---- tools ------------------------------------------------------------------------------------------------------- */

void srv_ask_comma(app_buffer *list)
{
    app_buffer_text(list, list->n ? "," : "");
}

void srv_ask_add_name(app_buffer *names, app_json name)
{
    app_json_decode(names, name);
    app_buffer_add(names, "", 1);
}

int srv_ask_has_name(const app_buffer *names, const char *name)
{
    for (size_t at = 0; at < names->n; at += strlen(names->text + at) + 1)
        if (strcmp(names->text + at, name) == 0)
            return 1;
    return 0;
}

void srv_ask_add_tool(srv_ask *ask, app_json name, app_json description, app_json parameters, app_json strict)
{
    srv_ask_comma(&ask->tools);
    app_buffer_text(&ask->tools, "{\"type\":\"function\",\"function\":{\"name\":");
    srv_add_json(&ask->tools, name);
    if (description.text) {
        app_buffer_text(&ask->tools, ",\"description\":");
        srv_add_json(&ask->tools, description);
    }
    if (parameters.text) {
        app_buffer_text(&ask->tools, ",\"parameters\":");
        srv_add_json(&ask->tools, parameters);
    }
    if (strict.text) {
        app_buffer_text(&ask->tools, ",\"strict\":");
        srv_add_json(&ask->tools, strict);
    }
    app_buffer_text(&ask->tools, "}}");
    srv_ask_add_name(&ask->names, name);
    ask->has_tools = 1;
}

void srv_ask_add_assistant(srv_ask *ask, const app_buffer *reasoning, const app_buffer *parts, const app_buffer *calls)
{
    app_buffer *messages = &ask->messages;
    srv_ask_comma(messages);
    app_buffer_text(messages, "{\"role\":\"assistant\",\"reasoning_content\":");
    srv_add_string(messages, reasoning);
    app_buffer_text(messages, ",\"content\":[");
    app_buffer_add(messages, parts->text, parts->n);
    app_buffer_text(messages, "],\"tool_calls\":[");
    app_buffer_add(messages, calls->text, calls->n);
    app_buffer_text(messages, "]}");
}

int srv_ask_check_history(const srv_ask *ask, const char *param, srv_problem *problem)
{
    enum { MOST = 16384 };
    if (ask->n_calls <= MOST && ask->n_results <= MOST)
        return 1;
    return srv_refuse(problem, param, "%s has more than %d calls, or results of calls", param, (int)MOST);
}

int srv_ask_check_choice(const srv_ask *ask, srv_problem *problem)
{
    int forced = ask->choice == SRV_CHOICE_REQUIRED || ask->choice == SRV_CHOICE_NAMED;
    if (forced && !ask->has_tools)
        return srv_refuse(problem, "tool_choice", "tool_choice asks for a call, but there are no tools");
    if (ask->choice == SRV_CHOICE_NAMED && !srv_ask_has_name(&ask->names, ask->chosen.text))
        return srv_refuse(problem, "tool_choice", "tool_choice names the tool \"%.100s\", which is not among the tools", ask->chosen.text);
    return 1;
}

/* ---- the prompt -------------------------------------------------------------------------------------------------- */

static void write_choice(app_buffer *out, const srv_ask *ask)
{
    static const char *const words[] = {"\"auto\"", "\"none\"", "\"required\""};
    if (ask->choice != SRV_CHOICE_NAMED) {
        app_buffer_text(out, words[ask->choice]);
        return;
    }
    app_buffer_text(out, "{\"type\":\"function\",\"function\":{\"name\":");
    srv_add_string(out, &ask->chosen);
    app_buffer_text(out, "}}");
}

static void write_request(app_buffer *out, const srv_ask *ask)
{
    app_buffer_text(out, "{\"map_developer\":true,\"messages\":[");
    app_buffer_add(out, ask->messages.text, ask->messages.n);
    app_buffer_text(out, "],\"tools\":[");
    app_buffer_add(out, ask->tools.text, ask->tools.n);
    app_buffer_text(out, "],\"tool_choice\":");
    write_choice(out, ask);
    srv_add(out, ",\"thinking\":%s", ask->thinking ? "true" : "false");
    if (ask->thinking)
        srv_add(out, ",\"thinking_effort\":\"%s\"", ask->effort ? ask->effort : "max");
    app_buffer_text(out, ",\"response_format\":");
    srv_add_json(out, ask->format);
    app_buffer_text(out, "}");
}

/* The ids that open the answer's channel are no part of the prompt as the vendor counts it: the last marker that opens, and what follows.
 */
static int64_t counted(const k3_engine *engine, const k3_tokens *ids)
{
    for (size_t i = ids->n; i-- > 0;) {
        const char *bytes;
        size_t n;
        if (k3_token_is_special(engine, ids->ids[i]) && k3_token_bytes(engine, &bytes, &n, ids->ids[i], NULL) == K3_OK && n == 8 &&
            memcmp(bytes, "<|open|>", 8) == 0)
            return (int64_t)i;
    }
    return (int64_t)ids->n;
}

int srv_ask_check_window(const srv_ask *ask, const srv_rules *rules, srv_problem *problem)
{
    if ((int64_t)ask->ids.n + 1 <= rules->context)
        return 1;
    return srv_deny(problem, 400, "context_length_exceeded",
                    "the prompt has %zu tokens, and the context of %lld tokens has to hold it and an answer", ask->ids.n,
                    (long long)rules->context);
}

int srv_ask_render(srv_ask *ask, const srv_rules *rules, srv_problem *problem)
{
    app_buffer request = {0};
    k3_error err = {0};
    write_request(&request, ask);
    k3_status status = k3_chat_render(rules->engine, &ask->ids, &ask->thinking, request.text, &err);
    if (status == K3_OK)
        status = k3_constraint_open(&ask->constraint, rules->engine, request.text, ask->thinking, &err);
    app_buffer_free(&request);
    ask->is_chat = 1;
    ask->n_prompt = counted(rules->engine, &ask->ids);
    return status == K3_OK ? srv_ask_check_window(ask, rules, problem) : srv_deny_error(problem, &err);
}
