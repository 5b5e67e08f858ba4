#include "engine/pack_runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

char *pack_base, *pack_tiny;

void pack_must(k3_status status, const k3_error *err)
{
    if (status != K3_OK)
        fail_msg("status %d: %s", (int)status, err->text);
}

const char *pack_in_base(const char *name)
{
    static char rooms[8][300];
    static int next;
    char *room = rooms[next++ % 8];
    snprintf(room, sizeof rooms[0], "%s/%s", pack_base, name);
    return room;
}

void pack_model(const char *model, const char *out, const char *trunk)
{
    k3_error err = {0};
    pack_must(k3_pack(model, out, trunk, NULL, NULL, &err), &err);
}

void pack_check_refused(const char *model, const char *out, const char *trunk, k3_status status, const char *const *needles)
{
    k3_error err = {0};
    k3_status got = k3_pack(model, out, trunk, NULL, NULL, &err);
    if (got != status)
        fail_msg("status %d, wanted %d: %s", (int)got, (int)status, err.text);
    for (; *needles; needles++)
        if (!strstr(err.text, *needles))
            fail_msg("no <%s> in <%s>", *needles, err.text);
}

int pack_exists(const char *folder, const char *name)
{
    char path[400];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return lstat(path, &info) == 0;
}

/* Logits of every token of a fixed text, malloc'd. */
static float *score(const char *model, const char *trunk, size_t *n)
{
    k3_engine *engine;
    k3_session *session;
    k3_error err;
    k3_config config = {.backend = "cpu", .trunk = trunk, .threads = 2};
    pack_must(k3_engine_open(&engine, model, &config, &err), &err);
    int vocab = k3_engine_info(engine)->vocab_size;
    int32_t ids[PACK_PROMPT];
    for (int i = 0; i < PACK_PROMPT; i++)
        ids[i] = (i * 73 + 5) % vocab;
    *n = (size_t)PACK_PROMPT * (size_t)vocab;
    float *logits = malloc(*n * sizeof *logits);
    assert_non_null(logits);
    pack_must(k3_session_open(&session, engine, &err), &err);
    pack_must(k3_session_score(session, logits, ids, PACK_PROMPT, &err), &err);
    k3_session_close(session);
    k3_engine_close(engine);
    return logits;
}

void pack_check_same_logits(const char *model, const char *packed, const char *trunk, const char *asked)
{
    size_t n, m;
    float *want = score(model, trunk, &n), *got = score(packed, asked, &m);
    assert_int_equal(n, m);
    assert_memory_equal(got, want, n * sizeof *got);
    free(want);
    free(got);
}

int pack_set_up(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(14);
    pack_base = tiny_folder();
    pack_tiny = tiny_settle(tiny);
    return 0;
}

int pack_tear_down(void **state)
{
    (void)state;
    tiny_remove_folder(pack_base);
    tiny_remove_folder(pack_tiny);
    return 0;
}
