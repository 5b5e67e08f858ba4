/* What the tests of k3_pack share: a tiny model, folders to pack it to, and the logits of what comes out. */
#ifndef K3_TESTS_ENGINE_PACK_RUNS_H
#define K3_TESTS_ENGINE_PACK_RUNS_H

#include "k3.h"
#include "support/tiny_checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define PACK_LAST "model-00014-of-00014.safetensors" /* of tiny: 13 layers and the rest */

enum { PACK_SHARDS = TINY_LAYERS + 1, PACK_PROMPT = 40 };

extern char *pack_base, *pack_tiny; /* a folder for anything; the model, in 14 shards */

int pack_set_up(void **state);
int pack_tear_down(void **state);

void pack_must(k3_status status, const k3_error *err);
/* "BASE/NAME", in one of a few buffers. */
const char *pack_in_base(const char *name);
int pack_exists(const char *folder, const char *name);

/* Packs or fails the test with the message. */
void pack_model(const char *model, const char *out, const char *trunk);
/* Packing must fail with this status and a message that holds every needle. */
void pack_check_refused(const char *model, const char *out, const char *trunk, k3_status status, const char *const *needles);
#define assert_refused(model, out, trunk, status, ...)                                                                                     \
    pack_check_refused(model, out, trunk, status, (const char *const[]){__VA_ARGS__, NULL})

/* The packed model, opened with the trunk `asked` for, gives the bits of the model with `trunk`. */
void pack_check_same_logits(const char *model, const char *packed, const char *trunk, const char *asked);

#endif
