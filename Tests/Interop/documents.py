"""Documents in Python, written from docs/protocol/ and Protos/ alone.

Usage: documents.py CONNECTION ACCOUNT PASSWORD

Puts files into the container of the default app, and gets them again on
another device and with `nephos docs`, if that is in PATH; and the other way
round. Exits 0 when all of it happened as documented.
"""

import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import zmq

import chunks
import compression
from chunks import Child, Root
from client import (
    CHUNK, CREDIT, GET, NO_CHUNK, REFUSED, STORED, Bulk, Device, call_patiently, check, check_silently, expect, frame,
    open_upload)
from nephos import bulk_pb2, changes_pb2, documents_pb2, errors_pb2, notifications_pb2

INLINE_MAX = 4096
COUNTED_MIN = 4096
NODES_MAX = 65_536
DOCUMENTS = bytes(15) + b"\x01"


class Container:
    """A container of a device's app."""

    # Whether it knows Zstandard, and how many bytes of chunks came.
    compresses = False
    taken = 0

    def __init__(self, device):
        self.device = device
        self.id = device.containers[0]
        self.requests = device.door("documents")
        self.bulk = Bulk(device)
        # Named where the service wants it in any case.
        self.of_content = ""
        self.folder = DOCUMENTS
        self.items, self.head = {}, changes_pb2.ChangeToken()

    def call(self, body):
        module = sys.modules[type(body).__module__]
        reply_type = getattr(module, type(body).__name__ + "Reply")
        return call_patiently(self.requests, body, reply_type, self.device.token)

    def list(self):
        """All items by their ids, as they are encoded, and the last page: what was read before, and what came since."""
        request = changes_pb2.ReadChanges(scope=self.id, after=self.head)
        changed = {}
        while True:
            reply = self.call(request)
            changed.update((change.item, None if change.deleted else change.body) for change in reply.changes)
            if not reply.HasField("place"):
                break
            request.place.CopyFrom(reply.place)
        self.head = reply.token
        self.items = {digits: body for digits, body in {**self.items, **changed}.items() if body is not None}
        return self.items, reply

    def find(self, name):
        """The item of this name in the folder."""
        for digits, body in self.list()[0].items():
            item = documents_pb2.DocumentItem()
            item.ParseFromString(body)
            if (item.parent, item.name, item.HasField("trash")) == (self.folder, name, False):
                return digits, item
        raise AssertionError(f"there is no {name}")

    def put(self, name, content):
        """Makes a file in the folder; the change's reply, and how many chunks were stored."""
        item = os.urandom(16)
        described = documents_pb2.DocumentContent(version=os.urandom(16), length=len(content))
        stored, nodes, transfer = 0, [], b""
        if len(content) <= INLINE_MAX:
            described.inline = content
        else:
            pieces = {chunks.chunk_id(piece): piece for piece in chunks.divide(content)}
            root, tree = chunks.build(chunks.children_of(chunks.divide(content)))
            described.root, described.depth = root.id, root.depth
            missing = self.missing([*pieces, *tree])
            absent = [pieces[one] for one in missing if one in pieces]
            nodes = [node for one, node in tree.items() if one in missing]
            if missing:
                transfer = os.urandom(16)
                self.store(transfer, absent)
            stored = len(absent)
        create = documents_pb2.CreateItem(
            kind=documents_pb2.ITEM_KIND_FILE, parent=self.folder, name=name, place_version=os.urandom(16),
            content=described)
        reply = self.apply([documents_pb2.DocumentChange(item=item, create=create)], nodes, transfer)
        if transfer:
            self.requests.call(
                bulk_pb2.CloseTransfer(transfer_id=transfer), bulk_pb2.CloseTransferReply, self.device.token)
        return item.hex(), reply, stored

    def make_folder(self, name):
        item = os.urandom(16)
        create = documents_pb2.CreateItem(
            kind=documents_pb2.ITEM_KIND_FOLDER, parent=self.folder, name=name, place_version=os.urandom(16))
        self.apply([documents_pb2.DocumentChange(item=item, create=create)])
        return item

    def apply(self, changes, nodes=(), transfer=b""):
        """Carries changes out, with what nodes do not fit beside them sent ahead."""
        batches = [[]]
        for node in nodes:
            if sum(map(len, batches[-1])) + len(node) > NODES_MAX:
                batches.append([])
            batches[-1].append(node)
        for ahead in batches[:-1]:
            self.call(documents_pb2.ApplyChanges(container=self.id, nodes=ahead, transfer_id=transfer))
        return self.call(
            documents_pb2.ApplyChanges(container=self.id, changes=changes, nodes=batches[-1], transfer_id=transfer))

    def missing(self, ids):
        """Those of the ids that the container lacks."""
        lacking = []
        for start in range(0, len(ids), 1024):
            asked = ids[start:start + 1024]
            reply = self.call(bulk_pb2.FindMissing(container=self.id, ids=asked))
            lacking += [asked[place] for place in reply.missing]
        return lacking

    def store(self, transfer, pieces):
        """Stores chunks in an upload, with no more unanswered than the credit."""
        room = sum(max(COUNTED_MIN, len(piece)) for piece in pieces)
        opened = open_upload(self.requests, room, transfer, self.device.token, self.of_content)
        waiting, unanswered = {}, 0
        for number, piece in enumerate(pieces):
            packed = compression.compressed(piece) if self.compresses else None
            content = piece if packed is None else packed
            while waiting and unanswered + max(COUNTED_MIN, len(content)) > opened.credit_bytes:
                unanswered -= self.take_stored(opened.ticket, waiting)
            waiting[number] = piece, len(content)
            unanswered += max(COUNTED_MIN, len(content))
            self.bulk.socket.send(
                frame(CHUNK, opened.ticket, number, chunks.chunk_id(piece), content, 0 if packed is None else 1))
        while waiting:
            self.take_stored(opened.ticket, waiting)

    def receive(self, ticket):
        """The next frame under the ticket. What comes of others is the end of an upload that was closed."""
        while True:
            kind, number, of, chunk, content = self.bulk.receive()
            if of == ticket:
                return kind, number, chunk, content
            check_silently((kind, chunk) == (REFUSED, NO_CHUNK), "the ticket of a closed upload is refused")

    def refusal(self, ticket, sent):
        """Why a frame under the ticket is refused."""
        self.bulk.socket.send(sent)
        kind, _, _, content = self.receive(ticket)
        check_silently(kind == REFUSED, "it is refused")
        failure = errors_pb2.Failure()
        failure.ParseFromString(content)
        return failure.code

    def take_stored(self, ticket, waiting):
        kind, number, chunk, _ = self.receive(ticket)
        piece, length = waiting.pop(number)
        check_silently((kind, chunk) == (STORED, chunks.chunk_id(piece)), "a chunk is stored")
        return max(COUNTED_MIN, length)

    def get(self, content):
        """The bytes of a DocumentContent."""
        if content.length <= INLINE_MAX:
            return content.inline
        children = chunks.read_chunks(Root(content.root, content.depth, content.length), self.read_nodes)
        pieces = self.fetch(list(dict.fromkeys(child.id for child in children)))
        for child in children:
            check_silently(len(pieces[child.id]) == child.length, "a chunk is as long as its node says")
        return b"".join(pieces[child.id] for child in children)

    def read_nodes(self, ids):
        nodes = []
        for start in range(0, len(ids), 32):
            asked = bulk_pb2.ReadNodes(container=self.id, ids=ids[start:start + 32])
            nodes += self.call(asked).nodes
        return nodes

    def fetch(self, ids):
        """Chunks by their ids, up to 1024 of them. The credit is raised by what was taken."""
        ticket = self.requests.call(
            bulk_pb2.OpenTransfer(container=self.of_content), bulk_pb2.OpenTransferReply, self.device.token).ticket
        credit, pieces = chunks.CHUNK_MAX, {}
        self.bulk.encoding_max = 1 if self.compresses else 0
        self.bulk.socket.send(frame(CREDIT, ticket, credit))
        for number, one in enumerate(ids):
            self.bulk.socket.send(frame(GET, ticket, number, one, encoding=self.bulk.encoding_max))
        for number, one in enumerate(ids):
            kind, answered, chunk, content = self.receive(ticket)
            check_silently((kind, answered, chunk) == (CHUNK, number, one), "chunks come in the order asked")
            piece = compression.decompressed(content) if self.bulk.encoding else content
            check_silently(chunks.chunk_id(piece) == one, "a chunk's bytes are those of its id")
            pieces[one] = piece
            self.taken += len(content)
            credit += max(COUNTED_MIN, len(content))
            self.bulk.socket.send(frame(CREDIT, ticket, credit))
        return pieces


def set_digest(items, digest_key):
    lanes = [0, 0, 0, 0]
    for digits, body in items.items():
        share = hashlib.sha256(digest_key + digits.encode() + b"\0" + body).digest()
        lanes = [(lane + value) % 2**64 for lane, value in zip(lanes, struct.unpack("<4Q", share))]
    return struct.pack("<4Q", *lanes)


def folder_digests(items, digest_key):
    """The digest of each folder, by its id's digits: of what lies in it, however deep.

    `items` has each item's folder, by its digits, and body."""
    inside = {}
    for digits, (parent, body) in items.items():
        while parent is not None:
            inside.setdefault(parent, {})[digits] = body
            parent = bytes(16).hex() if parent == DOCUMENTS.hex() else items.get(parent, (None,))[0]
    return {folder: set_digest(all_of_it, digest_key) for folder, all_of_it in inside.items()}


def page(name, section):
    """A section of a page in docs/protocol/."""
    path = os.path.join(os.path.dirname(__file__), "../../docs/protocol", name)
    with open(path, encoding="utf-8") as document:
        return document.read().split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]


def rows(text, heading):
    """The rows of the table that begins with this heading, without it."""
    lines = text.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def hexadecimal(text):
    """The indented blocks of hexadecimal lines."""
    blocks = re.findall(r"(?:^    [0-9a-f]+\n?)+", text, re.MULTILINE)
    return [bytes.fromhex("".join(block.split())) for block in blocks]


def check_digest_vectors():
    """The items of docs/protocol/documents.md, encoded here, and the digests of each and of both."""
    text = page("documents.md", "Digests")
    folder_id, file_id = bytes(range(0x10, 0x20)), bytes(range(0x20, 0x30))
    folder = documents_pb2.DocumentItem(
        kind=documents_pb2.ITEM_KIND_FOLDER, parent=DOCUMENTS, name=b"Letters", place_version=bytes(range(0x30, 0x40)),
        attributes=documents_pb2.ItemAttributes(created=1_700_000_000_000_000_000))
    file = documents_pb2.DocumentItem(
        kind=documents_pb2.ITEM_KIND_FILE, parent=folder_id, name=b"note.txt", place_version=bytes(range(0x40, 0x50)),
        content=documents_pb2.DocumentContent(
            version=bytes(range(0x50, 0x60)), length=13, inline=b"hello, nephos", modified=1_700_000_000_500_000_000,
            device_id="dev_one", app_id="T.files", committed=1_700_000_001_000_000_000),
        attributes=documents_pb2.ItemAttributes(
            created=1_700_000_000_500_000_000, executable=True, tags=["red"], favourite_rank=3,
            extended=[documents_pb2.ExtendedAttribute(name=b"user.mark", value=b"\x01\x02")]))
    bodies = [item.SerializeToString(deterministic=True) for item in (folder, file)]
    check(bodies == hexadecimal(text), "items are encoded as in the vectors")
    items = {folder_id.hex(): bodies[0], file_id.hex(): bodies[1]}
    sets = [{name: items[name]} for name in items] + [items]
    digests = [f"`{set_digest(one, bytes(range(32))).hex()}`" for one in sets]
    check(digests == [row[1] for row in rows(text, "items")], "their digests are those of the vectors")


def check_folders(container, items, last):
    """The digests of all folders, read a few items at a time, are those of what lies in them."""
    parents = {digits: (documents_pb2.DocumentItem.FromString(body).parent.hex(), body) for digits, body in items.items()}
    expected = folder_digests(parents, last.digest_key)
    folders, read = [bytes(16)], set()
    while folders:
        request = documents_pb2.ListItemDigests(container=container.id, folder=folders.pop(), items_max=3)
        while True:
            reply = container.call(request)
            digest = expected.get(request.folder.hex(), bytes(32))
            check_silently(reply.folder_digest == digest, "a folder's digest is that of what lies in it")
            for entry in reply.entries:
                read.add(entry.item.hex())
                if entry.folder_digest or entry.item == DOCUMENTS:
                    folders.append(entry.item)
            if not reply.more:
                break
            request.after = reply.entries[-1].item
    check(read - {DOCUMENTS.hex()} == set(items), f"the digests of {len(read)} items lead to all of them")
    check(reply.digest == last.digest, "the container's digest is told with them")
    asked = [bytes.fromhex(digits) for digits in sorted(items)][:256]
    reply = container.call(documents_pb2.ListItemDigests(container=container.id, items=asked))
    check([(entry.item, entry.body) for entry in reply.entries] == [(item, items[item.hex()]) for item in asked],
          "items are told by themselves")
    expect(errors_pb2.ERROR_CODE_INVALID_ARGUMENTS, "each once",
           lambda: container.call(documents_pb2.ListItemDigests(container=container.id, items=asked[:1] * 2)))


def zeros_then(zeros, seed):
    return bytes(zeros) + chunks.split_mix_bytes(seed, (1 << 20) - zeros)


def shortest_chunk():
    """A new one, which does not end with its content: of the third row's first only what is looked at."""
    return os.urandom(65_472) + zeros_then(65_472, 493_623)[65_472:65_537]


def check_vectors():
    text = page("content.md", "Chunks and manifests")
    first = chunks.split_mix_bytes(5, 2 << 20)
    contents = [
        first, zeros_then(65_472, 149_940), zeros_then(65_472, 493_623), zeros_then(196_544, 29_585),
        zeros_then(196_544, 231_061), bytes(3 << 20)]
    divided = [chunks.divide(content) for content in contents]
    documented = [[int(length) for length in row[1].split(", ")] for row in rows(text, "content")]
    check([[len(one) for one in pieces] for pieces in divided] == documented, "contents are divided as in the vectors")
    check(all(f"{number:016x}" in text for number in chunks.GEAR[:3]), "by the same numbers")

    def synthetic(count):
        return [Child(chunks.chunk_id(struct.pack("<Q", number)), 65_537 + number) for number in range(count)]
    lists = (chunks.children_of(divided[0]), synthetic(513), synthetic(100_000))
    built = [chunks.build(children) for children in lists]
    check(
        [[f"`{root.id.hex()}`", str(root.depth), str(root.length), str(len(nodes))] for root, nodes in built]
        == [row[1:] for row in rows(text, "chunks")],
        "their trees are those of the vectors")
    check(chunks.chunk_id(divided[0][0]).hex() in text, "with the first chunk's id")
    node, coded = hexadecimal(text)
    two = chunks.children_of([b"hello, nephos", b"nephos"])
    check(
        chunks.encode_node(0, two) == node and chunks.chunk_id(node).hex() in text
        and chunks.decode_node(node, Child(chunks.chunk_id(node), 19), 0, True) == two,
        "a node is the documented one, and is read")
    check(compression.decompressed(coded) == b"hello, nephos\n" * 8, "the compressed chunk is decoded")


def check_files(writer, reader):
    """What one device puts the other gets: inline, in chunks, and with two levels of nodes."""
    many = shortest_chunk() * 600
    cases = [
        (b"small \xc3\xa9.txt", b"hello, nephos\n", 0), (b"empty", b"", 0), (b"inline", os.urandom(INLINE_MAX), 0),
        (b"one chunk", os.urandom(INLINE_MAX + 1), 1), (b"long", None, None), (b"two levels", many, 1)]
    written = {}
    for name, content, expected in cases:
        content = os.urandom(1_500_000) if content is None else content
        digits, reply, stored = writer.put(name, content)
        check_silently(expected in (None, stored), f"{name} stores {expected} chunks")
        check_silently([change.item for change in reply.items] == [digits], "the reply has the item")
        written[name] = content
        found, item = reader.find(name)
        check_silently(
            found == digits and item.content.device_id == writer.device.device_id, "who committed it is told")
        check(reader.get(item.content) == content, f"{name.decode()}: another device has the same bytes")
    check(reader.find(b"two levels")[1].content.depth == 2, "the last has two levels of nodes")
    _, _, stored = writer.put(b"long again", written[b"long"])
    check(stored == 0, "what the container has is not stored again")
    written[b"long again"] = written[b"long"]
    items, last = reader.list()
    check(set_digest(items, last.digest_key) == last.digest, "the digest is the documented one")
    check_folders(reader, items, last)
    info = documents_pb2.ContainerInfo()
    info.ParseFromString(last.info)
    check(info.item_count == len(items) and info.name_rule == 1, "the last page says how full the container is")
    return written


def lines(count):
    """A text that compresses to a fifth or so, unlike any other."""
    return b"".join(
        b"%d. what is written in line %s\n" % (number, os.urandom(4).hex().encode()) for number in range(count))


def check_compression(writer, reader):
    """What is stored compressed is got so, or as it is by whoever does not know it; and the other way round."""
    written = {}
    for name, compresses in ((b"text", False), (b"compressed text", True)):
        writer.compresses, content = compresses, lines(40_000)
        _, _, stored = writer.put(name, content)
        check_silently(stored > 1, "it has several chunks")
        written[name] = content
        for reader.compresses in (False, True):
            reader.taken = 0
            item = reader.find(name)[1]
            check(reader.get(item.content) == content, f"{name.decode()}: the same with Zstandard or without")
            check_silently(
                (reader.taken < len(content) // 2) == (compresses and reader.compresses), "it travels as it lies")
    writer.compresses = reader.compresses = False
    check_hostile_frames(writer)
    return written


def check_hostile_frames(writer):
    """What does not open as it should is refused, and an honest chunk is stored then."""
    text, zeros = lines(2000), bytes(chunks.CHUNK_MAX)
    packed, bomb = compression.compressed(text), compression.compressed(zeros)
    opened = open_upload(writer.requests, 8 << 20, os.urandom(16), writer.device.token, writer.of_content)
    invalid, unknown = errors_pb2.ERROR_CODE_INVALID_ARGUMENTS, errors_pb2.ERROR_CODE_INCOMPATIBLE_VERSION
    padded = compression.MAGIC + b"\x20\x01" + bytes(3000) + b"\x09\0\0x"
    for what, content, chunk, encoding, expected in (
            ("a frame that says a byte more than a chunk has", compression.saying(bomb, chunks.CHUNK_MAX + 1), zeros, 1,
             invalid),
            ("one that opens to more than it says", compression.saying(bomb, chunks.CHUNK_MAX - 1), zeros[1:], 1,
             invalid),
            ("one that opens to less", compression.saying(packed, len(text) + 1), text, 1, invalid),
            ("one with a byte behind it", packed + b"\0", text, 1, invalid),
            ("one of another chunk", packed, zeros, 1, invalid),
            ("one that is longer than its chunk", padded, b"x", 1, invalid),
            ("what is none", text, text, 1, invalid),
            ("an encoding that nobody knows", packed, text, 2, unknown)):
        check(
            writer.refusal(opened.ticket, frame(CHUNK, opened.ticket, 1, chunks.chunk_id(chunk), content, encoding))
            == expected, what + " is refused")
    check_silently(
        writer.refusal(opened.ticket, frame(CREDIT, opened.ticket, 1, encoding=1)) == unknown, "credit has no encoding")
    writer.bulk.socket.send(frame(CHUNK, opened.ticket, 2, chunks.chunk_id(text), packed, 1))
    check(writer.receive(opened.ticket)[:3] == (STORED, 2, chunks.chunk_id(text)), "an honest one is stored then")


def check_notification(writer, reader):
    """A container is followed as every scope is."""
    subscriptions = reader.device.door("notifications", subscriptions=True)
    scope = notifications_pb2.SubscribedScope(service="documents", scope=reader.id)
    subscriptions.call(
        notifications_pb2.Subscribe(scopes=[scope]), notifications_pb2.SubscribeReply, reader.device.token)
    digits, reply, _ = writer.put(b"followed", b"hello")
    notification = subscriptions.next_notification()
    item = documents_pb2.DocumentItem()
    item.ParseFromString(notification.changes[0].body)
    check(
        (notification.token, notification.changes[0].item, item.content.inline) == (reply.token, digits, b"hello"),
        "who follows the container is told, with the item")


def check_changes(writer, reader):
    """A new version, a conflict, a move, the trash, and what is refused."""
    digits, item = reader.find(b"inline")
    identifier = bytes.fromhex(digits)

    def change(container, **kind):
        return container.apply([documents_pb2.DocumentChange(item=identifier, **kind)])

    def version(content, base):
        return documents_pb2.ReplaceContent(content=documents_pb2.DocumentContent(
            version=os.urandom(16), base=base, length=len(content), inline=content))
    change(writer, replace=version(b"second", item.content.version))
    change(reader, replace=version(b"of the first", item.content.version))
    now = reader.find(b"inline")[1]
    check(
        (now.content.inline, [one.inline for one in now.conflicts]) == (b"second", [b"of the first"]),
        "of two versions of one base both are kept")
    change(reader, resolve=documents_pb2.ResolveConflicts(versions=[now.conflicts[0].version]))
    kept = reader.call(documents_pb2.ListVersions(container=reader.id, item=identifier)).versions
    check([one.inline for one in kept[:2]] == [b"of the first", b"second"] and len(kept) == 3, "versions are listed")
    place = documents_pb2.PlaceItem(
        parent=writer.folder, name=b"moved", place_version=os.urandom(16), base=now.place_version)
    moved = change(writer, place=place)
    check(moved.token.sequence > moved.previous_sequence, "a file is renamed")
    again = change(writer, place=place)
    check(
        (again.token.sequence, again.previous_sequence) == (moved.token.sequence,) * 2,
        "a change that is there already changes nothing")
    clash = documents_pb2.PlaceItem(parent=writer.folder, name=b"long", place_version=os.urandom(16))
    expect(errors_pb2.ERROR_CODE_ALREADY_EXISTS, "a name that is taken is refused",
           lambda: change(writer, place=clash))
    old = documents_pb2.PlaceItem(
        parent=writer.folder, name=b"other", place_version=os.urandom(16), base=now.place_version)
    expect(errors_pb2.ERROR_CODE_CONSTRAINT_VIOLATION, "so is a move from where it is not any more",
           lambda: change(writer, place=old))
    expect(errors_pb2.ERROR_CODE_CONSTRAINT_VIOLATION, "and the trash for a version that is not the newest",
           lambda: change(writer, trash=documents_pb2.TrashItem(batch=os.urandom(16), base=item.content.version)))
    batch = os.urandom(16)
    change(writer, trash=documents_pb2.TrashItem(batch=batch))
    expect(errors_pb2.ERROR_CODE_CONSTRAINT_VIOLATION, "and its removal from another batch of the trash",
           lambda: change(writer, remove=documents_pb2.RemoveItem(batch=os.urandom(16))))
    change(writer, remove=documents_pb2.RemoveItem(batch=batch))
    items, last = reader.list()
    check(digits not in items and set_digest(items, last.digest_key) == last.digest, "a file is removed for good")


def check_refusals(writer):
    """Contents that rest on nothing, and a container that is not the app's."""
    def commit(root, depth, length, nodes=()):
        described = documents_pb2.DocumentContent(version=os.urandom(16), length=length, root=root, depth=depth)
        create = documents_pb2.CreateItem(
            kind=documents_pb2.ITEM_KIND_FILE, parent=writer.folder, name=os.urandom(8).hex().encode(),
            place_version=os.urandom(16), content=described)
        return lambda: writer.apply([documents_pb2.DocumentChange(item=os.urandom(16), create=create)], nodes)
    unknown = [Child(os.urandom(32), 100_000), Child(os.urandom(32), 100_000)]
    node = chunks.encode_node(0, unknown)
    expect(errors_pb2.ERROR_CODE_UNKNOWN_ITEM, "a chunk that there is not is no content",
           commit(unknown[0].id, 0, 100_000))
    expect(errors_pb2.ERROR_CODE_UNKNOWN_ITEM, "nor a node whose chunks there are not",
           commit(chunks.chunk_id(node), 1, 200_000, [node]))
    root = writer.find(b"long")[1].content
    expect(errors_pb2.ERROR_CODE_UNKNOWN_ITEM, "nor is there a root of another length",
           commit(root.root, root.depth, root.length + 1))
    for container in ("nobody.has.this", ""):
        expect(errors_pb2.ERROR_CODE_MISSING_ENTITLEMENT, f"container '{container}' is not the app's",
               lambda: writer.call(bulk_pb2.FindMissing(container=container, ids=[NO_CHUNK])))


def check_program(connection, account, password, device, folder_name, written):
    """What `nephos docs` puts Python gets, and the other way round."""
    if not shutil.which("nephos"):
        print("--  not compared with nephos docs, which is not in PATH")
        return
    with tempfile.TemporaryDirectory() as folder:
        def nephos(*arguments):
            subprocess.run(
                ["nephos", *arguments], env={**os.environ, "NEPHOS_HOME": os.path.join(folder, "home")}, cwd=folder,
                check=True, stdout=subprocess.DEVNULL)

        def read(name):
            with open(os.path.join(folder, name), "rb") as file:
                return file.read()
        files = {
            "put small": os.urandom(300), "put long": os.urandom(1_200_000), "put many": shortest_chunk() * 40,
            "put text": lines(40_000)}
        for name, content in {"password": password.encode(), **files}.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)
        nephos("sign-in", connection, "--account", account, "--password-file", "password", "--device-name", "swift")
        nephos("docs", "put", *files, folder_name)
        for name, content in files.items():
            item = device.find(name.encode())[1]
            check(device.get(item.content) == content, f"{name}: what nephos docs put")
            if len(content) > INLINE_MAX:
                root, _ = chunks.build(chunks.children_of(chunks.divide(content)))
                check(
                    (item.content.root, item.content.depth, item.content.length) == root,
                    f"{name}: the root is the one that Python gives it")
        os.mkdir(os.path.join(folder, "got"))
        for name, content in written.items():
            nephos("docs", "get", f"{folder_name}/{name.decode()}", "got/" + name.decode())
            check(read("got/" + name.decode()) == content, f"{name.decode()}: nephos docs gets what Python put")


def main(connection, account, password):
    check_vectors()
    check_digest_vectors()
    context = zmq.Context()
    writer = Container(Device(context, connection, account, password, "python-documents"))
    reader = Container(Device(context, connection, account, password, "python-documents-2"))
    folder_name = "python " + os.urandom(4).hex()
    writer.folder = reader.folder = writer.make_folder(folder_name.encode())
    written = check_files(writer, reader)
    written |= check_compression(writer, reader)
    check_notification(writer, reader)
    check_changes(writer, reader)
    del written[b"inline"]
    check_refusals(writer)
    check_program(connection, account, password, reader, folder_name, written)


if __name__ == "__main__":
    main(*sys.argv[1:4])
