/* The bundled model: the same greedy answers as PyTorch in exact mode, and what a quantized trunk costs. */
#include "base/json.h"
#include "base/os.h"
#include "k3.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    const k3_json *root = NULL;
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

/* n greedy ids after a prompt. `mark`: rewound to the end of the prompt and decoded again first, which must compute no token. */
static void greedy(int32_t *out, size_t n, const k3_config *config, const int32_t *prompt, size_t n_prompt, int mark)
{
    k3_engine *engine = open_engine(config);
    k3_session *session;
    k3_error err;
    assert_int_equal(k3_session_open(&session, engine, &err), K3_OK);
    if (k3_session_append(session, prompt, n_prompt, &err) != K3_OK)
        fail_msg("%s", err.text);
    for (int again = 0; again <= mark; again++) {
        if (again) {
            assert_int_equal(k3_session_rewind(session, (int64_t)n_prompt, &err), K3_OK);
            assert_int_equal(k3_session_length(session), n_prompt);
            assert_non_null(k3_session_logits(session));
        } else if (mark) {
            assert_int_equal(k3_session_mark(session, &err), K3_OK);
        }
        for (size_t i = 0; i < n; i++) {
            int32_t id = largest(k3_session_logits(session), k3_engine_info(engine)->vocab_size);
            if (again)
                assert_int_equal(id, out[i]);
            out[i] = id;
            assert_int_equal(k3_session_append(session, &id, 1, &err), K3_OK);
        }
    }
    k3_session_close(session);
    k3_engine_close(engine);
}

/* The prompt_ids of the first entry of a family. */
static int32_t *prompt_of(const char *path, const char *family, size_t *n)
{
    const k3_json *rows = read_json(path), *p = rows->first;
    while (p && !k3_json_text_is(k3_json_get(p, "family"), family))
        p = p->next;
    assert_non_null(p);
    int32_t *ids = read_ids(k3_json_get(p, "prompt_ids"), n);
    k3_json_free(rows);
    return ids;
}

static void c26_a_long_prompt_in_any_chunks_gives_the_same_answer(void **state)
{
    (void)state;
    static const struct {
        const char *family;
        size_t at_least;
        int chunks[4];
    } prompts[] = {{"recall", 80, {65536, 1, 7, 64}}, {"recall at 4k", 3900, {65536, 61, 0, 0}}};
    for (int f = 0; f < 2; f++) {
        size_t n;
        int32_t *prompt = prompt_of(GOLDEN "eval.json", prompts[f].family, &n), want[32], got[32];
        assert_true(n >= prompts[f].at_least);
        for (int i = 0; i < 4 && prompts[f].chunks[i]; i++) {
            k3_config config = {.chunk_rows = prompts[f].chunks[i]};
            greedy(i ? got : want, 32, &config, prompt, n, 0);
            if (i)
                assert_memory_equal(got, want, sizeof want);
        }
        free(prompt);
    }
}

static void c46_d06_every_level_decodes_the_same_64_tokens(void **state)
{
    (void)state;
    static const char *const levels[] = {"cpu:scalar", "cpu:avx2", "cpu:avx512", "cpu:amx", "cpu:neon"};
    const char *const families[] = {"arithmetic", "units"};
    for (int f = 0; f < 2; f++) {
        size_t n;
        int32_t *prompt = prompt_of(GOLDEN "prompts.json", families[f], &n), want[64], got[64];
        for (int l = 0; l < 4; l++) {
            k3_engine *engine;
            k3_config config = {.backend = levels[l]};
            if (k3_engine_open(&engine, MODEL, &config, NULL) != K3_OK)
                continue;
            k3_engine_close(engine);
            greedy(l ? got : want, 64, &config, prompt, n, 0);
            if (l)
                assert_memory_equal(got, want, sizeof want);
        }
        free(prompt);
    }
}

static void c45_an_answer_made_again_computes_no_prompt(void **state)
{
    (void)state;
    size_t n;
    int32_t *prompt = prompt_of(GOLDEN "eval.json", "recall", &n), out[24];
    k3_config config = {0};
    greedy(out, 24, &config, prompt, n, 1);
    free(prompt);
}

typedef struct said {
    char reasoning[4000], content[4000];
} said;

static void listen(void *user, k3_chat_event_kind kind, int index, const char *text, size_t n)
{
    (void)index;
    said *s = user;
    char *to = kind == K3_CHAT_REASONING ? s->reasoning : s->content;
    size_t at = strlen(to);
    assert_true(at + n < sizeof s->content);
    memcpy(to + at, text, n);
    to[at + n] = 0;
}

/* A string as JSON; the model's text needs no more than these escapes. */
static void quote(char *out, const char *text)
{
    *out++ = '"';
    for (; *text; text++) {
        if (*text == '"' || *text == '\\' || *text == '\n')
            *out++ = '\\';
        *out++ = *text == '\n' ? 'n' : *text;
    }
    *out++ = '"';
    *out = 0;
}

static void c20_the_second_turn_begins_with_the_ids_of_the_first(void **state)
{
    (void)state;
    k3_engine *engine = open_engine(NULL);
    k3_session *session;
    k3_chat_parser *parser;
    k3_tokens first = {0}, second = {0};
    k3_error err;
    said s = {"", ""};
    int thinking, done = 0;
    const char *question = "{\"messages\":[{\"role\":\"user\",\"content\":\"What is 58 plus 67?\"}]}";
    assert_int_equal(k3_session_open(&session, engine, &err), K3_OK);
    assert_int_equal(k3_chat_render(engine, &first, &thinking, question, &err), K3_OK);
    assert_int_equal(k3_chat_parser_open(&parser, engine, thinking, listen, &s, &err), K3_OK);
    assert_int_equal(k3_session_append(session, first.ids, first.n, &err), K3_OK);
    while (!done && k3_session_length(session) < 400) {
        int32_t id = largest(k3_session_logits(session), k3_engine_info(engine)->vocab_size);
        assert_int_equal(k3_chat_parser_push(parser, id, &done, &err), K3_OK);
        assert_int_equal(k3_session_append(session, &id, 1, &err), K3_OK);
    }
    assert_string_equal(k3_chat_parser_finish(parser), "stop");
    assert_non_null(strstr(s.content, "125"));
    assert_true(s.reasoning[0] != 0);
    static char request[20000], reasoning[8010], content[8010];
    quote(reasoning, s.reasoning);
    quote(content, s.content);
    snprintf(request, sizeof request,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"What is 58 plus 67?\"},{\"role\":\"assistant\",\"reasoning_content\":%s,"
             "\"content\":%s},{\"role\":\"user\",\"content\":\"And 3 plus 4?\"}]}",
             reasoning, content);
    if (k3_chat_render(engine, &second, &thinking, request, &err) != K3_OK)
        fail_msg("%s", err.text);
    assert_true(second.n > (size_t)k3_session_length(session));
    assert_memory_equal(second.ids, k3_session_ids(session), (size_t)k3_session_length(session) * sizeof *second.ids);
    k3_chat_parser_close(parser);
    k3_tokens_free(&first);
    k3_tokens_free(&second);
    k3_session_close(session);
    k3_engine_close(engine);
}

static void b16_a_text_that_cannot_fit_is_refused_before_it_is_encoded(void **state)
{
    (void)state;
    const size_t n = (size_t)64 << 20;
    k3_engine *engine = open_engine(NULL);
    k3_tokens tokens = {0};
    k3_error err;
    char *text = malloc(n + 4);
    for (size_t i = 0; i < n; i += 3)
        memcpy(text + i, "\xe4\xb8\xad", 3);
    text[n] = 0;
    uint64_t start = k3_os_nanoseconds();
    assert_int_equal(k3_tokenize(engine, &tokens, text, n, &err), K3_E_INVALID);
    assert_non_null(strstr(err.text, "67108864 bytes"));
    assert_int_equal(k3_chat_render(engine, &tokens, NULL, text, &err), K3_E_INVALID);
    /* Encoding takes a hundred times as long as looking at the length. */
    assert_true(k3_os_nanoseconds() - start < 1000000000u);
    assert_int_equal(tokens.n, 0);
    assert_int_equal(k3_tokenize(engine, &tokens, text, 3000, &err), K3_OK);
    assert_true(tokens.n > 0);
    k3_tokens_free(&tokens);
    free(text);
    k3_engine_close(engine);
}

/* ---- saved sessions -------------------------------------------------------------------------------------------------------- */

static void add_text(k3_tokens *ids, const k3_engine *engine, const char *text, size_t n)
{
    k3_error err;
    if (k3_tokenize(engine, ids, text, n, &err) != K3_OK)
        fail_msg("%s", err.text);
}

/* The bytes of all tokens, 0-terminated, malloc'd. */
static char *bytes_of(const k3_engine *engine, const k3_tokens *ids)
{
    size_t n = 0, at = 0;
    const char *bytes;
    for (size_t i = 0; i < ids->n; at += n, i++)
        assert_int_equal(k3_token_bytes(engine, &bytes, &n, ids->ids[i], NULL), K3_OK);
    char *text = calloc(at + 1, 1);
    assert_non_null(text);
    for (size_t i = at = 0; i < ids->n; at += n, i++) {
        assert_int_equal(k3_token_bytes(engine, &bytes, &n, ids->ids[i], NULL), K3_OK);
        memcpy(text + at, bytes, n);
    }
    return text;
}

/* Brings a session to these ids; how many were computed for it. */
static size_t follow(k3_session *session, const k3_tokens *ids)
{
    k3_error err;
    const int32_t *held = k3_session_ids(session);
    int64_t same = 0, length = k3_session_length(session);
    while (same < length && (size_t)same < ids->n && held[same] == ids->ids[same])
        same++;
    if (same < length)
        assert_int_equal(k3_session_rewind(session, same, &err), K3_OK);
    size_t from = (size_t)k3_session_length(session);
    if (from < ids->n && k3_session_append(session, ids->ids + from, ids->n - from, &err) != K3_OK)
        fail_msg("%s", err.text);
    return ids->n - from;
}

/* Rows of all passes so far. */
static unsigned long long rows_of(k3_engine *engine)
{
    char text[16384];
    unsigned long long passes, rows = 0;
    k3_engine_stats(engine, text, sizeof text, 0);
    if (sscanf(text, "%llu passes of %llu rows", &passes, &rows) != 2)
        assert_null(strstr(text, " passes of "));
    return rows;
}

static k3_session *load(k3_engine *engine, const char *path)
{
    k3_session *session;
    k3_error err;
    if (k3_session_open(&session, engine, &err) != K3_OK || k3_session_load(session, path, &err) != K3_OK)
        fail_msg("%s", err.text);
    return session;
}

/* Case G16: a file that spells the names of control tokens is saved by its ids. The same file computes nothing when the engine is opened
 * again; ids that spell the same text, one of them a control token, share no more than what comes before it. */
static void g16_a_saved_session_is_found_by_its_ids(void **state)
{
    (void)state;
    static const char before[] = "static const char *const ends[] = {\"", after[] = "\", \"[EOS]\"}; /* <|open|>think<|sep|> */\n";
    char path[] = "/tmp/k3-saved-XXXXXX", source[256];
    const char *name;
    size_t n_name;
    k3_error err;
    k3_session *session;
    k3_tokens first = {0}, again = {0}, twin = {0};
    close(mkstemp(path));
    k3_engine *engine = open_engine(&(k3_config){.backend = "cpu"});
    size_t logits_bytes = (size_t)k3_engine_info(engine)->vocab_size * sizeof(float);
    float *saved = malloc(logits_bytes), *fresh = malloc(logits_bytes);
    int32_t control = k3_engine_info(engine)->eos_id;
    assert_int_equal(k3_token_bytes(engine, &name, &n_name, control, NULL), K3_OK);
    snprintf(source, sizeof source, "%s%.*s%s", before, (int)n_name, name, after);
    add_text(&first, engine, source, strlen(source));
    for (size_t i = 0; i < first.n; i++)
        assert_false(k3_token_is_special(engine, first.ids[i]));
    assert_int_equal(k3_session_open(&session, engine, &err), K3_OK);
    assert_int_equal(follow(session, &first), first.n);
    assert_int_equal(rows_of(engine), first.n);
    memcpy(saved, k3_session_logits(session), logits_bytes);
    if (k3_session_save(session, path, &err) != K3_OK)
        fail_msg("%s", err.text);
    k3_session_close(session);

    add_text(&twin, engine, before, strlen(before));
    size_t n_before = twin.n;
    twin.ids = realloc(twin.ids, (twin.n + 1) * sizeof *twin.ids);
    assert_non_null(twin.ids);
    twin.ids[twin.n++] = control;
    twin.capacity = twin.n;
    add_text(&twin, engine, after, strlen(after));
    char *text = bytes_of(engine, &first), *twin_text = bytes_of(engine, &twin);
    assert_string_equal(text, source);
    assert_string_equal(twin_text, source);
    assert_true(n_before < first.n && (first.n != twin.n || memcmp(first.ids, twin.ids, first.n * sizeof *first.ids) != 0));
    assert_int_equal(k3_session_open(&session, engine, &err), K3_OK);
    assert_int_equal(follow(session, &twin), twin.n);
    memcpy(fresh, k3_session_logits(session), logits_bytes);
    assert_memory_not_equal(fresh, saved, logits_bytes);
    k3_session_close(session);
    k3_engine_close(engine);

    engine = open_engine(&(k3_config){.backend = "cpu"});
    session = load(engine, path);
    add_text(&again, engine, source, strlen(source));
    assert_int_equal(follow(session, &again), 0);
    assert_int_equal(rows_of(engine), 0);
    assert_memory_equal(k3_session_logits(session), saved, logits_bytes);
    k3_session_close(session);
    session = load(engine, path);
    assert_int_equal(follow(session, &twin), twin.n);
    assert_int_equal(rows_of(engine), twin.n);
    assert_memory_equal(k3_session_logits(session), fresh, logits_bytes);
    k3_session_close(session);
    k3_engine_close(engine);
    unlink(path);
    k3_tokens_free(&first);
    k3_tokens_free(&again);
    k3_tokens_free(&twin);
    free(text);
    free(twin_text);
    free(saved);
    free(fresh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_answers_equal_those_of_pytorch),
        cmocka_unit_test(a_quantized_trunk_costs_little_perplexity),
        cmocka_unit_test(c26_a_long_prompt_in_any_chunks_gives_the_same_answer),
        cmocka_unit_test(c46_d06_every_level_decodes_the_same_64_tokens),
        cmocka_unit_test(c45_an_answer_made_again_computes_no_prompt),
        cmocka_unit_test(b16_a_text_that_cannot_fit_is_refused_before_it_is_encoded),
        cmocka_unit_test(g16_a_saved_session_is_found_by_its_ids),
        cmocka_unit_test(c20_the_second_turn_begins_with_the_ids_of_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
