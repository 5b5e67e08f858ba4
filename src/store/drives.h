/* The drives that a model lies on: of what kind they are, and how fast its files can be read, by the reads that experts are read with. */
#ifndef K3_STORE_DRIVES_H
#define K3_STORE_DRIVES_H

#include "base/file_system.h"
#include "ckpt/ckpt.h"

typedef struct k3_drive {
    k3_file_system fs;
    char folder[256]; /* of the first shard, links followed; its end if it is longer */
    int n_shards;
    uint64_t bytes;   /* of the shards */
    char notice[256]; /* what the reader has to say of them, such as that they come through the page cache, which makes the rate too good */
} k3_drive;

typedef struct k3_drives {
    int n;
    k3_drive list[K3_MAX_DRIVES];
    double rates[K3_MAX_DRIVES]; /* bytes per second; 0: not known */
    int is_measured;             /* else stated */
} k3_drives;

/* Reads nothing. */
void k3_drives_find(k3_drives *out, const k3_ckpt *ckpt);
/* Sets the rates: one drive after another, each with at most 256 MiB spread over its shards, or what comes within two seconds. */
k3_status k3_drives_measure(k3_drives *drives, const k3_ckpt *ckpt, k3_error *err);
/* Every drive delivers that. */
void k3_drives_state(k3_drives *drives, double rate);
/* Why this drive may hold up the model, a line without its end; 0: nothing is known against it. */
int k3_drives_warning(char *text, size_t size, const k3_drives *drives, int drive);

#endif
