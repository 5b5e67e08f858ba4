#include "drive.h"

#include "base/json.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOGETHER = 16 };

static const char *const families[] = {"talk", "tools", "recall", "arithmetic", "facts", "sorting", "units", "spelling"};
enum { N_FAMILIES = sizeof families / sizeof *families };

typedef struct answer {
    k3_session *session;
    int32_t next;
    int left;
} answer;

static void must(k3_status status, const k3_error *err)
{
    if (status == K3_OK)
        return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

k3_engine *k3_drive_open(int chunk_rows)
{
    k3_config config = {.backend = "cpu", .chunk_rows = chunk_rows};
    k3_engine *engine;
    k3_error err;
    must(k3_engine_open(&engine, "models/k3-mini", &config, &err), &err);
    return engine;
}

/* The i-th prompt of a family, or NULL. */
static const k3_json *prompt_of(const k3_json *all, const char *family, int i)
{
    for (const k3_json *p = all->first; p; p = p->next)
        if (k3_json_text_is(k3_json_get(p, "family"), family) && !i--)
            return k3_json_get(p, "prompt_ids");
    return NULL;
}

static void begin(k3_engine *engine, answer *a, const k3_json *prompt, int max_tokens)
{
    int32_t *ids = malloc(sizeof *ids * prompt->n_children);
    size_t n = 0;
    k3_error err;
    for (const k3_json *v = prompt->first; v; v = v->next) {
        int64_t id = 0;
        k3_json_int(v, &id);
        ids[n++] = (int32_t)id;
    }
    must(k3_session_open(&a->session, engine, &err), &err);
    must(k3_session_append(a->session, ids, n, &err), &err);
    a->left = max_tokens;
    free(ids);
}

/* Picks each session's next token and appends it; an answer that ends gives its session up. */
static void advance(k3_engine *engine, answer *answers, int *n)
{
    const k3_info *info = k3_engine_info(engine);
    k3_session *sessions[MAX_TOGETHER];
    const int32_t *ids[MAX_TOGETHER];
    size_t lengths[MAX_TOGETHER];
    k3_error err;
    int kept = 0;
    for (int i = 0; i < *n; i++) {
        answer *a = &answers[i];
        const float *logits = k3_session_logits(a->session);
        a->next = 0;
        for (int id = 1; id < info->vocab_size; id++)
            if (logits[id] > logits[a->next])
                a->next = id;
        if (a->next == info->eos_id || !a->left--)
            k3_session_close(a->session);
        else
            answers[kept++] = *a;
    }
    for (int i = 0; i < kept; i++) {
        sessions[i] = answers[i].session;
        ids[i] = &answers[i].next;
        lengths[i] = 1;
    }
    if (kept)
        must(k3_sessions_append(sessions, ids, lengths, (size_t)kept, &err), &err);
    *n = kept;
}

void k3_drive_run(k3_engine *engine, const k3_drive *drive)
{
    const k3_json *all;
    char *text;
    size_t n_bytes;
    k3_error err;
    answer answers[MAX_TOGETHER];
    int n = 0, at = 0, end = drive->n * (drive->family ? 1 : N_FAMILIES);
    must(k3_os_read_file(&text, &n_bytes, "tests/golden/mini/eval.json", 64 << 20, &err), &err);
    must(k3_json_parse(&all, text, n_bytes, 0, &err), &err);
    while (at < end || n) {
        for (; n < drive->together && at < end; at++) {
            const char *family = drive->family ? drive->family : families[at % N_FAMILIES];
            const k3_json *prompt = prompt_of(all, family, drive->first + (drive->family ? at : at / N_FAMILIES));
            if (prompt)
                begin(engine, &answers[n++], prompt, drive->max_tokens);
        }
        advance(engine, answers, &n);
    }
    k3_json_free(all);
    free(text);
}
