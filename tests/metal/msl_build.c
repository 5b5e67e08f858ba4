#include "msl_build.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#ifndef MSL_CLANG
#define MSL_CLANG "" /* none was found */
#endif

/* Metal's literals are single. Threadgroup scalars look uninitialised to the compiler wherever one thread sets them for all. */
static const char *const front_options[] = {
    "-x",
    "cl",
    "-cl-std=clc++2021",
    "-cl-no-stdinc",
    "-cl-single-precision-constant",
    "-Xclang",
    "-cl-ext=+all",
    "-isystem",
    MSL_SHIM,
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-attributes",
    "-Wno-char-subscripts",
    "-Wno-sometimes-uninitialized",
    "-Wno-unused-variable",
    "-Xclang",
    "-disable-llvm-passes",
    "-emit-llvm",
    "-S",
};
/* Products and sums round one by one, as in the other backends. Variables that nobody set are NaN or an odd pattern. */
static const char *const common_options[] = {
    "-O2",
    "-fPIC",
    "-g1",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-optimize-sibling-calls",
    "-fno-math-errno",
    "-ftrivial-auto-var-init=pattern",
#ifdef MSL_THREAD_SANITIZER
    "-fsanitize=thread",
#else
    "-fsanitize=bounds",
    "-fno-sanitize-recover=bounds",
    "-fsanitize-minimal-runtime",
#endif
};
/* Code lies in the order of the text, which tells the place of one simdgroup operation from another; no call is duplicated. */
static const char *const back_options[] = {
    "-shared", "-Wno-override-module",    "-mllvm", "-disable-block-placement",
    "-mllvm",  "-disable-tail-duplicate", "-mllvm", "-disable-early-taildup",
};

#define N(array) (sizeof(array) / sizeof *(array))

enum { MAX_PATH_BYTES = 1024 };

typedef struct command {
    const char *arguments[N(front_options) + N(common_options) + N(back_options) + MSL_MAX_CONSTANTS + 8];
    int n;
} command;

static void add(command *c, const char *argument)
{
    c->arguments[c->n++] = argument;
}

static void add_all(command *c, const char *const *arguments, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add(c, arguments[i]);
}

/* Fused multiply-add and conversion of halves in hardware, where this machine has them. */
static const char *architecture(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
        return "-march=x86-64-v3";
    return "-march=x86-64";
#else
    return "-mcpu=generic";
#endif
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return NULL;
    size_t n = 0, room = 1 << 16;
    char *text = malloc(room);
    while (text != NULL) {
        n += fread(text + n, 1, room - n - 1, f);
        if (n < room - 1)
            break;
        room *= 2;
        char *more = realloc(text, room);
        if (more == NULL)
            free(text);
        text = more;
    }
    if (text != NULL)
        text[n] = '\0';
    fclose(f);
    return text;
}

/* Two sums of 64 bits over a text and its end. */
static void add_to_hash(uint64_t hash[2], const char *text)
{
    for (const char *c = text;; c++) {
        hash[0] = (hash[0] ^ (unsigned char)*c) * 0x100000001b3u;
        hash[1] = (hash[1] ^ (unsigned char)*c ^ 0x5a) * 0x9e3779b97f4a7c15u;
        if (*c == '\0')
            return;
    }
}

static int add_shim_to_hash(uint64_t hash[2], char *message, size_t message_size)
{
    static const char *const files[] = {"metal_stdlib", "msl_types.h",  "msl_math.h", "msl_runtime.h",
                                        "msl_atomic.h", "msl_matrix.h", "msl_simd.h"};
    for (size_t i = 0; i < N(files); i++) {
        char path[MAX_PATH_BYTES];
        snprintf(path, sizeof path, "%s/%s", MSL_SHIM, files[i]);
        char *text = read_file(path);
        if (text == NULL) {
            snprintf(message, message_size, "cannot read %s", path);
            return -1;
        }
        add_to_hash(hash, text);
        free(text);
    }
    return 0;
}

/* Runs clang; what it says goes to file `log` and, when it fails, to the message. */
static int run(const command *c, const char *log, char *message, size_t message_size)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    pid_t child;
    int status = -1;
    int error = posix_spawn(&child, MSL_CLANG, &actions, NULL, (char *const *)(uintptr_t)c->arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error == 0)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    char *said = read_file(log);
    unlink(log);
    if (status != 0)
        snprintf(message, message_size, "%s", said != NULL && said[0] != '\0' ? said : "clang does not run");
    free(said);
    return status == 0 ? 0 : -1;
}

/* Writes the text. A reference to an array of vectors, "float4 (&x)[8]", would call the constructor's macro: an empty word goes between. */
static void write_source(FILE *f, const char *source)
{
    static const char reference[] = " (&";
    for (const char *found; (found = strstr(source, reference)) != NULL; source = found + 1)
        fprintf(f, "%.*s MSL_NOTHING", (int)(found - source), source);
    fputs(source, f);
}

static bool write_text(const msl_text *text, const char *path)
{
    FILE *f = fopen(path, "w");
    if (f == NULL)
        return false;
    fprintf(f, "#line 1 \"%s.metal\"\n", text->entry);
    write_source(f, text->source);
    fprintf(f, "\n#line 1 \"thunk\"\n%s", text->thunk);
    return fclose(f) == 0;
}

/* A threadgroup variable of the kernel, "@_ZZ3addE4name = internal global [8 x float] undef, align 16", becomes a visible one of a section
 * of its own: the compiler may no longer assume to know all that is stored there, and the executor can find and poison it. False: the line
 * is something else. */
static bool move_variable(FILE *out, const char *line, const char *entry)
{
    static const char internal[] = " = internal global ", align[] = ", align ";
    char prefix[256];
    snprintf(prefix, sizeof prefix, "@_ZZ%zu%sE", strlen(entry), entry);
    const char *global = strncmp(line, prefix, strlen(prefix)) == 0 ? strstr(line, internal) : NULL;
    const char *tail = global != NULL ? strstr(global, align) : NULL;
    if (tail == NULL)
        return false;
    const char *type = global + strlen(internal);
    fprintf(out, "%.*s = hidden global %.*s, section \"msl_threadgroup\"%s\n", (int)(global - line), line, (int)(tail - type), type, tail);
    return true;
}

/* Kernels are called as functions are: their own convention is not there for every processor. */
static void write_line(FILE *out, const char *line)
{
    static const char convention[] = " spir_kernel";
    for (const char *found; (found = strstr(line, convention)) != NULL; line = found + strlen(convention))
        fprintf(out, "%.*s", (int)(found - line), line);
    fprintf(out, "%s\n", line);
}

static bool adapt(const char *from, const char *to, const char *entry)
{
    char *text = read_file(from);
    FILE *out = fopen(to, "w");
    char *next = text;
    while (out != NULL && next != NULL && *next != '\0') {
        char *line = next, *end = strchrnul(line, '\n');
        next = *end == '\0' ? end : end + 1;
        *end = '\0';
        if (!move_variable(out, line, entry))
            write_line(out, line);
    }
    bool right = text != NULL && out != NULL;
    free(text);
    return out != NULL && fclose(out) == 0 && right;
}

static int compile(const msl_text *text, const char *stem, const char *path, char *message, size_t message_size)
{
    enum { BYTES = MAX_PATH_BYTES + 8 };
    char source[BYTES], raw[BYTES], adapted[BYTES], object[BYTES], log[BYTES];
    snprintf(source, sizeof source, "%s.cl", stem);
    snprintf(raw, sizeof raw, "%s.raw.ll", stem);
    snprintf(adapted, sizeof adapted, "%s.ll", stem);
    snprintf(object, sizeof object, "%s.so", stem);
    snprintf(log, sizeof log, "%s.log", stem);
    command front = {.arguments = {MSL_CLANG}, .n = 1}, back = front;
    add_all(&front, front_options, N(front_options));
    add_all(&front, common_options, N(common_options));
    add(&front, architecture());
    char defines[MSL_MAX_CONSTANTS][40];
    for (int i = 0; i < text->n_constants; i++) {
        snprintf(defines[i], sizeof defines[i], "-DMSL_FC_%" PRIu32 "=%" PRIu32 "u", text->constants[i].id, text->constants[i].value);
        add(&front, defines[i]);
    }
    add(&front, source);
    add(&front, "-o");
    add(&front, raw);
    add_all(&back, common_options, N(common_options));
    add_all(&back, back_options, N(back_options));
    add(&back, architecture());
    add(&back, adapted);
    add(&back, "-lm");
    add(&back, "-o");
    add(&back, object);
    int rc = -1;
    if (!write_text(text, source))
        snprintf(message, message_size, "cannot write %s", source);
    else if (run(&front, log, message, message_size) == 0) {
        if (!adapt(raw, adapted, text->entry))
            snprintf(message, message_size, "cannot write %s", adapted);
        else if (run(&back, log, message, message_size) == 0)
            rc = rename(object, path);
    }
    unlink(source);
    unlink(raw);
    unlink(adapted);
    return rc;
}

int msl_build(const msl_text *text, const char *cache, char *path, size_t path_size, char *message, size_t message_size)
{
    uint64_t hash[2] = {0xcbf29ce484222325u, 0x84222325cbf29ce4u};
    if (MSL_CLANG[0] == '\0') {
        snprintf(message, message_size, "there is no clang");
        return -1;
    }
    if (text->n_constants > MSL_MAX_CONSTANTS) {
        snprintf(message, message_size, "more than %d constants", MSL_MAX_CONSTANTS);
        return -1;
    }
    add_to_hash(hash, text->source);
    add_to_hash(hash, text->thunk);
    for (int i = 0; i < text->n_constants; i++) {
        char constant[32];
        snprintf(constant, sizeof constant, "%" PRIu32 "=%" PRIu32, text->constants[i].id, text->constants[i].value);
        add_to_hash(hash, constant);
    }
    add_to_hash(hash, MSL_CLANG);
    add_to_hash(hash, architecture());
    for (size_t i = 0; i < N(front_options); i++)
        add_to_hash(hash, front_options[i]);
    for (size_t i = 0; i < N(common_options); i++)
        add_to_hash(hash, common_options[i]);
    for (size_t i = 0; i < N(back_options); i++)
        add_to_hash(hash, back_options[i]);
    if (add_shim_to_hash(hash, message, message_size) != 0)
        return -1;
    if (mkdir(cache, 0777) != 0 && errno != EEXIST) {
        snprintf(message, message_size, "cannot make %s", cache);
        return -1;
    }
    snprintf(path, path_size, "%s/%s-%016" PRIx64 "%016" PRIx64 ".so", cache, text->entry, hash[0], hash[1]);
    if (access(path, R_OK) == 0)
        return 0;
    char stem[MAX_PATH_BYTES];
    snprintf(stem, sizeof stem, "%s/%s-%016" PRIx64 ".%ld", cache, text->entry, hash[0], (long)getpid());
    return compile(text, stem, path, message, message_size);
}
