/* Machines whose memory has nodes: which threads go to which. */
#ifndef K3_BASE_NODES_H
#define K3_BASE_NODES_H

#include <stddef.h>

typedef struct k3_nodes k3_nodes;

/* Places n_threads: consecutive ones share a node, as few nodes as have a core for each are used, and of nodes of one size the caller's is
 * the first. Only cores that the process may use count. NULL where there is nothing to decide: threads of a machine of one node, or more
 * threads than cores, go where the system puts them. root: "" (a test brings folders of its own). */
k3_nodes *k3_nodes_open(int n_threads, const char *root);
void k3_nodes_close(k3_nodes *nodes);
/* The calling thread becomes thread i: it stays on the cores of its node. */
void k3_nodes_enter(const k3_nodes *nodes, int i);
/* Memory that has not been touched will lie on the nodes that are used, dealt to them page by page: threads of all of them read it, and
 * whoever touches it first may be none of them. */
void k3_nodes_spread(const k3_nodes *nodes, void *at, size_t bytes);

#endif
