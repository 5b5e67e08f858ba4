/* A server in this process on the bundled model's tokenizer, with a scheduler that says what a test wants. */
#ifndef K3_TESTS_HTTP_FIXTURE_H
#define K3_TESTS_HTTP_FIXTURE_H

#include "fake_scheduler.h"
#include "http_client.h"
#include "server/server.h"

/* K3's format as the model writes it. */
#define OPEN(tag) "<|open|>" tag "<|sep|>"
#define CLOSE(tag) "<|close|>" tag "<|sep|>"
#define END CLOSE("message") "<|end_of_msg|>"
#define RESPONSE(text) CLOSE("think") OPEN("response") text CLOSE("response")
#define ARGUMENT(key, type, value) "<|open|>argument key=\"" key "\" type=\"" type "\"<|sep|>" value CLOSE("argument")
#define CALL(name, arguments) "<|open|>call tool=\"" name "\" index=\"1\"<|sep|>" arguments CLOSE("call")
#define CALLS(calls) OPEN("tools") calls CLOSE("tools")

typedef struct fixture {
    k3_engine *engine;
    srv_scheduler *scheduler;
    srv_server *server;
    int port;
    k3_tokens script;
} fixture;

int fixture_setup(void **state);
int fixture_teardown(void **state);
/* The configuration of fixture_setup: all but fast limits as usual. */
srv_config fixture_config(void);
/* The server again, with another configuration. */
void fixture_restart(fixture *f, const srv_config *config, int is_ready);

/* Ids of a text that spells markers. seed: NULL, or the text is cut into random tokens. */
void fixture_ids(const fixture *f, k3_tokens *out, const char *text, unsigned *seed);
/* The model says this from now on. */
void fixture_say(fixture *f, const char *text);
/* The same, with more to it: *script is filled with the text's ids. */
void fixture_play(fixture *f, const char *text, fake_script *script);
fake_script fixture_script(void);

/* The prompt of the last request is what K3's format makes of this one. */
void fixture_check_prompt(const fixture *f, const char *request);

#endif
