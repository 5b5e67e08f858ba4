#include "constrain/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "constrain/charset.h"
#include "constrain/markup.h"
#include "constrain/schema.h"

/* A tool that may be called. */
typedef struct tool {
    const k3_json *name, *parameters;
    int is_strict;
} tool;

typedef struct answer {
    k3_grammar *g;
    k3_schema *schema;
    const k3_json *request;
    tool *tools;
    size_t n_tools, capacity;
    int must_call, may_call, holds_format; /* holds_format: the response is JSON */
    k3_error *err;
} answer;

static const k3_json *get(const k3_json *object, const char *key)
{
    const k3_json *value = k3_json_get(object, key);
    return value && value->type != K3_JSON_NULL ? value : NULL;
}

static int is_true(const k3_json *value)
{
    return value && value->type == K3_JSON_TRUE;
}

/* ---- tools --------------------------------------------------------------------------------------------- */

static k3_status add_tools(answer *a, const k3_json *list, const char *place)
{
    size_t i = 0;
    for (const k3_json *item = list && list->type == K3_JSON_ARRAY ? list->first : NULL; item; item = item->next, i++) {
        const k3_json *function = get(item, "function"), *from = function ? function : item, *name = get(from, "name");
        if (!name || name->type != K3_JSON_STRING || name->text_bytes == 0)
            return k3_fail(a->err, K3_E_INVALID,
                           "%s/%zu: a tool without a name, wanted {\"type\": \"function\", \"function\": {\"name\": ...}}", place, i);
        if (a->n_tools == a->capacity) {
            size_t capacity = 2 * a->capacity + 16;
            tool *tools = realloc(a->tools, capacity * sizeof *tools);
            if (!tools)
                return k3_fail(a->err, K3_E_NOMEM, "no memory for %zu tools", capacity);
            a->tools = tools;
            a->capacity = capacity;
        }
        a->tools[a->n_tools++] = (tool){name, get(from, "parameters"), is_true(get(from, "strict"))};
    }
    return K3_OK;
}

/* Tools of the request, and those that system messages add. */
static k3_status find_tools(answer *a)
{
    K3_TRY(add_tools(a, get(a->request, "tools"), "/tools"));
    const k3_json *messages = get(a->request, "messages");
    size_t i = 0;
    for (const k3_json *m = messages ? messages->first : NULL; m; m = m->next, i++) {
        char place[64];
        snprintf(place, sizeof place, "/messages/%zu/tools", i);
        if (k3_json_text_is(get(m, "role"), "system") || k3_json_text_is(get(m, "role"), "developer"))
            K3_TRY(add_tools(a, get(m, "tools"), place));
    }
    return K3_OK;
}

/* The tools that are named stay. */
static k3_status keep_named(answer *a, const k3_json *choice)
{
    const k3_json *function = get(choice, "function"), *name = get(function ? function : choice, "name");
    size_t n = 0;
    if (!name || name->type != K3_JSON_STRING)
        return k3_fail(a->err, K3_E_UNSUPPORTED,
                       "/tool_choice: an object without the name of a function, wanted {\"type\": \"function\", "
                       "\"function\": {\"name\": ...}}");
    for (size_t i = 0; i < a->n_tools; i++) {
        const k3_json *own = a->tools[i].name;
        if (own->text_bytes == name->text_bytes && memcmp(own->text, name->text, name->text_bytes) == 0)
            a->tools[n++] = a->tools[i];
    }
    a->n_tools = n;
    return n > 0 ? K3_OK
                 : k3_fail(a->err, K3_E_INVALID, "/tool_choice: the function \"%.100s\" is not among the request's tools", name->text);
}

static k3_status choose_tools(answer *a)
{
    const k3_json *choice = get(a->request, "tool_choice");
    int is_named = choice && choice->type == K3_JSON_OBJECT, is_required = k3_json_text_is(choice, "required"), n_strict = 0;
    if (choice && !is_named && !is_required && !k3_json_text_is(choice, "auto") && !k3_json_text_is(choice, "none"))
        return k3_fail(a->err, K3_E_INVALID, "/tool_choice: wanted \"auto\", \"none\", \"required\" or an object that names a function");
    if (k3_json_text_is(choice, "none"))
        return K3_OK;
    K3_TRY(find_tools(a));
    a->must_call = is_named || is_required;
    if (is_named)
        K3_TRY(keep_named(a, choice));
    if (is_required && a->n_tools == 0)
        return k3_fail(a->err, K3_E_INVALID, "/tool_choice: \"required\" in a request without tools");
    for (size_t i = 0; i < a->n_tools; i++)
        n_strict += a->tools[i].is_strict;
    a->may_call = a->n_tools > 0 && (a->must_call || a->holds_format || n_strict > 0);
    return K3_OK;
}

/* `index` and the end of the opener of call number `number`. */
static uint32_t index_rule(k3_grammar *g, int number)
{
    char digits[16];
    snprintf(digits, sizeof digits, "%d", number);
    uint32_t rule = k3_grammar_rule(g);
    uint32_t end = k3_markup_quote(g, k3_markup_sep(g, K3_GRAMMAR_RETURN));
    k3_grammar_set(g, rule, k3_markup_key(g, "index", k3_grammar_word(g, digits, end)));
    return rule;
}

static uint32_t name_rule(k3_grammar *g, const k3_json *name)
{
    uint32_t rule = k3_grammar_rule(g), end = k3_markup_quote(g, K3_GRAMMAR_RETURN);
    k3_grammar_set(g, rule, k3_markup_key(g, "tool", k3_form_text(g, name->text, name->text_bytes, K3_FORM_ATTRIBUTE, end)));
    return rule;
}

/* The tools channel: at least one call. A tool that is neither forced nor strict may get any arguments; one that is, and has no
 * parameters, gets none. */
static k3_status tools_node(answer *a, uint32_t *start, uint32_t next)
{
    k3_grammar *g = a->g;
    const k3_json *parallel = get(a->request, "parallel_tool_calls");
    int n_most = parallel && parallel->type == K3_JSON_FALSE ? 1 : K3_ANSWER_MAX_CALLS;
    uint32_t *names = malloc((2 * a->n_tools + 1) * sizeof *names), *arguments = names ? names + a->n_tools : NULL;
    k3_status status = names ? K3_OK : k3_fail(a->err, K3_E_NOMEM, "no memory for %zu tools", a->n_tools);
    for (size_t i = 0; i < a->n_tools && status == K3_OK; i++) {
        int is_held = a->must_call || a->tools[i].is_strict;
        const k3_json *parameters = is_held ? a->tools[i].parameters : NULL;
        names[i] = name_rule(g, a->tools[i].name);
        if (is_held && !parameters) {
            arguments[i] = k3_grammar_rule(g);
            k3_grammar_set(g, arguments[i], K3_GRAMMAR_RETURN);
        } else {
            status = k3_schema_rule(a->schema, &arguments[i], parameters, K3_TYPE_OBJECT, K3_SCHEMA_ARGUMENTS, 0, a->err);
        }
    }
    uint32_t end = k3_markup_close(g, "tools", next), calls = end;
    for (int number = n_most; number > 0 && status == K3_OK; number--) {
        uint32_t index = index_rule(g, number), after = k3_markup_close(g, "call", number == n_most ? end : calls);
        uint32_t any = K3_GRAMMAR_DEAD;
        for (size_t i = a->n_tools; i-- > 0;) {
            uint32_t rest = k3_grammar_call(g, index, k3_grammar_call(g, arguments[i], after));
            any = k3_grammar_either(g, k3_grammar_call(g, names[i], rest), any);
        }
        calls = k3_markup_open(g, "call", any);
        calls = number > 1 ? k3_grammar_either(g, calls, end) : calls;
    }
    *start = k3_markup_open(g, "tools", k3_markup_sep(g, calls));
    free(names);
    return status;
}

/* ---- response ------------------------------------------------------------------------------------------ */

/* The schema of response_format, as the renderer finds it. */
static const k3_json *schema_of(const k3_json *format)
{
    const k3_json *outer = get(format, "json_schema"), *inner = get(outer, "schema");
    if (!inner)
        inner = get(outer, "json_schema");
    if (!inner && outer && !k3_json_get(outer, "name"))
        inner = outer;
    return inner;
}

/* *rule of the response's text; holds_format tells whether there is one. */
static k3_status format_rule(answer *a, uint32_t *rule)
{
    const k3_json *format = get(a->request, "response_format"), *type = format;
    if (format && format->type == K3_JSON_OBJECT)
        type = k3_json_get(format, "type");
    if (!format || k3_json_text_is(type, "text"))
        return K3_OK;
    int has_schema = k3_json_text_is(type, "json_schema");
    if (!has_schema && !k3_json_text_is(type, "json_object"))
        return k3_fail(a->err, K3_E_INVALID, "/response_format: the type is none of text, json_object and json_schema");
    const k3_json *schema = has_schema ? schema_of(format) : NULL;
    if (has_schema && !schema)
        return k3_fail(a->err, K3_E_INVALID, "/response_format/json_schema: there is no schema, wanted {\"name\": ..., \"schema\": {...}}");
    a->holds_format = 1;
    return k3_schema_rule(a->schema, rule, schema, has_schema ? K3_TYPE_ALL : K3_TYPE_OBJECT, K3_SCHEMA_JSON, !has_schema, a->err);
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

static uint32_t free_text(k3_grammar *g, uint32_t next)
{
    uint32_t byte = k3_grammar_rule(g);
    k3_grammar_set(g, byte, k3_grammar_bytes(g, 0, 255, K3_GRAMMAR_RETURN));
    return k3_grammar_loop_of(g, byte, 0, K3_GRAMMAR_NO_LIMIT, next);
}

/* From the text of the response on. A call that is forced has no text before it. */
static k3_status response_node(answer *a, uint32_t *start, uint32_t format)
{
    k3_grammar *g = a->g;
    uint32_t finish = k3_markup_close(g, "message", k3_grammar_marker(g, K3_MARK_END, K3_GRAMMAR_RETURN)), calls = K3_GRAMMAR_DEAD;
    if (a->may_call) {
        K3_TRY(tools_node(a, &calls, finish));
        calls = k3_grammar_either(g, calls, a->must_call || a->holds_format ? K3_GRAMMAR_DEAD : finish);
        calls = k3_markup_close(g, "response", calls);
    }
    if (a->must_call)
        *start = calls;
    else if (a->holds_format)
        *start = k3_grammar_either(g, k3_grammar_call(g, format, k3_markup_close(g, "response", finish)), calls);
    else
        *start = free_text(g, calls);
    return K3_OK;
}

/* The opener that the prompt ended with may come once more. Thinking may also end by the opener of the response. */
static uint32_t answer_node(k3_grammar *g, uint32_t response, int thinking)
{
    uint32_t open = k3_markup_open(g, "response", k3_markup_sep(g, response));
    if (!thinking)
        return k3_grammar_either(g, response, open);
    uint32_t think = free_text(g, k3_grammar_either(g, k3_markup_close(g, "think", open), open));
    return k3_grammar_either(g, think, k3_markup_open(g, "think", k3_markup_sep(g, think)));
}

static k3_status build(answer *a, uint32_t *rule, int *narrows, int thinking)
{
    uint32_t format = 0, response;
    K3_TRY(format_rule(a, &format));
    K3_TRY(choose_tools(a));
    *narrows = a->holds_format || a->may_call;
    if (!*narrows)
        return K3_OK;
    K3_TRY(response_node(a, &response, format));
    *rule = k3_grammar_rule(a->g);
    k3_grammar_set(a->g, *rule, answer_node(a->g, response, thinking));
    K3_TRY(k3_grammar_finish(a->g, a->err));
    if (a->holds_format && !a->must_call && a->g->heights[a->g->rules[format]] == K3_GRAMMAR_NO_WAY)
        return k3_fail(a->err, K3_E_INVALID, "/response_format/json_schema: no value fits the schema, or none with less than %d levels",
                       K3_GRAMMAR_MAX_DEPTH);
    if (a->g->heights[a->g->rules[*rule]] == K3_GRAMMAR_NO_WAY)
        return k3_fail(a->err, K3_E_INVALID, "/tools: no arguments fit the parameters of any tool that may be called");
    return K3_OK;
}

k3_status k3_answer_grammar(k3_grammar *g, uint32_t *rule, int *narrows, const k3_json *request, int thinking, k3_error *err)
{
    answer a = {.g = g, .request = request, .err = err};
    *narrows = 0;
    K3_TRY(k3_schema_open(&a.schema, g, request, err));
    k3_status status = build(&a, rule, narrows, thinking);
    k3_schema_close(a.schema);
    free(a.tools);
    return status;
}
