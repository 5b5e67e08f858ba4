"""PyTorch model of K3 at the bundled size: training form (packed rows, chunked KDA, quantization-aware) and exact decoding.

Layout in training: tokens are flat, [T, ...]; documents lie end to end, each starting on a multiple of CHUNK, so a chunk
belongs to one document. Only the KDA scan and the attention know where rows and documents end.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

import scan as kda_scan

CHUNK = 16
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


# ---- number formats
def block_exponent(m):
    """floor(log2(m)) - 2 for positive m, by the exponent bits; zero blocks get the smallest exponent in use."""
    return ((m.contiguous().view(torch.int32) >> 23) - 127 - 2).clamp(-120, 120)


def mxfp4(w):
    """Round a matrix [..., C] to MXFP4 in blocks of 32 along C; same shape, float32."""
    b = w.reshape(*w.shape[:-1], w.shape[-1] // 32, 32)
    scale = torch.exp2(block_exponent(b.abs().amax(-1, keepdim=True)).float())
    x = b / scale
    a = x.abs()
    q = torch.where(a < 2, torch.round(a * 2) / 2, torch.where(a < 4, torch.round(a), 2 * torch.round(a / 2))).clamp(max=6.0)
    return (torch.sign(x) * q * scale).reshape(w.shape)


def bf16(w):
    return w.to(torch.bfloat16).float()


# ---- pieces; `half` selects bf16 products (training) or plain ones (exact)
def lin(x, w, half):
    if half:
        return F.linear(x.to(torch.bfloat16), w.to(torch.bfloat16))
    return F.linear(x, w)


def rms(x, w, eps=1e-5):
    x = x.float() if x.dtype != torch.float64 else x
    return w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def situ(g, u):
    dtype = g.dtype
    if dtype == torch.bfloat16:
        g, u = g.float(), u.float()
    return (100.0 * torch.tanh(g / 4) * torch.sigmoid(g) * torch.tanh(u / 25)).to(dtype)


def mixture(sources, norm, proj):
    """AttnRes over a list of [T, H]."""
    s = norm * proj.reshape(-1)
    scores = torch.stack([(v * s).sum(-1) * torch.rsqrt(v.pow(2).mean(-1) + 1e-5) for v in sources], -1)
    w = torch.softmax(scores, -1)
    out = w[:, :1] * sources[0]
    for j in range(1, len(sources)):
        out = out + w[:, j:j + 1] * sources[j]
    return out


def site(sources, norm, proj, w):
    """The input of a sub-layer: the mixture, normalised. One source means the mixture is that source."""
    x = mixture(sources, norm, proj) if len(sources) > 1 else sources[0]
    return rms(x, w)


def short_conv(u, w, taps):
    """u [T, C]; w [C, 1, 4], tap 3 is the current token; taps [T, 3]: 1 where the token 3, 2, 1 back is in the same document."""
    w = w[:, 0, :].t()
    out = w[3] * u
    for back in (1, 2, 3):
        past = F.pad(u, (0, 0, back, 0))[:-back]
        out = out + w[3 - back] * past * taps[:, 3 - back:4 - back]
    return F.silu(out)


def l2(x):
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


def kda_inputs(x, p, taps, heads, half):
    """q, k, v, g [T, h, D], beta [T, h], all float32."""
    def branch(n):
        u = lin(x, p[n + "_proj"], half)
        return short_conv(u if u.dtype == torch.float64 else u.float(), p[n + "_conv1d"], taps).view(x.shape[0], heads, -1)
    q, k, v = branch("q"), branch("k"), branch("v")
    q, k = l2(q) * q.shape[-1] ** -0.5, l2(k)
    z = lin(lin(x, p["f_a_proj"], half), p["f_b_proj"], half)
    z = (z if z.dtype == torch.float64 else z.float()) + p["dt_bias"]
    g = -5 * torch.sigmoid(torch.exp(p["A_log"][:heads]).view(1, heads, 1) * z.view(x.shape[0], heads, -1))
    beta = lin(x, p["b_proj"], half)
    return q, k, v, g, torch.sigmoid(beta if beta.dtype == torch.float64 else beta.float())


def kda_chunks(q, k, v, g, beta, keep):
    """Everything of a chunk that does not need the state. keep [N]: 0 where the NEXT chunk starts a document.

    With S the state before the chunk: O = qm S + bu, S_next = m S + b. Shapes [N, h, ...].
    """
    T, h, D = q.shape
    q, k, v, g = (x.view(T // CHUNK, CHUNK, h, D).transpose(1, 2) for x in (q, k, v, g))
    beta = beta.view(T // CHUNK, CHUNK, h).transpose(1, 2).unsqueeze(-1)
    G = torch.cumsum(g, 2)
    up = torch.exp(G)
    kp, kn, qp = k * up, k * torch.exp(-G), q * up  # |G| <= 80 inside 16 tokens: in range of float32
    A = torch.tril(kp @ kn.transpose(-1, -2), -1) * beta
    B = torch.tril(qp @ kn.transpose(-1, -2))
    X = kda_scan.solve_unit_lower(A, torch.cat([v, kp], -1) * beta)
    U, Wm = X[..., :D], X[..., D:]
    last = G[:, :, -1:, :]
    kd = (k * torch.exp(last - G)).transpose(-1, -2)
    keep = keep.view(-1, 1, 1, 1)
    m = (torch.diag_embed(torch.exp(last[:, :, 0])) - kd @ Wm) * keep
    return m, (kd @ U) * keep, qp - B @ Wm, B @ U


def kda_output(x, qm, bu, S, p, half):
    o = qm @ S + bu
    T = x.shape[0]
    o = o.transpose(1, 2).reshape(T, o.shape[1], -1)
    o = rms(o, p["o_norm"])
    gate = lin(x, p["g_proj"], half)
    o = o.reshape(T, -1) * torch.sigmoid(gate if gate.dtype == torch.float64 else gate.float())
    out = lin(o, p["o_proj"], half)
    return out if out.dtype == torch.float64 else out.float()


def mla_inputs(x, p, c, half):
    """q [T, h, nope + rope], latent [T, kv_lora] after its norm, key part [T, rope]."""
    q = lin(rms(lin(x, p["q_a_proj"], half), p["q_a_layernorm"]), p["q_b_proj"], half).view(x.shape[0], c["num_attention_heads"], -1)
    a = lin(x, p["kv_a_proj_with_mqa"], half)
    return q, rms(a[:, :c["kv_lora_rank"]], p["kv_a_layernorm"]), a[:, c["kv_lora_rank"]:]


def mla_expand(latent, kr, p, c, half):
    """Materialised keys [T, h, nope + rope] and values [T, h, v]."""
    kv = lin(latent, p["kv_b_proj"], half).view(latent.shape[0], c["num_attention_heads"], -1)
    nope = c["qk_nope_head_dim"]
    k = torch.cat([kv[..., :nope], kr.unsqueeze(1).expand(-1, kv.shape[1], -1).to(kv.dtype)], -1)
    return k, kv[..., nope:]


def mla_output(x, o, p, half):
    gate = lin(x, p["g_proj"], half)
    if gate.dtype != torch.float64:
        gate, o = gate.float(), o.float()
    out = lin(o.reshape(x.shape[0], -1) * torch.sigmoid(gate), p["o_proj"], half)
    return out if out.dtype == torch.float64 else out.float()


def glu(x, gate, up, down, half):
    out = lin(situ(lin(x, gate, half), lin(x, up, half)), down, half)
    return out if out.dtype == torch.float64 else out.float()


def route(x, gate, bias, k):
    """Dense routing weights [T, E]: zero for experts that were not picked."""
    s = torch.sigmoid(F.linear(x, gate))
    pick = torch.topk(s + bias, k, dim=-1).indices
    mask = torch.zeros_like(s).scatter(1, pick, 1.0)
    w = s * mask
    return w / (w.sum(-1, keepdim=True) + 1e-20), mask


def moe(x, p, experts, k, half):
    """All experts are evaluated and the ones not picked weigh zero: at this size cheaper than sorting tokens, and exact."""
    w, mask = route(x, p["gate"], p["bias"], k)
    z = lin(x, p["routed_expert_down_proj"], half)
    E, I, L = experts["w1"].shape
    h = situ(lin(z, experts["w1"].reshape(E * I, L), half), lin(z, experts["w3"].reshape(E * I, L), half))
    h = (h.view(-1, E, I) * w.unsqueeze(-1).to(h.dtype)).view(-1, E * I)
    y = rms(lin(h, experts["w2"].transpose(1, 0).reshape(L, E * I), half), p["routed_expert_norm"])
    y = lin(y, p["routed_expert_up_proj"], half)
    y = y if y.dtype == torch.float64 else y.float()
    return y + glu(x, p["shared_gate"], p["shared_up"], p["shared_down"], half), mask


def attention(q, k, v, docs, cu, longest):
    """Causal attention inside each document. q, k [T, h, 48], v [T, h, 64]."""
    scale = q.shape[-1] ** -0.5
    if q.is_cuda and q.dtype == torch.bfloat16:
        from torch.nn.attention.varlen import varlen_attn
        pad = v.shape[-1] - q.shape[-1]
        q, k = F.pad(q, (0, pad)), F.pad(k, (0, pad))
        return varlen_attn(q.contiguous(), k.contiguous(), v.contiguous(), cu, cu, longest, longest, scale=scale, window_size=(-1, 0))
    at = torch.arange(q.shape[0], device=q.device)
    mask = (docs[:, None] == docs[None, :]) & (at[:, None] >= at[None, :])
    s = torch.einsum("thd,shd->hts", q, k) * scale
    return torch.einsum("hts,shd->thd", torch.softmax(s.masked_fill(~mask, -1e30), -1), v)


class Mini(nn.Module):
    def __init__(self, c, seed=1):
        super().__init__()
        self.c = c
        H, n = c["hidden_size"], c["num_hidden_layers"]
        la = c["linear_attn_config"]
        self.heads, self.dim = la["num_heads"], la["head_dim"]
        self.is_mla = [i + 1 in la["full_attn_layers"] for i in range(n)]
        gen = torch.Generator().manual_seed(seed)
        self.w = nn.ParameterDict()

        def put(name, shape, std=None, fill=None):
            x = torch.randn(shape, generator=gen) * std if std is not None else torch.full(shape, float(fill))
            self.w[name.replace(".", "/")] = nn.Parameter(x)

        def mat(name, out, inn, gain=1.0):
            put(name, (out, inn), gain / inn ** 0.5)
        put("embed", (c["vocab_size"], H), 0.7)
        put("norm", (H,), fill=1)
        put("out_res_norm", (H,), fill=1)
        put("out_res_proj", (1, H), fill=0)
        mat("head", c["vocab_size"], H, 0.5)
        for i in range(n):
            self._init_layer(i, put, mat, gen)
        self.by_layer = {}
        self.register_buffer("bias", torch.zeros(n, c["num_experts"]))

    def _init_layer(self, i, put, mat, gen):
        c, H, b = self.c, self.c["hidden_size"], f"{i}."
        for name in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"):
            put(b + name, (H,), fill=1)
        for name in ("self_attention_res_proj", "mlp_res_proj"):
            put(b + name, (1, H), fill=0)
        if self.is_mla[i]:
            h, nope, rope, v = (c[k] for k in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
            mat(b + "q_a_proj", c["q_lora_rank"], H)
            put(b + "q_a_layernorm", (c["q_lora_rank"],), fill=1)
            mat(b + "q_b_proj", h * (nope + rope), c["q_lora_rank"])
            mat(b + "kv_a_proj_with_mqa", c["kv_lora_rank"] + rope, H)
            put(b + "kv_a_layernorm", (c["kv_lora_rank"],), fill=1)
            mat(b + "kv_b_proj", h * (nope + v), c["kv_lora_rank"])
            mat(b + "g_proj", h * v, H)
            mat(b + "o_proj", H, h * v, 0.5)
        else:
            C, D = self.heads * self.dim, self.dim
            for x in "qkvg":
                mat(b + x + "_proj", C, H)
            mat(b + "o_proj", H, C, 0.5)
            for x in "qkv":
                put(b + x + "_conv1d", (C, 1, 4), 0.2)
                self.w[f"{i}/{x}_conv1d"].data[:, :, 3] += 0.7
            mat(b + "f_a_proj", D, H)
            mat(b + "f_b_proj", C, D)
            mat(b + "b_proj", self.heads, H)
            put(b + "A_log", (self.heads,), fill=0)
            self.w[f"{i}/A_log"].data += torch.linspace(-0.4, 0.4, self.heads)
            put(b + "dt_bias", (C,), fill=0)
            self.w[f"{i}/dt_bias"].data += torch.empty(C).uniform_(-7, -1, generator=gen)
            put(b + "o_norm", (D,), fill=1)
        if i < c["first_k_dense_replace"]:
            for x in ("gate", "up"):
                mat(b + x, c["intermediate_size"], H)
            mat(b + "down", H, c["intermediate_size"], 0.5)
            return
        E, L, I = c["num_experts"], c["routed_expert_hidden_size"], c["moe_intermediate_size"]
        mat(b + "gate", E, H)
        mat(b + "routed_expert_down_proj", L, H)
        put(b + "routed_expert_norm", (L,), fill=1)
        mat(b + "routed_expert_up_proj", H, L, 0.5)
        for x in ("shared_gate", "shared_up"):
            mat(b + x, I * c["num_shared_experts"], H)
        mat(b + "shared_down", H, I * c["num_shared_experts"], 0.5)
        put(b + "w1", (E, I, L), L ** -0.5)
        put(b + "w3", (E, I, L), L ** -0.5)
        put(b + "w2", (E, L, I), I ** -0.5)

    def names(self, i):
        """[(short name, parameter)] of layer i, looked up once: walking the dictionary takes longer than the layer."""
        if not self.by_layer:
            for key, p in self.w.items():
                layer, _, name = key.rpartition("/")
                self.by_layer.setdefault(layer, []).append((name, p))
        return self.by_layer[str(i)]

    def layer(self, i, rounded):
        """Parameters of layer i by short name; rounded: as they will be stored."""
        out = {}
        for name, p in self.names(i):
            stored_f32 = "conv1d" in name or name in ("A_log", "dt_bias", "o_norm")
            out[name] = p if stored_f32 or not rounded else mxfp4(p) if name in EXPERTS else bf16(p)
        out["bias"] = self.bias[i]
        return out

    def top(self, name, rounded):
        return bf16(self.w[name]) if rounded else self.w[name]


class Functions:
    """The pieces, compiled or plain."""

    def __init__(self, compiled):
        wrap = (lambda f: torch.compile(f, dynamic=False)) if compiled else (lambda f: f)
        for f in (site, kda_front, kda_output, mla_front, mla_output, glu, moe, head_loss):
            setattr(self, f.__name__, wrap(f))


def kda_front(x, p, taps, keep, heads, half):
    return kda_chunks(*kda_inputs(x, p, taps, heads, half), keep)


def mla_front(x, p, c, half):
    q, latent, kr = mla_inputs(x, p, c, half)
    return (q, *mla_expand(latent, kr, p, c, half))


def head_loss(z, head, targets, weights, half):
    """(weighted loss sum, correct own-token predictions, own tokens); targets [T] is the next token."""
    logits = lin(z, head, half).float()
    nll = F.cross_entropy(logits, targets, reduction="none")
    own = weights >= 1
    right = (logits.argmax(-1) == targets) & own
    return (nll * weights).sum(), (nll.detach() * own).sum(), right.sum(), own.sum()


def hidden(model, f, batch, half=True):
    """Final normed hidden [T, H] and per-layer expert load [n, E]. batch: ids, taps, keep, docs, cu, longest, rows, live."""
    c = model.c
    P = F.embedding(batch["ids"], model.w["embed"])
    blocks, loads = [], []
    for i in range(c["num_hidden_layers"]):
        p = model.layer(i, False)
        x = f.site(blocks + [P], p["self_attention_res_norm"], p["self_attention_res_proj"], p["input_layernorm"])
        fresh = i % c["attn_res_block_size"] == 0
        if fresh:
            blocks = blocks + [P]
        if model.is_mla[i]:
            q, k, v = f.mla_front(x, {n: p[n] for n in MLA_FRONT}, c, half)
            o = attention(q, k, v, batch["docs"], batch["cu"], batch["longest"])
            a = f.mla_output(x, o, {n: p[n] for n in ("g_proj", "o_proj")}, half)
        else:
            m, b, qm, bu = f.kda_front(x, {n: p[n] for n in KDA_FRONT}, batch["taps"], batch["keep"], model.heads, half)
            S = kda_scan.scan(m, b, batch["rows"])
            a = f.kda_output(x, qm, bu, S, {n: p[n] for n in ("o_norm", "g_proj", "o_proj")}, half)
        P = a if fresh else P + a
        y = f.site(blocks + [P], p["mlp_res_norm"], p["mlp_res_proj"], p["post_attention_layernorm"])
        if i < c["first_k_dense_replace"]:
            P = P + f.glu(y, p["gate"], p["up"], p["down"], half)
        else:
            out, mask = f.moe(y, {n: p[n] for n in MOE_TRUNK}, {n: p[n] for n in EXPERTS}, c["num_experts_per_token"], half)
            loads.append((mask.detach() * batch["live"].unsqueeze(-1)).sum(0))
            P = P + out
    z = f.site(blocks + [P], model.w["out_res_norm"], model.w["out_res_proj"], model.w["norm"])
    return z, torch.stack(loads)


class Rounder:
    """Copies the master parameters, rounded as they will be stored, into the shadow that the forward pass reads.

    The shadow's gradient is taken as the master's: the straight-through estimator.
    """

    def __init__(self, master, shadow, compiled):
        self.pairs = {"bf16": [], "f32": [], "mxfp4": []}
        for key, p in master.w.items():
            name = key.split("/")[-1]
            kind = "mxfp4" if name in EXPERTS else "f32" if "conv1d" in name or name in ("A_log", "dt_bias", "o_norm") else "bf16"
            self.pairs[kind].append((shadow.w[key].data, p.data))
        self.short = [torch.empty_like(p, dtype=torch.bfloat16) for _, p in self.pairs["bf16"]]
        self.quantize = torch.compile(mxfp4, dynamic=False) if compiled else mxfp4

    @torch.no_grad()
    def __call__(self):
        to, of = zip(*self.pairs["bf16"])
        torch._foreach_copy_(self.short, of)
        torch._foreach_copy_(to, self.short)
        torch._foreach_copy_(*zip(*self.pairs["f32"]))
        for to, of in self.pairs["mxfp4"]:
            to.copy_(self.quantize(of))


EXPERTS = ("w1", "w2", "w3")
MLA_FRONT = ("q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj")
KDA_FRONT = ("q_proj", "k_proj", "v_proj", "q_conv1d", "k_conv1d", "v_conv1d", "f_a_proj", "f_b_proj", "b_proj", "A_log", "dt_bias")
MOE_TRUNK = ("gate", "bias", "routed_expert_down_proj", "routed_expert_norm", "routed_expert_up_proj", "shared_gate", "shared_up", "shared_down")
