/* A drive that fails on demand: a library that stands between a program and the system's reads (pread, io_uring). Tests of the reader are
 * linked with it; other programs get it preloaded, and are told by the variable K3_IO_FAULTS, read when they start.
 *
 * It touches descriptors that were opened with open() for reading. The text is NAME=VALUE,NAME=VALUE...; reads are counted from 1 since
 * the last k3_io_faults, and 0 is never:
 *   files=TEXT         only files whose path contains it
 *   short=N            a read gives an N-th of its bytes, at least one; what it gave too much is overwritten
 *   eintr=N eagain=N   every n-th read is interrupted, or could not be started
 *   eio=N              the n-th read fails with EIO; eio_times=M: so do the M-1 after it
 *   bad=B bad_times=M  a read that begins at or holds byte B of a file fails with EIO, M times (no limit if not given)
 *   no_direct=1        O_DIRECT is refused when a file is opened; no_direct_reads=N: direct reads are refused from the n-th on
 *   cached=1           O_DIRECT is taken and ignored
 *   no_uring=E         io_uring is refused with that errno
 *   no_enter=E         io_uring can be set up, and nothing be submitted, for that errno
 *   cut=N cut_to=B     before the n-th read its file is cut to B bytes
 *   hold=1             nothing finishes until the next k3_io_faults
 *   rate=R             a clock that reads alone move: each puts the monotonic clock forward by its bytes at R bytes per second, on top of
 * the time that passes; what was put forward stays other=TEXT         files whose path contains it lie on another drive; other_rate=R:
 * which has a rate of its own fs=N               the number of the file system's type report=PATH        counters are written there when
 * the program ends */
#ifndef K3_TESTS_IO_FAULTS_H
#define K3_TESTS_IO_FAULTS_H

#include <stdint.h>

/* Replaces what was asked for; counters and log start anew, except that `keep` goes on with them. */
void k3_io_faults(const char *text, int keep);
/* Counters: reads, direct (reads), bytes (asked for), longest (read), faults, dropped (bytes whose page cache was given up), rings. */
uint64_t k3_io_faults_count(const char *name);

/* The log: reads as they start and finish. Returns how many of them there are so far; at most n are written. */
typedef struct k3_io_event {
    int is_start;
    uint64_t offset, bytes;
} k3_io_event;
int k3_io_faults_log(k3_io_event *events, int n);

#endif
