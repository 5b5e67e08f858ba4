"""Trains the bundled model: train.py FOLDER --out DIR --minutes M [--resume CKPT]

FOLDER holds the tokenizer. Time decides: the learning rate follows the fraction of the total minutes that has passed,
so that a run split over several calls (--begin, --total) is one schedule.
"""
import argparse
import json
import multiprocessing as mp
import os
import queue
import random
import signal
import sys
import time

import torch

import batch
import config
import data
import model
import optim
import tok

STOP = []


def worker(folder, seed, length, rows, is_long, out):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent's handler is inherited, and would keep this process alive
    t = tok.Tokenizer(folder)
    n = 0
    while True:
        out.put(batch.host_batch(*data.rows(seed * 1000003 + n, t, rows, length, is_long)))
        n += 1


class Feed:
    """Rows drawn by worker processes; when they fall behind, earlier rows are shown again."""

    def __init__(self, folder, seed, tokens, short, long, n_proc):
        self.tokens, self.lengths = tokens, {False: short, True: long}
        self.queues = {k: mp.Queue(64) for k in (False, True)}
        self.old, self.procs, self.replayed = {False: [], True: []}, [], 0
        for i in range(n_proc):
            is_long = i % 3 == 1
            p = mp.Process(target=worker, daemon=True, args=(
                folder, seed + i, self.lengths[is_long], tokens // self.lengths[is_long], is_long, self.queues[is_long]))
            p.start()
            self.procs.append(p)

    def next(self, is_long):
        old = self.old[is_long]
        try:
            got = self.queues[is_long].get(timeout=0.002 if old else 120)
        except queue.Empty:
            self.replayed += 1
            return random.choice(old)
        if len(old) < 200:
            old.append(got)
        else:
            old[random.randrange(200)] = got
        return got

    def close(self):
        for p in self.procs:
            p.kill()


def rate(x):
    """Learning rate factor at fraction x of the run: a short warm-up, flat, then down to zero."""
    return min(1.0, x / 0.01 + 0.02) * min(1.0, max(0.0, (1 - x) / 0.55))


def save(path, net, opt, info):
    torch.save(dict(w={k: v.data for k, v in net.w.items()}, bias=net.bias, opt=opt.state(), info=info), path + ".tmp")
    os.replace(path + ".tmp", path)


def load(path, net, opt=None):
    state = torch.load(path, map_location=net.bias.device, weights_only=False)
    for k, v in state["w"].items():
        net.w[k].data.copy_(v)
    net.bias.copy_(state["bias"])
    if opt is not None and "opt" in state:
        opt.load(state["opt"])
    return state["info"]


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("folder")
    ap.add_argument("--out", required=True)
    ap.add_argument("--minutes", type=float, required=True, help="wall time of this call's training")
    ap.add_argument("--begin", type=float, default=0, help="minutes of the schedule that earlier calls used")
    ap.add_argument("--total", type=float, help="minutes of the whole schedule")
    ap.add_argument("--resume")
    ap.add_argument("--tokens", type=int, default=61440)
    ap.add_argument("--short", type=int, default=1024)
    ap.add_argument("--long", type=int, default=5120)
    ap.add_argument("--long-from", type=float, default=0.25, help="fraction of the schedule after which long rows come")
    ap.add_argument("--long-share", type=float, default=0.25)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--lr-adam", type=float, default=3e-3)
    ap.add_argument("--decay", type=float, default=0.05)
    ap.add_argument("--procs", type=int, default=10)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--plain", action="store_true", help="no compilation")
    ap.add_argument("--no-graph", action="store_true", help="compiled, but no CUDA graph")
    ap.add_argument("--steps", type=int, default=0, help="stop after this many steps (for trials)")
    return ap.parse_args()


class Step:
    """One training step on fixed buffers; on a GPU captured as a CUDA graph, one for each row length."""

    def __init__(self, master, a, device):
        self.net, self.a, self.device, self.half = master, a, device, device == "cuda"
        self.shadow = model.Mini(master.c).to(device)
        self.shadow.bias = master.bias  # one router bias for both
        compiled = self.half and not a.plain
        self.f, self.round = model.Functions(compiled), model.Rounder(master, self.shadow, compiled)
        self.opt = optim.Optimizer(master, self.shadow, a.lr, a.lr_adam, a.decay)
        self.balance = torch.zeros((), device=device)
        self.totals = torch.zeros(4, device=device)
        self.load = torch.zeros(master.c["num_hidden_layers"] - master.c["first_k_dense_replace"], master.c["num_experts"], device=device)
        self.buffers, self.graphs = None, {}

    def _compute(self, length):
        b = dict(self.buffers, longest=length, rows=self.a.tokens // length)
        self.round()
        for p in self.shadow.w.values():
            p.grad = None
        z, load_ = model.hidden(self.shadow, self.f, b, half=self.half)
        loss, nll, right, own = self.f.head_loss(z, self.shadow.w["head"], b["targets"], b["weights"], self.half)
        (loss / b["weights"].sum()).backward()
        norm = self.opt.step()
        with torch.no_grad():
            # router biases move towards even load: up where an expert got less than the mean
            bias = self.net.bias[self.net.c["first_k_dense_replace"]:]
            bias += self.balance * torch.sign(load_.mean(1, keepdim=True) - load_)
            bias -= bias.mean(1, keepdim=True)
            self.load.lerp_(load_, 0.02)
            self.totals += torch.stack([nll, right.float(), own.float(), norm.float()])

    def _fill(self, host):
        fresh = {k: torch.from_numpy(v) for k, v in host.items()}
        if self.buffers is None:
            self.buffers = {k: v.to(self.device) for k, v in fresh.items()}
        for k, v in fresh.items():
            self.buffers[k].copy_(v)

    def __call__(self, host, length, scale, balance):
        self._fill(host)
        self.opt.prepare(scale)
        self.balance.fill_(balance)
        if not self.half or self.a.plain or self.a.no_graph:
            return self._compute(length)
        if length not in self.graphs:
            self._capture(length)
        self.graphs[length].replay()

    def _capture(self, length):
        """Three ordinary steps first (compilation, library set-up) at rate zero; they do not count."""
        numbers, balance = self.opt.numbers.clone(), self.balance.clone()
        self.opt.numbers.copy_(torch.tensor([0.0, 1.0, 0.0, 1.0]))
        self.balance.zero_()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._compute(length)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.opt.numbers.copy_(numbers)
        self.balance.copy_(balance)
        self.totals.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._compute(length)
        self.graphs[length] = graph
        print(f"captured rows of {length}", flush=True)


def report(step, info, a, x, began, mark, is_long):
    s = step.totals.tolist()
    step.totals.zero_()
    line = dict(step=info["step"], x=round(x, 4), nll=round(s[0] / s[2], 4), acc=round(s[1] / s[2], 4), norm=round(s[3] / 50, 3),
                peak=round((step.load.amax(1) / step.load.mean(1)).max().item(), 2), long=is_long, s=round(time.time() - began, 1))
    if mark:
        line["tok_s"] = round(50 * a.tokens / (time.time() - mark))
    return line


def main():
    a = arguments()
    a.total = a.total or a.minutes
    device = "cuda" if torch.cuda.is_available() else "cpu"
    signal.signal(signal.SIGTERM, lambda *_: STOP.append(1))
    began = time.time()
    feed = Feed(a.folder, a.seed + int(a.begin * 1000), a.tokens, a.short, a.long, a.procs)
    net = model.Mini(config.text_config(), a.seed).to(device)
    step = Step(net, a, device)
    info = dict(step=0, tokens=0, seconds=0.0, replayed=0)
    if a.resume:
        info = load(a.resume, net, step.opt)
    print(f"device {device}, {sum(p.numel() for p in net.w.values())} parameters, start {time.time() - began:.1f} s", flush=True)
    r, log, saved, trained_before = random.Random(a.seed + info["step"]), [], time.time(), info["seconds"]
    n0, mark, x = info["step"], None, 0.0
    while not STOP:
        x = (a.begin * 60 + time.time() - began) / (a.total * 60)
        if time.time() - began > a.minutes * 60 or x >= 1 or (a.steps and info["step"] - n0 >= a.steps):
            break
        is_long = x > a.long_from and r.random() < a.long_share
        # moments may start from zero after a resume: come up to the rate over a hundred steps
        up = min(1.0, (info["step"] - n0 + 1) / 100)
        step(feed.next(is_long), a.long if is_long else a.short, up * rate(x), 2e-3 * rate(x) if x < 0.9 else 0.0)
        info["step"] += 1
        info["tokens"] += a.tokens
        if info["step"] % 50 == 0:
            line = report(step, info, a, x, began, mark, is_long)
            mark = time.time()
            log.append(line)
            if info["step"] % 200 == 0 or info["step"] - n0 <= 100:
                print(json.dumps(line), flush=True)
        if time.time() - saved > 120:
            save(os.path.join(a.out, "checkpoint.pt"), net, step.opt, info)
            saved = time.time()
    if device == "cuda":
        torch.cuda.synchronize()
        print("memory", torch.cuda.max_memory_allocated() >> 20, "MiB", flush=True)
    info["seconds"] = trained_before + time.time() - began
    info["replayed"] += feed.replayed
    feed.close()
    save(os.path.join(a.out, "checkpoint.pt"), net, step.opt, info)
    with open(os.path.join(a.out, "log.jsonl"), "a", encoding="utf-8") as out:
        out.writelines(json.dumps(x) + "\n" for x in log)
    print("end", json.dumps(info), flush=True)


if __name__ == "__main__":
    sys.exit(main())
