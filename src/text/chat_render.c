#include "text/chat_render.h"

#include <stdlib.h>
#include <string.h>

#include "text/chat_message.h"
#include "text/json_write.h"

static k3_status get_flag(int *out, const k3_json *request, const char *key, int otherwise, k3_error *err)
{
    const k3_json *value = k3_chat_get(request, key);
    *out = value ? value->type == K3_JSON_TRUE : otherwise;
    if (value && value->type != K3_JSON_TRUE && value->type != K3_JSON_FALSE)
        return k3_fail(err, K3_E_INVALID, "%s must be true or false", key);
    return K3_OK;
}

/* `images` are sizes in the order in which the images stand in the request. Only when there are more of them than image parts do
 * placeholders spelled in text count: otherwise a user who types one would take an image away from its place. */
static k3_status place_images(k3_chat_state *state, const k3_json *request, const k3_json *messages)
{
    k3_error *err = state->w.err;
    const k3_json *images = k3_chat_get(request, "images");
    state->first_image = calloc(messages->n_children + 1, sizeof *state->first_image);
    if (!state->first_image)
        return k3_fail(err, K3_E_NOMEM, "no memory for %zu messages", messages->n_children);
    if (images && images->type != K3_JSON_ARRAY)
        return k3_fail(err, K3_E_INVALID, "images must be an array of [width, height]");
    if (!images || images->n_children == 0)
        return K3_OK;
    for (const k3_json *size = images->first; size; size = size->next) {
        int64_t width, height;
        if (size->type != K3_JSON_ARRAY || size->n_children != 2 || !k3_json_int(size->first, &width) ||
            !k3_json_int(size->first->next, &height) || width < 1 || height < 1)
            return k3_fail(err, K3_E_INVALID, "images must be an array of [width, height] with whole numbers from 1");
    }
    state->images = images;
    for (int in_text = 0; in_text < 2; in_text++) {
        size_t n = 0, index = 0;
        for (const k3_json *message = messages->first; message; message = message->next, index++) {
            state->first_image[index] = n;
            n += k3_chat_has_content(state, message) ? k3_chat_count_images(message, in_text) : 0;
        }
        state->images_in_text = in_text;
        if (n == images->n_children)
            return K3_OK;
    }
    return k3_fail(err, K3_E_INVALID, "images has %zu sizes, which is not the number of image parts in the messages", images->n_children);
}

static k3_status write_effort(k3_chat_state *state, const k3_json *request)
{
    static const char before[] = "`thinking_effort` guides on how much to think in your thinking channel (not including the response "
                                 "channel), supported values include `low`, `medium`, `high`, and `max`.\n"
                                 "Now the system is invoked with `thinking_effort=";
    const k3_json *effort = k3_json_get(request, "thinking_effort");
    const char *word = NULL;
    if (!effort && k3_json_text_is(k3_json_get(request, "entry"), "wrapper"))
        word = "max";
    if (!state->thinking || (!word && (!effort || effort->type == K3_JSON_NULL)))
        return K3_OK;
    static const char *const words[] = {"low", "high", "max"};
    for (size_t i = 0; i < 3; i++)
        if (k3_json_text_is(effort, words[i]))
            word = words[i];
    if (!word)
        return k3_fail(state->w.err, K3_E_INVALID, "thinking_effort is \"%.40s\", wanted \"low\", \"high\", \"max\" or null",
                       effort->type == K3_JSON_STRING ? effort->text : "not a string");
    char text[sizeof before + 8];
    strcpy(text, before);
    strcat(text, word);
    strcat(text, "`.");
    return k3_chat_write_system(state, "thinking-effort", text, strlen(text));
}

static k3_status write_tool_choice(k3_chat_state *state, const k3_json *request)
{
    static const char required[] = "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.";
    static const char none[] = "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.";
    const k3_json *choice = k3_chat_get(request, "tool_choice");
    if (k3_json_text_is(choice, "required"))
        return k3_chat_write_system(state, "tool-choice", required, sizeof required - 1);
    if (k3_json_text_is(choice, "none"))
        return k3_chat_write_system(state, "tool-choice", none, sizeof none - 1);
    if (choice && choice->type != K3_JSON_OBJECT && !k3_json_text_is(choice, "auto"))
        return k3_fail(state->w.err, K3_E_INVALID,
                       "tool_choice is \"%.40s\", wanted \"auto\", \"none\", \"required\" or an object that names a tool",
                       choice->type == K3_JSON_STRING ? choice->text : "not a string");
    return K3_OK;
}

/* The schema is json_schema.schema; a bare schema in its place is accepted, as is one named json_schema again. */
static void add_schema(k3_buffer *text, const k3_json *format)
{
    const k3_json *outer = k3_json_get(format, "json_schema"), *inner = k3_chat_get(outer, "schema");
    if (!inner)
        inner = k3_chat_get(outer, "json_schema");
    if (!inner)
        inner = outer;
    if (inner)
        k3_json_write(text, inner, K3_JSON_SORTED);
    else
        k3_buffer_add_text(text, "null");
}

static k3_status write_response_format(k3_chat_state *state, const k3_json *request)
{
    const k3_json *format = k3_chat_get(request, "response_format"), *type = format;
    if (format && format->type == K3_JSON_OBJECT)
        type = k3_json_get(format, "type");
    if (!format || k3_json_text_is(type, "text"))
        return K3_OK;
    int has_schema = k3_json_text_is(type, "json_schema");
    if (!has_schema && !k3_json_text_is(type, "json_object"))
        return k3_fail(state->w.err, K3_E_INVALID, "response_format has the type \"%.40s\", wanted text, json_object or json_schema",
                       type && type->type == K3_JSON_STRING ? type->text : "not a string");
    k3_buffer text = {0};
    k3_buffer_add_text(&text, "The system is invoked with `response_format=");
    k3_buffer_add_text(&text, type->text);
    k3_buffer_add_text(&text,
                       "`.\nYour response must be raw JSON data without markdown code blocks (```json) or any additional formatting.");
    if (has_schema) {
        k3_buffer_add_text(&text, "\nThe JSON data must match the following schema:\n```json\n");
        add_schema(&text, format);
        k3_buffer_add_text(&text, "\n```");
    }
    k3_status status = text.failed ? k3_fail(state->w.err, K3_E_NOMEM, "no memory for the schema of response_format")
                                   : k3_chat_write_system(state, "response-format", text.bytes, text.n);
    k3_buffer_free(&text);
    return status;
}

static k3_status write_messages(k3_chat_state *state, const k3_json *messages)
{
    size_t index = 0;
    for (const k3_json *message = messages->first; message;) {
        size_t n_done;
        K3_TRY(k3_chat_write_message(state, message, index, &n_done));
        index += n_done;
        while (n_done-- > 0)
            message = message->next;
    }
    return K3_OK;
}

static k3_status write_request(k3_chat_state *state, const k3_json *request)
{
    k3_error *err = state->w.err;
    const k3_json *messages = k3_chat_get(request, "messages"), *tools = k3_chat_get(request, "tools");
    int add_prompt;
    if (!messages || messages->type != K3_JSON_ARRAY)
        return k3_fail(err, K3_E_INVALID, "messages must be an array");
    if (tools && tools->type != K3_JSON_ARRAY)
        return k3_fail(err, K3_E_INVALID, "tools must be an array");
    K3_TRY(get_flag(&state->thinking, request, "thinking", 1, err));
    K3_TRY(get_flag(&state->map_developer, request, "map_developer", 0, err));
    K3_TRY(get_flag(&add_prompt, request, "add_generation_prompt", 1, err));
    K3_TRY(place_images(state, request, messages));
    if (tools && tools->n_children > 0)
        K3_TRY(k3_chat_write_tools(state, tools, 0));
    K3_TRY(write_effort(state, request));
    K3_TRY(write_messages(state, messages));
    K3_TRY(write_tool_choice(state, request));
    K3_TRY(write_response_format(state, request));
    if (!add_prompt)
        return K3_OK;
    const k3_chat_attribute role = {"role", "assistant", strlen("assistant")};
    K3_TRY(k3_chat_write_open(&state->w, "message", &role, 1));
    return k3_chat_write_open(&state->w, state->thinking ? "think" : "response", NULL, 0);
}

static void drop_segments(k3_chat_segments *segments, size_t n_kept)
{
    while (segments && segments->n > n_kept)
        free(segments->items[--segments->n].text);
}

k3_status k3_chat_render_request(const k3_vocab *vocab, k3_tokens *ids, k3_chat_segments *segments, int *thinking, const char *request_json,
                                 size_t n, k3_error *err)
{
    size_t n_ids = ids->n, n_segments = segments ? segments->n : 0;
    k3_chat_state state = {.w = {.ids = ids, .segments = segments, .err = err}};
    const k3_json *request;
    K3_TRY(k3_chat_markers_find(&state.w.markers, vocab, err));
    k3_status status = k3_json_parse(&request, request_json, n, K3_JSON_NONFINITE | K3_JSON_SURROGATES, err);
    if (status != K3_OK)
        return k3_fail_within(err, status == K3_E_FORMAT ? K3_E_INVALID : status, "chat request: ");
    status = k3_encoder_open(&state.w.encoder, vocab, err);
    if (status == K3_OK) {
        status = write_request(&state, request);
        if (status != K3_OK)
            (void)k3_fail_within(err, status, "chat request: ");
    }
    if (status != K3_OK) {
        ids->n = n_ids;
        drop_segments(segments, n_segments);
    }
    if (thinking)
        *thinking = state.thinking;
    k3_encoder_close(state.w.encoder);
    free(state.first_image);
    k3_json_free(request);
    return status;
}
