"""The bundled model's tokenizer: byte BPE by rank under the K3 split pattern, and the K3 chat rendering.

A rendered conversation is a list of segments, each encoded alone; a control segment is one special token.
"""
import base64
import collections
import json
import os

import regex

import config

UP = r"(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
LO = r"(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])"
TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join([
    r"[\p{Han}]+", rf"[^\r\n\p{{L}}\p{{N}}]?{UP}*{LO}+{TAIL}", rf"[^\r\n\p{{L}}\p{{N}}]?{UP}+{LO}*{TAIL}",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
SPLIT = regex.compile(PATTERN)
BYTE_ORDER = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
BYTE_ORDER += [b for b in range(256) if b not in set(BYTE_ORDER)]
BASE = config.VOCAB - config.SPECIALS
NAMED = {0: "[BOS]", 1: "[EOS]", 2: "<|end_of_msg|>", 3: "<|open|>", 4: "<|close|>", 5: "<|sep|>", 6: "[start_header_id]",
         7: "[end_header_id]", 9: "[EOT]", 18: "<|media_begin|>", 19: "<|media_content|>", 20: "<|media_end|>",
         21: "<|media_pad|>", 65: "<osagent_mode>", 254: "[UNK]", 255: "[PAD]"}
UNFLAGGED = {3, 4, 5}  # the three markers that skip_special_tokens keeps
EFFORT = ("`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
          "supported values include `low`, `medium`, `high`, and `max`.\n"
          "Now the system is invoked with `thinking_effort={}`.")
TOOLS = "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{}\n```"


def train_ranks(texts, n_ranks):
    """Greedy pair merging over the pieces of the texts (a Counter of text -> times). Digits never merge."""
    pieces = collections.Counter()
    for text, n in texts.items():
        for p in SPLIT.findall(text):
            if not p[0].isdigit():
                pieces[p.encode()] += n
    words = [([bytes([b]) for b in w], n) for w, n in pieces.items()]
    ranks = {bytes([b]): i for i, b in enumerate(BYTE_ORDER)}
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, (w, n) in enumerate(words):
        for p in zip(w, w[1:]):
            pairs[p] += n
            where[p].add(i)
    while len(ranks) < n_ranks and pairs:
        best = max(pairs, key=lambda p: (pairs[p], p))
        joined = best[0] + best[1]
        ranks.setdefault(joined, len(ranks))
        for i in list(where[best]):
            w, n = words[i]
            for p in zip(w, w[1:]):
                pairs[p] -= n
                where[p].discard(i)
            out, j = [], 0
            while j < len(w):
                if j + 1 < len(w) and (w[j], w[j + 1]) == best:
                    out.append(joined)
                    j += 2
                else:
                    out.append(w[j])
                    j += 1
            words[i] = (out, n)
            for p in zip(out, out[1:]):
                pairs[p] += n
                where[p].add(i)
        for p in [p for p in (best,) if pairs[p] <= 0]:
            del pairs[p]
    return ranks


def write_files(folder, ranks):
    with open(os.path.join(folder, "tiktoken.model"), "wb") as f:
        for token, rank in sorted(ranks.items(), key=lambda x: x[1]):
            f.write(base64.b64encode(token) + b" %d\n" % rank)
    slots = {}
    for i in range(config.SPECIALS):
        name = NAMED.get(i, f"<|reserved_token_{BASE + i}|>")
        slots[str(BASE + i)] = dict(content=name, lstrip=False, normalized=False, rstrip=False, single_word=False,
                                    special=i not in UNFLAGGED)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(dict(added_tokens_decoder=slots, bos_token="[BOS]", eos_token="[EOS]", pad_token="[PAD]",
                       unk_token="[UNK]", clean_up_tokenization_spaces=False,
                       model_max_length=config.text_config()["max_position_embeddings"],
                       tokenizer_class="TikTokenTokenizer"), f, indent=1)
        f.write("\n")
    with open(os.path.join(folder, "generation_config.json"), "w", encoding="utf-8") as f:
        json.dump(dict(max_length=config.text_config()["max_position_embeddings"], eos_token_id=BASE + 2), f)
        f.write("\n")


class Tokenizer:
    def __init__(self, folder):
        self.ranks = {}
        with open(os.path.join(folder, "tiktoken.model"), "rb") as f:
            for line in f:
                token, rank = line.split()
                self.ranks[base64.b64decode(token)] = int(rank)
        self.bytes = {r: t for t, r in self.ranks.items()}
        self.pieces, self.texts = {}, {}
        self.eom, self.open, self.close, self.sep, self.pad = BASE + 2, BASE + 3, BASE + 4, BASE + 5, BASE + 255

    def _bpe(self, piece):
        parts = [bytes([b]) for b in piece.encode()]
        while len(parts) > 1:
            ranked = [(self.ranks.get(a + b, 1 << 30), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))]
            rank, i = min(ranked)
            if rank == 1 << 30:
                break
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        return [self.ranks[p] for p in parts]

    def encode(self, text):
        out = []
        for p in SPLIT.findall(text):
            ids = self.pieces.get(p)
            if ids is None:
                ids = self._bpe(p)
                if len(self.pieces) < 200000:
                    self.pieces[p] = ids
            out += ids
        return out

    def _fixed(self, text):
        """Encoding of a text from a small closed set (roles, tags, protocol bodies), remembered."""
        ids = self.texts.get(text)
        if ids is None:
            ids = self.texts[text] = self.encode(text)
        return ids

    def decode(self, ids):
        names = {BASE + i: n for i, n in NAMED.items()}
        parts = [self.bytes[i] if i in self.bytes else names.get(i, f"<|reserved_token_{i}|>").encode() for i in ids]
        return b"".join(parts).decode("utf-8", "replace")

    # ---- chat rendering
    def _tag(self, tag, **attributes):
        out = [self.open] + self._fixed(tag)
        for key, value in attributes.items():
            value = str(value).replace("&", "&amp;").replace('"', "&quot;")
            out += self._fixed(" " + key) + self._fixed('="') + self._fixed(value) + self._fixed('"')
        return out + [self.sep]

    def _end(self, tag):
        return [self.close] + self._fixed(tag) + [self.sep]

    def _message(self, body, **attributes):
        return self._tag("message", **attributes) + body + self._end("message") + [self.eom]

    def _calls(self, calls):
        out = self._tag("tools")
        for i, call in enumerate(calls):
            out += self._tag("call", tool=call["function"]["name"], index=i + 1)
            for key, value in json.loads(call["function"]["arguments"]).items():
                kind, text = value_text(value)
                out += self._tag("argument", key=key, type=kind) + self.encode(text) + self._end("argument")
            out += self._end("call")
        return out + self._end("tools")

    def _assistant(self, m, thinking):
        """(ids the prompt already holds, ids the model writes)"""
        head = self._tag("message", role="assistant")
        out = []
        if thinking:
            head += self._tag("think")
            out += self.encode(m.get("reasoning_content") or "") + self._end("think") + self._tag("response")
        else:
            head += self._tag("response")
        out += self.encode(m.get("content") or "") + self._end("response")
        if m.get("tool_calls"):
            out += self._calls(m["tool_calls"])
        return head, out + self._end("message") + [self.eom]

    def _preamble(self, request):
        ids = []
        if request.get("tools"):
            listing = json.dumps(request["tools"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            ids += self._message(self.encode(TOOLS.format(listing)), role="system", type="tool-declare")
        if request["thinking"] and request.get("thinking_effort"):
            ids += self._message(self._fixed(EFFORT.format(request["thinking_effort"])), role="system", type="thinking-effort")
        return ids

    def render(self, request):
        """(ids, own): the whole conversation; own[i] is 1 where the model wrote ids[i]."""
        ids = self._preamble(request)
        own = [0] * len(ids)
        n_results, calls = 0, []
        for m in request["messages"]:
            if m["role"] == "assistant":
                head, out = self._assistant(m, request["thinking"])
                ids += head + out
                own += [0] * len(head) + [1] * len(out)
                n_results, calls = 0, m.get("tool_calls") or []
                continue
            if m["role"] == "tool":
                n_results += 1
                name = next(c["function"]["name"] for c in calls if c["id"] == m["tool_call_id"])
                body = self._message(self.encode(m["content"]), role="tool", tool=name, index=n_results)
            else:
                body = self._message(self.encode(m["content"]), role=m["role"])
            ids += body
            own += [0] * len(body)
        return ids, own

    def prompt(self, request):
        ids, _ = self.render(request)
        return ids + self._tag("message", role="assistant") + self._tag("think" if request["thinking"] else "response")


def value_text(value):
    """(type attribute, text) of a tool argument"""
    if isinstance(value, str):
        return "string", value
    kind = ("null" if value is None else "boolean" if isinstance(value, bool) else
            "number" if isinstance(value, (int, float)) else "array" if isinstance(value, list) else "object")
    return kind, json.dumps(value, ensure_ascii=False)
