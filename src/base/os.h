/* Facts about the machine: cores this process may use, memory it may take, time. */
#ifndef K3_BASE_OS_H
#define K3_BASE_OS_H

#include "base/error.h"

int k3_os_cores(void);            /* affinity mask and cgroup quota respected; at least 1 */
uint64_t k3_os_nanoseconds(void); /* monotonic */
void k3_os_yield(void);
int k3_os_exists(const char *path); /* a file, folder or link that leads somewhere */

/* Bytes free for new use: the machine's and those of the groups that the process is in, page cache counted as free. Where the system does
 * not tell what is free, *is_guess (or NULL) is 1, and half of the machine's memory stands for it: 0 is never a value of the system's. */
uint64_t k3_os_memory_available(int *is_guess);

/* How much memory the process may lock, in words. */
void k3_os_lock_limit(char *out, size_t size);

/* As many open files as the system lets the process have without asking anyone, 65536 at most: a model has hundreds of shards, and each is
 * open several times. */
void k3_os_allow_files(void);

/* Whole file into malloc'd memory, 0-terminated. Larger than max_bytes is K3_E_FORMAT. */
k3_status k3_os_read_file(char **text, size_t *n_bytes, const char *path, uint64_t max_bytes, k3_error *err);

#endif
