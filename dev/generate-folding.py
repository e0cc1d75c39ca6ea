#!/usr/bin/env python3
"""Remakes Shared/NephosPredicates/FoldingTable.swift from Unicode 14.0, and prints the digests that its test holds.

The table is version 1 for good: a newer Unicode becomes a second table, not another content of this one.
"""
import pathlib
import sys
import unicodedata

if unicodedata.unidata_version != "14.0.0":
    sys.exit("This needs a Python that has Unicode 14.0.0 (Python 3.11).")

STRIPPED = [
    (0x300, 0x36F), (0x591, 0x5BD), (0x5BF, 0x5BF), (0x5C1, 0x5C2), (0x5C4, 0x5C5), (0x5C7, 0x5C7), (0x64B, 0x65F),
    (0x670, 0x670), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF), (0xFE20, 0xFE2F),
]
SCALARS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def small(char):
    """The one code point without capitals, if it is one."""
    for candidate in (char.casefold(), char.lower()):
        if len(candidate) == 1:
            return candidate
    return char


def folded(text, case, diacritics):
    text = unicodedata.normalize("NFD", text)
    if diacritics:
        text = "".join(c for c in text if not any(a <= ord(c) <= b for a, b in STRIPPED))
    if case:
        text = "".join(c if unicodedata.combining(c) else small(c) for c in text)
    return unicodedata.normalize("NFC", text)


def ranges(holds):
    result = []
    for c in SCALARS:
        value = holds(c)
        if not value:
            continue
        if result and result[-1][1] == c - 1 and result[-1][2] == value:
            result[-1][1] = c
        else:
            result.append([c, c, value])
    return result


def literal(name, comment, entries):
    lines, line = [], ""
    for entry in entries:
        if len(line) + len(entry) + 1 > 110:
            lines.append(line)
            line = ""
        line += (" " if line else "") + entry
    lines.append(line)
    body = "\n".join("        " + line for line in lines)
    return f'    /// {comment}\n    static let {name}: StaticString = """\n{body}\n        """\n'


decompositions = []
for c in SCALARS:
    parts = unicodedata.decomposition(chr(c)).split()
    if not parts or parts[0].startswith("<"):
        continue
    assert len(parts) <= 2
    joins = len(parts) == 2 and unicodedata.normalize("NFC", chr(c)) == chr(c)
    decompositions.append(f"{c:x}{'=' if joins else '!'}{'+'.join(format(int(p, 16), 'x') for p in parts)}")

cases = []
for c in SCALARS:
    if unicodedata.combining(chr(c)) or small(chr(c)) == chr(c) or unicodedata.decomposition(chr(c))[:1] not in ("", "<"):
        continue
    assert unicodedata.normalize("NFD", small(chr(c))) == small(chr(c))
    cases.append(f"{c:x}={ord(small(chr(c))):x}")

orders = [f"{a:x}-{b:x}={v:x}" for a, b, v in ranges(lambda c: unicodedata.combining(chr(c)))]
separators = [
    f"{a:x}-{b:x}"
    for a, b, _ in ranges(
        lambda c: unicodedata.category(chr(c))[0] in "ZPS" or unicodedata.category(chr(c)) == "Cc")
]

source = (
    "// Made by dev/generate-folding.py from Unicode 14.0; not for changing by hand.\n\n"
    "enum FoldingTable {\n"
    + literal("decompositions", "What a code point is made of; `!` where the parts do not make it again.", decompositions)
    + "\n"
    + literal("smallLetters", "The code point without capitals, of those that are made of nothing else.", cases)
    + "\n"
    + literal("combiningClasses", "In which order marks after one another go.", orders)
    + "\n"
    + literal("separators", "What stands between words: spaces, punctuation, symbols, control characters.", separators)
    + "}\n"
)
target = pathlib.Path(__file__).resolve().parent.parent / "Shared/NephosPredicates/FoldingTable.swift"
target.write_text(source)

for case, diacritics, letters in ((True, False, "c"), (False, True, "d"), (True, True, "cd")):
    digest = 0xCBF29CE484222325
    for c in SCALARS:
        for byte in folded(chr(c), case, diacritics).encode() + b"\xff":
            digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    print(f"[{letters}] 0x{digest:016x}")
