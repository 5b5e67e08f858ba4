/* What kind of file system a file lies on. */
#ifndef K3_BASE_FILE_SYSTEM_H
#define K3_BASE_FILE_SYSTEM_H

typedef struct k3_file_system {
    char name[32]; /* such as "ext4" or "fuse.sshfs"; the type's number if it has no name here */
    int is_shared; /* a network, another machine or another program delivers its bytes */
} k3_file_system;

void k3_file_system_of(k3_file_system *out, int fd);

#endif
