#include "app.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "buffer.h"
#include "terminal.h"

int app_fail(const k3_error *err)
{
    app_progress_end();
    app_end_thinking();
    fprintf(stderr, "k3: %s\n", err->text);
    return err->status == K3_E_CANCELLED ? APP_INTERRUPTED : APP_FAILED;
}

/* Makes the folder for compiled kernels, or says why there is none. One that may not be written is for the engine to tell: kernels that are
 * there already can be used. */
static int app_folder(const char *path)
{
    struct stat st;
    const char *why = NULL;
    int is_new = !mkdir(path, 0777), number = errno;
    if (!is_new && number != EEXIST && number != EROFS && number != EACCES)
        why = strerror(number);
    else if (!stat(path, &st) && !S_ISDIR(st.st_mode))
        why = "a file found, a folder wanted";
    if (why)
        fprintf(stderr, "k3: --kernel-cache %s: %s\n", path, why);
    return !why;
}

k3_config app_config(const app_options *options)
{
    return (k3_config){.backend = options->backend,
                       .trunk = options->trunk,
                       .exact = options->exact,
                       .threads = (int)options->threads,
                       .chunk_rows = (int)options->chunk_rows,
                       .progress = app_progress,
                       .ram = options->ram,
                       .vram = options->vram,
                       .expert_devices = options->expert_devices,
                       .kernel_cache = options->kernel_cache,
                       .kernels = options->kernels,
                       .usage = options->usage,
                       .timing = options->stats,
                       .lock = options->lock,
                       .disk_rate = (double)options->disk_rate};
}

k3_sampling app_sampling(const app_options *o)
{
    return (k3_sampling){
        .temperature = (float)o->temperature, .top_p = (float)o->top_p, .top_k = (int)o->top_k, .min_p = (float)o->min_p, .seed = o->seed};
}

int app_open_engine(k3_engine **out, const app_options *options)
{
    k3_error err = {0};
    k3_config config = app_config(options);
    if (options->kernel_cache && !app_folder(options->kernel_cache))
        return APP_FAILED;
    if (options->quiet)
        app_progress_quiet();
    k3_status status = k3_engine_open(out, options->model, &config, &err);
    app_progress_end();
    if (status != K3_OK)
        return app_fail(&err);
    if (!options->quiet)
        fprintf(stderr, "k3: %s\n", k3_engine_info(*out)->plan);
    return APP_OK;
}

/* 0: there is none, or it was shown before. */
static int show_once(char *shown, size_t size, const char *notice)
{
    if (!notice || strcmp(notice, shown) == 0)
        return 0;
    snprintf(shown, size, "%s", notice);
    app_progress_end();
    app_end_thinking();
    fprintf(stderr, "k3: %s\n", notice);
    return 1;
}

void app_show_notice(const k3_engine *engine, const app_options *options)
{
    static char shown[512], of_drive[512];
    const k3_info *info = k3_engine_info(engine);
    if (show_once(shown, sizeof shown, info->notice) && !options->quiet)
        fprintf(stderr, "k3: %s\n", info->plan);
    (void)show_once(of_drive, sizeof of_drive, info->drive_notice);
}

void app_close_engine(k3_engine *engine, const app_options *options)
{
    if (engine)
        app_show_notice(engine, options);
    k3_engine_close(engine);
}

void app_add_id(k3_tokens *tokens, int32_t id)
{
    if (tokens->n == tokens->capacity) {
        size_t capacity = 2 * tokens->n + 64;
        int32_t *ids = app_alloc(capacity, sizeof *ids);
        if (tokens->n)
            memcpy(ids, tokens->ids, tokens->n * sizeof *ids);
        free(tokens->ids);
        tokens->ids = ids;
        tokens->capacity = capacity;
    }
    tokens->ids[tokens->n++] = id;
}

int app_parse_ids(k3_tokens *out, const char *verb, const char *text)
{
    for (const char *at = text;;) {
        char *end;
        errno = 0;
        long id = strtol(at, &end, 10);
        while (isspace((unsigned char)*end))
            end++;
        if (end == at || errno || id < 0 || id > INT32_MAX || (*end && *end != ',')) {
            fprintf(stderr, "k3 %s: --ids \"%.40s\": ids separated by commas wanted, such as 1,2,3; \"%.20s\" is not one\n", verb, text,
                    at);
            return APP_USAGE;
        }
        app_add_id(out, (int32_t)id);
        if (!*end)
            return APP_OK;
        at = end + 1;
    }
}
