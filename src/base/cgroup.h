/* What the system's control groups say of this process, in either version of their files. */
#ifndef K3_BASE_CGROUP_H
#define K3_BASE_CGROUP_H

#include <stddef.h>

/* Folder of the process's own group in hierarchy v2 (controller NULL), or of a v1 controller; 0 if there is none. */
int k3_cgroup_path(char *out, size_t size, const char *controller);
/* Makes it the folder of the group above; 0 if there is none. */
int k3_cgroup_up(char *path);
/* Number in file `name` of a group's folder; 0 if there is none (also for "max"). */
int k3_cgroup_number(long long *out, const char *path, const char *name);
/* The two numbers in it; 0 if there are fewer. */
int k3_cgroup_numbers(long long *first, long long *second, const char *path, const char *name);

#endif
