#include "text/vocab.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/os.h"

enum { MAX_SPECIAL = 65536, MAX_FILE_BYTES = 1 << 28, MAX_NAME_BYTES = 4096 };

typedef struct span {
    const char *bytes;
    uint32_t n;
} span;

/* Open addressing; a slot holds half of the hash and id + 1, 0 is empty. The half hash spares the look at the bytes when they differ. */
typedef struct hash_index {
    uint64_t *slots;
    size_t mask;
} hash_index;

struct k3_vocab {
    int size, n_ranks;
    span *tokens; /* [size] */
    char *ranked_bytes, *special_bytes;
    hash_index ranked, special;
    size_t longest;
    uint32_t *name_lengths; /* lengths that special names have, longest first */
    size_t n_name_lengths;
    unsigned char begins_name[256];
    k3_pretokenizer *pretokenizer;
};

/* K3's own names by distance from the first special id. */
static const struct {
    int offset;
    const char *name;
} k3_names[] = {
    {0, "[BOS]"},
    {1, "[EOS]"},
    {2, "<|end_of_msg|>"},
    {3, "<|open|>"},
    {4, "<|close|>"},
    {5, "<|sep|>"},
    {6, "[start_header_id]"},
    {7, "[end_header_id]"},
    {9, "[EOT]"},
    {18, "<|media_begin|>"},
    {19, "<|media_content|>"},
    {20, "<|media_end|>"},
    {21, "<|media_pad|>"},
    {65, "<osagent_mode>"},
    {254, "[UNK]"},
    {255, "[PAD]"},
};

/* ---- index ------------------------------------------------------------------------------------------- */

static uint64_t hash_bytes(const char *bytes, size_t n)
{
    uint64_t h = n * 0x9e3779b97f4a7c15u;
    for (; n >= 8; bytes += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    uint64_t tail = 0;
    for (size_t i = 0; i < n; i++)
        tail |= (uint64_t)(unsigned char)bytes[i] << 8 * i;
    h = (h ^ tail) * 0xff51afd7ed558ccdu;
    return h ^ h >> 29;
}

static int index_open(hash_index *index, size_t n)
{
    size_t size = 16;
    while (size < 2 * n)
        size *= 2;
    index->slots = calloc(size, sizeof *index->slots);
    index->mask = size - 1;
    return index->slots != NULL;
}

static int index_find(const hash_index *index, const span *tokens, const char *bytes, size_t n)
{
    uint64_t hash = hash_bytes(bytes, n);
    for (size_t i = hash & index->mask; index->slots[i]; i = (i + 1) & index->mask) {
        if (index->slots[i] >> 32 != hash >> 32)
            continue;
        uint32_t id = (uint32_t)index->slots[i] - 1;
        if (tokens[id].n == n && memcmp(tokens[id].bytes, bytes, n) == 0)
            return (int)id;
    }
    return -1;
}

/* Returns the id that already has these bytes, or -1 after adding. */
static int index_add(hash_index *index, const span *tokens, uint32_t id)
{
    int found = index_find(index, tokens, tokens[id].bytes, tokens[id].n);
    if (found >= 0)
        return found;
    uint64_t hash = hash_bytes(tokens[id].bytes, tokens[id].n);
    size_t i = hash & index->mask;
    while (index->slots[i])
        i = (i + 1) & index->mask;
    index->slots[i] = hash >> 32 << 32 | (id + 1);
    return -1;
}

/* ---- tiktoken.model ------------------------------------------------------------------------------------ */

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Returns the number of bytes written, at most 3/4 of n; 0 if the text is not base64 with padding. */
static size_t decode_base64(char *out, const char *text, size_t n)
{
    if (n == 0 || n % 4 != 0)
        return 0;
    size_t n_padding = (text[n - 1] == '=') + (text[n - 1] == '=' && text[n - 2] == '='), n_out = 0;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t bits = 0;
        for (size_t j = 0; j < 4; j++) {
            int value = i + j >= n - n_padding ? 0 : base64_value(text[i + j]);
            if (value < 0)
                return 0;
            bits = bits << 6 | (uint32_t)value;
        }
        size_t n_here = i + 4 < n ? 3 : 3 - n_padding;
        for (size_t j = 0; j < n_here; j++)
            out[n_out++] = (char)(bits >> (16 - 8 * j));
    }
    return n_out;
}

typedef struct line_reader {
    const char *at, *end;
    size_t number; /* of the line read last, from 1 */
} line_reader;

/* The next line without its end; 0 when there is none. */
static int next_line(line_reader *reader, const char **line, size_t *n)
{
    if (reader->at == reader->end)
        return 0;
    const char *stop = memchr(reader->at, '\n', (size_t)(reader->end - reader->at));
    *line = reader->at;
    *n = (size_t)((stop ? stop : reader->end) - reader->at);
    reader->at = stop ? stop + 1 : reader->end;
    reader->number++;
    *n -= *n > 0 && (*line)[*n - 1] == '\r';
    return 1;
}

static line_reader read_lines(const char *model, size_t n)
{
    size_t mark = n >= 3 && memcmp(model, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    return (line_reader){.at = model + mark, .end = model + n};
}

/* Splits "base64 rank"; 0 if the rank is not a plain number below 2^31. */
static int split_line(const char *line, size_t n, size_t *n_base64, int *rank)
{
    const char *space = memchr(line, ' ', n);
    if (!space || space + 1 == line + n)
        return 0;
    *n_base64 = (size_t)(space - line);
    int64_t value = 0;
    for (const char *s = space + 1; s < line + n; s++) {
        if (*s < '0' || *s > '9' || value > INT_MAX / 10)
            return 0;
        value = value * 10 + (*s - '0');
    }
    *rank = (int)(value <= INT_MAX ? value : -1);
    return value <= INT_MAX;
}

static k3_status read_rank_line(k3_vocab *v, char **room, const char *line, size_t n, size_t number, k3_error *err)
{
    size_t n_base64;
    int rank;
    if (!split_line(line, n, &n_base64, &rank))
        return k3_fail(err, K3_E_FORMAT, "line %zu is \"%.*s\", wanted \"BASE64 RANK\"", number, (int)(n < 60 ? n : 60), line);
    if (rank >= v->n_ranks)
        return k3_fail(err, K3_E_FORMAT, "line %zu has rank %d, but the %d lines must have the ranks 0 to %d", number, rank, v->n_ranks,
                       v->n_ranks - 1);
    if (v->tokens[rank].bytes)
        return k3_fail(err, K3_E_FORMAT, "line %zu has rank %d, which an earlier line has already", number, rank);
    size_t n_bytes = decode_base64(*room, line, n_base64);
    if (n_bytes == 0)
        return k3_fail(err, K3_E_FORMAT, "line %zu: \"%.*s\" is not base64 of at least one byte", number,
                       (int)(n_base64 < 60 ? n_base64 : 60), line);
    v->tokens[rank] = (span){*room, (uint32_t)n_bytes};
    int twin = index_add(&v->ranked, v->tokens, (uint32_t)rank);
    if (twin >= 0)
        return k3_fail(err, K3_E_FORMAT, "line %zu: rank %d has the same bytes as rank %d", number, rank, twin);
    *room += n_bytes;
    v->longest = n_bytes > v->longest ? n_bytes : v->longest;
    return K3_OK;
}

static k3_status count_ranks(k3_vocab *v, const char *model, size_t n_model, k3_error *err)
{
    const char *line;
    size_t n, n_lines = 0;
    for (line_reader r = read_lines(model, n_model); next_line(&r, &line, &n);)
        n_lines += n > 0;
    if (n_lines >= (size_t)v->size)
        return k3_fail(err, K3_E_FORMAT, "%zu tokens, but vocab_size is %d and must leave room for special tokens (K3: 163584 and 163840)",
                       n_lines, v->size);
    if ((size_t)v->size - n_lines > MAX_SPECIAL)
        return k3_fail(err, K3_E_FORMAT, "%zu tokens, but vocab_size is %d: more than %d special tokens; is the file cut short?", n_lines,
                       v->size, MAX_SPECIAL);
    v->n_ranks = (int)n_lines;
    return K3_OK;
}

static k3_status read_ranks(k3_vocab *v, const char *model, size_t n_model, k3_error *err)
{
    K3_TRY(count_ranks(v, model, n_model, err));
    v->tokens = calloc((size_t)v->size, sizeof *v->tokens);
    v->ranked_bytes = malloc(n_model + 1);
    if (!v->tokens || !v->ranked_bytes || !index_open(&v->ranked, (size_t)v->n_ranks))
        return k3_fail(err, K3_E_NOMEM, "no memory for a vocabulary of %d tokens", v->size);
    char *room = v->ranked_bytes;
    const char *line;
    size_t n;
    for (line_reader r = read_lines(model, n_model); next_line(&r, &line, &n);)
        if (n > 0)
            K3_TRY(read_rank_line(v, &room, line, n, r.number, err));
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        if (k3_vocab_rank(v, &byte, 1) < 0)
            return k3_fail(err, K3_E_FORMAT, "no token is the single byte 0x%02x; all 256 must be there so that every text can be encoded",
                           b);
    }
    return K3_OK;
}

/* ---- special tokens ------------------------------------------------------------------------------------ */

/* An entry of added_tokens_decoder: {"163584": {"content": "[BOS]", ...}}. */
static k3_status read_added_token(k3_vocab *v, const k3_json *entry, k3_error *err)
{
    int64_t id = 0;
    int n_shown = (int)(entry->key_bytes < 40 ? entry->key_bytes : 40);
    for (size_t i = 0; i < entry->key_bytes; i++) {
        char c = entry->key[i];
        id = c >= '0' && c <= '9' && id < INT_MAX ? id * 10 + (c - '0') : INT64_MAX / 16;
    }
    if (entry->key_bytes == 0 || id < v->n_ranks || id >= v->size)
        return k3_fail(err, K3_E_FORMAT, "added_tokens_decoder has the id \"%.*s\", wanted a number from %d to %d", n_shown, entry->key,
                       v->n_ranks, v->size - 1);
    const k3_json *content = k3_json_get(entry, "content");
    if (!content || content->type != K3_JSON_STRING || content->text_bytes == 0 || content->text_bytes > MAX_NAME_BYTES)
        return k3_fail(err, K3_E_FORMAT, "added_tokens_decoder: id %.*s has no \"content\" of 1 to %d bytes", n_shown, entry->key,
                       MAX_NAME_BYTES);
    if (v->tokens[id].bytes)
        return k3_fail(err, K3_E_FORMAT, "added_tokens_decoder names id %d twice", (int)id);
    v->tokens[id] = (span){content->text, (uint32_t)content->text_bytes};
    return K3_OK;
}

static k3_status name_from_config(k3_vocab *v, const k3_json *config, int *named, k3_error *err)
{
    *named = 0;
    if (!config)
        return K3_OK;
    if (config->type != K3_JSON_OBJECT)
        return k3_fail(err, K3_E_FORMAT, "the file is not a JSON object");
    const k3_json *added = k3_json_get(config, "added_tokens_decoder");
    if (!added || added->type == K3_JSON_NULL)
        return K3_OK;
    if (added->type != K3_JSON_OBJECT)
        return k3_fail(err, K3_E_FORMAT, "added_tokens_decoder is not an object of ids");
    for (const k3_json *entry = added->first; entry; entry = entry->next)
        K3_TRY(read_added_token(v, entry, err));
    *named = 1;
    return K3_OK;
}

/* Copies the names, which so far point into the configuration or into the program, and fills the slots without one. */
static k3_status store_names(k3_vocab *v, k3_error *err)
{
    enum { RESERVED_BYTES = 40 };
    size_t n_bytes = 0;
    for (int id = v->n_ranks; id < v->size; id++)
        n_bytes += v->tokens[id].bytes ? v->tokens[id].n : RESERVED_BYTES;
    v->special_bytes = malloc(n_bytes);
    if (!v->special_bytes || !index_open(&v->special, (size_t)(v->size - v->n_ranks)))
        return k3_fail(err, K3_E_NOMEM, "no memory for %d special tokens", v->size - v->n_ranks);
    char *room = v->special_bytes;
    for (int id = v->n_ranks; id < v->size; id++) {
        span *name = &v->tokens[id];
        if (name->bytes)
            memcpy(room, name->bytes, name->n);
        else
            name->n = (uint32_t)snprintf(room, RESERVED_BYTES, "<|reserved_token_%d|>", id);
        name->bytes = room;
        room += name->n;
        int twin = index_add(&v->special, v->tokens, (uint32_t)id);
        if (twin >= 0)
            return k3_fail(err, K3_E_FORMAT, "special tokens %d and %d are both named \"%.*s\"", twin, id,
                           (int)(name->n < 80 ? name->n : 80), name->bytes);
        v->begins_name[(unsigned char)name->bytes[0]] = 1;
    }
    return K3_OK;
}

static k3_status collect_name_lengths(k3_vocab *v, k3_error *err)
{
    unsigned char *seen = calloc(MAX_NAME_BYTES + 1, 1);
    v->name_lengths = malloc((MAX_NAME_BYTES + 1) * sizeof *v->name_lengths);
    if (seen && v->name_lengths) {
        for (int id = v->n_ranks; id < v->size; id++)
            seen[v->tokens[id].n] = 1;
        for (uint32_t n = MAX_NAME_BYTES; n > 0; n--)
            if (seen[n])
                v->name_lengths[v->n_name_lengths++] = n;
    }
    free(seen);
    return v->n_name_lengths > 0 ? K3_OK : k3_fail(err, K3_E_NOMEM, "no memory for the names of special tokens");
}

static k3_status read_special(k3_vocab *v, const char *text, size_t n_text, k3_error *err)
{
    const k3_json *config = NULL;
    int named;
    if (text)
        K3_TRY(k3_json_parse(&config, text, n_text, K3_JSON_NONFINITE | K3_JSON_SURROGATES, err));
    k3_status status = name_from_config(v, config, &named, err);
    if (status == K3_OK && !named)
        for (size_t i = 0; i < sizeof k3_names / sizeof k3_names[0]; i++)
            if (k3_names[i].offset < v->size - v->n_ranks)
                v->tokens[v->n_ranks + k3_names[i].offset] = (span){k3_names[i].name, (uint32_t)strlen(k3_names[i].name)};
    if (status == K3_OK)
        status = store_names(v, err);
    k3_json_free(config);
    return status != K3_OK ? status : collect_name_lengths(v, err);
}

/* ---- opening ------------------------------------------------------------------------------------------- */

k3_status k3_vocab_parse(k3_vocab **out, const char *model, size_t n_model, const char *config, size_t n_config, int vocab_size,
                         k3_error *err)
{
    *out = NULL;
    if (vocab_size <= 0)
        return k3_fail(err, K3_E_INVALID, "vocab_size is %d, wanted more than the tokens of tiktoken.model", vocab_size);
    k3_vocab *v = calloc(1, sizeof *v);
    if (!v)
        return k3_fail(err, K3_E_NOMEM, "no memory for a vocabulary");
    v->size = vocab_size;
    k3_status status = read_ranks(v, model, n_model, err);
    if (status != K3_OK)
        (void)k3_fail_within(err, status, "tiktoken.model: ");
    if (status == K3_OK) {
        status = read_special(v, config, n_config, err);
        if (status != K3_OK)
            (void)k3_fail_within(err, status, "tokenizer_config.json: ");
    }
    if (status == K3_OK)
        status = k3_pretokenizer_open(&v->pretokenizer, err);
    if (status != K3_OK) {
        k3_vocab_close(v);
        return status;
    }
    *out = v;
    return K3_OK;
}

k3_status k3_vocab_open(k3_vocab **out, const char *folder, int vocab_size, k3_error *err)
{
    *out = NULL;
    char *path = malloc(strlen(folder) + sizeof "/tokenizer_config.json"), *model = NULL, *config = NULL;
    size_t n_model = 0, n_config = 0;
    if (!path)
        return k3_fail(err, K3_E_NOMEM, "no memory for a vocabulary");
    sprintf(path, "%s/tiktoken.model", folder);
    k3_status status = k3_os_read_file(&model, &n_model, path, MAX_FILE_BYTES, err);
    if (status == K3_OK) {
        sprintf(path, "%s/tokenizer_config.json", folder);
        if (k3_os_exists(path))
            status = k3_os_read_file(&config, &n_config, path, MAX_FILE_BYTES, err);
    }
    if (status == K3_OK) {
        status = k3_vocab_parse(out, model, n_model, config, n_config, vocab_size, err);
        if (status != K3_OK)
            (void)k3_fail_within(err, status, "%s: ", folder);
    }
    free(path);
    free(model);
    free(config);
    return status;
}

void k3_vocab_close(k3_vocab *v)
{
    if (!v)
        return;
    k3_pretokenizer_close(v->pretokenizer);
    free(v->tokens);
    free(v->ranked_bytes);
    free(v->special_bytes);
    free(v->ranked.slots);
    free(v->special.slots);
    free(v->name_lengths);
    free(v);
}

/* ---- asking -------------------------------------------------------------------------------------------- */

int k3_vocab_size(const k3_vocab *v)
{
    return v->size;
}

int k3_vocab_n_ranks(const k3_vocab *v)
{
    return v->n_ranks;
}

size_t k3_vocab_longest(const k3_vocab *v)
{
    return v->longest;
}

const k3_pretokenizer *k3_vocab_pretokenizer(const k3_vocab *v)
{
    return v->pretokenizer;
}

k3_status k3_vocab_bytes(const k3_vocab *v, const char **bytes, size_t *n_bytes, int64_t id, k3_error *err)
{
    *bytes = NULL;
    *n_bytes = 0;
    if (id < 0 || id >= v->size)
        return k3_fail(err, K3_E_INVALID, "token id %lld is outside the vocabulary of 0 to %d", (long long)id, v->size - 1);
    *bytes = v->tokens[id].bytes;
    *n_bytes = v->tokens[id].n;
    return K3_OK;
}

int k3_vocab_special(const k3_vocab *v, const char *name)
{
    return index_find(&v->special, v->tokens, name, strlen(name));
}

int k3_vocab_is_special(const k3_vocab *v, int64_t id)
{
    return id >= v->n_ranks && id < v->size;
}

int k3_vocab_special_at(const k3_vocab *v, const char *text, size_t n, size_t *n_name)
{
    *n_name = 0;
    if (n == 0 || !v->begins_name[(unsigned char)text[0]])
        return -1;
    for (size_t i = 0; i < v->n_name_lengths; i++) {
        size_t length = v->name_lengths[i];
        int id = length <= n ? index_find(&v->special, v->tokens, text, length) : -1;
        if (id >= 0) {
            *n_name = length;
            return id;
        }
    }
    return -1;
}

int k3_vocab_rank(const k3_vocab *v, const char *bytes, size_t n)
{
    return index_find(&v->ranked, v->tokens, bytes, n);
}
