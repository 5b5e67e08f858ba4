#include "text/chat_message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/json_write.h"

const k3_json *k3_chat_get(const k3_json *object, const char *key)
{
    const k3_json *value = k3_json_get(object, key);
    return value && value->type != K3_JSON_NULL ? value : NULL;
}

static int is_role(const k3_json *message, const char *role)
{
    return k3_json_text_is(k3_json_get(message, "role"), role);
}

static int is_system(const k3_chat_state *state, const k3_json *message)
{
    return is_role(message, "system") || (state->map_developer && is_role(message, "developer"));
}

/* A member that must be a string if it is there. */
static k3_status get_text(const k3_chat_state *state, const k3_json **out, const k3_json *object, const char *key)
{
    *out = k3_chat_get(object, key);
    if (*out && (*out)->type != K3_JSON_STRING)
        return k3_fail(state->w.err, K3_E_INVALID, "%s must be a string", key);
    return K3_OK;
}

/* The same where an empty string counts as missing. */
static k3_status get_name(const k3_chat_state *state, const k3_json **out, const k3_json *object, const char *key)
{
    K3_TRY(get_text(state, out, object, key));
    if (*out && (*out)->text_bytes == 0)
        *out = NULL;
    return K3_OK;
}

static k3_status get_array(const k3_chat_state *state, const k3_json **out, const k3_json *object, const char *key)
{
    *out = k3_chat_get(object, key);
    if (*out && (*out)->type != K3_JSON_ARRAY)
        return k3_fail(state->w.err, K3_E_INVALID, "%s must be an array", key);
    if (*out && (*out)->n_children == 0)
        *out = NULL;
    return K3_OK;
}

static k3_chat_attribute attribute(const char *key, const k3_json *text)
{
    return (k3_chat_attribute){key, text ? text->text : NULL, text ? text->text_bytes : 0};
}

static k3_chat_attribute attribute_text(const char *key, const char *text)
{
    return (k3_chat_attribute){key, text, strlen(text)};
}

/* ---- content ------------------------------------------------------------------------------------------- */

static int is_image(const k3_json *part)
{
    const k3_json *type = k3_json_get(part, "type");
    return k3_json_text_is(type, "image_url") || k3_json_text_is(type, "image");
}

static const char *find_placeholder(const char *text, size_t n)
{
    return n > 0 ? memmem(text, n, K3_IMAGE_PLACEHOLDER, sizeof K3_IMAGE_PLACEHOLDER - 1) : NULL;
}

static size_t count_placeholders(const k3_json *text)
{
    size_t n_found = 0;
    if (!text || text->type != K3_JSON_STRING)
        return 0;
    const char *end = text->text + text->text_bytes;
    for (const char *at = text->text; (at = find_placeholder(at, (size_t)(end - at))) != NULL; at += sizeof K3_IMAGE_PLACEHOLDER - 1)
        n_found++;
    return n_found;
}

size_t k3_chat_count_images(const k3_json *message, int in_text)
{
    const k3_json *content = k3_json_get(message, "content");
    size_t n = in_text ? count_placeholders(content) : 0;
    if (content && content->type == K3_JSON_ARRAY) {
        for (const k3_json *part = content->first; part; part = part->next) {
            n += (size_t)is_image(part);
            n += in_text ? count_placeholders(k3_json_get(part, "text")) : 0;
        }
    }
    return n;
}

int k3_chat_has_content(const k3_chat_state *state, const k3_json *message)
{
    const k3_json *tools = k3_chat_get(message, "tools");
    if (is_system(state, message))
        return !tools || tools->n_children == 0;
    return is_role(message, "user") || is_role(message, "assistant") || is_role(message, "tool");
}

/* One pad token stands for the image; the engine widens it to the image's patches. */
static k3_status write_image(k3_chat_state *state, size_t i_image)
{
    if (!state->images)
        return k3_chat_write_trusted(&state->w, K3_IMAGE_PLACEHOLDER);
    const k3_json *size = state->images->first;
    for (size_t i = 0; i < i_image; i++)
        size = size->next;
    int64_t width, height;
    (void)k3_json_int(size->first, &width);
    (void)k3_json_int(size->first->next, &height);
    char block[160];
    snprintf(block, sizeof block, "<|media_begin|>image %lldx%lld<|media_content|><|media_pad|><|media_end|>", (long long)width,
             (long long)height);
    return k3_chat_write_trusted(&state->w, block);
}

static k3_status write_string(k3_chat_state *state, const k3_json *text, size_t *i_image)
{
    const char *at = text->text, *end = at + text->text_bytes;
    while (state->images_in_text) {
        const char *found = find_placeholder(at, (size_t)(end - at));
        if (!found)
            break;
        K3_TRY(k3_chat_write_text(&state->w, at, (size_t)(found - at)));
        K3_TRY(write_image(state, (*i_image)++));
        at = found + sizeof K3_IMAGE_PLACEHOLDER - 1;
    }
    return k3_chat_write_text(&state->w, at, (size_t)(end - at));
}

/* Each part is a segment of its own, with nothing between two parts. */
static k3_status write_content(k3_chat_state *state, const k3_json *message, size_t index)
{
    const k3_json *content = k3_chat_get(message, "content");
    size_t i_image = state->first_image[index];
    if (!content)
        return K3_OK;
    if (content->type == K3_JSON_STRING)
        return write_string(state, content, &i_image);
    if (content->type != K3_JSON_ARRAY)
        return k3_fail(state->w.err, K3_E_INVALID, "content must be a string, null or an array of parts");
    size_t i_part = 0;
    for (const k3_json *part = content->first; part; part = part->next, i_part++) {
        const k3_json *text = k3_json_get(part, "text");
        if (is_image(part))
            K3_TRY(write_image(state, i_image++));
        else if (k3_json_text_is(k3_json_get(part, "type"), "text") && text && text->type == K3_JSON_STRING)
            K3_TRY(write_string(state, text, &i_image));
        else
            return k3_fail(state->w.err, K3_E_INVALID,
                           "content[%zu] is neither {\"type\": \"text\", \"text\": ...} nor of type image_url or image", i_part);
    }
    return K3_OK;
}

/* ---- system and user ----------------------------------------------------------------------------------- */

k3_status k3_chat_write_system(k3_chat_state *state, const char *type, const char *text, size_t n)
{
    const k3_chat_attribute attributes[] = {attribute_text("role", "system"), attribute_text("type", type)};
    K3_TRY(k3_chat_write_open(&state->w, "message", attributes, 2));
    K3_TRY(k3_chat_write_text(&state->w, text, n));
    return k3_chat_write_end(&state->w);
}

k3_status k3_chat_write_tools(k3_chat_state *state, const k3_json *tools, int late)
{
    static const char first[] = "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n";
    static const char more[] =
        "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
        "You have access to all existing and extended tools.\nHere are the specs for the extended tools.\n\n```json\n";
    k3_buffer text = {0};
    k3_buffer_add_text(&text, late ? more : first);
    k3_json_write(&text, tools, K3_JSON_SORTED);
    k3_buffer_add_text(&text, "\n```");
    k3_status status = text.failed ? k3_fail(state->w.err, K3_E_NOMEM, "no memory for the declaration of %zu tools", tools->n_children)
                                   : k3_chat_write_system(state, "tool-declare", text.bytes, text.n);
    k3_buffer_free(&text);
    return status;
}

static k3_status write_plain(k3_chat_state *state, const char *role, const k3_json *message, size_t index)
{
    const k3_json *name;
    K3_TRY(get_name(state, &name, message, "name"));
    const k3_chat_attribute attributes[] = {attribute_text("role", role), attribute("name", name)};
    K3_TRY(k3_chat_write_open(&state->w, "message", attributes, 2));
    K3_TRY(write_content(state, message, index));
    return k3_chat_write_end(&state->w);
}

/* A system message with tools only declares them: its text and name are not rendered, as the released encoder has it. */
static k3_status write_system(k3_chat_state *state, const k3_json *message, size_t index)
{
    const k3_json *tools;
    K3_TRY(get_array(state, &tools, message, "tools"));
    return tools ? k3_chat_write_tools(state, tools, 1) : write_plain(state, "system", message, index);
}

/* ---- assistant ----------------------------------------------------------------------------------------- */

static const char *type_name(const k3_json *value)
{
    switch (value->type) {
    case K3_JSON_STRING:
        return "string";
    case K3_JSON_NUMBER:
        return "number";
    case K3_JSON_TRUE:
    case K3_JSON_FALSE:
        return "boolean";
    case K3_JSON_ARRAY:
        return "array";
    case K3_JSON_OBJECT:
        return "object";
    default:
        return "null";
    }
}

/* Strings go in as they are, everything else as JSON. */
static k3_status write_argument(k3_chat_state *state, const k3_json *argument)
{
    const k3_chat_attribute attributes[] = {{"key", argument->key, argument->key_bytes}, attribute_text("type", type_name(argument))};
    K3_TRY(k3_chat_write_open(&state->w, "argument", attributes, 2));
    if (argument->type == K3_JSON_STRING) {
        K3_TRY(k3_chat_write_text(&state->w, argument->text, argument->text_bytes));
    } else {
        k3_buffer text = {0};
        k3_json_write(&text, argument, K3_JSON_SPACED);
        k3_status status = text.failed ? k3_fail(state->w.err, K3_E_NOMEM, "no memory for the arguments of a call")
                                       : k3_chat_write_text(&state->w, text.bytes, text.n);
        k3_buffer_free(&text);
        K3_TRY(status);
    }
    return k3_chat_write_close(&state->w, "argument");
}

static k3_status write_arguments_object(k3_chat_state *state, const k3_json *arguments)
{
    if (arguments->type != K3_JSON_OBJECT)
        return k3_fail(state->w.err, K3_E_INVALID, "function.arguments is JSON of type %s, wanted an object", type_name(arguments));
    size_t n;
    int failed = 0;
    const k3_json **members = k3_json_members(arguments, K3_JSON_SPACED, &n, &failed);
    k3_status status = failed ? k3_fail(state->w.err, K3_E_NOMEM, "no memory for the arguments of a call") : K3_OK;
    for (size_t i = 0; i < n && status == K3_OK; i++)
        status = write_argument(state, members[i]);
    free(members);
    return status;
}

/* Clients send the arguments as JSON inside a string, some as the object itself. Text that is no JSON stands as it is in a `json`
 * element, so that the model sees what it did. */
static k3_status write_arguments(k3_chat_state *state, const k3_json *arguments)
{
    if (!arguments)
        return K3_OK;
    if (arguments->type != K3_JSON_STRING)
        return write_arguments_object(state, arguments);
    if (k3_utf8_is_blank(arguments->text, arguments->text_bytes))
        return K3_OK;
    const k3_json *parsed = NULL;
    int has_mark = arguments->text_bytes >= 3 && memcmp(arguments->text, "\xef\xbb\xbf", 3) == 0;
    k3_status status = K3_E_FORMAT;
    if (!has_mark)
        status = k3_json_parse(&parsed, arguments->text, arguments->text_bytes, K3_JSON_NONFINITE | K3_JSON_SURROGATES, state->w.err);
    if (status == K3_OK) {
        status = write_arguments_object(state, parsed);
        k3_json_free(parsed);
        return status;
    }
    if (status != K3_E_FORMAT)
        return status;
    const k3_chat_attribute type = attribute_text("type", "object");
    K3_TRY(k3_chat_write_open(&state->w, "json", &type, 1));
    K3_TRY(k3_chat_write_text(&state->w, arguments->text, arguments->text_bytes));
    return k3_chat_write_close(&state->w, "json");
}

static k3_status write_call(k3_chat_state *state, const k3_json *call, size_t number)
{
    const k3_json *function = k3_chat_get(call, "function"), *name;
    K3_TRY(get_name(state, &name, function, "name"));
    if (!name)
        return k3_fail(state->w.err, K3_E_INVALID, "there is no function.name");
    char index[24];
    snprintf(index, sizeof index, "%zu", number);
    const k3_chat_attribute attributes[] = {attribute("tool", name), attribute_text("index", index)};
    K3_TRY(k3_chat_write_open(&state->w, "call", attributes, 2));
    K3_TRY(write_arguments(state, k3_chat_get(function, "arguments")));
    return k3_chat_write_close(&state->w, "call");
}

static k3_status write_calls(k3_chat_state *state)
{
    size_t number = 0;
    K3_TRY(k3_chat_write_open(&state->w, "tools", NULL, 0));
    for (const k3_json *call = state->calls->first; call; call = call->next) {
        k3_status status = write_call(state, call, ++number);
        if (status != K3_OK)
            return k3_fail_within(state->w.err, status, "tool_calls[%zu]: ", number - 1);
    }
    return k3_chat_write_close(&state->w, "tools");
}

static k3_status write_think(k3_chat_state *state, const k3_json *message)
{
    const k3_json *reasoning;
    K3_TRY(get_name(state, &reasoning, message, "reasoning_content"));
    if (!reasoning)
        K3_TRY(get_name(state, &reasoning, message, "reasoning"));
    K3_TRY(k3_chat_write_open(&state->w, "think", NULL, 0));
    if (reasoning && !k3_utf8_is_blank(reasoning->text, reasoning->text_bytes))
        K3_TRY(k3_chat_write_text(&state->w, reasoning->text, reasoning->text_bytes));
    return k3_chat_write_close(&state->w, "think");
}

static k3_status write_assistant(k3_chat_state *state, const k3_json *message, size_t index)
{
    const k3_json *name;
    K3_TRY(get_name(state, &name, message, "name"));
    K3_TRY(get_array(state, &state->calls, message, "tool_calls"));
    state->n_results = 0;
    const k3_chat_attribute attributes[] = {attribute_text("role", "assistant"), attribute("name", name)};
    K3_TRY(k3_chat_write_open(&state->w, "message", attributes, 2));
    if (state->thinking)
        K3_TRY(write_think(state, message));
    K3_TRY(k3_chat_write_open(&state->w, "response", NULL, 0));
    K3_TRY(write_content(state, message, index));
    K3_TRY(k3_chat_write_close(&state->w, "response"));
    if (state->calls)
        K3_TRY(write_calls(state));
    return k3_chat_write_end(&state->w);
}

/* ---- tool results -------------------------------------------------------------------------------------- */

typedef struct result {
    const k3_json *message, *call; /* call: the one with the same id; NULL if there is none */
    size_t index, position;        /* of the message in the request, of the call in its list */
} result;

/* Ids compare as text: 5 and "5" are the same. */
static int same_id(const k3_json *a, const k3_json *b)
{
    return a && b && a->text && b->text && a->text_bytes == b->text_bytes && memcmp(a->text, b->text, a->text_bytes) == 0;
}

static void match_call(const k3_chat_state *state, result *r)
{
    const k3_json *id = k3_json_get(r->message, "tool_call_id");
    if (!id)
        id = k3_json_get(r->message, "id");
    r->call = NULL;
    r->position = 0;
    for (const k3_json *call = state->calls ? state->calls->first : NULL; call; call = call->next, r->position++) {
        if (same_id(id, k3_json_get(call, "id"))) {
            r->call = call;
            return;
        }
    }
}

static int compare_results(const void *a, const void *b)
{
    const result *x = a, *y = b;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static k3_status write_result(k3_chat_state *state, const result *r, int all_matched)
{
    const k3_json *tool = NULL, *call = r->call;
    if (!all_matched) {
        K3_TRY(get_name(state, &tool, r->message, "tool"));
        if (!tool)
            K3_TRY(get_name(state, &tool, r->message, "name"));
        call = state->calls ? state->calls->first : NULL;
        for (size_t i = 0; call && i < state->n_results; i++)
            call = call->next;
    }
    if (!tool)
        tool = k3_json_get(k3_json_get(call, "function"), "name");
    if (!tool)
        return k3_fail(state->w.err, K3_E_INVALID,
                       "a tool result whose tool_call_id matches no call of the assistant message before it, and without a name");
    char index[24];
    snprintf(index, sizeof index, "%zu", ++state->n_results);
    const k3_chat_attribute attributes[] = {attribute_text("role", "tool"), attribute("tool", tool), attribute_text("index", index)};
    K3_TRY(k3_chat_write_open(&state->w, "message", attributes, 3));
    K3_TRY(write_content(state, r->message, r->index));
    return k3_chat_write_end(&state->w);
}

/* A run of results whose ids all match is put into the order of the calls and takes their names; one unknown id leaves the run as it is. */
static k3_status write_results(k3_chat_state *state, const k3_json *message, size_t index, size_t *n_done)
{
    size_t n = 0;
    for (const k3_json *m = message; m && is_role(m, "tool"); m = m->next)
        n++;
    result *results = malloc(n * sizeof *results);
    if (!results)
        return k3_fail(state->w.err, K3_E_NOMEM, "no memory for %zu tool results", n);
    int all_matched = 1;
    for (size_t i = 0; i < n; i++, message = message->next) {
        results[i] = (result){.message = message, .index = index + i};
        match_call(state, &results[i]);
        all_matched &= results[i].call != NULL;
    }
    if (all_matched)
        qsort(results, n, sizeof *results, compare_results);
    k3_status status = K3_OK;
    for (size_t i = 0; i < n && status == K3_OK; i++) {
        status = write_result(state, &results[i], all_matched);
        if (status != K3_OK)
            status = k3_fail_within(state->w.err, status, "messages[%zu]: ", results[i].index);
    }
    free(results);
    *n_done = n;
    return status;
}

k3_status k3_chat_write_message(k3_chat_state *state, const k3_json *message, size_t index, size_t *n_done)
{
    const k3_json *role = k3_json_get(message, "role");
    *n_done = 1;
    if (!role || role->type != K3_JSON_STRING)
        return k3_fail(state->w.err, K3_E_INVALID, "messages[%zu] is not an object with a role", index);
    if (is_role(message, "tool"))
        return write_results(state, message, index, n_done);
    k3_status status = K3_OK;
    if (is_role(message, "user"))
        status = write_plain(state, "user", message, index);
    else if (is_role(message, "assistant"))
        status = write_assistant(state, message, index);
    else if (is_system(state, message))
        status = write_system(state, message, index);
    else if (state->map_developer)
        status = k3_fail(state->w.err, K3_E_INVALID, "role \"%.40s\" is none of system, developer, user, assistant and tool", role->text);
    return status == K3_OK ? K3_OK : k3_fail_within(state->w.err, status, "messages[%zu]: ", index);
}
