"""Recall conversations: statements early, other text between, questions at the end."""
import tasks
import words as W

ATTRIBUTES = {
    "locker code": lambda r: str(r.randrange(1000, 10000)),
    "room number": lambda r: str(r.randrange(100, 1000)),
    "phone extension": lambda r: str(r.randrange(1000, 10000)),
    "favourite colour": lambda r: r.choice(W.COLOUR_NAMES),
    "favourite drink": lambda r: r.choice(W.DRINKS),
    "favourite food": lambda r: r.choice(W.FOODS),
    "home town": lambda r: r.choice(W.CITIES),
    "hobby": lambda r: r.choice(W.HOBBIES),
    "job": lambda r: r.choice(W.JOBS),
    "pet": lambda r: r.choice(W.ANIMALS),
}
FILLER = [
    "The {a} slept near the {t} all day.", "On {d} the {t} was {c}.", "A {c} {a} walked past the {t}.", "The report of {d} says nothing new.",
    "Somebody left a {c} {t} in the {u}.", "It rained on {d}, so the {t} stayed wet.", "The {a} and the {b} shared some {f}.",
    "In {m} the {u} is closed.", "There were {n} visitors in the {u} on {d}.", "The {t} cost {n} euros last {m}.", "A box of {f} stood next to the {t}.",
    "Nobody saw the {a} after {d}.", "The {u} got a new {c} {t}.", "Page {n} shows a {c} {t}.",
]
ASKS = ["What is {n}'s {a}?", "Do you remember {n}'s {a}?", "Tell me {n}'s {a}.", "What was {n}'s {a}?"]
OWN = [
    ("My name is {v}.", "What is my name?", "Your name is {v}.", W.NAMES), ("My dog is called {v}.", "What is my dog called?", "Your dog is called {v}.", W.PET_NAMES),
    ("I live in {v}.", "Where do I live?", "You live in {v}.", W.CITIES), ("My favourite colour is {v}.", "What is my favourite colour?", "Your favourite colour is {v}.", W.COLOUR_NAMES),
    ("My favourite drink is {v}.", "What is my favourite drink?", "Your favourite drink is {v}.", W.DRINKS), ("I work as a {v}.", "What is my job?", "You work as a {v}.", W.JOBS),
    ("My hobby is {v}.", "What is my hobby?", "Your hobby is {v}.", W.HOBBIES),
]


def filler(r):
    return r.choice(FILLER).format(a=r.choice(W.ANIMALS), b=r.choice(W.ANIMALS), t=r.choice(W.THINGS), u=r.choice(W.THINGS), d=r.choice(W.DAYS),
                                   m=r.choice(W.MONTHS), c=r.choice(W.COLOUR_NAMES), f=r.choice(W.FOODS), n=r.randrange(2, 100))


def records(r, n):
    """n different (name, attribute, value)"""
    seen, out = set(), []
    while len(out) < n:
        k = (r.choice(W.NAMES), r.choice(list(ATTRIBUTES)))
        if k not in seen:
            seen.add(k)
            out.append((*k, ATTRIBUTES[k[1]](r)))
    return out


def question(r, record):
    n, a, v = record
    said = f"{n}'s {a} is {v}."
    return tasks.task("recall", f"{n}|{a}|{v}", r.choice(ASKS).format(n=n, a=a), said, said)


def text_recall(r, chars, n_questions):
    """(first user text, tasks): a text of about this many characters; the first question follows it in the same message."""
    n = min(r.choice([3, 8, 20, 60]), max(2, chars // 90))
    rec = records(r, n)
    lines = [f"{x}'s {a} is {v}." for x, a, v in rec]
    size = sum(map(len, lines))
    while size < chars:
        lines.append(filler(r))
        size += len(lines[-1])
    r.shuffle(lines)
    if r.random() < 0.5:  # the asked-for statement right at the start: the longest distance
        first = f"{rec[0][0]}'s {rec[0][1]} is {rec[0][2]}."
        lines.remove(first)
        lines.insert(0, first)
    asked = [rec[0]] + r.sample(rec[1:], min(n_questions - 1, n - 1))
    return r.choice(["\n", "\n", " "]).join(lines), [question(r, x) for x in asked]


def own_recall(r, n):
    """n statements about the user: [(statement, task)]"""
    out = []
    for said, ask, answer, pool in r.sample(OWN, n):
        v = r.choice(pool)
        out.append((said.format(v=v), tasks.task("recall", f"{said}{v}{r.randrange(100)}", ask, said.format(v=v), answer.format(v=v))))
    return out
