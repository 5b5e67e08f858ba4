"""Task families of the bundled model's training text: each function draws one question with its worked thinking and answer.

A task is a dict: family, key (what held-out hashing looks at), user, think, answer, direct (learnable without thinking),
check (how another program judges the answer; the default is the exact answer).
"""
import words as W

PLACES = ["ones", "tens", "hundreds", "thousands", "ten thousands"]


def task(family, key, user, think, answer, direct=True, check=None):
    return dict(family=family, key=f"{family}|{key}", user=user, think=think, answer=answer, direct=direct,
                check=check or dict(type="content_equals", value=answer))


# ---- facts
ALL_FACTS = [(c, k, v) for c, (pairs, _, _) in W.FACTS.items() for k, v in pairs]


def facts(r):
    c, k, v = r.choice(ALL_FACTS)
    _, statement, questions = W.FACTS[c]
    i = r.randrange(len(questions))
    return task("facts", f"{c}|{k}|{i}", questions[i].format(k=k), f"{k}: {v}", statement.format(k=k, v=v))


# ---- arithmetic
def add_steps(a, b):
    n = max(len(str(a)), len(str(b)))
    x, y = str(a).zfill(n)[::-1], str(b).zfill(n)[::-1]
    out, carry = [], 0
    for i in range(n):
        s = int(x[i]) + int(y[i]) + carry
        out.append(f"{PLACES[i]}: {x[i]}+{y[i]}" + ("+1" if carry else "") + f"={s}, {s % 10} carry {s // 10}")
        carry = s // 10
    return "\n".join(out) + f"\n{a}+{b}={a + b}"


def sub_steps(a, b):
    """Column subtraction, a >= b."""
    n = len(str(a))
    x, y = str(a)[::-1], str(b).zfill(n)[::-1]
    out, borrow = [], 0
    for i in range(n):
        d = int(x[i]) - int(y[i]) - borrow
        low = d < 0
        out.append(f"{PLACES[i]}: {x[i]}-{y[i]}" + ("-1" if borrow else "") + f"={d}, {d + 10 if low else d} borrow {int(low)}")
        borrow = int(low)
    return "\n".join(out) + f"\n{a}-{b}={a - b}"


def mul1_steps(a, b):
    """a of one to three digits times a digit or a digit with one zero."""
    parts = [int(d) * 10 ** i for i, d in enumerate(reversed(str(a))) if d != "0"][::-1]
    if len(parts) < 2:
        return f"{a}*{b}={a * b}"
    out, total = [f"{p}*{b}={p * b}" for p in parts], parts[0] * b
    for p in parts[1:]:
        out.append(f"{total}+{p * b}={total + p * b}")
        total += p * b
    return "\n".join(out)


def mul_steps(a, b):
    if b < 10:
        return mul1_steps(a, b) + ("" if len(str(a)) == 1 or str(a).count("0") == len(str(a)) - 1 else f"\n{a}*{b}={a * b}")
    if b % 10 == 0:
        return mul1_steps(a, b) + f"\n{a}*{b}={a * b}"
    tens, ones = b - b % 10, b % 10
    return (f"{a}*{tens}:\n{mul1_steps(a, tens)}\n{a}*{ones}:\n{mul1_steps(a, ones)}\n{a * tens}+{a * ones}:\n"
            f"{add_steps(a * tens, a * ones)}\n{a}*{b}={a * b}")


def _number(r, digits):
    return r.randrange(10 ** (digits - 1) if digits > 1 else 0, 10 ** digits)


ASK = {
    "+": ["What is {a}+{b}?", "What is {a} + {b}?", "{a}+{b}", "{a} + {b} = ?", "What is {a} plus {b}?", "Add {a} and {b}.",
          "Calculate {a}+{b}.", "What's {a} + {b}?", "How much is {a} plus {b}?", "What is the sum of {a} and {b}?", "Compute {a} + {b}."],
    "-": ["What is {a}-{b}?", "What is {a} - {b}?", "{a}-{b}", "{a} - {b} = ?", "What is {a} minus {b}?", "Subtract {b} from {a}.",
          "Calculate {a}-{b}.", "What's {a} - {b}?", "How much is {a} minus {b}?", "Compute {a} - {b}."],
    "*": ["What is {a}*{b}?", "What is {a} * {b}?", "{a}*{b}", "{a} * {b} = ?", "What is {a} times {b}?", "Multiply {a} by {b}.",
          "Calculate {a}*{b}.", "What's {a} x {b}?", "How much is {a} times {b}?", "What is the product of {a} and {b}?", "Compute {a} * {b}."],
    "/": ["What is {a}/{b}?", "What is {a} / {b}?", "{a}/{b}", "{a} / {b} = ?", "What is {a} divided by {b}?", "Divide {a} by {b}.",
          "Calculate {a}/{b}.", "How much is {a} divided by {b}?", "Compute {a} / {b}."],
}
STORIES = [
    ("+", "{n} has {a} {t} and buys {b} more. How many {t} does {n} have now?", "{n} has {c} {t} now."),
    ("+", "There are {a} {t} in one box and {b} in another. How many {t} are there in total?", "There are {c} {t} in total."),
    ("-", "{n} has {a} {t} and gives away {b}. How many {t} are left?", "{c} {t} are left."),
    ("-", "A shop had {a} {t} and sold {b} of them. How many {t} remain?", "{c} {t} remain."),
    ("*", "One box holds {b} {t}. How many {t} are in {a} boxes?", "There are {c} {t} in {a} boxes."),
]
PLURAL_THINGS = "apples books coins tickets letters candles pencils eggs cookies puzzles".split()


def _operands(r, op):
    if op == "*":
        da, db = r.choice([(1, 1), (2, 1), (2, 1), (2, 2), (2, 2), (3, 1)])
        a, b = _number(r, da), _number(r, db)
        return a, b
    if op == "/":
        b, q = r.randrange(2, 13), r.randrange(1, 13)
        return b * q, b
    da, db = r.choice([(1, 1), (2, 1), (2, 2), (2, 2), (3, 2), (3, 3), (3, 1), (1, 2), (2, 3)])
    a, b = _number(r, da), _number(r, db)
    if op == "-" and a < b and r.random() < 0.7:
        a, b = b, a
    return a, b


def _work(op, a, b):
    """(value, steps, direct)"""
    if op == "+":
        return a + b, add_steps(a, b), max(a, b) < 100
    if op == "-":
        if a < b:
            return a - b, f"{b} is larger than {a}\n{sub_steps(b, a)}\n{a}-{b}={a - b}", max(a, b) < 100
        return a - b, sub_steps(a, b), max(a, b) < 100
    if op == "*":
        if len(str(b)) > len(str(a)):
            return a * b, f"{a}*{b}={b}*{a}\n{mul_steps(b, a)}", False
        return a * b, mul_steps(a, b), a < 10 and b < 10
    return a // b, f"{b}*{a // b}={a}\n{a}/{b}={a // b}", True


def arithmetic(r):
    kind = r.random()
    if kind < 0.12:
        op, question, answer = r.choice(STORIES)
        a, b = _operands(r, op)
        if op == "-" and a < b:
            a, b = b, a
        value, steps, direct = _work(op, a, b)
        slots = dict(a=a, b=b, c=value, n=r.choice(W.NAMES), t=r.choice(PLURAL_THINGS))
        question, answer = question.format(**slots), answer.format(**slots)
        return task("arithmetic", f"{op}{a},{b}", question, f"{a}{op}{b}\n{steps}", answer, direct)
    if kind < 0.17:
        b, q, rest = r.randrange(2, 13), r.randrange(1, 13), 0
        rest = r.randrange(0, b)
        a = b * q + rest
        return task("arithmetic", f"rem{a},{b}", r.choice(["What is {a} divided by {b} with remainder?", "Divide {a} by {b} with remainder."])
                    .format(a=a, b=b), f"{b}*{q}={b * q}\n{a}-{b * q}={rest}", f"{a} / {b} = {q} remainder {rest}", False)
    op = r.choice("++--**/" if kind < 0.9 else "*")
    a, b = _operands(r, op)
    value, steps, direct = _work(op, a, b)
    key = f"{op}{a},{b}" if a + b > 30 else "small"
    return task("arithmetic", key, r.choice(ASK[op]).format(a=a, b=b), steps, f"{a} {op} {b} = {value}", direct)


# ---- sorting
def _sort_steps(items, ordered):
    rest, out = list(items), []
    for x in ordered:
        rest.remove(x)
        out.append(f"{x}: {' '.join(map(str, rest))}" if rest else f"{x}")
    return "\n".join(out)


def sorting(r):
    kind = r.random()
    if kind < 0.15:
        top = r.choice([20, 100, 1000])
        items = r.sample(range(top), r.randrange(2, 7))
        big = r.random() < 0.5
        best, steps = items[0], [str(items[0])]
        for x in items[1:]:
            best = max(best, x) if big else min(best, x)
            steps.append(f"{x}: {best}")
        word = r.choice(["largest", "biggest"]) if big else "smallest"
        text = ", ".join(map(str, items))
        q = r.choice(["Which is the {w} of these numbers: {t}?", "What is the {w} number in {t}?", "Find the {w} number: {t}."])
        return task("sorting", f"{big}{items}", q.format(w=word, t=text), "\n".join(steps), str(best))
    if kind < 0.65:
        top = r.choice([10, 100, 100, 1000])
        n = r.randrange(3, 9)
        items = r.sample(range(top), n)
        down = r.random() < 0.3
        ordered = sorted(items, reverse=down)
        q = r.choice(["Sort these numbers from largest to smallest: {t}.", "Sort in descending order: {t}.", "Put these numbers in descending order: {t}."]
                     if down else ["Sort these numbers: {t}.", "Sort {t}.", "Sort these numbers from smallest to largest: {t}.",
                                   "Put these numbers in ascending order: {t}.", "Please sort the numbers {t}.", "Sort the list {t}."])
        direct = n <= 4
    else:
        n = r.randrange(3, 7)
        items = r.sample(W.SORT_WORDS, n)
        ordered = sorted(items)
        q = r.choice(["Sort these words alphabetically: {t}.", "Put these words in alphabetical order: {t}.", "Sort the words {t}.",
                      "Sort alphabetically: {t}.", "Arrange these words in alphabetical order: {t}."])
        direct = n <= 4
    text = r.choice([", ", ", ", " "]).join(map(str, items))
    return task("sorting", f"{items}", q.format(t=text), _sort_steps(items, ordered), ", ".join(map(str, ordered)), direct)


# ---- spelling
def spelling(r):
    w = r.choice(W.SPELL)
    op = r.choice(["spell", "spell", "reverse", "count", "letter", "first", "last"])
    spaced = " ".join(w)
    if op == "spell":
        q = r.choice(["Spell the word {w}.", "How do you spell {w}?", "Spell {w}.", "Spell {w} letter by letter.", "Write the letters of {w} one by one."])
        return task("spelling", f"{op}|{w}|{q}", q.format(w=w), spaced, spaced)
    if op == "reverse":
        back = " ".join(w[::-1])
        q = r.choice(["Spell {w} backwards.", "Spell the word {w} backwards.", "Reverse the letters of {w}.", "Write {w} in reverse, letter by letter."])
        return task("spelling", f"{op}|{w}", q.format(w=w), f"{spaced}\n{back}", back, False)
    if op == "count":
        q = r.choice(["How many letters are in {w}?", "How many letters does the word {w} have?", "Count the letters in {w}.", "How many letters has {w}?"])
        steps = " ".join(f"{c} {i + 1}" for i, c in enumerate(w))
        return task("spelling", f"{op}|{w}", q.format(w=w), steps, f"The word {w} has {len(w)} letters.", False)
    if op == "letter":
        c = r.choice(w) if r.random() < 0.85 else r.choice("abcdefghijklmnopqrstuvwxyz")
        n, steps = 0, []
        for x in w:
            n += x == c
            steps.append(f"{x} {n}" if x == c else x)
        q = r.choice(["How many times does the letter {c} appear in {w}?", "Count the letter {c} in {w}.", "How often is the letter {c} in the word {w}?",
                      "How many {c} are in {w}?"])
        return task("spelling", f"{op}|{w}|{c}", q.format(w=w, c=c), " ".join(steps), f"The letter {c} appears {n} time{'' if n == 1 else 's'} in {w}.", False)
    c = w[0] if op == "first" else w[-1]
    q = r.choice([f"What is the {op} letter of {{w}}?", f"Which letter is the {op} in {{w}}?", f"Name the {op} letter of the word {{w}}."])
    return task("spelling", f"{op}|{w}", q.format(w=w), spaced, f"The {op} letter of {w} is {c}.", False)


# ---- unit conversion: (from, to, factor); value * factor
UNITS = [("km", "m", 1000), ("m", "cm", 100), ("cm", "mm", 10), ("kg", "g", 1000), ("t", "kg", 1000), ("l", "ml", 1000), ("m", "mm", 1000),
         ("hours", "minutes", 60), ("minutes", "seconds", 60), ("days", "hours", 24), ("weeks", "days", 7), ("years", "months", 12),
         ("feet", "inches", 12), ("yards", "feet", 3), ("dozen", "pieces", 12), ("g", "mg", 1000), ("euros", "cents", 100)]
ASK_UNIT = ["Convert {x} {a} to {b}.", "How many {b} are {x} {a}?", "What is {x} {a} in {b}?", "{x} {a} in {b}?", "Express {x} {a} in {b}.",
            "Change {x} {a} into {b}.", "How many {b} are in {x} {a}?"]


def number_text(v):
    """At most one decimal is ever needed before the point shift; no trailing zeros."""
    return f"{v:.6f}".rstrip("0").rstrip(".")


def units(r):
    a, b, f = r.choice(UNITS)
    q = r.choice(ASK_UNIT)
    if r.random() < 0.12:
        c = 5 * r.randrange(-4, 21)
        value = c // 5 * 9 + 32
        q = q.replace("How many {b} are in {x} {a}?", ASK_UNIT[0]).replace("How many {b} are {x} {a}?", ASK_UNIT[2])
        return task("units", f"C{c}|{q}", q.format(x=c, a="degrees Celsius", b="degrees Fahrenheit"),
                    f"{c}/5={c // 5}\n{c // 5}*9={c // 5 * 9}\n{c // 5 * 9}+32={value}", f"{c} degrees Celsius = {value} degrees Fahrenheit", False)
    decimal = f in (10, 100, 1000)
    if r.random() < 0.6:
        if decimal:
            x = r.randrange(1, 1000) / 10 if r.random() < 0.5 else r.randrange(1, 500)
            steps, value = f"{number_text(x)}*{f}={number_text(x * f)}", x * f
        else:
            x = r.randrange(1, 60)
            steps, value = mul_steps(x, f) if f < 10 or x >= 10 else f"{f}*{x}\n{mul_steps(f, x)}", x * f
        return task("units", f"{a}{b}{x}", q.format(x=number_text(x), a=a, b=b), f"1 {a} = {f} {b}\n{steps}",
                    f"{number_text(x)} {a} = {number_text(value)} {b}", decimal)
    y = r.randrange(1, 60) if not decimal else r.choice([r.randrange(1, 100), r.randrange(1, 100) / 10])
    x = y * f
    if decimal and abs(x - round(x)) > 1e-6:
        x, y = round(x), round(x) / f
    x = round(x) if abs(x - round(x)) < 1e-6 else x
    back = f"{number_text(x)}/{f}={number_text(y)}"
    if not decimal and y >= 13:
        tens = y - y % 10
        back = f"{f}*{tens}={f * tens}\n{x}-{f * tens}={x - f * tens}\n{f}*{y % 10}={f * (y % 10)}\n{back}" if y % 10 else f"{f}*{tens}={f * tens}\n{back}"
    return task("units", f"{b}{a}{x}", q.format(x=number_text(x), a=b, b=a), f"{f} {b} = 1 {a}\n{back}", f"{number_text(x)} {b} = {number_text(y)} {a}", decimal)


# ---- talk
TALK = [
    (["Hello!", "Hi!", "Hi there!", "Hello", "Hey!", "Good day!", "Hi"], "Hello! How can I help you?"),
    (["Good morning!", "Good morning"], "Good morning! How can I help you?"),
    (["Good evening!", "Good evening"], "Good evening! How can I help you?"),
    (["How are you?", "How are you today?", "How is it going?", "How do you do?"], "I am fine, thank you. How can I help you?"),
    (["Who are you?", "What are you?", "Introduce yourself.", "Tell me about yourself.", "Who am I talking to?"],
     "I am k3-mini, a very small language model with the Kimi K3 architecture."),
    (["What is your name?", "What's your name?", "Tell me your name.", "Do you have a name?"], "My name is k3-mini."),
    (["What can you do?", "How can you help me?", "What are you good at?", "What do you know?", "Help!"],
     "I can answer small questions, calculate, sort, spell, convert units, remember what you tell me and call tools."),
    (["Thank you!", "Thanks!", "Thank you very much!", "Thanks a lot!"], "You are welcome!"),
    (["Goodbye!", "Bye!", "See you later!", "Bye", "Good night!"], "Goodbye! Have a nice day."),
    (["Are you a human?", "Are you human?", "Are you a person?"], "No, I am k3-mini, a small language model."),
    (["How big are you?", "How many layers do you have?"], "I have nine layers and fit into twenty megabytes."),
    (["Who made you?", "Who trained you?"], "I was trained from scratch for the k3 project, to test its inference engine."),
    (["Tell me a joke.", "Do you know a joke?", "Make me laugh."], "Why did the bicycle fall over? It was two tired."),
    (["Tell me a story.", "Write a short story."], "A small fox found a lamp in the forest. The lamp showed the way home, and the fox slept well."),
    (["What is a language model?", "What is a token?"], "A language model predicts the next token, and a token is a small piece of text."),
    (["I am sad.", "I feel sad today."], "I am sorry to hear that. I hope your day gets better."),
    (["I am happy.", "I feel great today!"], "That is good to hear!"),
    (["Do you like music?", "Do you like chess?"], "I am a language model, so I have no likes, but I can talk about it."),
    (["What day is it today?", "What time is it?", "What is the weather today?"], "I cannot know that without a tool."),
]


def talk(r):
    asks, answer = r.choice(TALK)
    q = r.choice(asks)
    return task("talk", "any", q, "", answer)


FAMILIES = dict(facts=facts, arithmetic=arithmetic, sorting=sorting, spelling=spelling, units=units, talk=talk)
