#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "app.h"
#include "terminal.h"

typedef struct pack_counts {
    uint64_t written, verified;
} pack_counts;

static int count(void *user, const char *phase, uint64_t done, uint64_t total)
{
    pack_counts *counts = user;
    *(strcmp(phase, "packing") == 0 ? &counts->written : &counts->verified) = done;
    return app_progress(NULL, phase, done, total);
}

int app_pack(const app_options *options)
{
    pack_counts counts = {0};
    k3_error err = {0};
    double start = app_seconds();
    if (options->quiet)
        app_progress_quiet();
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of write */
    k3_status status = k3_pack(options->model, options->out, options->trunk, count, &counts, &err);
    app_progress_end();
    if (status != K3_OK)
        return app_fail(&err);
    printf("%s: %.3f GB written, %.3f GB verified against %s, %.1f s\n", options->out, (double)counts.written * 1e-9,
           (double)counts.verified * 1e-9, options->model, app_seconds() - start);
    return APP_OK;
}
