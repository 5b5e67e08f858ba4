"""Writes the model folder in the released layout from a checkpoint, and reads it back: export.py CHECKPOINT FOLDER"""
import json
import os
import struct
import sys

import numpy as np
import torch

import config
import model
import train

BODY = "language_model.model."
SUFFIX = dict(
    gate="block_sparse_moe.gate.weight", bias="block_sparse_moe.gate.e_score_correction_bias",
    routed_expert_down_proj="block_sparse_moe.routed_expert_down_proj.weight", routed_expert_norm="block_sparse_moe.routed_expert_norm.weight",
    routed_expert_up_proj="block_sparse_moe.routed_expert_up_proj.weight", shared_gate="block_sparse_moe.shared_experts.gate_proj.weight",
    shared_up="block_sparse_moe.shared_experts.up_proj.weight", shared_down="block_sparse_moe.shared_experts.down_proj.weight",
    A_log="self_attn.A_log", dt_bias="self_attn.dt_bias")
DENSE = dict(gate="mlp.gate_proj.weight", up="mlp.up_proj.weight", down="mlp.down_proj.weight")
SHELL = ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "self_attention_res_proj", "mlp_res_norm", "mlp_res_proj")
TOP = dict(embed=BODY + "embed_tokens.weight", norm=BODY + "norm.weight", out_res_norm=BODY + "output_attn_res_norm.weight",
           out_res_proj=BODY + "output_attn_res_proj.weight", head="language_model.lm_head.weight")


def stored_name(i, name, dense):
    if name in SHELL:
        tail = name + ".weight"
    elif dense and name in DENSE:
        tail = DENSE[name]
    else:
        tail = SUFFIX.get(name, f"self_attn.{name}.weight")
    return f"{BODY}layers.{i}.{tail}"


def bf16_bytes(x):
    return x.detach().to(torch.bfloat16).contiguous().view(torch.int16).cpu().numpy().astype("<i2").tobytes()


def pack_mxfp4(w):
    """[R, C] float32 -> (packed [R, C/2], scale [R, C/32]) uint8"""
    R, C = w.shape
    q = model.mxfp4(w)
    e = model.block_exponent(w.reshape(R, C // 32, 32).abs().amax(-1, keepdim=True))
    codes = (q.reshape(R, C // 32, 32) / torch.exp2(e.float())).reshape(R, C)
    grid = torch.tensor(model.E2M1)
    index = (codes.abs().unsqueeze(-1) == grid).to(torch.uint8).argmax(-1)
    if not torch.equal(grid[index], codes.abs()):
        raise ValueError("a quantized value is not on the E2M1 grid")
    code = (index + 8 * (codes < 0)).to(torch.uint8)
    return (code[:, 0::2] | (code[:, 1::2] << 4)).numpy(), (e.squeeze(-1) + 127).to(torch.uint8).numpy()


class Shard:
    def __init__(self, path):
        self.path, self.entries = path, []

    def add(self, name, dtype, shape, data):
        self.entries.append((name, dtype, list(shape), data))

    def tensor(self, name, x, f32=False):
        data = x.detach().float().cpu().numpy().astype("<f4").tobytes() if f32 else bf16_bytes(x)
        self.add(name, "F32" if f32 else "BF16", x.shape, data)

    def write(self):
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for name, dtype, shape, data in self.entries:
            header[name] = dict(dtype=dtype, shape=shape, data_offsets=[at, at + len(data)])
            at += len(data)
        blob = json.dumps(header, separators=(",", ":")).encode()
        blob += b" " * (-len(blob) % 8)
        with open(self.path, "wb") as f:
            f.write(struct.pack("<Q", len(blob)) + blob + b"".join(e[3] for e in self.entries))
        return at


def add_experts(shard, prefix, p, order):
    for e in order:  # out of id order, as released; an expert's six tensors are adjacent
        for name in ("w1", "w2", "w3"):
            packed, scale = pack_mxfp4(p[name][e].detach().float().cpu())
            shard.add(f"{prefix}experts.{e}.{name}.weight_packed", "U8", packed.shape, packed.tobytes())
            shard.add(f"{prefix}experts.{e}.{name}.weight_scale", "U8", scale.shape, scale.tobytes())


def write_model(net, folder):
    c, n = net.c, net.c["num_hidden_layers"]
    weight_map, size, rng = {}, 0, np.random.default_rng(3)
    for i in range(n + 1):
        shard = Shard(os.path.join(folder, f"model-{i + 1:05d}-of-{n + 1:06d}.safetensors"))
        if i == n:
            for name, stored in TOP.items():
                shard.tensor(stored, net.w[name])
        else:
            dense, p = i < c["first_k_dense_replace"], net.layer(i, False)
            for name, x in p.items():
                if name in ("w1", "w2", "w3") or dense and name == "bias":
                    continue
                if name == "A_log":  # stored as long as the head dimension, zero behind the heads
                    x = torch.cat([x.detach(), torch.zeros(net.dim - len(x), device=x.device)])
                shard.tensor(stored_name(i, name, dense), x, "conv1d" in name or name in ("A_log", "dt_bias", "o_norm", "bias"))
            if not dense:
                add_experts(shard, f"{BODY}layers.{i}.block_sparse_moe.", p, rng.permutation(c["num_experts"]))
        size += shard.write()
        weight_map.update({e[0]: os.path.basename(shard.path) for e in shard.entries})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump(dict(metadata=dict(total_size=size), weight_map=weight_map), f)
        f.write("\n")
    config.write(os.path.join(folder, "config.json"))


def read_shards(folder):
    out = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            with open(os.path.join(folder, name), "rb") as f:
                blob = f.read()
            n = struct.unpack("<Q", blob[:8])[0]
            for key, t in json.loads(blob[8:8 + n]).items():
                if key != "__metadata__":
                    a, b = t["data_offsets"]
                    raw = blob[8 + n + a:8 + n + b]
                    if t["dtype"] == "BF16":
                        x = torch.from_numpy((np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32).copy())
                    else:
                        x = torch.from_numpy(np.frombuffer(raw, "<f4" if t["dtype"] == "F32" else "u1").copy())
                    out[key] = x.view(t["shape"])
    return out


def unpack(packed, scale):
    R, half = packed.shape
    code = torch.stack([packed & 15, packed >> 4], -1).view(R, 2 * half).long()
    value = torch.tensor(model.E2M1 + tuple(-v for v in model.E2M1))[code]
    return (value.view(R, -1, 32) * torch.exp2(scale.float() - 127).unsqueeze(-1)).view(R, 2 * half)


def read_model(folder):
    """The stored model as an exact float32 Mini."""
    t = read_shards(folder)
    net = model.Mini(config.text_config())
    for name, stored in TOP.items():
        net.w[name].data.copy_(t[stored])
    for i in range(net.c["num_hidden_layers"]):
        dense = i < net.c["first_k_dense_replace"]
        for name, x in net.layer(i, False).items():
            if dense and name == "bias":
                continue
            if name in ("w1", "w2", "w3"):
                base = f"{BODY}layers.{i}.block_sparse_moe.experts."
                value = torch.stack([unpack(t[f"{base}{e}.{name}.weight_packed"], t[f"{base}{e}.{name}.weight_scale"])
                                     for e in range(net.c["num_experts"])])
            else:
                value = t[stored_name(i, name, dense)]
                if name == "A_log":
                    if value[len(x):].any():
                        raise ValueError(f"layer {i}: A_log is not zero behind the heads")
                    value = value[:len(x)]
            (net.bias[i] if name == "bias" else x.data).copy_(value)
    return net


def compare(net, back):
    """Every stored weight equals what training used: BF16 of the trunk, MXFP4 of the experts."""
    with torch.no_grad():
        for i in range(net.c["num_hidden_layers"]):
            for (name, a), (_, b) in zip(net.layer(i, True).items(), back.layer(i, False).items()):
                if not torch.equal(a.cpu(), b):
                    raise ValueError(f"layer {i} {name}: the stored values differ from the trained ones by {float((a.cpu() - b).abs().max())}")
        for name in TOP:
            if not torch.equal(net.top(name, True).cpu(), back.w[name]):
                raise ValueError(f"{name}: the stored values differ from the trained ones")


if __name__ == "__main__":
    trained = model.Mini(config.text_config())
    print(json.dumps(train.load(sys.argv[1], trained)))
    write_model(trained, sys.argv[2])
    compare(trained, read_model(sys.argv[2]))
    total = sum(os.path.getsize(os.path.join(sys.argv[2], x)) for x in os.listdir(sys.argv[2]))
    print(f"{sys.argv[2]}: {total} bytes in all, read back and equal")
