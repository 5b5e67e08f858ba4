"""Muon for the matrices, AdamW for the rest. Every changing number is a tensor, so that a step can be captured in a CUDA graph."""
import torch

ADAM = ("embed", "head", "norm", "res_proj", "conv1d", "A_log", "dt_bias", "b_proj", "layernorm")
BETA1, BETA2 = 0.9, 0.95


def orthogonal(G):
    """Newton-Schulz iteration on a batch of matrices [n, a, b]: singular values toward 1."""
    a, b, c = 3.4445, -4.7750, 2.0315
    X = G.to(torch.bfloat16) if G.is_cuda else G
    flip = X.shape[-2] > X.shape[-1]
    if flip:
        X = X.transpose(-1, -2)
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        A = X @ X.transpose(-1, -2)
        X = a * X + (b * A + c * A @ A) @ X
    return (X.transpose(-1, -2) if flip else X).float()


class Optimizer:
    """Matrices of one shape are stepped together. The update's root mean square is 0.2 of the rate, as AdamW's would be.

    master: the float32 parameters; shadow: what the forward pass reads (rounded as stored), whose gradients count.
    """

    def __init__(self, master, shadow, lr, lr_adam, decay):
        self.lr, self.lr_adam, self.decay, self.n = lr, lr_adam, decay, 0
        self.groups, self.flat = {}, []
        for key, p in master.w.items():
            name, q = key.split("/")[-1], shadow.w[key]
            if p.dim() < 2 or name == "gate" and p.shape[0] == master.c["num_experts"] or any(a in name for a in ADAM):
                self.flat.append((p.data, q))
            else:
                self.groups.setdefault(tuple(p.shape), []).append((p.data, q))
        device = master.bias.device
        self.moments = {s: torch.zeros(len(ps), *s, device=device) for s, ps in self.groups.items()}
        self.sizes = [p.numel() for p, _ in self.flat]
        self.m, self.v = (torch.zeros(sum(self.sizes), device=device) for _ in range(2))
        self.all = [q for ps in self.groups.values() for _, q in ps] + [q for _, q in self.flat]
        # Muon rate, its decay factor, Adam rate over its first correction, second correction
        self.numbers = torch.zeros(4, device=device)

    def prepare(self, scale):
        """Set the numbers of the next step."""
        self.n += 1
        self.numbers.copy_(torch.tensor([self.lr * scale, 1 - self.lr * scale * self.decay,
                                         self.lr_adam * scale / (1 - BETA1 ** self.n), 1 - BETA2 ** self.n]))

    @torch.no_grad()
    def step(self):
        norm = torch.nn.utils.clip_grad_norm_(self.all, 1.0, foreach=True)
        rate, keep, rate_adam, second = self.numbers.unbind(0)
        for shape, ps in self.groups.items():
            g = torch.stack([q.grad for _, q in ps])
            self.moments[shape].lerp_(g, 0.05)
            u = orthogonal(g.lerp(self.moments[shape], 0.95).view(-1, *shape[-2:])).view_as(g) * (0.2 * max(shape[-2:]) ** 0.5 * rate)
            for (p, _), x in zip(ps, u.unbind(0)):
                p.mul_(keep).sub_(x)
        # the pair of AttnRes vectors before layer 0 is stored but never used, so it has no gradient
        g = torch.cat([(torch.zeros_like(q) if q.grad is None else q.grad).reshape(-1) for _, q in self.flat])
        self.m.lerp_(g, 1 - BETA1)
        self.v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
        u = self.m * rate_adam / ((self.v / second).sqrt() + 1e-9)
        torch._foreach_sub_([p for p, _ in self.flat], [x.view_as(p) for (p, _), x in zip(self.flat, u.split(self.sizes))])
        return norm

    def state(self):
        return dict(moments=self.moments, m=self.m, v=self.v, n=self.n)

    def load(self, state):
        for k, v in state["moments"].items():
            self.moments[k].copy_(v)
        self.m.copy_(state["m"])
        self.v.copy_(state["v"])
        self.n = state["n"]
