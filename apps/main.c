#include <stdio.h>
#include <string.h>

#include "app.h"
#include "manual.h"
#include "terminal.h"

static int find_verb(const char *name)
{
    for (size_t i = 0; i < app_n_verbs; i++)
        if (strcmp(app_verbs[i].name, name) == 0)
            return (int)i;
    return -1;
}

static void print_usage(FILE *out)
{
    fprintf(out, "k3 %s: runs Moonshot's Kimi K3\n\nusage: k3 VERB MODEL [options]\n\n", K3_VERSION);
    for (size_t i = 0; i < app_n_verbs; i++)
        fprintf(out, "  %-9s %.*s\n", app_verbs[i].name, (int)strcspn(app_verbs[i].help, "\n"), app_verbs[i].help);
    fprintf(out, "\n`k3 help VERB` explains a verb; `k3 help man|bash|zsh|fish` prints the manual page or a shell's completions.\nMODEL is "
                 "the folder with config.json and the safetensors files.\n"
                 "Exit status: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C.\n");
}

static int unknown_verb(const char *name)
{
    const char *names[16] = {0};
    for (size_t i = 0; i < app_n_verbs && i < 16; i++)
        names[i] = app_verbs[i].name;
    const char *near = app_nearest(name, names, app_n_verbs);
    fprintf(stderr, "k3: unknown verb %s", name);
    if (near)
        fprintf(stderr, "; did you mean %s?\n", near);
    for (size_t i = 0; !near && i < app_n_verbs; i++)
        fprintf(stderr, "%s %s", i ? "," : ";", app_verbs[i].name);
    if (!near)
        fputs(", help or version wanted\n", stderr);
    return APP_USAGE;
}

static int finish(int status)
{
    app_terminal_close();
    if (fflush(stdout) != 0 && status == APP_OK) {
        perror("k3: standard output");
        status = APP_FAILED;
    }
    return status == APP_OK ? app_write_status() : status;
}

static int print_help(int argc, char **argv)
{
    if (argc < 3) {
        print_usage(stdout);
        return APP_OK;
    }
    if (app_manual(argv[2]))
        return APP_OK;
    int i = find_verb(argv[2]);
    if (i < 0)
        return unknown_verb(argv[2]);
    app_options_help(&app_verbs[i]);
    return APP_OK;
}

int main(int argc, char **argv)
{
    app_terminal_open();
    if (argc < 2) {
        print_usage(stderr);
        return APP_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return finish(print_help(argc, argv));
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
        printf("k3 %s\nThe Metal backend has never run on Apple hardware.\n", K3_VERSION);
        return finish(APP_OK);
    }
    int i_verb = find_verb(name);
    if (i_verb < 0)
        return unknown_verb(name);
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            app_options_help(&app_verbs[i_verb]);
            return finish(APP_OK);
        }
    app_options options;
    int status = app_options_parse(&options, &app_verbs[i_verb], argc - 2, argv + 2);
    if (status == APP_OK)
        status = app_verbs[i_verb].run(&options);
    app_options_free(&options);
    return finish(status);
}
