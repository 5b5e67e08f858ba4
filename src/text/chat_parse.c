#include "text/chat_parse.h"

#include <stdlib.h>
#include <string.h>

#include "text/chat_call.h"
#include "text/chat_markers.h"

enum { MAX_LEAD = 40 };

/* Where text goes. Elements that are not K3's have no place: their markers vanish and their text belongs to what is around. */
typedef enum place {
    IN_THINK,
    IN_RESPONSE,
    IN_TOOLS, /* between calls */
    IN_CALL,  /* between arguments */
    IN_ARGUMENT,
    IN_NOTHING, /* between elements of the message, after its end, or in a second think or response: text is dropped */
} place;

typedef enum header_kind { NO_HEADER, OPENER, CLOSER } header_kind;

struct k3_chat_parse {
    const k3_vocab *vocab;
    k3_chat_markers markers;
    k3_chat_sink sink;
    void *user;
    place place;
    int think_over, response_over, message_over; /* what is over does not open again */
    int response_begun;
    int done;
    header_kind header_kind;
    k3_buffer header, scratch;
    k3_utf8 utf8; /* of the text being read, also of a header or value */
    k3_chat_call call;
    int n_calls;
    /* At the start the model sometimes repeats the opener that the prompt ended with, as tokens, spelled, or mixed. `held` are the ids
     * that spell its first n_lead bytes; once they cannot become that opener they are read as usual. */
    const char *opener;
    int32_t held[MAX_LEAD];
    size_t n_lead, n_held;
};

k3_status k3_chat_parse_open(k3_chat_parse **out, const k3_vocab *vocab, int thinking, k3_chat_sink sink, void *user, k3_error *err)
{
    *out = NULL;
    k3_chat_markers markers;
    K3_TRY(k3_chat_markers_find(&markers, vocab, err));
    k3_chat_parse *p = calloc(1, sizeof *p);
    if (!p)
        return k3_fail(err, K3_E_NOMEM, "no memory for a chat parser");
    p->vocab = vocab;
    p->markers = markers;
    p->sink = sink;
    p->user = user;
    p->place = thinking ? IN_THINK : IN_RESPONSE;
    p->opener = thinking ? "<|open|>think<|sep|>" : "<|open|>response<|sep|>";
    *out = p;
    return K3_OK;
}

void k3_chat_parse_close(k3_chat_parse *p)
{
    if (!p)
        return;
    k3_chat_call_free(&p->call);
    k3_buffer_free(&p->header);
    k3_buffer_free(&p->scratch);
    free(p);
}

/* ---- text ---------------------------------------------------------------------------------------------- */

/* Hands valid UTF-8 to where it belongs. */
static void add_valid(k3_chat_parse *p, const char *text, size_t n)
{
    if (n == 0)
        return;
    if (p->header_kind != NO_HEADER) {
        k3_buffer_add(&p->header, text, n);
    } else if (p->place == IN_THINK) {
        p->sink(p->user, K3_CHAT_REASONING, 0, text, n);
    } else if (p->place == IN_RESPONSE) {
        p->response_begun = 1;
        p->sink(p->user, K3_CHAT_CONTENT, 0, text, n);
    } else if (p->place == IN_ARGUMENT) {
        k3_buffer_add(&p->call.arguments[p->call.n - 1].value, text, n);
    }
}

/* n = 0 ends a character that is still incomplete. Returns 0 without memory. */
static int add_bytes(k3_chat_parse *p, const char *bytes, size_t n)
{
    p->scratch.n = 0;
    char *room = k3_buffer_room(&p->scratch, 3 * (n + 3));
    if (!room)
        return 0;
    add_valid(p, room, k3_utf8_push(&p->utf8, room, bytes, n));
    return 1;
}

/* ---- calls --------------------------------------------------------------------------------------------- */

static void drop_call(k3_chat_parse *p)
{
    k3_chat_call_free(&p->call);
}

/* A call without a name, or with a broken `json` element, is no call. */
static k3_status complete_call(k3_chat_parse *p, k3_error *err)
{
    k3_buffer arguments = {0};
    int failed = p->call.failed;
    if (p->call.has_name && k3_chat_call_write(&arguments, &p->call)) {
        p->sink(p->user, K3_CHAT_CALL, p->n_calls, p->call.name.bytes, p->call.name.n);
        p->sink(p->user, K3_CHAT_ARGUMENTS, p->n_calls, arguments.bytes, arguments.n);
        p->sink(p->user, K3_CHAT_CALL_END, p->n_calls, "", 0);
        p->n_calls++;
    }
    failed |= arguments.failed;
    k3_buffer_free(&arguments);
    drop_call(p);
    p->place = IN_TOOLS;
    return failed ? k3_fail(err, K3_E_NOMEM, "no memory for the arguments of a tool call") : K3_OK;
}

static void open_call(k3_chat_parse *p)
{
    p->call.has_name = k3_chat_header_get(&p->call.name, &p->header, "tool") && p->call.name.n > 0;
    p->call.failed = p->call.name.failed;
    p->place = IN_CALL;
}

static k3_status open_argument(k3_chat_parse *p, int is_raw, k3_error *err)
{
    k3_chat_argument *argument = k3_chat_call_add(&p->call);
    if (!argument)
        return k3_fail(err, K3_E_NOMEM, "no memory for the arguments of a tool call");
    if (is_raw) {
        p->call.i_raw = p->call.n;
    } else {
        argument->has_key = k3_chat_header_get(&argument->key, &p->header, "key");
        argument->has_type = k3_chat_header_get(&argument->type, &p->header, "type");
    }
    p->place = IN_ARGUMENT;
    return K3_OK;
}

/* ---- structure ----------------------------------------------------------------------------------------- */

/* What the opener or closer of an outer element ends. */
static void leave_channel(k3_chat_parse *p)
{
    if (p->place == IN_THINK)
        p->think_over = 1;
    if (p->place == IN_RESPONSE && p->response_begun)
        p->response_over = 1;
    drop_call(p);
    p->place = IN_NOTHING;
}

static k3_status apply_opener(k3_chat_parse *p, k3_error *err)
{
    const k3_buffer *h = &p->header;
    int in_call = p->place == IN_CALL || p->place == IN_ARGUMENT;
    if (p->message_over)
        return K3_OK;
    if (k3_chat_header_tag_is(h, "think")) {
        if (p->place == IN_THINK)
            return K3_OK;
        leave_channel(p);
        if (!p->think_over && !p->response_over)
            p->place = IN_THINK;
    } else if (k3_chat_header_tag_is(h, "response")) {
        if (p->place == IN_RESPONSE)
            return K3_OK;
        leave_channel(p);
        if (!p->response_over)
            p->place = IN_RESPONSE;
    } else if (k3_chat_header_tag_is(h, "tools")) {
        leave_channel(p);
        p->place = IN_TOOLS;
    } else if (k3_chat_header_tag_is(h, "call")) {
        if (in_call)
            K3_TRY(complete_call(p, err));
        leave_channel(p);
        open_call(p);
    } else if (in_call && (k3_chat_header_tag_is(h, "argument") || k3_chat_header_tag_is(h, "json"))) {
        return open_argument(p, k3_chat_header_tag_is(h, "json"), err);
    }
    return K3_OK;
}

static k3_status apply_closer(k3_chat_parse *p, k3_error *err)
{
    const k3_buffer *h = &p->header;
    int in_call = p->place == IN_CALL || p->place == IN_ARGUMENT;
    if (k3_chat_header_tag_is(h, "message")) {
        leave_channel(p);
        p->message_over = 1;
    } else if (k3_chat_header_tag_is(h, "think") && p->place == IN_THINK) {
        leave_channel(p);
    } else if (k3_chat_header_tag_is(h, "response") && p->place == IN_RESPONSE) {
        leave_channel(p);
        p->response_over = 1;
    } else if (k3_chat_header_tag_is(h, "tools") && (in_call || p->place == IN_TOOLS)) {
        leave_channel(p);
    } else if (k3_chat_header_tag_is(h, "call") && in_call) {
        return complete_call(p, err);
    } else if ((k3_chat_header_tag_is(h, "argument") || k3_chat_header_tag_is(h, "json")) && p->place == IN_ARGUMENT) {
        p->place = IN_CALL;
    }
    return K3_OK;
}

/* The header is complete, by its <|sep|> or because another marker came first. */
static k3_status end_header(k3_chat_parse *p, k3_error *err)
{
    header_kind kind = p->header_kind;
    p->header_kind = NO_HEADER;
    if (p->header.failed)
        return k3_fail(err, K3_E_NOMEM, "no memory for the header of an element");
    k3_status status = kind == OPENER ? apply_opener(p, err) : kind == CLOSER ? apply_closer(p, err) : K3_OK;
    p->header.n = 0;
    return status;
}

static k3_status read_special(k3_chat_parse *p, int32_t id, k3_error *err)
{
    if (!add_bytes(p, NULL, 0))
        return k3_fail(err, K3_E_NOMEM, "no memory for a piece of text");
    const k3_chat_markers *m = &p->markers;
    int ends = id == m->end || (m->eos >= 0 && id == m->eos);
    if (id == m->open || id == m->close || id == m->sep || ends)
        K3_TRY(end_header(p, err));
    if (id == m->open)
        p->header_kind = OPENER;
    if (id == m->close)
        p->header_kind = CLOSER;
    if (ends) {
        leave_channel(p);
        p->done = 1;
    }
    return K3_OK;
}

static k3_status read_id(k3_chat_parse *p, int32_t id, const char *bytes, size_t n, k3_error *err)
{
    if (k3_vocab_is_special(p->vocab, id))
        return read_special(p, id, err);
    return add_bytes(p, bytes, n) ? K3_OK : k3_fail(err, K3_E_NOMEM, "no memory for a piece of text");
}

/* ---- the repeated opener ------------------------------------------------------------------------------- */

/* Reads the ids that were held for the opener. */
static k3_status release_held(k3_chat_parse *p, k3_error *err)
{
    p->opener = NULL;
    for (size_t i = 0; i < p->n_held && !p->done; i++) {
        const char *bytes;
        size_t n;
        K3_TRY(k3_vocab_bytes(p->vocab, &bytes, &n, p->held[i], err));
        K3_TRY(read_id(p, p->held[i], bytes, n, err));
    }
    p->n_held = 0;
    return K3_OK;
}

/* Returns 1 if the id is dealt with: held, or the end of the opener with perhaps a rest of text behind it. */
static int take_lead(k3_chat_parse *p, int32_t id, const char *bytes, size_t n)
{
    size_t n_opener = strlen(p->opener), n_match = n < n_opener - p->n_lead ? n : n_opener - p->n_lead;
    if (n_match == 0 || memcmp(bytes, p->opener + p->n_lead, n_match) != 0)
        return 0;
    p->n_lead += n_match;
    p->held[p->n_held++] = id;
    if (p->n_lead == n_opener) {
        p->opener = NULL;
        p->n_held = 0;
        return add_bytes(p, bytes + n_match, n - n_match);
    }
    return 1;
}

k3_status k3_chat_parse_push(k3_chat_parse *p, int32_t id, int *done, k3_error *err)
{
    const char *bytes;
    size_t n;
    *done = p->done;
    K3_TRY(k3_vocab_bytes(p->vocab, &bytes, &n, id, err));
    if (p->done || (p->opener && take_lead(p, id, bytes, n)))
        return K3_OK;
    if (p->opener)
        K3_TRY(release_held(p, err));
    if (!p->done)
        K3_TRY(read_id(p, id, bytes, n, err));
    *done = p->done;
    return K3_OK;
}

const char *k3_chat_parse_finish(k3_chat_parse *p)
{
    if (p->opener)
        (void)release_held(p, NULL);
    (void)add_bytes(p, NULL, 0);
    if (!p->done) {
        p->header_kind = NO_HEADER;
        leave_channel(p);
    }
    return !p->done ? "length" : p->n_calls > 0 ? "tool_calls" : "stop";
}
