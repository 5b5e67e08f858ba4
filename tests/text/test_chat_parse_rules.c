/* The rules of docs/chat.md for the model's output, a test each. */
#include "chat_answer.h"

#include <stdio.h>
#include <string.h>

#include "text/chat_markers.h"
#include "text/chat_parse.h"
#include "text/tokenize.h"

#define CALL(name) "{call tool=\"" name "\" index=\"1\"|"
#define ARGUMENT(key, type, value) "{argument key=\"" key "\" type=\"" type "\"|" value "}argument|"
#define END "}message|$"

/* calls: "name arguments" lines, each ended by a newline. */
static void assert_parses(int thinking, const char *script, const char *reasoning, const char *content, const char *calls,
                          const char *finish)
{
    k3_vocab *vocab = open_small_vocab();
    k3_tokens ids = {0};
    add_script(vocab, &ids, script);
    answer a = parse_ids(vocab, thinking, ids.ids, ids.n);
    k3_buffer all = {0};
    for (int i = 0; i < a.n_calls; i++) {
        k3_buffer_add(&all, a.names[i].bytes, a.names[i].n);
        k3_buffer_add_char(&all, ' ');
        k3_buffer_add(&all, a.arguments[i].bytes, a.arguments[i].n);
        k3_buffer_add_char(&all, '\n');
    }
    const struct {
        const char *what;
        const k3_buffer *found;
        const char *wanted;
    } parts[] = {{"reasoning", &a.reasoning, reasoning}, {"content", &a.content, content}, {"calls", &all, calls}};
    for (size_t i = 0; i < 3; i++)
        if (parts[i].found->n != strlen(parts[i].wanted) ||
            (parts[i].found->n > 0 && memcmp(parts[i].found->bytes, parts[i].wanted, parts[i].found->n) != 0))
            fail_msg("%s\n%s is \"%.*s\", wanted \"%s\"", script, parts[i].what, (int)parts[i].found->n,
                     parts[i].found->n ? parts[i].found->bytes : "", parts[i].wanted);
    assert_string_equal(a.finish, finish);
    k3_buffer_free(&all);
    free_answer(&a);
    k3_tokens_free(&ids);
    k3_vocab_close(vocab);
}

static void c01_every_way_out_of_think_is_known(void **state)
{
    (void)state;
    static const char tools[] = "{tools|" CALL("f") "}call|}tools|" END;
    char script[256];
    snprintf(script, sizeof script, "why%s", tools);
    assert_parses(1, script, "why", "", "f {}\n", "tool_calls");
    snprintf(script, sizeof script, "why}think|%s", tools);
    assert_parses(1, script, "why", "", "f {}\n", "tool_calls");
    assert_parses(1, "why{response|x}response|" END, "why", "x", "", "stop");
    assert_parses(1, "why" END, "why", "", "", "stop");
    assert_parses(1, "why$", "why", "", "", "stop");
    assert_parses(1, "why}think{response|x}response|" END, "why", "x", "", "stop");
    assert_parses(1, "why" CALL("f") "}call|" END, "why", "", "f {}\n", "tool_calls");
}

static void c05_one_repeated_opener_is_swallowed_by_id_or_spelled(void **state)
{
    (void)state;
    k3_vocab *vocab = open_small_vocab();
    static const char *const rest[] = {"why", "<|close|>think<|sep|>", "<|open|>response<|sep|>", "x", "<|end_of_msg|>"};
    /* Which of open, name and sep are tokens, which are spelled: 1 and 3 are tokens in 3, 2 ... none in 0. */
    for (int mask = 0; mask < 4; mask++) {
        k3_tokens ids = {0};
        k3_error err;
        uint64_t random = 5;
        if (mask & 1)
            assert_int_equal(k3_text_encode(vocab, &ids, "<|open|>", 8, 1, &err), K3_OK);
        else
            add_text(vocab, &ids, "<|open|>", 8, 3, &random);
        add_text(vocab, &ids, "think", 5, 0, &random);
        if (mask & 2)
            assert_int_equal(k3_text_encode(vocab, &ids, "<|sep|>", 7, 1, &err), K3_OK);
        else
            add_text(vocab, &ids, "<|sep|>", 7, 3, &random);
        for (size_t i = 0; i < 5; i++)
            assert_int_equal(k3_text_encode(vocab, &ids, rest[i], strlen(rest[i]), 1, &err), K3_OK);
        answer a = parse_ids(vocab, 1, ids.ids, ids.n);
        assert_int_equal(a.reasoning.n, 3);
        assert_memory_equal(a.reasoning.bytes, "why", 3);
        assert_int_equal(a.content.n, 1);
        free_answer(&a);
        k3_tokens_free(&ids);
    }
    k3_vocab_close(vocab);
    /* Only one, only at the start, only the channel that is open; an opener by id is structure and vanishes anywhere. */
    assert_parses(1, "{think|{think|why}think|" END, "why", "", "", "stop");
    assert_parses(1, "a{think|b}think|" END, "ab", "", "", "stop");
    assert_parses(0, "{response|x}response|" END, "", "x", "", "stop");
}

static void c05_what_is_no_opener_after_all_stays_text(void **state)
{
    (void)state;
    static const char *const texts[] = {"<", "<|open", "<|open|>", "<|open|>thin", "<|open|>think<|sep", "<|open|>thinking", "<|close|>"};
    k3_vocab *vocab = open_small_vocab();
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        for (uint32_t n_most = 0; n_most < 5; n_most++) {
            k3_tokens ids = {0};
            uint64_t random = i;
            add_text(vocab, &ids, texts[i], strlen(texts[i]), n_most, &random);
            answer a = parse_ids(vocab, 1, ids.ids, ids.n);
            assert_int_equal(a.reasoning.n, strlen(texts[i]));
            assert_memory_equal(a.reasoning.bytes, texts[i], a.reasoning.n);
            free_answer(&a);
            k3_tokens_free(&ids);
        }
    }
    k3_vocab_close(vocab);
}

static void c07_spelled_markers_are_content(void **state)
{
    (void)state;
#define SPELLED "<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|>"
    k3_vocab *vocab = open_small_vocab();
    static const char text[] = SPELLED "<|close|>call<|sep|><|close|>message<|sep|><|end_of_msg|>[EOS]";
    for (uint32_t n_most = 0; n_most < 12; n_most++) {
        k3_tokens ids = {0};
        uint64_t random = n_most;
        add_text(vocab, &ids, text, sizeof text - 1, n_most, &random);
        answer a = parse_ids(vocab, 0, ids.ids, ids.n);
        assert_int_equal(a.content.n, sizeof text - 1);
        assert_memory_equal(a.content.bytes, text, sizeof text - 1);
        assert_int_equal(a.n_calls, 0);
        assert_string_equal(a.finish, "length");
        free_answer(&a);
        k3_tokens_free(&ids);
    }
    k3_vocab_close(vocab);
}

static void c08_output_cut_inside_think_is_reasoning(void **state)
{
    (void)state;
    assert_parses(1, "let me", "let me", "", "", "length");
    assert_parses(1, "let me}", "let me", "", "", "length");
    assert_parses(1, "let me}think|{", "let me", "", "", "length");
}

static void c09_finish_is_one_of_three_words(void **state)
{
    (void)state;
    assert_parses(0, "x$", "", "x", "", "stop");
    assert_parses(0, "x", "", "x", "", "length");
    assert_parses(0, CALL("f") "}call|$", "", "", "f {}\n", "tool_calls");
    assert_parses(0, CALL("f") "}call|", "", "", "f {}\n", "length");
    assert_parses(0, CALL("f") "$", "", "", "", "stop");
}

static void eos_ends_the_message_too_and_nothing_follows(void **state)
{
    (void)state;
    k3_vocab *vocab = open_small_vocab();
    k3_tokens ids = {0};
    k3_error err;
    assert_int_equal(k3_text_encode(vocab, &ids, "x[EOS]y<|open|>tools", 20, 1, &err), K3_OK);
    answer a = parse_ids(vocab, 0, ids.ids, ids.n);
    assert_int_equal(a.content.n, 1);
    assert_int_equal(a.done, 1);
    assert_string_equal(a.finish, "stop");
    free_answer(&a);
    k3_tokens_free(&ids);
    k3_vocab_close(vocab);
}

static void c12_values_pass_as_they_were_spelled(void **state)
{
    (void)state;
    assert_parses(0,
                  CALL("f") ARGUMENT("a", "number", "1e400") ARGUMENT("b", "number", "0.10") ARGUMENT("c", "number", "12345678901234567890")
                      ARGUMENT("d", "object", "[1]") ARGUMENT("e", "number", "NaN") ARGUMENT("f", "boolean", "True") "}call|" END,
                  "", "", "f {\"a\": 1e400, \"b\": 0.10, \"c\": 12345678901234567890, \"d\": \"[1]\", \"e\": \"NaN\", \"f\": \"True\"}\n",
                  "tool_calls");
    /* Untyped is a string; an unknown type is JSON if it can be. */
    assert_parses(0, CALL("f") "{argument key=\"a\"|12}argument|" ARGUMENT("b", "integer", "0.50") ARGUMENT("c", "date", "x") "}call|" END,
                  "", "", "f {\"a\": \"12\", \"b\": 0.50, \"c\": \"x\"}\n", "tool_calls");
    /* A byte-order mark, which a lenient reader skips, would break the object. */
    assert_parses(0,
                  CALL("f") ARGUMENT("a", "number",
                                     "\xef\xbb\xbf"
                                     "1") "}call|" END,
                  "", "",
                  "f {\"a\": \"\xef\xbb\xbf"
                  "1\"}\n",
                  "tool_calls");
}

static void c12_the_raw_form_of_arguments_is_taken_if_it_is_an_object(void **state)
{
    (void)state;
    static const char *const names[] = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"};
    static const char *const bodies[] = {"{\"x\": 0.10}", "{\"x\": 1,", "[1]"};
    k3_vocab *vocab = open_small_vocab();
    for (size_t i = 0; i < 3; i++) {
        k3_tokens ids = {0};
        k3_error err;
        const char *const pieces[] = {names[0],
                                      "call tool=\"f\" index=\"1\"",
                                      names[2],
                                      names[0],
                                      "argument key=\"y\"",
                                      names[2],
                                      "z",
                                      names[1],
                                      "argument",
                                      names[2],
                                      names[0],
                                      "json type=\"object\"",
                                      names[2],
                                      bodies[i],
                                      names[1],
                                      "json",
                                      names[2],
                                      names[1],
                                      "call",
                                      names[2],
                                      names[3]};
        for (size_t j = 0; j < sizeof pieces / sizeof pieces[0]; j++)
            assert_int_equal(k3_text_encode(vocab, &ids, pieces[j], strlen(pieces[j]), 1, &err), K3_OK);
        answer a = parse_ids(vocab, 0, ids.ids, ids.n);
        assert_int_equal(a.n_calls, i == 0);
        if (i == 0)
            assert_memory_equal(a.arguments[0].bytes, bodies[0], strlen(bodies[0]));
        free_answer(&a);
        k3_tokens_free(&ids);
    }
    k3_vocab_close(vocab);
}

static void c13_several_calls_are_numbered_from_0(void **state)
{
    (void)state; /* collect() checks the numbers */
    assert_parses(0, "{tools|" CALL("f") "}call|" CALL("g") "}call|" CALL("h") "}call|}tools|" END, "", "", "f {}\ng {}\nh {}\n",
                  "tool_calls");
}

static void b13_attribute_values_are_unescaped_once(void **state)
{
    (void)state;
    assert_parses(0, CALL("a&quot;b&amp;c") ARGUMENT("x&amp;quot;y", "string", "&amp;") "}call|" END, "", "",
                  "a\"b&c {\"x&quot;y\": \"&amp;\"}\n", "tool_calls");
}

static void c16_an_open_call_ends_at_the_next_call_only(void **state)
{
    (void)state;
    /* The next call shows that the first was over; a stop right after an argument does not. */
    assert_parses(0, CALL("f") ARGUMENT("a", "number", "1") CALL("g") "}call|" END, "", "", "f {\"a\": 1}\ng {}\n", "tool_calls");
    assert_parses(0, CALL("f") "{argument key=\"a\" type=\"number\"|1" CALL("g") "}call|" END, "", "", "f {\"a\": 1}\ng {}\n",
                  "tool_calls");
    assert_parses(0, CALL("f") ARGUMENT("a", "number", "1") "$", "", "", "", "stop");
    assert_parses(0, CALL("f") ARGUMENT("a", "number", "1"), "", "", "", "length");
    assert_parses(0, CALL("f") ARGUMENT("a", "number", "1") "{response|x$", "", "x", "", "stop");
}

static void c17_the_opener_of_tools_does_not_end_the_message(void **state)
{
    (void)state;
    k3_vocab *vocab = open_small_vocab();
    k3_tokens ids = {0};
    add_script(vocab, &ids, "x}response|{tools|" CALL("f") "}call|}tools|}message|");
    answer a = parse_ids(vocab, 0, ids.ids, ids.n);
    assert_int_equal(a.done, 0);
    assert_int_equal(a.n_calls, 1);
    free_answer(&a);
    k3_tokens_free(&ids);
    k3_vocab_close(vocab);
}

static void c25_beside_a_call_there_is_no_content(void **state)
{
    (void)state;
    assert_parses(1, "r}think|{response|}response|{tools|" CALL("f") "}call|}tools|" END, "r", "", "f {}\n", "tool_calls");
    assert_parses(0, "}response|{tools|\n" CALL("f") "\n}call|\n}tools|\n" END, "", "", "f {}\n", "tool_calls");
}

static void c28_a_response_that_was_never_closed_leaks_nothing(void **state)
{
    (void)state;
    assert_parses(1, "r}think|{response|text}message|$", "r", "text", "", "stop");
    assert_parses(0, "text}message|more{tools|" CALL("f") "}call|$", "", "text", "", "stop");
}

static void c30_no_marker_and_no_special_token_leaves_as_text(void **state)
{
    (void)state;
    k3_vocab *vocab = open_small_vocab();
    int first = k3_vocab_n_ranks(vocab);
    k3_chat_markers m;
    k3_error err;
    assert_int_equal(k3_chat_markers_find(&m, vocab, &err), K3_OK);
    for (int thinking = 0; thinking < 2; thinking++) {
        for (int32_t id = first; id < first + 256; id++) {
            const int32_t ids[] = {'a', id, 'b', m.sep, 'c'};
            answer a = parse_ids(vocab, thinking, ids, 5);
            const k3_buffer *text = thinking ? &a.reasoning : &a.content;
            int is_end = id == m.end || id == m.eos, has_header = id == m.open || id == m.close;
            const char *wanted = is_end ? "a" : has_header ? "ac" : "abc";
            assert_int_equal(text->n, strlen(wanted));
            assert_memory_equal(text->bytes, wanted, text->n);
            free_answer(&a);
        }
    }
    k3_vocab_close(vocab);
    /* Elements that are not K3's: their markers vanish, their text stays where it is. */
    assert_parses(0, "a{b x=\"1\"|bold}b|c" END, "", "aboldc", "", "stop");
    assert_parses(0, "a{argument key=\"k\"|v}argument|c" END, "", "avc", "", "stop");
}

static void c34_names_are_not_checked_here(void **state)
{
    (void)state;
    assert_parses(0, "{tools|" CALL("never declared") "}call|}tools|" END, "", "", "never declared {}\n", "tool_calls");
    assert_parses(0, "{tools|{call index=\"1\"|}call|{call tool=\"\"|}call|" CALL("g") "}call|" END, "", "", "g {}\n", "tool_calls");
}

static void a_channel_opens_once(void **state)
{
    (void)state;
    assert_parses(1, "a}think|{think|b}think|{response|x}response|{think|c}think|{response|y$", "a", "x", "", "stop");
    assert_parses(0, "{think|a}think|{response|x}response|$", "a", "x", "", "stop");
    assert_parses(1, "a}think|{tools|" CALL("f") "}call|}tools|{response|x$", "a", "x", "f {}\n", "tool_calls");
    assert_parses(0, "a{tools|" CALL("f") "}call|}tools|{response|b$", "", "a", "f {}\n", "tool_calls");
}

static void b07_a_split_character_comes_out_whole_and_a_broken_one_as_a_mark(void **state)
{
    (void)state;
    k3_vocab *vocab = open_small_vocab();
    k3_chat_markers m;
    k3_error err;
    assert_int_equal(k3_chat_markers_find(&m, vocab, &err), K3_OK);
    const int32_t whole[] = {0xf0, 0x9f, 0x98, 0x80}, broken[] = {0xf0, 0x9f, m.close, 'x', m.sep, 0x98, 'y'};
    answer a = parse_ids(vocab, 0, whole, 4);
    assert_int_equal(a.n_events, 1);
    assert_memory_equal(a.content.bytes, "\xf0\x9f\x98\x80", 4);
    free_answer(&a);
    a = parse_ids(vocab, 0, broken, 7);
    assert_int_equal(a.content.n, 7);
    assert_memory_equal(a.content.bytes,
                        "\xef\xbf\xbd\xef\xbf\xbd"
                        "y",
                        7);
    free_answer(&a);
    a = parse_ids(vocab, 0, broken, 2);
    assert_int_equal(a.content.n, 3);
    free_answer(&a);
    k3_vocab_close(vocab);
}

static void an_id_outside_the_vocabulary_is_refused(void **state)
{
    (void)state;
    k3_vocab *vocab = open_small_vocab();
    answer a = {0};
    k3_chat_parse *parse;
    k3_error err;
    int done;
    assert_int_equal(k3_chat_parse_open(&parse, vocab, 0, collect, &a, &err), K3_OK);
    assert_int_equal(k3_chat_parse_push(parse, -1, &done, &err), K3_E_INVALID);
    assert_int_equal(k3_chat_parse_push(parse, k3_vocab_size(vocab), &done, &err), K3_E_INVALID);
    assert_int_equal(k3_chat_parse_push(parse, 'x', &done, &err), K3_OK);
    assert_string_equal(k3_chat_parse_finish(parse), "length");
    assert_int_equal(a.content.n, 1);
    k3_chat_parse_close(parse);
    free_answer(&a);
    k3_vocab_close(vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c01_every_way_out_of_think_is_known),
        cmocka_unit_test(c05_one_repeated_opener_is_swallowed_by_id_or_spelled),
        cmocka_unit_test(c05_what_is_no_opener_after_all_stays_text),
        cmocka_unit_test(c07_spelled_markers_are_content),
        cmocka_unit_test(c08_output_cut_inside_think_is_reasoning),
        cmocka_unit_test(c09_finish_is_one_of_three_words),
        cmocka_unit_test(eos_ends_the_message_too_and_nothing_follows),
        cmocka_unit_test(c12_values_pass_as_they_were_spelled),
        cmocka_unit_test(c12_the_raw_form_of_arguments_is_taken_if_it_is_an_object),
        cmocka_unit_test(c13_several_calls_are_numbered_from_0),
        cmocka_unit_test(b13_attribute_values_are_unescaped_once),
        cmocka_unit_test(c16_an_open_call_ends_at_the_next_call_only),
        cmocka_unit_test(c17_the_opener_of_tools_does_not_end_the_message),
        cmocka_unit_test(c25_beside_a_call_there_is_no_content),
        cmocka_unit_test(c28_a_response_that_was_never_closed_leaks_nothing),
        cmocka_unit_test(c30_no_marker_and_no_special_token_leaves_as_text),
        cmocka_unit_test(c34_names_are_not_checked_here),
        cmocka_unit_test(a_channel_opens_once),
        cmocka_unit_test(b07_a_split_character_comes_out_whole_and_a_broken_one_as_a_mark),
        cmocka_unit_test(an_id_outside_the_vocabulary_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
