#include "manual.h"

#include <stdio.h>
#include <string.h>

#include "app.h"

/* ---- the manual page ------------------------------------------------------------------------------------------ */

/* Text in roff: backslashes and hyphens are escaped, and a line does not begin with a control character. */
static void roff(const char *text, size_t n)
{
    int is_start = 1;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (is_start && (c == '.' || c == '\''))
            fputs("\\&", stdout);
        is_start = c == '\n';
        if (c == '\\')
            fputs("\\e", stdout);
        else if (c == '-')
            fputs("\\-", stdout);
        else
            putchar(c);
    }
}

static void roff_text(const char *text)
{
    roff(text, strlen(text));
}

static void man_option(const app_option *o)
{
    fputs(".TP\n\\fB", stdout);
    roff_text(o->name);
    fputs("\\fR", stdout);
    if (o->value) {
        fputs(" \\fI", stdout);
        roff_text(o->value);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    roff_text(o->help);
    if (o->standard) {
        fputs(" [", stdout);
        roff_text(o->standard);
        putchar(']');
    }
    putchar('\n');
}

/* A verb's own text; what several verbs share is told once, at the end. */
static void man_verb(const app_verb *verb)
{
    size_t n_title = strcspn(verb->help, "\n");
    printf(".SS \"k3 %s", verb->name);
    if (*verb->usage) {
        putchar(' ');
        roff_text(verb->usage);
    }
    fputs("\"\n", stdout);
    roff(verb->help, n_title);
    fputs(".\n", stdout);
    if (verb->help[n_title]) {
        fputs(".PP\n", stdout);
        roff_text(verb->help + n_title + 2);
        putchar('\n');
    }
}

static int is_shared(const app_theme *theme)
{
    int n = 0;
    for (size_t i = 0; i < app_n_verbs; i++)
        for (size_t t = 0; t < app_verbs[i].n_themes; t++)
            n += app_verbs[i].themes[t] == theme;
    return n > 1;
}

static void man_theme(const app_theme *theme)
{
    for (size_t i = 0; i < theme->n_options; i++)
        man_option(&theme->options[i]);
}

/* Themes that several verbs share, each where it is met first. */
static void man_shared(void)
{
    const app_theme *seen[16];
    size_t n = 0;
    for (size_t v = 0; v < app_n_verbs; v++)
        for (size_t t = 0; t < app_verbs[v].n_themes; t++) {
            const app_theme *theme = app_verbs[v].themes[t];
            size_t i = 0;
            while (i < n && seen[i] != theme)
                i++;
            if (i < n || !is_shared(theme) || n == sizeof seen / sizeof *seen)
                continue;
            seen[n++] = theme;
            fputs(".SS \"", stdout);
            roff_text(theme->title);
            fputs(" (", stdout);
            const char *comma = "";
            for (size_t w = 0; w < app_n_verbs; w++)
                for (size_t u = 0; u < app_verbs[w].n_themes; u++)
                    if (app_verbs[w].themes[u] == theme) {
                        printf("%s%s", comma, app_verbs[w].name);
                        comma = ", ";
                    }
            fputs(")\"\n", stdout);
            man_theme(theme);
        }
}

static void man(void)
{
    printf(".TH K3 1 \"\" \"k3 %s\" \"User commands\"\n.SH NAME\nk3 \\- runs Moonshot's Kimi K3 on the machine at hand\n"
           ".SH SYNOPSIS\n.B k3\n.I VERB\n.RI [ MODEL ]\n.RI [ options ]\n.SH DESCRIPTION\n"
           "MODEL is the folder with config.json and the safetensors files, as it was downloaded. Trunk and experts are held in memory as "
           "far as\n"
           "they fit, and are read from disk as they are wanted otherwise, with the same tokens.\n.SH VERBS\n",
           K3_VERSION);
    for (size_t v = 0; v < app_n_verbs; v++) {
        man_verb(&app_verbs[v]);
        for (size_t t = 0; t < app_verbs[v].n_themes; t++)
            if (!is_shared(app_verbs[v].themes[t]))
                man_theme(app_verbs[v].themes[t]);
    }
    fputs(".SH OPTIONS OF SEVERAL VERBS\n", stdout);
    man_shared();
    fputs(".SH EXIT STATUS\n0: done; 1: failed; 2: wrong usage; 130: stopped by Ctrl\\-C.\n", stdout);
}

/* ---- completions -------------------------------------------------------------------------------------------------- */

typedef void each_option(const app_verb *verb, const app_option *option);

static void for_options(const app_verb *verb, each_option *each)
{
    for (size_t t = 0; t < verb->n_themes; t++)
        for (size_t i = 0; i < verb->themes[t]->n_options; i++)
            each(verb, &verb->themes[t]->options[i]);
}

/* The words that a WORD option takes, with spaces between. */
static void print_words(const app_option *o)
{
    size_t n = strcspn(o->help, ":");
    for (size_t i = 0; i < n; i++)
        if (n - i >= 4 && strncmp(o->help + i, " or ", 4) == 0) {
            putchar(' ');
            i += 3;
        } else
            putchar(o->help[i]);
}

/* The first clause of a help text: what a completion has room for. */
static void print_clause(const char *help, int quote)
{
    const char *from = strchr(help, ':') && strstr(help, " or ") && strstr(help, " or ") < strchr(help, ':') ? strchr(help, ':') + 2 : help;
    size_t n = strcspn(from, ";:\n");
    for (size_t i = 0; i < n; i++)
        if (from[i] != quote && from[i] != '[' && from[i] != ']')
            putchar(from[i]);
}

static void bash_option(const app_verb *verb, const app_option *o)
{
    (void)verb;
    printf(" %s", o->name);
}

static void bash_word(const app_verb *verb, const app_option *o)
{
    if (o->kind != APP_WORD)
        return;
    printf("    %s:%s) words='", verb->name, o->name);
    print_words(o);
    puts("' ;;");
}

static void bash_value(const app_verb *verb, const app_option *o)
{
    if (o->kind != APP_FLAG)
        printf("|%s:%s", verb->name, o->name);
}

static void bash(void)
{
    puts("# Completion of k3 for bash, written by `k3 help bash`.\n_k3() {\n    local word=${COMP_WORDS[COMP_CWORD]} "
         "before=${COMP_WORDS[COMP_CWORD - 1]} "
         "words=\n    COMPREPLY=()\n    if [ \"$COMP_CWORD\" = 1 ]; then");
    fputs("        COMPREPLY=($(compgen -W 'help version", stdout);
    for (size_t v = 0; v < app_n_verbs; v++)
        printf(" %s", app_verbs[v].name);
    puts("' -- \"$word\"))\n        return\n    fi\n    case ${COMP_WORDS[1]}:$before in");
    for (size_t v = 0; v < app_n_verbs; v++)
        for_options(&app_verbs[v], bash_word);
    fputs("    -:-", stdout);
    for (size_t v = 0; v < app_n_verbs; v++)
        for_options(&app_verbs[v], bash_value);
    puts(")\n        COMPREPLY=($(compgen -f -- \"$word\"))\n        return ;;\n    *)\n        case $word in\n        -*) case "
         "${COMP_WORDS[1]} in");
    for (size_t v = 0; v < app_n_verbs; v++) {
        printf("            %s) words='--help", app_verbs[v].name);
        for_options(&app_verbs[v], bash_option);
        puts("' ;;");
    }
    puts("            esac ;;\n        *)\n            COMPREPLY=($(compgen -f -- \"$word\"))\n            return ;;\n        esac ;;\n    "
         "esac\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\ncomplete -o filenames -F _k3 k3");
}

static void zsh_option(const app_verb *verb, const app_option *o)
{
    (void)verb;
    printf("        '%s%s[", o->kind == APP_LIST ? "*" : "", o->name);
    print_clause(o->help, '\'');
    putchar(']');
    if (o->kind == APP_WORD) {
        printf(":%s:(", o->value);
        print_words(o);
        putchar(')');
    } else if (o->kind != APP_FLAG)
        printf(":%s:%s", o->value, o->kind == APP_TEXT ? "_files" : "");
    puts("' \\");
}

static void zsh(void)
{
    puts("#compdef k3\n# Completion of k3 for zsh, written by `k3 help zsh`.\nif ((CURRENT == 2)); then\n    local -a verbs=(");
    for (size_t v = 0; v < app_n_verbs; v++) {
        printf("        '%s:", app_verbs[v].name);
        print_clause(app_verbs[v].help, '\'');
        puts("'");
    }
    puts("        'help:explain a verb'\n        'version:say which version this is'\n    )\n    _describe verb verbs\n    "
         "return\nfi\ncase $words[2] in");
    for (size_t v = 0; v < app_n_verbs; v++) {
        printf("%s)\n    shift words; ((CURRENT--))\n    _arguments \\\n", app_verbs[v].name);
        for_options(&app_verbs[v], zsh_option);
        puts("        '*:folder:_files' ;;");
    }
    puts("esac");
}

static void fish_option(const app_verb *verb, const app_option *o)
{
    printf("complete -c k3 -n '__fish_seen_subcommand_from %s' ", verb->name);
    printf(o->name[1] == '-' ? "-l %s" : "-s %s", o->name + (o->name[1] == '-' ? 2 : 1));
    if (o->kind == APP_WORD) {
        fputs(" -x -a '", stdout);
        print_words(o);
        putchar('\'');
    } else if (o->kind != APP_FLAG)
        fputs(" -r", stdout);
    fputs(" -d '", stdout);
    print_clause(o->help, '\'');
    puts("'");
}

static void fish(void)
{
    puts("# Completion of k3 for fish, written by `k3 help fish`.");
    for (size_t v = 0; v < app_n_verbs; v++) {
        printf("complete -c k3 -f -n __fish_use_subcommand -a %s -d '", app_verbs[v].name);
        print_clause(app_verbs[v].help, '\'');
        puts("'");
        for_options(&app_verbs[v], fish_option);
    }
}

int app_manual(const char *topic)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } topics[] = {{"man", man}, {"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++)
        if (strcmp(topic, topics[i].name) == 0) {
            topics[i].print();
            return 1;
        }
    return 0;
}
