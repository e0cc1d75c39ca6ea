"""What docs/vectors.json says, made anew in Python from docs/predicates.md and docs/protocol/.

Keys of indexes and shares in digests are computed here; which record a predicate is true of, and which text is none, the
service is asked (records.py).
"""

import json
import os
import struct
import unicodedata

from client import check
from documents import folder_digests, set_digest

PATH = os.path.join(os.path.dirname(__file__), "../../docs/vectors.json")
CASE, ACCENTS = 1, 2
TEXT_BYTES = 128
# Marks of Latin, Greek and Cyrillic letters, Hebrew points and Arabic vowel signs, as far as the vectors have them.
MARKS = [(0x300, 0x36F), (0x591, 0x5BD), (0x64B, 0x65F)]


def load():
    with open(PATH, encoding="utf-8") as file:
        return json.load(file)


def folded(text, folding):
    if not folding:
        return text
    text = unicodedata.normalize("NFD", text)
    if folding & ACCENTS:
        text = "".join(c for c in text if not any(first <= ord(c) <= last for first, last in MARKS))
    if folding & CASE:
        text = "".join(c.casefold() if len(c.casefold()) == 1 else c for c in text)
    return unicodedata.normalize("NFC", text)


def number_key(real, beyond):
    bits = struct.unpack(">Q", struct.pack(">d", real + 0.0))[0]
    bits = bits ^ (2**64 - 1) if bits >> 63 else bits | 1 << 63
    return struct.pack(">QH", bits, beyond)


def integer_key(integer):
    real = float(integer)
    # Python compares them exactly.
    if real > integer:
        bits = struct.unpack(">q", struct.pack(">d", real))[0]
        real = struct.unpack(">d", struct.pack(">q", bits + (-1 if real > 0 else 1)))[0]
    return number_key(real, integer - int(real))


def place_key(latitude, longitude):
    def step(degrees, limit):
        return min(max(int((degrees + limit) / (2 * limit) * 2**32), 0), 2**32 - 1)

    code = 0
    for bit in range(31, -1, -1):
        code = code << 2 | (step(latitude, 90) >> bit & 1) << 1 | step(longitude, 180) >> bit & 1
    return struct.pack(">Q", code)


def bytes_key(value):
    ending = b"\0\1" if len(value) <= TEXT_BYTES else b"\0\2"
    return value[:TEXT_BYTES].replace(b"\0", b"\0\xff") + ending


def index_key(value, folding=0, element=False):
    kind, content = next(iter(value.items()), ("missing", None))
    if kind == "real" and content == "nan":
        kind = "nan"
    tag, rest = {
        "missing": lambda: (0x01, b""),
        "list": lambda: (0x02, b""),
        "location": lambda: (0x03, place_key(*content)),
        "nan": lambda: (0x04, b""),
        "integer": lambda: (0x10, integer_key(content)),
        "real": lambda: (0x10, number_key(float(content), 0)),
        "date": lambda: (0x20, struct.pack(">Q", content + 2**63)),
        "string": lambda: (0x30, bytes_key(folded(content, folding).encode())),
        "data": lambda: (0x40, bytes_key(bytes.fromhex(content))),
    }[kind]()
    return bytes([tag | (0x80 if element else 0)]) + rest


def check_keys(vectors):
    for vector in vectors["index_keys"]:
        key = index_key(vector["value"], vector.get("folding", 0), vector.get("element", False))
        check(key.hex() == vector["key"], f"the key of {vector['value']} is {vector['key']}")


def check_digests(vectors):
    for vector in vectors["digests"]:
        items = {item["name"]: bytes.fromhex(item["body"]) for item in vector["items"]}
        check(set_digest(items, bytes.fromhex(vector["key"])).hex() == vector["digest"],
              f"the digest of {sorted(items)} is {vector['digest']}")


def check_folder_digests(vectors):
    for vector in vectors["folder_digests"]:
        items = {item["name"]: (item["parent"], bytes.fromhex(item["body"])) for item in vector["items"]}
        digests = folder_digests(items, bytes.fromhex(vector["key"]))
        for folder, digest in vector["folders"].items():
            check(digests.get(folder, bytes(32)).hex() == digest, f"the digest of the folder {folder} is {digest}")
