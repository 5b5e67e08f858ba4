"""Trains the tokenizer on generated text: make_tokenizer.py FOLDER"""
import collections
import json
import random
import sys

import config
import data
import tok
import toolset
import words as W


def corpus(n_docs, seed=7):
    r = random.Random(seed)
    texts = collections.Counter()
    for word in "message role user assistant system think response tools call argument key type index tool name string number boolean array object null".split():
        texts[word] += 20000
        texts[" " + word] += 20000
    texts['="'] += 50000
    texts['"'] += 50000
    for _ in range(n_docs):
        sample = data.short_doc(r)
        for m in sample["request"]["messages"]:
            texts[m["content"]] += 1
            if m.get("reasoning_content"):
                texts[m["reasoning_content"]] += 1
        if sample["request"].get("tools"):
            texts[json.dumps(sample["request"]["tools"], sort_keys=True, separators=(",", ":"))] += 1
    for e in ("low", "high", "max"):
        texts[tok.EFFORT.format(e)] += 300
    texts[tok.TOOLS] += 300
    vocabulary = sorted(set(W.SPELL + W.NAMES + W.CITIES + W.THINGS + W.ANIMALS + W.FOODS + W.DAYS + W.MONTHS + W.DRINKS + W.HOBBIES + W.JOBS))
    for word in vocabulary:
        texts[word] += 20
        texts[" " + word] += 60
    for name in toolset.SPECS:
        texts[" " + name] += 30
    return texts


if __name__ == "__main__":
    folder = sys.argv[1]
    ranks = tok.train_ranks(corpus(20000), config.RANKS)
    tok.write_files(folder, ranks)
    config.write(folder + "/config.json")
    print(len(ranks), "ranks")
