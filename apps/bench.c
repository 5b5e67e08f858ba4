/* `k3 bench`: what is measured. bench_report.c and bench_plot.c show it. */
#include "bench.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "terminal.h"

enum { DEFAULT_NEW = 32 };

typedef struct bench_list {
    size_t n[BENCH_MAX_LIST], size;
} bench_list;

typedef struct bench {
    const app_options *options;
    k3_engine *engine;
    k3_session *session;
    k3_sampler *sampler;
    k3_memory_meter *meter;
    bench_list prompts, contexts;
    size_t n_new, n_ids;
    size_t reached; /* the session's mark: the context that was decoded at last; 0: there is none */
    struct {
        size_t tokens;
        double macs, seconds;
    } pace;          /* of the longest prompt, or stretch of one, so far */
    int32_t *ids;    /* [n_ids] */
    double *seconds; /* [repeats] */
    double *memory;  /* [repeats + 1] rates between the runs of a decode */
    FILE *plot;      /* or NULL */
    bench_report report;
} bench;

/* ---- figures of a token --------------------------------------------------------------------------------------------- */

double bench_rate(const bench_row *row)
{
    return row->seconds > 0 ? (double)row->n / row->seconds : 0;
}

double bench_decode_bytes(const k3_info *info, double context)
{
    return (double)info->token_bytes + (double)info->state_bytes + context * (double)info->context_bytes;
}

double bench_decode_macs(const k3_info *info, double context)
{
    return (double)info->token_macs + context * (double)info->context_macs;
}

/* Only the last row goes through the head; row i sees i + 1 cached ones. */
double bench_prefill_macs(const k3_info *info, double n)
{
    double head = (double)info->vocab_size * (double)info->hidden_size;
    return (double)info->token_macs - head + head / n + (double)info->context_macs * (n + 1) / 2;
}

/* ---- runs ------------------------------------------------------------------------------------------------------------- */

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int rising_size(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

static double median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, rising);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

/* Ids that are the same in every run and spread over the vocabulary, so that experts are chosen as widely as by text. */
static void make_ids(bench *b)
{
    uint32_t x = 1, vocab = (uint32_t)k3_engine_info(b->engine)->vocab_size;
    for (size_t i = 0; i < b->n_ids; i++) {
        x = x * 1664525u + 1013904223u;
        b->ids[i] = (int32_t)((x >> 8) % vocab);
    }
}

static void print_operations(const bench *b, const bench_row *row)
{
    enum { SIZE = 16384 };
    char *text = app_alloc(SIZE, 1);
    k3_engine_stats(b->engine, text, SIZE, 0);
    if (row->is_decode)
        fprintf(stderr, "decode of %zu x %zu tokens at context %zu%s\n%s", row->runs, row->n, row->context,
                row->is_cold ? ", first run" : "", text);
    else
        fprintf(stderr, "prefill of %zu x %zu tokens%s\n%s", row->runs, row->n, row->is_cold ? ", first run" : "", text);
    free(text);
}

/* Prefill from nothing, or decode from where the session stands. */
static k3_status run_once(bench *b, double *seconds, const bench_row *row, size_t run, k3_error *err)
{
    k3_status status = K3_OK;
    int32_t id = b->ids[0];
    double started = app_seconds();
    if (!row->is_decode)
        status = k3_session_append(b->session, b->ids, row->n, err);
    for (size_t i = 0; row->is_decode && status == K3_OK && i < row->n; i++) {
        status = k3_session_append_pick(b->session, b->sampler, &id, &id, 1, err);
        if (status == K3_OK && app_progress(NULL, "decoding", run * row->n + i, row->runs * row->n)) {
            err->status = status = K3_E_CANCELLED;
            snprintf(err->text, sizeof err->text, "cancelled");
        }
    }
    *seconds = app_seconds() - started;
    return status;
}

/* Statistics since they were taken last, parsed and as the text that is parsed; NULL: no memory. */
static char *take_stats(bench *b, app_json *stats, k3_error *err)
{
    size_t wrong;
    char *text = k3_engine_stats_json(b->engine, 1);
    if (text) {
        *stats = app_json_whole(text, strlen(text), &wrong);
        return text;
    }
    err->status = K3_E_NOMEM;
    snprintf(err->text, sizeof err->text, "bench: out of memory");
    return NULL;
}

/* The notice, which comes when the engine is closed, says what failed. */
static k3_status check_one_machine(const bench *b, k3_error *err)
{
    if (!b->report.info->n_failures)
        return K3_OK;
    err->status = K3_E_DEVICE;
    snprintf(err->text, sizeof err->text, "bench: a device failed in use: figures that are partly another's say nothing");
    return K3_E_DEVICE;
}

/* Each run begins where its row says. */
static k3_status go_back(bench *b, const bench_row *row, k3_error *err)
{
    size_t start = row->is_decode ? row->context : 0;
    k3_status status = row->is_cold ? K3_OK : k3_session_rewind(b->session, (int64_t)start, err);
    if (status != K3_OK || (size_t)k3_session_length(b->session) == start)
        return status;
    err->status = K3_E_INVALID;
    snprintf(err->text, sizeof err->text, "bench: the session is at %lld tokens, a run begins at %zu",
             (long long)k3_session_length(b->session), start);
    return K3_E_INVALID;
}

/* Adds a row of `runs` runs. A warm decode has a mark where it begins; a cold one goes on from where the session stands. The memory's rate,
 * which others on the machine change from second to second, is measured between the runs of a decode. */
static k3_status add_row(bench *b, bench_row row, k3_error *err)
{
    const k3_info *info = b->report.info;
    k3_status status = K3_OK;
    free(k3_engine_stats_json(b->engine, 1));
    for (size_t i = 0; status == K3_OK && i < row.runs; i++) {
        status = go_back(b, &row, err);
        if (status == K3_OK && row.is_decode)
            status = k3_memory_meter_read(b->meter, &b->memory[i], err);
        if (status == K3_OK)
            status = run_once(b, &b->seconds[i], &row, i, err);
    }
    if (status == K3_OK && row.is_decode)
        status = k3_memory_meter_read(b->meter, &b->memory[row.runs], err);
    if (status == K3_OK)
        status = check_one_machine(b, err);
    app_progress_end();
    if (status != K3_OK)
        return status;
    row.seconds = median(b->seconds, row.runs);
    row.memory_rate = row.is_decode ? median(b->memory, row.runs + 1) : 0;
    double context = (double)row.context + 0.5 * (double)(row.n + 1);
    row.bytes = row.is_decode ? bench_decode_bytes(info, context) : 0;
    row.macs = row.is_decode ? bench_decode_macs(info, context) : bench_prefill_macs(info, (double)row.n);
    if (b->options->stats)
        print_operations(b, &row);
    app_json stats;
    row.stats = take_stats(b, &stats, err);
    if (!row.stats)
        return K3_E_NOMEM;
    double busy = bench_number(stats, "disk_busy_seconds"), bytes = bench_number(stats, "disk_bytes");
    row.disk_bytes = bytes / (double)row.runs;
    row.disk_rate = busy > 0 ? bytes / busy : 0;
    b->report.rows[b->report.n_rows++] = row;
    return K3_OK;
}

/* ---- what to run -------------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 4, 5))) static void leave_out(bench *b, const char *what, size_t n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    b->report.left_out[b->report.n_left_out].what = what;
    b->report.left_out[b->report.n_left_out].n = n;
    vsnprintf(b->report.left_out[b->report.n_left_out++].why, sizeof b->report.left_out->why, format, args);
    va_end(args);
}

/* Keeps what the model's context has room for, `more` tokens included. */
static void keep_what_fits(bench *b, bench_list *list, const char *what, size_t more)
{
    size_t kept = 0, room = (size_t)b->report.info->context_length;
    for (size_t i = 0; i < list->size; i++) {
        if (list->n[i] + more <= room)
            list->n[kept++] = list->n[i];
        else if (more)
            leave_out(b, what, list->n[i], "with %zu tokens decoded there it is more than the model's %zu", more, room);
        else
            leave_out(b, what, list->n[i], "the model's context is %zu", room);
    }
    list->size = kept;
}

static size_t largest(const bench_list *list)
{
    size_t n = 0;
    for (size_t i = 0; i < list->size; i++)
        n = list->n[i] > n ? list->n[i] : n;
    return n;
}

/* Multiply-adds of a prompt's tokens from the first to the n-th. */
static double macs_to(const bench *b, size_t n)
{
    return n ? (double)n * bench_prefill_macs(b->report.info, (double)n) : 0;
}

/* A longer stretch tells more than a shorter one, and a later one as much as an earlier one. */
static void set_pace(bench *b, size_t from, size_t to, double seconds)
{
    if (to - from < b->pace.tokens)
        return;
    b->pace.tokens = to - from;
    b->pace.macs = macs_to(b, to) - macs_to(b, from);
    b->pace.seconds = seconds;
}

/* The time that it would take to go on to a context, at the pace so far. */
static double expected_seconds(const bench *b, size_t context)
{
    return b->pace.macs > 0 ? b->pace.seconds * (macs_to(b, context) - macs_to(b, b->reached)) / b->pace.macs : 0;
}

/* Goes on from the context before, so that no token of a prompt is computed twice. */
static k3_status go_on_to(bench *b, size_t context, bench_row *row, k3_error *err)
{
    size_t from = b->reached;
    k3_status status = k3_session_rewind(b->session, (int64_t)from, err);
    if (status != K3_OK || context == from)
        return status;
    free(k3_engine_stats_json(b->engine, 1));
    double started = app_seconds();
    status = k3_session_append(b->session, b->ids + from, context - from, err);
    row->prompt_seconds = app_seconds() - started;
    if (status == K3_OK)
        status = k3_session_mark(b->session, err);
    app_progress_end();
    if (status != K3_OK)
        return status;
    if (from)
        k3_session_unmark(b->session, (int64_t)from);
    b->reached = context;
    set_pace(b, from, context, row->prompt_seconds);
    app_json stats;
    char *text = take_stats(b, &stats, err);
    row->prompt_tokens = text ? bench_number(stats, "rows") : 0;
    free(text);
    return text ? K3_OK : K3_E_NOMEM;
}

static k3_status decode_at(bench *b, size_t context, k3_error *err)
{
    bench_row row = {.is_decode = 1, .context = context, .n = b->n_new, .runs = (size_t)b->options->n_repeats};
    k3_status status = go_on_to(b, context, &row, err);
    return status == K3_OK ? add_row(b, row, err) : status;
}

/* The first run is the longest prompt and what follows it: a start as a user meets it. */
static k3_status run_cold(bench *b, k3_error *err)
{
    size_t prompt = largest(&b->prompts), room = (size_t)b->report.info->context_length;
    k3_status status = K3_OK;
    if (prompt)
        status = add_row(b, (bench_row){.is_cold = 1, .n = prompt, .runs = 1}, err);
    if (status == K3_OK && prompt + b->n_new <= room)
        status = add_row(b, (bench_row){.is_decode = 1, .is_cold = 1, .context = prompt, .n = b->n_new, .runs = 1}, err);
    return status;
}

static k3_status run_all(bench *b, k3_error *err)
{
    long limit = b->options->limit;
    k3_status status = run_cold(b, err);
    for (size_t i = 0; status == K3_OK && i < b->prompts.size; i++)
        status = add_row(b, (bench_row){.n = b->prompts.n[i], .runs = (size_t)b->options->n_repeats}, err);
    for (size_t i = 0; status == K3_OK && i < b->report.n_rows; i++)
        if (!b->report.rows[i].is_decode)
            set_pace(b, 0, b->report.rows[i].n, b->report.rows[i].seconds);
    for (size_t i = 0; status == K3_OK && i < b->contexts.size; i++) {
        size_t context = b->contexts.n[i];
        double seconds = expected_seconds(b, context);
        if (seconds <= (double)limit)
            status = decode_at(b, context, err);
        else
            leave_out(b, "context", context, "to get there takes about %.0f s, --limit is %ld", seconds, limit);
        if (status == K3_E_NOMEM) {
            leave_out(b, "context", context, "%.150s", err->text);
            status = K3_OK;
        }
    }
    k3_memory_meter_close(b->meter);
    b->meter = NULL;
    if (status == K3_OK)
        status = k3_engine_ceilings(&b->report.ceilings, b->engine, err);
    for (size_t i = 0; status == K3_OK && i < b->report.n_rows; i++)
        if (b->report.rows[i].is_decode)
            b->report.ceilings.memory_bytes_per_s = b->report.rows[i].memory_rate;
    return status;
}

/* bf16 weights are multiplied in f32 where the CPU has nothing narrower for them. */
static void choose_ceiling(bench_report *r)
{
    const k3_ceilings *c = &r->ceilings;
    const char *type = r->info->products ? r->info->products : "";
    if (strcmp(type, "bf16") == 0 && c->bf16_macs_per_s <= 0)
        type = "f32";
    r->macs_per_s = strcmp(type, "int8") == 0   ? c->int8_macs_per_s
                    : strcmp(type, "bf16") == 0 ? c->bf16_macs_per_s
                    : strcmp(type, "f32") == 0  ? c->f32_macs_per_s
                                                : 0;
    r->products = r->macs_per_s > 0 ? type : NULL;
}

/* ---- what comes of it ------------------------------------------------------------------------------------------------- */

static int show(bench *b)
{
    app_buffer text = {0};
    int failed = 0;
    choose_ceiling(&b->report);
    if (b->options->json)
        bench_json(&text, &b->report);
    else
        bench_text(&text, &b->report);
    app_write(text.text, text.n);
    app_buffer_clear(&text);
    if (b->plot) {
        bench_svg(&text, &b->report);
        failed = fwrite(text.text, 1, text.n, b->plot) != text.n || fflush(b->plot) != 0;
        if (failed)
            fprintf(stderr, "k3: %s: %s\n", b->options->svg, strerror(errno));
    }
    app_buffer_free(&text);
    return failed ? APP_FAILED : APP_OK;
}

static int measure(bench *b)
{
    static const k3_sampling greedy = {.top_p = 1};
    k3_error err = {0};
    b->report.info = k3_engine_info(b->engine);
    b->report.model = b->options->model;
    keep_what_fits(b, &b->prompts, "prompt", 0);
    qsort(b->contexts.n, b->contexts.size, sizeof *b->contexts.n, rising_size);
    keep_what_fits(b, &b->contexts, "context", b->n_new);
    size_t prompt = largest(&b->prompts), context = largest(&b->contexts);
    b->n_ids = (prompt > context ? prompt : context) + 1;
    b->ids = app_alloc(b->n_ids, sizeof *b->ids);
    b->seconds = app_alloc((size_t)b->options->n_repeats, sizeof *b->seconds);
    b->memory = app_alloc((size_t)b->options->n_repeats + 1, sizeof *b->memory);
    make_ids(b);
    k3_status status = k3_session_open(&b->session, b->engine, &err);
    if (status == K3_OK)
        status = k3_sampler_open(&b->sampler, &greedy, &err);
    if (status == K3_OK)
        status = k3_memory_meter_open(&b->meter, b->engine, &err);
    if (status == K3_OK)
        status = run_all(b, &err);
    int result = status == K3_OK ? show(b) : app_fail(&err);
    k3_memory_meter_close(b->meter);
    k3_sampler_close(b->sampler);
    k3_session_close(b->session);
    for (size_t i = 0; i < b->report.n_rows; i++)
        free(b->report.rows[i].stats);
    free(b->ids);
    free(b->seconds);
    free(b->memory);
    return result;
}

/* "0,4096": whole numbers from `low` on. */
static int parse_list(bench_list *out, const char *option, const char *text, size_t low)
{
    enum { MOST = 1 << 24 };
    for (const char *at = text;;) {
        char *end;
        errno = 0;
        unsigned long long n = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || errno || n < low || n > MOST || (*end && *end != ',') || out->size == BENCH_MAX_LIST) {
            fprintf(stderr, "k3 bench: %s %.60s: up to %d whole numbers from %zu to %d wanted, separated by commas\n", option, text,
                    (int)BENCH_MAX_LIST, low, (int)MOST);
            return APP_USAGE;
        }
        out->n[out->size++] = (size_t)n;
        if (!*end)
            return APP_OK;
        at = end + 1;
    }
}

int app_bench(const app_options *options)
{
    bench *b = app_alloc(1, sizeof *b);
    *b = (bench){.options = options, .n_new = options->n > 0 ? (size_t)options->n : DEFAULT_NEW};
    int status = parse_list(&b->prompts, "--prompt", options->prompts ? options->prompts : "32,128,512", 1);
    if (status == APP_OK)
        status = parse_list(&b->contexts, "--context", options->contexts ? options->contexts : "0,4096,32768", 0);
    if (status == APP_OK && options->svg && !(b->plot = fopen(options->svg, "wb"))) {
        fprintf(stderr, "k3: %s: %s\n", options->svg, strerror(errno));
        status = APP_FAILED;
    }
    if (status == APP_OK)
        status = app_open_engine(&b->engine, options);
    if (status == APP_OK)
        status = measure(b);
    app_close_engine(b->engine, options);
    if (b->plot)
        fclose(b->plot);
    free(b);
    return status;
}
