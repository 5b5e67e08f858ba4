"""selectors.py APPLE HEADERS FILE.m...: compares our headers for Metal with Apple's metal-cpp.

Every method and property: that Apple's class of the same name has the selector, with the same types. Every enumeration: its type and values.
Every selector in a message of the files: that our headers declare it. Exit status 1 and one line for each difference.
"""

import re
import sys
from pathlib import Path

# metal-cpp has no use for these and so does not know them.
ABSENT = {("NSObject", "new"), ("NSObject", "dealloc"), ("NSString", "stringWithUTF8String:"), ("NSObject", "init")}
NAMES = {"BOOL": "bool", "NSUInteger": "NS::UInteger", "NSInteger": "NS::Integer", "MTLBufferDeallocator": "void(^)(void*,NS::UInteger)",
         "MTLComputePipelineReflection**": "MTL::AutoreleasedComputePipelineReflection*", "UInteger": "NS::UInteger",
         "MTL::GPUAddress": "uint64_t", "_Object*": "NS::Object*"}


def our_type(text, owner):
    """The type as metal-cpp writes it, without const, blanks and nullability."""
    text = re.sub(r"\b(_?[Nn]ullable|_?[Nn]onnull|_Nonnull|_Nullable|const|oneway)\b", "", text)
    text = re.sub(r"<ObjectType>|(?<=NSArray)<.*>", "", text)
    text = re.sub(r"id<(\w+)>", r"\1 *", text)
    text = re.sub(r"\binstancetype\b", owner + " *", text)
    text = re.sub(r"\bObjectType\b", "NSObject *", text)
    text = re.sub(r"\s+", "", text)
    if text in NAMES:
        return NAMES[text]
    return re.sub(r"\b(NS|MTL)(?=[A-Z])(?!::)", r"\1::", text)


def apple_type(text, space):
    text = re.sub(r"\bconst\b|\bclass\b", "", text)
    text = re.sub(r"\s+", "", text)
    text = NAMES.get(text, text)
    return text if "::" in text or not re.match(r"[A-Z]\w*\*?$", text) or text.startswith("CF") else f"{space}::{text}"


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)


def evaluate(body, known):
    """Enumerators of a C enumeration, in order, with their values."""
    value, found = -1, {}
    for item in filter(None, (part.strip() for part in body.split(","))):
        name, _, expression = (part.strip() for part in item.partition("="))
        expression = re.sub(r"\b(?:NS|MTL)::|(?<=\d)[uUlL]+\b", "", expression)
        value = eval(expression, {}, {"UIntegerMax": 2**64 - 1, **known, **found}) if expression else value + 1
        found[name] = value
    return found


def our_methods(text):
    """(class, selector) -> [result, arguments...]"""
    methods = {}
    for _, owner, body in re.findall(r"@(protocol|interface)\s+(\w+)[^;\n]*\n(.*?)@end", text, flags=re.S):
        body = re.sub(r"\{.*?\}", "", body, flags=re.S)
        for attributes, kind, name in re.findall(r"@property\((.*?)\)\s*([^;]*?)(\w+);", body):
            methods[owner, name] = [our_type(kind, owner)]
            if "readonly" not in attributes:
                methods[owner, f"set{name[0].upper()}{name[1:]}:"] = ["void", our_type(kind, owner)]
        for result, rest in re.findall(r"^[-+]\s*\(([^()]*)\)\s*([^;]*);", body, flags=re.M):
            parts = re.findall(r"(\w*)\s*:\s*\(([^()]*)\)\s*\w+", rest)
            selector = "".join(label + ":" for label, _ in parts) or rest.strip()
            methods[owner, selector] = [our_type(t, owner) for t in [result] + [kind for _, kind in parts]]
    return methods


def apple_methods(text, space):
    selectors = dict(re.findall(r"_(?:NS|MTL)_PRIVATE_DEF_SEL\((\w+),\s*\"([^\"]*)\"\)", text))
    methods = {}
    pattern = r"_(?:NS|MTL)_INLINE\s+([^;{}()]*?)\s*\b(NS|MTL)::(\w+)(?:<[^<>]*>)?::(\w+)\(([^{}]*?)\)\s*(?:const)?\s*\{(.*?)\n\}"
    for result, where, owner, _, arguments, body in re.findall(pattern, text, flags=re.S):
        sent = re.search(r"_PRIVATE_SEL\((\w+)\)", body)
        if not sent:
            continue
        kinds = []
        for argument in filter(None, (a.strip() for a in re.split(r",(?![^()]*\))", arguments))):
            block = re.match(r"void\s*\(\^\s*\w*\)\s*(\(.*\))$", argument)
            array = re.match(r"(.*?)\w+\[\]$", argument)
            kind = f"void(^){block.group(1)}" if block else array.group(1) + "[]" if array else re.match(r"(.*?)\w+$", argument).group(1)
            kinds.append(apple_type(kind, where))
        selector = selectors.get(sent.group(1), sent.group(1))
        methods.setdefault((where + owner, selector), []).append([apple_type(result, where)] + kinds)
    return methods


def parents(text):
    """Our class or protocol -> those that it takes after."""
    found = {}
    for name, rest in re.findall(r"@(?:protocol|interface)\s+(\w+)\s*(?:<ObjectType>)?\s*([^;\n{]*)\n", text):
        found[name] = re.findall(r"\w+", rest)
    return found


def enumerations(text, pattern):
    known, found = {}, {}
    for kind, name, body in re.findall(pattern, text, flags=re.S):
        values = evaluate(body, known)
        known.update(values)
        found[name] = (kind.strip(), values)
    return found


def compare_methods(ours, apples):
    differences = []
    for (owner, selector), types in sorted(ours.items()):
        theirs = apples.get((owner, selector)) or (apples.get(("NSReferencing", selector)) if owner == "NSObject" else None)
        if (owner, selector) in ABSENT:
            continue
        if not theirs:
            differences.append(f"{owner} {selector}: Apple's class does not have it")
        elif types not in theirs and owner != "NSObject":
            differences.append(f"{owner} {selector}: {types}, Apple's {theirs}")
    return differences


def compare_enumerations(ours, apples):
    differences = []
    for name, (kind, values) in sorted(ours.items()):
        apple_kind, apple_values = apples.get(name[3:], (None, {}))
        if our_type(kind, "") != apple_kind:
            differences.append(f"{name}: of type {kind}, Apple's {apple_kind}")
        for value in values:
            if apple_values.get(value[3:]) != values[value]:
                differences.append(f"{value}: {values[value]}, Apple's {apple_values.get(value[3:])}")
    return differences


def used_selectors(text):
    """Selectors of the messages [receiver a:x b:y], innermost first."""
    text = re.sub(r"\"(\\.|[^\"\\])*\"|'(\\.|[^'\\])*'", "0", without_comments(text))
    message = re.compile(r"\[([^\[\]]*)\]")
    found = set()
    while message.search(text):
        for inside in message.findall(text):
            while re.search(r"\([^()]*\)|\{[^{}]*\}", inside):
                inside = re.sub(r"\([^()]*\)|\{[^{}]*\}", "0", inside)
            words = re.sub(r"\?[^:]*:", "", inside)
            labels = re.findall(r"(\w+)\s*:", words)
            plain = re.match(r"\s*[\w>.\-]+\s+(\w+)\s*$", words)
            if labels or plain:
                found.add("".join(label + ":" for label in labels) or plain.group(1))
        text = message.sub("0", text)
    return found


def main():
    apple, headers, files = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    text = "".join(without_comments(p.read_text()) for folder in ("Foundation", "Metal") for p in sorted((apple / folder).glob("*.hpp")))
    our_text = "".join(without_comments(p.read_text()) for p in sorted(headers.glob("*/*.h")))
    ours, apples = our_methods(our_text), apple_methods(text, "MTL")
    our_values = enumerations(our_text, r"typedef NS_(?:ENUM|OPTIONS)\((\w+), (\w+)\)\s*\{(.*?)\}")
    apple_values = enumerations(text, r"_MTL_(?:ENUM|OPTIONS)\(([\w:]+),\s*(\w+)\)\s*\{(.*?)\}")
    differences = compare_methods(ours, apples) + compare_enumerations(our_values, apple_values)
    declared = {selector for _, selector in ours}
    used = set().union(*(used_selectors(Path(f).read_text()) for f in files))
    differences += [f"{selector}: sent, and not declared in our headers" for selector in sorted(used - declared)]
    print("\n".join(differences) or f"{len(ours)} selectors, {len(used)} of them used, and {sum(len(v) for _, v in our_values.values())} values agree")
    return 1 if differences or not ours or not our_values else 0


if __name__ == "__main__":
    sys.exit(main())
