/* Conversations: piped, and on a terminal. The model of most tests answers with small letters without end (chatty.h). */
#include "process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "chatty.h"
#include "support/tiny_checkpoint.h"

#define CTRL_C "\x03"
#define CTRL_D "\x04"

static void start(process_terminal **t, const char *folder)
{
    const char *arguments[] = {"run", folder, "--chat", "--no-think", "--temp", "0", NULL};
    *t = terminal_run(arguments);
    terminal_wait(*t, "> ");
}

static void settle(void)
{
    struct timespec pause = {.tv_nsec = 50000000};
    nanosleep(&pause, NULL);
}

static void j09_ctrl_c_stops_the_answer_and_the_conversation_goes_on(void **state)
{
    process_terminal *t;
    char *seen = NULL;
    start(&t, *state);
    for (int i = 0; i < 2; i++) {
        terminal_type(t, "Hello\r");
        terminal_wait_bytes(t, 200); /* the answer never ends by itself */
        terminal_type(t, CTRL_C);
        terminal_wait(t, "(stopped)");
        terminal_wait(t, "> ");
    }
    settle();
    terminal_type(t, CTRL_D);
    assert_int_equal(terminal_end(t, &seen), 0);
    free(seen);
}

static void j09_a_second_ctrl_c_leaves_and_restores_the_terminal(void **state)
{
    process_terminal *t;
    start(&t, *state);
    terminal_type(t, "Hello\r");
    terminal_wait_bytes(t, 200);
    terminal_type(t, CTRL_C);
    terminal_wait(t, "(stopped)");
    terminal_wait(t, "> ");
    settle();
    terminal_type(t, CTRL_C);
    settle();
    int sane = terminal_is_sane(t);
    assert_int_equal(terminal_end(t, NULL), 130);
    assert_true(sane);
}

static void j09_two_ctrl_c_at_the_prompt_leave(void **state)
{
    process_terminal *t;
    start(&t, *state);
    settle();
    terminal_type(t, CTRL_C);
    terminal_wait(t, "(Ctrl-C again or Ctrl-D leaves)");
    terminal_wait(t, "> ");
    settle();
    terminal_type(t, CTRL_C);
    assert_int_equal(terminal_end(t, NULL), 130);
}

static void j09_a_new_question_makes_ctrl_c_a_first_one_again(void **state)
{
    process_terminal *t;
    start(&t, *state);
    settle();
    terminal_type(t, CTRL_C);
    terminal_wait(t, "leaves)");
    terminal_wait(t, "> ");
    settle();
    terminal_type(t, "Hello\r");
    terminal_wait_bytes(t, 200);
    terminal_type(t, CTRL_C);
    terminal_wait(t, "(stopped)");
    terminal_wait(t, "> ");
    settle();
    terminal_type(t, CTRL_D);
    assert_int_equal(terminal_end(t, NULL), 0);
}

static void j09_ctrl_d_leaves_with_the_terminal_as_it_was(void **state)
{
    process_terminal *t;
    start(&t, *state);
    assert_int_equal(kill(t->pid, 0), 0);
    settle();
    terminal_type(t, CTRL_D);
    settle();
    int sane = terminal_is_sane(t);
    assert_int_equal(terminal_end(t, NULL), 0);
    assert_true(sane);
}

static void j09_thinking_is_dim_on_a_terminal(void **state)
{
    const char *arguments[] = {"run", *state, "--chat", "-p", "Hello", "--temp", "0", "-n", "30", NULL};
    char *seen = NULL;
    assert_int_equal(terminal_end(terminal_run(arguments), &seen), 0);
    const char *dim = strstr(seen, "\033[2m"), *plain = strstr(seen, "\033[0m");
    assert_true(dim && plain && dim + 30 <= plain);
    free(seen);
}

static void j09_there_is_no_colour_without_a_terminal(void **state)
{
    process_result r = RUN("run", *state, "--chat", "-p", "Hello", "--temp", "0", "-n", "30");
    assert_int_equal(r.status, 0);
    assert_null(strchr(r.out, '\033'));
    assert_null(strchr(r.err, '\033'));
    assert_string_equal(r.out, ""); /* all of it was thinking */
    assert_true(strspn(strrchr(r.err, ' ') ? strstr(r.err, "a pass\n") + 7 : "", "abcdefghijklmnopqrstuvwxyz") == 30);
    process_free(&r);
}

static void ctrl_c_ends_a_single_answer_with_status_130(void **state)
{
    const char *arguments[] = {"run", *state, "-p", "Hello", "--temp", "0", "--quiet", NULL};
    process_terminal *t = terminal_run(arguments);
    terminal_wait_bytes(t, 200);
    terminal_type(t, CTRL_C);
    assert_int_equal(terminal_end(t, NULL), 130);
}

static void piped_lines_are_answered_in_turn(void **state)
{
    process_place piped = {.input = "Hello\n\nAgain"};
    process_result r = RUN_AT(&piped, "run", *state, "--chat", "--no-think", "--temp", "0", "-n", "10", "--quiet");
    assert_int_equal(r.status, 0);
    assert_int_equal(r.n_out, 22); /* two answers of ten letters; the empty line is no question */
    assert_int_equal(r.out[10], '\n');
    assert_int_equal(r.out[21], '\n');
    assert_null(strchr(r.err, '>'));
    process_free(&r);
}

/* A conversation keeps its session, and must say what a fresh one given the whole history says. */
static void a_second_turn_equals_a_fresh_start_with_the_history(void **state)
{
    process_place piped = {.input = "Hello\nAgain\n"};
    process_result r = RUN_AT(&piped, "run", *state, "--chat", "--no-think", "--temp", "0", "-n", "20", "--quiet", "--exact");
    assert_int_equal(r.n_out, 42);
    char request[512];
    snprintf(request, sizeof request,
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}, {\"role\": \"assistant\", \"content\": \"%.20s\"}, "
             "{\"role\": \"user\", \"content\": \"Again\"}], \"thinking\": false}",
             r.out);
    process_place typed = {.input = request};
    process_result fresh = RUN_AT(&typed, "run", *state, "--request", "-", "--temp", "0", "-n", "20", "--quiet", "--exact");
    assert_int_equal(fresh.status, 0);
    assert_string_equal(fresh.out, r.out + 21);
    process_free(&r);
    process_free(&fresh);
}

static void a_request_that_is_no_json_is_refused(void **state)
{
    process_place typed = {.input = "{\"messages\": ["};
    process_result r = RUN_AT(&typed, "run", *state, "--request", "-");
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err, "line 1"));
    process_free(&r);
}

static void a_prompt_with_any_bytes_is_chat(void **state)
{
    process_result r = RUN("run", *state, "--chat", "--no-think", "-p", "\"\\\n\t\x01\xff\xe4\xb8", "--temp", "0", "-n", "5", "--quiet");
    assert_int_equal(r.status, 0);
    assert_int_equal(r.n_out, 6);
    process_free(&r);
}

/* ---- J15 --------------------------------------------------------------------------------------------------------------- */

static void j15_nothing_is_written_anywhere(void **state)
{
    char *folder = *state, *home = tiny_folder(), *work = tiny_folder();
    assert_int_equal(chmod(folder, 0555), 0);
    assert_int_equal(chmod(home, 0555), 0);
    assert_int_equal(chmod(work, 0555), 0);
    char *before[] = {folder_listing(folder), folder_listing(home), folder_listing(work)};
    process_place place = {.input = "Hello\n", .folder = work, .home = home};
    process_result r = RUN_AT(&place, "run", folder, "--chat", "--no-think", "--temp", "0", "-n", "5");
    assert_int_equal(r.status, 0);
    process_free(&r);
    r = RUN_AT(&place, "eval", folder, "--ids", "1,2,3");
    assert_int_equal(r.status, 0);
    process_free(&r);
    r = RUN_AT(&place, "inspect", folder);
    assert_int_equal(r.status, 0);
    process_free(&r);
    setenv("HOME", home, 1); /* the editor of a terminal looks there too */
    process_terminal *t;
    start(&t, folder);
    terminal_type(t, "Hello\r");
    terminal_wait_bytes(t, 200);
    terminal_type(t, CTRL_C);
    terminal_wait(t, "(stopped)");
    terminal_wait(t, "> ");
    settle();
    terminal_type(t, CTRL_D);
    assert_int_equal(terminal_end(t, NULL), 0);
    char *after[] = {folder_listing(folder), folder_listing(home), folder_listing(work)};
    for (int i = 0; i < 3; i++) {
        assert_string_equal(after[i], before[i]);
        free(before[i]);
        free(after[i]);
    }
    chmod(folder, 0755);
    chmod(home, 0755);
    chmod(work, 0755);
    tiny_remove_folder(home);
    tiny_remove_folder(work);
}

/* ---- tasks ------------------------------------------------------------------------------------------------------------- */

static void tasks_are_scored_by_family(void **state)
{
    char *folder = *state, path[600], text[2000];
    process_result r = RUN("run", folder, "--chat", "--no-think", "-p", "Hello", "--temp", "0", "-n", "8", "--quiet");
    assert_int_equal(r.n_out, 9);
    r.out[8] = 0;
    static const char request[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"thinking\": false}";
    snprintf(text, sizeof text,
             "[{\"family\": \"facts\", \"request\": %s, \"check\": {\"type\": \"content_equals\", \"value\": \"%s\"}},\n"
             " {\"family\": \"facts\", \"request\": %s, \"check\": {\"type\": \"content_equals\", \"value\": \"%.7s\"}},\n"
             " {\"family\": \"parts\", \"request\": %s, \"check\": {\"type\": \"content_contains\", \"value\": \"%.5s\"}},\n"
             " {\"family\": \"tools\", \"request\": %s, \"check\": {\"type\": \"tool_call\", \"name\": \"f\", \"arguments\": {}}}]",
             request, r.out, request, r.out, request, r.out + 2, request);
    tiny_put_file(folder, "tasks.json", text, strlen(text));
    snprintf(path, sizeof path, "%s/tasks.json", folder);
    process_free(&r);
    r = RUN("eval", folder, "--tasks", path, "-n", "8", "--show-failures");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, "facts                1 / 2       50.0 %\n"
                               "parts                1 / 1      100.0 %\n"
                               "tools                0 / 1        0.0 %\n"
                               "all                  2 / 4       50.0 %\n");
    assert_non_null(strstr(r.err, "{\"task\": 1, "));
    assert_non_null(strstr(r.err, "{\"task\": 3, "));
    process_free(&r);
    static const char wrong[] = "[{\"family\": \"a\", \"prompt_ids\": [1], \"request\": {\"messages\": []}, \"check\": {}}]";
    tiny_put_file(folder, "tasks.json", wrong, sizeof wrong - 1);
    r = RUN("eval", folder, "--tasks", path, "-n", "8");
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err, "task 0"));
    process_free(&r);
    unlink(path);
}

/* ---- the bundled model --------------------------------------------------------------------------------------------------- */

#define MINI "models/k3-mini"

static int has_mini(void)
{
    process_result r = RUN("inspect", MINI);
    int there = r.status == 0;
    process_free(&r);
    return there;
}

static void the_bundled_model_answers_and_calls_tools(void **state)
{
    (void)state;
    if (!has_mini()) {
        print_message("SKIP: " MINI " has no weights\n");
        skip();
    }
    process_result r = RUN("run", MINI, "--chat", "--temp", "0", "-p", "What is the capital of France?");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out, "Paris"));
    process_free(&r);
    process_place typed = {
        .input =
            "{\"messages\": [{\"role\": \"user\", \"content\": \"What is the weather in Paris?\"}], \"tools\": [{\"type\": \"function\", "
            "\"function\": {\"name\": \"get_weather\", \"description\": \"Get the weather of a city.\", \"parameters\": {\"type\": "
            "\"object\", \"properties\": {\"city\": {\"type\": \"string\"}}, \"required\": [\"city\"]}}}]}"};
    r = RUN_AT(&typed, "run", MINI, "--request", "-", "--temp", "0");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n");
    process_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(j09_ctrl_c_stops_the_answer_and_the_conversation_goes_on),
        cmocka_unit_test(j09_a_second_ctrl_c_leaves_and_restores_the_terminal),
        cmocka_unit_test(j09_two_ctrl_c_at_the_prompt_leave),
        cmocka_unit_test(j09_a_new_question_makes_ctrl_c_a_first_one_again),
        cmocka_unit_test(j09_ctrl_d_leaves_with_the_terminal_as_it_was),
        cmocka_unit_test(j09_thinking_is_dim_on_a_terminal),
        cmocka_unit_test(j09_there_is_no_colour_without_a_terminal),
        cmocka_unit_test(ctrl_c_ends_a_single_answer_with_status_130),
        cmocka_unit_test(piped_lines_are_answered_in_turn),
        cmocka_unit_test(a_second_turn_equals_a_fresh_start_with_the_history),
        cmocka_unit_test(a_request_that_is_no_json_is_refused),
        cmocka_unit_test(a_prompt_with_any_bytes_is_chat),
        cmocka_unit_test(j15_nothing_is_written_anywhere),
        cmocka_unit_test(tasks_are_scored_by_family),
        cmocka_unit_test(the_bundled_model_answers_and_calls_tools),
    };
    return cmocka_run_group_tests(tests, chatty_setup, chatty_teardown);
}
