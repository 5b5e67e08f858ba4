#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#if K3_HAVE_LIBEDIT
#include <histedit.h>
#endif

#include "options.h"

static volatile sig_atomic_t n_interrupts;
static struct termios saved_terminal;
static int has_terminal, has_colour;

static struct {
    int line_open; /* a progress line stands on the terminal */
    int quiet;
    double started, shown; /* 0: no phase is running */
    const char *phase;
} progress;

static int output_failed, output_closed, thinking_open, fold_open;
static volatile sig_atomic_t title_set;
static double live_shown; /* when a fold or title was written last */

/* ---- signals ------------------------------------------------------------------------------------------------ */

/* Only what POSIX allows in a handler. */
static void restore_terminal(void)
{
    if (has_terminal)
        tcsetattr(STDIN_FILENO, TCSANOW, &saved_terminal);
    static const char plain[] = "\033[0m\033[?2004l\n", old_title[] = "\033[23;2t";
    if ((has_colour && write(STDERR_FILENO, plain, sizeof plain - 1) < 0) ||
        (title_set && write(STDERR_FILENO, old_title, sizeof old_title - 1) < 0))
        return;
}

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    if (++n_interrupts < 2)
        return;
    restore_terminal();
    _exit(APP_INTERRUPTED);
}

static void on_end(int signal_number)
{
    restore_terminal();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void app_terminal_open(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            /* The wrong direction on purpose: what is written to a closed output must fail, not vanish. */
            int filler = open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
            if (filler >= 0 && filler != fd)
                close(filler);
        }
    /* The line editor takes characters apart by the locale; texts of the model are UTF-8 whatever that says. */
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
    has_terminal = tcgetattr(STDIN_FILENO, &saved_terminal) == 0;
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    has_colour = isatty(STDERR_FILENO) && !(no_colour && *no_colour) && !(term && strcmp(term, "dumb") == 0);
    signal(SIGPIPE, SIG_IGN);
    /* Without SA_RESTART: a Ctrl-C also ends the wait for a line. */
    struct sigaction interrupt = {.sa_handler = on_interrupt}, end = {.sa_handler = on_end};
    sigemptyset(&interrupt.sa_mask);
    sigemptyset(&end.sa_mask);
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGHUP, &end, NULL);
}

int app_interrupted(void)
{
    return n_interrupts;
}

void app_interrupt_reset(void)
{
    n_interrupts = 0;
}

/* ---- progress ------------------------------------------------------------------------------------------------- */

double app_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int app_progress(void *user, const char *phase, uint64_t done, uint64_t total)
{
    (void)user;
    double now = app_seconds(), share = total ? (double)done / (double)total : 0;
    if (progress.started == 0 || progress.phase != phase) {
        app_progress_end();
        progress.started = progress.shown = now;
        progress.phase = phase;
    }
    int is_terminal = isatty(STDERR_FILENO);
    double elapsed = now - progress.started, pause = is_terminal ? 0.1 : progress.line_open ? 10 : 2;
    if (!progress.quiet && now - progress.shown >= pause) {
        fprintf(stderr, "%s%s: ", is_terminal ? "\r\033[K" : "", phase);
        if (total)
            fprintf(stderr, "%.0f %%", 100 * share);
        else
            fprintf(stderr, "%llu done", (unsigned long long)done);
        if (share > 0.02 && elapsed > 1)
            fprintf(stderr, ", %.0f s left", elapsed * (1 - share) / share);
        fputs(is_terminal ? "" : "\n", stderr);
        progress.line_open = 1;
        progress.shown = now;
    }
    return app_interrupted();
}

void app_progress_end(void)
{
    if (progress.line_open && isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    progress.line_open = 0;
    progress.started = 0;
}

void app_progress_quiet(void)
{
    progress.quiet = 1;
}

/* ---- output ----------------------------------------------------------------------------------------------------- */

int app_write(const char *bytes, size_t n)
{
    while (n && !output_closed) {
        ssize_t written = write(STDOUT_FILENO, bytes, n);
        if (written >= 0) {
            bytes += written;
            n -= (size_t)written;
        } else if (errno != EINTR && errno != EAGAIN) {
            output_closed = 1;
            output_failed = errno != EPIPE;
            if (output_failed)
                fprintf(stderr, "k3: standard output: %s\n", strerror(errno));
        }
    }
    return !output_closed;
}

int app_write_status(void)
{
    return output_failed ? APP_FAILED : APP_OK;
}

void app_write_thinking(const char *bytes, size_t n)
{
    if (!thinking_open && has_colour)
        fputs("\033[2m", stderr);
    thinking_open = 1;
    fwrite(bytes, 1, n, stderr);
    fflush(stderr);
}

void app_end_thinking(void)
{
    if (fold_open)
        fputs("\r\033[K", stderr);
    fold_open = 0;
    if (thinking_open)
        fputs(has_colour ? "\033[0m\n" : "\n", stderr);
    thinking_open = 0;
}

/* 1 four times a second, on a terminal. */
static int is_live(void)
{
    double now = app_seconds();
    if (!has_colour || now - live_shown < 0.25)
        return 0;
    live_shown = now;
    return 1;
}

void app_fold(const char *text)
{
    if (!is_live())
        return;
    fprintf(stderr, "\r\033[K\033[2m%s\033[0m", text);
    fflush(stderr);
    fold_open = 1;
}

void app_title(const char *text)
{
    if (!text && title_set) {
        fputs("\033[23;2t", stderr);
        title_set = 0;
    } else if (text && is_live()) {
        fprintf(stderr, "%s\033]2;%s\007", title_set ? "" : "\033[22;2t", text);
        title_set = 1;
    }
    fflush(stderr);
}

void app_remark(const char *text)
{
    app_end_thinking();
    fprintf(stderr, has_colour ? "\033[2m%s\033[0m\n" : "%s\n", text);
}

/* ---- lines -------------------------------------------------------------------------------------------------------- */

#if K3_HAVE_LIBEDIT

static EditLine *editor;
static History *history_lines;
static const char *editor_prompt;

/* Alt+Enter. */
static unsigned char begin_line(EditLine *el, wint_t c)
{
    (void)c;
    return el_winsertstr(el, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
}

/* What a terminal brackets as pasted, taken as it is: its ends of lines are no Enter. */
static unsigned char take_paste(EditLine *el, wint_t c)
{
    static const wchar_t end[] = L"\033[201~";
    enum { N_END = 6, SIZE = 256 };
    wchar_t piece[SIZE], next;
    size_t n = 0, n_end = 0;
    int status = 0;
    (void)c;
    while (n_end < N_END && status == 0 && el_wgetc(el, &next) == 1) {
        n_end = next == end[n_end] ? n_end + 1 : next == end[0];
        piece[n++] = next == L'\r' ? L'\n' : next;
        if (n_end == 0 && n > SIZE - N_END - 2) {
            piece[n] = 0;
            status = el_winsertstr(el, piece);
            n = 0;
        }
    }
    piece[n_end == N_END ? n - N_END : n] = 0;
    if (*piece && status == 0)
        status = el_winsertstr(el, piece);
    return status == 0 ? CC_REFRESH : CC_ERROR;
}

static char *give_prompt(EditLine *el)
{
    (void)el;
    static char text[32];
    snprintf(text, sizeof text, "%s", editor_prompt);
    return text;
}

/* Nothing is read from or written to the home folder: no editrc, no history file. */
static int open_editor(void)
{
    HistEvent event;
    if (editor)
        return 1;
    editor = el_init("k3", stdin, stderr, stderr);
    history_lines = history_init();
    if (!editor || !history_lines)
        return 0;
    history(history_lines, &event, H_SETSIZE, 1000);
    el_set(editor, EL_PROMPT, give_prompt);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_SIGNAL, 0);
    el_set(editor, EL_HIST, history, history_lines);
    el_wset(editor, EL_ADDFN, L"k3-line", L"begins a line", begin_line);
    el_wset(editor, EL_ADDFN, L"k3-paste", L"takes what is pasted", take_paste);
    el_wset(editor, EL_BIND, L"\033\r", L"k3-line", NULL);
    el_wset(editor, EL_BIND, L"\033\n", L"k3-line", NULL);
    el_wset(editor, EL_BIND, L"\033[200~", L"k3-paste", NULL);
    return 1;
}

static char *edit_line(const char *prompt)
{
    int n = 0;
    HistEvent event;
    editor_prompt = prompt;
    el_set(editor, EL_PREP_TERM, 1); /* before the prompt shows: what is typed from then on is the editor's */
    fputs("\033[?2004h", stderr);    /* the terminal is to bracket what is pasted */
    fflush(stderr);
    const char *line = el_gets(editor, &n);
    fputs("\033[?2004l", stderr);
    fflush(stderr);
    if (has_terminal)
        tcsetattr(STDIN_FILENO, TCSANOW, &saved_terminal);
    if (!line || n <= 0)
        return NULL;
    if (n > 1)
        history(history_lines, &event, H_ENTER, line);
    char *copy = strndup(line, (size_t)n);
    if (copy && n && copy[n - 1] == '\n')
        copy[n - 1] = 0;
    return copy;
}

static void close_editor(void)
{
    if (history_lines)
        history_end(history_lines);
    if (editor)
        el_end(editor);
    editor = NULL;
    history_lines = NULL;
}

#else

static int open_editor(void)
{
    return 0;
}

static char *edit_line(const char *prompt)
{
    (void)prompt;
    return NULL;
}

static void close_editor(void)
{
}

#endif

static char *plain_line(const char *prompt)
{
    char *line = NULL;
    size_t size = 0;
    if (isatty(STDIN_FILENO)) {
        fputs(prompt, stderr);
        fflush(stderr);
    }
    ssize_t n = getline(&line, &size, stdin);
    if (n < 0) {
        clearerr(stdin);
        free(line);
        return NULL;
    }
    if (n && line[n - 1] == '\n')
        line[n - 1] = 0;
    return line;
}

char *app_read_line(const char *prompt, int *interrupted)
{
    /* A Ctrl-C that stopped the answer before still counts; only a new one belongs to this line. */
    int before = n_interrupts, is_edited = isatty(STDIN_FILENO) && isatty(STDERR_FILENO) && open_editor();
    char *text = is_edited ? edit_line(prompt) : plain_line(prompt);
    size_t n = text ? strlen(text) : 0;
    while (is_edited && n && text[n - 1] == '\\') {
        char *more = edit_line(". ");
        size_t n_more = more ? strlen(more) : 0;
        char *longer = more ? realloc(text, n + n_more + 1) : NULL;
        if (longer) {
            longer[n - 1] = '\n';
            memcpy(longer + n, more, n_more + 1);
            text = longer;
            n += n_more;
        } else {
            free(text);
            text = NULL;
            n = 0;
        }
        free(more);
    }
    *interrupted = !text && n_interrupts != before;
    return text;
}

void app_terminal_close(void)
{
    app_progress_end();
    app_end_thinking();
    app_title(NULL);
    close_editor();
}
