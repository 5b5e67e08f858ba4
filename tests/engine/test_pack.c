/* k3_pack: the packed model computes the same bits, its files are valid and aligned, and what is in the way is left alone. */
#include "ckpt/ckpt.h"
#include "engine/pack_runs.h"
#include "model/forward.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MINI "models/k3-mini"
#define PYTHON ".venv/bin/python"

static const char *const trunks[] = {"bf16", "int8", "int4"};

/* ---- bits ----------------------------------------------------------------------------------------------------------------- */

static void packed_models_compute_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof trunks / sizeof *trunks; i++) {
        char name[40];
        snprintf(name, sizeof name, "tiny-%s", trunks[i]);
        pack_model(pack_tiny, pack_in_base(name), trunks[i]);
        pack_check_same_logits(pack_tiny, pack_in_base(name), trunks[i], trunks[i]);
        snprintf(name, sizeof name, "mini-%s", trunks[i]);
        pack_model(MINI, pack_in_base(name), trunks[i]);
        pack_check_same_logits(MINI, pack_in_base(name), trunks[i], trunks[i]);
    }
    /* Left to choose, the engine takes what there is; a bf16 trunk is still any trunk. */
    pack_check_same_logits(MINI, pack_in_base("mini-int4"), "int4", NULL);
    pack_check_same_logits(MINI, pack_in_base("mini-bf16"), "int4", "int4");
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
    pack_must(k3_ckpt_open(&ckpt, model, &err), &err);
    pack_must(k3_cpu_open(&be, NULL, &config, &err), &err);
    uint64_t budget = is_streamed ? k3_trunk_least_bytes(ckpt, trunk) : 0;
    pack_must(k3_weights_load(&weights, ckpt, be, &(k3_weights_config){.trunk = trunk, .trunk_bytes = budget, .threads = 2}, &err), &err);
    assert_int_equal(weights->late != NULL, is_streamed);
    pack_must(k3_experts_open(&experts, ckpt, be, &(k3_experts_config){.open = k3_backend_open, .backend = config}, &err), &err);
    pack_must(k3_forward_open(&forward, weights, experts, K3_F32, PACK_PROMPT, 1, &err), &err);
    pack_must(k3_experts_load(experts, 0, (uint64_t)1 << 28, NULL, NULL, &err), &err);
    pack_must(k3_state_open(&sequence, k3_ckpt_hparams(ckpt), K3_F32, &err), &err);
    pack_must(k3_state_restart(sequence, be, &err), &err);
    pack_must(k3_state_reserve(sequence, PACK_PROMPT, &err), &err);
    int32_t ids[PACK_PROMPT], want[PACK_PROMPT];
    for (int i = 0; i < PACK_PROMPT; i++)
        ids[i] = want[i] = i;
    k3_span span = {sequence, 0, PACK_PROMPT};
    k3_pass pass = {.ids = ids, .n_rows = PACK_PROMPT, .spans = &span, .n_spans = 1, .want = want, .n_want = PACK_PROMPT, .logits = logits};
    pack_must(k3_forward_run(forward, &pass, &err), &err);
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
    static float whole[PACK_PROMPT * TINY_VOCAB], streamed[PACK_PROMPT * TINY_VOCAB];
    for (size_t i = 0; i < sizeof trunks / sizeof *trunks; i++) {
        char name[40];
        snprintf(name, sizeof name, "streamed-%s", trunks[i]);
        pack_model(pack_tiny, pack_in_base(name), trunks[i]);
        run_with_budget(whole, pack_tiny, (k3_trunk)i, 0);
        run_with_budget(streamed, pack_in_base(name), (k3_trunk)i, 1);
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
    pack_must(k3_ckpt_read(a, p, x, 0, x->bytes, &err), &err);
    pack_must(k3_ckpt_read(b, q, y, 0, y->bytes, &err), &err);
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
        pack_model(pack_tiny, pack_in_base(name), trunks[i]);
        pack_must(k3_ckpt_open(&source, pack_tiny, &err), &err);
        pack_must(k3_ckpt_open(&packed, pack_in_base(name), &err), &err);
        assert_string_equal(k3_ckpt_packed(packed), trunks[i]);
        assert_string_equal(k3_ckpt_warning(packed), "");
        assert_int_equal(k3_ckpt_n_shards(packed), PACK_SHARDS);
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
        pack_model(pack_tiny, pack_in_base(name), trunks[i]);
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
                 PACK_SHARDS, pack_in_base(name), trunks[i]);
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
    pack_model(model, pack_in_base("kept"), NULL);
    size_t n;
    char *last = tiny_get_file(pack_in_base("kept"), PACK_LAST, &n),
         *layer = tiny_get_file(pack_in_base("kept"), "model-00002-of-00014.safetensors", &n);
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
    assert_true(pack_exists(pack_in_base("kept"), "tokenizer_config.json") && pack_exists(pack_in_base("kept"), "LICENSE"));
    assert_false(pack_exists(pack_in_base("kept"), ".hidden"));
    char *config = tiny_get_file(pack_in_base("kept"), "config.json", &n);
    assert_string_equal(config, tiny->config);
    free(config);
    pack_check_same_logits(model, pack_in_base("kept"), "int8", NULL);
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
    char *model = tiny_settle(tiny);
    for (size_t i = 0; i < sizeof trunks / sizeof *trunks; i++) {
        char name[40];
        snprintf(name, sizeof name, "tied-%s", trunks[i]);
        pack_model(model, pack_in_base(name), trunks[i]);
        pack_check_same_logits(model, pack_in_base(name), trunks[i], trunks[i]);
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
    pack_model(pack_tiny, pack_in_base("only8"), NULL);
    pack_model(pack_tiny, pack_in_base("only4"), "int4");
    check_engine_refuses(pack_in_base("only8"), &(k3_config){.backend = "cpu", .trunk = "int4"},
                         (const char *const[]){"holds an int8 trunk", "int4 was asked for", "only8", NULL});
    check_engine_refuses(pack_in_base("only8"), &(k3_config){.backend = "cpu", .trunk = "bf16"},
                         (const char *const[]){"holds an int8 trunk", "bf16 was asked for", NULL});
    check_engine_refuses(pack_in_base("only4"), &(k3_config){.backend = "cpu", .exact = 1},
                         (const char *const[]){"holds an int4 trunk", "exact mode", NULL});
    check_engine_refuses(pack_in_base("only4"), &(k3_config){.backend = "cpu", .trunk = "int8"},
                         (const char *const[]){"holds an int4 trunk", "int8 was asked for", NULL});
    assert_refused(pack_in_base("only8"), pack_in_base("twice"), "int8", K3_E_INVALID, "is packed already", "int8");
    assert_false(pack_exists(pack_base, "twice"));
}

static void wrong_arguments_are_refused_and_write_nothing(void **state)
{
    (void)state;
    char inside[300], link[300];
    snprintf(inside, sizeof inside, "%s/packed", pack_tiny);
    snprintf(link, sizeof link, "%s", pack_in_base("link"));
    assert_int_equal(symlink(pack_tiny, link), 0);
    assert_refused(pack_tiny, pack_in_base("no"), "int2", K3_E_INVALID, "\"int2\"", "bf16, int8 or int4");
    assert_refused(pack_tiny, pack_in_base("no"), "auto", K3_E_INVALID, "\"auto\"", "bf16, int8 or int4");
    assert_refused(pack_tiny, "", "int8", K3_E_INVALID, "no folder");
    assert_refused(pack_in_base("absent"), pack_in_base("no"), "int8", K3_E_NOT_FOUND, "absent");
    assert_refused(pack_tiny, pack_in_base("a/b"), "int8", K3_E_NOT_FOUND, "parent");
    assert_refused(pack_tiny, pack_tiny, "int8", K3_E_INVALID, "own folder");
    assert_refused(pack_tiny, link, "int8", K3_E_INVALID, "own folder");
    assert_refused(link, pack_tiny, "int8", K3_E_INVALID, "own folder");
    assert_refused(pack_tiny, inside, "int8", K3_E_INVALID, "own folder");
    assert_false(pack_exists(pack_tiny, "packed"));
    assert_false(pack_exists(pack_base, "no"));
    tiny_put_file(pack_base, "a-file", "x", 1);
    assert_refused(pack_tiny, pack_in_base("a-file"), "int8", K3_E_IO, "a-file", "Not a directory");
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
        snprintf(folder, sizeof folder, "%s", pack_in_base(name));
        assert_int_equal(mkdir(folder, 0777), 0);
        tiny_put_file(folder, names[i], "theirs", 6);
        assert_refused(pack_tiny, folder, "int8", K3_E_INVALID, names[i], "is there and is not what");
        char *text = tiny_get_file(folder, names[i], &n);
        assert_int_equal(n, 6);
        assert_memory_equal(text, "theirs", 6);
        free(text);
        assert_false(pack_exists(folder, "model-00001-of-00014.safetensors"));
    }
    /* Another trunk, and another model of the same shape. */
    pack_model(pack_tiny, pack_in_base("taken"), "int8");
    assert_refused(pack_tiny, pack_in_base("taken"), "int4", K3_E_INVALID, "model-00001-of-00014.safetensors", "trunk of int4");
    tiny_checkpoint *tiny = tiny_new(14);
    tiny_find(tiny, TINY_BODY "layers.5.self_attn.o_proj.weight")->data[128 * 64] ^= 1; /* in its middle */
    char *other = tiny_settle(tiny);
    assert_refused(other, pack_in_base("taken"), "int8", K3_E_INVALID, "model-00001-of-00014.safetensors");
    tiny_remove_folder(other);
}

static void shards_of_two_packs_are_told_apart(void **state)
{
    (void)state;
    char a[400], b[400];
    k3_ckpt *ckpt;
    k3_error err = {0};
    pack_model(pack_tiny, pack_in_base("mix8"), "int8");
    pack_model(pack_tiny, pack_in_base("mix4"), "int4");
    snprintf(a, sizeof a, "%s/" PACK_LAST, pack_in_base("mix4"));
    snprintf(b, sizeof b, "%s/" PACK_LAST, pack_in_base("mix8"));
    assert_int_equal(rename(a, b), 0);
    assert_int_equal(k3_ckpt_open(&ckpt, pack_in_base("mix8"), &err), K3_E_FORMAT);
    assert_non_null(strstr(err.text, "packed int8"));
    assert_non_null(strstr(err.text, "packed int4"));
}

static void a_folder_is_written_by_one_process(void **state)
{
    (void)state;
    assert_int_equal(mkdir(pack_in_base("locked"), 0777), 0);
    int fd = open(pack_in_base("locked"), O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_refused(pack_tiny, pack_in_base("locked"), "int8", K3_E_INVALID, "another process");
    close(fd);
    pack_model(pack_tiny, pack_in_base("locked"), "int8");
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
    };
    return cmocka_run_group_tests(tests, pack_set_up, pack_tear_down);
}
