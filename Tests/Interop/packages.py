"""Packages, as docs/protocol/content.md tells of them: no sockets, no protobuf.

Run by itself it prints the package of the protocol's example, and its SHA-256.
"""

import hashlib
import struct
import sys
from typing import NamedTuple

MARK, FORMAT = b"NEPHOSPK", 1
FILE, FOLDER, LINK = 1, 2, 3
LIST_MAX = 16 << 20
MEMBERS_MAX = 100_000


class Member(NamedTuple):
    kind: int
    path: bytes
    content: bytes = b""
    target: bytes = b""
    executable: bool = False
    modified: int = 0
    attributes: tuple = ()


class Refused(Exception):
    pass


def encode(members):
    """The content of a package of these members."""
    members = sorted(members, key=lambda member: member.path)
    listing = b""
    for member in members:
        listing += struct.pack(
            "<BBHHHqQ", member.kind, member.executable, len(member.path), len(member.target), len(member.attributes),
            member.modified, len(member.content)) + member.path + member.target
        for name, value in sorted(member.attributes):
            listing += struct.pack("<HH", len(name), len(value)) + name + value
    contents = b"".join(member.content for member in members)
    return MARK + struct.pack("<II", FORMAT, len(listing)) + listing + contents


def decode(package):
    """The members of a package, each with its content."""
    def require(condition, what):
        if not condition:
            raise Refused(what)
    require(package[:8] == MARK, "a package's mark")
    form, length = struct.unpack_from("<II", package, 8)
    require(form == FORMAT, "a format that is not known")
    end = 16 + length
    require(length <= LIST_MAX and end <= len(package), "a list's size")
    members, folders, place, content, last = [], set(), 16, end, b""

    def take(count):
        nonlocal place
        require(count <= end - place, "a list's size")
        place += count
        return package[place - count:place]
    while place < end:
        kind, executable, path, target, attributes, modified, length = struct.unpack("<BBHHHqQ", take(24))
        require(kind in (FILE, FOLDER, LINK) and executable <= 1, "a member's kind")
        path, target, pairs = take(path), take(target), []
        for _ in range(attributes):
            name, value = struct.unpack("<HH", take(4))
            pairs.append((take(name), take(value)))
        require(path > last and len(members) < MEMBERS_MAX, "the members' order")
        names = path.split(b"/")
        require(len(path) <= 4095 and len(names) <= 128, "a path's length")
        require(all(1 <= len(name) <= 255 and name not in (b".", b"..") and 0 not in name for name in names),
                "a path")
        require(len(names) == 1 or b"/".join(names[:-1]) in folders, "a member's folder")
        require(kind == FILE or not (executable or modified or length), "what only a file has")
        require((1 <= len(target) <= 4095 and 0 not in target) if kind == LINK else not target, "a target")
        require([name for name, _ in pairs] == sorted({name for name, _ in pairs}), "the attributes' order")
        require(length <= len(package) - content, "a member's length")
        members.append(Member(kind, path, package[content:content + length], target, bool(executable), modified,
                              tuple(pairs)))
        content += length
        last = path
        if kind == FOLDER:
            folders.add(path)
    require(content == len(package), "the content's length")
    return members


EXAMPLE = [
    Member(FILE, b"Info.txt", b"hello, nephos", modified=1_700_000_000_000_000_000,
           attributes=((b"user.mark", b"\x01\x02"),)),
    Member(FOLDER, b"bin"),
    Member(FILE, b"bin/run", b"#!/bin/sh\n", executable=True, modified=-1),
    Member(FILE, b"bin.txt"),
    Member(LINK, b"current", target=b"bin/run"),
]
EXAMPLE_HASH = "36921628a302cb8085599591edf827d36e962202a4ccb9d580323f7cd56819f3"


if __name__ == "__main__":
    package = encode(EXAMPLE)
    if decode(package) != sorted(EXAMPLE, key=lambda member: member.path):
        sys.exit("The example is not read as it was written.")
    print(package.hex())
    print(hashlib.sha256(package).hexdigest())
    if hashlib.sha256(package).hexdigest() != EXAMPLE_HASH:
        sys.exit("The example is another than the protocol's.")
