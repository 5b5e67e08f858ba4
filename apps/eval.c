#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "buffer.h"
#include "json.h"
#include "npy.h"
#include "tasks.h"
#include "terminal.h"

/* Logits held at once: 64 MB of floats, but never more rows than a pass takes anyway. */
enum { MAX_FLOATS = 16 << 20, MAX_ROWS = 512 };

typedef struct sequences {
    k3_tokens *items;
    size_t n, n_tokens;
} sequences;

typedef struct score {
    double nll; /* sum of -ln p */
    size_t n;   /* tokens it is over */
} score;

static k3_tokens *add_sequence(sequences *s)
{
    k3_tokens *items = app_alloc(s->n + 1, sizeof *items);
    if (s->n)
        memcpy(items, s->items, s->n * sizeof *items);
    free(s->items);
    s->items = items;
    return &s->items[s->n++];
}

static int wrong_file(const char *path, const char *what)
{
    fprintf(stderr, "k3 eval: %s: %s; a list of ids [1, 2, 3] or a list of such lists wanted\n", path, what);
    return APP_FAILED;
}

static int read_list(sequences *s, const char *path, app_json list)
{
    app_json value;
    k3_tokens *tokens = add_sequence(s);
    for (size_t at = 0; app_json_next(NULL, &value, &at, list);) {
        int64_t id;
        if (!app_json_int(value, &id) || id < 0 || id > INT32_MAX)
            return wrong_file(path, "something in a list is no id");
        app_add_id(tokens, (int32_t)id);
    }
    return tokens->n ? APP_OK : wrong_file(path, "an empty list");
}

static int read_json(sequences *s, const char *path, const char *text, size_t n)
{
    size_t wrong = 0, at = 0;
    app_json root = app_json_whole(text, n, &wrong), value = {0};
    if (app_json_kind(root) != '[') {
        char what[64];
        snprintf(what, sizeof what, root.text ? "not a list" : "no JSON at byte %zu", wrong);
        return wrong_file(path, what);
    }
    if (!app_json_next(NULL, &value, &at, root))
        return wrong_file(path, "an empty list");
    if (app_json_kind(value) != '[')
        return read_list(s, path, root);
    int status = APP_OK;
    for (at = 0; status == APP_OK && app_json_next(NULL, &value, &at, root);)
        status = app_json_kind(value) == '[' ? read_list(s, path, value) : wrong_file(path, "lists and other things mixed");
    return status;
}

static int read_input(sequences *s, const k3_engine *engine, const app_options *o)
{
    if (o->ids)
        return app_parse_ids(add_sequence(s), "eval", o->ids);
    size_t n = 0, n_path = strlen(o->file);
    char *text = app_read_file(o->file, &n);
    if (!text)
        return APP_FAILED;
    int status = APP_OK;
    k3_error err = {0};
    if (n_path > 5 && strcmp(o->file + n_path - 5, ".json") == 0)
        status = read_json(s, o->file, text, n);
    else if (k3_tokenize(engine, add_sequence(s), text, n, &err) != K3_OK)
        status = app_fail(&err);
    free(text);
    if (status == APP_OK && !s->items[0].n) {
        fprintf(stderr, "k3 eval: %s: empty; at least one token wanted\n", o->file);
        status = APP_FAILED;
    }
    return status;
}

/* -ln softmax(x)[id] in double; x [n]. */
static double negative_log(const float *x, size_t n, int32_t id)
{
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        max = (double)x[i] > max ? (double)x[i] : max;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum) - (double)x[id];
}

/* The logits of a row speak about the token after it. */
static int score_sequence(score *total, k3_session *session, const k3_tokens *ids, float *logits, size_t n_rows, size_t vocab, app_npy *npy)
{
    k3_error err = {0};
    for (size_t first = 0; first < ids->n; first += n_rows) {
        size_t n = ids->n - first < n_rows ? ids->n - first : n_rows;
        if (app_progress(NULL, "scoring", first, ids->n))
            return APP_INTERRUPTED;
        if (k3_session_score(session, logits, ids->ids + first, n, &err) != K3_OK)
            return app_fail(&err);
        for (size_t i = 0; i < n && first + i + 1 < ids->n; i++) {
            total->nll += negative_log(logits + i * vocab, vocab, ids->ids[first + i + 1]);
            total->n++;
        }
        if (npy && !app_npy_write(npy, logits, n))
            return APP_FAILED;
    }
    app_progress_end();
    return APP_OK;
}

static int score_all(score *total, k3_engine *engine, const sequences *s, const app_options *o)
{
    size_t vocab = (size_t)k3_engine_info(engine)->vocab_size, n_tokens = 0, n_rows = MAX_FLOATS / vocab, longest = 0;
    for (size_t i = 0; i < s->n; i++) {
        n_tokens += s->items[i].n;
        longest = s->items[i].n > longest ? s->items[i].n : longest;
    }
    n_rows = n_rows > MAX_ROWS ? MAX_ROWS : n_rows ? n_rows : 1;
    n_rows = n_rows < longest ? n_rows : longest;
    k3_error err = {0};
    k3_session *session = NULL;
    float *logits = app_alloc(n_rows * vocab, sizeof *logits);
    app_npy *npy = o->logits ? app_npy_open(o->logits, n_tokens, vocab) : NULL;
    int status = o->logits && !npy ? APP_FAILED : APP_OK;
    if (status == APP_OK && k3_session_open(&session, engine, &err) != K3_OK)
        status = app_fail(&err);
    for (size_t i = 0; status == APP_OK && i < s->n; i++) {
        if (k3_session_rewind(session, 0, &err) != K3_OK)
            status = app_fail(&err);
        else
            status = score_sequence(total, session, &s->items[i], logits, n_rows, vocab, npy);
    }
    if (npy && !app_npy_close(npy))
        status = status == APP_OK ? APP_FAILED : status;
    k3_session_close(session);
    free(logits);
    return status;
}

static int score_texts(k3_engine *engine, const app_options *o)
{
    sequences s = {0};
    score total = {0};
    int status = read_input(&s, engine, o);
    if (status == APP_OK)
        status = score_all(&total, engine, &s, o);
    if (status == APP_OK && !total.n && !o->logits) {
        fprintf(stderr, "k3 eval: nothing to score: no sequence has two ids, and the first one is not scored\n");
        status = APP_FAILED;
    } else if (status == APP_OK) {
        char line[128];
        double mean = total.n ? total.nll / (double)total.n : NAN;
        int n = snprintf(line, sizeof line, "perplexity %.6f  nll %.8f  tokens %zu\n", exp(mean), mean, total.n);
        app_write(line, (size_t)n);
    }
    for (size_t i = 0; i < s.n; i++)
        k3_tokens_free(&s.items[i]);
    free(s.items);
    return status;
}

int app_eval(const app_options *options)
{
    k3_engine *engine = NULL;
    if (!!options->ids + !!options->file + !!options->tasks != 1) {
        fprintf(stderr, "k3 eval: exactly one of --ids, --file and --tasks wanted\n");
        return APP_USAGE;
    }
    if (options->tasks && options->logits) {
        fprintf(stderr, "k3 eval: --logits belongs to --ids and --file\n");
        return APP_USAGE;
    }
    int status = app_open_engine(&engine, options);
    if (status == APP_OK)
        status = options->tasks ? app_tasks(engine, options) : score_texts(engine, options);
    if (status == APP_OK && options->stats) {
        char *text = app_alloc(16384, 1);
        k3_engine_stats(engine, text, 16384, 0);
        fputs(text, stderr);
        free(text);
    }
    app_close_engine(engine, options);
    return status;
}
