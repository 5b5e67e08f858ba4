#!/usr/bin/env python3
"""Kimi K3 in PyTorch: a second opinion that shares no code with k3_numpy.py and computes each part another way.

  KDA    by chunks: triangular solve and matrix products, the state touched once a chunk (numpy: token by token)
  MLA    materialised keys and values, one masked product a head (numpy: absorbed, in latent space)
  MoE    expert-major: each expert once, for all its tokens, over slots that are then summed (numpy: token by token)
  AttnRes by a running softmax over sources (numpy: all sources at once)
  MXFP4  through a table of byte -> two values (numpy: nibbles)

    k3_torch.py logits MODEL --ids 1,2,3 --out x.npy [--dtype float64]
    k3_torch.py greedy MODEL --ids 1,2,3 -n 24 [--dtype float64]
"""
import argparse
import json
import math
import pathlib

import numpy
import torch
import torch.nn.functional as F

CHUNK = 64


def byte_table(dtype):
    half = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=dtype)
    values = torch.cat([half, -half])
    byte = torch.arange(256)
    return torch.stack([values[byte % 16], values[byte // 16]], dim=1)  # [256, 2]: even column, odd column


class Weights:
    """Reads every shard that the index names; tensors are converted on first use and kept."""

    DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32, "U8": torch.uint8}

    def __init__(self, folder, dtype):
        self.dtype, self.table, self.stored, self.ready = dtype, byte_table(dtype), {}, {}
        folder = pathlib.Path(folder)
        index = folder / "model.safetensors.index.json"
        shards = json.loads(index.read_text())["weight_map"].values() if index.exists() else ["model.safetensors"]
        for shard in dict.fromkeys(shards):
            data = bytearray((folder / shard).read_bytes())
            start = 8 + int.from_bytes(data[:8], "little")
            header = json.loads(data[8:start].decode())
            header.pop("__metadata__", None)
            for name, t in header.items():
                first, last = (start + o for o in t["data_offsets"])
                flat = torch.frombuffer(data[first:last], dtype=self.DTYPES[t["dtype"]])
                key = name[len("language_model."):] if name.startswith("language_model.") else name
                self.stored[key] = flat.reshape(t["shape"])

    def has(self, name):
        return name in self.stored

    def get(self, name):
        if name not in self.ready:
            self.ready[name] = self.stored[name].to(self.dtype) if name in self.stored else self.unpack(name)
        return self.ready[name]

    def unpack(self, name):
        codes, exponent = self.stored[name + "_packed"], self.stored[name + "_scale"]
        rows, blocks = exponent.shape
        values = self.table[codes.long()].reshape(rows, blocks, 32)
        return torch.ldexp(values, exponent.to(self.dtype)[..., None] - 127).reshape(rows, blocks * 32)


def root_mean_square_norm(x, gain, eps):
    return gain * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps))


def capped_glu(g, u, gate_cap, up_cap):
    up = u if up_cap is None else up_cap * torch.tanh(u / up_cap)
    return gate_cap * torch.tanh(g / gate_cap) * torch.sigmoid(g) * up


def depth_conv(u, taps, before):
    """u [T, C], taps [C, 1, width], before [width-1, C]: cross-correlation with the past on the left, then SiLU."""
    line = torch.cat([before, u])
    y = F.conv1d(line.T[None], taps, groups=u.shape[1])[0].T
    return F.silu(y), line[u.shape[0]:]


def delta_chunk(q, k, v, g, beta, S):
    """One chunk of n tokens for all heads. q, k, g [H, n, Dk], v [H, n, Dv], beta [H, n], S [H, Dk, Dv] -> o, S.

    Decays between two tokens of the chunk are exponentials of differences, never quotients of cumulated decays, which
    overflow."""
    n = q.shape[1]
    G = g.cumsum(1)
    rel = (G[:, :, None] - G[:, None]).clamp(max=0)  # [H, n, n, Dk]; entries above the diagonal are masked below
    decay = rel.exp()
    kk = torch.einsum("htd,hsd,htsd->hts", k, k, decay).tril(-1) * beta[..., None]
    qk = torch.einsum("htd,hsd,htsd->hts", q, k, decay).tril()
    seen = (k * G.exp()) @ S  # what the old state predicts for each token
    system = kk + torch.eye(n, dtype=q.dtype)
    e = torch.linalg.solve_triangular(system, beta[..., None] * (v - seen), upper=False, unitriangular=True)
    o = (q * G.exp()) @ S + qk @ e
    last = G[:, -1:]
    S = last.exp().transpose(1, 2) * S + (k * (last - G).exp()).transpose(1, 2) @ e
    return o, S


class K3:
    def __init__(self, folder, dtype=torch.float32):
        cfg = json.loads((pathlib.Path(folder) / "config.json").read_text())
        self.cfg = cfg["text_config"] if "text_config" in cfg else cfg
        self.kda_cfg = self.cfg["linear_attn_config"]
        self.w, self.dtype = Weights(folder, dtype), dtype
        self.eps = self.cfg["rms_norm_eps"]
        self.caps = self.cfg["activation_situ_beta"], self.cfg["activation_situ_linear_beta"]

    def lin(self, name, x):
        return F.linear(x, self.w.get(name))

    def norm(self, name, x):
        return root_mean_square_norm(x, self.w.get(name), self.eps)

    def mixture(self, name, sources):
        """Running softmax: the largest score so far, the mass and the sum relative to it."""
        query = self.w.get(name + "_norm.weight") * self.w.get(name + "_proj.weight").flatten()
        best = torch.full((sources[0].shape[0], 1), -math.inf, dtype=self.dtype)
        mass, total = torch.zeros_like(best), torch.zeros_like(sources[0])
        for v in sources:
            score = (v @ query)[:, None] * torch.rsqrt(v.square().mean(-1, keepdim=True) + self.eps)
            top = torch.maximum(best, score)
            keep, weight = (best - top).exp(), (score - top).exp()
            best, mass, total = top, mass * keep + weight, total * keep + weight * v
        return total / mass

    def linear_attention(self, base, x, memory):
        T, H, D = x.shape[0], self.kda_cfg["num_heads"], self.kda_cfg["head_dim"]

        def heads(y):
            return y.view(T, H, D).transpose(0, 1)  # [H, T, D]

        mixed = []
        for s in ("q", "k", "v"):
            before = memory.get(s)
            if before is None:
                before = torch.zeros(self.kda_cfg["short_conv_kernel_size"] - 1, H * D, dtype=self.dtype)
            y, memory[s] = depth_conv(self.lin(f"{base}{s}_proj.weight", x), self.w.get(f"{base}{s}_conv1d.weight"), before)
            mixed.append(heads(y))
        q, k, v = mixed
        q = q * (q.square().sum(-1, keepdim=True) + 1e-6).rsqrt() / math.sqrt(D)
        k = k * (k.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
        raw = heads(self.lin(base + "f_b_proj.weight", self.lin(base + "f_a_proj.weight", x)) + self.w.get(base + "dt_bias"))
        speed = self.w.get(base + "A_log")[:H].exp().view(H, 1, 1)
        g = self.kda_cfg["gate_lower_bound"] * torch.sigmoid(speed * raw)
        beta = torch.sigmoid(self.lin(base + "b_proj.weight", x)).T  # [H, T]
        S = memory.get("S")
        if S is None:
            S = torch.zeros(H, D, D, dtype=self.dtype)
        outs = []
        for i in range(0, T, CHUNK):
            part = slice(i, i + CHUNK)
            o, S = delta_chunk(q[:, part], k[:, part], v[:, part], g[:, part], beta[:, part], S)
            outs.append(o)
        memory["S"] = S
        o = self.norm(base + "o_norm.weight", torch.cat(outs, 1)).transpose(0, 1).reshape(T, H * D)
        return self.lin(base + "o_proj.weight", o * torch.sigmoid(self.lin(base + "g_proj.weight", x)))

    def latent_attention(self, base, x, memory):
        c, T = self.cfg, x.shape[0]
        H, nope, rope, dv, rank = (c[k] for k in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
                                                  "kv_lora_rank"))
        q = self.lin(base + "q_b_proj.weight", self.norm(base + "q_a_layernorm.weight", self.lin(base + "q_a_proj.weight", x)))
        q = q.view(T, H, nope + rope).transpose(0, 1)
        latent, extra = self.lin(base + "kv_a_proj_with_mqa.weight", x).split([rank, rope], dim=-1)
        kv = self.lin(base + "kv_b_proj.weight", self.norm(base + "kv_a_layernorm.weight", latent)).view(T, H, nope + dv)
        key, value = kv.split([nope, dv], dim=-1)
        key = torch.cat([key, extra[:, None].expand(T, H, rope)], dim=-1)
        if "key" in memory:
            key, value = torch.cat([memory["key"], key]), torch.cat([memory["value"], value])
        memory["key"], memory["value"] = key, value
        N = key.shape[0]
        score = q @ key.permute(1, 2, 0) / math.sqrt(nope + rope)  # [H, T, N]
        hidden = torch.ones(T, N, dtype=torch.bool).triu(N - T + 1)
        o = score.masked_fill(hidden, -math.inf).softmax(-1) @ value.transpose(0, 1)
        o = o.transpose(0, 1).reshape(T, H * dv)
        if c["mla_use_output_gate"]:
            o = o * torch.sigmoid(self.lin(base + "g_proj.weight", x))
        return self.lin(base + "o_proj.weight", o)

    def dense(self, base, x):
        return self.lin(base + "down_proj.weight",
                        capped_glu(self.lin(base + "gate_proj.weight", x), self.lin(base + "up_proj.weight", x), *self.caps))

    def mixture_of_experts(self, base, x):
        c = self.cfg
        score = torch.sigmoid(self.lin(base + "gate.weight", x))
        # A stable sort, because topk leaves the order of equals open.
        chosen = (score + self.w.get(base + "gate.e_score_correction_bias")).sort(dim=1, descending=True, stable=True)[1]
        chosen = chosen[:, :c["num_experts_per_token"]]
        share = score.gather(1, chosen)
        if c["moe_renormalize"]:
            share = share / (share.sum(1, keepdim=True) + 1e-20)
        share = share * c["routed_scaling_factor"]
        latent = bool(c.get("routed_expert_hidden_size"))
        z = self.lin(base + "routed_expert_down_proj.weight", x) if latent else x
        slots = torch.zeros(*chosen.shape, z.shape[1], dtype=self.dtype)
        for e in chosen.unique().tolist():
            token, rank = (chosen == e).nonzero(as_tuple=True)
            name = f"{base}experts.{e}."
            inner = capped_glu(self.lin(name + "w1.weight", z[token]), self.lin(name + "w3.weight", z[token]), *self.caps)
            slots[token, rank] = share[token, rank, None] * self.lin(name + "w2.weight", inner)
        y = slots.sum(1)
        if latent:
            if c["latent_moe_use_norm"]:
                y = self.norm(base + "routed_expert_norm.weight", y)
            y = self.lin(base + "routed_expert_up_proj.weight", y)
        return y + self.dense(base + "shared_experts.", x)

    @torch.no_grad()
    def logits(self, ids, memory=None):
        c = self.cfg
        memory = {} if memory is None else memory
        running, frozen = F.embedding(torch.as_tensor(ids), self.w.get("model.embed_tokens.weight")), []
        for l in range(c["num_hidden_layers"]):
            base = f"model.layers.{l}."
            x = self.mixture(base + "self_attention_res", [*frozen, running]) if l else running
            x = self.norm(base + "input_layernorm.weight", x)
            full = l + 1 in self.kda_cfg["full_attn_layers"]
            out = (self.latent_attention if full else self.linear_attention)(base + "self_attn.", x, memory.setdefault(l, {}))
            if l % c["attn_res_block_size"]:
                running = running + out
            else:
                frozen.append(running)
                running = out
            y = self.norm(base + "post_attention_layernorm.weight", self.mixture(base + "mlp_res", [*frozen, running]))
            sparse = l >= c["first_k_dense_replace"] and l % c["moe_layer_freq"] == 0
            running = running + (self.mixture_of_experts(base + "block_sparse_moe.", y) if sparse else self.dense(base + "mlp.", y))
        z = self.norm("model.norm.weight", self.mixture("model.output_attn_res", [*frozen, running]))
        return self.lin("lm_head.weight" if self.w.has("lm_head.weight") else "model.embed_tokens.weight", z)

    def continue_greedily(self, ids, n):
        memory, out = {}, []
        while len(out) < n:
            out.append(int(self.logits(out[-1:] or ids, memory)[-1].argmax()))
        return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("logits", "greedy"))
    parser.add_argument("model")
    parser.add_argument("--ids", required=True, type=lambda s: [int(x) for x in s.split(",")])
    parser.add_argument("--out")
    parser.add_argument("-n", type=int, default=16)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    args = parser.parse_args()
    model = K3(args.model, getattr(torch, args.dtype))
    if args.verb == "greedy":
        print(",".join(str(i) for i in model.continue_greedily(args.ids, args.n)))
    elif not args.out:
        parser.error("logits needs --out")
    else:
        numpy.save(args.out, model.logits(args.ids).numpy())


if __name__ == "__main__":
    main()
