"""Attacks documents from accounts of their own, within their budgets, with an honest device of another account beside them.

Usage: hostile_documents.py DEPLOYMENT CONNECTION PASSWORD SECONDS PLANS_BYTES TINY_PLAN_BYTES HOSTILE_ACCOUNT...

Tiny items have the last account to themselves, whose plan is so small that a minute's budget fills it: they have to come
as far as the plan lets them, and not one further.
The honest device is of the account `ann`; it puts contents of 200 KB and gets them again. Each attack is a device and
a process of its own. Says what each tried and had refused, what the honest device met, and what the service held.
Exits 1 when something was accepted that must not be, the honest device went without an answer or slower than the
bounds say, or the service ended, held or stored more than they say.
"""

import json
import multiprocessing
import os
import random
import socket
import struct
import sys
import time
import urllib.parse

import zmq

import chunks
import client
import flood
from chunks import Child
from client import CHUNK, CREDIT, GET, REFUSED
from documents import Container, hashlib
from nephos import bulk_pb2, documents_pb2, errors_pb2

GROWTH_MB_MAX = 200
# The honest device, in seconds: the 99th percentile, and the slowest of all. A put is some five calls.
PUT_P99_MAX, GET_P99_MAX, SLOWEST_MAX = 2.0, 2.0, 10.0
# Bytes on the disk for each byte that was accepted or is on a plan: databases, logs and segments that are half dead.
DISK_FACTOR_MAX, DISK_SPARE = 2, 256 << 20

PASSING = (errors_pb2.ERROR_CODE_SERVICE_BUSY, errors_pb2.ERROR_CODE_REQUEST_RATE_LIMITED)
UNKNOWN = errors_pb2.ERROR_CODE_UNKNOWN_ITEM
INVALID = errors_pb2.ERROR_CODE_INVALID_ARGUMENTS


class Breach(Exception):
    """Something was accepted that must not be, or another error came than the documented one."""


class Attacker:
    """A device of a hostile account, that keeps to its budget."""

    def __init__(self, connection, account, password, deadline, seed):
        self.deadline, self.dice = deadline, random.Random(seed)
        self.counts = {}
        self.device = self.sign_in(connection, account, password, f"hostile-{seed}")
        self.container = Container(self.device)

    def sign_in(self, *arguments):
        """Many at once are held off."""
        while True:
            try:
                return client.Device(zmq.Context(), *arguments)
            except client.CallFailed as error:
                if error.failure.code not in PASSING or not self.goes_on:
                    raise
                time.sleep(error.failure.retry_after_milliseconds / 1000 or 0.2)

    @property
    def goes_on(self):
        return time.monotonic() < self.deadline

    def count(self, what, number=1):
        self.counts[what] = self.counts.get(what, 0) + number

    def call(self, body, reply_type=None):
        """Until the service has time for it. Nothing: the time is over."""
        while self.goes_on:
            try:
                reply_type = reply_type or getattr(sys.modules[type(body).__module__], type(body).__name__ + "Reply")
                return self.container.requests.call(body, reply_type, self.device.token)
            except client.CallFailed as error:
                if error.failure.code not in PASSING:
                    raise
                self.count("held off")
                time.sleep(min(5, error.failure.retry_after_milliseconds / 1000 or 0.05))
        raise TimeoutError

    def refused(self, what, codes, body, reply_type=None):
        codes = codes if isinstance(codes, tuple) else (codes,)
        try:
            self.call(body, reply_type)
        except client.CallFailed as error:
            if error.failure.code not in codes:
                raise Breach(f"{what}: {error}") from error
            self.count(what + " refused")
        else:
            raise Breach(f"{what}: accepted")

    def apply(self, *changes, nodes=(), transfer=b"", source=""):
        return documents_pb2.ApplyChanges(
            container=self.container.id, changes=changes, nodes=nodes, transfer_id=transfer, source_container=source)

    def creation(self, name, kind=documents_pb2.ITEM_KIND_FILE, parent=None, **content):
        create = documents_pb2.CreateItem(
            kind=kind, parent=parent or self.container.folder, name=name, place_version=os.urandom(16),
            clash=documents_pb2.NAME_CLASH_RENAME)
        if kind != documents_pb2.ITEM_KIND_FOLDER:
            create.content.CopyFrom(documents_pb2.DocumentContent(version=os.urandom(16), **content))
        return documents_pb2.DocumentChange(item=os.urandom(16), create=create)

    def open(self, room, transfer):
        return self.call(
            bulk_pb2.OpenTransfer(transfer_id=transfer, upload_bytes=room), bulk_pb2.OpenTransferReply)

    def close(self, transfer):
        self.call(bulk_pb2.CloseTransfer(transfer_id=transfer), bulk_pb2.CloseTransferReply)

    def fresh_name(self):
        return self.dice.randbytes(12).hex().encode()


# What a hostile device does until its deadline. Each gets (attacker, victim): what the honest account has.

def foreign(one, victim):
    """Names chunks, nodes and roots that another account has."""
    ids = victim["chunks"] + victim["nodes"]
    ticket = one.call(bulk_pb2.OpenTransfer(), bulk_pb2.OpenTransferReply).ticket
    bulk = client.Bulk(one.device)
    bulk.socket.send(client.frame(CREDIT, ticket, 1 << 30))
    children = [Child(part, length) for part, length in zip(victim["chunks"], victim["lengths"])]
    while one.goes_on:
        lacking = one.call(bulk_pb2.FindMissing(container=one.container.id, ids=ids))
        if list(lacking.missing) != list(range(len(ids))) or lacking.held or lacking.damaged:
            raise Breach("the service told what another account has")
        one.refused("a foreign root", UNKNOWN, one.apply(one.creation(
            one.fresh_name(), root=victim["root"], depth=victim["depth"], length=victim["length"])))
        root, tree = chunks.build(children)
        one.refused("a node of foreign chunks", UNKNOWN, one.apply(one.creation(
            one.fresh_name(), root=root.id, depth=root.depth, length=root.length), nodes=list(tree.values())))
        one.refused("a foreign node", UNKNOWN, bulk_pb2.ReadNodes(container=one.container.id, ids=victim["nodes"]))
        one.refused("a foreign item", UNKNOWN, documents_pb2.ListVersions(
            container=one.container.id, item=victim["item"]))
        one.refused(
            "a container of nobody", errors_pb2.ERROR_CODE_MISSING_ENTITLEMENT,
            one.apply(one.creation(one.fresh_name(), inline=b"x", length=1), source="nobody.has.this"))
        for part in victim["chunks"]:
            kind, _, _, _, _ = bulk.ask(client.frame(GET, ticket, 1, part))
            if kind != REFUSED:
                raise Breach("a foreign chunk was sent")
            one.count("a foreign chunk refused")


def manifests(one, victim):
    """Trees that name what is not there, lie about sizes, come back to themselves, or are as large as may be."""
    part = os.urandom(70_000)
    child = Child(chunks.chunk_id(part), len(part))
    while one.goes_on:
        # The chunk goes with the tree that is removed at the end of each round.
        transfer = os.urandom(16)
        one.container.store(transfer, [part])

        def commit(what, codes, node, length, depth=1, root=None, others=()):
            one.refused(what, codes, one.apply(
                one.creation(one.fresh_name(), root=root or chunks.chunk_id(node), depth=depth, length=length),
                nodes=[*others, node], transfer=transfer))
        missing = Child(one.dice.randbytes(32), 70_000)
        commit("a node of a missing chunk", UNKNOWN, chunks.encode_node(0, [child, missing]), 140_000)
        longer = Child(child.id, child.length + 1)
        commit("a chunk of another length", (UNKNOWN, INVALID), chunks.encode_node(0, [child, longer]), 140_001)
        pair = chunks.encode_node(0, [child, child])
        commit("a root of another length", (UNKNOWN, INVALID), pair, 140_001)
        commit("a root of another depth", (UNKNOWN, INVALID), pair, 140_000, depth=3)
        # A node that names the one that names it cannot be: it names what is not there, or a level that is not its.
        loop = chunks.encode_node(0, [Child(chunks.chunk_id(pair), 140_000), child])
        commit("a node for a chunk", (UNKNOWN, INVALID), loop, 210_000, others=[pair])
        above = chunks.encode_node(3, [Child(chunks.chunk_id(pair), 140_000)] * 2)
        commit("a level left out", (UNKNOWN, INVALID), above, 280_000, depth=4, others=[pair])
        too_long = chunks.encode_node(6, [Child(chunks.chunk_id(pair), 1 << 43)] * 3)
        commit("more than may be", errors_pb2.ERROR_CODE_LIMIT_EXCEEDED, too_long, 3 << 43, depth=7, others=[pair])
        for damage in range(8):
            header = bytearray(pair)
            header[damage] ^= 1 << one.dice.randrange(8)
            commit("a damaged header", (UNKNOWN, INVALID, errors_pb2.ERROR_CODE_INCOMPATIBLE_VERSION), bytes(header), 140_000)
        # A tree of diamonds is a content: some terabytes of one chunk, in a few nodes. Whose account it is counts it.
        tree, node, length = [], pair, 140_000
        for level in range(1, 4):
            tree.append(node)
            node = chunks.encode_node(level, [Child(chunks.chunk_id(node), length)] * 64)
            length *= 64
        change = one.creation(one.fresh_name(), root=chunks.chunk_id(node), depth=4, length=length)
        one.call(one.apply(change, nodes=[*tree, node], transfer=transfer))
        one.count("trees of diamonds")
        batch = os.urandom(16)
        for kind in ({"trash": documents_pb2.TrashItem(batch=batch)}, {"remove": documents_pb2.RemoveItem()}):
            one.call(one.apply(documents_pb2.DocumentChange(item=change.item, **kind)))


def frames(one, victim):
    """Frames that say they are packed, as a small one that opens to much would, or that are longer than may be."""
    transfer = os.urandom(16)
    opened = one.open(1 << 20, transfer)
    # A frame of zstd whose header says that it opens to 8 EiB, and a thousand blocks that repeat one byte.
    bomb = bytes.fromhex("28b52ffde0ffffffffffffff7f") + b"\x02\x00\x10\x00" * 1000
    while one.goes_on:
        bulk = client.Bulk(one.device)
        for _ in range(200):
            frame = bytearray(client.frame(CHUNK, opened.ticket, 1, hashlib.sha256(bomb).digest(), bomb))
            place = one.dice.choice([1, 2, 2, 3])
            # Encoding 1 is Zstandard.
            frame[place] = 1 if place == 2 and one.dice.randrange(2) else one.dice.randrange(2, 256)
            try:
                kind, _, _, _, _ = bulk.ask(bytes(frame))
            except TimeoutError:
                # Rejections have a budget of their own; beyond it a device hears nothing.
                one.count("held off without an answer")
                break
            if kind != REFUSED:
                raise Breach("a packed frame was taken")
            one.count("a packed frame refused")
            if not one.goes_on:
                break
        large = client.frame(CHUNK, opened.ticket, 2, hashlib.sha256(b"").digest(), bytes((1 << 20) + 1))
        bulk.socket.send(large)
        one.count("too large a frame")
        time.sleep(0.2)
        bulk.socket.close()


def untrue(one, victim):
    """Chunks of some hundred bytes that open to 1 MiB each, and are not what their ids say: as fast as they are answered."""
    opened = one.open(64 << 20, os.urandom(16))
    # A frame of zstd of 1 MiB of zeros: blocks of 128 KiB that repeat one byte.
    blocks = [struct.pack("<I", (128 << 10) << 3 | 2 | (number == 7))[:3] + b"\0" for number in range(8)]
    frame = bytes.fromhex("28b52ffda0") + struct.pack("<I", 1 << 20) + b"".join(blocks)
    bulk, sent, answered = client.Bulk(one.device), 0, 0
    while one.goes_on:
        # As many as the credit is for.
        while sent - answered < 1000:
            message = bytearray(client.frame(CHUNK, opened.ticket, sent + 1, os.urandom(32), frame))
            message[2] = 1
            bulk.socket.send(bytes(message))
            sent += 1
        while bulk.socket.poll(1000 if sent - answered >= 1000 else 0):
            kind, _, _, _, content = bulk.receive()
            failure = errors_pb2.Failure.FromString(content)
            answered += 1
            if kind != REFUSED:
                raise Breach("a chunk was taken that is none")
            one.count("held off" if failure.code == errors_pb2.ERROR_CODE_REQUEST_RATE_LIMITED else "chunks opened")
            if sent - answered < 500:
                break
    bulk.socket.close()


def tiny(one, victim):
    """As many items as the plan lets through, of one byte each."""
    number = 0
    while one.goes_on:
        folder = one.creation(one.fresh_name(), kind=documents_pb2.ITEM_KIND_FOLDER)
        one.call(one.apply(folder))
        for _ in range(100):
            batch = []
            for _ in range(500):
                number += 1
                batch.append(one.creation(b"%d" % number, parent=folder.item, inline=b"x", length=1))
            one.call(one.apply(*batch))
            one.count("tiny items", 500)


def cycles(one, victim):
    """Folders in themselves, as deep as may be and deeper, and conditions on all of it."""
    while one.goes_on:
        chain, parent = [], one.container.folder
        for _ in range(100):
            chain.append(one.creation(b"d", kind=documents_pb2.ITEM_KIND_FOLDER, parent=parent))
            parent = chain[-1].item
        one.call(one.apply(*chain))
        one.count("chains of folders")

        def into(item, parent):
            return one.apply(documents_pb2.DocumentChange(item=item, place=documents_pb2.PlaceItem(
                parent=parent, name=one.fresh_name(), place_version=os.urandom(16))))
        for depth in (0, 1, 50, 99):
            one.refused("a folder in itself", errors_pb2.ERROR_CODE_CONSTRAINT_VIOLATION, into(
                chain[0].item, chain[depth].item))
        deeper = [one.creation(b"e", kind=documents_pb2.ITEM_KIND_FOLDER, parent=parent)]
        for _ in range(60):
            deeper.append(one.creation(b"e", kind=documents_pb2.ITEM_KIND_FOLDER, parent=deeper[-1].item))
        one.refused("folders too deep", errors_pb2.ERROR_CODE_LIMIT_EXCEEDED, one.apply(*deeper))
        head = one.call(one.apply(one.creation(one.fresh_name(), inline=b"x", length=1))).token
        conditions = [documents_pb2.ItemCondition(item=change.item, unchanged_since=head) for change in chain]
        request = one.apply(one.creation(one.fresh_name(), inline=b"x", length=1))
        request.conditions.extend(conditions)
        one.call(request)
        one.count("a hundred conditions")


def names(one, victim):
    """Names that lead elsewhere, and are none."""
    bad = [b".", b"..", b"", b"a/b", b"/", b"../../etc/passwd", b"\0", b"a\0b", b"x" * 256]
    odd = [b"...", b"~", b"-rf", b"\xff\xfe", b"\r\n", b"\x1b[2J", b"con", "\u202egpj.exe".encode(), b"a\\b", b"x" * 255]
    while one.goes_on:
        for name in bad:
            one.refused("a bad name", INVALID, one.apply(one.creation(name, inline=b"x", length=1)))
            one.refused("a bad folder", INVALID, one.apply(
                one.creation(name, kind=documents_pb2.ITEM_KIND_FOLDER)))
        one.refused("a long link", INVALID, one.apply(
            one.creation(one.fresh_name(), kind=documents_pb2.ITEM_KIND_LINK, inline=b"x" * 4096, length=4096)))
        folder = one.creation(one.fresh_name(), kind=documents_pb2.ITEM_KIND_FOLDER)
        one.call(one.apply(folder, *[one.creation(name, parent=folder.item, inline=b"x", length=1) for name in odd]))
        one.count("odd names", len(odd))


def uploads(one, victim):
    """Uploads that are begun and never ended, as many as there may be and more."""
    opened = []
    while one.goes_on:
        transfer = os.urandom(16)
        try:
            ticket = one.container.requests.call(
                bulk_pb2.OpenTransfer(transfer_id=transfer, upload_bytes=20_000), bulk_pb2.OpenTransferReply,
                one.device.token).ticket
        except client.CallFailed as error:
            if error.failure.code not in PASSING + (errors_pb2.ERROR_CODE_QUOTA_EXCEEDED,):
                raise Breach(f"an upload: {error}") from error
            one.count("an upload refused")
            if len(opened) >= 50 and one.dice.random() < 0.3:
                one.close(opened.pop(one.dice.randrange(len(opened))))
            time.sleep(0.01)
            continue
        opened.append(transfer)
        one.count("half uploads")
        part = os.urandom(5000)
        one.container.bulk.socket.send(client.frame(CHUNK, ticket, 1, hashlib.sha256(part).digest(), part))
        while one.container.bulk.socket.poll(0):
            one.container.bulk.socket.recv()


def notes(one, victim):
    """Announcements and further contents, as many as an item may have and more, again and again."""
    while one.goes_on:
        made = one.creation(one.fresh_name(), inline=b"x", length=1)
        one.call(one.apply(made))

        def change(**kind):
            return documents_pb2.DocumentChange(item=made.item, **kind)

        def announce(length):
            return change(announce=documents_pb2.AnnounceContent(version=os.urandom(16), length=length))

        def rendition(number):
            content = documents_pb2.DocumentContent(
                version=os.urandom(16), length=4096, inline=os.urandom(4096))
            return change(rendition=documents_pb2.SetRendition(
                name=b"%d" % number, content=content, of_version=os.urandom(16)))
        one.call(one.apply(*[announce(1 << 30) for _ in range(8)]))
        one.refused("an announcement too many", errors_pb2.ERROR_CODE_LIMIT_EXCEEDED, one.apply(announce(1)))
        one.call(one.apply(*[rendition(number) for number in range(8)]))
        one.refused("a further content too many", errors_pb2.ERROR_CODE_LIMIT_EXCEEDED, one.apply(rendition(9)))
        for _ in range(20):
            one.call(one.apply(*[rendition(number % 8) for number in range(100)]))
            one.count("further contents", 100)


def readers(one, victim):
    """Asks for a link over HTTP, and reads nothing, or little, or sends its headers one by one."""
    content = os.urandom(1 << 20) * 20
    digits, _, _ = one.container.put(one.fresh_name(), content)
    secret = os.urandom(20).hex().encode()
    reply = one.call(documents_pb2.PublishItem(
        container=one.container.id, link=os.urandom(16), secret_hash=hashlib.sha256(secret).digest(),
        item=bytes.fromhex(digits)))
    url = urllib.parse.urlsplit(reply.url_prefix + secret.decode() + "/x")
    held = []
    while one.goes_on:
        try:
            # One of many addresses.
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.settimeout(5)
            peer.bind((f"127.0.{one.dice.randrange(1, 20)}.{one.dice.randrange(1, 250)}", 0))
            peer.connect((url.hostname, url.port))
            ask = f"GET {url.path} HTTP/1.1\r\nHost: x\r\n"
            how = one.dice.randrange(4)
            if how == 0:
                peer.sendall(ask.encode())
            elif how == 1:
                peer.sendall((ask + "\r\n").encode())
            elif how == 2:
                peer.sendall((ask + "Range: bytes=5-\r\n\r\n").encode() * 20)
                peer.recv(10)
            else:
                peer.sendall(os.urandom(2000))
            one.count("stalled readers")
            held.append(peer)
        except OSError:
            one.count("readers turned away")
            time.sleep(0.05)
        if len(held) > 300:
            held.pop(0).close()
        time.sleep(0.005)


# What an item counts on its plan at least, in bytes: its row and its version's.
TINY_ITEM_BYTES = 256 + 512
# So long it may take to fill that plan.
TINY_SECONDS_MIN = 60

# One after the other they are of the hostile accounts in turns; the tiny items have the last to themselves.
ATTACKS = [foreign, manifests, frames, untrue, tiny, cycles, names, uploads, readers, notes]
# One of them alone, to see what it costs by itself.
ONLY = os.environ.get("NEPHOS_ATTACK")


def attack(seed, what, connection, account, password, end, victim, results):
    # The service is to be slowed down, not the device beside it, which has the same processors.
    os.nice(10)
    counts, failure = {}, ""
    try:
        one = Attacker(connection, account, password, end, seed)
        counts = one.counts
        what(one, victim)
    except TimeoutError:
        # Its time was over while it waited.
        failure = "" if time.monotonic() >= end - 15 else "the service did not answer"
    except client.CallFailed as error:
        plan = error.failure.code == errors_pb2.ERROR_CODE_QUOTA_EXCEEDED
        if plan:
            counts["ended by its plan"] = 1
        failure = "" if plan else str(error)
    except (Breach, AssertionError) as error:
        failure = str(error)
    results.put((what.__name__, counts, failure))


def honest(connection, password, end, results, ready):
    """One device that puts and gets, at a pace."""
    device = client.Device(zmq.Context(), connection, "ann", password, "honest")
    container = Container(device)
    content = os.urandom(1_500_000)
    digits, _, _ = container.put(b"known", content)
    item = container.find(b"known")[1].content
    children = chunks.children_of(chunks.divide(content))
    _, tree = chunks.build(children)
    ready.put({
        "item": bytes.fromhex(digits), "root": item.root, "depth": item.depth, "length": item.length,
        "chunks": [child.id for child in children], "lengths": [child.length for child in children],
        "nodes": list(tree)})
    put_times, get_times, failures, stored = [], [], [], 0
    while time.monotonic() < end:
        content = os.urandom(200_000)
        name = os.urandom(8).hex().encode()
        try:
            start = time.monotonic()
            _, reply, _ = container.put(name, content)
            put_times.append(time.monotonic() - start)
            described = documents_pb2.DocumentItem()
            described.ParseFromString(reply.items[0].body)
            stored += len(content)
            start = time.monotonic()
            got = container.get(described.content)
            get_times.append(time.monotonic() - start)
            if got != content:
                failures.append("other bytes than were put")
        except (TimeoutError, client.CallFailed, AssertionError) as error:
            failures.append(f"{type(error).__name__}: {error}")
            container = Container(device)
        time.sleep(0.05)
    results.put((put_times, get_times, failures, stored))


def disk_bytes(folder):
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except OSError:
                pass
    return total


def percentile(times, share):
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * share))] if times else float("inf")


def reaches_its_plan(counts, plan, seconds):
    """Whether the tiny items came as far as their plan lets them. Says how far that is."""
    made, most = counts.get("tiny items", 0), plan // TINY_ITEM_BYTES
    print(f"{'':10} a plan of {plan >> 20} MiB has room for {most} of them at most")
    if made > most:
        print(f"{'':10} FAILED: there are more")
        return False
    if seconds >= TINY_SECONDS_MIN and not counts.get("ended by its plan"):
        print(f"{'':10} FAILED: they did not fill it")
        return False
    return True


def main(deployment, connection, password, seconds, plans, tiny_plan, *accounts):
    *accounts, tiny_account = accounts
    begin = time.monotonic()
    end = begin + 5 + float(seconds)
    pid = flood.holder_of(deployment, "documents")
    memory, disk = flood.memory_peak(pid), disk_bytes(deployment)
    ready, own, results = multiprocessing.Queue(), multiprocessing.Queue(), multiprocessing.Queue()
    device = multiprocessing.Process(target=honest, args=(connection, password, end, own, ready))
    device.start()
    victim = ready.get(timeout=30)
    attackers = [
        multiprocessing.Process(target=attack, args=(
            number, what, connection, tiny_account if what is tiny else accounts[number % len(accounts)], password, end,
            victim, results))
        for number, what in enumerate(ATTACKS) if ONLY in (None, what.__name__)]
    for process in attackers:
        process.start()
    put_times, get_times, failures, stored = own.get(timeout=float(seconds) + 60)
    good = not failures
    for failure in failures[:10]:
        print(f"the honest device: {failure}")
    for _ in attackers:
        name, counts, failure = results.get(timeout=120)
        good = good and not failure
        print(f"{name:10} " + (f"FAILED: {failure}; " if failure else "")
              + ", ".join(f"{count} {what}" for what, count in counts.items()))
        if name == tiny.__name__:
            good = reaches_its_plan(counts, int(tiny_plan), float(seconds)) and good
    for process in [device, *attackers]:
        process.join()
    lives = flood.holder_of(deployment, "documents") == pid
    growth = flood.memory_peak(pid) - memory if lives else 0
    grown = disk_bytes(deployment) - disk
    allowed = DISK_FACTOR_MAX * (stored + int(plans)) + DISK_SPARE
    for what, times, bound in (("put", put_times, PUT_P99_MAX), ("get", get_times, GET_P99_MAX)):
        slowest = max(times, default=float("inf"))
        good = good and len(times) > 0 and percentile(times, 0.99) <= bound and slowest <= SLOWEST_MAX
        print(f"honest {what}: {len(times)}, median {percentile(times, 0.5) * 1000:.1f} ms, "
              f"p99 {percentile(times, 0.99) * 1000:.0f} ms, slowest {slowest * 1000:.0f} ms")
    print(f"honest failures: {len(failures)}")
    print(f"documents: {memory:.0f} MB before, {growth:.0f} more at most; "
          f"disk: {grown / 1e6:.0f} MB more, {allowed / 1e6:.0f} allowed" + ("" if lives else "; ENDED"))
    good = good and lives and growth <= GROWTH_MB_MAX and grown <= allowed
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
