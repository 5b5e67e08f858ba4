#!/usr/bin/env python3
"""Write the 96 shards of the released Kimi K3 without their weights: every header is there, and the bytes after it are a hole.

    make_headers.py OUT_DIR [--seed 1]

Names, shapes, types, the order of shards and their sizes are those of the release: 497,220 tensors in 1,560,860,324,864 bytes, of which
about 120 MB are stored. So opening it costs what opening the release costs, which is what it is for:

    k3 inspect OUT_DIR
    k3 plan OUT_DIR --disk-rate 3G

Every weight is zero: what k3 says of the folder is right, what it computes is not. Needs numpy and a file system with holes.
"""
import argparse
import json
import os
import random
import struct

import make_layers

TOTAL = 1_560_860_324_864


class Nothing:
    """Content that is never written."""

    made = {"codes": None}

    def normal(self, std):
        pass

    def scales(self, gain, cols):
        pass


class Names(make_layers.Part):
    """Tensors of one shard, one after the other."""

    def __init__(self, prefix=""):
        super().__init__(Nothing())
        self.prefix = prefix

    def vector(self, name, n, mean, std, dtype="F32", shape=None):
        self.add(name, dtype, shape or [n], None)

    def write(self, path):
        """The header as the usual writer makes it, padded to eight bytes, and a hole."""
        entries, text = self.header(self.prefix)
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            f.truncate(8 + len(text) + self.bytes)
        return entries


def layer(i, w, is_mla, experts, rng):
    p = Names(f"{make_layers.ROOT}layers.{i}.")
    (make_layers.mla if is_mla else make_layers.kda)(p, w)
    if i == 0:
        make_layers.dense(p, w)
    else:
        make_layers.moe(p, w, experts)
        make_layers.routed(p, w, rng.sample(range(experts), experts))
    return p


def projector(hidden):
    p = Names("mm_projector.")
    for name, shape in (("proj.0", [4096, 4096]), ("proj.2", [hidden, 4096]), ("post_norm", [hidden])):
        p.add(name + ".weight", "BF16", shape, None)
    return p


def tower():
    p = Names("vision_tower.")
    p.add("patch_embed.proj.weight", "BF16", [1024, 3, 14, 14], None)
    p.add("patch_embed.pos_emb.weight", "BF16", [64, 64, 1024], None)
    for i in range(27):
        for name, shape in (("norm0", [1024]), ("norm1", [1024]), ("wqkv", [4608, 1024]), ("wo", [1024, 1536]), ("mlp.fc0", [4096, 1024]),
                            ("mlp.fc1", [1024, 4096])):
            p.add(f"encoder.blocks.{i}.{name}.weight", "BF16", shape, None)
    p.add("encoder.final_layernorm.weight", "BF16", [1024], None)
    return p


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--seed", type=int, default=1, help="of the order of experts in a shard")
    a = ap.parse_args()
    layers, experts, rng = 93, 896, random.Random(a.seed)
    w = make_layers.widths(1)
    cfg = make_layers.config(w, layers, experts, 12)
    full = cfg["text_config"]["linear_attn_config"]["full_attn_layers"]
    ends = Names(make_layers.ROOT)
    make_layers.ends(ends, w)
    shards = [layer(i, w, i + 1 in full, experts, rng) for i in range(layers)] + [ends, projector(w.hidden), tower()]
    os.makedirs(a.out, exist_ok=True)
    weight_map = {}
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{len(shards):06d}.safetensors"
        weight_map.update(dict.fromkeys(shard.write(os.path.join(a.out, name)), name))
    total = sum(shard.bytes for shard in shards)
    assert (len(weight_map), total) == (497_220, TOTAL), f"{len(weight_map)} tensors, {total} bytes"
    with open(os.path.join(a.out, "config.json"), "w") as f:
        json.dump(cfg, f, indent=1)
    with open(os.path.join(a.out, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, f, indent=2)
    print(f"{a.out}: {len(shards)} shards, {len(weight_map)} tensors, {total} bytes seen")


if __name__ == "__main__":
    main()
