/* k3: run Moonshot's Kimi K3 exactly, on the machine at hand.
 *
 * The only installed header. An engine owns a model; a session is one token timeline with its state; sampling and chat are pure helpers on
 * top. Every function that can fail returns a k3_status and fills `err` (or NULL) with one sentence: the thing, what was found and wanted.
 * Nothing here prints, exits or reads the environment. An engine is for one thread at a time; tokenising, rendering, parsing for any. */
#ifndef K3_H
#define K3_H

#include <stddef.h>
#include <stdint.h>

#define K3_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef enum k3_status {
    K3_OK = 0,
    K3_E_INVALID,     /* the caller's argument or request is wrong */
    K3_E_NOT_FOUND,   /* a file, tensor or device is not there */
    K3_E_IO,          /* the operating system refused a read or write */
    K3_E_FORMAT,      /* a file's content breaks its format */
    K3_E_UNSUPPORTED, /* well-formed, but nothing here implements it */
    K3_E_NOMEM,       /* memory, or the stated budget, does not suffice */
    K3_E_NUMERIC,     /* logits that cannot be sampled: NaN, +inf, all -inf */
    K3_E_CANCELLED,   /* the progress callback, or k3_engine_cancel, asked to stop */
    K3_E_DEVICE       /* a backend failed */
} k3_status;

typedef struct k3_error {
    k3_status status;
    char text[1024];
} k3_error;

/* ---- engine ------------------------------------------------------------------------------------------ */

typedef struct k3_engine k3_engine;
typedef struct k3_session k3_session;

/* Called during long work with a phase name and a share of it; return nonzero to cancel. */
typedef int (*k3_progress)(void *user, const char *phase, uint64_t done, uint64_t total);

typedef struct k3_config {
    const char *backend;  /* "auto" (NULL: a GPU, else the CPU), "cpu[:LEVEL]" (docs/backends.md), "vulkan[:DEVICE]", "metal[:DEVICE]" */
    const char *trunk;    /* "auto" (NULL), "bf16", "int8", "int4": precision of the trunk matrices */
    int exact;            /* bf16 trunk, f32 activations and caches: the reference arithmetic */
    int threads;          /* 0: the cores this process may use */
    int chunk_rows;       /* rows computed at once in prefill; 0: chosen */
    k3_progress progress; /* may be NULL */
    void *user;
    uint64_t ram, vram;         /* bytes to use of the machine's memory, and of each device's; 0: what is free */
    const char *expert_devices; /* further devices that hold routed experts, such as "vulkan:1,vulkan:2"; NULL: none */
    const char *kernel_cache;   /* a folder where a device keeps compiled kernels between runs; NULL: they are compiled each time */
    const char *usage;          /* a file that keeps which experts were used, to fill memory with at the next start; NULL: none */
    const char *kernels;        /* a folder of Metal kernels that replace those built in, also while it runs; NULL: none */
    int timing, lock;           /* a device times its operations, which costs a little; trunk and experts are locked in memory */
    double disk_rate;           /* bytes per second that each drive of the model delivers; 0: unknown, measured where it decides */
} k3_config;

typedef struct k3_info {
    int vocab_size, hidden_size, n_layers, n_experts, n_experts_per_token, context_length, bos_id, eos_id; /* eos: <|end_of_msg|> */
    int pass_rows;                        /* rows computed at once: a longer append takes several passes */
    int has_tokenizer;                    /* 0: the folder has no tiktoken.model, the model works with ids only */
    uint64_t n_params;                    /* language-model parameters stored (codes counted as one each) */
    uint64_t trunk_bytes;                 /* trunk matrices and vectors as held in memory */
    uint64_t expert_bytes;                /* routed experts as stored */
    uint64_t token_bytes;                 /* weight bytes one decoded token reads */
    uint64_t state_bytes;                 /* KDA states and convolution windows: bytes it reads and bytes it writes */
    uint64_t token_macs;                  /* its multiply-adds with weights and KDA states */
    uint64_t context_bytes, context_macs; /* and, for each token before it, bytes and multiply-adds of attention */
    const char *products;                 /* what most products are made in: "int8", "bf16" or "f32"; NULL: a device computes */
    const char *plan;                     /* one line: backend, kernels, trunk type, threads, memory; why there is no GPU */
    const char *notice;       /* one line: what is not as planned: a device failed in use, conversations outgrew the plan; NULL: all is */
    int n_failures;           /* how many times a device failed in use, so that it was opened again or the CPU went on */
    const char *drive_notice; /* one line: a drive delivers much less than when its reading began; NULL: none does */
} k3_info;

k3_status k3_engine_open(k3_engine **out, const char *model, const k3_config *config, k3_error *err);
void k3_engine_close(k3_engine *engine);
const k3_info *k3_engine_info(const k3_engine *engine);
/* From any thread: while `on`, passes end between two layers, and writing of sessions between two blocks, with K3_E_CANCELLED. */
void k3_engine_cancel(k3_engine *engine, int on);
/* Per-op time and calls since the last reset, as text lines; 0-terminated, cut to `size`. */
void k3_engine_stats(k3_engine *engine, char *text, size_t size, int reset);
/* Passes, parts of their time, disk and operations as a JSON object (docs/performance.md); malloc'd, freed by the caller; NULL: no memory.
 */
char *k3_engine_stats_json(k3_engine *engine, int reset);
/* Says, without loading weights, what k3_engine_open would do with the memory that is free, what a token would read from disk, and how many
 * a second that allows: lines of text, or a JSON object. `text` is malloc'd and freed by the caller. */
k3_status k3_plan(char **text, const char *model, const k3_config *config, int as_json, k3_error *err);
/* Checks a model folder without loading it and describes it. `text` is malloc'd and freed by the caller, also on failure. */
k3_status k3_inspect(char **text, const char *model, k3_error *err);
/* Writes a model again: its trunk as "bf16", "int8" (NULL) or "int4", its experts aligned for direct reads, all of it compared with the
 * source. After an error, or a kill, the same call goes on. The source is only read; what `out` holds is not written over. */
k3_status k3_pack(const char *model, const char *out, const char *trunk, k3_progress progress, void *user, k3_error *err);
/* The devices that a backend can be opened on, one a line. `text` is malloc'd and freed by the caller. */
k3_status k3_devices(char **text, k3_error *err);

/* What the machine can do at most; 0: unknown, or it has no instruction for that. */
typedef struct k3_ceilings {
    double memory_bytes_per_s; /* of the memory that is computed from: read of the host's, or copied inside a device */
    double int8_macs_per_s, bf16_macs_per_s, f32_macs_per_s; /* multiply-adds of the CPU */
    double disk_bytes_per_s;                                 /* by reads like those of experts; 0: nothing was read so far */
} k3_ceilings;
/* Measured now, in a second or two; a drive once, or as k3_config.disk_rate states it. */
k3_status k3_engine_ceilings(k3_ceilings *out, k3_engine *engine, k3_error *err);
/* Measures memory alone, again and again. What is read of the host's, a gigabyte or a quarter of what is free, is there from the first
 * reading until the meter closes, which is before the engine does. */
typedef struct k3_memory_meter k3_memory_meter;
k3_status k3_memory_meter_open(k3_memory_meter **out, k3_engine *engine, k3_error *err);
/* memory_bytes_per_s (0: no room to measure it) as it is now, in a quarter of a second. An error only where a device fails. */
k3_status k3_memory_meter_read(k3_memory_meter *meter, double *bytes_per_s, k3_error *err);
void k3_memory_meter_close(k3_memory_meter *meter);

/* ---- text --------------------------------------------------------------------------------------------- */

typedef struct k3_tokens {
    int32_t *ids; /* malloc'd; k3_tokens_free */
    size_t n, capacity;
} k3_tokens;

void k3_tokens_free(k3_tokens *tokens);
/* Appends the ids of plain text (UTF-8, invalid bytes allowed). Special names in it stay ordinary text. A text of more than 32 bytes for
 * each token of the context is refused unread, here and in k3_chat_render. */
k3_status k3_tokenize(const k3_engine *engine, k3_tokens *out, const char *text, size_t n_bytes, k3_error *err);
/* Bytes of one token; *bytes points into the vocabulary. Any id outside it is K3_E_INVALID. */
k3_status k3_token_bytes(const k3_engine *engine, const char **bytes, size_t *n_bytes, int32_t id, k3_error *err);
int k3_token_is_special(const k3_engine *engine, int32_t id);

/* Holds back incomplete UTF-8 so that each piece handed out is valid; zero-initialise. */
typedef struct k3_utf8 {
    unsigned char held[4];
    int n_held;
} k3_utf8;
/* Writes at most 3 * (n + 3) bytes of valid UTF-8 to `out`; invalid bytes become U+FFFD. n = 0 flushes. Returns bytes written. */
size_t k3_utf8_push(k3_utf8 *state, char *out, const char *bytes, size_t n);

/* Chat, in K3's own format (XTML). `request_json` is one object with messages, tools, tool_choice, response_format, thinking (bool),
 * thinking_effort, add_generation_prompt, images: the fields of an OpenAI chat request that reach the prompt. */
k3_status k3_chat_render(const k3_engine *engine, k3_tokens *out, int *thinking, const char *request_json, k3_error *err);

typedef enum k3_chat_event_kind {
    K3_CHAT_REASONING, /* text: a piece of the thinking channel, valid UTF-8 */
    K3_CHAT_CONTENT,   /* text: a piece of the answer */
    K3_CHAT_CALL,      /* text: tool name; index: 0-based number of the call */
    K3_CHAT_ARGUMENTS, /* text: a piece of the call's arguments as JSON text; the pieces of one call join to one object */
    K3_CHAT_CALL_END   /* the call is complete; a call without this event was cut and must be dropped */
} k3_chat_event_kind;
typedef void (*k3_chat_sink)(void *user, k3_chat_event_kind kind, int index, const char *text, size_t n_bytes);

typedef struct k3_chat_parser k3_chat_parser;
/* thinking: 1 if the prompt left `think` open, 0 for `response`. */
k3_status k3_chat_parser_open(k3_chat_parser **out, const k3_engine *engine, int thinking, k3_chat_sink sink, void *user, k3_error *err);
/* Feeds one generated id. *done becomes 1 at the end of the message. */
k3_status k3_chat_parser_push(k3_chat_parser *parser, int32_t id, int *done, k3_error *err);
/* Ends the output: flushes held text. Returns "stop", "length" or "tool_calls". */
const char *k3_chat_parser_finish(k3_chat_parser *parser);
void k3_chat_parser_close(k3_chat_parser *parser);

/* What an answer to a chat request may be: response_format, tool_choice (required, or one function), strict tools; docs/chat.md, 6. */
typedef struct k3_constraint k3_constraint;
/* *out is NULL where the request narrows nothing. thinking: as for the parser. An error names the place in the request. The engine must
 * stay open as long as the constraint; a constraint is for one thread at a time. */
k3_status k3_constraint_open(k3_constraint **out, const k3_engine *engine, const char *request_json, int thinking, k3_error *err);
/* Sets logits [n] of ids that cannot come next to -INFINITY; at least one id stays. n is vocab_size. */
k3_status k3_constraint_narrow(k3_constraint *constraint, float *logits, size_t n, k3_error *err);
/* Goes on by the id that was picked. One that cannot come is K3_E_INVALID and changes nothing. */
k3_status k3_constraint_push(k3_constraint *constraint, int32_t id, k3_error *err);
void k3_constraint_close(k3_constraint *constraint);

/* ---- sessions ------------------------------------------------------------------------------------------ */

k3_status k3_session_open(k3_session **out, k3_engine *engine, k3_error *err);
void k3_session_close(k3_session *session);
int64_t k3_session_length(const k3_session *session);     /* tokens held */
const int32_t *k3_session_ids(const k3_session *session); /* [length]; -1 where a row was injected; valid until the next call */
/* Appends ids and computes the logits of the last one. A request that is refused changes nothing. When a long append is cancelled the
 * session keeps the passes that were done; when a pass breaks it goes back to its last mark. k3_session_length tells. A pass that breaks
 * because a device fails is run again, on the device or on the CPU (k3_info.notice); only injected rows are lost then. */
k3_status k3_session_append(k3_session *session, const int32_t *ids, size_t n, k3_error *err);
/* The same with rows [n, hidden_size] f32 in place of embedding rows where ids[i] < 0. */
k3_status k3_session_append_rows(k3_session *session, const int32_t *ids, const float *rows, size_t n, k3_error *err);
/* As append, and writes the logits of every appended token to logits [n, vocab_size]. */
k3_status k3_session_score(k3_session *session, float *logits, const int32_t *ids, size_t n, k3_error *err);
/* One append for several sessions of one engine in shared passes: ids[i] has n[i] tokens. */
k3_status k3_sessions_append(k3_session **sessions, const int32_t *const *ids, const size_t *n, size_t n_sessions, k3_error *err);
const float *k3_session_logits(const k3_session *session); /* [vocab_size]; NULL before the first append, and after a pick on a device */

/* Snapshots: KDA state cannot be truncated, so a session goes back to marked positions only. */
k3_status k3_session_mark(k3_session *session, k3_error *err);
/* Goes back to the last mark at or before `length` (or to 0) and forgets later marks; k3_session_length tells where. */
k3_status k3_session_rewind(k3_session *session, int64_t length, k3_error *err);
/* The last mark at or before `length`, 0 if there is none. And forgets the mark that lies at `length`. */
int64_t k3_session_mark_before(const k3_session *session, int64_t length);
void k3_session_unmark(k3_session *session, int64_t length);
/* A second session with what the first held at its last mark at or before `length`; it has that mark only. */
k3_status k3_session_fork(k3_session **out, k3_session *session, int64_t length, k3_error *err);
uint64_t k3_session_bytes(const k3_session *session); /* of memory: state, marks, ids and logits */
/* A file holds the tokens, the state and the marks. It is written beside the old one and takes its place when it is complete. */
k3_status k3_session_save(k3_session *session, const char *path, k3_error *err);
k3_status k3_session_load(k3_session *session, const char *path, k3_error *err);

/* ---- sampling ------------------------------------------------------------------------------------------ */

typedef struct k3_sampling {
    float temperature; /* <= 1e-6 (not negative): the largest logit, lowest id first */
    float top_p;       /* 1: off; 0: the best token only */
    int top_k;         /* 0: off */
    float min_p;       /* 0: off */
    uint64_t seed;
} k3_sampling;

typedef struct k3_sampler k3_sampler;
k3_status k3_sampler_open(k3_sampler **out, const k3_sampling *sampling, k3_error *err);
/* Picks from logits [n]: temperature, then top_k, top_p, min_p, then a seeded draw. */
k3_status k3_sampler_pick(k3_sampler *sampler, int32_t *id, const float *logits, size_t n, k3_error *err);
/* k3_session_append, then the pick from its logits: the same draw, but made where the logits are. On a device only the id comes back, and
 * k3_session_logits is NULL until the next append; a failure of the pick (K3_E_NUMERIC) leaves the ids appended. */
k3_status k3_session_append_pick(k3_session *session, k3_sampler *sampler, int32_t *id, const int32_t *ids, size_t n, k3_error *err);
void k3_sampler_close(k3_sampler *sampler);

/* What changes logits before a pick; zero-initialised, nothing does. */
typedef struct k3_adjustment {
    const int32_t *bias_ids; /* [n_biases], inside the vocabulary */
    const float *biases;     /* [n_biases], added; -100 to 100 */
    size_t n_biases;
    float repetition; /* to 100; 0 and 1: off: an id that is in the window has its logit divided by it, or multiplied if negative */
    float presence, frequency; /* -100 to 100: then subtracted once from an id that is in the window, and for each time it is there */
    int64_t window;            /* how many of the last ids count; 0: none, -1: all */
} k3_adjustment;
/* Adjusts logits [n] in place. history: every id so far, prompt included, so that the result depends on no cache. */
k3_status k3_logits_adjust(float *logits, size_t n, const k3_adjustment *how, const int32_t *history, size_t n_history, k3_error *err);
/* Natural log-probabilities of raw logits [n], no temperature, no filter: of `id`, and of the n_top best, falling, ties to the lower id. */
k3_status k3_logprobs(float *of_id, int32_t *top_ids, float *top, size_t n_top, int32_t id, const float *logits, size_t n, k3_error *err);

/* Stop strings over streamed text, across any boundary of tokens or pieces. Pieces of valid UTF-8 come out as pieces of valid UTF-8. */
typedef struct k3_stop k3_stop;
/* An empty stop string is K3_E_INVALID; n_stops may be 0. */
k3_status k3_stop_open(k3_stop **out, const char *const *stops, const size_t *n_bytes, size_t n_stops, k3_error *err);
/* Takes the next piece. *safe [*n_safe], valid until the next call, can be shown now: an end that may become a stop string is held back,
 * text from the stop string on never comes. *matched is 1 from the first complete one on. */
k3_status k3_stop_push(k3_stop *stop, const char **safe, size_t *n_safe, int *matched, const char *text, size_t n_bytes, k3_error *err);
/* The end of the text: gives out, once, what is held back. */
void k3_stop_flush(k3_stop *stop, const char **safe, size_t *n_safe);
void k3_stop_close(k3_stop *stop);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
