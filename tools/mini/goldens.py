"""Files for the engine's tests: goldens.py FOLDER OUT

prompts.json  requests of every family, their ids, and the greedy answers of the stored weights in float32
eval.json     the held-out set that the card's scores are measured on, with a check per request
ppl.json      token ids of whole held-out conversations
"""
import json
import os
import random
import sys

import data
import decode
import evaluate
import export
import tok

N_NEW = 160


def dump(path, rows):
    """One object a line."""
    with open(path, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) for r in rows) + "\n]\n")


def entry(t, family, sample):
    request = evaluate.request_of(sample)
    return dict(family=family, request=request, prompt_ids=t.prompt(request), check=sample["check"])


def prompt_samples():
    """Thirteen of each family, and conversations of several turns and with tool results."""
    out = [(f, s) for f in evaluate.FAMILIES for s in evaluate.held_out(29, f, 13)]
    r = random.Random(31)
    out += [("chat", data.chat(r, True, 3)) for _ in range(6)]
    for _ in range(6):
        s = data.tool_use(r, True)
        out.append(("tool results", s))
    return out


def main():
    folder, out = sys.argv[1], sys.argv[2]
    os.makedirs(out, exist_ok=True)
    t, net = tok.Tokenizer(folder), export.read_model(folder)
    rows = []
    for f in evaluate.FAMILIES:
        rows += [entry(t, f, s) for s in evaluate.held_out(11, f, 60)]
    rows += [entry(t, "recall at 4k", s) for s in evaluate.long_recall(11, 12, t)]
    dump(os.path.join(out, "eval.json"), rows)
    print(len(rows), "requests in eval.json", flush=True)
    r, ids = random.Random(37), []
    while sum(map(len, ids)) < 20000:
        s = [lambda: data.single(r, True), lambda: data.chat(r, True), lambda: data.tool_use(r, True), lambda: data.recall_text(r, True, 1500)][r.randrange(4)]()
        ids.append(t.render(s["request"])[0])
    dump(os.path.join(out, "ppl.json"), ids)
    rows = [entry(t, f, s) for f, s in prompt_samples()]
    margins = []
    new = decode.greedy(net, [x["prompt_ids"] for x in rows], N_NEW, t.eom, margins)
    for x, y, m in zip(rows, new, margins):
        x["output_ids"], x["margin"] = y, round(m, 5)
    dump(os.path.join(out, "prompts.json"), rows)
    print(len(rows), "prompts, smallest margin", min(margins), "stopped", sum(y[-1] == t.eom for y in new))


if __name__ == "__main__":
    main()
