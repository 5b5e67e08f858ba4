/* `k3 chat` with the bundled model: commands, what is typed and pasted, conversations that are kept. */
#include "process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "models/k3-mini"
#define PASTE(text) "\x1b[200~" text "\x1b[201~"

static char folder[] = "/tmp/k3_converse_XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static char *read_file(const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static void assert_in(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in: %s", part, text);
}

/* What `k3 chat` says to these lines; ${F} in them is the test's folder. */
static process_result talk(const char *lines, const char *option, const char *value)
{
    char input[4096] = "";
    for (const char *at = lines, *next; *at; at = next) {
        const char *mark = strstr(at, "${F}");
        next = mark ? mark + 4 : at + strlen(at);
        snprintf(input + strlen(input), sizeof input - strlen(input), "%.*s%s", (int)((mark ? mark : next) - at), at, mark ? folder : "");
    }
    process_place place = {.input = input};
    return RUN_AT(&place, "chat", MODEL, "--temp", "0", option, value);
}

static process_terminal *open_terminal(const char *option)
{
    const char *arguments[] = {"chat", MODEL, "--temp", "0", option, NULL};
    process_terminal *t = terminal_run(arguments);
    terminal_wait(t, "> ");
    return t;
}

static void type(process_terminal *t, const char *text, const char *answer)
{
    terminal_type(t, text);
    terminal_wait(t, answer);
    terminal_wait(t, "> ");
}

static void save(process_terminal *t, const char *name)
{
    char command[128];
    snprintf(command, sizeof command, "/save %s/%s\r", folder, name);
    type(t, command, "(saved)");
    terminal_type(t, "\x04");
    assert_int_equal(terminal_end(t, NULL), 0);
}

static void commands_are_listed_and_a_wrong_one_is_told_the_nearest(void **state)
{
    (void)state;
    process_terminal *t = open_terminal("--quiet");
    type(t, "/help\r", "/reset");
    type(t, "/sytem Be brief.\r", "did you mean /system");
    type(t, "/think often\r", "low, high or max wanted");
    type(t, "/save\r", "the name of a file wanted");
    save(t, "none.json");
    char *text = read_file("none.json");
    assert_string_equal(text, "{\"messages\": [], \"thinking\": true}");
    free(text);
}

/* What is pasted is one message, and no Enter in it sends anything. */
static void what_is_pasted_or_typed_on_further_lines_stays_together(void **state)
{
    (void)state;
    process_terminal *t = open_terminal("--no-think");
    type(t, PASTE("What is the\rcapital of\nFrance — 法国?") "\r", "in the window)");
    type(t, "one\x1b\rtwo \xc3\xa9\r", "in the window)");
    terminal_type(t, "three\\\r");
    terminal_wait(t, ". ");
    type(t, "four\r", "in the window)");
    save(t, "lines.json");
    char *text = read_file("lines.json");
    assert_in(text, "\"What is the\\ncapital of\\nFrance — 法国?\"");
    assert_in(text, "\"one\\ntwo \xc3\xa9\"");
    assert_in(text, "\"three\\nfour\"");
    free(text);
}

static void folded_thinking_is_shown_when_asked_for(void **state)
{
    (void)state;
    char *seen = NULL;
    process_terminal *t = open_terminal("--fold");
    type(t, "What is 58 plus 67?\r", "in the window)");
    assert_null(strstr(t->seen, "carry"));
    type(t, "/think\r", "carry");
    terminal_type(t, "/think off\r");
    terminal_wait(t, "> ");
    type(t, "What is 12 plus 13?\r", "in the window)");
    type(t, "/think\r", "without thinking");
    terminal_type(t, "\x04");
    assert_int_equal(terminal_end(t, &seen), 0);
    free(seen);
}

static void a_conversation_goes_on_after_it_was_saved_and_loaded(void **state)
{
    (void)state;
    char path[96], state_path[96];
    snprintf(path, sizeof path, "%s/c.json", folder);
    snprintf(state_path, sizeof state_path, "%s/c.json.state", folder);
    process_result whole = talk("My name is Ada.\nWhat is 58 plus 67?\nWhat is my name?\n", "--seed", "1");
    process_result first = talk("My name is Ada.\nWhat is 58 plus 67?\n/save ${F}/c.json\n", "--seed", "1");
    process_result second = talk("What is my name?\n", "--load", path);
    char *joined = calloc(1, strlen(first.out) + strlen(second.out) + 1);
    strcat(strcat(joined, first.out), second.out);
    assert_string_equal(joined, whole.out);
    assert_int_equal(access(state_path, F_OK), 0);

    /* What was computed is spoiled: it is said, and computed again. */
    assert_int_equal(truncate(state_path, 1000), 0);
    process_result third = talk("What is my name?\n", "--load", path);
    assert_string_equal(third.out, second.out);
    assert_in(third.err, "the conversation is computed again");
    process_result by_command = talk("Hello\n/load ${F}/c.json\nWhat is my name?\n", "--seed", "1");
    assert_in(by_command.out, second.out);
    assert_int_equal(by_command.status, 0);
    process_result *all[] = {&whole, &first, &second, &third, &by_command};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        process_free(all[i]);
    free(joined);
}

static void a_reset_conversation_answers_as_a_new_one(void **state)
{
    (void)state;
    process_result fresh = talk("What is the capital of Italy?\n", "--seed", "1");
    process_result again =
        talk("What is 58 plus 67?\n/system You are terse.\n/system off\n/reset\nWhat is the capital of Italy?\n", "--seed", "1");
    size_t n = strlen(fresh.out);
    assert_true(strlen(again.out) > n);
    assert_string_equal(again.out + strlen(again.out) - n, fresh.out);
    process_free(&fresh);
    process_free(&again);
}

static void only_commands_are_taken_out_of_a_pipe(void **state)
{
    (void)state;
    process_result r = talk("/etc/hosts holds what?\n//reset\n/save ${F}/pipe.json\n", "--seed", "1");
    char *text = read_file("pipe.json");
    assert_in(text, "\"/etc/hosts holds what?\"");
    assert_in(text, "\"/reset\"");
    free(text);
    process_free(&r);
}

static void files_that_cannot_be_written_or_read_are_named_and_nothing_is_lost(void **state)
{
    (void)state;
    process_result r = talk("What is 58 plus 67?\n/save ${F}/none/c.json\n/load ${F}/nothing.json\n/load README.md\n/save ${F}/kept.json\n",
                            "--seed", "1");
    assert_in(r.err, "none/c.json: No such file or directory");
    assert_in(r.err, "nothing.json: No such file or directory");
    assert_in(r.err, "README.md: it is no JSON object");
    char *text = read_file("kept.json");
    assert_in(text, "58 + 67 = 125");
    free(text);
    process_free(&r);
    process_result none = talk("", "--load", "/nowhere.json");
    assert_int_equal(none.status, 1);
    process_free(&none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_are_listed_and_a_wrong_one_is_told_the_nearest),
        cmocka_unit_test(what_is_pasted_or_typed_on_further_lines_stays_together),
        cmocka_unit_test(folded_thinking_is_shown_when_asked_for),
        cmocka_unit_test(a_conversation_goes_on_after_it_was_saved_and_loaded),
        cmocka_unit_test(a_reset_conversation_answers_as_a_new_one),
        cmocka_unit_test(only_commands_are_taken_out_of_a_pipe),
        cmocka_unit_test(files_that_cannot_be_written_or_read_are_named_and_nothing_is_lost),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
