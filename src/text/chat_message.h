/* The messages of a conversation. Internal to the renderer. */
#ifndef K3_TEXT_CHAT_MESSAGE_H
#define K3_TEXT_CHAT_MESSAGE_H

#include "base/json.h"
#include "text/chat_writer.h"

#define K3_IMAGE_PLACEHOLDER "<|kimi_image_placeholder|>"

typedef struct k3_chat_state {
    k3_chat_writer w;
    int thinking;
    int map_developer;
    const k3_json *images; /* array of [width, height]; NULL: placeholders are written instead */
    size_t *first_image;   /* [messages]: number of the first image of each message, in the order of the request */
    int images_in_text;    /* placeholders spelled in text stand for images too */
    const k3_json *calls;  /* tool_calls of the last assistant message; NULL if it had none */
    size_t n_results;      /* rendered since that message */
} k3_chat_state;

/* NULL if the member is missing or null. */
const k3_json *k3_chat_get(const k3_json *object, const char *key);
/* Whether a message is rendered at all, and with content that can hold images. */
int k3_chat_has_content(const k3_chat_state *state, const k3_json *message);
/* Image parts of a message; with in_text also the placeholders spelled in its text. */
size_t k3_chat_count_images(const k3_json *message, int in_text);

/* Renders message number `index`, or the whole run of tool results that begins there; *n_done messages are done. */
k3_status k3_chat_write_message(k3_chat_state *state, const k3_json *message, size_t index, size_t *n_done);
/* A system message of the engine's own, such as type="tool-declare". */
k3_status k3_chat_write_system(k3_chat_state *state, const char *type, const char *text, size_t n);
/* tools: a non-empty array; late: declared by a message in the conversation. */
k3_status k3_chat_write_tools(k3_chat_state *state, const k3_json *tools, int late);

#endif
