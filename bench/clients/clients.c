/* bench_clients MODEL [-n REQUESTS] [-p PROMPT] [-a ANSWER] [-r RAM_GB] [-t THREADS] [-c AT_ONCE] [-f]: tokens a second, and expert bytes a
 * token read from disk, when 1, 4 and 16 requests run at once, or so many. Each of them has its own prompt of made-up ids; with -f all
 * begin with the same ids but for the last eight. Answers are drawn with a seed, so that every row of the table computes the same tokens.
 */
#include "server/scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct options {
    const char *model;
    int n_requests, n_prompt, n_answer, threads, at_once, is_shared;
    double ram;
} options;

typedef struct request {
    int32_t *ids;
    srv_job *job;
    int n_tokens;
    uint64_t sum; /* of the answer's ids */
    k3_error err;
} request;

static void begin(void *user, int64_t n_cached)
{
    (void)user;
    (void)n_cached;
}

static int token(void *user, const srv_token *t)
{
    request *r = user;
    r->n_tokens++;
    r->sum = r->sum * 31 + (uint64_t)t->id;
    return 0;
}

static void end(void *user, srv_end how, const k3_error *err)
{
    request *r = user;
    (void)how;
    if (err)
        r->err = *err;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Gigabytes of experts that were read, from the text of k3_engine_stats; 0: all are in memory. */
static double expert_gb(k3_engine *engine)
{
    static char text[65536];
    double gb = 0;
    k3_engine_stats(engine, text, sizeof text, 1);
    const char *at = strstr(text, "experts in memory:");
    at = at ? strstr(at, " of them, ") : NULL;
    if (at)
        sscanf(at, " of them, %lf GB", &gb);
    return gb;
}

static void make_prompt(request *r, const options *o, int vocab, int i)
{
    uint64_t state = o->is_shared ? 1 : (uint64_t)i + 1;
    for (int k = 0; k < o->n_prompt; k++) {
        if (k == o->n_prompt - 8)
            state = (uint64_t)i + 1000;
        state = state * 6364136223846793005u + 1442695040888963407u;
        r->ids[k] = (int32_t)((state >> 33) % (uint64_t)(vocab < 1000 ? vocab : 1000));
    }
}

static k3_status submit(request *r, srv_scheduler *scheduler, const options *o, int eos, int i, k3_error *err)
{
    static const float least = -100;
    int32_t end_id = eos;
    srv_settings settings = {.ids = r->ids, .n = (size_t)o->n_prompt, .max_tokens = o->n_answer, .n_top = -1};
    settings.sampling = (k3_sampling){.temperature = 1, .top_p = 0.95f, .seed = (uint64_t)i};
    settings.adjust = (k3_adjustment){.bias_ids = &end_id, .biases = &least, .n_biases = 1};
    srv_sink sink = {begin, NULL, token, end, r};
    return srv_submit(&r->job, scheduler, &settings, &sink, err);
}

/* All requests, so many at once: a line of the table. */
static k3_status run(k3_engine *engine, const options *o, int at_once, k3_error *err)
{
    srv_scheduler *scheduler;
    srv_limits limits = {
        .max_running = at_once, .max_waiting = o->n_requests, .mark_interval = 512, .cache_bytes = o->is_shared ? 1u << 30 : 0};
    k3_status status = srv_scheduler_open(&scheduler, engine, &limits, err);
    if (status != K3_OK)
        return status;
    request *r = calloc((size_t)o->n_requests, sizeof *r);
    uint64_t sum = 0;
    int n_tokens = 0, vocab = k3_engine_info(engine)->vocab_size;
    (void)expert_gb(engine);
    double start = seconds();
    for (int i = 0; i < o->n_requests && status == K3_OK && r; i++) {
        r[i].ids = calloc((size_t)o->n_prompt, sizeof *r[i].ids);
        if (!r[i].ids)
            break;
        make_prompt(&r[i], o, vocab, i);
        status = submit(&r[i], scheduler, o, k3_engine_info(engine)->eos_id, i, err);
    }
    for (int i = 0; i < o->n_requests && r; i++) {
        srv_release(r[i].job);
        if (r[i].err.status != K3_OK)
            fprintf(stderr, "request %d: %s\n", i, r[i].err.text);
        n_tokens += r[i].n_tokens;
        sum = sum * 31 + r[i].sum;
        free(r[i].ids);
    }
    free(r);
    double took = seconds() - start, gb = expert_gb(engine);
    srv_counts c;
    srv_count(scheduler, &c);
    srv_scheduler_close(scheduler);
    printf("%8d %8d %9.2f %9.2f %9.2f %11.3f %8llu %8llu %8llu  %016llx\n", at_once, n_tokens, n_tokens / took,
           (double)n_tokens / (c.decode_seconds > 0 ? c.decode_seconds : 1), took, n_tokens ? 1e3 * gb / n_tokens : 0.0,
           (unsigned long long)c.passes, (unsigned long long)c.rows, (unsigned long long)c.cached_tokens, (unsigned long long)sum);
    fflush(stdout);
    return status;
}

static int parse(options *o, int argc, char **argv)
{
    *o = (options){.n_requests = 16, .n_prompt = 64, .n_answer = 32};
    for (int c; (c = getopt(argc, argv, "n:p:a:r:t:c:f")) != -1;) {
        if (c == 'n')
            o->n_requests = atoi(optarg);
        else if (c == 'p')
            o->n_prompt = atoi(optarg);
        else if (c == 'a')
            o->n_answer = atoi(optarg);
        else if (c == 'r')
            o->ram = atof(optarg);
        else if (c == 't')
            o->threads = atoi(optarg);
        else if (c == 'c')
            o->at_once = atoi(optarg);
        else if (c == 'f')
            o->is_shared = 1;
        else
            return 0;
    }
    o->model = optind + 1 == argc ? argv[optind] : NULL;
    return o->model && o->n_requests > 0 && o->n_prompt > 0 && o->n_answer > 0 && o->at_once >= 0 && o->ram >= 0;
}

int main(int argc, char **argv)
{
    static const int at_once[] = {1, 4, 16};
    options o;
    k3_engine *engine;
    k3_error err = {K3_OK, ""};
    if (!parse(&o, argc, argv)) {
        fprintf(stderr, "bench_clients MODEL [-n REQUESTS] [-p PROMPT] [-a ANSWER] [-r RAM_GB] [-t THREADS] [-c AT_ONCE] [-f]\n");
        return 2;
    }
    k3_config config = {.backend = "cpu", .threads = o.threads, .ram = (uint64_t)(o.ram * 1e9)};
    k3_status status = k3_engine_open(&engine, o.model, &config, &err);
    if (status == K3_OK) {
        printf("%s\n%d requests, prompts of %d tokens, answers of %d\n", k3_engine_info(engine)->plan, o.n_requests, o.n_prompt,
               o.n_answer);
        printf(" at once   tokens  tokens/s  decode/s   seconds MB of experts   passes     rows   cached  sum\n");
        printf("                                               a token\n");
    }
    for (size_t i = 0; i < sizeof at_once / sizeof *at_once && status == K3_OK; i++)
        if (!o.at_once || !i)
            status = run(engine, &o, o.at_once ? o.at_once : at_once[i], &err);
    if (status != K3_OK)
        fprintf(stderr, "%s\n", err.text);
    else
        k3_engine_close(engine);
    return status != K3_OK;
}
