#!/usr/bin/env python3
"""Write a random checkpoint in the released layout for any configuration. Needs numpy only; the same bytes on every machine.

    make_random.py OUT --config config.json [--seed N] [--init '{"fan_in": true}']
    make_random.py OUT --list random_configs.json [--name NAME]      one entry into OUT, or all into OUT/NAME

Initialisation follows the rules that let tests fail: matrices of deviation 0.02 (or 1/sqrt(in) with "fan_in"), gate and up weights of
all feed-forward parts so large that both SiTU caps bite, a selection bias over [-0.15, 0.15], A_log over [-0.4, 1.2] by head
with a zero tail, dt_bias of deviation 0.5, conv taps of deviation 0.4.

init keys: "fan_in"; "gain_spread" (deviation of norm gains around 1; 0); "dt_mean" (mean of dt_bias; 0: short memories);
"a_log" ("padded": length max(head_dim, heads), or "heads"); "glu_std" (deviation of gate and up weights; 1.2).
"""
import argparse
import json
import os
import struct

import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def bf16_bits(a):
    """Round to nearest even."""
    u = np.ascontiguousarray(a, dtype=np.float32).view(np.uint32)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype("<u2")


def encode_mxfp4(w):
    """[rows, cols] -> packed [rows, cols/2], scale bytes [rows, cols/32]. A block's exponent is floor(log2(max)) - 2, so that its
    maximum lands in [4, 8); nearest E2M1 value, ties to the smaller, above 6 to 6."""
    blocks = w.reshape(w.shape[0], -1, 32)
    exponent = np.clip(np.frexp(np.abs(blocks).max(-1))[1] - 1 - 2, -126, 127)
    scaled = np.ldexp(blocks, -exponent[..., None])
    code = np.searchsorted((E2M1[1:] + E2M1[:-1]) / 2, np.abs(scaled)) + 8 * (scaled < 0)
    code = code.reshape(w.shape).astype(np.uint8)
    return code[:, 0::2] | code[:, 1::2] << 4, (exponent + 127).astype(np.uint8)


def write_safetensors(path, tensors, metadata=None):
    """tensors: name -> array (f4, f8, u1, i4) or ("BF16", uint16 array)."""
    header, parts, at = {"__metadata__": metadata or {"format": "pt"}}, [], 0
    kinds = {"<f4": "F32", "<f8": "F64", "|u1": "U8", "<i4": "I32"}
    for name, t in tensors.items():
        dtype, a = t if isinstance(t, tuple) else (kinds[t.dtype.str], t)
        data = np.ascontiguousarray(a).tobytes()
        header[name] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    blob = json.dumps(header, separators=(",", ":")).encode()
    blob += b" " * (-len(blob) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(blob)) + blob + b"".join(parts))
    return at


class Draw:
    """Sums of twelve uniform numbers in place of normal ones: no libm, so every machine draws the same bits."""

    def __init__(self, seed, init):
        self.rng, self.init = np.random.RandomState(seed), init

    def normal(self, shape, std, mean=0.0):
        return mean + std * (self.rng.random_sample((12, int(np.prod(shape)))).sum(0) - 6).reshape(shape)

    def std(self, cols):
        return cols ** -0.5 if self.init.get("fan_in") else 0.02

    def matrix(self, rows, cols, std=None):
        return "BF16", bf16_bits(self.normal((rows, cols), std or self.std(cols)))

    def gain(self, n, f32=False):
        g = self.normal((n,), self.init.get("gain_spread", 0.0), 1.0)
        return g.astype("<f4") if f32 else ("BF16", bf16_bits(g))

    def f32(self, shape, std, mean=0.0):
        return self.normal(shape, std, mean).astype("<f4")

    def spread(self, n, low, high):
        """n evenly spread values in random order."""
        return (low + (high - low) * self.rng.permutation(n) / max(n - 1, 1)).astype("<f4")


def kda_tensors(d, c):
    la = c["linear_attn_config"]
    C, H, heads, D = la["num_heads"] * la["head_dim"], c["hidden_size"], la["num_heads"], la["head_dim"]
    t = {}
    for x in "qkvg":
        t[x + "_proj.weight"] = d.matrix(C, H)
    for x in "qkv":
        t[x + "_conv1d.weight"] = d.f32((C, 1, la["short_conv_kernel_size"]), 0.4)
    t["f_a_proj.weight"] = d.matrix(D, H)
    t["f_b_proj.weight"] = d.matrix(C, D)
    t["b_proj.weight"] = d.matrix(heads, H)
    a_log = np.zeros(heads if d.init.get("a_log") == "heads" else max(D, heads), "<f4")
    a_log[:heads] = np.linspace(-0.4, 1.2, heads)
    t["A_log"] = a_log
    t["dt_bias"] = d.f32((C,), 0.5, d.init.get("dt_mean", 0.0))
    t["o_norm.weight"] = d.gain(D, f32=True)
    t["o_proj.weight"] = d.matrix(H, C)
    return t


def mla_tensors(d, c):
    H, h, lora = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"]
    nope, rope, v, ql = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["q_lora_rank"]
    t = {"q_a_proj.weight": d.matrix(ql, H), "q_a_layernorm.weight": d.gain(ql), "q_b_proj.weight": d.matrix(h * (nope + rope), ql),
         "kv_a_proj_with_mqa.weight": d.matrix(lora + rope, H), "kv_a_layernorm.weight": d.gain(lora),
         "kv_b_proj.weight": d.matrix(h * (nope + v), lora)}
    if c["mla_use_output_gate"]:
        t["g_proj.weight"] = d.matrix(h * v, H)
    t["o_proj.weight"] = d.matrix(H, h * v)
    return t


def glu_tensors(d, prefix, hidden, inner):
    big = d.init.get("glu_std", 1.2)
    return {prefix + "gate_proj.weight": d.matrix(inner, hidden, big), prefix + "up_proj.weight": d.matrix(inner, hidden, big),
            prefix + "down_proj.weight": d.matrix(hidden, inner)}


def moe_tensors(d, c):
    H, E, I, L = c["hidden_size"], c["num_experts"], c["moe_intermediate_size"], c.get("routed_expert_hidden_size")
    t = {"gate.weight": d.matrix(E, H), "gate.e_score_correction_bias": d.spread(E, -0.15, 0.15)}
    if L:
        t["routed_expert_down_proj.weight"] = d.matrix(L, H)
        if c["latent_moe_use_norm"]:
            t["routed_expert_norm.weight"] = d.gain(L)
        t["routed_expert_up_proj.weight"] = d.matrix(H, L)
    t.update(glu_tensors(d, "shared_experts.", H, I * c["num_shared_experts"]))
    L, big = L or H, d.init.get("glu_std", 1.2)
    # Experts lie out of id order, as in the release; the six tensors of each are adjacent.
    for e in d.rng.permutation(E):
        for name, rows, cols, std in (("w1", I, L, big), ("w2", L, I, d.std(I)), ("w3", I, L, big)):
            codes, scale = encode_mxfp4(d.normal((rows, cols), std))
            assert (codes & 0x77).any(), "a matrix of zeros tests nothing"
            t[f"experts.{e}.{name}.weight_packed"], t[f"experts.{e}.{name}.weight_scale"] = codes, scale
    return t


def layer_tensors(d, c, l):
    H = c["hidden_size"]
    t = {"input_layernorm.weight": d.gain(H), "post_attention_layernorm.weight": d.gain(H)}
    for site in ("self_attention_res", "mlp_res"):
        t[site + "_norm.weight"], t[site + "_proj.weight"] = d.gain(H), d.matrix(1, H)
    kda = l + 1 in c["linear_attn_config"]["kda_layers"]
    t.update({"self_attn." + k: v for k, v in (kda_tensors if kda else mla_tensors)(d, c).items()})
    if l >= c["first_k_dense_replace"] and l % c["moe_layer_freq"] == 0:
        t.update({"block_sparse_moe." + k: v for k, v in moe_tensors(d, c).items()})
    else:
        t.update(glu_tensors(d, "mlp.", H, c["intermediate_size"]))
    return t


def write_checkpoint(out, config, seed=1, init=None):
    """A wrapped config gives names with the `language_model.` prefix, a bare one names without."""
    c, prefix = config.get("text_config", config), "language_model." if "text_config" in config else ""
    d, n = Draw(seed, init or {}), c["num_hidden_layers"]
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    shards = [{f"{prefix}model.layers.{l}.{k}": v for k, v in layer_tensors(d, c, l).items()} for l in range(n)]
    H, V = c["hidden_size"], c["vocab_size"]
    last = {prefix + "model.embed_tokens.weight": d.matrix(V, H), prefix + "model.norm.weight": d.gain(H),
            prefix + "model.output_attn_res_norm.weight": d.gain(H), prefix + "model.output_attn_res_proj.weight": d.matrix(1, H)}
    if not c["tie_word_embeddings"]:
        last[prefix + "lm_head.weight"] = d.matrix(V, H)
    size, weight_map = 0, {}
    for i, tensors in enumerate(shards + [last]):
        name = f"model-{i + 1:05d}-of-{n + 1:06d}.safetensors"
        size += write_safetensors(os.path.join(out, name), tensors)
        weight_map.update({k: name for k in tensors})
    with open(os.path.join(out, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": size}, "weight_map": weight_map}, f, separators=(",", ":"))
        f.write("\n")


def make_config(flat=False, kda_heads=4, kda_dim=16, full=None, lower=-5.0, **over):
    """The tiny configuration of the specification (9.1), changed by keyword."""
    c = dict(architectures=["KimiLinearForCausalLM"], model_type="kimi_linear", hidden_size=128, num_hidden_layers=13, vocab_size=256,
             rms_norm_eps=1e-5, hidden_act="situ", activation_situ_beta=4.0, activation_situ_linear_beta=25.0, intermediate_size=96,
             first_k_dense_replace=1, moe_layer_freq=1, num_experts=8, num_experts_per_token=2, num_shared_experts=2,
             moe_intermediate_size=64, routed_expert_hidden_size=64, latent_moe_use_norm=True, moe_router_activation_func="sigmoid",
             moe_renormalize=True, routed_scaling_factor=1.0, topk_method="noaux_tc", use_grouped_topk=True, num_expert_group=1,
             topk_group=1, num_attention_heads=4, q_lora_rank=64, kv_lora_rank=32, qk_nope_head_dim=24, qk_rope_head_dim=8,
             v_head_dim=16, mla_use_nope=True, mla_use_output_gate=True, attn_res_block_size=3, max_position_embeddings=1048576,
             num_nextn_predict_layers=0, tie_word_embeddings=False, initializer_range=0.02, dtype="bfloat16")
    c.update(over)
    n, v = c["num_hidden_layers"], c["vocab_size"]
    c["num_key_value_heads"] = c["num_attention_heads"]
    c.update(bos_token_id=v - 3, eos_token_id=v - 1, pad_token_id=v - 1)
    full = full or sorted({*range(4, n + 1, 4), n})
    c["linear_attn_config"] = dict(num_heads=kda_heads, head_dim=kda_dim, short_conv_kernel_size=4, gate_lower_bound=lower,
                                   use_full_rank_gate=True, full_attn_layers=full,
                                   kda_layers=[i for i in range(1, n + 1) if i not in full])
    weights = dict(num_bits=4, type="float", strategy="group", group_size=32, symmetric=True, dynamic=False, observer="minmax",
                   scale_dtype="torch.uint8")
    c["quantization_config"] = dict(quant_method="compressed-tensors", format="mxfp4-pack-quantized", quantization_status="compressed",
                                    kv_cache_scheme=None, config_groups=dict(group_0=dict(
                                        targets=["Linear"], weights=weights, input_activations=None, output_activations=None)),
                                    ignore=["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*lm_head.*"])
    if flat:
        return c
    return dict(architectures=["KimiK3ForConditionalGeneration"], model_type="kimi_k3", dtype="bfloat16", tie_word_embeddings=False,
                bos_token_id=c["bos_token_id"], eos_token_id=c["eos_token_id"], pad_token_id=c["pad_token_id"], text_config=c)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--config")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--init", default="{}")
    ap.add_argument("--list")
    ap.add_argument("--name")
    a = ap.parse_args()
    if a.list:
        with open(a.list) as f:
            entries = json.load(f)
        for e in entries:
            if a.name in (None, e["name"]):
                write_checkpoint(a.out if a.name else os.path.join(a.out, e["name"]), e["config"], e["seed"], e["init"])
        if a.name and a.name not in [e["name"] for e in entries]:
            ap.error(f"{a.list} has no entry {a.name}; it has " + ", ".join(e["name"] for e in entries))
    elif a.config:
        with open(a.config) as f:
            write_checkpoint(a.out, json.load(f), a.seed, json.loads(a.init))
    else:
        ap.error("give --config or --list")


if __name__ == "__main__":
    main()
