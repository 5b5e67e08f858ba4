"""Scores of the stored model on held-out prompts, greedy, float32.

evaluate.py FOLDER --file tests/golden/mini/eval.json     the fixed set
evaluate.py FOLDER --n 60 --long 12 --seed 11             a set drawn anew
"""
import argparse
import json
import random
import time

import torch

import batch
import data
import decode
import export
import model
import tok

FAMILIES = ("facts", "arithmetic", "sorting", "spelling", "units", "recall", "tools", "talk")


def request_of(sample):
    """The held-out conversation without the answer to be given."""
    r = dict(sample["request"])
    cut = max(i for i, m in enumerate(r["messages"]) if m["role"] == "assistant")
    r["messages"] = r["messages"][:cut]
    return r


def held_out(seed, family, n):
    """n samples whose operands, words, lists, values or phrasings were never trained on."""
    r = random.Random(f"{seed}{family}")
    out = []
    for i in range(n):
        if family == "tools":
            out.append(data.tool_use(r, True, rounds=1))
        elif family == "recall":
            out.append(data.recall_text(r, True, r.randrange(200, 3000)) if i % 3 else data.recall_turns(r, False, r.randrange(0, 2000), False))
        elif family == "talk":
            out.append(data.single(r, False, "talk") if i % 2 else data.persona(r, True))
        else:
            out.append(data.single(r, True, family))
    return out


def long_recall(seed, n, tok_, low=3900, high=4700):
    """Recall over four thousand tokens and more."""
    r = random.Random(f"{seed}long")
    out = []
    while len(out) < n:
        s = data.recall_text(r, True, r.randrange(14500, 18500)) if len(out) % 4 else data.recall_turns(r, False, r.randrange(12000, 15000), False)
        if low <= len(tok_.prompt(request_of(s))) <= high:
            out.append(s)
    return out


def parse(tok_, ids, thinking):
    """(content, calls) of an answer by its token ids; None where the structure is not right."""
    segments, text = [], []
    for i in ids:
        if i in (tok_.open, tok_.close, tok_.sep, tok_.eom):
            segments.append(("text", tok_.decode(text)))
            segments.append(("mark", i))
            text = []
        else:
            text.append(i)
    out, calls, at, where, pending, key = "", [], 0, "think" if thinking else "response", None, None
    if not segments or segments[-1] != ("mark", tok_.eom):
        return None
    while at < len(segments):
        kind, value = segments[at]
        if kind == "text" and value and where == "response":
            out = value
        if kind == "text" and value and where == "argument":
            calls[-1][1][key[0]] = value if key[1] == "string" else json.loads(value)
        if kind == "mark" and value in (tok_.open, tok_.close):
            tag = segments[at + 1][1] if at + 1 < len(segments) else ""
            name = tag.split(" ")[0]
            where = name if value == tok_.open else pending
            attributes = dict(x.split('="') for x in tag[:-1].split('" ') if '="' in x) if '="' in tag else {}
            attributes = {k.split(" ")[-1]: v for k, v in attributes.items()}
            if value == tok_.open and name == "call":
                calls.append((attributes.get("tool"), {}))
            if value == tok_.open and name == "argument":
                key = (attributes.get("key"), attributes.get("type"))
                if key[1] == "string":
                    calls[-1][1][key[0]] = ""
            if value == tok_.close:
                where = None
            at += 2
        at += 1
    return out, calls


def judge(tok_, sample, ids):
    check = sample["check"]
    try:
        got = parse(tok_, ids, sample["request"]["thinking"])
    except (ValueError, IndexError, KeyError):
        return False
    if got is None:
        return False
    content, calls = got
    if check["type"] == "tool_call":
        return len(calls) == 1 and calls[0][0] == check["name"] and calls[0][1] == check["arguments"]
    return content.strip() == check["value"] and not calls


def from_file(path, only):
    """The fixed set as samples: a closing assistant message takes the place of the answer to be given."""
    with open(path, encoding="utf-8") as f:
        rows = [x for x in json.load(f) if not only or x["family"] in only]
    for x in rows:
        x["request"]["messages"].append(dict(role="assistant", content=""))
    return rows


def answers(net, tok_, samples, n_new=320):
    return decode.greedy(net, [tok_.prompt(request_of(s)) for s in samples], n_new, tok_.eom)


def expert_load(net, tok_, n_rows=8):
    """Tokens per expert and layer on fresh text: [layers, E] and the held-out loss of the model's own tokens."""
    device = net.bias.device
    ids, weights, docs = data.rows(977, tok_, n_rows, 1024, False)
    b = batch.to_batch(ids, weights, docs, str(device).split(":")[0])
    with torch.no_grad():
        return model.hidden(net, model.Functions(False), b, half=False)[1].cpu()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("folder")
    ap.add_argument("--file")
    ap.add_argument("--only", nargs="*", help="families")
    ap.add_argument("--n", type=int, default=100)
    ap.add_argument("--long", type=int, default=20)
    ap.add_argument("--seed", type=int, default=11)
    ap.add_argument("--json")
    ap.add_argument("--show", type=int, default=2, help="wrong answers to print per family")
    a = ap.parse_args()
    t, net = tok.Tokenizer(a.folder), export.read_model(a.folder)
    net = net.to("cuda" if torch.cuda.is_available() else "cpu")
    result, began = {}, time.time()
    if a.file:
        samples = from_file(a.file, a.only)
    else:
        samples = [dict(s, family=f) for f in a.only or FAMILIES for s in held_out(a.seed, f, a.n)]
        samples += [dict(s, family="recall at 4k") for s in long_recall(a.seed, a.long, t)]
    groups = ([s for s in samples if s["family"] != "recall at 4k"], [s for s in samples if s["family"] == "recall at 4k"])
    runs = [(x, [s["family"] for s in x]) for x in groups if x]
    for some, names in runs:
        out = answers(net, t, some, 320)
        for s, name, ids in zip(some, names, out):
            ok = judge(t, s, ids)
            right, of, wrong = result.get(name, (0, 0, []))
            result[name] = (right + ok, of + 1, wrong if ok else wrong + [(s, ids)])
        print(f"{len(some)} answers after {time.time() - began:.0f} s", flush=True)
    for name, (right, of, wrong) in result.items():
        for s, ids in wrong[:a.show]:
            print(name, "asked", repr(request_of(s)["messages"][-1]["content"][-150:]), s["request"]["thinking"], s["request"]["thinking_effort"],
                  "wanted", s["check"], "got", repr(t.decode(ids)[:400]))
    for name, (right, of, wrong) in result.items():
        print(f"{name:14s} {right}/{of} {100 * right / of:.1f} %")
    loads = expert_load(net, t)
    table = []
    for i, row in enumerate(loads):
        table.append(dict(layer=i + 1, max_over_mean=round(float(row.max() / row.mean()), 3), min_over_mean=round(float(row.min() / row.mean()), 3),
                          dead=int((row == 0).sum())))
        print(table[-1])
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump(dict(scores={k: [v[0], v[1]] for k, v in result.items()}, load=table), f, indent=1)


if __name__ == "__main__":
    main()
