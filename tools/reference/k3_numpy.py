#!/usr/bin/env python3
"""Kimi K3 in float64, written to be read: one function per operation, then the whole model.

Every operation follows the formula of the model specification in its plainest form: the KDA state is advanced token by
token, MLA attends in latent space (absorbed form), the mixture of experts goes token by token. Nothing is fused, nothing
is fast. The PyTorch model beside this file uses other formulations on purpose and shares no code with it.

Letters: T tokens, H heads, D head dim, E experts, K experts a token, C channels, L latent width, I inner width, J sources.

    k3_numpy.py logits MODEL --ids 1,2,3 --out x.npy      teacher-forced logits, float64 [T, vocab]
    k3_numpy.py greedy MODEL --ids 1,2,3 -n 24            the new ids, in one line
"""
import argparse
import json
import mmap
import os
import struct

import numpy as np

# ---------------------------------------------------------------------------------------------------------------------
# number formats

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def from_bf16(raw):
    """uint16 bit patterns -> float64, exact."""
    return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def nibbles(packed):
    """[rows, n] bytes -> [rows, 2n] codes; the LOW nibble is the even column."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1)


def codes_int2(packed):
    """[rows, n] bytes -> [rows, 4n] codes; bits 0-1 are column 4k."""
    return np.stack([packed >> s & 3 for s in (0, 2, 4, 6)], axis=-1).reshape(packed.shape[0], -1)


def codes_int3(packed):
    """[rows, 24 n] bytes -> [rows, 64 n] codes: a group is a 192-bit little-endian string, code i in bits 3i..3i+2."""
    rows = packed.shape[0]
    bits = np.unpackbits(packed.reshape(rows, -1, 24), axis=-1, bitorder="little").reshape(rows, -1, 64, 3)
    return (bits * np.array([1, 2, 4])).sum(-1).reshape(rows, -1)


def decode_mxfp4(packed, scale):
    """packed [rows, cols/2], scale bytes [rows, cols/32] -> [rows, cols]."""
    return E2M1[nibbles(packed)] * np.repeat(np.ldexp(1.0, scale.astype(np.int64) - 127), 32, axis=1)


def decode_weight(kind, w, scale=None):
    """A stored matrix of any weight type -> float64 [rows, cols]."""
    if kind == "f32":
        return w.astype(np.float64)
    if kind == "bf16":
        return from_bf16(w)
    if kind == "mxfp4":
        return decode_mxfp4(w, scale)
    codes, offset = {"int8": (lambda: w.view(np.int8), 0), "int4": (lambda: nibbles(w), 8), "int4_g64": (lambda: nibbles(w), 8),
                     "int3_g64": (lambda: codes_int3(w), 4), "int2": (lambda: codes_int2(w), 2)}[kind]
    codes = codes().astype(np.float64) - offset
    scale = scale.astype(np.float64).reshape(w.shape[0], -1)
    return codes * (np.repeat(scale, 64, axis=1) if kind.endswith("g64") else scale)


# ---------------------------------------------------------------------------------------------------------------------
# operations

def sigma(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def embed(ids, table):
    return table[ids]


def attnres_mix(src, s, eps):
    """src [J, T, C] raw vectors, s [C] = norm * proj -> [T, C]. The norm is in the score only, not in the mixture."""
    score = (src * s).sum(-1) / np.sqrt((src ** 2).mean(-1) + eps)  # [J, T]
    w = softmax(score.T)  # [T, J]
    return np.einsum("tj,jtc->tc", w, src)


def rmsnorm(x, w, eps):
    return w * x / np.sqrt((x ** 2).mean(-1, keepdims=True) + eps)


def matmul(w, x):
    """w [out, in], x [T, in] -> [T, out]."""
    return x @ w.T


def shortconv(u, w, window):
    """Causal depthwise convolution and SiLU. u [T, C], w [C, width] (last tap = this token), window [width-1, C], oldest
    first -> y [T, C], the new window. The window holds inputs, before the SiLU."""
    width = w.shape[1]
    full = np.concatenate([window, u])
    c = sum(full[j:j + len(u)] * w[:, j] for j in range(width))
    return c * sigma(c), full[len(full) - (width - 1):]


def l2norm(x, eps, scale):
    """x [T, H, D]. eps is added to the SUM of squares."""
    return scale * x / np.sqrt((x ** 2).sum(-1, keepdims=True) + eps)


def kda_gate(z, b, a_log, dt_bias, lower):
    """z, dt_bias [.., H*D]; b [T, H]; a_log is per HEAD, entries past H are padding -> g, alpha [T, H, D], beta [T, H]."""
    T, H = b.shape
    z = (z + dt_bias).reshape(T, H, -1)
    g = lower * sigma(np.exp(a_log[:H])[None, :, None] * z)
    return g, np.exp(g), sigma(b)


def kda_recur(q, k, v, alpha, beta, S):
    """q, k, v, alpha [T, H, D], beta [T, H], S [H, D(k), D(v)] -> o [T, H, D], S. q comes scaled."""
    S = S.copy()
    o = np.empty(v.shape)
    for t in range(len(q)):
        S = alpha[t][:, :, None] * S
        e = v[t] - np.einsum("hkv,hk->hv", S, k[t])  # the error is taken from the DECAYED state
        S = S + beta[t][:, None, None] * k[t][:, :, None] * e[:, None, :]
        o[t] = np.einsum("hkv,hk->hv", S, q[t])  # the read is from the UPDATED state
    return o, S


def gate_rmsnorm(o, w, gate, eps):
    """o [T, H, D], w [D], gate logits [T, H*D] -> [T, H, D]."""
    return rmsnorm(o, w, eps) * sigma(gate.reshape(o.shape))


def mla_append(ckv, w, eps):
    """ckv [T, kv_lora + rope] -> cache rows: the latent normed, the extra dims raw (nothing is rotated)."""
    n = len(w)
    return np.concatenate([rmsnorm(ckv[:, :n], w, eps), ckv[:, n:]], axis=1)


def mla_attend(q, cache, kv_b, nope, v, pos0, scale):
    """Absorbed form. q [T, H, nope + rope], cache [N, kv_lora + rope], kv_b [H*(nope + v), kv_lora]; the query in row t sees
    cache rows 0 .. pos0 + t -> [T, H, v]."""
    T, H, _ = q.shape
    lora = kv_b.shape[1]
    kv_b = kv_b.reshape(H, nope + v, lora)
    o = np.empty((T, H, v))
    for t in range(T):
        c, kr = cache[:pos0 + t + 1, :lora], cache[:pos0 + t + 1, lora:]
        ql = np.einsum("hi,hil->hl", q[t, :, :nope], kv_b[:, :nope])
        p = softmax(scale * (ql @ c.T + q[t, :, nope:] @ kr.T))  # [H, positions]
        o[t] = np.einsum("hl,hil->hi", p @ c, kv_b[:, nope:])
    return o


def gate_mul(x, gate):
    return x * sigma(gate)


def situ_glu(g, u, b1, b2):
    """b2 = inf leaves u uncapped."""
    return b1 * np.tanh(g / b1) * sigma(g) * (u if np.isinf(b2) else b2 * np.tanh(u / b2))


def router_topk(logits, bias, K, renormalize, scale):
    """logits [T, E] -> ids [T, K] in order of s + bias, ties to the lower id; weights [T, K] from the UNBIASED s."""
    s = sigma(logits)
    ids = np.argsort(-(s + bias), axis=1, kind="stable")[:, :K]
    w = np.take_along_axis(s, ids, axis=1)
    if renormalize:
        w = w / (w.sum(1, keepdims=True) + 1e-20)
    return ids, w * scale


def moe_experts(z, experts, ids, weights, b1, b2):
    """experts: id -> (w1, w3 [I, L], w2 [L, I]); z [T, L] -> y [T, L], the sum in rank order."""
    y = np.zeros_like(z)
    for t in range(len(z)):
        for e, w in zip(ids[t], weights[t]):
            w1, w3, w2 = experts(int(e))
            y[t] += w * (w2 @ situ_glu(w1 @ z[t], w3 @ z[t], b1, b2))
    return y


def moe_sum(slots, weights):
    """slots [T, K, L], weights [T, K] -> [T, L]: what moe_experts does with the outputs of the chosen experts."""
    return np.einsum("tkl,tk->tl", slots, weights)


def add(a, b):
    return a + b


def sample(logits, temperature, top_k, top_p, min_p):
    """The distribution that one id is drawn from: ids by falling probability (ties: lower id first), their probabilities.
    In this order, each on the renormalised survivors of the one before: temperature; top_k (0: all); top_p keeps the
    shortest prefix whose mass reaches top_p, at least one id; min_p drops what is below min_p times the largest."""
    order = np.argsort(-logits, kind="stable")
    p = softmax(logits[order] / temperature)
    if top_k > 0:
        p = p[:top_k] / p[:top_k].sum()
    n = int(np.searchsorted(np.cumsum(p), top_p)) + 1 if top_p < 1 else len(p)
    p = p[:n] / p[:n].sum()
    p = p[p >= min_p * p[0]]
    return order[:len(p)], p / p.sum()


# ---------------------------------------------------------------------------------------------------------------------
# the checkpoint

class Checkpoint:
    """Tensors of a folder in the released layout, by name without the `language_model.` prefix, as float64."""

    def __init__(self, folder):
        self.at, self.cache = {}, {}
        index = os.path.join(folder, "model.safetensors.index.json")
        if os.path.exists(index):
            with open(index) as f:
                files = set(json.load(f)["weight_map"].values())
        else:
            files = ["model.safetensors"]
        for file in sorted(files):
            with open(os.path.join(folder, file), "rb") as f:
                blob = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            n = struct.unpack_from("<Q", blob)[0]
            for name, entry in json.loads(blob[8:8 + n]).items():
                if name != "__metadata__":
                    self.at[name.removeprefix("language_model.")] = (blob, 8 + n, entry)
        with open(os.path.join(folder, "config.json")) as f:
            config = json.load(f)
        self.config = config.get("text_config", config)

    def __contains__(self, name):
        return name in self.at

    def raw(self, name):
        blob, base, entry = self.at[name]
        begin, end = entry["data_offsets"]
        kind = {"F32": "<f4", "F64": "<f8", "BF16": "<u2", "U8": "u1", "I32": "<i4"}[entry["dtype"]]
        return np.frombuffer(blob, kind, (end - begin) // np.dtype(kind).itemsize, base + begin).reshape(entry["shape"])

    def __getitem__(self, name):
        if name not in self.cache:
            if name in self.at:
                raw = self.raw(name)
                self.cache[name] = from_bf16(raw) if self.at[name][2]["dtype"] == "BF16" else raw.astype(np.float64)
            else:
                stem = name.removesuffix(".weight")
                self.cache[name] = decode_mxfp4(self.raw(stem + ".weight_packed"), self.raw(stem + ".weight_scale"))
        return self.cache[name]


# ---------------------------------------------------------------------------------------------------------------------
# the model

class Model:
    def __init__(self, folder):
        self.w = Checkpoint(folder)
        c = self.w.config
        self.c, self.la = c, c["linear_attn_config"]
        self.eps = c["rms_norm_eps"]  # also of the two latent norms of MLA: what public goldens and servers use
        self.b1 = c["activation_situ_beta"]
        self.b2 = c["activation_situ_linear_beta"] if c["activation_situ_linear_beta"] is not None else np.inf
        self.is_mla = [l + 1 in self.la["full_attn_layers"] for l in range(c["num_hidden_layers"])]

    def new_state(self):
        c, la = self.c, self.la
        H, D = la["num_heads"], la["head_dim"]
        window = (la["short_conv_kernel_size"] - 1, H * D)
        return [{"cache": np.zeros((0, c["kv_lora_rank"] + c["qk_rope_head_dim"]))} if mla else
                {"S": np.zeros((H, D, D)), **{x: np.zeros(window) for x in "qkv"}} for mla in self.is_mla]

    def kda(self, p, x, state):
        w, H, D, T = self.w, self.la["num_heads"], self.la["head_dim"], len(x)
        r = {}
        for n in "qkv":
            u = matmul(w[p + n + "_proj.weight"], x)
            taps = w[p + n + "_conv1d.weight"].reshape(H * D, -1)
            r[n], state[n] = shortconv(u, taps, state[n])
            r[n] = r[n].reshape(T, H, D)
        q = l2norm(r["q"], 1e-6, D ** -0.5)
        k = l2norm(r["k"], 1e-6, 1.0)
        z = matmul(w[p + "f_b_proj.weight"], matmul(w[p + "f_a_proj.weight"], x))
        _, alpha, beta = kda_gate(z, matmul(w[p + "b_proj.weight"], x), w[p + "A_log"], w[p + "dt_bias"], self.la["gate_lower_bound"])
        o, state["S"] = kda_recur(q, k, r["v"], alpha, beta, state["S"])
        y = gate_rmsnorm(o, w[p + "o_norm.weight"], matmul(w[p + "g_proj.weight"], x), self.eps)
        return matmul(w[p + "o_proj.weight"], y.reshape(T, H * D))

    def mla(self, p, x, state):
        w, c, T = self.w, self.c, len(x)
        H, nope, rope, v = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        cq = rmsnorm(matmul(w[p + "q_a_proj.weight"], x), w[p + "q_a_layernorm.weight"], self.eps)
        q = matmul(w[p + "q_b_proj.weight"], cq).reshape(T, H, nope + rope)
        pos0 = len(state["cache"])
        rows = mla_append(matmul(w[p + "kv_a_proj_with_mqa.weight"], x), w[p + "kv_a_layernorm.weight"], self.eps)
        state["cache"] = np.concatenate([state["cache"], rows])
        o = mla_attend(q, state["cache"], w[p + "kv_b_proj.weight"], nope, v, pos0, (nope + rope) ** -0.5).reshape(T, H * v)
        if c["mla_use_output_gate"]:
            o = gate_mul(o, matmul(w[p + "g_proj.weight"], x))
        return matmul(w[p + "o_proj.weight"], o)

    def glu(self, p, x):
        w = self.w
        g, u = matmul(w[p + "gate_proj.weight"], x), matmul(w[p + "up_proj.weight"], x)
        return matmul(w[p + "down_proj.weight"], situ_glu(g, u, self.b1, self.b2))

    def moe(self, p, x):
        """Without a latent width (routed_expert_hidden_size null) experts act on the hidden width and there is neither
        projection nor norm: the norm belongs to the latent."""
        w, c = self.w, self.c
        ids, weights = router_topk(matmul(w[p + "gate.weight"], x), w[p + "gate.e_score_correction_bias"], c["num_experts_per_token"],
                                   c["moe_renormalize"], c["routed_scaling_factor"])
        latent = c.get("routed_expert_hidden_size")
        z = matmul(w[p + "routed_expert_down_proj.weight"], x) if latent else x
        y = moe_experts(z, lambda e: [w[f"{p}experts.{e}.{m}.weight"] for m in ("w1", "w3", "w2")], ids, weights, self.b1, self.b2)
        if latent and c["latent_moe_use_norm"]:
            y = rmsnorm(y, w[p + "routed_expert_norm.weight"], self.eps)
        if latent:
            y = matmul(w[p + "routed_expert_up_proj.weight"], y)
        return add(y, self.glu(p + "shared_experts.", x))

    def mixer(self, l, x, state):
        x = rmsnorm(x, self.w[f"model.layers.{l}.input_layernorm.weight"], self.eps)
        return (self.mla if self.is_mla[l] else self.kda)(f"model.layers.{l}.self_attn.", x, state[l])

    def ffn(self, l, x):
        c, p = self.c, f"model.layers.{l}."
        x = rmsnorm(x, self.w[p + "post_attention_layernorm.weight"], self.eps)
        if l >= c["first_k_dense_replace"] and l % c["moe_layer_freq"] == 0:
            return self.moe(p + "block_sparse_moe.", x)
        return self.glu(p + "mlp.", x)

    def mix(self, site, blocks, P):
        s = self.w[f"model.{site}_norm.weight"] * self.w[f"model.{site}_proj.weight"][0]
        return attnres_mix(np.stack(blocks + [P]), s, self.eps)

    def layers(self, P, state, trace):
        """P [T, C] embeddings -> the last mixture. trace receives the running sum P after every layer."""
        blocks = []
        for l in range(self.c["num_hidden_layers"]):
            x = self.mix(f"layers.{l}.self_attention_res", blocks, P) if blocks else P
            snapshot = l % self.c["attn_res_block_size"] == 0
            if snapshot:
                blocks.append(P)  # after the mixture above, which still saw the old list
            a = self.mixer(l, x, state)
            P = a if snapshot else add(P, a)
            P = add(P, self.ffn(l, self.mix(f"layers.{l}.mlp_res", blocks, P)))
            trace.append(P)
        return self.mix("output_attn_res", blocks, P)

    def forward(self, ids, state=None, trace=None):
        """ids [T] -> logits [T, vocab]; `state` (new_state()) is advanced."""
        P = embed(np.asarray(ids), self.w["model.embed_tokens.weight"])
        z = self.layers(P, state if state is not None else self.new_state(), trace if trace is not None else [])
        head = "lm_head.weight" if "lm_head.weight" in self.w else "model.embed_tokens.weight"
        return matmul(self.w[head], rmsnorm(z, self.w["model.norm.weight"], self.eps))

    def greedy(self, ids, n):
        state, new = self.new_state(), []
        logits = self.forward(ids, state)
        while len(new) < n:
            new.append(int(np.argmax(logits[-1])))
            if len(new) < n:
                logits = self.forward(new[-1:], state)
        return new


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("verb", choices=["logits", "greedy"])
    ap.add_argument("model")
    ap.add_argument("--ids", required=True)
    ap.add_argument("--out")
    ap.add_argument("-n", type=int, default=16)
    a = ap.parse_args()
    ids = [int(i) for i in a.ids.split(",")]
    model = Model(a.model)
    if a.verb == "greedy":
        print(",".join(map(str, model.greedy(ids, a.n))))
    elif a.out:
        np.save(a.out, model.forward(ids))
    else:
        ap.error("logits needs --out")


if __name__ == "__main__":
    main()
