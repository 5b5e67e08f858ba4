/* All tensors of a checkpoint by name. Used while opening; the engine finds tensors by role. */
#ifndef K3_CKPT_TABLE_H
#define K3_CKPT_TABLE_H

#include "ckpt/safetensors.h"

typedef struct k3_table {
    k3_st_tensor **slots; /* open addressing; n_slots is a power of two */
    size_t n_slots, n_tensors;
} k3_table;

/* A name that stands in two files is K3_E_FORMAT and names both. */
k3_status k3_table_build(k3_table *out, k3_st_file *files, char *const *paths, size_t n_files, k3_error *err);
void k3_table_free(k3_table *table);
k3_st_tensor *k3_table_find(const k3_table *table, const char *name, size_t n_bytes);

#endif
