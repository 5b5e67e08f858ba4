/* What the parts of `k3 pull` share: a server with the hub's layout, the files it lists, and the folder they go to. */
#ifndef K3_APPS_PULL_H
#define K3_APPS_PULL_H

#include <curl/curl.h>
#include <openssl/evp.h>
#include <stddef.h>
#include <stdint.h>

#include "buffer.h"

enum { PULL_SHA256 = 32, PULL_ERROR = 512 };

#define PULL_MAX_SIZE ((int64_t)1 << 50) /* of a file; sums over the files of a model stay within 64 bits */

typedef enum pull_state {
    PULL_MISSING, /* or not whole */
    PULL_WHOLE,   /* was there, its size and checksum are right */
    PULL_FETCHED,
    PULL_ABSENT, /* an optional file that the server does not have */
    PULL_FAILED
} pull_state;

typedef struct pull_file {
    char *name;   /* below the folder; pull_name_refusal found nothing */
    int64_t size; /* -1: not known */
    int has_sha256, is_optional;
    unsigned char sha256[PULL_SHA256]; /* as the server has it */
    pull_state state;
    int64_t have;     /* bytes in NAME.part, all of them in `hash` */
    int64_t began;    /* time of the first of them, or of a last run's last, in seconds since 1970 */
    EVP_MD_CTX *hash; /* NULL before the folder was looked through */
} pull_file;

typedef struct pull_files {
    pull_file *items;
    size_t n, capacity;
} pull_files;

typedef struct pull_source {
    char *files;    /* URL of the model; a file is at FILES/resolve/REVISION/NAME */
    char *api;      /* URL of the list, without /tree/... */
    char *revision; /* escaped */
    char *origin;   /* scheme://host:port, the only place that sees the token */
    char *token;    /* NULL: none */
    long n_jobs, n_retries, timeout;
    CURLM *multi;
} pull_source;

/* ---- pull_http.c: requests ---- */

typedef enum pull_kind { PULL_TEXT, PULL_SIZE, PULL_BYTES } pull_kind;

/* One thing to ask for, whatever redirects and attempts it takes. */
typedef struct pull_task {
    pull_kind kind;
    char *url;       /* freed by pull_task_free */
    pull_file *file; /* SIZE: gets size and checksum; BYTES: is written */
    app_buffer body; /* TEXT: the answer */
    char *next;      /* TEXT: URL of the next page; NULL: none */
    long status;     /* of the last answer; 0: there was none */
    int ok;
    char error[PULL_ERROR]; /* if not ok */
} pull_task;

/* Fills in everything that follows from the URL. Returns 1, or 0 after a message. */
int pull_source_open(pull_source *source, const char *url, const char *revision);
void pull_source_close(pull_source *source);
/* scheme://host:port of a URL, malloc'd; NULL if it is none of http or https. */
char *pull_origin(const char *url);
char *pull_file_url(const pull_source *source, const char *name);
/* printf into malloc'd memory. */
char *pull_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
void pull_task_free(pull_task *task);

/* Works through the tasks, n_jobs at a time. A task that fails does not stop the others; the folder (-1 without BYTES) failing does.
 * Returns APP_OK when all tasks have ended, APP_FAILED after a message, or APP_INTERRUPTED. */
/* 64 hex digits; 0: it is something else. */
int pull_parse_sha256(unsigned char out[PULL_SHA256], const char *hex, size_t n);

int pull_run(pull_source *source, pull_task *tasks, size_t n_tasks, int folder);

/* ---- pull_list.c: what there is ---- */

/* Lists the model's files, sizes and checksums, as far as the server tells them. Returns APP_OK or an exit status after a message. */
int pull_list(pull_files *out, pull_source *source);
void pull_files_free(pull_files *files);
/* Why a name from a server is not to be written; NULL: it may be. */
const char *pull_name_refusal(const char *name, size_t n);

/* ---- pull_folder.c: where it goes ---- */

/* Makes and locks the folder. Returns its descriptor, or -1 after a message. */
int pull_folder_open(const char *path);
/* Finds out which files are whole and what there is of the others, n_threads at a time. Returns APP_OK, APP_FAILED after a message, or
 * APP_INTERRUPTED. */
int pull_folder_check(pull_files *files, int folder, long n_threads);
/* Free bytes of the file system. */
uint64_t pull_folder_free_bytes(int folder);
/* Size of a plain file; -1: there is none. */
int64_t pull_folder_size(int folder, const char *name);

/* The functions on parts tell what went wrong, after which nothing more can be written. */
/* Opens NAME.part at the end of the bytes that the file has; -1: failed. */
int pull_part_open(pull_file *file, int folder);
int pull_part_write(pull_file *file, int fd, const char *bytes, size_t n);
int pull_part_restart(pull_file *file, int fd);
/* 1: the bytes have the checksum, or there is none to compare with; 0: they have not, and got[] says what they have. */
int pull_part_matches(const pull_file *file, char got[2 * PULL_SHA256 + 1]);
/* Gives the part its name, after its bytes are on the disk. */
int pull_part_finish(pull_file *file, int fd, int folder);
int pull_part_remove(const pull_file *file, int folder);

/* ---- pull_progress.c: what the user sees ---- */

/* A phase: what is there of what there will be. */
void pull_progress_start(const char *phase, uint64_t done, uint64_t total, size_t n_files_there, size_t n_files);
/* Bytes that came or were read; bytes that are thrown away again; a file that is whole. From any thread. */
void pull_progress_add(size_t n_bytes);
void pull_progress_lose(uint64_t n_bytes);
void pull_progress_file(void);
/* Shows the line if it is time to. */
void pull_progress_show(void);
void pull_progress_end(void);
void pull_progress_quiet(void);
/* One line on stderr after "k3 pull: ". */
void pull_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "17.9 GB" */
const char *pull_size_text(char text[32], uint64_t n_bytes);

#endif
