/* A server with the hub's layout on a loopback port of its own, that does on request what servers should not. The model is owner/mini.
 * Everything here fails the test on trouble. */
#ifndef K3_TESTS_HUB_H
#define K3_TESTS_HUB_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What befalls requests; zero fields do nothing. */
typedef struct hub_fault {
    const char *match;    /* a part of the request line; NULL: no fault */
    int n_times;          /* requests it befalls, before it is over */
    int status;           /* the answer is this and nothing more */
    int retry_after;      /* with `status`: seconds */
    const char *location; /* with `status`: where to; the request's path is added if it ends in ':' and a port */
    long cut_after;       /* the connection ends after so many bytes of the body, -1: after none */
    int hang;             /* after the cut, or before the answer if there is none, nothing comes any more */
    int64_t length;       /* Content-Length that is claimed */
    const char *extra;    /* further header lines */
} hub_fault;

enum { HUB_MAX_FILES = 64, HUB_MAX_FAULTS = 8 };

typedef struct hub_file {
    char name[256];
    const char *bytes;
    size_t n;
    int64_t listed_size; /* -1: as it is */
    char sha256[65];     /* "": not told */
} hub_file;

/* A test sets what it likes before it runs k3. */
typedef struct hub {
    hub_file files[HUB_MAX_FILES];
    int n_files;
    hub_fault faults[HUB_MAX_FAULTS];
    const char *list; /* the API's answer, word for word; NULL: made of the files */
    int no_api, no_ranges, no_heads, no_lengths;
    int linked;      /* checksums and sizes come with the answers: X-Linked-Etag, X-Linked-Size */
    int page;        /* files in a page of the list; 0: all */
    int64_t changed; /* time of Last-Modified, for If-Unmodified-Since */

    int port;
    struct hub_state *state;
} hub;

hub *hub_start(void);
void hub_stop(hub *h);
/* The bytes stay the caller's. */
hub_file *hub_add(hub *h, const char *name, const void *bytes, size_t n);
void hub_add_fault(hub *h, hub_fault fault);
/* Requests so far whose line in the log has the text: "GET /path range=5- token=Bearer x". */
int hub_count(hub *h, const char *text);
void hub_forget(hub *h);
/* Sends the signal once so many more bytes of files have been sent. */
void hub_signal_after(hub *h, int64_t n_bytes, pid_t pid, int signal);

#endif
