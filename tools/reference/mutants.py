"""Single changes to the reference that look right and are wrong. check_mutants.py proves that each is caught.

A mutant is (name, where it must be caught, {function of k3_numpy or "Model.method": replacement}). "model" among the places
means: the logits of the tiny checkpoint or of a random one. The ten of the specification (9.3) come first; the tenth, joining
chat segments before BPE, is a matter of text and is proved by the runner on the chat cases.
"""
import numpy as np

import k3_numpy as k


def original(name):
    """The unchanged function or method, for mutants that wrap it."""
    owner, _, attribute = name.rpartition(".")
    return getattr(k.Model if owner else k, attribute)


ORIGINAL = {n: original(n) for n in ("attnres_mix", "kda_gate", "gate_rmsnorm", "mla_append", "mla_attend", "moe_experts", "rmsnorm",
                                     "router_topk", "sample", "shortconv", "situ_glu", "l2norm", "kda_recur", "decode_mxfp4",
                                     "decode_weight", "embed", "Model.mix", "Model.glu")}
O = ORIGINAL


# --- number formats

def nibbles_swapped(packed):
    return np.stack([packed >> 4, packed & 15], axis=-1).reshape(packed.shape[0], -1)


def mxfp4_in_halves(packed, scale):
    """Low nibbles are the first half of a 32-block, high nibbles the second, as in another family of 4-bit files."""
    blocks = packed.reshape(packed.shape[0], -1, 16)
    codes = np.concatenate([blocks & 15, blocks >> 4], axis=-1).reshape(packed.shape[0], -1)
    return k.E2M1[codes] * np.repeat(np.ldexp(1.0, scale.astype(np.int64) - 127), 32, axis=1)


def codes_int3_big_endian(packed):
    rows = packed.shape[0]
    bits = np.unpackbits(packed.reshape(rows, -1, 24), axis=-1, bitorder="big").reshape(rows, -1, 64, 3)
    return (bits * np.array([4, 2, 1])).sum(-1).reshape(rows, -1)


def codes_int2_reversed(packed):
    return np.stack([packed >> s & 3 for s in (6, 4, 2, 0)], axis=-1).reshape(packed.shape[0], -1)


def mxfp4_sign_as_offset(packed, scale):
    """Code 8 + i read as -(8 - i): two's complement in place of a sign bit."""
    table = np.concatenate([k.E2M1[:8], -k.E2M1[7:0:-1], [0.0]])
    return table[k.nibbles(packed)] * np.repeat(np.ldexp(1.0, scale.astype(np.int64) - 127), 32, axis=1)


def mxfp4_integers(packed, scale):
    codes = k.nibbles(packed).astype(np.int64)
    return (codes - 16 * (codes > 7)) * np.repeat(np.ldexp(0.5, scale.astype(np.int64) - 127), 32, axis=1)


def mxfp4_scale_clamped(packed, scale):
    return O["decode_mxfp4"](packed, np.clip(scale, 110, 130))


def mxfp4_one_scale_a_row(packed, scale):
    return O["decode_mxfp4"](packed, np.repeat(scale[:, :1], scale.shape[1], axis=1))


def int_offset_7(kind, w, scale=None):
    y = O["decode_weight"](kind, w, scale)
    if kind not in ("int4", "int4_g64"):
        return y
    s = scale.astype(np.float64).reshape(len(w), -1)
    return y + (np.repeat(s, 64, axis=1) if kind.endswith("g64") else s)


def int8_unsigned(kind, w, scale=None):
    y = O["decode_weight"](kind, w, scale)
    return y + 256 * scale.astype(np.float64)[:, None] * (w > 127) if kind == "int8" else y


def int8_minus_128_lost(kind, w, scale=None):
    return O["decode_weight"](kind, np.where(w == 128, np.uint8(129), w) if kind == "int8" else w, scale)


def group_scales_by_column(kind, w, scale=None):
    return O["decode_weight"](kind, w, scale.T.reshape(scale.shape) if kind.endswith("g64") else scale)


# --- AttnRes, norms

def attnres_of_normed(src, s, eps):
    return O["attnres_mix"](src, s, eps) if len(src) < 2 else np.einsum(
        "tj,jtc->tc", k.softmax(((src * s).sum(-1) / np.sqrt((src ** 2).mean(-1) + eps)).T), k.rmsnorm(src, 1.0, eps))


def attnres_without_norm(src, s, eps):
    return np.einsum("tj,jtc->tc", k.softmax((src * s).sum(-1).T), src)


def attnres_scaled(src, s, eps):
    return O["attnres_mix"](src, s / np.sqrt(src.shape[-1]), eps)


def attnres_last_missing(src, s, eps):
    return O["attnres_mix"](src[:-1] if len(src) > 1 else src, s, eps)


def attnres_oldest_eight(src, s, eps):
    return O["attnres_mix"](src[-8:], s, eps)


def rmsnorm_of_sum(x, w, eps):
    return w * x / np.sqrt((x ** 2).sum(-1, keepdims=True) + eps)


def rmsnorm_eps_outside(x, w, eps):
    return w * x / (np.sqrt((x ** 2).mean(-1, keepdims=True)) + eps)


def rmsnorm_unit_offset(x, w, eps):
    return (1 + w) * x / np.sqrt((x ** 2).mean(-1, keepdims=True) + eps)


def layernorm(x, w, eps):
    return O["rmsnorm"](x - x.mean(-1, keepdims=True), w, eps)


# --- KDA

def conv_reversed(u, w, window):
    return O["shortconv"](u, w[:, ::-1], window)


def conv_forgets(u, w, window):
    return O["shortconv"](u, w, np.zeros_like(window))


def conv_newest_first(u, w, window):
    return O["shortconv"](u, w, window[::-1])


def conv_keeps_outputs(u, w, window):
    y, new = O["shortconv"](u, w, window)
    return y, np.concatenate([window, y])[-len(window):]


def conv_without_silu(u, w, window):
    full = np.concatenate([window, u])
    return sum(full[j:j + len(u)] * w[:, j] for j in range(w.shape[1])), full[-len(window):]


def conv_sigmoid_only(u, w, window):
    c, new = conv_without_silu(u, w, window)
    return k.sigma(c), new


def l2norm_mean(x, eps, scale):
    return scale * x / np.sqrt((x ** 2).mean(-1, keepdims=True) + eps) / np.sqrt(x.shape[-1])


def l2norm_clamped(x, eps, scale):
    return scale * x / np.maximum(np.sqrt((x ** 2).sum(-1, keepdims=True)), eps)


def l2norm_unscaled(x, eps, scale):
    return O["l2norm"](x, eps, 1.0)


def gate_by_channel(z, b, a_log, dt_bias, lower):
    T, H = b.shape
    z = (z + dt_bias).reshape(T, H, -1)
    g = lower * k.sigma(np.exp(np.resize(a_log, z.shape[2])) * z)
    return g, np.exp(g), k.sigma(b)


def gate_softplus(z, b, a_log, dt_bias, lower):
    T, H = b.shape
    g = -np.exp(a_log[:H])[None, :, None] * np.logaddexp(0, (z + dt_bias).reshape(T, H, -1))
    return g, np.exp(g), k.sigma(b)


def gate_softplus_clamped(z, b, a_log, dt_bias, lower):
    g, _, beta = gate_softplus(z, b, a_log, dt_bias, lower)
    return np.maximum(g, lower), np.exp(np.maximum(g, lower)), beta


def gate_bias_after(z, b, a_log, dt_bias, lower):
    T, H = b.shape
    g = lower * k.sigma(np.exp(a_log[:H])[None, :, None] * z.reshape(T, H, -1) + dt_bias.reshape(H, -1))
    return g, np.exp(g), k.sigma(b)


def gate_a_not_exponentiated(z, b, a_log, dt_bias, lower):
    with np.errstate(divide="ignore", invalid="ignore"):
        return O["kda_gate"](z, b, np.log(np.abs(a_log)), dt_bias, lower)


def gate_bound_fixed(z, b, a_log, dt_bias, lower):
    return O["kda_gate"](z, b, a_log, dt_bias, -5.0)


def gate_beta_doubled(z, b, a_log, dt_bias, lower):
    g, alpha, beta = O["kda_gate"](z, b, a_log, dt_bias, lower)
    return g, alpha, 2 * beta


def recurrence(read_first=False, error_first=False, decay_axis=2, plain_write=False, decay_after=False):
    def f(q, key, v, alpha, beta, S):
        S, o = S.copy(), np.empty(v.shape)
        for t in range(len(q)):
            a = alpha[t][:, :, None] if decay_axis == 2 else alpha[t][:, None, :]
            old = S
            if not decay_after:
                S = a * S
            e = v[t] - np.einsum("hkv,hk->hv", old if error_first else S, key[t])
            if plain_write:
                e = v[t]
            if read_first:
                o[t] = np.einsum("hkv,hk->hv", S, q[t])
            S = S + beta[t][:, None, None] * key[t][:, :, None] * e[:, None, :]
            if decay_after:
                S = a * S
            if not read_first:
                o[t] = np.einsum("hkv,hk->hv", S, q[t])
        return o, S
    return f


def recur_transposed(q, key, v, alpha, beta, S):
    o, S = O["kda_recur"](q, key, v, alpha, beta, S.transpose(0, 2, 1))
    return o, S.transpose(0, 2, 1)


def output_gate_silu(o, w, gate, eps):
    gate = gate.reshape(o.shape)
    return k.rmsnorm(o, w, eps) * gate * k.sigma(gate)


def output_gate_before_norm(o, w, gate, eps):
    return k.rmsnorm(o * k.sigma(gate.reshape(o.shape)), w, eps)


def output_norm_over_heads(o, w, gate, eps):
    n = o / np.sqrt((o ** 2).mean((1, 2), keepdims=True) + eps)
    return n * w * k.sigma(gate.reshape(o.shape))


# --- MLA

def extra_dims_dropped(q, cache, kv_b, nope, v, pos0, scale):
    q = q.copy()
    q[:, :, nope:] = 0
    return O["mla_attend"](q, cache, kv_b, nope, v, pos0, scale)


def attend(pos=0, last=False, swap=False):
    def f(q, cache, kv_b, nope, v, pos0, scale):
        H = q.shape[1]
        if swap:  # values before keys in kv_b
            kv_b = np.roll(kv_b.reshape(H, nope + v, -1), nope, axis=1).reshape(kv_b.shape)
        seen = [len(cache) - 1 if last else max(pos0 + t + pos, 0) for t in range(len(q))]
        return np.concatenate([O["mla_attend"](q[t:t + 1], cache, kv_b, nope, v, p, scale) for t, p in enumerate(seen)])
    return f


def scale_of_nope(q, cache, kv_b, nope, v, pos0, scale):
    return O["mla_attend"](q, cache, kv_b, nope, v, pos0, nope ** -0.5)


def extra_dims_rotated(q, cache, kv_b, nope, v, pos0, scale):
    def turn(x, position):
        half = x.shape[-1] // 2
        angle = np.asarray(position)[..., None] * 10000.0 ** (-np.arange(half) / half)
        a, b = x[..., :half], x[..., half:2 * half]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], axis=-1)
    q, cache, lora = q.copy(), cache.copy(), kv_b.shape[1]
    q[:, :, nope:] = turn(q[:, :, nope:], (pos0 + np.arange(len(q)))[:, None])
    cache[:, lora:] = turn(cache[:, lora:], np.arange(len(cache)))
    return O["mla_attend"](q, cache, kv_b, nope, v, pos0, scale)


def latent_not_normed(ckv, w, eps):
    return ckv.copy()


def extra_dims_normed(ckv, w, eps):
    n = len(w)
    return np.concatenate([k.rmsnorm(ckv[:, :n], w, eps), k.rmsnorm(ckv[:, n:], 1.0, eps)], axis=1)


def norm_over_576(ckv, w, eps):
    r = np.sqrt((ckv ** 2).mean(1, keepdims=True) + eps)
    return np.concatenate([w * ckv[:, :len(w)] / r, ckv[:, len(w):]], axis=1)


# --- feed-forward

def situ(gate_cap=True, up_cap=True, capped_sigma=False, clip=False, swish=False):
    def f(g, u, b1, b2):
        cg = np.clip(g, -b1, b1) if clip else b1 * np.tanh(g / b1) if gate_cap else g
        cu = u if np.isinf(b2) or not up_cap else np.clip(u, -b2, b2) if clip else b2 * np.tanh(u / b2)
        s = k.sigma(cg if capped_sigma else g)
        return (g * k.sigma(g) * u) if swish else cg * s * cu
    return f


def up_cap_always(g, u, b1, b2):
    return O["situ_glu"](g, u, b1, 25.0 if np.isinf(b2) else b2)


def router(bias_in_weights=False, bias_ignored=False, high_id_first=False, by_id=False, softmax=False, renormalize=None, scale=None,
           over_all=False):
    def f(logits, bias, K, renorm, factor):
        s = k.softmax(logits) if softmax else k.sigma(logits)
        b = s if bias_ignored else s + bias
        if high_id_first:
            ids = b.shape[1] - 1 - np.argsort(-b[:, ::-1], axis=1, kind="stable")[:, :K]
        else:
            ids = np.argsort(-b, axis=1, kind="stable")[:, :K]
        if by_id:
            ids = np.sort(ids, axis=1)
        w = np.take_along_axis(b if bias_in_weights else s, ids, axis=1)
        if renorm if renormalize is None else renormalize:
            w = w / ((s if over_all else w).sum(1, keepdims=True) + 1e-20)
        return ids, w * (factor if scale is None else scale)
    return f


def experts_unweighted(z, experts, ids, weights, b1, b2):
    return O["moe_experts"](z, experts, ids, np.full(weights.shape, 1 / weights.shape[1]), b1, b2)


def experts_weighted_before(z, experts, ids, weights, b1, b2):
    """The weight on the expert's input instead of its output."""
    y = np.zeros_like(z)
    for t in range(len(z)):
        for e, w in zip(ids[t], weights[t]):
            w1, w3, w2 = experts(int(e))
            y[t] += w2 @ k.situ_glu(w1 @ (w * z[t]), w3 @ (w * z[t]), b1, b2)
    return y


def experts_gate_up_swapped(z, experts, ids, weights, b1, b2):
    def swapped(e):
        w1, w3, w2 = experts(e)
        return w3, w1, w2
    return O["moe_experts"](z, swapped, ids, weights, b1, b2)


def experts_last_rank_lost(z, experts, ids, weights, b1, b2):
    return O["moe_experts"](z, experts, ids[:, :-1], weights[:, :-1], b1, b2) if ids.shape[1] > 1 else 0 * z


# --- the whole model

def layers(snapshot_before=False, no_reset=False, at_end=False, from_mix=False, no_final=False, ffn_old_blocks=False):
    def f(self, P, state, trace):
        blocks, size = [], self.c["attn_res_block_size"]
        for l in range(self.c["num_hidden_layers"]):
            snapshot = l % size == (size - 1 if at_end else 0)
            old = list(blocks)
            if snapshot and snapshot_before:
                blocks.append(P)
            x = self.mix(f"layers.{l}.self_attention_res", blocks, P) if blocks else P
            if snapshot and not snapshot_before:
                blocks.append(P)
            a = self.mixer(l, x, state)
            P = (x if from_mix else P) + a if no_reset or not snapshot else a
            y = self.mix(f"layers.{l}.mlp_res", old if ffn_old_blocks and old else blocks, P) if blocks else P
            P = (y if from_mix else P) + self.ffn(l, y)
            trace.append(P)
        return P if no_final else self.mix("output_attn_res", blocks, P)
    return f


def moe(norm="sum", shared_scale=1.0):
    def f(self, p, x):
        w, c = self.w, self.c
        ids, weights = k.router_topk(k.matmul(w[p + "gate.weight"], x), w[p + "gate.e_score_correction_bias"],
                                     c["num_experts_per_token"], c["moe_renormalize"], c["routed_scaling_factor"])
        latent = c.get("routed_expert_hidden_size")
        gain = w[p + "routed_expert_norm.weight"] if latent and c["latent_moe_use_norm"] else None
        z = k.matmul(w[p + "routed_expert_down_proj.weight"], x) if latent else x
        if norm == "input" and gain is not None:
            z = k.rmsnorm(z, gain, self.eps)

        def expert(e):
            return [w[f"{p}experts.{e}.{m}.weight"] for m in ("w1", "w3", "w2")]
        if norm == "each" and gain is not None:
            y = sum(weights[:, r:r + 1] * k.rmsnorm(k.moe_experts(z, expert, ids[:, r:r + 1], np.ones((len(z), 1)), self.b1, self.b2),
                                                    gain, self.eps) for r in range(ids.shape[1]))
        else:
            y = k.moe_experts(z, expert, ids, weights, self.b1, self.b2)
            if norm == "sum" and gain is not None:
                y = k.rmsnorm(y, gain, self.eps)
        if latent:
            y = k.matmul(w[p + "routed_expert_up_proj.weight"], y)
        return y + shared_scale * self.glu(p + "shared_experts.", x)
    return f


def glu_swapped(self, p, x):
    w = self.w
    g, u = k.matmul(w[p + "up_proj.weight"], x), k.matmul(w[p + "gate_proj.weight"], x)
    return k.matmul(w[p + "down_proj.weight"], k.situ_glu(g, u, self.b1, self.b2))


def mix_query_alone(self, site, blocks, P):
    """The norm's gain is forgotten when norm and query are folded."""
    return k.attnres_mix(np.stack(blocks + [P]), self.w[f"model.{site}_proj.weight"][0], self.eps)


def kda_variant(normalise_v=False, scale_k=False, gate_of_z=False):
    def f(self, p, x, state):
        w, H, D, T = self.w, self.la["num_heads"], self.la["head_dim"], len(x)
        r = {}
        for n in "qkv":
            taps = w[p + n + "_conv1d.weight"].reshape(H * D, -1)
            r[n], state[n] = k.shortconv(k.matmul(w[p + n + "_proj.weight"], x), taps, state[n])
            r[n] = r[n].reshape(T, H, D)
        q, key = k.l2norm(r["q"], 1e-6, D ** -0.5), k.l2norm(r["k"], 1e-6, D ** -0.5 if scale_k else 1.0)
        v = k.l2norm(r["v"], 1e-6, 1.0) if normalise_v else r["v"]
        z = k.matmul(w[p + "f_a_proj.weight"], x)
        z = k.matmul(w[p + "f_b_proj.weight"], z * k.sigma(z) if gate_of_z else z)
        _, alpha, beta = k.kda_gate(z, k.matmul(w[p + "b_proj.weight"], x), w[p + "A_log"], w[p + "dt_bias"], self.la["gate_lower_bound"])
        o, state["S"] = k.kda_recur(q, key, v, alpha, beta, state["S"])
        y = k.gate_rmsnorm(o, w[p + "o_norm.weight"], k.matmul(w[p + "g_proj.weight"], x), self.eps)
        return k.matmul(w[p + "o_proj.weight"], y.reshape(T, H * D))
    return f


def sampler(order="tkpm", strict=False, high_id_first=False, absolute=False):
    def f(logits, temperature, top_k, top_p, min_p):
        n = len(logits)
        ids = n - 1 - np.argsort(-logits[::-1], kind="stable") if high_id_first else np.argsort(-logits, kind="stable")
        x, kept = logits[ids], n
        heat = temperature if order[0] == "t" else 1.0
        for step in order:
            p = k.softmax(x[:kept] / heat)
            if step == "t":
                heat = temperature
            elif step == "k" and top_k > 0:
                kept = min(kept, top_k)
            elif step == "p" and top_p < 1:
                kept = max(int(np.searchsorted(np.cumsum(p), top_p)) + (0 if strict else 1), 1)
            elif step == "m":
                kept = int((p >= min_p * (1.0 if absolute else p[0])).sum()) or 1
        return ids[:kept], k.softmax(x[:kept] / temperature)
    return f


SPECIFIED = [
    ("swapped nibbles", "matmul embed moe_experts model", {"nibbles": nibbles_swapped}),
    ("A_log by channel", "kda_gate model", {"kda_gate": gate_by_channel}),
    ("L2 norm: eps on the mean", "l2norm model", {"l2norm": l2norm_mean}),
    ("recurrence: read before write", "kda_recur kda_chunk model", {"kda_recur": recurrence(read_first=True)}),
    ("router: biased scores as weights", "router_topk model", {"router_topk": router(bias_in_weights=True)}),
    ("MoE: norm of each expert", "model", {"Model.moe": moe(norm="each")}),
    ("MLA: extra dims dropped", "mla_attend model", {"mla_attend": extra_dims_dropped}),
    ("AttnRes: snapshot before the mix", "model", {"Model.layers": layers(snapshot_before=True)}),
    ("AttnRes: running sum not reset", "model", {"Model.layers": layers(no_reset=True)}),
]

OWN = [
    ("mxfp4: nibbles in halves of a block", "matmul moe_experts model", {"decode_mxfp4": mxfp4_in_halves}),
    ("mxfp4: two's complement order", "matmul model", {"decode_mxfp4": mxfp4_sign_as_offset}),
    ("mxfp4: codes as integers", "matmul model", {"decode_mxfp4": mxfp4_integers}),
    ("mxfp4: scale clamped", "matmul", {"decode_mxfp4": mxfp4_scale_clamped}),
    ("mxfp4: first scale for the row", "matmul model", {"decode_mxfp4": mxfp4_one_scale_a_row}),
    ("int4: offset 7", "matmul embed", {"decode_weight": int_offset_7}),
    ("int8: unsigned", "matmul embed", {"decode_weight": int8_unsigned}),
    ("int8: -128 read as -127", "matmul", {"decode_weight": int8_minus_128_lost}),
    ("int3: big-endian groups", "matmul", {"codes_int3": codes_int3_big_endian}),
    ("int2: first column in the high bits", "matmul", {"codes_int2": codes_int2_reversed}),
    ("group scales column-major", "matmul", {"decode_weight": group_scales_by_column}),
    ("AttnRes: mixes normed vectors", "attnres_mix model", {"attnres_mix": attnres_of_normed}),
    ("AttnRes: score without norm", "attnres_mix model", {"attnres_mix": attnres_without_norm}),
    ("AttnRes: score over sqrt(width)", "attnres_mix model", {"attnres_mix": attnres_scaled}),
    ("AttnRes: running sum not a source", "attnres_mix model", {"attnres_mix": attnres_last_missing}),
    ("AttnRes: ninth source lost", "attnres_mix", {"attnres_mix": attnres_oldest_eight}),
    ("AttnRes: norm gain not folded", "model", {"Model.mix": mix_query_alone}),
    ("AttnRes: snapshot at the end of a block", "model", {"Model.layers": layers(at_end=True)}),
    ("AttnRes: residual from the mixture", "model", {"Model.layers": layers(from_mix=True)}),
    ("AttnRes: no final mix", "model", {"Model.layers": layers(no_final=True)}),
    ("AttnRes: FFN sees the old list", "model", {"Model.layers": layers(ffn_old_blocks=True)}),
    ("RMSNorm: of the sum", "rmsnorm gate_rmsnorm mla_append model", {"rmsnorm": rmsnorm_of_sum}),
    ("RMSNorm: eps outside the root", "rmsnorm gate_rmsnorm mla_append model", {"rmsnorm": rmsnorm_eps_outside}),
    ("RMSNorm: no eps", "rmsnorm gate_rmsnorm mla_append model", {"rmsnorm": lambda x, w, eps: O["rmsnorm"](x, w, 0.0)}),
    ("RMSNorm: eps 1e-6", "rmsnorm gate_rmsnorm mla_append model", {"rmsnorm": lambda x, w, eps: O["rmsnorm"](x, w, 1e-6)}),
    ("RMSNorm: gain is 1 + w", "rmsnorm model", {"rmsnorm": rmsnorm_unit_offset}),
    ("RMSNorm: gain forgotten", "rmsnorm gate_rmsnorm mla_append model", {"rmsnorm": lambda x, w, eps: O["rmsnorm"](x, 1.0, eps)}),
    ("RMSNorm: mean subtracted", "rmsnorm model", {"rmsnorm": layernorm}),
    ("conv: taps reversed", "shortconv model", {"shortconv": conv_reversed}),
    ("conv: window not used", "shortconv", {"shortconv": conv_forgets}),
    ("conv: window newest first", "shortconv", {"shortconv": conv_newest_first}),
    ("conv: window holds outputs", "shortconv", {"shortconv": conv_keeps_outputs}),
    ("conv: no SiLU", "shortconv model", {"shortconv": conv_without_silu}),
    ("conv: sigmoid in place of SiLU", "shortconv model", {"shortconv": conv_sigmoid_only}),
    ("L2 norm: clamped instead of eps in the root", "l2norm model", {"l2norm": l2norm_clamped}),
    ("L2 norm: q not scaled", "l2norm", {"l2norm": l2norm_unscaled}),
    ("KDA: k scaled like q", "model", {"Model.kda": kda_variant(scale_k=True)}),
    ("KDA: v normalised", "model", {"Model.kda": kda_variant(normalise_v=True)}),
    ("KDA: activation between f_a and f_b", "model", {"Model.kda": kda_variant(gate_of_z=True)}),
    ("KDA gate: softplus", "kda_gate model", {"kda_gate": gate_softplus}),
    ("KDA gate: softplus, clamped", "kda_gate model", {"kda_gate": gate_softplus_clamped}),
    ("KDA gate: bias after the factor", "kda_gate model", {"kda_gate": gate_bias_after}),
    ("KDA gate: A_log not exponentiated", "kda_gate model", {"kda_gate": gate_a_not_exponentiated}),
    ("KDA gate: bound fixed at -5", "kda_gate model", {"kda_gate": gate_bound_fixed}),
    ("KDA gate: beta doubled", "kda_gate model", {"kda_gate": gate_beta_doubled}),
    ("recurrence: error from the undecayed state", "kda_recur kda_chunk model", {"kda_recur": recurrence(error_first=True)}),
    ("recurrence: decay after the write", "kda_recur kda_chunk model", {"kda_recur": recurrence(decay_after=True)}),
    ("recurrence: decay of value columns", "kda_recur kda_chunk model", {"kda_recur": recurrence(decay_axis=1)}),
    ("recurrence: value written without error", "kda_recur kda_chunk model", {"kda_recur": recurrence(plain_write=True)}),
    ("recurrence: state transposed at the boundary", "kda_recur kda_chunk", {"kda_recur": recur_transposed}),
    ("output gate: SiLU", "gate_rmsnorm model", {"gate_rmsnorm": output_gate_silu}),
    ("output gate: before the norm", "gate_rmsnorm model", {"gate_rmsnorm": output_gate_before_norm}),
    ("output norm: over all heads", "gate_rmsnorm model", {"gate_rmsnorm": output_norm_over_heads}),
    ("MLA gate: SiLU", "gate_mul model", {"gate_mul": lambda x, gate: x * gate * k.sigma(gate)}),
    ("MLA: row does not see itself", "mla_attend model", {"mla_attend": attend(pos=-1)}),
    ("MLA: rows see the future", "mla_attend model", {"mla_attend": attend(last=True)}),
    ("MLA: values before keys", "mla_attend model", {"mla_attend": attend(swap=True)}),
    ("MLA: scale of the 128 dims only", "mla_attend model", {"mla_attend": scale_of_nope}),
    ("MLA: extra dims rotated", "mla_attend model", {"mla_attend": extra_dims_rotated}),
    ("MLA: latent not normed", "mla_append model", {"mla_append": latent_not_normed}),
    ("MLA: extra dims normed", "mla_append model", {"mla_append": extra_dims_normed}),
    ("MLA: norm over latent and extra dims", "mla_append model", {"mla_append": norm_over_576}),
    ("SiTU: SwiGLU instead", "situ_glu moe_experts model", {"situ_glu": situ(swish=True)}),
    ("SiTU: sigma of the capped gate", "situ_glu moe_experts model", {"situ_glu": situ(capped_sigma=True)}),
    ("SiTU: gate not capped", "situ_glu moe_experts model", {"situ_glu": situ(gate_cap=False)}),
    ("SiTU: up not capped", "situ_glu moe_experts model", {"situ_glu": situ(up_cap=False)}),
    ("SiTU: clipped instead of tanh", "situ_glu moe_experts model", {"situ_glu": situ(clip=True)}),
    ("SiTU: cap where there is none", "situ_glu moe_experts model", {"situ_glu": up_cap_always}),
    ("router: bias ignored", "router_topk model", {"router_topk": router(bias_ignored=True)}),
    ("router: ties to the higher id", "router_topk", {"router_topk": router(high_id_first=True)}),
    ("router: ids in ascending order", "router_topk", {"router_topk": router(by_id=True)}),
    ("router: softmax scores", "router_topk model", {"router_topk": router(softmax=True)}),
    ("router: always renormalised", "router_topk model", {"router_topk": router(renormalize=True)}),
    ("router: never renormalised", "router_topk", {"router_topk": router(renormalize=False)}),
    ("router: divided by the sum over all", "router_topk", {"router_topk": router(over_all=True)}),
    ("router: scaling factor ignored", "router_topk model", {"router_topk": router(scale=1.0)}),
    ("MoE: w1 and w3 swapped", "moe_experts model", {"moe_experts": experts_gate_up_swapped}),
    ("MoE: equal weights", "moe_experts model", {"moe_experts": experts_unweighted}),
    ("MoE: weight on the input", "moe_experts model", {"moe_experts": experts_weighted_before}),
    ("MoE: last rank lost", "moe_experts model", {"moe_experts": experts_last_rank_lost}),
    ("MoE: norm of the latent input", "model", {"Model.moe": moe(norm="input")}),
    ("MoE: no norm", "model", {"Model.moe": moe(norm="none")}),
    ("MoE: shared experts left out", "model", {"Model.moe": moe(shared_scale=0.0)}),
    ("MoE: shared experts averaged", "model", {"Model.moe": moe(shared_scale=0.5)}),
    ("GLU: gate and up swapped", "model", {"Model.glu": glu_swapped}),
    ("embedding scaled by sqrt(width)", "embed model", {"embed": lambda ids, table: table[ids] * np.sqrt(table.shape[1])}),
    ("sampling: temperature last", "sample", {"sample": sampler("kpmt")}),
    ("sampling: top_p before top_k", "sample", {"sample": sampler("tpkm")}),
    ("sampling: min_p before top_p", "sample", {"sample": sampler("tkmp")}),
    ("sampling: top_p without the crossing id", "sample", {"sample": sampler(strict=True)}),
    ("sampling: ties to the higher id", "sample", {"sample": sampler(high_id_first=True)}),
    ("sampling: min_p absolute", "sample", {"sample": sampler(absolute=True)}),
]
