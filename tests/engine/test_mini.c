/* The bundled model: the same greedy answers as PyTorch in exact mode, and what a quantized trunk costs. */
#include "base/json.h"
#include "base/os.h"
#include "k3.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL "models/k3-mini"
#define GOLDEN "tests/golden/mini/"

static k3_engine *open_engine(const k3_config *config)
{
    k3_engine *engine;
    k3_error err;
    if (k3_engine_open(&engine, MODEL, config, &err) != K3_OK)
        fail_msg("%s", err.text);
    return engine;
}

static const k3_json *read_json(const char *path)
{
    char *text;
    size_t n;
    k3_error err;
    const k3_json *root;
    if (k3_os_read_file(&text, &n, path, 64 << 20, &err) != K3_OK || k3_json_parse(&root, text, n, 0, &err) != K3_OK)
        fail_msg("%s: %s", path, err.text);
    free(text);
    return root;
}

/* The list's ids, malloc'd. */
static int32_t *read_ids(const k3_json *list, size_t *n)
{
    assert_non_null(list);
    int32_t *ids = malloc((list->n_children + 1) * sizeof *ids);
    *n = 0;
    for (const k3_json *v = list->first; v; v = v->next) {
        int64_t id = 0;
        assert_true(k3_json_int(v, &id));
        ids[(*n)++] = (int32_t)id;
    }
    return ids;
}

/* Greedy decoding of all prompts, K3_TOGETHER sessions in shared passes. */
enum { TOGETHER = 16 };

typedef struct talk {
    k3_session *session;
    int32_t *want, next;
    size_t n_want, at;
} talk;

static int32_t largest(const float *logits, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* One more token for each talk that is not over. Returns how many are not. */
static size_t advance(talk *talks, size_t n, int vocab, size_t *n_wrong)
{
    k3_session *sessions[TOGETHER];
    const int32_t *ids[TOGETHER];
    size_t lengths[TOGETHER], m = 0;
    k3_error err;
    for (size_t i = 0; i < n; i++) {
        talk *t = &talks[i];
        if (t->at == t->n_want)
            continue;
        t->next = largest(k3_session_logits(t->session), vocab);
        if (t->next != t->want[t->at]) {
            ++*n_wrong;
            t->at = t->n_want;
        } else if (++t->at < t->n_want) {
            sessions[m] = t->session;
            ids[m] = &t->next;
            lengths[m++] = 1;
        }
    }
    if (m && k3_sessions_append(sessions, ids, lengths, m, &err) != K3_OK)
        fail_msg("%s", err.text);
    return m;
}

static void greedy_answers_equal_those_of_pytorch(void **state)
{
    (void)state;
    k3_config config = {.exact = 1};
    k3_engine *engine = open_engine(&config);
    int vocab = k3_engine_info(engine)->vocab_size;
    const k3_json *prompts = read_json(GOLDEN "prompts.json");
    assert_true(prompts->n_children >= 100);
    size_t n_wrong = 0;
    for (const k3_json *p = prompts->first; p;) {
        talk talks[TOGETHER] = {0};
        size_t n = 0;
        k3_error err;
        for (; p && n < TOGETHER; p = p->next, n++) {
            size_t n_prompt;
            int32_t *ids = read_ids(k3_json_get(p, "prompt_ids"), &n_prompt);
            talks[n].want = read_ids(k3_json_get(p, "output_ids"), &talks[n].n_want);
            if (k3_session_open(&talks[n].session, engine, &err) != K3_OK ||
                k3_session_append(talks[n].session, ids, n_prompt, &err) != K3_OK)
                fail_msg("%s", err.text);
            free(ids);
        }
        while (advance(talks, n, vocab, &n_wrong))
            ;
        for (size_t i = 0; i < n; i++) {
            k3_session_close(talks[i].session);
            free(talks[i].want);
        }
    }
    print_message("           %zu prompts, %zu answers differ\n", prompts->n_children, n_wrong);
    assert_int_equal(n_wrong, 0);
    k3_json_free(prompts);
    k3_engine_close(engine);
}

/* Mean of -ln p over all tokens that have one before them. */
static double nll(const k3_config *config)
{
    k3_engine *engine = open_engine(config);
    size_t vocab = (size_t)k3_engine_info(engine)->vocab_size, n_tokens = 0;
    const k3_json *lists = read_json(GOLDEN "ppl.json");
    double sum = 0;
    for (const k3_json *list = lists->first; list; list = list->next) {
        size_t n;
        int32_t *ids = read_ids(list, &n);
        float *logits = malloc(n * vocab * sizeof *logits);
        k3_session *session;
        k3_error err;
        if (k3_session_open(&session, engine, &err) != K3_OK || k3_session_score(session, logits, ids, n, &err) != K3_OK)
            fail_msg("%s", err.text);
        for (size_t t = 0; t + 1 < n; t++) {
            const float *row = logits + t * vocab;
            double total = 0, max = (double)row[largest(row, (int)vocab)];
            for (size_t i = 0; i < vocab; i++)
                total += exp((double)row[i] - max);
            sum += log(total) + max - (double)row[ids[t + 1]];
            n_tokens++;
        }
        k3_session_close(session);
        free(logits);
        free(ids);
    }
    k3_json_free(lists);
    k3_engine_close(engine);
    return sum / (double)n_tokens;
}

static void a_quantized_trunk_costs_little_perplexity(void **state)
{
    (void)state;
    k3_config exact = {.exact = 1}, bf16 = {.trunk = "bf16"}, int8 = {.trunk = "int8"}, int4 = {.trunk = "int4"};
    double base = exp(nll(&exact)), b = exp(nll(&bf16)), i8 = exp(nll(&int8)), i4 = exp(nll(&int4));
    print_message("           perplexity: exact %.5f, bf16 %+.3f %%, int8 %+.3f %%, int4 %+.3f %%\n", base, 100 * (b / base - 1),
                  100 * (i8 / base - 1), 100 * (i4 / base - 1));
    assert_true(fabs(b / base - 1) < 0.002);
    assert_true(fabs(i8 / base - 1) < 0.01);
    assert_true(fabs(i4 / base - 1) < 0.04);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_answers_equal_those_of_pytorch),
        cmocka_unit_test(a_quantized_trunk_costs_little_perplexity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
