/* The system's calls about files that are written, about memory and about the machine, counted, refused or answered by the test that is
 * linked with this. Files count whose path begins with `watched`; a path that is opened relative to a folder counts with that folder's. */
#ifndef K3_TESTS_CALLS_H
#define K3_TESTS_CALLS_H

#include <stddef.h>
#include <stdint.h>

typedef enum calls_kind {
    CALLS_OPEN, /* for writing: fopen, open, openat, mkstemp */
    CALLS_WRITE,
    CALLS_FLUSH, /* fflush, and the ftruncate that gives a file its size */
    CALLS_SYNC,
    CALLS_CLOSE,  /* of what was opened for writing; it is closed all the same */
    CALLS_RENAME, /* to a watched path */
    CALLS_KINDS
} calls_kind;

typedef struct calls_state {
    /* What the test asks for. */
    const char *watched; /* NULL: nothing */
    int fail_kind;       /* the fail_at-th call of this kind fails with fail_errno; fail_at 0: none does */
    long fail_at;        /* from 1 */
    int fail_errno;
    const char *refused; /* nothing below this path may be written, made, renamed or removed: refuse_errno */
    int refuse_errno;
    int lock_errno; /* mlock and mlock2 are refused with it, after lock_first bytes */
    uint64_t lock_first;
    int no_onfault;      /* mlock2 is not there */
    const char *machine; /* a folder in which /proc/meminfo, /proc/self/cgroup and /sys/fs/cgroup are looked for */

    /* What has happened. */
    long n[CALLS_KINDS];
    uint64_t written; /* bytes, to watched files */
    long n_refused;
    uint64_t locked; /* bytes */
    long n_locks;
    long n_hints;      /* huge pages were wanted */
    long n_file_hints; /* of memory that holds a mapped file */
} calls_state;

extern calls_state calls;

/* Nothing is asked for, and nothing has happened. */
void calls_reset(void);

#endif
