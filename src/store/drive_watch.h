/* Whether a drive becomes slower while it is used: what it delivered in the first 30 seconds in which it was read, beside the last 30. Time
 * in which nothing was read counts nowhere, so an idle drive is not a slow one. Zero-initialised, a watch has seen nothing. */
#ifndef K3_STORE_DRIVE_WATCH_H
#define K3_STORE_DRIVE_WATCH_H

#include <stdint.h>

enum { K3_WATCH_PIECES = 32 }; /* of a second at least, so that they hold more than a window */

typedef struct k3_watch_sum {
    uint64_t bytes, busy_ns;
} k3_watch_sum;

typedef struct k3_drive_watch {
    k3_watch_sum start;                   /* the first window, or what there is of it */
    k3_watch_sum pieces[K3_WATCH_PIECES]; /* a ring */
    int newest;
    uint64_t since_ns; /* busy after the first window */
    int has_fallen;
} k3_drive_watch;

/* What came since the last call, and how long that took. */
void k3_drive_watch_add(k3_drive_watch *watch, uint64_t bytes, uint64_t busy_ns);
/* The newest window, or what there is of it. */
k3_watch_sum k3_drive_watch_last(const k3_drive_watch *watch);
double k3_watch_rate(const k3_watch_sum *sum); /* bytes per second; 0: nothing was read */
/* 1, once: a whole window lies behind the first one, and its rate is more than 30 % below. */
int k3_drive_watch_fell(k3_drive_watch *watch);

#endif
