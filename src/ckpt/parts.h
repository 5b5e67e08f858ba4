/* What an open checkpoint consists of; for the files of this folder. */
#ifndef K3_CKPT_PARTS_H
#define K3_CKPT_PARTS_H

#include "ckpt/folder.h"
#include "ckpt/layout.h"

struct k3_ckpt {
    k3_folder folder;
    k3_hparams hp;
    k3_st_file *files; /* [folder.n_shards] */
    int *fds;          /* [folder.n_shards]; -1 where not open */
    char **paths;      /* [folder.n_shards] */
    int *drives;       /* [folder.n_shards]: index into devices */
    uint64_t devices[K3_MAX_DRIVES];
    int n_drives;
    k3_layout layout;
    char warning[800];
};

#endif
