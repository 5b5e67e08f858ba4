/* What tests of sessions share: a tiny checkpoint, ids, an engine and sessions on it that open or fail the test. */
#ifndef K3_TESTS_ENGINE_SESSIONS_H
#define K3_TESTS_ENGINE_SESSIONS_H

#include "k3.h"
#include "support/leaks.h"
#include "support/tiny_checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 45, V = TINY_VOCAB };

static char *folder;
static int32_t ids[N];

static inline void ok(k3_status status, const k3_error *err)
{
    if (status != K3_OK)
        fail_msg("%s", err->text);
}

static inline void refused(k3_status status, k3_status wanted, const k3_error *err, const char *part)
{
    if (status != wanted || !strstr(err->text, part))
        fail_msg("status %d, \"%s\"; wanted %d and \"%s\"", (int)status, status ? err->text : "", (int)wanted, part);
}

static inline k3_engine *open_engine(const k3_config *config)
{
    k3_engine *engine;
    k3_error err;
    ok(k3_engine_open(&engine, folder, config, &err), &err);
    return engine;
}

static inline k3_session *open_session(k3_engine *engine)
{
    k3_session *session;
    k3_error err;
    ok(k3_session_open(&session, engine, &err), &err);
    return session;
}

static inline void append(k3_session *session, const int32_t *more, size_t n)
{
    k3_error err;
    ok(k3_session_append(session, more, n, &err), &err);
}

static inline int has_level(const char *level)
{
    k3_engine *engine;
    k3_config config = {.backend = level};
    if (k3_engine_open(&engine, folder, &config, NULL) != K3_OK)
        return 0;
    k3_engine_close(engine);
    return 1;
}

static inline int setup(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++)
        ids[i] = (i * 73 + 5) % V;
    tiny_checkpoint *tiny = tiny_new(2);
    folder = tiny_folder();
    tiny_write(tiny, folder);
    tiny_free(tiny);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    tiny_remove_folder(folder);
    return 0;
}

#endif
