/* Answers of every API in one form, from a stream or whole, so that they can be compared. Streams are held to the rules of their API on the
 * way: a breach fails the test. */
#ifndef K3_TESTS_HTTP_MERGE_H
#define K3_TESTS_HTTP_MERGE_H

#include "buffer.h"
#include "http_client.h"
#include "json.h"

enum { MERGED_CALLS = 16 };

typedef struct merged {
    app_buffer reasoning, content, finish, usage, logprobs, internal; /* internal: ids, with a comma after each */
    struct merged_call {
        app_buffer id, name, arguments;
    } calls[MERGED_CALLS];
    size_t n_calls, n_comments, n_events;
    int has_error, has_summary;
} merged;

typedef enum merge_api { MERGE_CHAT, MERGE_COMPLETIONS, MERGE_MESSAGES, MERGE_RESPONSES, MERGE_APIS } merge_api;

void merge_stream(merged *out, merge_api api, const char *text);
void merge_whole(merged *out, merge_api api, const char *text);
/* A request that is answered with 200, streamed if it says so. */
void merge_ask(merged *out, int port, merge_api api, const char *body);
void merged_free(merged *m);
void assert_merged_equal(const merged *a, const merged *b);
/* The text of a member at a path such as "choices.0.delta"; no value if it is not there. */
app_json merge_at(app_json value, const char *path);
app_json merge_json(const char *text);

#endif
