/* The person at the other end: Ctrl-C, lines typed, progress, colour, and a standard output that may go away. */
#ifndef K3_APPS_TERMINAL_H
#define K3_APPS_TERMINAL_H

#include <stddef.h>
#include <stdint.h>

/* Call first. Standard descriptors that are closed are filled, so that no file of ours lands on one; SIGPIPE is ignored; the first
 * Ctrl-C only sets a flag, a second one puts the terminal back as it was and leaves with status 130. */
void app_terminal_open(void);
int app_interrupted(void);
/* A new line typed, a new answer: the next Ctrl-C is a first one again. */
void app_interrupt_reset(void);

double app_seconds(void);

/* k3_progress: one changing line on a terminal; in a log a line now and then, once the work takes longer than two seconds. Nonzero after
 * Ctrl-C. */
int app_progress(void *user, const char *phase, uint64_t done, uint64_t total);
void app_progress_end(void);
void app_progress_quiet(void);

/* Standard output. Returns 0 when it takes nothing any more. A reader that went away is no error, everything else is, and is told once. */
int app_write(const char *bytes, size_t n);
/* APP_OK, or APP_FAILED if standard output refused something for another reason than a closed pipe. */
int app_write_status(void);

/* Text of the thinking channel, on stderr, dim on a terminal. */
void app_write_thinking(const char *bytes, size_t n);
void app_end_thinking(void);
/* One line on stderr in place of thinking, written again at most four times a second; nothing without a terminal. It goes when something
 * else is shown. */
void app_fold(const char *text);
/* The terminal's title, as rarely; NULL: what it was before. */
void app_title(const char *text);
/* A remark on stderr, dim on a terminal, with an end of line. */
void app_remark(const char *text);

/* What is typed until Enter, without its end, malloc'd; on a terminal it may have several lines: Alt+Enter makes one, a backslash at an end
 * too, and what is pasted stays together. NULL at the end of input, and, with *interrupted 1, when Ctrl-C came instead of a line. */
char *app_read_line(const char *prompt, int *interrupted);
void app_terminal_close(void);

#endif
