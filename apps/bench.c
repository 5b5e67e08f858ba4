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

static k3_status run_once(double *prefill, double *decode, k3_session *session, k3_sampler *sampler, const int32_t *prompt, size_t n_prompt,
                          size_t n_new, size_t vocab, k3_error *err)
{
    k3_status status = k3_session_rewind(session, 0, err);
    double started = app_seconds();
    if (status == K3_OK)
        status = k3_session_append(session, prompt, n_prompt, err);
    double prefilled = app_seconds();
    app_progress_end();
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
    return status;
}

static void print(const figures *f, const k3_info *info, const app_options *o, size_t n_prompt, size_t n_new)
{
    size_t n = (size_t)o->n_repeats;
    double prefill = (double)n_prompt / median(f->prefill, n), decode = (double)n_new / median(f->decode, n);
    double rate = k3_memory_rate((int)o->threads), moved = decode * (double)info->token_bytes;
    app_buffer b = {0};
    char line[512];
    if (o->json) {
        app_buffer_text(&b, "{\"plan\": ");
        app_buffer_json(&b, info->plan, strlen(info->plan));
        snprintf(line, sizeof line,
                 ", \"prompt_tokens\": %zu, \"new_tokens\": %zu, \"repeats\": %zu, \"prefill_tokens_per_s\": %.3f, "
                 "\"first_prefill_tokens_per_s\": %.3f, \"decode_tokens_per_s\": %.3f, \"bytes_per_token\": %llu, "
                 "\"decode_bytes_per_s\": %.0f, \"memory_bytes_per_s\": %.0f, \"memory_share\": %.4f}\n",
                 n_prompt, n_new, n, prefill, (double)n_prompt / f->first_prefill, decode, (unsigned long long)info->token_bytes, moved,
                 rate, rate > 0 ? moved / rate : 0);
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
        status = run_once(&f.first_prefill, &unused, session, sampler, prompt, n_prompt, n_new, (size_t)info->vocab_size, &err);
    for (size_t i = 0; status == K3_OK && i < n; i++)
        status = run_once(&f.prefill[i], &f.decode[i], session, sampler, prompt, n_prompt, n_new, (size_t)info->vocab_size, &err);
    if (status == K3_OK)
        print(&f, info, o, n_prompt, n_new);
    if (status == K3_OK && o->stats) {
        char *text = app_alloc(16384, 1);
        k3_engine_stats(engine, text, 16384, 0);
        fputs(text, stderr);
        free(text);
    }
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
    k3_engine_close(engine);
    return status;
}
