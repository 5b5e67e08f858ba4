#!/usr/bin/env python3
"""Write a synthetic Kimi K3 at the released widths in seconds: many layers, few bytes.

    make_layers.py OUT_DIR [--layers 93] [--experts 44] [--divide 1] [--seed 1]

Layers of one kind hold the same numbers. Their bytes are written once, as kda.data, mla.data, dense.data, moe.data and experts.data; each
layer has shards of its own whose headers name its tensors, and whose bytes after the header are those of a data file: SHARD.data is a
link to it. `same_bytes.so`, made here from same_bytes.c, lets a program see it so:

    LD_PRELOAD=OUT_DIR/same_bytes.so k3 bench OUT_DIR --backend vulkan

Without it the shards are holes and every weight is zero. The numbers are random with the scales of a fresh model, so the text is noise;
shapes, bytes and arithmetic are the real ones, and each layer has memory of its own once it is loaded. --experts is what a layer has (896
in the release; 16 are chosen): a token reads the same bytes for any number. --divide makes every width smaller, for a trial.
Needs numpy and a C compiler.
"""
import argparse
import concurrent.futures
import json
import os
import struct
import subprocess

import numpy as np

PIECE = 8 << 20  # bytes of made-up content; what is written starts anywhere in it
PAGE = 4096
ROOT = "language_model.model."


def widths(divide):
    """The released widths, all but the vocabulary divided."""
    w = dict(hidden=7168, dense=33792, heads=96, head=128, q_lora=1536, kv_lora=512, nope=128, rope=64, v=128, latent=3584, inner=3072)
    for key in w:
        if key not in ("head", "nope", "rope", "v"):
            w[key] //= divide
    return argparse.Namespace(vocab=163840 // divide, **w)


def config(w, layers, experts, block):
    full = sorted({*range(4, layers + 1, 4), layers})
    text = dict(
        architectures=["KimiLinearForCausalLM"], model_type="kimi_linear", dtype="bfloat16", hidden_act="situ", initializer_range=0.02,
        activation_situ_beta=4.0, activation_situ_linear_beta=25.0, rms_norm_eps=1e-5, tie_word_embeddings=False,
        hidden_size=w.hidden, num_hidden_layers=layers, vocab_size=w.vocab, intermediate_size=w.dense, attn_res_block_size=block,
        num_attention_heads=w.heads, num_key_value_heads=w.heads, q_lora_rank=w.q_lora, kv_lora_rank=w.kv_lora, qk_nope_head_dim=w.nope,
        qk_rope_head_dim=w.rope, v_head_dim=w.v, mla_use_nope=True, mla_use_output_gate=True, max_position_embeddings=1048576,
        num_experts=experts, num_experts_per_token=min(16, experts), routed_expert_hidden_size=w.latent, moe_intermediate_size=w.inner,
        num_shared_experts=2, first_k_dense_replace=1, moe_layer_freq=1, latent_moe_use_norm=True, moe_renormalize=True,
        moe_router_activation_func="sigmoid", routed_scaling_factor=1.0, topk_method="noaux_tc", use_grouped_topk=True,
        num_expert_group=1, topk_group=1, num_nextn_predict_layers=0,
        bos_token_id=w.vocab - 256, eos_token_id=w.vocab - 254, pad_token_id=w.vocab - 1,
        linear_attn_config=dict(num_heads=w.heads, head_dim=w.head, short_conv_kernel_size=4, gate_lower_bound=-5.0,
                                use_full_rank_gate=True, full_attn_layers=full,
                                kda_layers=[i for i in range(1, layers + 1) if i not in full]),
        quantization_config=dict(
            quant_method="compressed-tensors", format="mxfp4-pack-quantized", quantization_status="compressed", kv_cache_scheme=None,
            config_groups=dict(group_0=dict(
                targets=["Linear"], input_activations=None, output_activations=None,
                weights=dict(num_bits=4, type="float", strategy="group", group_size=32, symmetric=True, dynamic=False,
                             scale_dtype="torch.uint8"))),
            ignore=["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*lm_head.*"]))
    return dict(model_type="kimi_k3", architectures=["KimiK3ForConditionalGeneration"], dtype="bfloat16", tie_word_embeddings=False,
                bos_token_id=text["bos_token_id"], eos_token_id=text["eos_token_id"], pad_token_id=text["pad_token_id"], text_config=text)


def bf16(a):
    u = np.ascontiguousarray(a, dtype=np.float32).view(np.uint32)
    return ((u + 0x8000) >> 16).astype("<u2").tobytes()


class Content:
    """Made-up bytes of one kind, twice in a row, so that a piece may start anywhere in the first half."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.normals = self.rng.standard_normal(PIECE // 2, dtype=np.float32)
        self.made = {"codes": self.rng.bytes(PIECE) * 2}

    def normal(self, std):
        key = f"bf16 {std:.6g}"
        if key not in self.made:
            self.made[key] = bf16(self.normals * np.float32(std)) * 2
        return self.made[key]

    def scales(self, gain, cols):
        """Scale bytes that give rows of uniform codes (rms 2.92) the wanted gain."""
        key = f"scales {gain} {cols}"
        if key not in self.made:
            centre = 127 + np.log2(gain / (2.92 * cols ** 0.5))
            self.made[key] = np.rint(centre + self.rng.uniform(-0.9, 0.9, PIECE)).astype(np.uint8).tobytes() * 2
        return self.made[key]


class Part:
    """Tensors that lie in one data file; `write` puts their bytes there, behind room for the longest header that names them."""

    def __init__(self, content):
        self.content, self.tensors, self.bytes = content, [], 0

    def add(self, name, dtype, shape, source):
        n = int(np.prod(shape)) * {"BF16": 2, "F32": 4, "U8": 1}[dtype]
        assert not isinstance(source, np.ndarray) or source.nbytes == n
        self.tensors.append((name, dtype, list(shape), self.bytes, n, source))
        self.bytes += n

    def matrix(self, name, rows, cols, gain=1.0):
        self.add(name, "BF16", [rows, cols], self.content.normal(gain / cols ** 0.5))

    def vector(self, name, n, mean, std, dtype="F32", shape=None):
        a = (mean + std * self.content.rng.standard_normal(n)).astype("<f4")
        a = np.frombuffer(bf16(a), "<u2") if dtype == "BF16" else a
        self.add(name, dtype, shape or [n], a)

    def header(self, prefix, size=0):
        entries = {prefix + name if not name.startswith("language_model") else name: dict(dtype=d, shape=s, data_offsets=[at, at + n])
                   for name, d, s, at, n, _ in self.tensors}
        return entries, json.dumps(entries, separators=(",", ":")).encode().ljust(size)

    def write(self, path, prefixes, pool):
        self.size = (max(len(self.header(p)[1]) for p in prefixes) + 8 + PAGE - 1) // PAGE * PAGE - 8
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        os.ftruncate(fd, 8 + self.size + self.bytes)
        starts = np.random.default_rng(len(path))

        def put(view, at):
            while len(view):
                n = os.pwrite(fd, view, at)
                view, at = view[n:], at + n

        jobs = []
        for _, _, _, at, n, source in self.tensors:
            at += 8 + self.size
            if isinstance(source, np.ndarray):
                jobs.append(pool.submit(put, memoryview(source.tobytes()), at))
                continue
            for first in range(0, n, PIECE):
                start = 4 * int(starts.integers(0, PIECE // 4))
                jobs.append(pool.submit(put, memoryview(source)[start:start + min(PIECE, n - first)], at + first))
        for job in jobs:
            job.result()
        os.close(fd)

    def shard(self, folder, name, data, prefix):
        """A file of the right length with this layer's header, its link to the bytes, and the names in it."""
        entries, text = self.header(prefix, self.size)
        with open(os.path.join(folder, name), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            f.truncate(8 + self.size + self.bytes)
        link = os.path.join(folder, name + ".data")
        if os.path.lexists(link):
            os.remove(link)
        os.symlink(data, link)
        return {key: name for key in entries}


def norms(p, w):
    for name in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"):
        p.vector(name + ".weight", w.hidden, 1, 0.1, "BF16")
    for name in ("self_attention", "mlp"):
        p.vector(name + "_res_proj.weight", w.hidden, 0, 1.5 / w.hidden ** 0.5, "BF16", [1, w.hidden])


def kda(p, w):
    norms(p, w)
    C, m = w.heads * w.head, "self_attn."
    for x in "qkvg":
        p.matrix(f"{m}{x}_proj.weight", C, w.hidden)
    p.matrix(m + "o_proj.weight", w.hidden, C)
    for x in "qkv":
        p.vector(f"{m}{x}_conv1d.weight", 4 * C, 0, 0.4, "F32", [C, 1, 4])
    p.matrix(m + "f_a_proj.weight", w.head, w.hidden)
    p.matrix(m + "f_b_proj.weight", C, w.head)
    p.matrix(m + "b_proj.weight", w.heads, w.hidden)
    decay = np.zeros(max(w.head, w.heads), "<f4")
    decay[:w.heads] = np.linspace(-0.4, 1.2, w.heads)
    p.add(m + "A_log", "F32", decay.shape, decay)
    p.vector(m + "dt_bias", C, 0, 0.5)
    p.vector(m + "o_norm.weight", w.head, 1, 0.1)


def mla(p, w):
    norms(p, w)
    m = "self_attn."
    p.matrix(m + "q_a_proj.weight", w.q_lora, w.hidden)
    p.vector(m + "q_a_layernorm.weight", w.q_lora, 1, 0.1, "BF16")
    p.matrix(m + "q_b_proj.weight", w.heads * (w.nope + w.rope), w.q_lora, 1.5)
    p.matrix(m + "kv_a_proj_with_mqa.weight", w.kv_lora + w.rope, w.hidden)
    p.vector(m + "kv_a_layernorm.weight", w.kv_lora, 1, 0.1, "BF16")
    p.matrix(m + "kv_b_proj.weight", w.heads * (w.nope + w.v), w.kv_lora, 1.5)
    p.matrix(m + "g_proj.weight", w.heads * w.v, w.hidden)
    p.matrix(m + "o_proj.weight", w.hidden, w.heads * w.v)


def dense(p, w):
    p.matrix("mlp.gate_proj.weight", w.dense, w.hidden, 3)
    p.matrix("mlp.up_proj.weight", w.dense, w.hidden, 6)
    p.matrix("mlp.down_proj.weight", w.hidden, w.dense)


def moe(p, w, experts):
    m = "block_sparse_moe."
    p.matrix(m + "gate.weight", experts, w.hidden)
    p.vector(m + "gate.e_score_correction_bias", experts, 0, 0.09)
    p.matrix(m + "routed_expert_down_proj.weight", w.latent, w.hidden)
    p.vector(m + "routed_expert_norm.weight", w.latent, 1, 0.1, "BF16")
    p.matrix(m + "routed_expert_up_proj.weight", w.hidden, w.latent)
    p.matrix(m + "shared_experts.gate_proj.weight", 2 * w.inner, w.hidden, 3)
    p.matrix(m + "shared_experts.up_proj.weight", 2 * w.inner, w.hidden, 6)
    p.matrix(m + "shared_experts.down_proj.weight", w.hidden, 2 * w.inner)


def routed(p, w, ids):
    for e in ids:
        for x, rows, cols, gain in (("w1", w.inner, w.latent, 3), ("w2", w.latent, w.inner, 1), ("w3", w.inner, w.latent, 6)):
            name = f"block_sparse_moe.experts.{e}.{x}."
            p.add(name + "weight_packed", "U8", [rows, cols // 2], p.content.made["codes"])
            p.add(name + "weight_scale", "U8", [rows, cols // 32], p.content.scales(gain, cols))


def ends(p, w):
    p.add(ROOT + "embed_tokens.weight", "BF16", [w.vocab, w.hidden], p.content.normal(1))
    p.vector(ROOT + "norm.weight", w.hidden, 1, 0.1, "BF16")
    p.vector(ROOT + "output_attn_res_norm.weight", w.hidden, 1, 0.1, "BF16")
    p.vector(ROOT + "output_attn_res_proj.weight", w.hidden, 0, 1.5 / w.hidden ** 0.5, "BF16", [1, w.hidden])
    p.add("language_model.lm_head.weight", "BF16", [w.vocab, w.hidden], p.content.normal(3 / w.hidden ** 0.5))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--layers", type=int, default=93)
    ap.add_argument("--experts", type=int, default=44)
    ap.add_argument("--divide", type=int, default=1, choices=(1, 2, 4, 8))
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    w, content = widths(a.divide), Content(a.seed)
    cfg = config(w, a.layers, a.experts, 12 if a.layers > 24 else 3)
    os.makedirs(a.out, exist_ok=True)
    parts = {name: Part(content) for name in ("kda", "mla", "dense", "moe", "experts", "ends")}
    kda(parts["kda"], w)
    mla(parts["mla"], w)
    dense(parts["dense"], w)
    moe(parts["moe"], w, a.experts)
    routed(parts["experts"], w, range(a.experts))
    ends(parts["ends"], w)
    full = cfg["text_config"]["linear_attn_config"]["full_attn_layers"]
    users = {name: [] for name in parts}
    for layer in range(a.layers):
        for name in ["mla" if layer + 1 in full else "kda"] + (["moe", "experts"] if layer else ["dense"]):
            users[name].append(layer)
    prefixes = {name: [f"{ROOT}layers.{layer}." for layer in layers] or [ROOT] for name, layers in users.items()}
    weight_map, total, stored = {}, 0, 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, part in parts.items():
            part.write(os.path.join(a.out, name + ".data"), prefixes[name], pool)
            for i, prefix in enumerate(prefixes[name]):
                weight_map.update(part.shard(a.out, f"{name}-{i:03d}.safetensors", name + ".data", prefix))
            total += part.bytes * len(prefixes[name])
            stored += part.bytes
    with open(os.path.join(a.out, "config.json"), "w") as f:
        json.dump(cfg, f, indent=1)
    with open(os.path.join(a.out, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, f)
    here = os.path.dirname(os.path.abspath(__file__))
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", os.path.join(a.out, "same_bytes.so"), os.path.join(here, "same_bytes.c"), "-ldl"],
                   check=True)
    print(f"{a.out}: {a.layers} layers, {total / 1e9:.1f} GB seen, {stored / 1e9:.1f} GB stored")


if __name__ == "__main__":
    main()
