/* What the system tells of a machine, as files below a folder: <folder>/proc/meminfo and so on. */
#ifndef K3_TESTS_MOCK_MACHINE_H
#define K3_TESTS_MOCK_MACHINE_H

#include <stdint.h>

/* Writes <folder><path>, its folders too. */
void mock_put(const char *folder, const char *path, const char *text);
/* A machine with `available` free bytes, and this process in a group of cgroup version 1 or 2 (0: none) with a limit: `used` bytes of it,
 * of which `cached` are pages of files. */
void mock_memory(const char *folder, uint64_t available, int version, uint64_t limit, uint64_t used, uint64_t cached);

#endif
