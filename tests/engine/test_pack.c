/* k3_pack: the packed model computes the same bits, its files are valid and aligned, and neither a kill, a full disk, a foreign folder nor
 * a disk that changes bytes leads to anything but a whole model or a refusal. */
#include "ckpt/ckpt.h"
#include "k3.h"
#include "model/forward.h"
#include "support/tiny_checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MINI "models/k3-mini"
#define PYTHON ".venv/bin/python"
#define LAST "model-00014-of-00014.safetensors" /* of tiny: 13 layers and the rest */

enum { PROMPT = 40, TINY_SHARDS = TINY_LAYERS + 1, KILLS = 10 };

static const char *const trunks[] = {"bf16", "int8", "int4"};

static char *base, *tiny_model;

static void must(k3_status status, const k3_error *err)
{
    if (status != K3_OK)
        fail_msg("status %d: %s", (int)status, err->text);
}

/* "BASE/NAME", in one of a few buffers. */
static const char *in_base(const char *name)
{
    static char rooms[8][300];
    static int next;
    char *room = rooms[next++ % 8];
    snprintf(room, sizeof rooms[0], "%s/%s", base, name);
    return room;
}

static void pack(const char *model, const char *out, const char *trunk)
{
    k3_error err = {0};
    must(k3_pack(model, out, trunk, NULL, NULL, &err), &err);
}

static void check_refused(const char *model, const char *out, const char *trunk, k3_status status, const char *const *needles)
{
    k3_error err = {0};
    k3_status got = k3_pack(model, out, trunk, NULL, NULL, &err);
    if (got != status)
        fail_msg("status %d, wanted %d: %s", (int)got, (int)status, err.text);
    for (; *needles; needles++)
        if (!strstr(err.text, *needles))
            fail_msg("no <%s> in <%s>", *needles, err.text);
}
#define assert_refused(model, out, trunk, status, ...) check_refused(model, out, trunk, status, (const char *const[]){__VA_ARGS__, NULL})

static int exists(const char *folder, const char *name)
{
    char path[400];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return lstat(path, &info) == 0;
}

/* ---- bits ----------------------------------------------------------------------------------------------------------------- */

/* Logits of every token of a fixed text, malloc'd. */
static float *score(const char *model, const char *trunk, size_t *n)
{
    k3_engine *engine;
    k3_session *session;
    k3_error err;
    k3_config config = {.backend = "cpu", .trunk = trunk, .threads = 2};
    must(k3_engine_open(&engine, model, &config, &err), &err);
    int vocab = k3_engine_info(engine)->vocab_size;
    int32_t ids[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (i * 73 + 5) % vocab;
    *n = (size_t)PROMPT * (size_t)vocab;
    float *logits = malloc(*n * sizeof *logits);
    assert_non_null(logits);
    must(k3_session_open(&session, engine, &err), &err);
    must(k3_session_score(session, logits, ids, PROMPT, &err), &err);
    k3_session_close(session);
    k3_engine_close(engine);
    return logits;
}

static void check_same_logits(const char *model, const char *packed, const char *trunk, const char *asked)
{
    size_t n, m;
    float *want = score(model, trunk, &n), *got = score(packed, asked, &m);
    assert_int_equal(n, m);
    assert_memory_equal(got, want, n * sizeof *got);
    free(want);
    free(got);
}

static void packed_models_compute_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof trunks / sizeof *trunks; i++) {
        char name[40];
        snprintf(name, sizeof name, "tiny-%s", trunks[i]);
        pack(tiny_model, in_base(name), trunks[i]);
        check_same_logits(tiny_model, in_base(name), trunks[i], trunks[i]);
        snprintf(name, sizeof name, "mini-%s", trunks[i]);
        pack(MINI, in_base(name), trunks[i]);
        check_same_logits(MINI, in_base(name), trunks[i], trunks[i]);
    }
    /* Left to choose, the engine takes what there is; a bf16 trunk is still any trunk. */
    check_same_logits(MINI, in_base("mini-int4"), "int4", NULL);
    check_same_logits(MINI, in_base("mini-bf16"), "int4", "int4");
}

/* One pass over a packed trunk that is read as it is used. */
static void run_with_budget(float *logits, const char *model, k3_trunk trunk, int is_streamed)
{
    k3_ckpt *ckpt;
    k3_backend *be;
    k3_weights *weights;
    k3_experts *experts;
    k3_forward *forward;
    k3_state *sequence;
    k3_error err;
    k3_backend_config config = {.threads = 2};
    must(k3_ckpt_open(&ckpt, model, &err), &err);
    must(k3_cpu_open(&be, NULL, &config, &err), &err);
    uint64_t budget = is_streamed ? k3_trunk_least_bytes(ckpt, trunk) : 0;
    must(k3_weights_load(&weights, ckpt, be, trunk, budget, 2, NULL, NULL, &err), &err);
    assert_int_equal(weights->late != NULL, is_streamed);
    must(k3_experts_open(&experts, ckpt, be, &(k3_experts_config){k3_backend_open, config, NULL}, &err), &err);
    must(k3_forward_open(&forward, weights, experts, K3_F32, PROMPT, 1, &err), &err);
    must(k3_experts_load(experts, 0, (uint64_t)1 << 28, NULL, NULL, &err), &err);
    must(k3_state_open(&sequence, k3_ckpt_hparams(ckpt), K3_F32, &err), &err);
    must(k3_state_restart(sequence, be, &err), &err);
    must(k3_state_reserve(sequence, PROMPT, &err), &err);
    int32_t ids[PROMPT], want[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        ids[i] = want[i] = i;
    k3_span span = {sequence, 0, PROMPT};
    k3_pass pass = {.ids = ids, .n_rows = PROMPT, .spans = &span, .n_spans = 1, .want = want, .n_want = PROMPT, .logits = logits};
    must(k3_forward_run(forward, &pass, &err), &err);
    k3_state_close(sequence);
    k3_forward_close(forward);
    k3_experts_close(experts);
    k3_weights_free(weights);
    be->close(be);
    k3_ckpt_close(ckpt);
}

static void a_packed_trunk_that_does_not_fit_is_streamed(void **state)
{
    (void)state;
    static float whole[PROMPT * TINY_VOCAB], streamed[PROMPT * TINY_VOCAB];
    for (size_t i = 0; i < sizeof trunks / sizeof *trunks; i++) {
        char name[40];
        snprintf(name, sizeof name, "streamed-%s", trunks[i]);
        pack(tiny_model, in_base(name), trunks[i]);
        run_with_budget(whole, tiny_model, (k3_trunk)i, 0);
        run_with_budget(streamed, in_base(name), (k3_trunk)i, 1);
        assert_memory_equal(streamed, whole, sizeof whole);
    }
}

/* ---- the files ---------------------------------------------------------------------------------------------------------- */

static void check_equal_bytes(const k3_ckpt *a, const k3_tensor_info *x, const k3_ckpt *b, const k3_tensor_info *y)
{
    k3_error err;
    assert_string_equal(x->name, y->name);
    assert_int_equal(x->bytes, y->bytes);
    char *p = malloc(x->bytes + 1), *q = malloc(x->bytes + 1);
    must(k3_ckpt_read(a, p, x, 0, x->bytes, &err), &err);
    must(k3_ckpt_read(b, q, y, 0, y->bytes, &err), &err);
    assert_memory_equal(p, q, x->bytes);
    free(p);
    free(q);
}

/* Experts in one piece, in order, at multiples of 4096; everything at multiples of 64. */
static void check_places(const k3_ckpt *ckpt, int layer)
{
    uint64_t end = 0;
    for (int e = 0; e < TINY_EXPERTS; e++) {
        const k3_tensor_info *first = k3_ckpt_role(ckpt, K3_R_W1, layer, e);
        assert_int_equal(first->offset % 4096, 0);
        assert_in_range(first->offset, end, end + 4096 * (e ? 1 : 8));
        end = first->offset;
        for (int r = K3_R_W1; r < K3_N_ROLES; r++) {
            const k3_tensor_info *t = k3_ckpt_role(ckpt, (k3_role)r, layer, e);
            assert_int_equal(t->offset, end);
            assert_int_equal(t->offset % 64, 0);
            assert_int_equal(t->shard, layer);
            end += t->bytes;
        }
    }
}

static void experts_and_tensors_lie_at_aligned_places(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof trunks / sizeof *trunks; i++) {
        char name[40];
        k3_ckpt *packed, *source;
        k3_error err;
        int n_converted = 0, n_kept = 0;
        snprintf(name, sizeof name, "places-%s", trunks[i]);
        pack(tiny_model, in_base(name), trunks[i]);
        must(k3_ckpt_open(&source, tiny_model, &err), &err);
        must(k3_ckpt_open(&packed, in_base(name), &err), &err);
        assert_string_equal(k3_ckpt_packed(packed), trunks[i]);
        assert_string_equal(k3_ckpt_warning(packed), "");
        assert_int_equal(k3_ckpt_n_shards(packed), TINY_SHARDS);
        assert_int_equal(k3_ckpt_n_params(packed), k3_ckpt_n_params(source));
        for (int l = 0; l < TINY_LAYERS; l++)
            for (int r = 0; r < K3_N_ROLES; r++)
                for (int e = 0; e < (r < K3_R_W1 ? 1 : TINY_EXPERTS); e++) {
                    const k3_tensor_info *t = k3_ckpt_role(source, (k3_role)r, l, e), *p = k3_ckpt_role(packed, (k3_role)r, l, e);
                    assert_int_equal(t != NULL, p != NULL);
                    if (!t)
                        continue;
                    assert_int_equal(p->offset % 64, 0);
                    n_converted += k3_dtype_is_packed(p->dtype);
                    n_kept += !k3_dtype_is_packed(p->dtype);
                    if (k3_dtype_is_packed(p->dtype))
                        assert_int_equal(k3_ckpt_scale(packed, (k3_role)r, l)->offset % 64, 0);
                    else
                        check_equal_bytes(source, t, packed, p);
                }
        for (int l = 1; l < TINY_LAYERS; l++)
            check_places(packed, l);
        /* 9 KDA of 5, 4 MLA of 6, a dense FFN of 3, 12 MoE of 5; and the head, which is met once a layer here. */
        assert_int_equal(n_converted, i ? 9 * 5 + 4 * 6 + 3 + 12 * 5 + TINY_LAYERS : 0);
        assert_true(n_kept > 12 * TINY_EXPERTS * 6);
        k3_ckpt_close(packed);
        k3_ckpt_close(source);
    }
}

static void the_python_package_reads_the_files(void **state)
{
    (void)state;
    if (system(PYTHON " -c 'import safetensors, numpy' 2>/dev/null") != 0) {
        print_message("SKIP: needs the safetensors package in .venv\n");
        skip();
    }
    for (size_t i = 0; i < sizeof trunks / sizeof *trunks; i++) {
        char name[40], command[800];
        snprintf(name, sizeof name, "python-%s", trunks[i]);
        pack(tiny_model, in_base(name), trunks[i]);
        snprintf(command, sizeof command,
                 PYTHON " -c '\n"
                        "import glob, json, sys, numpy\n"
                        "from safetensors import safe_open\n"
                        "files = sorted(glob.glob(sys.argv[1] + \"/*.safetensors\"))\n"
                        "listed = json.load(open(sys.argv[1] + \"/model.safetensors.index.json\"))[\"weight_map\"]\n"
                        "found = {}\n"
                        "for f in files:\n"
                        "    with safe_open(f, \"numpy\") as s:\n"
                        "        assert s.metadata()[\"k3_trunk\"] == sys.argv[2]\n"
                        "        for k in s.keys():\n"
                        "            s.get_slice(k).get_shape()\n"
                        "            found.update({} if k.startswith(\"k3_padding.\") else {k: f.split(\"/\")[-1]})\n"
                        "        for k in s.keys():\n"
                        "            if s.get_slice(k).get_dtype() in (\"U8\", \"I8\", \"F32\"): s.get_tensor(k)\n"
                        "assert found == listed and len(files) == %d\n"
                        "' '%s' %s",
                 TINY_SHARDS, in_base(name), trunks[i]);
        assert_int_equal(system(command), 0);
    }
}

/* What is no layer's is kept, and so are the files beside the weights; spellings stay. */
static void nothing_of_the_source_is_lost(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(3);
    tiny_tensor *image = tiny_add(tiny, 1, "vision_tower.patch \\\"embed\\\".weight", "F16", 4, (int64_t[]){3, 1, 2, 5});
    for (size_t i = 0; i < image->n_bytes; i++)
        image->data[i] = (unsigned char)(i * 7);
    tiny_tensor *a_log = tiny_find(tiny, TINY_BODY "layers.1.self_attn.A_log");
    a_log->rank = 4;
    memcpy(a_log->shape, (int64_t[]){1, 1, TINY_KDA_DIM, 1}, 4 * sizeof(int64_t));
    char *model = tiny_folder();
    tiny_write(tiny, model);
    tiny_put_file(model, "tokenizer_config.json", "{}", 2);
    tiny_put_file(model, "LICENSE", "free", 4);
    tiny_put_file(model, ".hidden", "no", 2);
    pack(model, in_base("kept"), NULL);
    size_t n;
    char *last = tiny_get_file(in_base("kept"), LAST, &n), *layer = tiny_get_file(in_base("kept"), "model-00002-of-00014.safetensors", &n);
    const char *vision =
        strstr(last + 8, "\"vision_tower.patch \\\"embed\\\".weight\":{\"dtype\":\"F16\",\"shape\":[3,1,2,5],\"data_offsets\":[");
    assert_non_null(vision);
    unsigned long long at = strtoull(strstr(vision, "offsets\":[") + 10, NULL, 10);
    uint64_t header = 0;
    memcpy(&header, last, 8);
    assert_int_equal((header + 8) % 4096, 0);
    assert_memory_equal(last + 8 + header + at, image->data, image->n_bytes);
    assert_non_null(strstr(layer + 8, "layers.1.self_attn.A_log\":{\"dtype\":\"F32\",\"shape\":[1,1,16,1],"));
    free(layer);
    free(last);
    assert_true(exists(in_base("kept"), "tokenizer_config.json") && exists(in_base("kept"), "LICENSE"));
    assert_false(exists(in_base("kept"), ".hidden"));
    char *config = tiny_get_file(in_base("kept"), "config.json", &n);
    assert_string_equal(config, tiny->config);
    free(config);
    check_same_logits(model, in_base("kept"), "int8", NULL);
    tiny_free(tiny);
    tiny_remove_folder(model);
}

/* A head that is the embedding is made from it at load; an f32 trunk is converted from f32. */
static void tied_heads_and_f32_trunks_are_packed_too(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(2);
    tiny_remove(tiny, "language_model.lm_head.weight");
    tiny_replace(&tiny->config, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    tiny_tensor *q = tiny_find(tiny, TINY_BODY "layers.1.self_attn.q_proj.weight");
    unsigned char *wide = calloc(2, q->n_bytes);
    for (size_t i = 0; i < q->n_bytes / 2; i++)
        memcpy(wide + 4 * i + 2, q->data + 2 * i, 2);
    free(q->data);
    q->data = wide;
    q->n_bytes *= 2;
    strcpy(q->dtype, "F32");
    char *model = tiny_folder();
    tiny_write(tiny, model);
    tiny_free(tiny);
    for (size_t i = 0; i < sizeof trunks / sizeof *trunks; i++) {
        char name[40];
        snprintf(name, sizeof name, "tied-%s", trunks[i]);
        pack(model, in_base(name), trunks[i]);
        check_same_logits(model, in_base(name), trunks[i], trunks[i]);
    }
    tiny_remove_folder(model);
}

/* ---- refusals ------------------------------------------------------------------------------------------------------------- */

static void check_engine_refuses(const char *model, const k3_config *config, const char *const *needles)
{
    k3_engine *engine;
    k3_error err = {0};
    assert_int_equal(k3_engine_open(&engine, model, config, &err), K3_E_INVALID);
    for (; *needles; needles++)
        if (!strstr(err.text, *needles))
            fail_msg("no <%s> in <%s>", *needles, err.text);
}

static void a_packed_trunk_is_no_other_trunk(void **state)
{
    (void)state;
    pack(tiny_model, in_base("only8"), NULL);
    pack(tiny_model, in_base("only4"), "int4");
    check_engine_refuses(in_base("only8"), &(k3_config){.backend = "cpu", .trunk = "int4"},
                         (const char *const[]){"holds an int8 trunk", "int4 was asked for", "only8", NULL});
    check_engine_refuses(in_base("only8"), &(k3_config){.backend = "cpu", .trunk = "bf16"},
                         (const char *const[]){"holds an int8 trunk", "bf16 was asked for", NULL});
    check_engine_refuses(in_base("only4"), &(k3_config){.backend = "cpu", .exact = 1},
                         (const char *const[]){"holds an int4 trunk", "exact mode", NULL});
    check_engine_refuses(in_base("only4"), &(k3_config){.backend = "cpu", .trunk = "int8"},
                         (const char *const[]){"holds an int4 trunk", "int8 was asked for", NULL});
    assert_refused(in_base("only8"), in_base("twice"), "int8", K3_E_INVALID, "is packed already", "int8");
    assert_false(exists(base, "twice"));
}

static void wrong_arguments_are_refused_and_write_nothing(void **state)
{
    (void)state;
    char inside[300], link[300];
    snprintf(inside, sizeof inside, "%s/packed", tiny_model);
    snprintf(link, sizeof link, "%s", in_base("link"));
    assert_int_equal(symlink(tiny_model, link), 0);
    assert_refused(tiny_model, in_base("no"), "int2", K3_E_INVALID, "\"int2\"", "bf16, int8 or int4");
    assert_refused(tiny_model, in_base("no"), "auto", K3_E_INVALID, "\"auto\"", "bf16, int8 or int4");
    assert_refused(tiny_model, "", "int8", K3_E_INVALID, "no folder");
    assert_refused(in_base("absent"), in_base("no"), "int8", K3_E_NOT_FOUND, "absent");
    assert_refused(tiny_model, in_base("a/b"), "int8", K3_E_NOT_FOUND, "parent");
    assert_refused(tiny_model, tiny_model, "int8", K3_E_INVALID, "own folder");
    assert_refused(tiny_model, link, "int8", K3_E_INVALID, "own folder");
    assert_refused(link, tiny_model, "int8", K3_E_INVALID, "own folder");
    assert_refused(tiny_model, inside, "int8", K3_E_INVALID, "own folder");
    assert_false(exists(tiny_model, "packed"));
    assert_false(exists(base, "no"));
    tiny_put_file(base, "a-file", "x", 1);
    assert_refused(tiny_model, in_base("a-file"), "int8", K3_E_IO, "a-file", "Not a directory");
}

/* A folder of somebody else's is left alone, whatever of it is in the way. */
static void what_is_there_is_not_written_over(void **state)
{
    (void)state;
    static const char *const names[] = {"config.json", "model.safetensors.index.json", "model-00003-of-00014.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[300], name[20];
        size_t n;
        snprintf(name, sizeof name, "theirs%zu", i);
        snprintf(folder, sizeof folder, "%s", in_base(name));
        assert_int_equal(mkdir(folder, 0777), 0);
        tiny_put_file(folder, names[i], "theirs", 6);
        assert_refused(tiny_model, folder, "int8", K3_E_INVALID, names[i], "is there and is not what");
        char *text = tiny_get_file(folder, names[i], &n);
        assert_int_equal(n, 6);
        assert_memory_equal(text, "theirs", 6);
        free(text);
    }
    /* Another trunk, and another model of the same shape. */
    pack(tiny_model, in_base("taken"), "int8");
    assert_refused(tiny_model, in_base("taken"), "int4", K3_E_INVALID, "model-00001-of-00014.safetensors", "trunk of int4");
    tiny_checkpoint *tiny = tiny_new(14);
    tiny_find(tiny, TINY_BODY "layers.5.self_attn.o_proj.weight")->data[128 * 64] ^= 1; /* in its middle */
    char *other = tiny_folder();
    tiny_write(tiny, other);
    tiny_free(tiny);
    assert_refused(other, in_base("taken"), "int8", K3_E_INVALID, "model-00001-of-00014.safetensors");
    tiny_remove_folder(other);
}

static void shards_of_two_packs_are_told_apart(void **state)
{
    (void)state;
    char a[400], b[400];
    k3_ckpt *ckpt;
    k3_error err = {0};
    pack(tiny_model, in_base("mix8"), "int8");
    pack(tiny_model, in_base("mix4"), "int4");
    snprintf(a, sizeof a, "%s/" LAST, in_base("mix4"));
    snprintf(b, sizeof b, "%s/" LAST, in_base("mix8"));
    assert_int_equal(rename(a, b), 0);
    assert_int_equal(k3_ckpt_open(&ckpt, in_base("mix8"), &err), K3_E_FORMAT);
    assert_non_null(strstr(err.text, "packed int8"));
    assert_non_null(strstr(err.text, "packed int4"));
}

static void a_folder_is_written_by_one_process(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_base("locked"), 0777), 0);
    int fd = open(in_base("locked"), O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_refused(tiny_model, in_base("locked"), "int8", K3_E_INVALID, "another process");
    close(fd);
    pack(tiny_model, in_base("locked"), "int8");
}

/* ---- going on ------------------------------------------------------------------------------------------------------------- */

typedef struct trouble {
    long at, calls; /* what happens at this call of the progress function */
    int kills;
    const char *damages; /* the folder whose unfinished shard is changed when it is first compared */
    uint64_t written, total;
} trouble;

static void damage_part(const char *folder)
{
    char path[400];
    unsigned char x;
    snprintf(path, sizeof path, "%s/model-00001-of-00014.safetensors.part", folder);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &x, 1, 9000), 1);
    x ^= 4;
    assert_int_equal(pwrite(fd, &x, 1, 9000), 1);
    close(fd);
}

static int on_progress(void *user, const char *phase, uint64_t done, uint64_t total)
{
    trouble *t = user;
    int packs = strcmp(phase, "packing") == 0;
    assert_true(packs || strcmp(phase, "verifying") == 0);
    assert_true(done <= total);
    if (!packs && t->damages) {
        damage_part(t->damages);
        t->damages = NULL;
    }
    t->written = packs ? done : t->written;
    t->total = total;
    if (t->at && ++t->calls == t->at) {
        if (t->kills)
            raise(SIGKILL);
        return 1;
    }
    return 0;
}

/* Inodes of the shards that have their names; 0 for the others. Returns how many have. */
static int finished(ino_t inodes[TINY_SHARDS], const char *folder)
{
    int n = 0;
    for (int i = 0; i < TINY_SHARDS; i++) {
        char path[400];
        struct stat info;
        snprintf(path, sizeof path, "%s/model-%05d-of-%05d.safetensors", folder, i + 1, TINY_SHARDS);
        inodes[i] = stat(path, &info) == 0 ? info.st_ino : 0;
        n += inodes[i] != 0;
    }
    return n;
}

static void check_whole(const char *folder, const char *trunk)
{
    check_same_logits(tiny_model, folder, trunk, trunk);
    assert_int_equal(finished((ino_t[TINY_SHARDS]){0}, folder), TINY_SHARDS);
    assert_false(exists(folder, LAST ".part"));
}

/* Runs k3_pack in a child. Returns its signal, or 0. */
static int pack_in_child(const char *out, trouble *t)
{
    int status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        k3_error err = {0};
        _exit(k3_pack(tiny_model, out, "int8", on_progress, t, &err) != K3_OK);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void a_killed_run_goes_on_where_it_was(void **state)
{
    (void)state;
    char folder[300];
    snprintf(folder, sizeof folder, "%s", in_base("killed"));
    trouble all = {0};
    k3_error err = {0};
    must(k3_pack(tiny_model, in_base("unkilled"), "int8", on_progress, &all, &err), &err);
    uint64_t random = 88172645463325252u;
    int was = 0, n_killed = 0;
    ino_t before[TINY_SHARDS], after[TINY_SHARDS];
    for (int i = 0; i < KILLS; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        trouble t = {.at = 1 + (long)(random % 500), .kills = 1};
        finished(before, folder);
        n_killed += pack_in_child(folder, &t) == SIGKILL;
        int now = finished(after, folder);
        assert_true(now >= was);
        for (int k = 0; k < TINY_SHARDS; k++)
            if (before[k])
                assert_int_equal(after[k], before[k]);
        was = now;
        if (now < TINY_SHARDS) {
            k3_ckpt *ckpt;
            assert_int_not_equal(k3_ckpt_open(&ckpt, folder, &err), K3_OK);
        }
    }
    assert_true(n_killed >= 3);
    finished(before, folder);
    pack(tiny_model, folder, "int8");
    finished(after, folder);
    for (int k = 0; k < TINY_SHARDS; k++)
        if (before[k])
            assert_int_equal(after[k], before[k]);
    check_whole(folder, "int8");
    trouble again = {0};
    must(k3_pack(tiny_model, folder, "int8", on_progress, &again, &err), &err);
    assert_int_equal(again.written, 0);
}

static void a_run_that_is_stopped_goes_on(void **state)
{
    (void)state;
    char folder[300];
    k3_error err = {0};
    trouble t = {.at = 700};
    snprintf(folder, sizeof folder, "%s", in_base("stopped"));
    assert_int_equal(k3_pack(tiny_model, folder, "int4", on_progress, &t, &err), K3_E_CANCELLED);
    int n = finished((ino_t[TINY_SHARDS]){0}, folder);
    assert_in_range(n, 1, TINY_SHARDS - 1);
    assert_false(exists(folder, "config.json") || exists(folder, "model.safetensors.index.json"));
    trouble rest = {0};
    must(k3_pack(tiny_model, folder, "int4", on_progress, &rest, &err), &err);
    assert_int_equal(rest.written, rest.total);
    assert_true(rest.total < t.total);
    check_whole(folder, "int4");
}

/* The limit on the size of files stands for the disk's end. */
static void a_full_disk_is_told_and_can_be_made_room_on(void **state)
{
    (void)state;
    struct rlimit before, small;
    char folder[300];
    snprintf(folder, sizeof folder, "%s", in_base("full"));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    small = (struct rlimit){150000, before.rlim_max}; /* between the dense layer's shard and the others */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    k3_error err = {0};
    k3_status status = k3_pack(tiny_model, folder, "int8", NULL, NULL, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, K3_E_IO);
    assert_non_null(strstr(err.text, "model-00002-of-00014.safetensors.part"));
    assert_non_null(strstr(err.text, strerror(EFBIG)));
    assert_non_null(strstr(err.text, "the same command goes on"));
    ino_t inodes[TINY_SHARDS], after[TINY_SHARDS];
    assert_int_equal(finished(inodes, folder), 1);
    assert_false(exists(folder, "model-00002-of-00014.safetensors.part"));
    pack(tiny_model, folder, "int8");
    finished(after, folder);
    assert_int_equal(inodes[0], after[0]);
    check_whole(folder, "int8");
}

static void a_disk_that_changes_bytes_is_found_out(void **state)
{
    (void)state;
    char folder[300];
    k3_error err = {0};
    snprintf(folder, sizeof folder, "%s", in_base("bad"));
    trouble t = {.damages = folder};
    assert_int_equal(k3_pack(tiny_model, folder, "int8", on_progress, &t, &err), K3_E_IO);
    assert_non_null(strstr(err.text, "not what was written"));
    assert_int_equal(finished((ino_t[TINY_SHARDS]){0}, folder), 0);
}

/* A link in the way of an unfinished shard is not followed. */
static void the_source_is_only_read(void **state)
{
    (void)state;
    char target[400], link[400], shard[64];
    tiny_checkpoint *tiny = tiny_new(14);
    tiny_shard_name(shard, tiny, 0);
    tiny_free(tiny);
    size_t n, m;
    char *before = tiny_get_file(tiny_model, shard, &n);
    assert_int_equal(mkdir(in_base("linked"), 0777), 0);
    snprintf(target, sizeof target, "%s/%s", tiny_model, shard);
    snprintf(link, sizeof link, "%s/model-00001-of-00014.safetensors.part", in_base("linked"));
    assert_int_equal(symlink(target, link), 0);
    pack(tiny_model, in_base("linked"), "int8");
    char *after = tiny_get_file(tiny_model, shard, &m);
    assert_int_equal(n, m);
    assert_memory_equal(before, after, n);
    free(before);
    free(after);
}

static int set_up(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(14);
    base = tiny_folder();
    tiny_model = tiny_folder();
    tiny_write(tiny, tiny_model);
    tiny_free(tiny);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tiny_remove_folder(base);
    tiny_remove_folder(tiny_model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_models_compute_the_same_bits),
        cmocka_unit_test(a_packed_trunk_that_does_not_fit_is_streamed),
        cmocka_unit_test(experts_and_tensors_lie_at_aligned_places),
        cmocka_unit_test(the_python_package_reads_the_files),
        cmocka_unit_test(nothing_of_the_source_is_lost),
        cmocka_unit_test(tied_heads_and_f32_trunks_are_packed_too),
        cmocka_unit_test(a_packed_trunk_is_no_other_trunk),
        cmocka_unit_test(wrong_arguments_are_refused_and_write_nothing),
        cmocka_unit_test(what_is_there_is_not_written_over),
        cmocka_unit_test(shards_of_two_packs_are_told_apart),
        cmocka_unit_test(a_folder_is_written_by_one_process),
        cmocka_unit_test(a_killed_run_goes_on_where_it_was),
        cmocka_unit_test(a_run_that_is_stopped_goes_on),
        cmocka_unit_test(a_full_disk_is_told_and_can_be_made_room_on),
        cmocka_unit_test(a_disk_that_changes_bytes_is_found_out),
        cmocka_unit_test(the_source_is_only_read),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
