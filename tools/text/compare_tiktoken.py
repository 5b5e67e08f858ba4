#!/usr/bin/env python3
"""Writes texts and the ids that the `tiktoken` package gives them, for tests/text/test_tiktoken.c.

    python3 tools/text/compare_tiktoken.py VOCABULARY OUT

VOCABULARY is K3's tiktoken.model. The texts are the same in every run. OUT is a sequence of records, numbers little-endian:
uint32 trusted, uint32 n_bytes, uint32 n_ids, the bytes, the ids as int32.
"""
import random
import struct
import sys
import unicodedata

import tiktoken
import tiktoken.load

N_SPECIAL = 256
SLICE, RUN = 400_000, 25_000
NAMED = {0: "[BOS]", 1: "[EOS]", 2: "<|end_of_msg|>", 3: "<|open|>", 4: "<|close|>", 5: "<|sep|>", 6: "[start_header_id]",
         7: "[end_header_id]", 9: "[EOT]", 18: "<|media_begin|>", 19: "<|media_content|>", 20: "<|media_end|>", 21: "<|media_pad|>",
         65: "<osagent_mode>", 254: "[UNK]", 255: "[PAD]"}

UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LEAD, CONTRACTION = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join([
    r"[\p{Han}]+",
    LEAD + UPPER + "*" + LOWER + "+" + CONTRACTION,
    LEAD + UPPER + "+" + LOWER + "*" + CONTRACTION,
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
])


def load(path):
    ranks = tiktoken.load.load_tiktoken_bpe(path)
    first = len(ranks)
    names = {NAMED.get(i, f"<|reserved_token_{first + i}|>"): first + i for i in range(N_SPECIAL)}
    return tiktoken.Encoding(name="k3", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=names)


def cuts(text):
    """The stretches that are encoded alone: slices of 400,000, in them no run of one kind longer than 25,000."""
    for start in range(0, len(text), SLICE):
        part = text[start:start + SLICE]
        begin, run, space = 0, 0, None
        for i, c in enumerate(part):
            if c.isspace() != space:
                space, run = c.isspace(), 1
            elif run == RUN:
                yield part[begin:i]
                begin, run = i, 1
            else:
                run += 1
        yield part[begin:]


def encode(encoding, text, trusted):
    ids = []
    for part in cuts(text):
        ids += encoding.encode(part, allowed_special="all") if trusted else encoding.encode_ordinary(part)
    return ids


def every_code_point():
    """Each assigned code point (and all of the first plane) after a letter, a digit, a space, a capital, itself and a mark."""
    for first in range(0, 0x33000, 256):
        yield "".join(f"a{c}1{c} {c}{c}A{c}'S\t{c}." for c in map(chr, range(first, first + 256)) if not 0xD800 <= ord(c) < 0xE000)
    for first in (0xE0000, 0xE0100, 0xF0000, 0x10FF00):
        yield "".join(f"a{c}1{c} {c}A{c}." for c in map(chr, range(first, first + 256)))


def pools():
    han = [chr(c) for c in range(0x4E00, 0x9FFF, 7)] + [chr(c) for c in (0x3005, 0x3007, 0x2E80, 0x2F00, 0x3400, 0x20000, 0x31350, 0x2EBF0)]
    marks = [chr(c) for c in range(0x300, 0x370)] + list("\u0e31\u0e34\u093e\u0903\u05b0\u064b\u20dd\ufe0f\u200d\u302a\U0001d165")
    emoji = list("\U0001f600\U0001f9ed\U0001f1eb\U0001f1f7\U0001f3fd\u2615\u2764") + ["\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u2615\ufe0f"]
    spaces = list("  \t\u00a0\u2003\u3000\u2028\u0085\x1c\x1f\u180e\u200b") + ["  ", "    ", "\n", "\r\n", "\n\n", "\r"]
    digits = list("0123456789\u0663\u0664\u00bd\u2460\u2167\u3007\u09e9\U0001d7ce") + ["123", "12345678", "0.5", "1e9"]
    words = ["the", "The", "THE", "don't", "I'LL", "we'Ve", "it'\u017f", "na\u00efve", "\u01c5", "\u02b0", "caf\u00e9", "iPhone", "HTTPServer",
             "x", "Q", "\u00df", "\u0130", "stra\u00dfe", "\u041c\u043e\u0441\u043a\u0432\u0430", "\u03a3\u03af\u03c3", "\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627", "\u0e2a\u0e27\u0e31\u0e2a", "\u0928\u092e\u0938\u094d\u0924\u0947"]
    code = ["if (x) {", "}\n", "->", "::", "/*", "*/", "//", "\\n", "0x1F", "a[i]++;", "<br/>", "&&", "#include <x.h>\n", "!\n/x", "\u2014", "\u201cq\u201d", "\u3002", "\uff01",
            "<|open|>", "<|sep|>", "[BOS]", "=\"", "\"", "'s", "`", "~~", "\u20ac", "$", "\x00", "\x7f", "\ufffd", "\ufeff", "\ud7a3"]
    kana = [chr(c) for c in range(0x3041, 0x3100, 3)] + ["\u30fc", "\uff76", "\u3099"]
    hangul = [chr(c) for c in range(0xAC00, 0xD7A4, 131)] + ["\u1100", "\u1161", "\u3131"]
    return [han, marks, emoji, spaces, digits, words, code, kana, hangul]


def mixtures(rng, n):
    groups = pools()
    for _ in range(n):
        chosen = rng.sample(groups, rng.randint(1, len(groups)))
        yield "".join(rng.choice(rng.choice(chosen)) for _ in range(rng.randint(1, 120)))


def long_texts(rng):
    for c in ("a", "A", "^", " ", "\n", "\u4e16", "\u0301", "7", "\U0001f600"):
        yield c * 60_000
    yield "".join(rng.choice("abcdefghij") for _ in range(60_000))
    yield "".join(rng.choice("aA\u4e16\u0301 ") for _ in range(100_000))
    yield "x" * 24_999 + " y " + " " * 25_001 + "z" * 50_000 + "\n"
    yield "".join(mixtures(rng, 4_000))[:850_000]
    yield "word <|open|> " * 60_000


def broken(rng, n):
    for _ in range(n):
        text = bytearray("".join(rng.choice(["a", " ", "\u00e9", "\u4e16", "\U0001f600", "1"]) for _ in range(rng.randint(1, 30))).encode())
        for _ in range(rng.randint(1, 4)):
            i = rng.randrange(len(text))
            text[i:i + rng.randint(0, 2)] = bytes(rng.choice([[], [0x80], [0xC0, 0xAF], [0xED, 0xA0, 0x80], [0xF4, 0x90], [0xE4, 0xB8], [0xFF],
                                                              [0xF0, 0x9F, 0x98], [rng.randrange(256)]]))
            if not text:
                break
        yield bytes(text)
    for _ in range(n):
        yield bytes(rng.randrange(256) for _ in range(rng.randint(1, 40)))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    encoding = load(sys.argv[1])
    rng = random.Random(163840)
    names = list(encoding._special_tokens)
    total = 0
    with open(sys.argv[2], "wb") as out:

        def write(raw, trusted=0):
            nonlocal total
            ids = encode(encoding, raw.decode("utf-8", errors="replace"), trusted)
            out.write(struct.pack("<III", trusted, len(raw), len(ids)) + raw + struct.pack(f"<{len(ids)}i", *ids))
            total += len(raw)

        for text in every_code_point():
            write(text.encode())
        for text in mixtures(rng, 12_000):
            write(text.encode())
        for text in mixtures(rng, 1_500):
            text = "".join(c + rng.choice(names) if rng.random() < 0.1 else c for c in text)
            write(text.encode(), 1)
        for text in long_texts(rng):
            write(text.encode())
        for raw in broken(rng, 3_000):
            write(raw)
    print(f"{total} bytes, Unicode {unicodedata.unidata_version} in Python, tiktoken {tiktoken.__version__}")


if __name__ == "__main__":
    main()
