#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define BODY(text)                                                                                                                         \
    {                                                                                                                                      \
        text, sizeof(text) - 1                                                                                                             \
    }

typedef struct body {
    const char *text;
    size_t n_bytes;
} body;

static const k3_json *parse(const char *text, int flags)
{
    const k3_json *root = NULL;
    k3_error err = {0};
    if (k3_json_parse(&root, text, strlen(text), flags, &err) != K3_OK)
        fail_msg("%s: %s", text, err.text);
    return root;
}

static void assert_refused(const char *text, int flags, const char *message)
{
    const k3_json *root = NULL;
    k3_error err = {0};
    assert_int_equal(k3_json_parse(&root, text, strlen(text), flags, &err), K3_E_FORMAT);
    assert_null(root);
    assert_string_equal(err.text, message);
}

static void d22_illegal_bodies_are_refused(void **state)
{
    (void)state;
    static const body bodies[] = {
        BODY(""),
        BODY(" "),
        BODY("NaN"),
        BODY("Infinity"),
        BODY("-Infinity"),
        BODY("[nan]"),
        BODY("+1"),
        BODY("01"),
        BODY("-01"),
        BODY("-"),
        BODY("1."),
        BODY(".5"),
        BODY("1.e5"),
        BODY("1e"),
        BODY("1e+"),
        BODY("0x10"),
        BODY("1_000"),
        BODY("--1"),
        BODY("[1,]"),
        BODY("[,1]"),
        BODY("[1 2]"),
        BODY("[1"),
        BODY("]"),
        BODY("{\"a\":1,}"),
        BODY("{\"a\" 1}"),
        BODY("{a:1}"),
        BODY("{'a':1}"),
        BODY("{\"a\":}"),
        BODY("{\"a\"}"),
        BODY("{1:2}"),
        BODY("{\"a\":1"),
        BODY("{} {}"),
        BODY("1 x"),
        BODY("nul"),
        BODY("True"),
        BODY("undefined"),
        BODY("\"a"),
        BODY("\"\\\""),
        BODY("\"\\x41\""),
        BODY("\"\\u12g4\""),
        BODY("\"\\u12"),
        BODY("\"\n\""),
        BODY("\"\t\""),
        BODY("\"\x01\""),
        BODY("\"\0\""),
        BODY("\"\x1f\""),
        BODY("\"\x80\""),
        BODY("\"\xc0\xaf\""),
        BODY("\"\xc3\""),
        BODY("\"\xe0\x80\x80\""),
        BODY("\"\xed\xa0\x80\""),
        BODY("\"\xf4\x90\x80\x80\""),
        BODY("\"\xff\""),
        BODY("\"\xf0\x9f\x98\""),
        BODY("\"\\ud83d\""),
        BODY("\"\\ude00\""),
        BODY("\"\\ud83dx\""),
        BODY("\"\\ud83d\\u0041\""),
        BODY("// c\n1"),
        BODY("/* c */1"),
        BODY("[1]\0"),
        BODY("\xef\xbb"),
        BODY("\xef\xbb\xbf"),
        BODY("\xef\xbb\xbf\xef\xbb\xbf"
             "1"),
        BODY("\x0b"
             "1"),
        BODY("\xc2\xa0"
             "1"),
        BODY("{\"a\":1}}"),
        BODY("[\"a\":1]"),
        BODY("\"\\"),
        BODY("tru"),
    };
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        const k3_json *root = NULL;
        k3_error err = {0};
        k3_status status = k3_json_parse(&root, bodies[i].text, bodies[i].n_bytes, 0, &err);
        if (status != K3_E_FORMAT || root || strncmp(err.text, "line ", 5) != 0)
            fail_msg("body %zu <%s>: status %d, \"%s\"", i, bodies[i].text, (int)status, err.text);
    }
}

static void every_cut_of_a_document_is_refused(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":[1,-2.5e3,\"\\ud83d\\ude00\xe4\xb8\x96\"],\"b\":{\"c\":null,\"d\":true},\"e\":\"\\n\"}";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        const k3_json *root = NULL;
        char *copy = malloc(n ? n : 1); /* exact size: a sanitizer sees a read past the end */
        assert_non_null(copy);
        memcpy(copy, text, n);
        assert_int_equal(k3_json_parse(&root, copy, n, K3_JSON_UNIQUE_KEYS, NULL), K3_E_FORMAT);
        free(copy);
    }
    k3_json_free(parse(text, K3_JSON_UNIQUE_KEYS));
}

static void numbers_keep_their_spelling(void **state)
{
    (void)state;
    static const char *const spellings[] = {"0",   "-0",     "1E5",  "1e400", "1e-400",  "0.10", "12345678901234567890", "-1.5e+07",
                                            "0e0", "0.0E-0", "10e1", "1.0",   "-0.0e99", "9",    "123456789.000"};
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        const k3_json *alone = parse(spellings[i], 0);
        assert_int_equal(alone->type, K3_JSON_NUMBER);
        assert_string_equal(alone->text, spellings[i]);
        assert_int_equal(alone->text_bytes, strlen(spellings[i]));
        k3_json_free(alone);
        char list[80];
        snprintf(list, sizeof list, "[%s,%s]", spellings[i], spellings[i]);
        const k3_json *root = parse(list, 0);
        assert_int_equal(root->n_children, 2);
        assert_string_equal(root->first->text, spellings[i]);
        assert_string_equal(root->first->next->text, spellings[i]);
        k3_json_free(root);
    }
}

static void integers_are_exact_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int is_integer;
        int64_t value;
    } cases[] = {
        {"0", 1, 0},
        {"-0", 1, 0},
        {"0e99999999999999999999", 1, 0},
        {"1e3", 1, 1000},
        {"4.0", 1, 4},
        {"4.5", 0, 0},
        {"0.5e1", 1, 5},
        {"10.0e-1", 1, 1},
        {"10e-2", 0, 0},
        {"1E5", 1, 100000},
        {"9007199254740993", 1, 9007199254740993},
        {"-12", 1, -12},
        {"9223372036854775807", 1, INT64_MAX},
        {"9223372036854775808", 0, 0},
        {"-9223372036854775808", 1, INT64_MIN},
        {"-9223372036854775809", 0, 0},
        {"92233720368547758070e-1", 1, INT64_MAX},
        {"9e18", 1, 9000000000000000000},
        {"1e19", 0, 0},
        {"12.34e2", 1, 1234},
        {"12.34e1", 0, 0},
        {"0.00001e5", 1, 1},
        {"1e99999999999999999999", 0, 0},
        {"1e-99999999999999999999", 0, 0},
        {"\"1\"", 0, 0},
        {"true", 0, 0},
        {"NaN", 0, 0},
        {"-Infinity", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const k3_json *root = parse(cases[i].text, K3_JSON_NONFINITE);
        int64_t value = 77;
        int is_integer = k3_json_int(root, &value);
        if (is_integer != cases[i].is_integer || (is_integer && value != cases[i].value))
            fail_msg("%s: %d, %lld", cases[i].text, is_integer, (long long)value);
        k3_json_free(root);
    }
    int64_t value;
    assert_false(k3_json_int(NULL, &value));
}

static void doubles_are_finite_and_ignore_the_locale(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int is_finite;
        double value;
    } cases[] = {{"1e-05", 1, 1e-5}, {"-0", 1, -0.0},   {"0.1", 1, 0.1}, {"1e400", 0, 0},    {"1e-400", 1, 0},
                 {"1E5", 1, 1e5},    {"-5.0", 1, -5.0}, {"NaN", 0, 0},   {"Infinity", 0, 0}, {"\"1\"", 0, 0}};
    setlocale(LC_NUMERIC, "de_DE.UTF-8"); /* where it is not installed nothing changes, and the rest still holds */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const k3_json *root = parse(cases[i].text, K3_JSON_NONFINITE);
        double value = 77;
        assert_int_equal(k3_json_double(root, &value), cases[i].is_finite);
        if (cases[i].is_finite)
            assert_memory_equal(&value, &cases[i].value, sizeof value);
        k3_json_free(root);
    }
    setlocale(LC_NUMERIC, "C");
}

static void strings_are_decoded(void **state)
{
    (void)state;
    static const struct {
        const char *text, *value;
        size_t n_bytes;
    } cases[] = {
        {"\"\"", "", 0},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8},
        {"\"\\u0041\\u00e9\\u4e16\\uD83d\\uDe00\"", "A\xc3\xa9\xe4\xb8\x96\xf0\x9f\x98\x80", 10},
        {"\"a\\u0000b\"", "a\0b", 3},
        {"\"\x7f\xc3\xa9\xe4\xb8\x96\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\"", "\x7f\xc3\xa9\xe4\xb8\x96\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf", 14},
        {"\"\\uffff\\ue000\"", "\xef\xbf\xbf\xee\x80\x80", 6}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const k3_json *root = parse(cases[i].text, 0);
        assert_int_equal(root->type, K3_JSON_STRING);
        assert_int_equal(root->text_bytes, cases[i].n_bytes);
        assert_memory_equal(root->text, cases[i].value, cases[i].n_bytes + 1);
        k3_json_free(root);
    }
}

static void half_a_pair_becomes_u_fffd_on_request(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"\"\\ud83d\"", "\xef\xbf\xbd"},
                                           {"\"\\ude00x\"", "\xef\xbf\xbdx"},
                                           {"\"\\ud83d\\u0041\"", "\xef\xbf\xbd"
                                                                  "A"},
                                           {"\"\\ud83d\\ud83d\\ude00\"", "\xef\xbf\xbd\xf0\x9f\x98\x80"},
                                           {"\"\\ud83d\\n\"", "\xef\xbf\xbd\n"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const k3_json *root = parse(cases[i][0], K3_JSON_SURROGATES);
        assert_string_equal(root->text, cases[i][1]);
        k3_json_free(root);
    }
    assert_refused("\"\\ud83d\\uzzzz\"", K3_JSON_SURROGATES, "line 1, column 8: \\u must be followed by four hexadecimal digits");
}

static void nonfinite_numbers_need_the_flag(void **state)
{
    (void)state;
    const k3_json *root = parse("[NaN, Infinity,-Infinity, -1]", K3_JSON_NONFINITE);
    const k3_json *v = root->first;
    assert_string_equal(v->text, "NaN");
    assert_string_equal(v->next->text, "Infinity");
    assert_string_equal(v->next->next->text, "-Infinity");
    assert_int_equal(v->next->next->type, K3_JSON_NUMBER);
    k3_json_free(root);
    assert_refused("[1,\n  NaN]", 0, "line 2, column 3: NaN and Infinity are not JSON");
    assert_refused("[-NaN]", K3_JSON_NONFINITE, "line 1, column 3: found 'N', wanted a digit");
    assert_refused("[-Infinit]", K3_JSON_NONFINITE, "line 1, column 3: found 'I', wanted a digit");
    assert_refused("[Infinityx]", K3_JSON_NONFINITE, "line 1, column 10: found 'x', wanted ',' or ']'");
}

static void errors_name_line_and_column_in_characters(void **state)
{
    (void)state;
    assert_refused("{\n  \"a\": 1,\n  \"b\" 2\n}", 0, "line 3, column 7: found '2', wanted ':' after a member's name");
    assert_refused("\xef\xbb\xbf{\r\n\t\"\xe4\xb8\x96\xe7\x95\x8c\": tru}", 0, "line 2, column 8: found 't', wanted a JSON value");
    assert_refused("[\"\xf0\x9f\x98\x80\xc3\xa9\", \"x\x01\"]", 0,
                   "line 1, column 10: a control character inside a string must be written as an escape");
    assert_refused("{\"a\": [1, 2", 0, "line 1, column 12: the text ends here, wanted ',' or ']'");
    assert_refused("[\x07]", 0, "line 1, column 2: found byte 0x07, wanted a JSON value");
    assert_refused("[1] 2", 0, "line 1, column 5: found '2', wanted nothing after the value");
}

static void nodes_know_where_they_stand(void **state)
{
    (void)state;
    const k3_json *root = parse("\xef\xbb\xbf{\r\n  \"\xc3\xa9\": 5,\r\n\r\n  \"b\": [true,\n {}]\n}", 0);
    assert_int_equal(root->line, 1);
    assert_int_equal(root->column, 1);
    const k3_json *a = k3_json_get(root, "\xc3\xa9"), *b = k3_json_get(root, "b");
    assert_int_equal(a->line, 2);
    assert_int_equal(a->column, 8);
    assert_int_equal(b->line, 4);
    assert_int_equal(b->column, 8);
    assert_int_equal(b->first->column, 9);
    assert_int_equal(b->first->next->line, 5);
    assert_int_equal(b->first->next->column, 2);
    assert_int_equal(b->first->next->type, K3_JSON_OBJECT);
    assert_int_equal(b->first->next->n_children, 0);
    k3_json_free(root);
}

static void repeated_keys_are_kept_or_refused(void **state)
{
    (void)state;
    const k3_json *root = parse("{\"a\":1,\"b\":2,\"a\":3}", 0);
    assert_int_equal(root->n_children, 3);
    assert_string_equal(k3_json_get(root, "a")->text, "3");
    assert_null(k3_json_get(root, "c"));
    assert_null(k3_json_get(root->first, "a"));
    assert_null(k3_json_get(NULL, "a"));
    k3_json_free(root);
    assert_refused("{\"a\":1,\n\"b\":2,\"a\":3}", K3_JSON_UNIQUE_KEYS,
                   "line 2, column 11: key \"a\" appears a second time in the same object");
    assert_refused("[{\"\\u0061\\n\":1,\"a\\n\":2}]", K3_JSON_UNIQUE_KEYS,
                   "line 1, column 22: key \"a?\" appears a second time in the same object");
    k3_json_free(parse("{\"a\":{\"a\":{}},\"b\":{\"a\":1}}", K3_JSON_UNIQUE_KEYS));
    char many[20000] = "{";
    size_t n = 1;
    for (int i = 0; i < 1000; i++)
        n += (size_t)snprintf(many + n, sizeof many - n, "\"k%d\":%d,", i, i);
    snprintf(many + n, sizeof many - n, "\"z\":1}");
    root = parse(many, K3_JSON_UNIQUE_KEYS);
    assert_int_equal(root->n_children, 1001);
    assert_string_equal(k3_json_get(root, "k999")->text, "999");
    k3_json_free(root);
    snprintf(many + n, sizeof many - n, "\"k500\":1}");
    k3_error err = {0};
    assert_int_equal(k3_json_parse(&root, many, strlen(many), K3_JSON_UNIQUE_KEYS, &err), K3_E_FORMAT);
    assert_non_null(strstr(err.text, "key \"k500\" appears a second time"));
}

static void depth_is_limited_to_256(void **state)
{
    (void)state;
    char text[600];
    for (int depth = 255; depth <= 257; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = 0;
        if (depth <= 256)
            k3_json_free(parse(text, 0));
        else
            assert_refused(text, 0, "line 1, column 257: nested deeper than 256 levels");
    }
    const k3_json *root = NULL;
    char *deep = malloc(10000000);
    assert_non_null(deep);
    memset(deep, '[', 10000000);
    assert_int_equal(k3_json_parse(&root, deep, 10000000, 0, NULL), K3_E_FORMAT);
    free(deep);
}

static void text_comparison_sees_bytes_after_nul(void **state)
{
    (void)state;
    const k3_json *root = parse("[\"situ\", \"situ\\u0000x\", 5, null]", 0);
    assert_true(k3_json_text_is(root->first, "situ"));
    assert_false(k3_json_text_is(root->first, "sit"));
    assert_false(k3_json_text_is(root->first->next, "situ"));
    assert_false(k3_json_text_is(root->first->next->next, "5"));
    assert_false(k3_json_text_is(NULL, ""));
    k3_json_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d22_illegal_bodies_are_refused),
        cmocka_unit_test(every_cut_of_a_document_is_refused),
        cmocka_unit_test(numbers_keep_their_spelling),
        cmocka_unit_test(integers_are_exact_or_refused),
        cmocka_unit_test(doubles_are_finite_and_ignore_the_locale),
        cmocka_unit_test(strings_are_decoded),
        cmocka_unit_test(half_a_pair_becomes_u_fffd_on_request),
        cmocka_unit_test(nonfinite_numbers_need_the_flag),
        cmocka_unit_test(errors_name_line_and_column_in_characters),
        cmocka_unit_test(nodes_know_where_they_stand),
        cmocka_unit_test(repeated_keys_are_kept_or_refused),
        cmocka_unit_test(depth_is_limited_to_256),
        cmocka_unit_test(text_comparison_sees_bytes_after_nul),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
