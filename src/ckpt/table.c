#include "ckpt/table.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

static k3_st_tensor **probe(const k3_table *table, const char *name, size_t n)
{
    size_t i = k3_hash_name(name, n, table->slots) & (table->n_slots - 1);
    while (table->slots[i] && (strlen(table->slots[i]->info.name) != n || memcmp(table->slots[i]->info.name, name, n) != 0))
        i = (i + 1) & (table->n_slots - 1);
    return &table->slots[i];
}

k3_status k3_table_build(k3_table *out, k3_st_file *files, char *const *paths, size_t n_files, k3_error *err)
{
    size_t n = 0;
    for (size_t f = 0; f < n_files; f++)
        n += files[f].n_tensors;
    *out = (k3_table){.n_slots = 16, .n_tensors = n};
    while (out->n_slots < n * 2)
        out->n_slots *= 2;
    out->slots = calloc(out->n_slots, sizeof *out->slots);
    if (!out->slots)
        return k3_fail(err, K3_E_NOMEM, "no memory for a table of %zu tensors", n);
    for (size_t f = 0; f < n_files; f++) {
        for (size_t i = 0; i < files[f].n_tensors; i++) {
            k3_st_tensor *t = &files[f].tensors[i];
            k3_st_tensor **slot = probe(out, t->info.name, strlen(t->info.name));
            if (*slot)
                return k3_fail(err, K3_E_FORMAT, "tensor %.200s stands in two files, %s and %s; remove the one that does not belong here",
                               t->info.name, paths[(*slot)->info.shard], paths[f]);
            *slot = t;
        }
    }
    return K3_OK;
}

void k3_table_free(k3_table *table)
{
    free(table->slots);
    *table = (k3_table){0};
}

k3_st_tensor *k3_table_find(const k3_table *table, const char *name, size_t n_bytes)
{
    return *probe(table, name, n_bytes);
}
