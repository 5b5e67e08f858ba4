/* Runs the k3 binary as a user's shell would. Everything here fails the test on trouble. */
#ifndef K3_TESTS_PROCESS_H
#define K3_TESTS_PROCESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

typedef struct process_result {
    int status; /* exit status; 128 + n for signal n */
    char *out, *err;
    size_t n_out;
} process_result;

void process_free(process_result *result);

/* Where the standard descriptors of a run lead; zero means: no input, both outputs caught. */
typedef struct process_place {
    const char *input;  /* text on standard input */
    const char *output; /* a path that standard output is opened on instead */
    int close_output;   /* run without a standard output */
    int reader_leaves;  /* standard output is a pipe whose reader is gone */
    const char *folder; /* working directory */
    const char *home;   /* HOME and TMPDIR */
} process_place;

/* Arguments after the binary, ended by NULL. */
process_result process_run(const process_place *place, ...);
#define RUN(...) process_run(NULL, __VA_ARGS__, (const char *)NULL)
#define RUN_AT(place, ...) process_run(place, __VA_ARGS__, (const char *)NULL)

/* A run on a terminal of its own. */
typedef struct process_terminal {
    pid_t pid;
    int fd;
    char *seen;        /* everything the terminal showed */
    size_t n_seen, at; /* `at`: what was waited for ends here */
} process_terminal;

process_terminal *terminal_run(const char *const *arguments);
void terminal_type(process_terminal *t, const char *text);
/* Reads until `text` shows up after what was waited for last. */
void terminal_wait(process_terminal *t, const char *text);
/* Reads until at least n more bytes have come. */
void terminal_wait_bytes(process_terminal *t, size_t n);
/* 1 if the terminal echoes and edits lines, as it did before the run. */
int terminal_is_sane(const process_terminal *t);
/* Waits for the end; returns the exit status and frees all. `seen` gets the text if it is not NULL, to be freed. */
int terminal_end(process_terminal *t, char **seen);

/* Names, sizes, modes and change times of everything below a folder, as one text. */
char *folder_listing(const char *folder);

#endif
