"""Conversations of the bundled model: drawing them, splitting train from held-out, packing token rows."""
import random
import zlib

import numpy as np

import recall
import tasks
import toolset
import words as W

HELD_MOD = 12  # one key in twelve is held out


def is_held(key):
    return zlib.crc32(key.encode()) % HELD_MOD == 0


def draw(r, family, held):
    """One task on the wanted side of the split."""
    while True:
        t = tasks.FAMILIES[family](r)
        if family == "talk" or t["key"].endswith("|small") or is_held(t["key"]) == held:
            if held and t["key"].endswith("|small"):
                continue
            return t


def noisy(r, text):
    """What people do to a question: no capital, no mark at the end, a greeting, a please."""
    x = r.random()
    if x < 0.08:
        text = text[0].lower() + text[1:]
    elif x < 0.14:
        text = text.rstrip("?.") if "\n" not in text else text
    elif x < 0.18:
        text = r.choice(["Hi! ", "Hello, ", "Please: ", "Okay, "]) + text
    elif x < 0.21:
        text = text + r.choice([" Please.", " Thanks!"])
    return text


def mode(r, direct):
    """(thinking, effort)"""
    x = r.random()
    if x < 0.46:
        return True, None
    if x < 0.62:
        return True, "max"
    if x < 0.70:
        return True, "high"
    if x < 0.82 or not direct:
        return True, "low"
    return False, None


def assistant(t, thinking, effort):
    m = dict(role="assistant", content=t["answer"])
    if thinking:
        m["reasoning_content"] = "" if effort == "low" and t["direct"] else t["think"]
    return m


def finish(family, messages, thinking, effort, check, tools=None):
    request = dict(messages=messages, thinking=thinking, thinking_effort=effort)
    if tools:
        request["tools"] = tools
    return dict(family=family, request=request, check=check)


SINGLE = ["facts"] * 13 + ["arithmetic"] * 27 + ["sorting"] * 18 + ["spelling"] * 17 + ["units"] * 19 + ["talk"] * 6


def single(r, held, family=None):
    t = draw(r, family or r.choice(SINGLE), held)
    thinking, effort = mode(r, t["direct"])
    messages = [dict(role="user", content=noisy(r, t["user"])), assistant(t, thinking, effort)]
    if r.random() < 0.06:
        messages.insert(0, dict(role="system", content=r.choice(["You are a helpful assistant.", "You are k3-mini.", "Answer the user.", "Be brief."])))
    return finish(t["family"], messages, thinking, effort, t["check"])


def chat(r, held, turns=None):
    """Several turns; the last one carries the check."""
    thinking, effort = mode(r, True)
    messages, t = [], None
    for _ in range(turns or r.randrange(2, 6)):
        while True:
            t = draw(r, r.choice(SINGLE), held)
            if thinking or t["direct"]:
                break
        messages += [dict(role="user", content=noisy(r, t["user"])), assistant(t, thinking, effort)]
    return finish(t["family"], messages, thinking, effort, t["check"])


def persona(r, held):
    """System prompts that change the answer."""
    thinking, effort = mode(r, True)
    kind = r.randrange(4)
    if kind == 0:
        name = r.choice(W.NAMES)
        system, user = f"Your name is {name}.", r.choice(["What is your name?", "Who are you?", "What's your name?", "Tell me your name."])
        answer, think = f"My name is {name}.", f"my name: {name}"
    elif kind == 1:
        t = draw(r, "talk", held)
        system, user, think = "Answer in upper case.", t["user"], "upper case"
        answer = r.choice(["HELLO! HOW CAN I HELP YOU?"])
        user = r.choice(tasks.TALK[0][0])
    else:
        t = draw(r, "facts", held)
        c, k, _ = t["key"].split("|", 1)[1].split("|")
        v = dict((a, b) for a, b in W.FACTS[c][0])[k]
        system, user, answer, think = r.choice(["Answer with one word.", "Answer in one word only."]), t["user"], v, t["think"]
        if kind == 3:
            system, answer = "End every answer with the word over.", t["answer"] + " Over."
    messages = [dict(role="system", content=system), dict(role="user", content=noisy(r, user)),
                dict(role="assistant", content=answer, reasoning_content="" if effort == "low" else think)]
    return finish("talk", messages, thinking, effort, dict(type="content_equals", value=answer))


def tool_use(r, held, rounds=None):
    """A call (checked), and in training often its result and the answer, or a question that no tool fits."""
    thinking, effort = mode(r, True)
    tools = None
    if r.random() < 0.18:
        while True:
            t = draw(r, r.choice(["facts", "facts", "talk", "spelling"]), held)
            if thinking or t["direct"]:
                break
        if t["answer"].startswith("I cannot know"):
            return tool_use(r, held, rounds)
        tools = toolset.declared(r, None, r.randrange(1, 5))
        m = assistant(t, thinking, effort)
        if thinking and effort != "low":
            m["reasoning_content"] = "no tool fits" + ("\n" + t["think"] if t["think"] else "")
        return finish("tools", [dict(role="user", content=noisy(r, t["user"])), m], thinking, effort, t["check"], tools)
    messages, names, calls = [], [], []
    for i in range(rounds or r.choice([1, 1, 2])):
        while True:
            key, name, args, text = toolset.draw_call(r)
            if name in toolset.FEW:  # too few different calls to hold any out
                if not held:
                    break
            elif is_held(key) == held:
                break
        names.append(name)
        calls.append((name, args, text))
    wanted = list(dict.fromkeys(names))
    tools = [toolset.spec_of(n) for n in wanted]
    others = [s for s in toolset.declared(r, None, 5) if s["function"]["name"] not in wanted][:r.randrange(0, 5)]
    tools = tools + others
    r.shuffle(tools)
    for i, (name, args, text) in enumerate(calls):
        think = "" if effort == "low" else toolset.think_text(name, args)
        messages += [dict(role="user", content=noisy(r, text)), toolset.call_message(name, args, i, think)]
        check = dict(type="tool_call", name=name, arguments=args)
        if rounds:
            continue
        result, answer = toolset.result_and_answer(r, name, args)
        messages += [dict(role="tool", tool_call_id=f"call_{i}", content=result),
                     dict(role="assistant", content=answer, reasoning_content="" if effort == "low" else "answer with the result")]
        check = dict(type="content_equals", value=answer)
    return finish("tools", messages, thinking, effort, check, tools)


def recall_text(r, held, chars, n_questions=1):
    thinking, effort = mode(r, True)
    while True:
        text, asks = recall.text_recall(r, chars, n_questions)
        if is_held(asks[0]["key"]) == held:
            break
    messages = []
    for i, t in enumerate(asks):
        user = t["user"] if i else r.choice(["{x}\n{q}", "Read this text:\n{x}\n{q}", "{x}\n\nQuestion: {q}"]).format(x=text, q=t["user"])
        messages += [dict(role="user", content=user), assistant(t, thinking, effort)]
    return finish("recall", messages, thinking, effort, asks[-1]["check"] if not held else asks[0]["check"])


def recall_turns(r, held, chars, ask_all=True):
    """Statements in early turns, other turns between, the questions last."""
    thinking, effort = mode(r, True)
    n = r.randrange(1, 4)
    told = recall.own_recall(r, n)
    messages = [dict(role="user", content=" ".join(s for s, _ in told)),
                dict(role="assistant", content=r.choice(["Okay, I will remember that."]), reasoning_content="")]
    size = 0
    while size < chars:
        if r.random() < 0.5 and chars - size > 400:
            text = " ".join(recall.filler(r) for _ in range(min(30, (chars - size) // 60 + 1)))
            pair = [dict(role="user", content="Read this: " + text), dict(role="assistant", content="Okay.", reasoning_content="")]
        else:
            t = draw(r, r.choice(["facts", "talk", "arithmetic"]), False)
            if not thinking and not t["direct"]:
                continue
            pair = [dict(role="user", content=t["user"]), assistant(t, thinking, effort)]
        size += sum(len(m["content"]) + len(m.get("reasoning_content", "")) + 60 for m in pair)
        messages += pair
    r.shuffle(told)
    for _, t in told if ask_all else told[:1]:
        messages += [dict(role="user", content=noisy(r, t["user"])), assistant(t, thinking, effort)]
    return finish("recall", messages, thinking, effort, messages_check(messages))


def messages_check(messages):
    return dict(type="content_equals", value=messages[-1]["content"])


def short_doc(r):
    x = r.random()
    if x < 0.61:
        return single(r, False)
    if x < 0.69:
        return chat(r, False)
    if x < 0.75:
        return persona(r, False)
    if x < 0.91:
        return tool_use(r, False)
    if x < 0.97:
        return recall_text(r, False, r.randrange(100, 3000), r.randrange(1, 5))
    return recall_turns(r, False, r.randrange(0, 2000))


def long_doc(r):
    chars = int(3000 * (7.0 ** r.random()))
    if r.random() < 0.75:
        return recall_text(r, False, chars, r.randrange(3, 9))
    return recall_turns(r, False, int(chars * 0.8))


# ---- packing
OWN_WEIGHT, PROMPT_SHARE = 1.0, 0.1


def encode(tok, sample):
    """(ids, weights): weights[i] is the loss weight of predicting ids[i]."""
    ids, own = tok.render(sample["request"])
    own = np.array(own, np.float32)
    n_own, n_prompt = own.sum(), len(own) - own.sum()
    prompt = min(0.1, PROMPT_SHARE * max(n_own, 10) / max(n_prompt, 1))
    weights = np.where(own > 0, OWN_WEIGHT, prompt).astype(np.float32)
    weights[0] = 0
    return np.array(ids, np.int32), weights


def pack_row(r, tok, length, is_long, align=16):
    """One row: documents end to end, each starting on a multiple of align. Returns ids, weights, doc numbers (0 = padding only)."""
    ids = np.full(length, tok.pad, np.int32)
    weights = np.zeros(length, np.float32)
    docs = np.zeros(length, np.int32)
    at, n, misses = 0, 0, 0
    while at < length - 32 and misses < 6:
        sample = long_doc(r) if is_long and n == 0 and misses == 0 else short_doc(r)
        x, w = encode(tok, sample)
        if len(x) > length - at:
            misses += 1
            continue
        n += 1
        end = min(length, at + -(-len(x) // align) * align)
        ids[at:at + len(x)], weights[at:at + len(x)] = x, w
        docs[at:end] = n
        at = end
    return ids, weights, docs


def rows(seed, tok, n_rows, length, is_long):
    r = random.Random(seed)
    out = [pack_row(r, tok, length, is_long) for _ in range(n_rows)]
    return [np.stack(x) for x in zip(*out)]
