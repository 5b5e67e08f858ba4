#!/usr/bin/env python3
"""What an arithmetic costs: logits of whole texts against float64.

    precision.py reference MODEL IDS.json --out REF.npy     float64 logits of all lists of ids, one after the other
    precision.py compare REF.npy IDS.json NAME=X.npy ...    a line for each run of the same ids
    precision.py golden REF.npy IDS.json OUT.safetensors NAME=X.npy ...
                                                            some positions for tests/engine/test_precision.c, and what the runs reach there

`error` of a position is ||x - ref|| / ||ref|| over its logits; the table has its median and the largest over all positions. `top-1` is the share
of positions whose largest logit is that of float64. The test keeps every 16th logit of the first texts, which estimates the same norms.
"""
import argparse
import json

import numpy as np

import k3_numpy
import make_random

N_TEXTS, EVERY = 3, 16


def read_ids(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def errors(x, ref):
    return np.linalg.norm(x - ref, axis=1) / np.linalg.norm(ref, axis=1)


def perplexity(x, texts):
    at, total, n = 0, 0.0, 0
    for ids in texts:
        rows, wanted = x[at:at + len(ids) - 1], ids[1:]
        top = rows.max(1)
        total += (np.log(np.exp(rows - top[:, None]).sum(1)) + top - rows[np.arange(len(wanted)), wanted]).sum()
        at, n = at + len(ids), n + len(wanted)
    return np.exp(total / n)


def runs(pairs):
    for pair in pairs:
        name, path = pair.split("=", 1)
        yield name, np.load(path).astype(np.float64)


def compare(ref, texts, pairs):
    print("| run | median error | largest | perplexity | top-1 |\n|---|---|---|---|---|")
    print(f"| float64 | | | {perplexity(ref, texts):.5f} | |")
    for name, x in runs(pairs):
        e, same = errors(x, ref), (x.argmax(1) == ref.argmax(1)).mean()
        print(f"| {name} | {np.median(e):.2e} | {e.max():.2g} | {perplexity(x, texts):.5f} | {100 * same:.2f} % |")


def golden(ref, texts, out, pairs):
    texts = texts[:N_TEXTS]
    n = sum(map(len, texts))
    part = ref[:n, ::EVERY]
    medians = {name: float(np.median(errors(x[:n, ::EVERY], part))) for name, x in runs(pairs)}
    tensors = {"texts.ids": np.array(sum(texts, []), np.int32), "texts.lengths": np.array([len(t) for t in texts], np.int32),
               "texts.logits": part.astype(np.float32)}
    make_random.write_safetensors(out, tensors, {"cases": "texts", **{f"texts.{k}": f"{v:.3e}" for k, v in medians.items()}})
    print(n, medians)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("reference")
    verb.add_argument("model")
    verb.add_argument("ids")
    verb.add_argument("--out", required=True)
    for name in ("compare", "golden"):
        verb = verbs.add_parser(name)
        verb.add_argument("reference")
        verb.add_argument("ids")
        if name == "golden":
            verb.add_argument("out")
        verb.add_argument("runs", nargs="+", metavar="NAME=X.npy")
    a = parser.parse_args()
    texts = read_ids(a.ids)
    if a.verb == "reference":
        model = k3_numpy.Model(a.model)
        np.save(a.out, np.concatenate([model.forward(ids) for ids in texts]))
    elif a.verb == "compare":
        compare(np.load(a.reference), texts, a.runs)
    else:
        golden(np.load(a.reference), texts, a.out, a.runs)


if __name__ == "__main__":
    main()
