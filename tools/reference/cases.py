"""The whole-model cases: the tiny checkpoint and five random ones of other shapes, each with the feature it is there for."""
import numpy as np

from make_random import make_config

TINY_SEED = 20263  # no routing decision and no greedy id is near a tie

# What the initialisation of the specification leaves weak is strong here: norm gains differ from 1, memories last, every
# matrix keeps the size of what it maps.
STRONG = {"fan_in": True, "gain_spread": 0.15, "dt_mean": -2.5, "glu_std": 0.6}


def prompt(seed, n, vocab):
    return [int(i) for i in np.random.RandomState(seed).randint(0, vocab, n)]


def tiny_prompts():
    return [prompt(1, 40, 253), prompt(2, 40, 253)]


def random_cases():
    shapes = {
        # 11 layers in blocks of 5: two full and one of a single layer.
        "block5": (21, STRONG, dict(num_hidden_layers=11, attn_res_block_size=5, hidden_size=96, vocab_size=160, intermediate_size=160,
                                    num_experts=16, num_experts_per_token=4, moe_intermediate_size=32, routed_expert_hidden_size=96)),
        # Odd head counts everywhere, odd head dims in MLA, no shared power of two.
        "odd_heads": (22, STRONG, dict(num_hidden_layers=8, attn_res_block_size=3, hidden_size=72, vocab_size=131, intermediate_size=50,
                                       kda_heads=3, kda_dim=24, num_attention_heads=3, q_lora_rank=20, kv_lora_rank=28,
                                       qk_nope_head_dim=14, qk_rope_head_dim=6, v_head_dim=18, num_experts=9, num_experts_per_token=3,
                                       num_shared_experts=1, routed_expert_hidden_size=32, moe_intermediate_size=96)),
        # The up branch is not capped; weights are not renormalised (a norm of the sum would hide it); a flat configuration, names
        # without the prefix.
        "uncapped_flat": (23, {**STRONG, "glu_std": 0.3}, dict(
            flat=True, num_hidden_layers=6, attn_res_block_size=2, hidden_size=64, vocab_size=100, activation_situ_linear_beta=None,
            moe_renormalize=False, latent_moe_use_norm=False, kda_heads=2, kda_dim=64, routed_expert_hidden_size=32,
            moe_intermediate_size=32)),
        # Two dense layers, scaled routing, another decay bound, MLA in the middle as listed, no gate on MLA.
        "two_dense": (34, STRONG, dict(num_hidden_layers=9, attn_res_block_size=4, hidden_size=128, vocab_size=192,
                                       first_k_dense_replace=2, routed_scaling_factor=2.5, latent_moe_use_norm=False, lower=-3.5,
                                       full=[2, 5, 6, 9], num_experts=33, num_experts_per_token=5, mla_use_output_gate=False)),
        # No latent: experts act on the hidden width. A_log has one entry a head and no tail.
        "no_latent": (15, {**STRONG, "a_log": "heads"}, dict(num_hidden_layers=7, attn_res_block_size=3, hidden_size=64, vocab_size=144,
                                                             routed_expert_hidden_size=None, kda_heads=5, kda_dim=16,
                                                             num_attention_heads=5, num_experts=12, num_experts_per_token=3,
                                                             num_shared_experts=3, moe_intermediate_size=64)),
    }
    # Seeds are such that no routing decision and no greedy id hangs on a difference that float32 might lose.
    return [{"name": name, "seed": seed, "init": init, "ids": prompt(i, 40, over["vocab_size"]), "n_greedy": 16,
             "config": make_config(**over)} for i, (name, (seed, init, over)) in enumerate(shapes.items(), 11)]
