#!/usr/bin/env python3
"""K3 in PyTorch as it is run in bfloat16: what an engine's default arithmetic is measured against (precision.py).

Weights are bfloat16 as stored, experts are decoded from MXFP4 to bfloat16, which is exact, and what is stored as float32 stays float32.
Each step has the precision of section 3.1 of the specification:

  products         bf16 in, bf16 out, sums in float32
  RMSNorm          float32, rounded, then times the weight
  AttnRes          float32 from bf16 sources, rounded
  convolution      float32, rounded
  KDA              gate, write strength, recurrence and state in float32; its output rounded, its norm and gate float32
  MLA              scores and softmax float32 (as in fused kernels), probabilities bf16, gate bf16
  SiTU             float32, rounded
  router           float32
  mixture          expert outputs bf16, weights and sum float32, rounded

`--residual float32` is the other way that people run it, autocast over float32 values: products as above, everything between them in float32.

    bf16_torch.py MODEL IDS.json --out x.npy [--residual float32] [--head float32] [--device cuda]

IDS.json is a list of lists of ids. --head float32 keeps the logits from being rounded to bfloat16.
"""
import argparse
import json
import math

import numpy
import torch
import torch.nn.functional as F

import k3_torch

HALF = torch.bfloat16


class Weights(k3_torch.Weights):
    """On the device: bfloat16 but for what is stored as float32."""

    def __init__(self, folder, device):
        super().__init__(folder, torch.float32)
        self.device = device

    def get(self, name):
        if name not in self.ready:
            value = self.stored[name] if name in self.stored else self.unpack(name).to(HALF)
            self.ready[name] = value.to(self.device)
        return self.ready[name]


class K3(k3_torch.K3):
    def __init__(self, folder, device, residual, head):
        super().__init__(folder, torch.float32)
        self.w, self.dtype, self.head = Weights(folder, device), residual, head

    def lin(self, name, x):
        if name == "lm_head.weight" and self.head == torch.float32:
            return F.linear(x.float(), self.w.get(name).float())
        return F.linear(x.to(HALF), self.w.get(name))

    def norm(self, name, x):
        x = x.float()
        x = (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)).to(self.dtype)
        return (self.w.get(name) * x).to(self.dtype)

    def mixture(self, name, sources):
        query = self.w.get(name + "_norm.weight").float() * self.w.get(name + "_proj.weight").flatten().float()
        v = torch.stack(sources).float()
        share = torch.softmax((v @ query) * torch.rsqrt(v.square().mean(-1) + self.eps), 0)
        return (share[..., None] * v).sum(0).to(self.dtype)

    def linear_attention(self, base, x, memory):
        T, H, D = x.shape[0], self.kda_cfg["num_heads"], self.kda_cfg["head_dim"]

        def heads(y):
            return y.view(T, H, D).transpose(0, 1).float()  # [H, T, D]

        def branch(s):
            taps = self.w.get(f"{base}{s}_conv1d.weight")
            before = torch.zeros(taps.shape[2] - 1, H * D)
            y, _ = k3_torch.depth_conv(self.lin(f"{base}{s}_proj.weight", x).float(), taps.float(), before)
            return heads(y.to(self.dtype))

        q, k, v = (branch(s) for s in "qkv")
        q = q * (q.square().sum(-1, keepdim=True) + 1e-6).rsqrt() / math.sqrt(D)
        k = k * (k.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
        raw = heads(self.lin(base + "f_b_proj.weight", self.lin(base + "f_a_proj.weight", x)).float() + self.w.get(base + "dt_bias"))
        g = self.kda_cfg["gate_lower_bound"] * torch.sigmoid(self.w.get(base + "A_log")[:H].exp().view(H, 1, 1) * raw)
        beta = torch.sigmoid(self.lin(base + "b_proj.weight", x).float()).T  # [H, T]
        outs, S = [], torch.zeros(H, D, D)
        for i in range(0, T, k3_torch.CHUNK):
            part = slice(i, i + k3_torch.CHUNK)
            o, S = k3_torch.delta_chunk(q[:, part], k[:, part], v[:, part], g[:, part], beta[:, part], S)
            outs.append(o)
        o = torch.cat(outs, 1).to(self.dtype).float()
        o = self.w.get(base + "o_norm.weight").float() * o * torch.rsqrt(o.square().mean(-1, keepdim=True) + self.eps)
        o = o.transpose(0, 1).reshape(T, H * D) * torch.sigmoid(self.lin(base + "g_proj.weight", x).float())
        return self.lin(base + "o_proj.weight", o.to(self.dtype))

    def latent_attention(self, base, x, memory):
        c, T = self.cfg, x.shape[0]
        H, nope, rope, dv, rank = (c[k] for k in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
                                                  "kv_lora_rank"))
        q = self.lin(base + "q_b_proj.weight", self.norm(base + "q_a_layernorm.weight", self.lin(base + "q_a_proj.weight", x)))
        latent, extra = self.lin(base + "kv_a_proj_with_mqa.weight", x).split([rank, rope], dim=-1)
        kv = self.lin(base + "kv_b_proj.weight", self.norm(base + "kv_a_layernorm.weight", latent)).view(T, H, nope + dv)
        key, value = kv.split([nope, dv], dim=-1)
        key = torch.cat([key, extra[:, None].expand(T, H, rope)], dim=-1)
        score = q.view(T, H, nope + rope).transpose(0, 1).float() @ key.permute(1, 2, 0).float() / math.sqrt(nope + rope)
        hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
        p = score.masked_fill(hidden, -math.inf).softmax(-1).to(HALF)
        o = (p @ value.transpose(0, 1)).transpose(0, 1).reshape(T, H * dv)
        if c["mla_use_output_gate"]:
            o = o.to(self.dtype) * torch.sigmoid(self.lin(base + "g_proj.weight", x).to(self.dtype))
        return self.lin(base + "o_proj.weight", o)

    def gated(self, gate, up, x):
        return k3_torch.capped_glu(self.lin(gate, x).float(), self.lin(up, x).float(), *self.caps).to(self.dtype)

    def dense(self, base, x):
        return self.lin(base + "down_proj.weight", self.gated(base + "gate_proj.weight", base + "up_proj.weight", x))

    def mixture_of_experts(self, base, x):
        c = self.cfg
        score = torch.sigmoid(F.linear(x.float(), self.w.get(base + "gate.weight").float()))
        chosen = (score + self.w.get(base + "gate.e_score_correction_bias")).sort(dim=1, descending=True, stable=True)[1]
        chosen = chosen[:, :c["num_experts_per_token"]]
        share = score.gather(1, chosen)
        if c["moe_renormalize"]:
            share = share / (share.sum(1, keepdim=True) + 1e-20)
        share = share * c["routed_scaling_factor"]
        z = self.lin(base + "routed_expert_down_proj.weight", x)
        slots = torch.zeros(*chosen.shape, z.shape[1])
        for e in chosen.unique().tolist():
            token, rank = (chosen == e).nonzero(as_tuple=True)
            name = f"{base}experts.{e}."
            y = self.lin(name + "w2.weight", self.gated(name + "w1.weight", name + "w3.weight", z[token]))
            slots[token, rank] = share[token, rank, None] * y.float()
        y = self.norm(base + "routed_expert_norm.weight", slots.sum(1).to(self.dtype))
        return self.lin(base + "routed_expert_up_proj.weight", y) + self.dense(base + "shared_experts.", x)

    def score(self, ids):
        """Teacher-forced logits of one sequence, float32."""
        table = "model.embed_tokens.weight"
        self.w.ready[table] = self.w.get(table).to(self.dtype)
        return self.logits(ids).float()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("ids")
    parser.add_argument("--out", required=True)
    for name in ("residual", "head"):
        parser.add_argument("--" + name, default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if args.device != "cpu":
        torch.set_default_device(args.device)
    model = K3(args.model, args.device, getattr(torch, args.residual), getattr(torch, args.head))
    with open(args.ids, encoding="utf-8") as f:
        numpy.save(args.out, numpy.concatenate([model.score(ids).cpu().numpy() for ids in json.load(f)]))


if __name__ == "__main__":
    main()
