#!/usr/bin/env python3
"""The two references against each other: the tiny checkpoint and the five random ones.

    check.py            float64 within 1e-11, float32 within 1e-4, of the largest logit of each position; equal greedy ids
    check.py MODEL...   the same for given folders

The float32 bound is what random weights cost, not what the formulas allow: gates that switch between capped and zero amplify
every rounding. The column `rounded` shows the least that an engine with float32 activations can reach: the float64 model with the
result of every operation rounded to float32.
"""
import os
import sys
import tempfile

import numpy as np
import torch

import cases
import k3_numpy
import k3_torch
import make_random


def worst(a, b):
    """Largest difference relative to the largest value, over positions."""
    return float((np.abs(a - b).max(1) / np.abs(b).max(1)).max())


ROUNDED = ("embed", "attnres_mix", "rmsnorm", "matmul", "shortconv", "l2norm", "kda_gate", "gate_rmsnorm", "mla_append", "mla_attend",
           "gate_mul", "situ_glu", "router_topk", "moe_experts", "add")


def rounded_logits(model, ids):
    def single(a):
        if isinstance(a, tuple):
            return tuple(single(x) for x in a)
        return a.astype(np.float32).astype(np.float64) if a.dtype.kind == "f" else a

    exact = {name: getattr(k3_numpy, name) for name in ROUNDED}
    try:
        for name, f in exact.items():
            setattr(k3_numpy, name, lambda *args, f=f: single(f(*args)))
        return model.forward(ids)
    finally:
        for name, f in exact.items():
            setattr(k3_numpy, name, f)


def compare(name, folder, prompts, n):
    ref = k3_numpy.Model(folder)
    twins = {"float64": k3_torch.K3(folder, torch.float64), "float32": k3_torch.K3(folder)}
    ok = True
    for ids in prompts:
        want, greedy = ref.forward(ids), ref.greedy(ids[:8], n)
        state = ref.new_state()
        parts = np.concatenate([ref.forward(ids[a:b], state) for a, b in ((0, 1), (1, 8), (8, len(ids)))])
        errors = {"split": worst(parts, want), "rounded": worst(rounded_logits(ref, ids), want)}
        errors.update({k: worst(t.logits(ids).numpy(), want) for k, t in twins.items()})
        same = [t.continue_greedily(ids[:8], n) == greedy for t in twins.values()]
        good = errors["split"] < 1e-11 and errors["float64"] < 1e-11 and errors["float32"] < 1e-4 and all(same)
        ok &= good
        print(f"{name:14s} {len(ids):4d} ids  " + "  ".join(f"{k} {e:.1e}" for k, e in errors.items()) +
              f"  greedy {'equal' if all(same) else 'DIFFERENT'}  {'ok' if good else 'FAIL'}", flush=True)
    return ok


def main():
    torch.set_num_threads(1)
    ok = True
    for folder in sys.argv[1:]:
        vocab = k3_numpy.Checkpoint(folder).config["vocab_size"]
        ok &= compare(os.path.basename(folder.rstrip("/")), folder, [cases.prompt(1, 100, vocab)], 16)
    if not sys.argv[1:]:
        with tempfile.TemporaryDirectory() as tmp:
            make_random.write_checkpoint(os.path.join(tmp, "tiny"), make_random.make_config(), cases.TINY_SEED)
            ok &= compare("tiny", os.path.join(tmp, "tiny"), cases.tiny_prompts() + [cases.prompt(3, 150, 253)], 24)
            for c in cases.random_cases():
                folder = os.path.join(tmp, c["name"])
                make_random.write_checkpoint(folder, c["config"], c["seed"], c["init"])
                vocab = c["config"].get("text_config", c["config"])["vocab_size"]
                ok &= compare(c["name"], folder, [c["ids"], cases.prompt(99, 70, vocab)], c["n_greedy"])
    sys.exit(not ok)


if __name__ == "__main__":
    main()
