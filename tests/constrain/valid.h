/* Whether a JSON value fits a schema: read from the keywords' definitions, for tests, and nothing of the engine's compiler in it. */
#ifndef K3_TESTS_CONSTRAIN_VALID_H
#define K3_TESTS_CONSTRAIN_VALID_H

#include "base/json.h"

/* `root` is where references begin.. */
int fits(const k3_json *value, const k3_json *schema, const k3_json *root);

#endif
