/* The command line: every verb is a table of options, from which it is read, checked and explained. */
#ifndef K3_APPS_OPTIONS_H
#define K3_APPS_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

typedef struct app_options {
    const char *verb, *model;
    const char *prompt, *prompt_file, *ids, *request, *file, *tasks; /* what to work on */
    int chat, no_think, quiet, fold;
    const char *system, *effort, *load;
    long n; /* -1: not given */
    double temperature, top_p, min_p;
    long top_k;
    uint64_t seed;
    const char **stops; /* [n_stops]; app_options_free */
    size_t n_stops;
    const char *backend, *trunk, *expert_devices, *kernel_cache, *kernels, *usage;
    uint64_t ram, vram, disk_rate;
    int exact, lock;
    long threads, chunk_rows;
    int print_ids, stats, json, show_failures;
    const char *logits;
    const char *prompts, *contexts, *svg; /* bench */
    long n_repeats, limit;
    const char *out, *revision, *token_file; /* pull */
    long jobs, retries, timeout;
    const char *host, *api_key_file, *allow_hosts, *cors_origins, *aliases, *prefix_cache; /* serve */
    long port, context, parallel, queue;
    int strict, strict_model;
} app_options;

typedef enum app_option_kind { APP_FLAG, APP_TEXT, APP_WORD, APP_LIST, APP_COUNT, APP_NUMBER, APP_SEED, APP_SIZE } app_option_kind;

typedef struct app_option {
    const char *name, *value; /* "--top-p", "P"; value is NULL for a flag */
    app_option_kind kind;
    size_t at;            /* offset of the field */
    double low, high;     /* COUNT, NUMBER */
    const char *standard; /* the default as --help shows it; NULL: none */
    const char *help;     /* WORD: the words it takes come first, up to a colon, separated by " or " */
} app_option;

typedef struct app_theme {
    const char *title;
    const app_option *options;
    size_t n_options;
} app_theme;

typedef struct app_verb {
    const char *name, *usage, *help;
    int (*run)(const app_options *options);
    const app_theme *const *themes;
    size_t n_themes;
    int takes_model; /* 2: and a folder to write */
} app_verb;

enum { APP_OK = 0, APP_FAILED = 1, APP_USAGE = 2, APP_INTERRUPTED = 130 };

/* Reads the arguments after the verb. Returns APP_OK, or APP_USAGE after a message that names the argument and the nearest option. */
int app_options_parse(app_options *out, const app_verb *verb, int n, char **arguments);
void app_options_free(app_options *options);
void app_options_help(const app_verb *verb);
/* Bytes: a number, then nothing or K, M, G, T for powers of 1024. 0 if the text is none. */
int app_parse_size(uint64_t *out, const char *text);
/* The candidate that differs from `word` by the fewest letters; NULL if none is near. */
const char *app_nearest(const char *word, const char *const *candidates, size_t n);

#endif
