#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "buffer.h"
#include "terminal.h"

enum { DEFAULT_PROMPT = 512, DEFAULT_NEW = 64 };

typedef struct figures {
    double *prefill, *decode; /* [n_repeats] seconds */
    double first_prefill;     /* seconds of the warming run: pages touched for the first time */
} figures;

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, rising);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

/* Ids that are the same in every run and spread over the vocabulary, so that experts are chosen as widely as by text. */
static void make_prompt(int32_t *ids, size_t n, int vocab)
{
    uint32_t x = 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 8) % (uint32_t)vocab);
    }
}

/* Time for each operation since the last call, on stderr; `what` NULL: forgets it. */
static void print_operations(k3_engine *engine, const char *what, size_t n_tokens)
{
    enum { SIZE = 16384 };
    char *text = app_alloc(SIZE, 1);
    k3_engine_stats(engine, text, SIZE, 1);
    if (what)
        fprintf(stderr, "%s of %zu tokens\n%s", what, n_tokens, text);
    free(text);
}

/* timed: NULL, or the engine whose operations are printed for each half. */
static k3_status run_once(double *prefill, double *decode, k3_engine *timed, k3_session *session, k3_sampler *sampler,
                          const int32_t *prompt, size_t n_prompt, size_t n_new, size_t vocab, k3_error *err)
{
    if (timed)
        print_operations(timed, NULL, 0);
    k3_status status = k3_session_rewind(session, 0, err);
    double started = app_seconds();
    if (status == K3_OK)
        status = k3_session_append(session, prompt, n_prompt, err);
    double prefilled = app_seconds();
    app_progress_end();
    if (timed && status == K3_OK)
        print_operations(timed, "prefill", n_prompt);
    int32_t id = 0;
    if (status == K3_OK)
        status = k3_sampler_pick(sampler, &id, k3_session_logits(session), vocab, err);
    for (size_t i = 0; status == K3_OK && i < n_new; i++) {
        status = k3_session_append_pick(session, sampler, &id, &id, 1, err);
        if (status == K3_OK && app_interrupted()) {
            err->status = status = K3_E_CANCELLED;
            snprintf(err->text, sizeof err->text, "cancelled");
        }
    }
    *prefill = prefilled - started;
    *decode = app_seconds() - prefilled;
    if (timed && status == K3_OK)
        print_operations(timed, "decode", n_new);
    return status;
}

static void print(k3_engine *engine, const figures *f, const app_options *o, size_t n_prompt, size_t n_new)
{
    const k3_info *info = k3_engine_info(engine);
    size_t n = (size_t)o->n_repeats;
    double prefill = (double)n_prompt / median(f->prefill, n), decode = (double)n_new / median(f->decode, n);
    double rate = k3_memory_rate(engine), moved = decode * (double)info->token_bytes;
    app_buffer b = {0};
    char line[512], ceiling[96] = "null, \"memory_share\": null"; /* a device without room for two blocks cannot be measured */
    if (rate > 0)
        snprintf(ceiling, sizeof ceiling, "%.0f, \"memory_share\": %.4f", rate, moved / rate);
    if (o->json) {
        app_buffer_text(&b, "{\"plan\": ");
        app_buffer_json(&b, info->plan, strlen(info->plan));
        snprintf(line, sizeof line,
                 ", \"prompt_tokens\": %zu, \"new_tokens\": %zu, \"repeats\": %zu, \"prefill_tokens_per_s\": %.3f, "
                 "\"first_prefill_tokens_per_s\": %.3f, \"decode_tokens_per_s\": %.3f, \"bytes_per_token\": %llu, "
                 "\"decode_bytes_per_s\": %.0f, \"memory_bytes_per_s\": %s}\n",
                 n_prompt, n_new, n, prefill, (double)n_prompt / f->first_prefill, decode, (unsigned long long)info->token_bytes, moved,
                 ceiling);
        app_buffer_text(&b, line);
    } else {
        snprintf(line, sizeof line,
                 "prefill  %10.1f tokens/s   %zu tokens, median of %zu (first run %.1f)\n"
                 "decode   %10.1f tokens/s   %zu tokens after them\n"
                 "moved    %10.3f MB a token  %.2f GB/s\n"
                 "memory   %10.2f GB/s        measured now; decode uses %.1f %% of it\n",
                 prefill, n_prompt, n, (double)n_prompt / f->first_prefill, decode, n_new, (double)info->token_bytes * 1e-6, moved * 1e-9,
                 rate * 1e-9, rate > 0 ? 100 * moved / rate : 0);
        app_buffer_text(&b, line);
    }
    app_write(b.text, b.n);
    app_buffer_free(&b);
}

/* Figures of which some are a device's and some the CPU's say nothing. */
static k3_status check_one_machine(const k3_engine *engine, k3_error *err)
{
    const char *notice = k3_engine_info(engine)->notice;
    if (!notice)
        return K3_OK;
    err->status = K3_E_DEVICE;
    snprintf(err->text, sizeof err->text, "bench: %s", notice);
    return K3_E_DEVICE;
}

static int measure(k3_engine *engine, const app_options *o)
{
    static const k3_sampling greedy = {.top_p = 1};
    const k3_info *info = k3_engine_info(engine);
    size_t n_prompt = o->n_prompt ? (size_t)o->n_prompt : DEFAULT_PROMPT, n_new = o->n > 0 ? (size_t)o->n : DEFAULT_NEW;
    size_t n = (size_t)o->n_repeats;
    k3_session *session = NULL;
    k3_sampler *sampler = NULL;
    k3_error err = {0};
    figures f = {.prefill = app_alloc(n, sizeof *f.prefill), .decode = app_alloc(n, sizeof *f.decode)};
    int32_t *prompt = app_alloc(n_prompt, sizeof *prompt);
    double unused;
    make_prompt(prompt, n_prompt, info->vocab_size);
    k3_status status = k3_session_open(&session, engine, &err);
    if (status == K3_OK)
        status = k3_sampler_open(&sampler, &greedy, &err);
    if (status == K3_OK)
        status = run_once(&f.first_prefill, &unused, NULL, session, sampler, prompt, n_prompt, n_new, (size_t)info->vocab_size, &err);
    for (size_t i = 0; status == K3_OK && i < n; i++)
        status = run_once(&f.prefill[i], &f.decode[i], NULL, session, sampler, prompt, n_prompt, n_new, (size_t)info->vocab_size, &err);
    if (status == K3_OK)
        status = check_one_machine(engine, &err);
    if (status == K3_OK)
        print(engine, &f, o, n_prompt, n_new);
    if (status == K3_OK && o->stats)
        status = run_once(&unused, &unused, engine, session, sampler, prompt, n_prompt, n_new, (size_t)info->vocab_size, &err);
    k3_sampler_close(sampler);
    k3_session_close(session);
    free(prompt);
    free(f.prefill);
    free(f.decode);
    return status == K3_OK ? APP_OK : app_fail(&err);
}

int app_bench(const app_options *options)
{
    k3_engine *engine = NULL;
    int status = app_open_engine(&engine, options);
    if (status == APP_OK)
        status = measure(engine, options);
    app_close_engine(engine, options);
    return status;
}
