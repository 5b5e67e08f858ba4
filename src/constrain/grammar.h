/* A grammar over the symbols of an answer: bytes, the chat format's markers, and the border between two tokens. It is a set of rules, each
 * a graph of nodes that is built from its end to its start: every builder takes the node that follows and returns the one that leads there.
 * Equal nodes are one node, so equal ends of rules are shared. */
#ifndef K3_CONSTRAIN_GRAMMAR_H
#define K3_CONSTRAIN_GRAMMAR_H

#include "base/error.h"

enum {
    K3_GRAMMAR_RETURN = 0, /* the node that ends every rule */
    K3_GRAMMAR_DEAD = 1,   /* a node that nothing gets past */
    K3_GRAMMAR_MAX_NODES = 1 << 20,
    K3_GRAMMAR_MAX_DEPTH = 240, /* rules inside rules while text is read; below what the JSON reader takes */
    K3_GRAMMAR_NO_WAY = 1 << 20 /* height of a node from which no end is reached */
};
#define K3_GRAMMAR_NO_LIMIT UINT32_MAX

typedef enum k3_grammar_kind {
    K3_NODE_RETURN,
    K3_NODE_DEAD,
    K3_NODE_BYTES,  /* a byte from lo to hi */
    K3_NODE_MARKER, /* marker number lo */
    K3_NODE_BORDER, /* a token ends here */
    K3_NODE_SPLIT,  /* next or other */
    K3_NODE_CALL,   /* rule number other, then next */
    K3_NODE_LOOP    /* loop number other, then next */
} k3_grammar_kind;

typedef struct k3_grammar_node {
    uint8_t kind, lo, hi;
    uint32_t next, other;
} k3_grammar_node;

typedef struct k3_grammar_loop {
    uint32_t rule, least, most; /* most: K3_GRAMMAR_NO_LIMIT for none */
} k3_grammar_loop;

typedef struct k3_grammar {
    k3_grammar_node *nodes;
    uint32_t n_nodes, node_capacity;
    uint32_t *index; /* nodes by content: number + 1, 0 is empty */
    uint32_t index_mask;
    uint32_t *rules; /* start nodes */
    uint32_t n_rules, rule_capacity;
    k3_grammar_loop *loops;
    uint32_t n_loops, loop_capacity;
    uint32_t *heights; /* [n_nodes]: how deep rules nest at least on the way from a node to the end of its rule */
    int failed;        /* no memory */
    int too_large;     /* more than K3_GRAMMAR_MAX_NODES: everything built since is RETURN */
} k3_grammar;

void k3_grammar_free(k3_grammar *g);
/* A rule whose start is set later, so that it can call itself. */
uint32_t k3_grammar_rule(k3_grammar *g);
void k3_grammar_set(k3_grammar *g, uint32_t rule, uint32_t start);

uint32_t k3_grammar_bytes(k3_grammar *g, uint8_t lo, uint8_t hi, uint32_t next);
uint32_t k3_grammar_text(k3_grammar *g, const char *text, size_t n, uint32_t next);
uint32_t k3_grammar_word(k3_grammar *g, const char *text, uint32_t next); /* 0-terminated */
uint32_t k3_grammar_marker(k3_grammar *g, uint8_t number, uint32_t next);
uint32_t k3_grammar_border(k3_grammar *g, uint32_t next);
uint32_t k3_grammar_either(k3_grammar *g, uint32_t a, uint32_t b);
uint32_t k3_grammar_call(k3_grammar *g, uint32_t rule, uint32_t next);
/* The rule, which must not match nothing, `least` to `most` times. */
uint32_t k3_grammar_loop_of(k3_grammar *g, uint32_t rule, uint32_t least, uint32_t most, uint32_t next);

/* One of n texts; they are sorted in place. Equal beginnings are read once. */
typedef struct k3_grammar_choice {
    const char *text;
    size_t n;
    uint32_t next;
} k3_grammar_choice;
uint32_t k3_grammar_one_of(k3_grammar *g, k3_grammar_choice *choices, size_t n);

/* Works out the heights, after which nothing is added. K3_E_NOMEM; K3_E_UNSUPPORTED if the grammar is too large. */
k3_status k3_grammar_finish(k3_grammar *g, k3_error *err);

#endif
