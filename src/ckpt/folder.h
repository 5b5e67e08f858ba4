/* Where a model's files are: the folder that holds config.json, the shards, and what the index says about them. */
#ifndef K3_CKPT_FOLDER_H
#define K3_CKPT_FOLDER_H

#include "base/json.h"
#include "ckpt/table.h"

#define K3_INDEX_NAME "model.safetensors.index.json"

typedef struct k3_folder {
    char *path; /* links resolved */
    int has_index;
    const k3_json *index; /* NULL: none, or k3_folder_drop_index was called */
    const k3_json *map;   /* its weight_map */
    char **shards;        /* file names, sorted */
    size_t n_shards;
    size_t n_unlisted; /* *.safetensors files that the index does not name */
    char first_unlisted[96];
} k3_folder;

/* Finds the folder (a model folder, a download cache's root, a link to either) and its shards, all of which exist. */
k3_status k3_folder_open(k3_folder *out, const char *given, k3_error *err);
void k3_folder_close(k3_folder *folder);

/* Frees the parsed index (some 100 MB for the release), which only k3_folder_check_index needs. */
void k3_folder_drop_index(k3_folder *folder);

/* folder/name, malloc'd; NULL without memory. */
char *k3_folder_join(const char *folder, const char *name);

/* Compares the index with the headers: marks each tensor it lists, refuses one that is not where it says. */
k3_status k3_folder_check_index(const k3_folder *folder, k3_st_file *files, const k3_table *table, k3_error *err);

#endif
