#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/hparams.h"
#include "support/tiny_checkpoint.h"

static k3_status parse_text(k3_hparams *hp, char *warning, size_t size, char *text, k3_error *err)
{
    k3_status status = k3_hparams_parse(hp, warning, size, text, strlen(text), "config.json", err);
    free(text);
    return status;
}

/* Takes text over. */
static k3_hparams parse(char *text, char warning[400])
{
    k3_hparams hp = {0};
    k3_error err = {0};
    if (parse_text(&hp, warning, warning ? 400 : 0, text, &err) != K3_OK)
        fail_msg("%s", err.text);
    return hp;
}

static void assert_message(char *text, k3_status status, const char *message)
{
    k3_hparams hp = {0};
    k3_error err = {0};
    k3_status found = parse_text(&hp, NULL, 0, text, &err);
    assert_string_equal(err.text, message);
    assert_int_equal(found, status);
}

static char *changed(const char *from, const char *to)
{
    char *text = tiny_config(1);
    tiny_replace(&text, from, to);
    return text;
}

static void every_field_is_read(void **state)
{
    (void)state;
    char warning[400];
    k3_hparams hp = parse(tiny_config(1), warning);
    assert_string_equal(warning, "");
    const int found[] = {
        hp.hidden,    hp.n_layers,   hp.vocab,          hp.context,      hp.dense_inner, hp.n_dense,     hp.moe_freq,    hp.n_experts,
        hp.top_k,     hp.n_shared,   hp.expert_inner,   hp.shared_inner, hp.latent,      hp.latent_norm, hp.renormalize, hp.attn_res_block,
        hp.mla_heads, hp.q_lora,     hp.kv_lora,        hp.nope,         hp.rope,        hp.v_dim,       hp.mla_gate,    hp.kda_heads,
        hp.kda_dim,   hp.conv_width, hp.full_rank_gate, hp.bos,          hp.eos,         hp.pad,         hp.tied,        hp.n_nextn};
    const int wanted[] = {128, 13, 256, 1048576, 96, 1,  1, 8, 2,  2, 64, 128, 64,  1,   1, 3,
                          4,   64, 32,  24,      8,  16, 1, 4, 16, 4, 1,  253, 255, 254, 0, 0};
    assert_memory_equal(found, wanted, sizeof wanted);
    assert_true(hp.rms_eps == 1e-5f && hp.situ_b1 == 4 && hp.situ_b2 == 25 && hp.routed_scale == 1 && hp.gate_lower == -5);
    for (int l = 0; l < 13; l++) {
        assert_int_equal(hp.is_mla[l], l == 3 || l == 7 || l == 11 || l == 12);
        assert_int_equal(hp.is_moe[l], l >= 1);
    }
}

static void moe_layers_follow_both_rules(void **state)
{
    (void)state;
    char *text = changed("\"moe_layer_freq\": 1", "\"moe_layer_freq\": 3");
    tiny_replace(&text, "\"first_k_dense_replace\": 1", "\"first_k_dense_replace\": 4");
    k3_hparams hp = parse(text, NULL);
    for (int l = 0; l < 13; l++)
        assert_int_equal(hp.is_moe[l], l == 6 || l == 9 || l == 12);
}

static void a17_nested_and_flat_configs_read_alike(void **state)
{
    (void)state;
    k3_hparams nested = parse(tiny_config(1), NULL), flat = parse(tiny_config(0), NULL);
    assert_memory_equal(&nested, &flat, sizeof nested);
    /* A field that only the wrapper has is not the text model's. */
    char *text = changed("  \"hidden_size\": 128,\n", "");
    tiny_replace(&text, " \"text_config\"", " \"hidden_size\": 128, \"text_config\"");
    assert_message(text, K3_E_FORMAT,
                   "config.json (text_config) lacks 1 field that k3 does not guess: hidden_size. Fetch the model's own config.json again");
}

static const char *const needed[] = {"hidden_size",
                                     "num_hidden_layers",
                                     "vocab_size",
                                     "rms_norm_eps",
                                     "hidden_act",
                                     "activation_situ_beta",
                                     "activation_situ_linear_beta",
                                     "intermediate_size",
                                     "first_k_dense_replace",
                                     "moe_layer_freq",
                                     "num_experts",
                                     "num_experts_per_token",
                                     "num_shared_experts",
                                     "moe_intermediate_size",
                                     "routed_expert_hidden_size",
                                     "latent_moe_use_norm",
                                     "moe_router_activation_func",
                                     "moe_renormalize",
                                     "routed_scaling_factor",
                                     "topk_method",
                                     "use_grouped_topk",
                                     "num_expert_group",
                                     "topk_group",
                                     "num_attention_heads",
                                     "num_key_value_heads",
                                     "q_lora_rank",
                                     "kv_lora_rank",
                                     "qk_nope_head_dim",
                                     "qk_rope_head_dim",
                                     "v_head_dim",
                                     "mla_use_nope",
                                     "mla_use_output_gate",
                                     "attn_res_block_size",
                                     "max_position_embeddings",
                                     "num_nextn_predict_layers",
                                     "tie_word_embeddings",
                                     "bos_token_id",
                                     "eos_token_id",
                                     "pad_token_id",
                                     "linear_attn_config",
                                     "num_heads",
                                     "head_dim",
                                     "short_conv_kernel_size",
                                     "gate_lower_bound",
                                     "use_full_rank_gate",
                                     "kda_layers",
                                     "full_attn_layers"};

static void a19_each_needed_field_is_missed_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        k3_hparams hp;
        k3_error err = {0};
        char from[64], to[64], wanted[128];
        snprintf(from, sizeof from, "\"%s\":", needed[i]);
        snprintf(to, sizeof to, "\"x_%s\":", needed[i]);
        snprintf(wanted, sizeof wanted, "lacks 1 field that k3 does not guess: %s%s. Fetch", i >= 40 ? "linear_attn_config." : "",
                 needed[i]);
        if (parse_text(&hp, NULL, 0, changed(from, to), &err) != K3_E_FORMAT || !strstr(err.text, wanted))
            fail_msg("%s: %s", needed[i], err.text);
    }
}

static void a19_all_missing_fields_are_named_at_once(void **state)
{
    (void)state;
    k3_hparams hp;
    k3_error err = {0};
    assert_int_equal(k3_hparams_parse(&hp, NULL, 0, "{}", 2, "c", &err), K3_E_FORMAT);
    assert_non_null(strstr(err.text, "lacks 40 fields"));
    for (size_t i = 0; i < 40; i++)
        if (!strstr(err.text, needed[i]))
            fail_msg("%s is not in: %s", needed[i], err.text);
}

static void a19_unknown_fields_only_warn(void **state)
{
    (void)state;
    char warning[400], *text = changed("\"initializer_range\": 0.02", "\"rope_theta\": 10000, \"zeta\\n\": null");
    tiny_replace(&text, "\"num_heads\": 4", "\"num_heads\": 4, \"chunk\": 64");
    parse(text, warning);
    assert_string_equal(warning, "config.json: 3 unknown fields ignored: rope_theta, zeta?, linear_attn_config.chunk");
}

static void a20_layer_lists_must_cover_each_layer_once(void **state)
{
    (void)state;
    assert_message(changed("[4, 8, 12, 13]", "[0, 4, 8, 12, 13]"), K3_E_FORMAT,
                   "config.json: line 61, column 25: an entry of linear_attn_config.full_attn_layers is 0, wanted layer numbers from 1 to "
                   "num_hidden_layers 13");
    assert_message(changed("[4, 8, 12, 13]", "[4, 8, 13]"), K3_E_FORMAT,
                   "config.json: line 60, column 18: layer 12 (of 1 to 13) is in neither kda_layers nor full_attn_layers");
    assert_message(changed("[4, 8, 12, 13]", "[]"), K3_E_FORMAT,
                   "config.json: line 60, column 18: layer 4, 8, 12, 13 (of 1 to 13) is in neither kda_layers nor full_attn_layers");
    assert_message(changed("[4, 8, 12, 13]", "[4, 8, 11, 12, 13]"), K3_E_FORMAT,
                   "config.json: line 61, column 31: layer 11 is in both lists, wanted each layer once in kda_layers or full_attn_layers");
    assert_message(
        changed("[4, 8, 12, 13]", "[4, 8, 12, 13, 13]"), K3_E_FORMAT,
        "config.json: line 61, column 39: layer 13 is twice in one list, wanted each layer once in kda_layers or full_attn_layers");
    assert_message(changed("[4, 8, 12, 13]", "[4, 8, 12, 14]"), K3_E_FORMAT,
                   "config.json: line 61, column 35: an entry of linear_attn_config.full_attn_layers is 14, wanted layer numbers from 1 to "
                   "num_hidden_layers 13");
    assert_message(
        changed("[4, 8, 12, 13]", "[4, 8, 12, 12.5]"), K3_E_FORMAT,
        "config.json: line 61, column 35: an entry of linear_attn_config.full_attn_layers is 12.5, wanted layer numbers from 1 to "
        "num_hidden_layers 13");
    assert_message(changed("[4, 8, 12, 13]", "4"), K3_E_FORMAT,
                   "config.json: line 61, column 24: linear_attn_config.full_attn_layers is 4, wanted a list of layer numbers");
}

static void a31_nonfinite_numbers_are_tolerated_only_where_unused(void **state)
{
    (void)state;
    parse(changed("\"initializer_range\": 0.02", "\"initializer_range\": NaN, \"spread\": [Infinity, -Infinity]"), NULL);
    assert_message(changed("1e-05", "Infinity"), K3_E_FORMAT,
                   "config.json: line 15, column 19: rms_norm_eps is Infinity, wanted a finite number above 0");
    assert_message(changed("\"hidden_size\": 128", "\"hidden_size\": NaN"), K3_E_FORMAT,
                   "config.json: line 12, column 18: hidden_size is NaN, wanted an integer from 1 to 16777216");
    assert_message(changed("-5.0", "-Infinity"), K3_E_FORMAT,
                   "config.json: line 58, column 24: linear_attn_config.gate_lower_bound is -Infinity, wanted a number from -5 to below 0");
}

static void a32_byte_order_mark_and_crlf_are_accepted(void **state)
{
    (void)state;
    char *text = tiny_config(1), *marked = malloc(strlen(text) + 4);
    assert_non_null(marked);
    snprintf(marked, strlen(text) + 4, "\xef\xbb\xbf%s", text);
    free(text);
    tiny_replace(&marked, "\n", "\r\n");
    k3_hparams plain = parse(tiny_config(1), NULL), found = parse(marked, NULL);
    assert_memory_equal(&plain, &found, sizeof plain);
}

static void wrong_types_name_line_and_column(void **state)
{
    (void)state;
    assert_message(changed("\"hidden_size\": 128", "\"hidden_size\": \"128\""), K3_E_FORMAT,
                   "config.json: line 12, column 18: hidden_size is \"128\", wanted an integer from 1 to 16777216");
    assert_message(changed("\"num_experts\": 8", "\"num_experts\": 8.5"), K3_E_FORMAT,
                   "config.json: line 22, column 18: num_experts is 8.5, wanted an integer from 1 to 65536");
    assert_message(changed("\"latent_moe_use_norm\": true", "\"latent_moe_use_norm\": 1"), K3_E_FORMAT,
                   "config.json: line 27, column 26: latent_moe_use_norm is 1, wanted true or false");
    assert_message(changed("\"situ\"", "null"), K3_E_FORMAT,
                   "config.json: line 16, column 17: hidden_act is null, wanted \"situ\" (nothing else is implemented)");
    assert_message(changed("\"q_lora_rank\": 64", "\"q_lora_rank\": null"), K3_E_FORMAT,
                   "config.json: line 37, column 18: q_lora_rank is null, wanted an integer from 1 to 16777216");
    assert_message(changed("\"linear_attn_config\": {", "\"linear_attn_config\": [], \"y\": {"), K3_E_FORMAT,
                   "config.json: line 54, column 25: linear_attn_config is a list, wanted an object");
    assert_message(changed("\"text_config\": {", "\"text_config\": 3, \"y\": {"), K3_E_FORMAT,
                   "config.json: line 9, column 17: text_config is 3, wanted an object");
    assert_message(strdup("[1]"), K3_E_FORMAT, "config.json: line 1, column 1: the file is a list, wanted an object");
    assert_message(changed("\"vocab_size\": 256,", "\"vocab_size\": 256"), K3_E_FORMAT,
                   "config.json: line 15, column 3: found '\"', wanted ',' or '}'");
    assert_message(changed("\"top_k\": 50", "\"hidden_size\": 50"), K3_E_FORMAT,
                   "config.json: line 52, column 18: key \"hidden_size\" appears a second time in the same object");
}

static void what_is_not_implemented_is_refused(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"\"mla_use_nope\": true", "\"mla_use_nope\": false", "mla_use_nope is false, wanted true (nothing else is implemented)"},
        {"\"situ\"", "\"silu\"", "hidden_act is \"silu\", wanted \"situ\""},
        {"\"sigmoid\"", "\"softmax\"", "moe_router_activation_func is \"softmax\", wanted \"sigmoid\""},
        {"\"noaux_tc\"", "\"greedy\"", "topk_method is \"greedy\", wanted \"noaux_tc\""},
        {"\"num_expert_group\": 1", "\"num_expert_group\": 2", "num_expert_group is 2, wanted 1 (nothing else is implemented)"},
        {"\"topk_group\": 1", "\"topk_group\": 4", "topk_group is 4, wanted 1"},
        {"-5.0", "-5.01", "gate_lower_bound is -5.01, wanted a number from -5 to below 0"},
        {"-5.0", "0", "gate_lower_bound is 0, wanted a number from -5 to below 0"},
        {"-5.0", "-1e-60", "gate_lower_bound is -1e-60, wanted a number from -5 to below 0"},
        {"\"num_key_value_heads\": 4", "\"num_key_value_heads\": 2", "num_key_value_heads is 2, wanted num_attention_heads 4"},
        {"\"use_full_rank_gate\": true", "\"use_full_rank_gate\": false", "use_full_rank_gate is false, wanted true"},
        {"\"moe_intermediate_size\": 64", "\"moe_intermediate_size\": 80", "moe_intermediate_size is 80, wanted a multiple of 32"},
        {"\"routed_expert_hidden_size\": 64", "\"routed_expert_hidden_size\": 48",
         "routed_expert_hidden_size is 48, wanted a multiple of 32"},
        {"mxfp4-pack-quantized", "nvfp4-pack-quantized",
         "quantization_config.format is \"nvfp4-pack-quantized\", wanted \"mxfp4-pack-quantized\""},
        {"\"kimi_k3\"", "\"llama\"", "model_type is \"llama\", wanted \"kimi_k3\" or \"kimi_linear\""},
        {"\"kimi_linear\"", "\"deepseek_v3\"", "model_type is \"deepseek_v3\""},
        {"\"v_head_dim\": 16", "\"v_head_dim\": 65536, \"x\": 1", NULL},
        {"\"num_shared_experts\": 2,\n  \"moe_intermediate_size\": 64", "\"num_shared_experts\": 1024, \"moe_intermediate_size\": 16777216",
         "num_shared_experts * moe_intermediate_size is 17179869184, wanted at most 16777216"},
        {"\"num_heads\": 4,\n   \"head_dim\": 16", "\"num_heads\": 65536, \"head_dim\": 65536",
         "linear_attn_config.num_heads * head_dim is 4294967296"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        k3_hparams hp;
        k3_error err = {0};
        k3_status status = parse_text(&hp, NULL, 0, changed(cases[i][0], cases[i][1]), &err);
        if (status != (cases[i][2] ? K3_E_UNSUPPORTED : K3_OK) || (cases[i][2] && !strstr(err.text, cases[i][2])))
            fail_msg("%s: %d %s", cases[i][1], (int)status, err.text);
    }
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"\"num_experts_per_token\": 2", "\"num_experts_per_token\": 9", "num_experts_per_token is 9, wanted at most num_experts 8"},
        {"\"num_experts_per_token\": 2", "\"num_experts_per_token\": 0", "num_experts_per_token is 0"},
        {"\"attn_res_block_size\": 3", "\"attn_res_block_size\": 0", "attn_res_block_size is 0, wanted an integer from 1 to 256"},
        {"\"attn_res_block_size\": 3", "\"attn_res_block_size\": null", "attn_res_block_size is null"},
        {"\"num_hidden_layers\": 13", "\"num_hidden_layers\": 257", "num_hidden_layers is 257, wanted an integer from 1 to 256"},
        {"\"num_hidden_layers\": 13", "\"num_hidden_layers\": -1", "num_hidden_layers is -1"},
        {"\"num_hidden_layers\": 13", "\"num_hidden_layers\": 1e400", "num_hidden_layers is 1e400"},
        {"\"first_k_dense_replace\": 1", "\"first_k_dense_replace\": 14",
         "first_k_dense_replace is 14, wanted at most num_hidden_layers 13"},
        {"\"moe_layer_freq\": 1", "\"moe_layer_freq\": 0", "moe_layer_freq is 0"},
        {"\"hidden_size\": 128", "\"hidden_size\": 16777217", "hidden_size is 16777217"},
        {"1e-05", "0", "rms_norm_eps is 0, wanted a finite number above 0"},
        {"1e-05", "1e-60", "rms_norm_eps is 1e-60, wanted a finite number above 0"},
        {"\"activation_situ_beta\": 4.0", "\"activation_situ_beta\": 1e39", "activation_situ_beta is 1e39"},
        {"\"eos_token_id\": 255", "\"eos_token_id\": 256", "eos_token_id is 256, wanted a token id below vocab_size 256"},
        {"\"eos_token_id\": 255", "\"eos_token_id\": []", "eos_token_id is a list"},
        {"\"eos_token_id\": 255", "\"eos_token_id\": [255, -1]", "eos_token_id is -1"},
        {"\"bos_token_id\": 253", "\"bos_token_id\": \"x\"", "bos_token_id is \"x\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        k3_hparams hp;
        k3_error err = {0};
        k3_status status = parse_text(&hp, NULL, 0, changed(cases[i][0], cases[i][1]), &err);
        if (status != K3_E_FORMAT || !strstr(err.text, cases[i][2]))
            fail_msg("%s: %d %s", cases[i][1], (int)status, err.text);
    }
}

static void nulls_that_mean_something_are_read(void **state)
{
    (void)state;
    char *text = changed("\"activation_situ_linear_beta\": 25.0", "\"activation_situ_linear_beta\": null");
    tiny_replace(&text, "\"routed_expert_hidden_size\": 64", "\"routed_expert_hidden_size\": null");
    tiny_replace(&text, "\"pad_token_id\": 254", "\"pad_token_id\": null");
    tiny_replace(&text, "\"eos_token_id\": 255", "\"eos_token_id\": [250, 255]");
    k3_hparams hp = parse(text, NULL);
    assert_true(isinf(hp.situ_b2));
    assert_int_equal(hp.latent, 0);
    assert_int_equal(hp.pad, -1);
    assert_int_equal(hp.eos, 250);
}

static void token_ids_may_stand_in_the_wrapper_only(void **state)
{
    (void)state;
    k3_hparams hp = parse(changed("  \"eos_token_id\": 255,\n  \"pad_token_id\"", "  \"pad_token_id\""), NULL);
    assert_int_equal(hp.eos, 255);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_read),
        cmocka_unit_test(moe_layers_follow_both_rules),
        cmocka_unit_test(a17_nested_and_flat_configs_read_alike),
        cmocka_unit_test(a19_each_needed_field_is_missed_by_name),
        cmocka_unit_test(a19_all_missing_fields_are_named_at_once),
        cmocka_unit_test(a19_unknown_fields_only_warn),
        cmocka_unit_test(a20_layer_lists_must_cover_each_layer_once),
        cmocka_unit_test(a31_nonfinite_numbers_are_tolerated_only_where_unused),
        cmocka_unit_test(a32_byte_order_mark_and_crlf_are_accepted),
        cmocka_unit_test(wrong_types_name_line_and_column),
        cmocka_unit_test(what_is_not_implemented_is_refused),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(nulls_that_mean_something_are_read),
        cmocka_unit_test(token_ids_may_stand_in_the_wrapper_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
