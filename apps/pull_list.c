#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "options.h"
#include "pull.h"

enum { MAX_FILES = 10000, MAX_PAGES = 1000, MAX_NAME = 1000, MAX_COMPONENT = 250 }; /* with ".part" 255, what file systems take */

/* ---- names --------------------------------------------------------------------------------------------------------- */

static const char *component_refusal(const char *name, size_t n)
{
    if (n == 0)
        return "an empty part of a path";
    if ((n == 1 && name[0] == '.') || (n == 2 && memcmp(name, "..", 2) == 0))
        return "a path through . or ..";
    if (n > MAX_COMPONENT)
        return "a part longer than 250 bytes";
    return NULL;
}

const char *pull_name_refusal(const char *name, size_t n)
{
    if (n && name[0] == '/')
        return "an absolute path";
    if (n > MAX_NAME)
        return "longer than 1000 bytes";
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return "a control character";
        if (name[i] == '\\')
            return "a backslash";
    }
    if (n >= 5 && memcmp(name + n - 5, ".part", 5) == 0)
        return "the ending of unfinished files";
    for (size_t at = 0;;) {
        const char *slash = memchr(name + at, '/', n - at);
        size_t end = slash ? (size_t)(slash - name) : n;
        const char *why = component_refusal(name + at, end - at);
        if (why || !slash)
            return why;
        at = end + 1;
    }
}

/* ---- the list ------------------------------------------------------------------------------------------------------ */

static pull_file *find(const pull_files *files, const char *name)
{
    for (size_t i = files->n; i-- > 0;)
        if (strcmp(files->items[i].name, name) == 0)
            return &files->items[i];
    return NULL;
}

/* NULL after a message. */
static pull_file *add(pull_files *files, const char *name, size_t n)
{
    const char *why = pull_name_refusal(name, n);
    if (!why && find(files, name))
        why = "listed twice";
    if (!why && files->n == MAX_FILES)
        why = "one file too many; a model of up to 10000 wanted";
    if (why) {
        app_buffer shown = {0};
        app_buffer_json(&shown, name, n < 200 ? n : 200);
        pull_tell("the server lists the file %s: %s; nothing is fetched", shown.text, why);
        app_buffer_free(&shown);
        return NULL;
    }
    if (files->n == files->capacity) {
        files->capacity = 2 * files->n + 16;
        pull_file *items = app_alloc(files->capacity, sizeof *items);
        if (files->n)
            memcpy(items, files->items, files->n * sizeof *items);
        free(files->items);
        files->items = items;
    }
    pull_file *f = &files->items[files->n++];
    *f = (pull_file){.name = app_alloc(n + 1, 1), .size = -1};
    memcpy(f->name, name, n);
    return f;
}

void pull_files_free(pull_files *files)
{
    for (size_t i = 0; i < files->n; i++) {
        free(files->items[i].name);
        EVP_MD_CTX_free(files->items[i].hash);
    }
    free(files->items);
    *files = (pull_files){0};
}

/* GETs a text. 1: there it is; 0: the task says why not; -1: stopped by Ctrl-C. Frees what the task held. */
static int get(pull_task *task, pull_source *source, char *url)
{
    pull_task_free(task);
    *task = (pull_task){.kind = PULL_TEXT, .url = url};
    int status = pull_run(source, task, 1, -1);
    return status == APP_INTERRUPTED ? -1 : task->ok;
}

/* ---- from the API -------------------------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
    return at ? (int)(at - digits) : -1;
}

int pull_parse_sha256(unsigned char out[PULL_SHA256], const char *hex, size_t n)
{
    if (n != 2 * PULL_SHA256)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (hex_digit(hex[i]) < 0)
            return 0;
    for (size_t i = 0; i < PULL_SHA256; i++)
        out[i] = (unsigned char)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    return 1;
}

/* {"type": "file", "path": "a/b", "size": 7, "lfs": {"oid": "<64 hex digits>"}} */
static int add_entry(pull_files *files, app_json entry)
{
    app_json path = app_json_get(entry, "path"), oid = app_json_get(app_json_get(entry, "lfs"), "oid");
    if (!app_json_is(app_json_get(entry, "type"), "file"))
        return APP_OK;
    if (app_json_kind(path) != '"') {
        pull_tell("the server's list of files has one without a path");
        return APP_FAILED;
    }
    app_buffer text = {0};
    app_json_decode(&text, path);
    pull_file *f = add(files, text.text, text.n);
    app_buffer_clear(&text);
    if (f && (!app_json_int(app_json_get(entry, "size"), &f->size) || f->size < 0 || f->size > PULL_MAX_SIZE)) {
        pull_tell("the server's list gives %s no size from 0 to 2^50", f->name);
        f = NULL;
    }
    if (f && app_json_kind(oid) == '"') {
        app_json_decode(&text, oid);
        size_t skip = text.n > 7 && memcmp(text.text, "sha256:", 7) == 0 ? 7 : 0;
        f->has_sha256 = pull_parse_sha256(f->sha256, text.text + skip, text.n - skip);
    }
    app_buffer_free(&text);
    return f ? APP_OK : APP_FAILED;
}

static int is_no_api(long status)
{
    return status == 404 || status == 405 || status == 410 || status == 501;
}

/* Sets *has_api to 0, without a message, if the server does not know such lists. */
static int list_api(pull_files *files, pull_source *source, int *has_api)
{
    pull_task task = {0};
    char *url = pull_text("%s/tree/%s?recursive=true", source->api, source->revision);
    int status = APP_OK;
    for (int page = 0; url && status == APP_OK; page++) {
        int got = get(&task, source, url);
        size_t wrong;
        app_json list = app_json_whole(task.body.text ? task.body.text : "", task.body.n, &wrong), entry;
        int is_list = app_json_kind(list) == '[';
        if (got < 0) {
            status = APP_INTERRUPTED;
        } else if (page == 0 && (got ? !is_list : is_no_api(task.status))) {
            *has_api = 0;
            break;
        } else if (!got || !is_list || page == MAX_PAGES) {
            pull_tell("the list of files: %s", !got ? task.error : !is_list ? "a JSON array wanted" : "more than 1000 pages");
            status = APP_FAILED;
        }
        for (size_t at = 0; status == APP_OK && app_json_next(NULL, &entry, &at, list);)
            status = add_entry(files, entry);
        url = status == APP_OK ? task.next : NULL;
        if (url)
            task.next = NULL;
    }
    pull_task_free(&task);
    return status;
}

/* ---- from the index ------------------------------------------------------------------------------------------------ */

static const char index_name[] = "model.safetensors.index.json";

static int add_shards(pull_files *files, const app_buffer *text)
{
    size_t wrong = 0;
    app_json index = app_json_whole(text->text ? text->text : "", text->n, &wrong), map = app_json_get(index, "weight_map"), shard,
             last = {NULL, 0};
    if (app_json_kind(map) != '{') {
        pull_tell("%s: an object weight_map wanted, none found%s", index_name, index.text ? "" : ", for it is no JSON");
        return APP_FAILED;
    }
    for (size_t at = 0; app_json_next(NULL, &shard, &at, map);) {
        app_buffer name = {0};
        if (last.text && last.n == shard.n && memcmp(last.text, shard.text, shard.n) == 0)
            continue;
        last = shard;
        app_json_decode(&name, shard);
        int ok = (strlen(name.text) == name.n && find(files, name.text)) || add(files, name.text, name.n);
        app_buffer_free(&name);
        if (!ok)
            return APP_FAILED;
    }
    return APP_OK;
}

static int list_index(pull_files *files, pull_source *source)
{
    static const char *const small[] = {"config.json",         "generation_config.json",
                                        "tiktoken.model",      "tokenizer_config.json",
                                        "tokenizer.json",      "special_tokens_map.json",
                                        "chat_template.jinja", "preprocessor_config.json",
                                        "README.md",           "LICENSE"};
    pull_task task = {0};
    int got = get(&task, source, pull_file_url(source, index_name)), status = APP_OK;
    if (got < 0) {
        status = APP_INTERRUPTED;
    } else if (got) {
        add(files, index_name, strlen(index_name));
        status = add_shards(files, &task.body);
    } else if (task.status == 404) {
        add(files, "model.safetensors", strlen("model.safetensors"));
    } else {
        pull_tell("%s: %s", index_name, task.error);
        status = APP_FAILED;
    }
    pull_task_free(&task);
    for (size_t i = 0; status == APP_OK && i < sizeof small / sizeof *small; i++)
        if (!find(files, small[i]))
            add(files, small[i], strlen(small[i]))->is_optional = i > 0;
    return status;
}

static int ask_sizes(pull_files *files, pull_source *source)
{
    pull_task *tasks = app_alloc(files->n, sizeof *tasks);
    for (size_t i = 0; i < files->n; i++)
        tasks[i] = (pull_task){.kind = PULL_SIZE, .url = pull_file_url(source, files->items[i].name), .file = &files->items[i]};
    int status = pull_run(source, tasks, files->n, -1);
    for (size_t i = 0; i < files->n; i++) {
        if (status != APP_INTERRUPTED && !tasks[i].ok) {
            pull_tell("%s: %s", files->items[i].name, tasks[i].error);
            status = APP_FAILED;
        }
        pull_task_free(&tasks[i]);
    }
    free(tasks);
    return status;
}

int pull_list(pull_files *out, pull_source *source)
{
    int has_api = 1, status = list_api(out, source, &has_api);
    if (!has_api && status == APP_OK) {
        status = list_index(out, source);
        if (status == APP_OK)
            status = ask_sizes(out, source);
    }
    if (status == APP_OK && !out->n) {
        pull_tell("the server lists no files");
        status = APP_FAILED;
    }
    return status;
}
