#include "tasks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "app.h"
#include "json.h"
#include "terminal.h"

enum { MAX_FAMILIES = 64, MAX_NAME = 48, DEFAULT_LIMIT = 2048 };

typedef struct family {
    char name[MAX_NAME];
    size_t n_right, n;
} family;

typedef struct table {
    family families[MAX_FAMILIES];
    size_t n;
} table;

static int wrong_task(const app_options *o, size_t i_task, const char *what)
{
    fprintf(stderr, "k3 eval: %s: task %zu: %s\n", o->tasks, i_task, what);
    return APP_FAILED;
}

/* ---- the check ------------------------------------------------------------------------------------------------------- */

static int check_call(const app_answer *answer, app_json check)
{
    size_t wrong;
    if (answer->n_calls != 1 || !answer->calls[0].is_complete || !app_json_is(app_json_get(check, "name"), answer->calls[0].name.text))
        return 0;
    const app_buffer *arguments = &answer->calls[0].arguments;
    return app_json_equal(app_json_whole(arguments->text, arguments->n, &wrong), app_json_get(check, "arguments"));
}

/* 1 right, 0 wrong, -1: a check nobody knows. */
static int is_right(const app_answer *answer, app_json check)
{
    app_json type = app_json_get(check, "type");
    const char *content = answer->content.text ? answer->content.text : "";
    if (app_json_is(type, "tool_call"))
        return check_call(answer, check);
    app_buffer value = {0};
    app_json_decode(&value, app_json_get(check, "value"));
    int right = app_json_is(type, "content_equals")     ? strcmp(content, value.text) == 0
                : app_json_is(type, "content_contains") ? strstr(content, value.text) != NULL
                                                        : -1;
    app_buffer_free(&value);
    return right;
}

static void show_failure(const app_answer *answer, app_json task, size_t i_task)
{
    app_json check = app_json_get(task, "check");
    app_buffer b = {0};
    char number[32];
    snprintf(number, sizeof number, "{\"task\": %zu", i_task);
    app_buffer_text(&b, number);
    app_buffer_text(&b, ", \"finish\": \"");
    app_buffer_text(&b, answer->finish);
    app_buffer_text(&b, "\", \"thinking\": ");
    app_buffer_json(&b, answer->thinking.text, answer->thinking.n);
    app_buffer_text(&b, ", \"content\": ");
    app_buffer_json(&b, answer->content.text, answer->content.n);
    for (size_t i = 0; i < answer->n_calls; i++) {
        app_buffer_text(&b, i ? ", " : ", \"calls\": [");
        app_buffer_add(&b, answer->calls[i].arguments.text, answer->calls[i].arguments.n);
        app_buffer_text(&b, i + 1 == answer->n_calls ? "]" : "");
    }
    app_buffer_text(&b, ", \"check\": ");
    app_buffer_add(&b, check.text, check.n);
    app_buffer_text(&b, "}\n");
    fputs(b.text, stderr);
    app_buffer_free(&b);
}

/* ---- one task ---------------------------------------------------------------------------------------------------------- */

static int read_prompt(k3_tokens *prompt, int *thinking, k3_engine *engine, const app_options *o, app_json task, size_t i_task)
{
    app_json ids = app_json_get(task, "prompt_ids"), request = app_json_get(task, "request"), value;
    k3_tokens rendered = {0};
    k3_error err = {0};
    for (size_t at = 0; app_json_kind(ids) == '[' && app_json_next(NULL, &value, &at, ids);) {
        int64_t id;
        if (!app_json_int(value, &id) || id < 0 || id > INT32_MAX)
            return wrong_task(o, i_task, "prompt_ids holds something that is no id");
        app_add_id(prompt, (int32_t)id);
    }
    if (!request.text)
        return prompt->n ? APP_OK : wrong_task(o, i_task, "neither request nor prompt_ids");
    app_buffer text = {0};
    app_buffer_add(&text, request.text, request.n);
    k3_status status = k3_chat_render(engine, &rendered, thinking, text.text, &err);
    app_buffer_free(&text);
    if (status != K3_OK)
        return app_fail(&err);
    int same = !prompt->n || (prompt->n == rendered.n && memcmp(prompt->ids, rendered.ids, rendered.n * sizeof *rendered.ids) == 0);
    k3_tokens_free(prompt);
    *prompt = rendered;
    return same ? APP_OK : wrong_task(o, i_task, "prompt_ids are not what the request renders to");
}

static int run_task(int *right, k3_engine *engine, k3_session *session, const app_options *o, app_json task, size_t i_task)
{
    static const k3_sampling greedy = {.top_p = 1};
    k3_tokens prompt = {0};
    k3_error err = {0};
    app_answer answer = {0};
    app_asking asking = {.engine = engine,
                         .session = session,
                         .options = o,
                         .limit = o->n < 0 ? DEFAULT_LIMIT : o->n,
                         .is_chat = 1,
                         .is_thinking = 1,
                         .is_silent = 1};
    int status = read_prompt(&prompt, &asking.is_thinking, engine, o, task, i_task);
    if (status == APP_OK) {
        k3_status result = k3_sampler_open(&asking.sampler, &greedy, &err);
        if (result == K3_OK)
            result = k3_session_rewind(session, 0, &err);
        if (result == K3_OK)
            result = k3_session_append(session, prompt.ids, prompt.n, &err);
        if (result == K3_OK)
            result = app_answer_run(&answer, &asking, &err);
        status = result == K3_OK ? APP_OK : app_fail(&err);
    }
    if (status == APP_OK && app_interrupted())
        status = APP_INTERRUPTED;
    if (status == APP_OK) {
        *right = is_right(&answer, app_json_get(task, "check"));
        if (*right < 0)
            status = wrong_task(o, i_task, "check.type: content_equals, content_contains or tool_call wanted");
        else if (!*right && o->show_failures)
            show_failure(&answer, task, i_task);
    }
    k3_sampler_close(asking.sampler);
    app_answer_free(&answer);
    k3_tokens_free(&prompt);
    return status;
}

/* ---- all of them ------------------------------------------------------------------------------------------------------- */

static family *family_of(table *t, app_json task)
{
    app_buffer name = {0};
    app_json_decode(&name, app_json_get(task, "family"));
    size_t i = 0;
    while (i < t->n && strncmp(t->families[i].name, name.text, MAX_NAME - 1) != 0)
        i++;
    if (i == t->n && t->n < MAX_FAMILIES)
        snprintf(t->families[t->n++].name, MAX_NAME, "%s", name.text);
    app_buffer_free(&name);
    return &t->families[i < MAX_FAMILIES ? i : MAX_FAMILIES - 1];
}

static void print_row(const family *f)
{
    char line[128];
    int n =
        snprintf(line, sizeof line, "%-16s %5zu / %-5zu %6.1f %%\n", f->name, f->n_right, f->n, 100.0 * (double)f->n_right / (double)f->n);
    app_write(line, (size_t)n);
}

int app_tasks(k3_engine *engine, const app_options *options)
{
    size_t n_text = 0, wrong = 0, n_tasks = 0, i_task = 0;
    char *text = app_read_file(options->tasks, &n_text);
    if (!text)
        return APP_FAILED;
    app_json root = app_json_whole(text, n_text, &wrong), task;
    k3_session *session = NULL;
    k3_error err = {0};
    table t = {.n = 0};
    family all = {.name = "all"};
    int status = APP_OK;
    for (size_t at = 0; app_json_next(NULL, &task, &at, root);)
        n_tasks += app_json_kind(root) == '[';
    if (!n_tasks) {
        fprintf(stderr, "k3 eval: %s: a JSON list of tasks wanted; the first wrong byte is %zu\n", options->tasks, wrong);
        status = APP_FAILED;
    } else if (k3_session_open(&session, engine, &err) != K3_OK) {
        status = app_fail(&err);
    }
    for (size_t at = 0; status == APP_OK && app_json_next(NULL, &task, &at, root); i_task++) {
        int right = 0;
        family *f = family_of(&t, task);
        app_progress(NULL, "tasks", i_task, n_tasks);
        status = run_task(&right, engine, session, options, task, i_task);
        f->n++;
        f->n_right += (size_t)right;
        all.n++;
        all.n_right += (size_t)right;
    }
    app_progress_end();
    for (size_t i = 0; status == APP_OK && i < t.n; i++)
        print_row(&t.families[i]);
    if (status == APP_OK)
        print_row(&all);
    k3_session_close(session);
    free(text);
    return status;
}
