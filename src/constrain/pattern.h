/* Regular expressions as JSON Schema has them, the part that a grammar can hold: characters, classes, groups, |, quantifiers, and ^ and $
 * at the ends of the alternatives. */
#ifndef K3_CONSTRAIN_PATTERN_H
#define K3_CONSTRAIN_PATTERN_H

#include "constrain/charset.h"

enum { K3_PATTERN_MAX = 4096 }; /* bytes */

/* Text in which the pattern is found, of `least` to `most` characters (0 and K3_GRAMMAR_NO_LIMIT: any). Lengths go together with a pattern
 * between ^ and $ that is a row of characters and classes of which one at most is repeated. K3_E_UNSUPPORTED says what is not read. */
k3_status k3_pattern_node(k3_grammar *g, uint32_t *start, const char *pattern, size_t n, uint32_t least, uint32_t most, k3_text_form form,
                          uint32_t next, k3_error *err);

#endif
