#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "chat.h"
#include "terminal.h"

/* What one run holds; all of it is freed in one place. */
typedef struct job {
    const app_options *options;
    k3_engine *engine;
    k3_session *session;
    k3_sampler *sampler;
    k3_tokens prompt;
    int is_chat, is_thinking;
    double prefill_seconds;
} job;

/* ---- what is asked ------------------------------------------------------------------------------------------------- */

static int usage(const char *message)
{
    fprintf(stderr, "k3 run: %s\n", message);
    return APP_USAGE;
}

static int check(const app_options *o)
{
    int n_inputs = !!o->prompt + !!o->prompt_file + !!o->ids + !!o->request;
    if (n_inputs > 1)
        return usage("more than one of -p, --prompt-file, --ids, --request; one wanted");
    if (!n_inputs && !o->chat)
        return usage("no prompt; -p TEXT, --prompt-file F, --ids 1,2,3, --request F or --chat wanted");
    if (o->ids && o->chat)
        return usage("--ids with --chat: ids are a prompt as it stands; leave --chat out, or give a text");
    if (!o->chat && !o->request && (o->system || o->no_think || o->effort))
        return usage("--system, --no-think and --effort belong to --chat; add it");
    if (o->request && (o->system || o->no_think || o->effort))
        return usage("--system, --no-think and --effort with --request: say it in the request (messages, thinking, thinking_effort)");
    if (!n_inputs && o->print_ids)
        return usage("--print-ids needs a prompt; add -p TEXT");
    return APP_OK;
}

static int render(job *j, const char *request)
{
    k3_error err = {0};
    j->is_chat = 1;
    return k3_chat_render(j->engine, &j->prompt, &j->is_thinking, request, &err) == K3_OK ? APP_OK : app_fail(&err);
}

static int render_text(job *j, const char *text, size_t n)
{
    k3_error err = {0};
    if (!j->options->chat)
        return k3_tokenize(j->engine, &j->prompt, text, n, &err) == K3_OK ? APP_OK : app_fail(&err);
    app_chat chat;
    app_chat_open(&chat, j->options);
    app_chat_add(&chat, "user", text, n);
    char *request = app_chat_request(&chat);
    int status = render(j, request);
    free(request);
    app_chat_close(&chat);
    return status;
}

static int make_prompt(job *j)
{
    const app_options *o = j->options;
    int status;
    if (o->ids) {
        status = app_parse_ids(&j->prompt, "run", o->ids);
    } else if (o->prompt) {
        status = render_text(j, o->prompt, strlen(o->prompt));
    } else {
        size_t n = 0;
        char *text = app_read_file(o->request ? o->request : o->prompt_file, &n);
        if (text && o->request && strlen(text) != n) {
            fprintf(stderr, "k3: %s: byte %zu is 0x00, which JSON does not have\n", o->request, strlen(text));
            status = APP_FAILED;
        } else {
            status = !text ? APP_FAILED : o->request ? render(j, text) : render_text(j, text, n);
        }
        free(text);
    }
    if (status == APP_OK && !j->prompt.n)
        return usage("the prompt is empty; at least one token wanted");
    return status;
}

/* ---- the answer ---------------------------------------------------------------------------------------------------- */

static void print_ids(const k3_tokens *ids)
{
    app_buffer line = {0};
    for (size_t i = 0; i < ids->n; i++) {
        char text[16];
        snprintf(text, sizeof text, "%s%d", i ? "," : "", ids->ids[i]);
        app_buffer_text(&line, text);
    }
    app_buffer_text(&line, "\n");
    app_write(line.text, line.n);
    app_buffer_free(&line);
}

static void print_stats(const job *j, const app_answer *answer)
{
    /* The first new token comes from the prompt's logits. */
    size_t n_decoded = answer->ids.n ? answer->ids.n - 1 : 0;
    char *text = app_alloc(16384, 1);
    fprintf(stderr, "k3: prompt %zu tokens, %.3f s, %.1f tokens/s; answer %zu tokens, %.3f s, %.1f tokens/s; finish %s; seed %llu\n",
            j->prompt.n, j->prefill_seconds, (double)j->prompt.n / j->prefill_seconds, answer->ids.n, answer->seconds,
            n_decoded ? (double)n_decoded / answer->seconds : 0.0, answer->finish, (unsigned long long)j->options->seed);
    k3_engine_stats(j->engine, text, 16384, 0);
    fputs(text, stderr);
    free(text);
}

static int answer_prompt(job *j)
{
    const app_options *o = j->options;
    k3_error err = {0};
    app_answer answer = {0};
    app_asking asking = {.engine = j->engine,
                         .session = j->session,
                         .options = o,
                         .sampler = j->sampler,
                         .limit = o->n,
                         .is_chat = j->is_chat,
                         .is_thinking = j->is_thinking,
                         .thinking = o->quiet ? APP_THINKING_HIDDEN : APP_THINKING_SHOWN,
                         .is_silent = o->print_ids};
    double started = app_seconds();
    k3_status status = k3_session_append(j->session, j->prompt.ids, j->prompt.n, &err);
    j->prefill_seconds = app_seconds() - started;
    app_progress_end();
    /* Without tokenizer files ids are all there is to show. */
    int show_ids = o->print_ids || !k3_engine_info(j->engine)->has_tokenizer;
    if (status == K3_OK)
        status = app_answer_run(&answer, &asking, &err);
    if (status == K3_OK) {
        if (show_ids)
            print_ids(&answer.ids);
        else if (answer.content.n && answer.content.text[answer.content.n - 1] != '\n' && strcmp(answer.finish, "tool_calls") != 0)
            app_write("\n", 1);
        if (o->stats)
            print_stats(j, &answer);
    }
    int exit_status = status != K3_OK ? app_fail(&err) : app_interrupted() ? APP_INTERRUPTED : APP_OK;
    app_answer_free(&answer);
    return exit_status;
}

int app_run(const app_options *options)
{
    job j = {.options = options};
    k3_error err = {0};
    k3_sampling sampling = app_sampling(options);
    int status = check(options);
    if (status == APP_OK && options->chat && !options->prompt && !options->prompt_file && !options->request)
        return app_converse(options);
    if (status == APP_OK && k3_sampler_open(&j.sampler, &sampling, &err) != K3_OK)
        status = app_fail(&err);
    if (status == APP_OK)
        status = app_open_engine(&j.engine, options);
    if (status == APP_OK)
        status = make_prompt(&j);
    if (status == APP_OK && k3_session_open(&j.session, j.engine, &err) != K3_OK)
        status = app_fail(&err);
    if (status == APP_OK)
        status = answer_prompt(&j);
    k3_tokens_free(&j.prompt);
    k3_session_close(j.session);
    k3_sampler_close(j.sampler);
    app_close_engine(j.engine, options);
    return status;
}
