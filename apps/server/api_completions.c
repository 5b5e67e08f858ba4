/* POST /v1/completions: a plain prompt, as text or ids. */
#include <string.h>

#include "api_chat.h"

static int read_ids(srv_ask *ask, app_json ids, const srv_rules *rules, srv_problem *problem)
{
    app_json value;
    int64_t id, vocab = k3_engine_info(rules->engine)->vocab_size;
    ask->ids.capacity = srv_length(ids);
    ask->ids.ids = app_alloc(ask->ids.capacity, sizeof *ask->ids.ids);
    for (size_t at = 0; app_json_next(NULL, &value, &at, ids);) {
        if (!app_json_int(value, &id) || id < 0 || id >= vocab)
            return srv_refuse(problem, "prompt", "prompt has the token id %.*s, wanted 0 to %lld", value.n < 40 ? (int)value.n : 40,
                              value.text, (long long)vocab - 1);
        ask->ids.ids[ask->ids.n++] = (int32_t)id;
    }
    return 1;
}

/* A text, ids, or a list with one of either. */
static int read_prompt(srv_ask *ask, const srv_fields *fields, const srv_rules *rules)
{
    app_json prompt = srv_field(fields, "prompt"), first = {NULL, 0};
    srv_problem *problem = fields->problem;
    size_t at = 0;
    if (srv_is_array(prompt) && app_json_next(NULL, &first, &at, prompt) && app_json_kind(first) != '0') {
        if (srv_length(prompt) != 1)
            return srv_refuse(problem, "prompt", "prompt has %zu prompts, and 1 is taken", srv_length(prompt));
        prompt = first;
    }
    if (srv_is_array(prompt)) {
        if (!read_ids(ask, prompt, rules, problem))
            return 0;
    } else if (srv_is_string(prompt)) {
        k3_error err = {0};
        app_buffer text = {0};
        app_json_decode(&text, prompt);
        k3_status status = k3_tokenize(rules->engine, &ask->ids, text.text, text.n, &err);
        app_buffer_free(&text);
        if (status != K3_OK)
            return srv_deny_error(problem, &err);
    } else {
        return srv_refuse(problem, "prompt", "prompt must be a string or an array of token ids");
    }
    if (!ask->ids.n)
        return srv_refuse(problem, "prompt", "prompt is empty; at least one token is wanted");
    ask->n_prompt = (int64_t)ask->ids.n;
    return srv_ask_check_window(ask, rules, problem);
}

static int read_completion(srv_ask *ask, const srv_fields *fields, const srv_rules *rules)
{
    int64_t best_of = 1;
    int echo = 0;
    srv_problem *problem = fields->problem;
    ask->max_tokens = 16; /* what the API promises where nothing is said */
    if (!srv_ask_model(fields, rules) || !srv_ask_stream(ask, fields) || !srv_field_int(fields, "best_of", 0, 1000, &best_of) ||
        !srv_field_flag(fields, "echo", &echo))
        return 0;
    if (best_of > 1)
        return srv_refuse(problem, "best_of", "best_of is %d, and only 1 answer is made", (int)best_of);
    if (echo)
        return srv_refuse(problem, "echo", "echo is not supported");
    app_json suffix = srv_field(fields, "suffix");
    if (suffix.text && !app_json_is(suffix, ""))
        return srv_refuse(problem, "suffix", "suffix is not supported");
    if (srv_field(fields, "logprobs").text)
        return srv_refuse(problem, "logprobs", "logprobs are not supported here; /v1/chat/completions has them");
    return srv_ask_sampling(ask, fields, rules) && srv_ask_stops(ask, fields, "stop", rules) && srv_ask_limit(ask, fields, "max_tokens") &&
           read_prompt(ask, fields, rules);
}

static void begin(const srv_reply *reply, app_buffer *out)
{
    srv_add(out, "{\"id\":\"%s\",\"object\":\"text_completion\",\"created\":%lld,\"model\":", reply->id.text, (long long)reply->created);
    app_buffer_json(out, reply->model, strlen(reply->model));
    app_buffer_text(out, ",\"choices\":[");
}

static void start(srv_reply *reply, app_buffer *out)
{
    (void)reply;
    (void)out;
}

static void add_event(srv_reply *reply, app_buffer *out, const srv_batch *batch, const srv_event *event)
{
    app_buffer_text(out, "data: ");
    begin(reply, out);
    app_buffer_text(out, "{\"index\":0,\"text\":");
    app_buffer_json(out, batch->text.text + event->at, event->n);
    app_buffer_text(out, ",\"logprobs\":null,\"finish_reason\":null}]}\n\n");
}

static void end(srv_reply *reply, app_buffer *out)
{
    app_buffer_text(out, "data: ");
    begin(reply, out);
    srv_add(out, "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"%s\"}]}\n\n", srv_finish_name(reply->state.finish));
    if (reply->ask->include_usage) {
        app_buffer_text(out, "data: ");
        begin(reply, out);
        app_buffer_text(out, "],\"usage\":");
        srv_reply_add_usage(out, reply);
        app_buffer_text(out, "}\n\n");
    }
    app_buffer_text(out, "data: [DONE]\n\n");
}

static void fail(srv_reply *reply, app_buffer *out, const srv_problem *problem)
{
    app_buffer error = {0};
    srv_add_problem(&error, problem, 0);
    app_buffer_text(out, "data: ");
    begin(reply, out);
    srv_add(out, "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"error\"}],%s\n\ndata: [DONE]\n\n", error.text + 1);
    app_buffer_free(&error);
}

static void whole(srv_reply *reply, app_buffer *out)
{
    begin(reply, out);
    app_buffer_text(out, "{\"index\":0,\"text\":");
    srv_add_string(out, &reply->content);
    srv_add(out, ",\"logprobs\":null,\"finish_reason\":\"%s\"}],\"usage\":", srv_finish_name(reply->state.finish));
    srv_reply_add_usage(out, reply);
    app_buffer_text(out, "}");
}

const srv_api srv_api_completions = {.path = "/v1/completions",
                                     .idle = ": waiting\n\n",
                                     .id_prefix = "cmpl-",
                                     .read = read_completion,
                                     .start = start,
                                     .event = add_event,
                                     .end = end,
                                     .fail = fail,
                                     .whole = whole};
