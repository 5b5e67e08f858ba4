/* Lets the bundled model answer held-out prompts, so that a program linked around it can look on. */
#ifndef K3_TOOLS_DRIVE_H
#define K3_TOOLS_DRIVE_H

#include "k3.h"

typedef struct k3_drive {
    const char *family; /* NULL: the short families in turn */
    int first, n;       /* prompts of the family, or of each family */
    int together;       /* sessions that share passes */
    int max_tokens;     /* of an answer */
} k3_drive;

/* Prefill of each prompt, then greedy answers. Ends the program with a message on stderr if anything fails. */
void k3_drive_run(k3_engine *engine, const k3_drive *drive);
k3_engine *k3_drive_open(int chunk_rows);

#endif
