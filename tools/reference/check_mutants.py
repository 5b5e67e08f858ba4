#!/usr/bin/env python3
"""Prove that the golden vectors can fail: each mutant must move an expected value past its tolerance, in every place that
mutants.py names for it.

    check_mutants.py [--markdown]

Prints one line a mutant: where it is caught (cases of each operation's file, models) and the largest error over its tolerance.
"""
import argparse
import base64
import json
import os
import sys
import tempfile

import numpy as np

import k3_numpy as k
import make_random
import mutants
import ops

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
GOLDEN = os.path.join(ROOT, "tests", "golden")
N_IDS = 30  # positions of a model that are compared


class Models:
    """The tiny checkpoint and the random ones, with the stored logits."""

    def __init__(self, scratch):
        self.folders, self.caches, self.want = {"tiny": os.path.join(GOLDEN, "tiny")}, {}, {}
        with open(os.path.join(GOLDEN, "random_configs.json")) as f:
            for e in json.load(f):
                self.folders[e["name"]] = os.path.join(scratch, e["name"])
                make_random.write_checkpoint(self.folders[e["name"]], e["config"], e["seed"], e["init"])
        stored = {name: t for name, t, _ in ops.read(os.path.join(GOLDEN, "random.safetensors"))}
        stored["tiny"] = ops.read(os.path.join(GOLDEN, "tiny.safetensors"))[0][1]
        for name in self.folders:
            self.want[name] = stored[name]["ids"][:N_IDS], stored[name]["logits"][:N_IDS]

    def errors(self, keep_weights):
        """Largest error of a position over the tolerance, by model. Decoded weights are kept between mutants that leave decoding alone."""
        out = {}
        for name, folder in self.folders.items():
            model = k.Model(folder)
            if keep_weights:
                model.w.cache = self.caches.setdefault(name, {})
            ids, want = self.want[name]
            got = model.forward(ids)
            e = (np.abs(got - want).max(1) / np.abs(want).max(1)).max() / 2e-5
            out[name] = e if np.isfinite(e) else np.inf
        return out


def op_errors(files):
    """operation -> {case: error over tolerance} of the cases that fail."""
    out = {}
    for op, cases in files.items():
        failing = {}
        for case, tensors, p in cases:
            got = ops.stored(ops.RUN[op](tensors, p))
            e = max(ops.error(got[n], tensors[n]) for n in p["outputs"].split(","))
            if e > float(p["tol"]):
                failing[case] = e / max(float(p["tol"]), 1e-7)
        if failing:
            out[op] = failing
    return out


def apply(change):
    """Replaces functions and returns what undoes it."""
    def put(name, f):
        owner, _, attribute = name.rpartition(".")
        setattr(k.Model if owner else k, attribute, f)
    before = {name: mutants.original(name) for name in change}
    for name, f in change.items():
        put(name, f)
    return lambda: [put(name, f) for name, f in before.items()]


def joined_segments_differ():
    """The tenth mutant. How many chat cases get other ids when neighbouring text is joined across control tokens before BPE; None
    where vocabulary or tiktoken are missing. Markers are dropped on both sides: only the text between them is compared."""
    vocabulary = os.path.join(ROOT, "..", "shared", "data", "tiktoken.model")
    cases = os.path.join(GOLDEN, "chat", "chat-golden.json")
    try:
        import tiktoken
        with open(vocabulary, "rb") as f:
            ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in f)}
        with open(cases) as f:
            cases = json.load(f)
    except (ImportError, OSError):
        return None
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
    tail, lead = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"[^\r\n\p{L}\p{N}]?"
    pattern = "|".join([r"[\p{Han}]+", lead + upper + "*" + lower + "+" + tail, lead + upper + "+" + lower + "*" + tail, r"\p{N}{1,3}",
                        r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
    encode = tiktoken.Encoding("k3", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}).encode_ordinary
    differ = total = 0
    for case in cases:
        segments = case.get("segments") or []
        run, apart, joined = [], [], []
        for kind, text in [*segments, ["control", ""]]:
            if kind != "control":
                run.append(text)
                continue
            apart += [i for s in run for i in encode(s)]
            joined += encode("".join(run))
            run = []
        total += bool(segments)
        differ += apart != joined
    return differ, total


def report(rows, markdown):
    for name, where, top, good in rows:
        line = [name, where, f"{top:.0e}" if np.isfinite(top) else "inf", "caught" if good else "NOT CAUGHT"]
        print("| " + " | ".join(line) + " |" if markdown else f"{line[0]:46s} {line[3]:10s} x{line[2]:6s} {line[1]}", flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--markdown", action="store_true")
    markdown = ap.parse_args().markdown
    np.seterr(all="ignore")
    files = {op: ops.read(os.path.join(GOLDEN, op + ".safetensors")) for op in ops.RUN}
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        models = Models(scratch)
        plain, whole = op_errors(files), models.errors(True)
        if plain or max(whole.values()) > 1:
            sys.exit(f"the unchanged reference does not reproduce the stored values: {plain} {whole}")
        print(f"unchanged: {sum(map(len, files.values()))} cases and {len(whole)} models pass")
        if markdown:
            print("\n| change | caught by | error / tolerance | |\n|---|---|---|---|")
        for name, places, change in mutants.SPECIFIED + mutants.OWN:
            undo = apply(change)
            caught = op_errors(files)
            decoding = any(f.startswith(("nibbles", "codes_", "decode_")) for f in change)
            moved = {n: e for n, e in models.errors(not decoding).items() if e > 1}
            undo()
            missing = [p for p in places.split() if p not in caught and not (p == "model" and moved)]
            where = [f"{op} {len(c)}/{len(files[op])}" for op, c in caught.items()]
            where += [f"models {len(moved)}/{len(whole)}"] if moved else []
            where += ["MISSING: " + " ".join(missing)] if missing else []
            failed += bool(missing)
            report([(name, ", ".join(where), max([e for c in caught.values() for e in c.values()] + list(moved.values()), default=0.0),
                     not missing)], markdown)
    text = joined_segments_differ()
    if text is None:
        print("joining chat segments before BPE: skipped (needs tiktoken and the vocabulary)")
    else:
        failed += not text[0]
        report([("joining chat segments before BPE", f"chat {text[0]}/{text[1]}", np.inf if text[0] else 0.0, text[0] > 0)], markdown)
    print(f"{len(mutants.SPECIFIED) + len(mutants.OWN) + (text is not None)} mutants, {failed} not caught")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
