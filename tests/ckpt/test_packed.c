/* Folders that say they are packed: codes and scales by dtype and metadata, and what does not fit together is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "open_helpers.h"

#define TAG8 "{\"format\":\"pt\",\"k3_pack\":\"1\",\"k3_trunk\":\"int8\",\"k3_source\":\"0123456789abcdef\"}"
#define TAG4 "{\"format\":\"pt\",\"k3_pack\":\"1\",\"k3_trunk\":\"int4\",\"k3_codes\":\"int4_g64\",\"k3_source\":\"0123456789abcdef\"}"
#define Q TINY_BODY "layers.1.self_attn.q_proj.weight"
#define MISSING "model.safetensors.index.json never lists needed tensors (1): "

enum { ROWS = TINY_KDA_HEADS * TINY_KDA_DIM, COLS = TINY_HIDDEN };

/* Replaces a matrix by codes; scales of [rows, n] unless n is 0. */
static void put_codes(tiny_checkpoint *tiny, const char *name, const char *dtype, int64_t cols, int64_t n)
{
    char scale[180];
    tiny_tensor *t = tiny_find(tiny, name);
    int shard = t->shard;
    int64_t rows = t->shape[0];
    tiny_remove(tiny, name);
    tiny_add(tiny, shard, name, dtype, 2, (int64_t[]){rows, cols});
    snprintf(scale, sizeof scale, "%s_scale", name);
    if (n)
        tiny_add(tiny, shard, scale, "F32", 2, (int64_t[]){rows, n});
}

static tiny_checkpoint *packed(const char *tag, const char *name, const char *dtype, int64_t cols, int64_t n)
{
    tiny_checkpoint *tiny = tiny_new(2);
    tiny->metadata = tag;
    put_codes(tiny, name, dtype, cols, n);
    return tiny;
}

static void codes_are_known_by_type_and_metadata(void **state)
{
    (void)state;
    for (int is_int4 = 0; is_int4 < 2; is_int4++) {
        tiny_checkpoint *tiny = is_int4 ? packed(TAG4, Q, "U8", COLS / 2, COLS / 64) : packed(TAG8, Q, "I8", COLS, 1);
        tiny_add(tiny, 0, "k3_padding.00001.000007", "U8", 1, (int64_t[]){32})->in_index = 0;
        char *folder = tiny_settle(tiny);
        k3_ckpt *ckpt = open_folder(folder);
        const k3_tensor_info *q = k3_ckpt_role(ckpt, K3_R_KDA_Q, 1, 0), *s = k3_ckpt_scale(ckpt, K3_R_KDA_Q, 1);
        assert_int_equal(q->dtype, is_int4 ? K3_DT_INT4_G64 : K3_DT_INT8);
        assert_int_equal(q->shape[0], ROWS);
        assert_int_equal(q->shape[1], COLS);
        assert_int_equal(q->bytes, ROWS * COLS / (is_int4 ? 2 : 1));
        assert_string_equal(s->name, Q "_scale");
        assert_null(k3_ckpt_scale(ckpt, K3_R_KDA_Q, 2));
        assert_null(k3_ckpt_scale(ckpt, K3_R_KDA_K, 1));
        assert_null(k3_ckpt_scale(ckpt, K3_R_W1, 1));
        assert_null(k3_ckpt_scale(ckpt, K3_R_KDA_Q, TINY_LAYERS));
        assert_string_equal(k3_ckpt_packed(ckpt), is_int4 ? "int4" : "int8");
        assert_string_equal(k3_ckpt_warning(ckpt), "");
        char *text = k3_ckpt_describe(ckpt);
        assert_non_null(strstr(text, is_int4 ? "trunk int4, by k3 pack" : "trunk int8, by k3 pack"));
        free(text);
        k3_ckpt_close(ckpt);
        tiny_remove_folder(folder);
    }
}

static void codes_and_scales_must_fit_together(void **state)
{
    (void)state;
    assert_tiny_refused(packed(TAG8, Q, "I8", COLS, 0), K3_E_NOT_FOUND, MISSING Q "_scale");
    assert_tiny_refused(packed(TAG8, Q, "I8", COLS, 2), K3_E_FORMAT, "wrong shapes (1): " Q "_scale does not fit " Q);
    assert_tiny_refused(packed(TAG4, Q, "U8", COLS / 2, 1), K3_E_FORMAT, "wrong shapes (1): " Q "_scale does not fit");
    assert_tiny_refused(packed(TAG4, Q, "U8", COLS, 2), K3_E_FORMAT, Q " is [64, 256], wanted [64, 128]");
    assert_tiny_refused(packed(TAG8, Q, "I8", COLS / 2, 1), K3_E_FORMAT, Q " is [64, 64], wanted [64, 128]");

    tiny_checkpoint *tiny = packed(TAG8, Q, "I8", COLS, 1);
    tiny_remove(tiny, Q "_scale");
    tiny_add(tiny, 0, Q "_scale", "BF16", 2, (int64_t[]){ROWS, 1});
    assert_tiny_refused(tiny, K3_E_UNSUPPORTED, "wrong types (1): " Q "_scale is not F32");

    tiny = tiny_new(2);
    tiny->metadata = TAG8;
    tiny_add(tiny, 0, Q "_scale", "F32", 2, (int64_t[]){ROWS, 1});
    assert_tiny_refused(tiny, K3_E_FORMAT, Q "_scale, scales of a tensor that is not packed");

    tiny = packed(TAG8, Q, "I8", COLS, 1);
    tiny_find(tiny, Q "_scale")->in_index = 0;
    assert_tiny_refused(tiny, K3_E_NOT_FOUND, MISSING Q "_scale");
}

/* Without the metadata a type means nothing; with it, only what a trunk converts may be codes. */
static void what_is_not_packed_is_not_codes(void **state)
{
    (void)state;
    static const char *const kept[] = {TINY_BODY "embed_tokens.weight", TINY_BODY "layers.1.self_attn.f_a_proj.weight",
                                       TINY_BODY "layers.1.self_attn.f_b_proj.weight", TINY_BODY "layers.1.self_attn.b_proj.weight",
                                       TINY_BODY "layers.1.block_sparse_moe.gate.weight"};
    assert_tiny_refused(packed("{\"format\":\"pt\"}", Q, "I8", COLS, 0), K3_E_UNSUPPORTED, Q " is I8, wanted BF16 or F32");
    assert_tiny_refused(packed(TAG8, Q, "U8", COLS / 2, 0), K3_E_FORMAT, Q " is U8, wanted BF16 or F32");
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        tiny_checkpoint *tiny = tiny_new(2);
        int64_t cols = tiny_find(tiny, kept[i])->shape[1];
        tiny->metadata = TAG8;
        put_codes(tiny, kept[i], "I8", cols, 0);
        assert_tiny_refused(tiny, K3_E_UNSUPPORTED, kept[i], " is I8, wanted BF16 or F32");
    }
}

static void metadata_that_is_not_understood_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *message;
        k3_status status;
    } cases[] = {
        {"\"k3_pack\":\"1\"", "\"k3_pack\":\"2\"", "packed in format \"2\", this k3 reads format 1", K3_E_UNSUPPORTED},
        {"\"k3_pack\":\"1\"", "\"k3_pack\":1", "packed in format \"?\"", K3_E_UNSUPPORTED},
        {"\"int4\"", "\"int3\"", "trunk \"int3\", wanted bf16, int8 or int4", K3_E_FORMAT},
        {"\"k3_trunk\":\"int4\",", "", "trunk \"\", wanted", K3_E_FORMAT},
        {"\"int4_g64\"", "\"int4_g32\"", "codes \"int4_g32\", wanted int4_g64", K3_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *folder = tiny_folder();
        tiny_checkpoint *tiny = tiny_new(1);
        tiny->metadata = TAG4;
        tiny_write(tiny, folder);
        tiny_free(tiny);
        tiny_edit_header(folder, "model.safetensors", cases[i].from, cases[i].to);
        assert_refused(folder, cases[i].status, cases[i].message);
        tiny_remove_folder(folder);
    }
}

static void files_of_different_packs_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
    } cases[] = {{"\"int8\"", "\"int4\""}, {"0123456789abcdef", "0123456789abcdee"}, {"\"k3_pack\":\"1\"", "\"a\":\"1\""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *folder = tiny_folder(), shard[64];
        tiny_checkpoint *tiny = tiny_new(2);
        tiny->metadata = TAG8;
        tiny_write(tiny, folder);
        tiny_shard_name(shard, tiny, 1);
        tiny_free(tiny);
        assert_opens(folder);
        tiny_edit_header(folder, shard, cases[i].from, cases[i].to);
        assert_refused(folder, K3_E_FORMAT, shard, "packed int8 of 0123456789abcdef", "pack the model again");
        tiny_remove_folder(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_known_by_type_and_metadata), cmocka_unit_test(codes_and_scales_must_fit_together),
        cmocka_unit_test(what_is_not_packed_is_not_codes),      cmocka_unit_test(metadata_that_is_not_understood_is_refused),
        cmocka_unit_test(files_of_different_packs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
