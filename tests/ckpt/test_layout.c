#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/roles.h"
#include "open_helpers.h"

#define L1 TINY_BODY "layers.1."
#define L3 TINY_BODY "layers.3."
#define EXPERT L1 "block_sparse_moe.experts.5."

/* Gives every tensor another prefix. */
static void rename_prefix(tiny_checkpoint *tiny, const char *body, const char *head)
{
    for (size_t i = 0; i < tiny->n_tensors; i++) {
        char name[160];
        const char *old = tiny->tensors[i].name;
        if (strncmp(old, TINY_BODY, strlen(TINY_BODY)) == 0)
            snprintf(name, sizeof name, "%s%.100s", body, old + strlen(TINY_BODY));
        else
            snprintf(name, sizeof name, "%s", head);
        snprintf(tiny->tensors[i].name, sizeof tiny->tensors[i].name, "%s", name);
    }
}

static k3_ckpt *open_tiny(tiny_checkpoint *tiny)
{
    char *folder = tiny_folder();
    tiny_write(tiny, folder);
    k3_ckpt *ckpt = open_folder(folder);
    tiny_remove_folder(folder); /* the shards stay open */
    return ckpt;
}

static void assert_holds(const k3_ckpt *ckpt, const k3_tensor_info *t, tiny_checkpoint *tiny, const char *name)
{
    const tiny_tensor *wanted = tiny_find(tiny, name);
    assert_non_null(t);
    assert_string_equal(t->name, name);
    assert_int_equal(t->rank, wanted->rank);
    assert_memory_equal(t->shape, wanted->shape, (size_t)t->rank * sizeof t->shape[0]);
    assert_int_equal(t->bytes, wanted->n_bytes);
    assert_int_equal(t->shard, wanted->shard);
    unsigned char *data = malloc(t->bytes);
    assert_non_null(data);
    assert_int_equal(k3_ckpt_read(ckpt, data, t, 0, t->bytes, NULL), K3_OK);
    assert_memory_equal(data, wanted->data, t->bytes);
    free(data);
}

static void every_role_finds_its_tensor_and_bytes(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(14);
    k3_ckpt *ckpt = open_tiny(tiny);
    size_t n = 0;
    char name[200];
    for (int r = 0; r < K3_N_ROLES; r++)
        for (int l = 0; l < TINY_LAYERS; l++)
            for (int e = 0; e < (r < K3_R_W1 ? 1 : TINY_EXPERTS); e++) {
                const k3_tensor_info *t = k3_ckpt_role(ckpt, (k3_role)r, l, e);
                if (r < K3_R_INPUT_NORM)
                    snprintf(name, sizeof name, "%s%s", r == K3_R_HEAD ? "language_model." : TINY_BODY, k3_role_tail((k3_role)r));
                else if (r < K3_R_W1)
                    snprintf(name, sizeof name, TINY_BODY "layers.%d.%s", l, k3_role_tail((k3_role)r));
                else
                    snprintf(name, sizeof name, TINY_BODY "layers.%d.block_sparse_moe.experts.%d.%s", l, e, k3_role_tail((k3_role)r));
                if (t)
                    assert_holds(ckpt, t, tiny, name);
                else
                    assert_false(k3_role_exists(k3_ckpt_hparams(ckpt), (k3_role)r, l));
                n += t && !(r < K3_R_INPUT_NORM && l > 0);
            }
    assert_int_equal(n, tiny->n_tensors);
    assert_int_equal(n, 916);
    assert_null(k3_ckpt_role(ckpt, K3_R_KDA_Q, 3, 0));
    assert_null(k3_ckpt_role(ckpt, K3_R_MLA_Q_A, 0, 0));
    assert_null(k3_ckpt_role(ckpt, K3_R_ROUTER, 0, 0));
    assert_null(k3_ckpt_role(ckpt, K3_R_DENSE_UP, 1, 0));
    assert_null(k3_ckpt_role(ckpt, K3_R_INPUT_NORM, TINY_LAYERS, 0));
    assert_null(k3_ckpt_role(ckpt, K3_R_INPUT_NORM, -1, 0));
    assert_null(k3_ckpt_role(ckpt, K3_R_W1, 1, TINY_EXPERTS));
    assert_null(k3_ckpt_role(ckpt, K3_R_W1, 1, -1));
    k3_ckpt_close(ckpt);
    tiny_free(tiny);
}

static void totals_are_the_sums_of_the_tensors(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(3);
    k3_ckpt *ckpt = open_tiny(tiny);
    uint64_t total = 0, experts = 0, params = 0, found = 0;
    for (size_t i = 0; i < tiny->n_tensors; i++) {
        const tiny_tensor *t = &tiny->tensors[i];
        total += t->n_bytes;
        if (strstr(t->name, ".experts."))
            experts += t->n_bytes;
        if (strstr(t->name, "weight_packed"))
            params += t->n_bytes * 2;
        else if (!strstr(t->name, "weight_scale"))
            params += t->n_bytes / (strcmp(t->dtype, "F32") == 0 ? 4 : 2);
    }
    assert_int_equal(k3_ckpt_total_bytes(ckpt, &found), total);
    assert_int_equal(found, experts);
    assert_int_equal(k3_ckpt_n_params(ckpt), params);
    k3_ckpt_close(ckpt);
    tiny_free(tiny);
}

static void a17_the_body_is_found_under_any_known_prefix(void **state)
{
    (void)state;
    static const char *const prefixes[][2] = {{"model.", "lm_head.weight"},
                                              {"language_model.model.", "lm_head.weight"},
                                              {"model.language_model.", "lm_head.weight"},
                                              {"language_model.", "language_model.lm_head.weight"},
                                              {"", "lm_head.weight"}};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        tiny_checkpoint *tiny = tiny_new(3);
        rename_prefix(tiny, prefixes[i][0], prefixes[i][1]);
        free(tiny->config);
        tiny->config = tiny_config(i % 2 == 0);
        k3_ckpt *ckpt = open_tiny(tiny);
        char name[100];
        snprintf(name, sizeof name, "%slayers.1.self_attn.q_proj.weight", prefixes[i][0]);
        assert_holds(ckpt, k3_ckpt_role(ckpt, K3_R_KDA_Q, 1, 0), tiny, name);
        assert_holds(ckpt, k3_ckpt_role(ckpt, K3_R_HEAD, 0, 0), tiny, prefixes[i][1]);
        assert_string_equal(k3_ckpt_warning(ckpt), "");
        k3_ckpt_close(ckpt);
        tiny_free(tiny);
    }
    tiny_checkpoint *tiny = tiny_new(3);
    rename_prefix(tiny, "transformer.", "head");
    assert_tiny_refused(tiny, K3_E_NOT_FOUND, "no language-model tensors", "found transformer.layers.0.input_layernorm.weight");
}

static void each_missing_tensor_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {"language_model.lm_head.weight",
                                        TINY_BODY "embed_tokens.weight",
                                        L1 "self_attn.A_log",
                                        L3 "self_attn.g_proj.weight",
                                        EXPERT "w2.weight_scale",
                                        TINY_BODY "layers.0.mlp.up_proj.weight",
                                        TINY_BODY "layers.0.self_attention_res_norm.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tiny_checkpoint *tiny = tiny_new(3);
        tiny->has_index = 0;
        tiny_remove(tiny, names[i]);
        assert_tiny_refused(tiny, K3_E_NOT_FOUND, ": tensors are in no file (1): ", names[i]);
    }
    tiny_checkpoint *tiny = tiny_new(3);
    tiny->has_index = 0;
    for (int e = 0; e < TINY_EXPERTS; e++) {
        char name[160];
        snprintf(name, sizeof name, L1 "block_sparse_moe.experts.%d.w1.weight_packed", e);
        tiny_remove(tiny, name);
    }
    assert_tiny_refused(tiny, K3_E_NOT_FOUND, "tensors are in no file (8): ", "experts.3.w1.weight_packed and 4 more");
}

static void wrong_shapes_and_types_are_all_reported(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(3);
    tiny_tensor *q = tiny_find(tiny, L1 "self_attn.q_proj.weight");
    q->shape[0] = 128; /* transposed */
    q->shape[1] = 64;
    strcpy(tiny_find(tiny, L1 "self_attn.k_proj.weight")->dtype, "F16");
    tiny_remove(tiny, L3 "self_attn.g_proj.weight");
    assert_tiny_refused(tiny, K3_E_NOT_FOUND,
                        "never lists needed tensors (1): " L3 "self_attn.g_proj.weight; wrong shapes (1): " L1
                        "self_attn.q_proj.weight is [128, 64], wanted [64, 128]; wrong types (1): " L1
                        "self_attn.k_proj.weight is F16, wanted BF16 or F32");
    /* Right number of bytes, wrong type: codes that are not U8, a scale of the 16-block kind. */
    tiny = tiny_new(3);
    tiny_tensor *codes = tiny_find(tiny, EXPERT "w1.weight_packed");
    strcpy(codes->dtype, "I32");
    codes->shape[1] /= 4;
    assert_tiny_refused(tiny, K3_E_FORMAT,
                        "wrong shapes (1): " EXPERT "w1.weight_packed is [64, 8], wanted [64, 32]; wrong types (1): " EXPERT
                        "w1.weight_packed is I32, wanted U8");
    tiny = tiny_new(3);
    strcpy(tiny_find(tiny, EXPERT "w1.weight_scale")->dtype, "F8_E4M3");
    assert_tiny_refused(tiny, K3_E_UNSUPPORTED, "wrong types (1): " EXPERT "w1.weight_scale is F8_E4M3, wanted U8");
}

static void sizes_of_one_may_be_left_out(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(3);
    tiny_tensor *conv = tiny_find(tiny, L1 "self_attn.q_conv1d.weight"), *query = tiny_find(tiny, L1 "mlp_res_proj.weight");
    tiny_tensor *norm = tiny_find(tiny, L1 "input_layernorm.weight"), *a_log = tiny_find(tiny, L1 "self_attn.A_log");
    conv->rank = 2;
    conv->shape[1] = 4;
    query->rank = 1;
    query->shape[0] = TINY_HIDDEN;
    norm->rank = 2;
    norm->shape[0] = 1;
    norm->shape[1] = TINY_HIDDEN;
    a_log->rank = 4;
    memcpy(a_log->shape, (int64_t[]){1, 1, 16, 1}, 4 * sizeof a_log->shape[0]);
    k3_ckpt *ckpt = open_tiny(tiny);
    const k3_tensor_info *t = k3_ckpt_role(ckpt, K3_R_KDA_Q_CONV, 1, 0);
    assert_true(t->rank == 3 && t->shape[0] == 64 && t->shape[1] == 1 && t->shape[2] == 4);
    t = k3_ckpt_role(ckpt, K3_R_MLP_RES_PROJ, 1, 0);
    assert_true(t->rank == 2 && t->shape[0] == 1 && t->shape[1] == TINY_HIDDEN);
    t = k3_ckpt_role(ckpt, K3_R_INPUT_NORM, 1, 0);
    assert_true(t->rank == 1 && t->shape[0] == TINY_HIDDEN);
    t = k3_ckpt_role(ckpt, K3_R_KDA_A_LOG, 1, 0);
    assert_true(t->rank == 1 && t->shape[0] == 16);
    k3_ckpt_close(ckpt);
    tiny_free(tiny);
    /* A shape of five sizes is none of ours even if four of them fit. */
    tiny = tiny_new(3);
    conv = tiny_find(tiny, L1 "self_attn.q_conv1d.weight");
    conv->rank = 5;
    memcpy(conv->shape, (int64_t[]){64, 1, 4, 1, 1}, 5 * sizeof conv->shape[0]);
    assert_tiny_refused(tiny, K3_E_FORMAT, L1 "self_attn.q_conv1d.weight is [64, 1, 4, 1, ...], wanted [64, 1, 4]");
}

static tiny_checkpoint *with_a_log(int64_t n, const float *values)
{
    tiny_checkpoint *tiny = tiny_new(3);
    tiny_tensor *t = tiny_find(tiny, L1 "self_attn.A_log");
    t->shape[0] = n;
    t->n_bytes = (size_t)n * 4;
    free(t->data);
    t->data = malloc(t->n_bytes);
    assert_non_null(t->data);
    memcpy(t->data, values, t->n_bytes);
    return tiny;
}

static void a_log_has_a_value_a_head_and_then_only_zeros(void **state)
{
    (void)state;
    float values[600] = {0.1f, 0.2f, 0.3f, 0.4f};
    assert_tiny_opens(with_a_log(4, values));
    assert_tiny_opens(with_a_log(5, values));
    assert_tiny_opens(with_a_log(600, values));
    values[7] = -0.0f;
    assert_tiny_opens(with_a_log(16, values));
    assert_tiny_refused(with_a_log(3, values), K3_E_FORMAT, L1 "self_attn.A_log is [3], wanted [4]");
    values[599] = 1e-30f;
    assert_tiny_refused(with_a_log(600, values), K3_E_FORMAT,
                        "tensor " L1 "self_attn.A_log: entry 599 is not zero, wanted one value for each of 4 heads, then zeros");
    values[4] = 0.5f;
    assert_tiny_refused(with_a_log(16, values), K3_E_FORMAT, L1 "self_attn.A_log: entry 4 is not zero");
}

static void plain_experts_are_refused_by_name(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(3);
    tiny_remove(tiny, EXPERT "w1.weight_packed");
    tiny_remove(tiny, EXPERT "w1.weight_scale");
    tiny_add(tiny, 0, EXPERT "w1.weight", "BF16", 2, (int64_t[]){TINY_EXPERT_INNER, TINY_LATENT});
    assert_tiny_refused(tiny, K3_E_UNSUPPORTED, "routed experts stored as plain weights (1): " EXPERT "w1.weight; wanted MXFP4 pairs");
}

static void tensors_beyond_the_config_are_refused(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(3);
    tiny_add(tiny, 0, TINY_BODY "layers.13.input_layernorm.weight", "BF16", 1, (int64_t[]){TINY_HIDDEN});
    assert_tiny_refused(tiny, K3_E_FORMAT, "tensors that contradict config.json (1): " TINY_BODY "layers.13.input_layernorm.weight");
    tiny = tiny_new(3);
    static const char beyond[] = TINY_BODY "layers.12.block_sparse_moe.experts.8.w1.weight_packed"; /* the last layer: no room behind it */
    tiny_add(tiny, 0, beyond, "U8", 2, (int64_t[]){64, 32});
    tiny_add(tiny, 0, L1 "block_sparse_moe.experts.8.w1.weight_packed", "U8", 2, (int64_t[]){64, 32});
    char wanted[400];
    snprintf(wanted, sizeof wanted, "tensors that contradict config.json (2): %s, %s", beyond,
             L1 "block_sparse_moe.experts.8.w1.weight_packed");
    assert_tiny_refused(tiny, K3_E_FORMAT, wanted);
    tiny = tiny_new(3);
    tiny_add(tiny, 0, L3 "self_attn.A_log", "F32", 1, (int64_t[]){4}); /* layer 3 is MLA */
    assert_tiny_refused(tiny, K3_E_FORMAT, "tensors that contradict config.json (1): " L3 "self_attn.A_log");
    tiny = tiny_new(3);
    tiny_add(tiny, 0, "lm_head.weight", "BF16", 2, (int64_t[]){TINY_VOCAB, TINY_HIDDEN});
    assert_tiny_refused(tiny, K3_E_FORMAT, "a second tensor for the role of");
    /* A speculative layer that the config announces is not an error. */
    tiny = tiny_new(3);
    tiny_replace(&tiny->config, "\"num_nextn_predict_layers\": 0", "\"num_nextn_predict_layers\": 1");
    tiny_add(tiny, 0, TINY_BODY "layers.13.input_layernorm.weight", "BF16", 1, (int64_t[]){TINY_HIDDEN});
    assert_tiny_opens(tiny);
}

static void a_config_with_swapped_layer_kinds_is_refused(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(3);
    tiny_replace(&tiny->config, "[1, 2, 3, 5, ", "[1, 2, 4, 5, ");
    tiny_replace(&tiny->config, "[4, 8, 12, 13]", "[3, 8, 12, 13]");
    assert_tiny_refused(tiny, K3_E_NOT_FOUND, "never lists needed tensors", "tensors that contradict config.json");
}

static void vision_tensors_are_passed_over_and_unknown_ones_warn(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(3);
    tiny_add(tiny, 2, "vision_tower.patch_embed.proj.weight", "BF16", 5, (int64_t[]){4, 3, 1, 2, 2});
    tiny_add(tiny, 2, "mm_projector.proj.0.weight", "BF16", 2, (int64_t[]){4, 4});
    k3_ckpt *ckpt = open_tiny(tiny);
    assert_string_equal(k3_ckpt_warning(ckpt), "");
    char *text = k3_ckpt_describe(ckpt);
    assert_non_null(strstr(text, "vision        128 B"));
    free(text);
    k3_ckpt_close(ckpt);
    tiny_add(tiny, 2, L1 "self_attn.extra\\n.weight", "I64", 0, NULL)->n_bytes = 8;
    tiny_tensor *t = &tiny->tensors[tiny->n_tensors - 1];
    free(t->data);
    t->data = calloc(1, 8);
    ckpt = open_tiny(tiny);
    assert_string_equal(k3_ckpt_warning(ckpt), "1 unknown tensor ignored, the first is " L1 "self_attn.extra?.weight");
    k3_ckpt_close(ckpt);
    tiny_free(tiny);
}

static void a_tied_head_is_the_embedding(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(3);
    tiny_replace(&tiny->config, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    tiny_remove(tiny, "language_model.lm_head.weight");
    k3_ckpt *ckpt = open_tiny(tiny);
    assert_ptr_equal(k3_ckpt_role(ckpt, K3_R_HEAD, 0, 0), k3_ckpt_role(ckpt, K3_R_EMBED, 0, 0));
    k3_ckpt_close(ckpt);
    tiny_free(tiny);
}

static void experts_without_latent_projections_have_the_hidden_width(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(3);
    tiny_replace(&tiny->config, "\"routed_expert_hidden_size\": 64", "\"routed_expert_hidden_size\": null");
    assert_tiny_refused(tiny, K3_E_FORMAT, "w1.weight_packed is [64, 32], wanted [64, 64]", "routed_expert_down_proj.weight");
}

static void a_config_that_asks_for_billions_of_experts_is_refused_at_once(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(3);
    tiny_replace(&tiny->config, "\"num_experts\": 8", "\"num_experts\": 65536");
    assert_tiny_refused(tiny, K3_E_NOT_FOUND, "config.json asks for 4718592 routed-expert tensors, the files hold 916 tensors in all");
}

static void vectors_may_be_bf16_or_f32(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(3);
    tiny_tensor *bias = tiny_find(tiny, L1 "self_attn.dt_bias"), *norm = tiny_find(tiny, TINY_BODY "norm.weight");
    strcpy(bias->dtype, "BF16");
    bias->n_bytes /= 2;
    strcpy(norm->dtype, "F32");
    norm->n_bytes *= 2;
    free(norm->data);
    norm->data = calloc(1, norm->n_bytes);
    k3_ckpt *ckpt = open_tiny(tiny);
    assert_int_equal(k3_ckpt_role(ckpt, K3_R_KDA_DT_BIAS, 1, 0)->dtype, K3_DT_BF16);
    assert_int_equal(k3_ckpt_role(ckpt, K3_R_NORM, 0, 0)->dtype, K3_DT_F32);
    k3_ckpt_close(ckpt);
    tiny_free(tiny);
}

static void reads_stay_inside_the_tensor(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(3);
    k3_ckpt *ckpt = open_tiny(tiny);
    const k3_tensor_info *t = k3_ckpt_role(ckpt, K3_R_KDA_A_LOG, 1, 0);
    unsigned char data[64];
    k3_error err = {0};
    assert_int_equal(k3_ckpt_read(ckpt, data, t, 4, 60, &err), K3_OK);
    assert_memory_equal(data, tiny_find(tiny, L1 "self_attn.A_log")->data + 4, 60);
    assert_int_equal(k3_ckpt_read(ckpt, data, t, 64, 0, &err), K3_OK);
    assert_int_equal(k3_ckpt_read(ckpt, data, t, 5, 60, &err), K3_E_INVALID);
    assert_int_equal(k3_ckpt_read(ckpt, data, t, UINT64_MAX, 2, &err), K3_E_INVALID);
    assert_int_equal(k3_ckpt_read(ckpt, data, t, 65, 0, &err), K3_E_INVALID);
    k3_ckpt_close(ckpt);
    tiny_free(tiny);
}

static void the_description_names_every_part(void **state)
{
    (void)state;
    static const char *const needles[] = {"13: 9 KDA, 4 MLA; 1 dense, 12 MoE",
                                          "layer map     kKK|MKK|KMK|KKM|M",
                                          "14 (3.75 MB), 916 tensors",
                                          "self_attn.A_log",
                                          "block_sparse_moe.experts.*.w3.weight_scale",
                                          "index agrees",
                                          "name prefix   \"language_model.model.\"",
                                          "lm_head.weight"};
    tiny_checkpoint *tiny = tiny_new(14);
    k3_ckpt *ckpt = open_tiny(tiny);
    char *text = k3_ckpt_describe(ckpt);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof needles / sizeof needles[0]; i++)
        if (!strstr(text, needles[i]))
            fail_msg("no <%s> in:\n%s", needles[i], text);
    for (int r = 0; r < K3_N_ROLES; r++)
        assert_non_null(strstr(text, k3_role_tail((k3_role)r)));
    free(text);
    k3_ckpt_close(ckpt);
    tiny_free(tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_role_finds_its_tensor_and_bytes),
        cmocka_unit_test(totals_are_the_sums_of_the_tensors),
        cmocka_unit_test(a17_the_body_is_found_under_any_known_prefix),
        cmocka_unit_test(each_missing_tensor_is_named),
        cmocka_unit_test(wrong_shapes_and_types_are_all_reported),
        cmocka_unit_test(sizes_of_one_may_be_left_out),
        cmocka_unit_test(a_log_has_a_value_a_head_and_then_only_zeros),
        cmocka_unit_test(plain_experts_are_refused_by_name),
        cmocka_unit_test(tensors_beyond_the_config_are_refused),
        cmocka_unit_test(a_config_with_swapped_layer_kinds_is_refused),
        cmocka_unit_test(vision_tensors_are_passed_over_and_unknown_ones_warn),
        cmocka_unit_test(a_tied_head_is_the_embedding),
        cmocka_unit_test(experts_without_latent_projections_have_the_hidden_width),
        cmocka_unit_test(a_config_that_asks_for_billions_of_experts_is_refused_at_once),
        cmocka_unit_test(vectors_may_be_bf16_or_f32),
        cmocka_unit_test(reads_stay_inside_the_tensor),
        cmocka_unit_test(the_description_names_every_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
