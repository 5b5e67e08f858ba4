/* A complete tiny K3 checkpoint in the released layout (13 layers, width 128, 8 experts; 3.7 MB), made in memory, changed at will,
 * then written. Every mechanism of the model is in it, and its weights are random numbers of a size that makes it run sensibly. */
#ifndef K3_TESTS_TINY_CHECKPOINT_H
#define K3_TESTS_TINY_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#define TINY_BODY "language_model.model."

enum {
    TINY_LAYERS = 13,
    TINY_HIDDEN = 128,
    TINY_VOCAB = 256,
    TINY_EXPERTS = 8,
    TINY_EXPERT_INNER = 64,
    TINY_LATENT = 64,
    TINY_KDA_HEADS = 4,
    TINY_KDA_DIM = 16
};

typedef struct tiny_tensor {
    char name[160], dtype[16];
    int rank, shard;
    int64_t shape[5];
    unsigned char *data;
    size_t n_bytes;
    int in_header, in_index; /* 1; a test clears one to make header and index disagree */
} tiny_tensor;

typedef struct tiny_checkpoint {
    tiny_tensor *tensors;
    size_t n_tensors;
    int n_shards;
    char *config;         /* text of config.json; NULL: not written */
    const char *metadata; /* JSON value of __metadata__ in every shard; NULL: absent */
    int has_index;
    int align; /* of the first tensor's bytes in each shard; 8 as released */
    uint64_t random;
} tiny_checkpoint;

/* Layers are spread over n_shards files; the last also holds embedding and head. 1: model.safetensors. Fails the test on trouble. */
tiny_checkpoint *tiny_new(int n_shards);
void tiny_free(tiny_checkpoint *tiny);
/* config.json, nested or flat. */
char *tiny_config(int nested);

tiny_tensor *tiny_find(tiny_checkpoint *tiny, const char *name); /* fails the test if there is none */
tiny_tensor *tiny_add(tiny_checkpoint *tiny, int shard, const char *name, const char *dtype, int rank, const int64_t *shape);
void tiny_remove(tiny_checkpoint *tiny, const char *name);
/* Replaces every occurrence in *text, of which there must be one; *text is malloc'd. */
void tiny_replace(char **text, const char *from, const char *to);

/* A fresh temporary folder; freed and deleted by tiny_remove_folder. */
char *tiny_folder(void);
void tiny_remove_folder(char *folder);
void tiny_write(const tiny_checkpoint *tiny, const char *folder);
/* Writes into a fresh folder and frees. */
char *tiny_settle(tiny_checkpoint *tiny);
void tiny_shard_name(char name[64], const tiny_checkpoint *tiny, int shard);

/* Set-up of a group of tests: the unchanged checkpoint in two shards lies in the folder tiny_model. */
extern char *tiny_model;
int tiny_setup(void **state);
int tiny_teardown(void **state);

/* Files in a folder. */
void tiny_put_file(const char *folder, const char *name, const void *bytes, size_t n_bytes);
char *tiny_get_file(const char *folder, const char *name, size_t *n_bytes);
/* Replaces text in a shard's header, whose length may change; the data stays as it is. */
void tiny_edit_header(const char *folder, const char *shard, const char *from, const char *to);

#endif
