"""Exact decoding, one token at a time for many sequences at once: the plain recurrence, no chunks, no packing."""
import torch
import torch.nn.functional as F

import model as M


class Decoder:
    """Feeds token t of every sequence in the same step; sequences never see each other."""

    def __init__(self, net, n_seq, longest, dtype=torch.float32):
        self.net, self.c = net, net.c
        self.device = net.w["embed"].device
        self.p = [{k: v.detach().to(dtype) for k, v in net.layer(i, False).items()} for i in range(net.c["num_hidden_layers"])]
        self.dtype = dtype
        self.places = torch.arange(longest, device=self.device)
        self.at = torch.zeros(1, dtype=torch.long, device=self.device)  # the position being fed
        self.seen = longest  # cache entries looked at; those behind the position are masked
        h, D, c = net.heads, net.dim, net.c

        def zeros(*shape):
            return torch.zeros(shape, dtype=dtype, device=self.device)
        self.S = [None if m else zeros(n_seq, h, D, D) for m in net.is_mla]
        self.window = [None if m else {x: zeros(n_seq, 4, h * D) for x in "qkv"} for m in net.is_mla]
        self.latent = [zeros(n_seq, longest, c["kv_lora_rank"]) if m else None for m in net.is_mla]
        self.kr = [zeros(n_seq, longest, c["qk_rope_head_dim"]) if m else None for m in net.is_mla]

    def _kda(self, i, x):
        p, h, D = self.p[i], self.net.heads, self.net.dim
        r = {}
        for n in "qkv":
            w = self.window[i][n]
            w[:, :3] = w[:, 1:].clone()
            w[:, 3] = F.linear(x, p[n + "_proj"])
            r[n] = F.silu((w * p[n + "_conv1d"][:, 0, :].t()).sum(1)).view(-1, h, D)
        q, k, v = M.l2(r["q"]) * D ** -0.5, M.l2(r["k"]), r["v"]
        z = F.linear(F.linear(x, p["f_a_proj"]), p["f_b_proj"]) + p["dt_bias"]
        alpha = torch.exp(-5 * torch.sigmoid(torch.exp(p["A_log"][:h]).view(1, h, 1) * z.view(-1, h, D)))
        beta = torch.sigmoid(F.linear(x, p["b_proj"])).unsqueeze(-1)
        S = self.S[i]
        S *= alpha.unsqueeze(-1)
        e = v - torch.einsum("bhkv,bhk->bhv", S, k)
        S += torch.einsum("bhk,bhv->bhkv", beta * k, e)
        o = M.rms(torch.einsum("bhkv,bhk->bhv", S, q), p["o_norm"]).reshape(x.shape[0], -1)
        return F.linear(o * torch.sigmoid(F.linear(x, p["g_proj"])), p["o_proj"])

    def _mla(self, i, x):
        p, c = self.p[i], self.c
        q, latent, kr = M.mla_inputs(x, p, c, False)
        self.latent[i].index_copy_(1, self.at, latent.unsqueeze(1))
        self.kr[i].index_copy_(1, self.at, kr.unsqueeze(1))
        lat, kr = (x[:, :self.seen] for x in (self.latent[i], self.kr[i]))
        nope, h = c["qk_nope_head_dim"], c["num_attention_heads"]
        up = p["kv_b_proj"].view(h, -1, lat.shape[-1])
        ql = torch.einsum("bhn,hnl->bhl", q[..., :nope], up[:, :nope])
        s = torch.einsum("bhl,btl->bht", ql, lat) + torch.einsum("bhr,btr->bht", q[..., nope:], kr)
        s = (s * q.shape[-1] ** -0.5).masked_fill(self.places[:self.seen] > self.at, -1e30)
        m = torch.einsum("bht,btl->bhl", torch.softmax(s, -1), lat)
        return M.mla_output(x, torch.einsum("bhl,hvl->bhv", m, up[:, nope:]), p, False)

    def step(self, ids):
        """ids [n_seq] -> logits [n_seq, V]"""
        c, net = self.c, self.net
        P = net.w["embed"].detach().to(self.dtype)[ids]
        blocks = []
        for i in range(c["num_hidden_layers"]):
            p = self.p[i]
            x = M.site(blocks + [P], p["self_attention_res_norm"], p["self_attention_res_proj"], p["input_layernorm"])
            fresh = i % c["attn_res_block_size"] == 0
            if fresh:
                blocks = blocks + [P]
            a = self._mla(i, x) if net.is_mla[i] else self._kda(i, x)
            P = a if fresh else P + a
            y = M.site(blocks + [P], p["mlp_res_norm"], p["mlp_res_proj"], p["post_attention_layernorm"])
            if i < c["first_k_dense_replace"]:
                P = P + M.glu(y, p["gate"], p["up"], p["down"], False)
            else:
                P = P + M.moe(y, p, p, c["num_experts_per_token"], False)[0]
        w = {n: net.w[n].detach().to(self.dtype) for n in ("out_res_norm", "out_res_proj", "norm", "head")}
        self.at += 1
        return F.linear(M.site(blocks + [P], w["out_res_norm"], w["out_res_proj"], w["norm"]), w["head"])


class Replayed:
    """Decoder.step on a GPU as a CUDA graph, captured anew when the number of cache entries looked at grows."""

    def __init__(self, dec):
        self.dec, self.seen, self.graph = dec, 0, None
        self.ids = torch.zeros(dec.S[0].shape[0], dtype=torch.long, device=dec.device)

    def __call__(self, ids):
        self.ids.copy_(ids)
        if self.seen != self.dec.seen:
            state = [x for x in (*self.dec.S, *self.dec.latent, *self.dec.kr, self.dec.at) if x is not None]
            state += [x for w in self.dec.window if w is not None for x in w.values()]
            before = [x.clone() for x in state]
            self.dec.step(self.ids)  # warm-up: changes the state, which is put back
            torch.cuda.synchronize()
            torch._foreach_copy_(state, before)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = self.dec.step(self.ids)
            self.seen = self.dec.seen
        self.graph.replay()
        return self.out


@torch.no_grad()
def greedy(net, prompts, n_new, stop, margins=None):
    """Greedy continuations (lists of ids, the stop token included) of many prompts.

    margins, if a list: receives per prompt the smallest lead of the best logit over the second.
    """
    longest = max(map(len, prompts)) + n_new
    device = net.w["embed"].device
    dec = Decoder(net, len(prompts), -(-longest // 128) * 128)
    step = Replayed(dec) if device.type == "cuda" else dec.step
    grid = torch.zeros(len(prompts), longest + 1, dtype=torch.long)
    length = torch.tensor([len(p) for p in prompts])
    for i, p in enumerate(prompts):
        grid[i, :len(p)] = torch.tensor(p)
    grid, length = grid.to(device), length.to(device)
    done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    end = length + n_new
    lead = torch.full((len(prompts),), 1e9, device=device)
    for t in range(longest - 1):
        if t % 128 == 0:
            dec.seen = t + 128
        top = step(grid[:, t]).topk(2, dim=-1)
        best = top.indices[:, 0]
        writing = (t + 1 >= length) & (t + 1 < end) & ~done
        grid[:, t + 1] = torch.where(writing, best, grid[:, t + 1])
        lead = torch.where(writing, torch.minimum(lead, top.values[:, 0] - top.values[:, 1]), lead)
        done |= writing & (best == stop)
        if t % 32 == 0 and bool((done | (t + 1 >= end)).all()):
            break
    if margins is not None:
        margins += lead.tolist()
    out = []
    for i, row in enumerate(grid.cpu().tolist()):
        new = row[len(prompts[i]):len(prompts[i]) + n_new]
        out.append(new[:new.index(stop) + 1] if stop in new else new)
    return out
