"""Chunks and manifests, as docs/protocol/content.md tells of them: no sockets, no protobuf."""

import hashlib
import struct
from typing import NamedTuple

WORD = (1 << 64) - 1
CHUNK_MAX = 1 << 20
SKIPPED = 65_472
CHUNK_MIN = 65_536
STRICT_UNTIL = 196_608
NODE_MAX = 512
NODE_MIN = 32
LENGTH_MAX = 1 << 44
NOTHING = bytes(32)


def split_mix(seed, count):
    """The first `count` numbers of SplitMix64."""
    numbers, state = [], seed
    for _ in range(count):
        state = state + 0x9E3779B97F4A7C15 & WORD
        z = state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD
        z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
        numbers.append(z ^ z >> 31)
    return numbers


GEAR = split_mix(0x6E6570686F73, 256)


def split_mix_bytes(seed, length):
    """The numbers of SplitMix64 as bytes, the least significant of each first."""
    return struct.pack(f"<{(length + 7) // 8}Q", *split_mix(seed, (length + 7) // 8))[:length]


def chunk_end(content, start):
    """Where the chunk ends that begins at `start`."""
    end = min(len(content), start + CHUNK_MAX)
    strict, h = start + STRICT_UNTIL, 0
    for place in range(start + SKIPPED, end):
        h = (h << 1) + GEAR[content[place]] & WORD
        if h < 1 << 48 and place >= start + CHUNK_MIN and (h < 1 << 44 or place >= strict):
            return place + 1
    return end


def divide(content):
    """The chunks of a content."""
    chunks, start = [], 0
    while start < len(content):
        # Where a chunk ends is told by its own bytes, but for the last: one that comes again ends as it did.
        if chunks and len(chunks[-1]) > CHUNK_MIN and content.startswith(chunks[-1], start):
            end = start + len(chunks[-1])
        else:
            end = chunk_end(content, start)
        chunks.append(content[start:end])
        start = end
    return chunks


class Child(NamedTuple):
    id: bytes
    length: int


class Root(NamedTuple):
    id: bytes
    depth: int
    length: int


def chunk_id(chunk):
    return hashlib.sha256(chunk).digest()


def children_of(chunks):
    return [Child(chunk_id(chunk), len(chunk)) for chunk in chunks]


def encode_node(level, children):
    return struct.pack("<BBBBI", 1, 0, level, 0, len(children)) + b"".join(
        struct.pack("<32sQ", *child) for child in children)


def build(children):
    """The root of a content of these chunks, and its nodes by their ids, children first."""
    if not children:
        return Root(NOTHING, 0, 0), {}
    nodes, depth = {}, 0
    while len(children) > 1:
        above, open_node = [], []
        for place, child in enumerate(children):
            open_node.append(child)
            if (len(open_node) == NODE_MAX or len(open_node) >= NODE_MIN and child.id[0] & 0x7F == 0
                    or place == len(children) - 1):
                node = encode_node(depth, open_node)
                nodes[chunk_id(node)] = node
                above.append(Child(chunk_id(node), sum(one.length for one in open_node)))
                open_node = []
        children, depth = above, depth + 1
    return Root(children[0].id, depth, children[0].length), nodes


class Refused(Exception):
    pass


def decode_node(node, child, level, is_top):
    """The children of a node, which its parent or the root names as `child`."""
    def require(condition, what):
        if not condition:
            raise Refused(what)
    require(chunk_id(node) == child.id, "a node's id")
    require(len(node) >= 8, "a node's header")
    suite, key, stored_level, zero, count = struct.unpack("<BBBBI", node[:8])
    require((suite, key) == (1, 0), "a suite or a key that is not known")
    require(zero == 0 and stored_level <= 6 and 1 <= count <= NODE_MAX, "a node's header")
    require(len(node) == 8 + 40 * count, "a node's size")
    require(stored_level == level, "a node's level")
    children = [Child(*entry) for entry in struct.iter_unpack("<32sQ", node[8:])]
    for entry in children:
        require(entry.id != NOTHING and 1 <= entry.length, "a child without id or length")
        require(level > 0 or entry.length <= CHUNK_MAX, "a chunk that is too long")
    require(sum(entry.length for entry in children) == child.length <= LENGTH_MAX, "a node's length")
    require(not is_top or count > 1, "a top node with one child")
    return children


def read_chunks(root, read_nodes):
    """The chunks below a root. `read_nodes` gives the nodes of some ids, in their order."""
    if root.depth > 7 or root.length > (LENGTH_MAX if root.depth else CHUNK_MAX):
        raise Refused("a root's bounds")
    if root.id == NOTHING or root.length == 0:
        if root != Root(NOTHING, 0, 0):
            raise Refused("a root of zeros")
        return []
    children = [Child(root.id, root.length)]
    for level in range(root.depth - 1, -1, -1):
        ids = list(dict.fromkeys(child.id for child in children))
        nodes = dict(zip(ids, read_nodes(ids)))
        is_top = level == root.depth - 1
        children = [entry for child in children for entry in decode_node(nodes[child.id], child, level, is_top)]
    return children
