/* Walks a grammar. A configuration is every place of the grammar that the text read so far may have come to, each with the rules that it is
 * inside of. Those are kept as sets that share what they have in common (a place whose rules can be seen in two ways is one place with two
 * ways out), so an ambiguous grammar costs no more than its size a level. Equal sets and equal configurations are one number, and steps
 * are remembered by it. No place is entered from which the end could not be reached within K3_GRAMMAR_MAX_DEPTH rules. */
#ifndef K3_CONSTRAIN_AUTOMATON_H
#define K3_CONSTRAIN_AUTOMATON_H

#include "constrain/grammar.h"

typedef struct k3_automaton k3_automaton;

enum { K3_CONFIG_DEAD = 0 }; /* the configuration without places */

/* The grammar is finished, and outlives the automaton. *start is where nothing has been read of `rule`. */
k3_status k3_automaton_open(k3_automaton **out, uint32_t *start, const k3_grammar *grammar, uint32_t rule, k3_error *err);
void k3_automaton_close(k3_automaton *a);

uint32_t k3_automaton_byte(k3_automaton *a, uint32_t config, uint8_t byte);
uint32_t k3_automaton_marker(k3_automaton *a, uint32_t config, uint8_t marker);
/* The token ends: borders are passed. Every configuration between two tokens has been through this. */
uint32_t k3_automaton_end_token(k3_automaton *a, uint32_t config);
int k3_automaton_is_over(const k3_automaton *a, uint32_t config); /* the rule may end here */
/* The steps of bytes from a configuration as far as they are known, [256], -1 where not; NULL when the room for them is used up. It stays
 * until k3_automaton_trim. */
const int32_t *k3_automaton_steps(k3_automaton *a, uint32_t config);
/* A configuration from which a token of `longest` bytes finds what it finds from `config`: counts that such a token cannot bring to
 * a limit are all the same. */
uint32_t k3_automaton_blur(k3_automaton *a, uint32_t config, uint32_t longest);

/* Once much has been remembered, forgets all but `config`, whose new number is returned; *did_trim tells. */
uint32_t k3_automaton_trim(k3_automaton *a, uint32_t config, int *did_trim);
/* What follows may take its time again. */
void k3_automaton_rest(k3_automaton *a);
/* K3_E_UNSUPPORTED since a step, or all since k3_automaton_rest, took too long; K3_E_NOMEM since something did not fit: what was asked
 * since then is not to be relied on. */
k3_status k3_automaton_state(const k3_automaton *a, k3_error *err);

#endif
