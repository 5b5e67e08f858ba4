/* A conversation in a terminal or a pipe: lines are read and answered in turn, and commands begin with a slash. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app.h"
#include "chat.h"
#include "terminal.h"

typedef struct talk {
    const app_options *options;
    k3_engine *engine;
    k3_session *session;
    k3_sampler *sampler;
    app_chat chat;
    app_thinking thinking;
    app_buffer thought; /* of the last answer */
    int exit_status;
} talk;

static void told(const char *what, const char *path, const char *why)
{
    fprintf(stderr, "k3: %s %s: %s\n", what, path, why);
}

/* ---- answers ------------------------------------------------------------------------------------------------------ */

/* Brings the session to exactly these ids, keeping what it holds of them already. A mark is left at the end, because the tokens of the
 * answer may come back spelled by other tokens. */
static k3_status follow(k3_session *session, const k3_tokens *ids, k3_error *err)
{
    const int32_t *held = k3_session_ids(session);
    int64_t length = k3_session_length(session), same = 0;
    while (same < length && (size_t)same < ids->n && held[same] == ids->ids[same])
        same++;
    k3_status status = K3_OK;
    if (same == (int64_t)ids->n && same) /* all there, but the logits of its last token are needed: take that one again */
        same--;
    if (same < length)
        status = k3_session_rewind(session, same, err);
    int64_t from = k3_session_length(session);
    if (status == K3_OK && (size_t)from < ids->n)
        status = k3_session_append(session, ids->ids + from, ids->n - (size_t)from, err);
    if (status == K3_OK)
        status = k3_session_mark(session, err);
    app_progress_end();
    return status;
}

/* What there is to say after an answer: why it ended if not by itself; on a terminal its figures. */
static void remark(const talk *t, const app_answer *answer)
{
    char text[160];
    app_write("\n", answer->content.n && answer->content.text[answer->content.n - 1] != '\n' && !answer->n_calls);
    if (strcmp(answer->finish, "interrupted") == 0)
        fputs("(stopped)\n", stderr);
    else if (strcmp(answer->finish, "length") == 0)
        fputs("(cut: the limit of tokens is reached)\n", stderr);
    if (!isatty(STDERR_FILENO) || t->options->quiet)
        return;
    snprintf(text, sizeof text, "(%zu tokens, %.1f a second; %lld of %d in the window)", answer->ids.n,
             answer->seconds > 0 ? (double)answer->ids.n / answer->seconds : 0, (long long)k3_session_length(t->session),
             k3_engine_info(t->engine)->context_length);
    app_remark(text);
}

static void show_operations(const talk *t)
{
    enum { SIZE = 16384 };
    char *text = app_alloc(SIZE, 1);
    k3_engine_stats(t->engine, text, SIZE, 1);
    fputs(text, stderr);
    free(text);
}

static k3_status reply(talk *t, k3_error *err)
{
    k3_tokens ids = {0};
    app_answer answer = {0};
    app_asking asking = {.engine = t->engine,
                         .session = t->session,
                         .options = t->options,
                         .sampler = t->sampler,
                         .limit = t->options->n,
                         .is_chat = 1,
                         .thinking = t->options->quiet ? APP_THINKING_HIDDEN : t->thinking};
    char *request = app_chat_request(&t->chat);
    k3_status status = k3_chat_render(t->engine, &ids, &asking.is_thinking, request, err);
    free(request);
    if (status == K3_OK)
        status = follow(t->session, &ids, err);
    if (status == K3_OK)
        status = app_answer_run(&answer, &asking, err);
    if (status == K3_OK) {
        remark(t, &answer);
        app_chat_add_answer(&t->chat, &answer);
        app_buffer_clear(&t->thought);
        app_buffer_add(&t->thought, answer.thinking.text, answer.thinking.n);
        if (t->options->stats)
            show_operations(t);
    }
    app_answer_free(&answer);
    k3_tokens_free(&ids);
    return status;
}

static void ask(talk *t, const char *text)
{
    k3_error err = {0};
    size_t before = t->chat.messages.n;
    app_chat_add(&t->chat, "user", text, strlen(text));
    if (reply(t, &err) == K3_OK)
        return;
    /* The question is taken back, so that the next one does not fail with it. */
    t->chat.messages.n = before;
    app_progress_end();
    fprintf(stderr, "k3: %s\n", err.text);
    t->exit_status = err.status == K3_E_CANCELLED ? APP_OK : APP_FAILED;
}

/* ---- commands ------------------------------------------------------------------------------------------------------- */

static void reset(talk *t)
{
    k3_session_rewind(t->session, 0, NULL);
    app_buffer_clear(&t->chat.messages);
    app_buffer_clear(&t->thought);
    t->chat.messages.n = 0;
}

static void do_reset(talk *t, const char *argument)
{
    (void)argument;
    reset(t);
    app_remark("(a new conversation)");
}

static void do_system(talk *t, const char *argument)
{
    if (*argument)
        app_chat_set_system(&t->chat, strcmp(argument, "off") == 0 ? "" : argument, strcmp(argument, "off") == 0 ? 0 : strlen(argument));
    else if (t->chat.system.n)
        fprintf(stderr, "%s\n", t->chat.system.text);
    if (!t->chat.system.n)
        app_remark("(no system message)");
    else if (*argument && t->chat.messages.n)
        app_remark("(the conversation is read again under this system message)");
}

static void do_think(talk *t, const char *argument)
{
    static const char *const efforts[] = {"low", "high", "max"};
    for (size_t i = 0; i < 3; i++)
        if (strcmp(argument, efforts[i]) == 0) {
            t->chat.effort = efforts[i];
            t->chat.no_think = 0;
            return;
        }
    if (!*argument && t->thought.n) {
        app_write_thinking(t->thought.text, t->thought.n);
        app_end_thinking();
    } else if (!*argument)
        app_remark("(the last answer came without thinking)");
    else if (strcmp(argument, "on") == 0 || strcmp(argument, "off") == 0)
        t->chat.no_think = argument[1] == 'f';
    else if (strcmp(argument, "show") == 0)
        t->thinking = APP_THINKING_SHOWN;
    else if (strcmp(argument, "fold") == 0)
        t->thinking = APP_THINKING_FOLDED;
    else
        fprintf(stderr, "k3: /think %s: show, fold, on, off, low, high or max wanted, or nothing: the last answer's thinking\n", argument);
}

/* Writes a file whole or not at all. 0 after a message. */
static int write_file(const char *path, const char *text, size_t n)
{
    app_buffer part = {0};
    app_buffer_text(&part, path);
    app_buffer_text(&part, ".part");
    FILE *file = fopen(part.text, "wb");
    int is_written = file && fwrite(text, 1, n, file) == n && fflush(file) == 0 && fsync(fileno(file)) == 0;
    int why = errno;
    if (file && fclose(file) != 0 && is_written) {
        is_written = 0;
        why = errno;
    }
    if (is_written && rename(part.text, path) != 0) {
        is_written = 0;
        why = errno;
    }
    if (!is_written) {
        told("/save", path, strerror(why));
        if (file)
            remove(part.text);
    }
    app_buffer_free(&part);
    return is_written;
}

static char *state_path(const char *path)
{
    app_buffer state = {0};
    app_buffer_text(&state, path);
    app_buffer_text(&state, ".state");
    return state.text;
}

/* The conversation as a request that `k3 run --request` takes too, and beside it what was computed of it. */
static void do_save(talk *t, const char *path)
{
    k3_error err = {0};
    char *request = app_chat_request(&t->chat), *state = state_path(path);
    if (!*path)
        fputs("k3: /save: the name of a file wanted\n", stderr);
    else if (write_file(path, request, strlen(request))) {
        if (k3_session_save(t->session, state, &err) == K3_OK)
            app_remark("(saved)");
        else
            fprintf(stderr, "k3: %s\n(the conversation is saved, but will be computed again when it is loaded)\n", err.text);
    }
    free(state);
    free(request);
}

static int load(talk *t, const char *path)
{
    size_t n = 0;
    k3_error err = {0};
    char *text = app_read_file(path, &n), *state = state_path(path);
    const char *wrong = text ? app_chat_take(&t->chat, text, n) : NULL;
    if (wrong)
        told("/load", path, wrong);
    if (text && !wrong) {
        k3_session_rewind(t->session, 0, NULL);
        app_buffer_clear(&t->thought);
        if (access(state, F_OK) == 0 && k3_session_load(t->session, state, &err) != K3_OK)
            fprintf(stderr, "k3: %s; the conversation is computed again\n", err.text);
    }
    int is_loaded = text && !wrong;
    free(state);
    free(text);
    return is_loaded;
}

static void do_load(talk *t, const char *path)
{
    if (!*path)
        fputs("k3: /load: the name of a file wanted\n", stderr);
    else if (load(t, path))
        app_remark("(loaded; what stood before is gone)");
}

static void do_stats(talk *t, const char *argument)
{
    (void)argument;
    const k3_info *info = k3_engine_info(t->engine);
    fprintf(stderr, "%s\n%lld of %d tokens in the window\n", info->plan, (long long)k3_session_length(t->session), info->context_length);
    show_operations(t);
}

static void do_help(talk *t, const char *argument);

static const struct command {
    const char *name, *usage, *help;
    void (*run)(talk *t, const char *argument);
} commands[] = {
    {"/help", "", "this list", do_help},
    {"/system", "[TEXT|off]", "shows or changes the system message", do_system},
    {"/think", "[show|fold|on|off|low|high|max]", "shows the last answer's thinking; or how thinking is shown, whether and how much",
     do_think},
    {"/save", "FILE", "writes the conversation, and what was computed of it to FILE.state", do_save},
    {"/load", "FILE", "goes on with a conversation that was saved", do_load},
    {"/stats", "", "how the model lies in memory, the window, time for each operation since the last time", do_stats},
    {"/reset", "", "begins anew, with the same system message", do_reset},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void do_help(talk *t, const char *argument)
{
    (void)t;
    (void)argument;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        char name[48];
        snprintf(name, sizeof name, "%s %s", commands[i].name, commands[i].usage);
        fprintf(stderr, "  %-39s %s\n", name, commands[i].help);
    }
    fputs("  Alt+Enter, or a backslash at the end, begins a further line. Ctrl-C stops an answer, Ctrl-D leaves.\n"
          "  A message that begins with a slash of its own: write two.\n",
          stderr);
}

/* 1 if the line was a command, or looked like one to somebody at a terminal. In a pipe everything else is a message. */
static int obey(talk *t, const char *line)
{
    size_t n = strcspn(line, " \t\n");
    const char *names[N_COMMANDS];
    for (size_t i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strlen(names[i]) == n && strncmp(line, names[i], n) == 0) {
            commands[i].run(t, line + n + strspn(line + n, " \t\n"));
            return 1;
        }
    }
    if (line[0] != '/' || n != 1 + strspn(line + 1, "abcdefghijklmnopqrstuvwxyz") || !isatty(STDIN_FILENO))
        return 0;
    char word[32];
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), line);
    const char *near = app_nearest(word, names, N_COMMANDS);
    fprintf(stderr, "k3: %s is no command; %s%s\n", word, near ? "did you mean " : "/help lists them", near ? near : "");
    return 1;
}

static void take(talk *t, char *line)
{
    size_t n = strlen(line);
    while (n && strchr(" \t\r\n", line[n - 1]))
        line[--n] = 0;
    if (!line[strspn(line, " \t\r\n")] || (line[0] == '/' && line[1] != '/' && obey(t, line)))
        return;
    ask(t, line + (line[0] == '/' && line[1] == '/'));
}

static void converse(talk *t)
{
    while (app_write("", 0)) {
        int interrupted = 0;
        char *line = app_read_line("> ", &interrupted);
        if (interrupted) {
            fputs("\n(Ctrl-C again or Ctrl-D leaves)\n", stderr);
            continue;
        }
        if (!line)
            break;
        app_interrupt_reset();
        take(t, line);
        free(line);
    }
}

int app_converse(const app_options *options)
{
    talk t = {.options = options, .thinking = options->fold ? APP_THINKING_FOLDED : APP_THINKING_SHOWN};
    k3_error err = {0};
    k3_sampling sampling = app_sampling(options);
    int status = k3_sampler_open(&t.sampler, &sampling, &err) == K3_OK ? APP_OK : app_fail(&err);
    app_chat_open(&t.chat, options);
    if (status == APP_OK)
        status = app_open_engine(&t.engine, options);
    if (status == APP_OK && k3_session_open(&t.session, t.engine, &err) != K3_OK)
        status = app_fail(&err);
    if (status == APP_OK && options->load && !load(&t, options->load))
        status = APP_FAILED;
    if (status == APP_OK) {
        if (isatty(STDIN_FILENO) && !options->quiet)
            app_remark("(/help lists the commands)");
        converse(&t);
        status = t.exit_status;
    }
    app_chat_close(&t.chat);
    app_buffer_free(&t.thought);
    k3_session_close(t.session);
    k3_sampler_close(t.sampler);
    app_close_engine(t.engine, options);
    return status;
}
