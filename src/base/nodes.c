#include "base/nodes.h"

#include <stdlib.h>

#ifdef __linux__
#include <dirent.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_NODES = 64 };

typedef struct k3_node {
    int id, n_cores, is_here; /* is_here: the caller runs there */
    cpu_set_t cores;          /* those that the process may use */
} k3_node;

struct k3_nodes {
    k3_node nodes[MOST_NODES];
    int n, n_used; /* the first n_used have threads */
    uint64_t used; /* bits of their ids */
};

/* A list of cores such as 0-3,8,10-11, of which those in `allowed` count; a node without cores has an empty line. */
static void read_cores(k3_node *node, const char *path, const cpu_set_t *allowed)
{
    FILE *file = fopen(path, "re");
    int first, last, more = file != NULL;
    while (more && fscanf(file, "%d", &first) == 1) {
        int c = fgetc(file);
        last = first;
        if (c == '-' && fscanf(file, "%d", &last) == 1)
            c = fgetc(file);
        for (int i = first; i >= 0 && i <= last && i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, allowed))
                CPU_SET(i, &node->cores);
        more = c == ',';
    }
    if (file)
        fclose(file);
    node->n_cores = CPU_COUNT(&node->cores);
}

static int larger_first(const void *a, const void *b)
{
    const k3_node *x = a, *y = b;
    if (x->n_cores != y->n_cores)
        return y->n_cores - x->n_cores;
    return x->is_here != y->is_here ? y->is_here - x->is_here : x->id - y->id;
}

static void read_nodes(k3_nodes *nodes, const char *root)
{
    char path[600];
    cpu_set_t allowed;
    int id, n_read, here = sched_getcpu();
    snprintf(path, sizeof path, "%s/sys/devices/system/node", root);
    DIR *folder = sched_getaffinity(0, sizeof allowed, &allowed) ? NULL : opendir(path);
    for (const struct dirent *entry; folder && nodes->n < MOST_NODES && (entry = readdir(folder));) {
        k3_node *node = &nodes->nodes[nodes->n];
        if (sscanf(entry->d_name, "node%d%n", &id, &n_read) != 1 || entry->d_name[n_read] || id < 0 || id >= MOST_NODES)
            continue;
        *node = (k3_node){.id = id};
        CPU_ZERO(&node->cores);
        snprintf(path, sizeof path, "%s/sys/devices/system/node/node%d/cpulist", root, id);
        read_cores(node, path, &allowed);
        node->is_here = here >= 0 && here < CPU_SETSIZE && CPU_ISSET(here, &node->cores);
        nodes->n += node->n_cores > 0; /* a node may have memory only */
    }
    if (folder)
        closedir(folder);
    qsort(nodes->nodes, (size_t)nodes->n, sizeof *nodes->nodes, larger_first);
}

k3_nodes *k3_nodes_open(int n_threads, const char *root)
{
    k3_nodes *nodes = calloc(1, sizeof *nodes);
    if (!nodes)
        return NULL;
    read_nodes(nodes, root);
    int n_cores = 0;
    for (; nodes->n_used < nodes->n && n_cores < n_threads; nodes->n_used++) {
        n_cores += nodes->nodes[nodes->n_used].n_cores;
        nodes->used |= (uint64_t)1 << nodes->nodes[nodes->n_used].id;
    }
    if (nodes->n > 1 && n_cores >= n_threads)
        return nodes;
    free(nodes);
    return NULL;
}

void k3_nodes_enter(const k3_nodes *nodes, int i)
{
    if (!nodes)
        return;
    const k3_node *node = nodes->nodes;
    for (; i >= node->n_cores; node++)
        i -= node->n_cores;
    (void)sched_setaffinity(0, sizeof node->cores, &node->cores); /* where it is refused the thread stays where it is */
}

void k3_nodes_spread(const k3_nodes *nodes, void *at, size_t bytes)
{
    if (nodes)
        (void)syscall(SYS_mbind, at, bytes, MPOL_INTERLEAVE, &nodes->used, 8 * sizeof nodes->used + 1, 0);
}

#else

k3_nodes *k3_nodes_open(int n_threads, const char *root)
{
    (void)n_threads;
    (void)root;
    return NULL;
}

void k3_nodes_enter(const k3_nodes *nodes, int i)
{
    (void)nodes;
    (void)i;
}

void k3_nodes_spread(const k3_nodes *nodes, void *at, size_t bytes)
{
    (void)nodes;
    (void)at;
    (void)bytes;
}

#endif

void k3_nodes_close(k3_nodes *nodes)
{
    free(nodes);
}
