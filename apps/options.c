#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buffer.h"

/* ---- nearest --------------------------------------------------------------------------------------------- */

enum { MAX_WORD = 32 };

/* Letters to insert, delete or replace to get from one word to the other. */
static size_t distance(const char *a, const char *b)
{
    size_t n_a = strlen(a), n_b = strlen(b), row[MAX_WORD + 1];
    if (n_a > MAX_WORD || n_b > MAX_WORD)
        return SIZE_MAX;
    for (size_t j = 0; j <= n_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t above = row[j], best = corner + (a[i - 1] != b[j - 1]);
            best = above + 1 < best ? above + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            corner = above;
            row[j] = best;
        }
    }
    return row[n_b];
}

const char *app_nearest(const char *word, const char *const *candidates, size_t n)
{
    const char *best = NULL;
    size_t best_distance = 2 + strlen(word) / 4;
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(word, candidates[i]);
        /* What begins like an option is meant to be it: --temperature, --max. */
        if (strlen(word) > 3 && (strncmp(word, candidates[i], strlen(word)) == 0 ||
                                 (strlen(candidates[i]) > 3 && strncmp(word, candidates[i], strlen(candidates[i])) == 0)))
            d = 0;
        if (d <= best_distance && (!best || d < best_distance)) {
            best = candidates[i];
            best_distance = d;
        }
    }
    return best;
}

/* ---- parsing ----------------------------------------------------------------------------------------------- */

static const app_option *find(const app_verb *verb, const char *name, size_t n)
{
    for (size_t t = 0; t < verb->n_themes; t++)
        for (size_t i = 0; i < verb->themes[t]->n_options; i++) {
            const app_option *o = &verb->themes[t]->options[i];
            if (strlen(o->name) == n && memcmp(o->name, name, n) == 0)
                return o;
        }
    return NULL;
}

static int unknown(const app_verb *verb, const char *argument)
{
    const char *names[64];
    size_t n = 0;
    for (size_t t = 0; t < verb->n_themes; t++)
        for (size_t i = 0; i < verb->themes[t]->n_options && n < 64; i++)
            names[n++] = verb->themes[t]->options[i].name;
    const char *near = app_nearest(argument, names, n);
    fprintf(stderr, "k3 %s: unknown option %s", verb->name, argument);
    if (near)
        fprintf(stderr, "; did you mean %s?\n", near);
    else
        fprintf(stderr, "; `k3 %s --help` lists them\n", verb->name);
    return APP_USAGE;
}

static int refuse(const app_verb *verb, const app_option *o, const char *value, const char *wanted)
{
    fprintf(stderr, "k3 %s: %s %s: %s wanted\n", verb->name, o->name, value, wanted);
    return APP_USAGE;
}

/* The words of a WORD option's help: "auto or bf16 or int8: ...". */
static int set_word(void *field, const app_verb *verb, const app_option *o, const char *value)
{
    char words[128];
    size_t n_words = strcspn(o->help, ":");
    snprintf(words, sizeof words, "%.*s", (int)n_words, o->help);
    const char *candidates[8];
    size_t n = 0;
    char list[128];
    memcpy(list, words, sizeof list);
    for (char *at = list; at && n < 8; n++) {
        char *next = strstr(at, " or ");
        candidates[n] = at;
        if (next)
            *next = 0;
        at = next ? next + 4 : NULL;
    }
    for (size_t i = 0; i < n; i++)
        if (strcmp(value, candidates[i]) == 0) {
            *(const char **)field = value;
            return APP_OK;
        }
    return refuse(verb, o, value, words);
}

static int set_number(void *field, const app_verb *verb, const app_option *o, const char *value)
{
    char wanted[96], *end;
    snprintf(wanted, sizeof wanted, "a%s number from %g to %g", o->kind == APP_COUNT ? " whole" : "", o->low, o->high);
    errno = 0;
    if (o->kind == APP_COUNT) {
        long x = strtol(value, &end, 10);
        if (end == value || *end || errno || (double)x < o->low || (double)x > o->high)
            return refuse(verb, o, value, wanted);
        *(long *)field = x;
    } else {
        double x = strtod(value, &end);
        if (end == value || *end || !(x >= o->low && x <= o->high))
            return refuse(verb, o, value, wanted);
        *(double *)field = x;
    }
    return APP_OK;
}

int app_parse_size(uint64_t *out, const char *value)
{
    static const char units[] = "KMGT";
    char *end;
    double x = strtod(value, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit)
        end++;
    for (long power = unit ? unit - units + 1 : 0; power > 0; power--)
        x *= 1024;
    if (*value < '0' || *value > '9' || *end || !(x < 1e18))
        return 0;
    *out = (uint64_t)x;
    return 1;
}

static int set(app_options *out, const app_verb *verb, const app_option *o, const char *value)
{
    void *field = (char *)out + o->at;
    char *end;
    switch (o->kind) {
    case APP_FLAG:
        *(int *)field = 1;
        return APP_OK;
    case APP_TEXT:
        *(const char **)field = value;
        return APP_OK;
    case APP_WORD:
        return set_word(field, verb, o, value);
    case APP_LIST:
        if (!*value)
            return refuse(verb, o, "\"\"", "a text that is not empty");
        out->stops[out->n_stops++] = value;
        return APP_OK;
    case APP_COUNT:
    case APP_NUMBER:
        return set_number(field, verb, o, value);
    case APP_SEED:
        errno = 0;
        *(uint64_t *)field = strtoull(value, &end, 10);
        if (*value < '0' || *value > '9' || *end || errno)
            return refuse(verb, o, value, "a whole number from 0 to 18446744073709551615");
        return APP_OK;
    case APP_SIZE:
        return app_parse_size(field, value) ? APP_OK : refuse(verb, o, value, "a size such as 512M or 4G");
    }
    return APP_USAGE;
}

int app_options_parse(app_options *out, const app_verb *verb, int n, char **arguments)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
    *out = (app_options){.verb = verb->name,
                         .n = -1,
                         .temperature = 1,
                         .top_p = 0.95,
                         .seed = seed,
                         .n_repeats = 5,
                         .limit = 120,
                         .revision = "main",
                         .jobs = 4,
                         .retries = 10,
                         .timeout = 60,
                         .host = "127.0.0.1",
                         .port = 8080,
                         .parallel = 16,
                         .queue = 64,
                         .prefix_cache = "1G"};
    out->stops = app_alloc((size_t)n, sizeof *out->stops);
    for (int i = 0; i < n; i++) {
        const char *argument = arguments[i], *equals = strchr(argument, '=');
        if (argument[0] != '-' || !argument[1]) {
            if (verb->takes_model == 2 && out->model && !out->out) {
                out->out = argument;
                continue;
            }
            if (out->model || !verb->takes_model) {
                fprintf(stderr, "k3 %s: %s: unexpected%s\n", verb->name, argument,
                        verb->takes_model == 2 ? "; a model and a folder are wanted"
                        : verb->takes_model    ? "; one model folder is wanted, and a text goes after -p"
                                               : "");
                return APP_USAGE;
            }
            out->model = argument;
            continue;
        }
        size_t n_name = equals && argument[1] == '-' ? (size_t)(equals - argument) : strlen(argument);
        const app_option *o = find(verb, argument, n_name);
        if (!o)
            return unknown(verb, argument);
        const char *value = argument[n_name] == '=' ? argument + n_name + 1 : NULL;
        if (o->kind == APP_FLAG && value)
            return refuse(verb, o, value, "no value");
        if (o->kind != APP_FLAG && !value) {
            if (i + 1 == n) {
                fprintf(stderr, "k3 %s: %s wants a value, %s\n", verb->name, o->name, o->value);
                return APP_USAGE;
            }
            value = arguments[++i];
        }
        int status = set(out, verb, o, value);
        if (status != APP_OK)
            return status;
    }
    if ((verb->takes_model && !out->model) || (verb->takes_model == 2 && !out->out)) {
        fprintf(stderr, "k3 %s: no %s given; usage: k3 %s %s\n", verb->name,
                verb->takes_model == 1 ? "model folder"
                : out->model           ? "folder to write"
                                       : "model",
                verb->name, verb->usage);
        return APP_USAGE;
    }
    return APP_OK;
}

void app_options_free(app_options *options)
{
    free(options->stops);
    options->stops = NULL;
}

void app_options_help(const app_verb *verb)
{
    printf("usage: k3 %s %s\n\n%s\n", verb->name, verb->usage, verb->help);
    for (size_t t = 0; t < verb->n_themes; t++) {
        printf("\n%s\n", verb->themes[t]->title);
        for (size_t i = 0; i < verb->themes[t]->n_options; i++) {
            const app_option *o = &verb->themes[t]->options[i];
            char name[48];
            snprintf(name, sizeof name, "%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
            printf("  %-21s %s", name, o->help);
            if (o->standard)
                printf(" [%s]", o->standard);
            putchar('\n');
        }
    }
}
