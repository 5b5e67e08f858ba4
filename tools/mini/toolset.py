"""Tool specifications and tool-calling conversations of the bundled model's training text."""
import json

import words as W


def _p(kind, description=None, **more):
    out = dict(type=kind, **more)
    if description:
        out["description"] = description
    return out


def _number(r):
    return r.randrange(1, 500)


def _time(r):
    return f"{r.randrange(0, 24):02d}:{r.choice(['00', '15', '30', '45'])}"


def _text(r):
    return " ".join([r.choice(["buy", "bring", "find", "clean", "paint", "sell", "check"]), "the", r.choice(W.THINGS)])


def _list(r):
    return [r.randrange(0, 100) for _ in range(r.randrange(2, 6))]


def _foods(r):
    return r.sample(W.FOODS, r.randrange(2, 4))


# name: (description, parameters in call order {name: (schema, draw)}, requests, result, answer)
SPECS = {
    "get_weather": ("Get the weather of a city.", {"city": (_p("string"), lambda r: r.choice(W.CITIES))},
                    ["What is the weather in {city}?", "How is the weather in {city}?", "Tell me the weather in {city}.", "Weather in {city}?"],
                    lambda r, a: dict(sky=r.choice(["sunny", "cloudy", "rainy", "windy"]), degrees=r.randrange(-9, 36)),
                    "It is {sky} in {city}, {degrees} degrees."),
    "get_time": ("Get the local time of a city.", {"city": (_p("string"), lambda r: r.choice(W.CITIES))},
                 ["What time is it in {city}?", "Tell me the time in {city}.", "Local time in {city}?"],
                 lambda r, a: dict(time=_time(r)), "It is {time} in {city}."),
    "set_alarm": ("Set an alarm.", {"time": (_p("string", "HH:MM"), _time)},
                  ["Set an alarm for {time}.", "Wake me at {time}.", "Please set the alarm to {time}."],
                  lambda r, a: dict(ok=True), "The alarm is set for {time}."),
    "set_timer": ("Start a timer.", {"minutes": (_p("integer"), lambda r: r.randrange(1, 120))},
                  ["Set a timer for {minutes} minutes.", "Start a {minutes} minute timer.", "Timer for {minutes} minutes, please."],
                  lambda r, a: dict(ok=True), "The timer runs for {minutes} minutes."),
    "send_message": ("Send a text message to a person.", {"to": (_p("string"), lambda r: r.choice(W.NAMES)), "text": (_p("string"), _text)},
                     ["Send {to} the message: {text}", "Write to {to}: {text}", "Tell {to} this by message: {text}"],
                     lambda r, a: dict(sent=True), "I sent the message to {to}."),
    "add_note": ("Save a note.", {"text": (_p("string"), _text)}, ["Save a note: {text}", "Note this down: {text}", "Make a note: {text}"],
                 lambda r, a: dict(id=_number(r)), "I saved the note with number {id}."),
    "delete_note": ("Delete a note by its number.", {"id": (_p("integer"), _number)},
                    ["Delete note {id}.", "Remove note number {id}.", "Please delete note {id}."],
                    lambda r, a: dict(ok=True), "Note {id} is deleted."),
    "set_lamp": ("Switch a lamp on or off.", {"room": (_p("string"), lambda r: r.choice(["kitchen", "garden", "cabin", "library", "hall"])),
                                              "on": (_p("boolean"), lambda r: r.random() < 0.5)},
                 ["Switch the lamp in the {room} {on:onoff}.", "Turn {on:onoff} the lamp in the {room}.", "{room} lamp {on:onoff}, please."],
                 lambda r, a: dict(ok=True), "The lamp in the {room} is {on:onoff}."),
    "set_temperature": ("Set the heating of a room.", {"room": (_p("string"), lambda r: r.choice(["kitchen", "cabin", "library", "hall"])),
                                                       "degrees": (_p("number"), lambda r: r.randrange(30, 50) / 2)},
                        ["Heat the {room} to {degrees} degrees.", "Set the {room} to {degrees} degrees."],
                        lambda r, a: dict(ok=True), "The {room} is set to {degrees} degrees."),
    "mean": ("Compute the mean of numbers.", {"values": (_p("array", items=dict(type="number")), _list)},
             ["Compute the mean of {values:list}.", "What is the mean of {values:list}?"],
             lambda r, a: dict(mean=round(sum(a["values"]) / len(a["values"]), 1)), "The mean is {mean}."),
    "order_food": ("Order food.", {"items": (_p("array", items=dict(type="string")), _foods), "delivery": (_p("boolean"), lambda r: r.random() < 0.5)},
                   ["Order {items:list} {delivery:with} delivery.", "I want to order {items:list}, {delivery:with} delivery."],
                   lambda r, a: dict(price=_number(r)), "Your order costs {price} euros."),
    "search": ("Search the web.", {"query": (_p("string"), lambda r: f"{r.choice(W.COLOUR_NAMES)} {r.choice(W.THINGS)}")},
               ["Search the web for {query}.", "Look up {query} on the web.", "Find web pages about {query}."],
               lambda r, a: dict(pages=_number(r)), "I found {pages} pages about {query}."),
    "play_music": ("Play a kind of music.", {"style": (_p("string"), lambda r: r.choice(["jazz", "rock", "folk", "pop", "opera"])),
                                             "volume": (_p("integer"), lambda r: r.randrange(1, 11))},
                   ["Play {style} at volume {volume}.", "Put on some {style}, volume {volume}."],
                   lambda r, a: dict(ok=True), "Now playing {style} at volume {volume}."),
    "find_route": ("Find a route between two cities.", {"start": (_p("string"), lambda r: r.choice(W.CITIES)), "goal": (_p("string"), lambda r: r.choice(W.CITIES))},
                   ["Find a route from {start} to {goal}.", "How do I get from {start} to {goal}?", "Route from {start} to {goal}, please."],
                   lambda r, a: dict(km=_number(r)), "The route from {start} to {goal} is {km} km long."),
    "book_table": ("Book a table in a restaurant.", {"name": (_p("string"), lambda r: r.choice(W.NAMES)), "people": (_p("integer"), lambda r: r.randrange(1, 13)),
                                                     "time": (_p("string", "HH:MM"), _time)},
                   ["Book a table for {people} people at {time} in the name of {name}.", "Reserve a table at {time} for {people} people, name {name}."],
                   lambda r, a: dict(table=r.randrange(1, 40)), "Table {table} is booked for {people} people at {time}."),
    "add_contact": ("Add a person to the contacts.", {"person": (_p("object", properties=dict(name=dict(type="string"), phone=dict(type="integer"))),
                                                                 lambda r: dict(name=r.choice(W.NAMES), phone=r.randrange(1000, 10000)))},
                    ["Add {person:who} to my contacts.", "Save the contact {person:who}."],
                    lambda r, a: dict(ok=True), "The contact is saved."),
    "get_price": ("Get the price of a product.", {"product": (_p("string"), lambda r: r.choice(W.THINGS))},
                  ["How much does a {product} cost?", "What is the price of a {product}?", "Price of a {product}?"],
                  lambda r, a: dict(price=_number(r)), "A {product} costs {price} euros."),
    "roll_dice": ("Roll dice.", {"count": (_p("integer"), lambda r: r.randrange(1, 7))}, ["Roll {count} dice.", "Throw {count} dice for me."],
                  lambda r, a: dict(rolls=[r.randrange(1, 7) for _ in range(a["count"])]), "The dice show {rolls:list}."),
    "lock_door": ("Lock or unlock the door.", {"locked": (_p("boolean"), lambda r: r.random() < 0.5)},
                  ["Please {locked:lock} the door.", "{locked:lock} the front door."],
                  lambda r, a: dict(ok=True), "The door is {locked:lock}ed."),
    "get_stock": ("Get how many pieces are in stock.", {"product": (_p("string"), lambda r: r.choice(W.THINGS)), "shop": (_p("string"), lambda r: r.choice(W.CITIES))},
                  ["How many pieces of {product} are in stock in {shop}?", "Check the stock of {product} in {shop}."],
                  lambda r, a: dict(pieces=_number(r)), "There are {pieces} pieces of {product} in {shop}."),
    "translate": ("Translate a word.", {"word": (_p("string"), lambda r: r.choice(W.ANIMALS)), "language": (_p("string"), lambda r: r.choice(["French", "German", "Spanish", "Italian"]))},
                  ["Translate {word} into {language}.", "What is {word} in {language}?", "How do you say {word} in {language}?"],
                  lambda r, a: dict(done=True), "I translated {word} into {language}."),
    "create_event": ("Create a calendar event.", {"title": (_p("string"), lambda r: r.choice(W.HOBBIES)), "day": (_p("string"), lambda r: r.choice(W.DAYS)),
                                                  "hours": (_p("number"), lambda r: r.randrange(1, 9) / 2)},
                     ["Plan {title} on {day} for {hours} hours.", "Put {title} on {day} into my calendar, {hours} hours."],
                     lambda r, a: dict(ok=True), "{title} is planned for {day}."),
}


FEW = ("lock_door", "roll_dice", "set_lamp")  # tools with fewer than twenty different calls


class _Shown:
    """A value inside a request template: {x:list}, {x:onoff}, {x:with}, {x:lock}, {x:who}."""

    def __init__(self, value):
        self.value = value

    def __format__(self, how):
        v = self.value
        if how == "list":
            return ", ".join(map(str, v))
        if how == "onoff":
            return "on" if v else "off"
        if how == "with":
            return "with" if v else "without"
        if how == "lock":
            return "lock" if v else "unlock"
        if how == "who":
            return f"{v['name']} with phone number {v['phone']}"
        return str(v)


def spec_of(name):
    description, params = SPECS[name][:2]
    return dict(type="function", function=dict(name=name, description=description, parameters=dict(
        type="object", properties={k: s for k, (s, _) in params.items()}, required=list(params))))


def declared(r, wanted, n):
    """A shuffled list of n specifications that holds the wanted one (when not None)."""
    names = r.sample([k for k in SPECS if k != wanted], n - (wanted is not None)) + ([wanted] if wanted else [])
    r.shuffle(names)
    return [spec_of(k) for k in names]


def draw_call(r):
    """(key, tool name, arguments, user text)"""
    name = r.choice(list(SPECS))
    _, params, requests = SPECS[name][:3]
    args = {k: draw(r) for k, (_, draw) in params.items()}
    text = r.choice(requests).format(**{k: _Shown(v) for k, v in args.items()})
    return f"{name}|{json.dumps(args)}", name, args, text[0].upper() + text[1:]


def call_message(name, args, i, thinking_text):
    return dict(role="assistant", reasoning_content=thinking_text, content="", tool_calls=[dict(
        id=f"call_{i}", type="function", function=dict(name=name, arguments=json.dumps(args, ensure_ascii=False)))])


def think_text(name, args):
    return f"tool {name}: " + ", ".join(f"{k} = {v if isinstance(v, str) else json.dumps(v)}" for k, v in args.items())


def result_and_answer(r, name, args):
    """(tool result text, final answer)"""
    result = SPECS[name][3](r, args)
    slots = {k: _Shown(v) for k, v in {**args, **result}.items()}
    answer = SPECS[name][4].format(**slots)
    return json.dumps(result), answer[0].upper() + answer[1:]
