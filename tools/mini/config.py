"""The configuration of the bundled model, in the released wrapper shape, and the size it will have on disk."""
import json

HIDDEN, LAYERS, BLOCK = 256, 9, 3
RANKS, SPECIALS = 1792, 256  # BPE ranks (256 bytes and the merges), special slots
VOCAB = RANKS + SPECIALS
FULL_ATTN = [4, 8, 9]  # one-based: every fourth layer and the last


def text_config():
    bos = VOCAB - SPECIALS
    return dict(
        model_type="kimi_linear", architectures=["KimiLinearForCausalLM"], dtype="bfloat16",
        hidden_size=HIDDEN, num_hidden_layers=LAYERS, vocab_size=VOCAB, rms_norm_eps=1e-5,
        hidden_act="situ", activation_situ_beta=4.0, activation_situ_linear_beta=25.0,
        intermediate_size=768, first_k_dense_replace=1, moe_layer_freq=1,
        num_experts=32, num_experts_per_token=4, num_shared_experts=2, moe_intermediate_size=96,
        routed_expert_hidden_size=128, latent_moe_use_norm=True, moe_router_activation_func="sigmoid",
        moe_renormalize=True, routed_scaling_factor=1.0, topk_method="noaux_tc", use_grouped_topk=True,
        num_expert_group=1, topk_group=1, num_attention_heads=4, num_key_value_heads=4,
        q_lora_rank=128, kv_lora_rank=96, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=64,
        mla_use_nope=True, mla_use_output_gate=True, attn_res_block_size=BLOCK,
        max_position_embeddings=16384, num_nextn_predict_layers=0, tie_word_embeddings=False,
        initializer_range=0.02, bos_token_id=bos, eos_token_id=bos + 2, pad_token_id=VOCAB - 1,
        linear_attn_config=dict(
            num_heads=4, head_dim=64, short_conv_kernel_size=4, gate_lower_bound=-5.0, use_full_rank_gate=True,
            full_attn_layers=FULL_ATTN, kda_layers=[i for i in range(1, LAYERS + 1) if i not in FULL_ATTN]),
        quantization_config=dict(
            quant_method="compressed-tensors", format="mxfp4-pack-quantized", quantization_status="compressed",
            kv_cache_scheme=None, global_compression_ratio=None,
            config_groups=dict(group_0=dict(targets=["Linear"], weights=dict(
                num_bits=4, type="float", strategy="group", group_size=32, symmetric=True, dynamic=False,
                observer="minmax", scale_dtype="torch.uint8"), input_activations=None, output_activations=None)),
            ignore=["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
                    "re:.*lm_head.*"]))


def wrapper():
    t = text_config()
    return dict(model_type="kimi_k3", architectures=["KimiK3ForConditionalGeneration"], dtype="bfloat16",
                tie_word_embeddings=False, bos_token_id=t["bos_token_id"], eos_token_id=t["eos_token_id"],
                pad_token_id=t["pad_token_id"], text_config=t)


def write(path):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(wrapper(), f, indent=1)
        f.write("\n")
