"""Floods a deployment in every way a stranger can, with an honest device beside it.

Usage: flood.py DEPLOYMENT CONNECTION ACCOUNT PASSWORD SECONDS [SERVICE | together]

Without a service, each is attacked for its share of the time; together, all at
once for all of it. Says what the honest device met, and what each service held
at most. Exits 1 when a service ended or grew by more than 200 MB, or the honest
device got no answer.
"""

import fcntl
import hashlib
import json
import multiprocessing
import os
import random
import socket
import struct
import sys
import time

import zmq

import client
import zmtp
from nephos import envelope_pb2, keyvalue_pb2, notifications_pb2, values_pb2

WORKERS = 3

# How much more than before it was attacked a service may hold.
GROWTH_MB_MAX = 200

# The byte of the run folder that each service's process has locked, counted from 1.
PLACES = ["identity", "keyvalue", "documents", "records", "notifications"]


def request(method="CheckHealth", body=b""):
    return envelope_pb2.Request(
        version=1, method=method, request_id=client.uuid7(), body=body).SerializeToString()


# What a stranger does until the deadline. Each gets (address, key, deadline, random).

def connections(address, key, deadline, dice):
    """Connects and leaves: at once, after the greeting, in the middle of the handshake."""
    while time.monotonic() < deadline:
        peer = zmtp.Peer(address, key)
        stage = dice.randrange(4)
        if stage == 1:
            peer.socket.sendall(zmtp.GREETING[:dice.randrange(64)])
        elif stage == 2:
            peer.hello()
        elif stage == 3:
            peer.handshake()
        peer.reset() if dice.random() < 0.5 else peer.close()


def half_open(address, key, deadline, dice):
    """Handshakes that never go on."""
    held = []
    while time.monotonic() < deadline:
        peer = zmtp.Peer(address, key)
        peer.hello() if dice.random() < 0.5 else peer.socket.sendall(zmtp.GREETING[:32])
        held.append(peer)
        if len(held) > 500:
            held.pop(0).reset()


def garbage(address, key, deadline, dice):
    """Bytes that are none of ours, before the handshake and sealed after it."""
    while time.monotonic() < deadline:
        if dice.random() < 0.5:
            plain = socket.create_connection(address, 10)
            plain.sendall((zmtp.GREETING if dice.random() < 0.5 else b"") + dice.randbytes(8192))
            plain.close()
        else:
            peer = zmtp.Peer(address, key).handshake()
            for _ in range(50):
                peer.send(dice.randbytes(dice.randrange(600)))
                peer.send(dice.randbytes(dice.randrange(9)), command=True)
            peer.reset()


def messages(address, key, deadline, dice):
    """More requests than anyone takes, with PINGs among them, whose replies are not read; then a RST."""
    while time.monotonic() < deadline:
        peers = [zmtp.Peer(address, key, receive_buffer=4096).handshake() for _ in range(10)]
        for peer in peers:
            flood = bytearray()
            for number in range(3000):
                flood += peer.seal(request())
                if number % 5 == 0:
                    flood += peer.seal(zmtp.ping(dice.choice([0, 1, 600])), command=True)
            peer.socket.setblocking(False)
            try:
                peer.socket.send(flood)
            except OSError:
                pass
        time.sleep(dice.random())
        for peer in peers:
            peer.reset()


def endless(address, key, deadline, dice):
    """A message that never ends: frame after frame, each with more to come."""
    while time.monotonic() < deadline:
        peer = zmtp.Peer(address, key).handshake()
        part = bytes(256 << 10)
        while time.monotonic() < deadline:
            peer.send(part, more=True)


def unfinished(address, key, deadline, dice):
    """Many connections with a frame of almost 4 MiB each, and a thousand with a little of one."""
    held = []
    while time.monotonic() < deadline:
        peer = zmtp.Peer(address, key).handshake()
        size = 4_000_000
        begun = dice.choice([size - 1, 100_000])
        head = bytes([zmtp.LONG]) + struct.pack(">Q", size) + b"\x07MESSAGE"
        peer.socket.sendall(head + bytes(begun - 8))
        held.append(peer)
        if len(held) > 300:
            held.pop(0).reset()


def unread(address, key, deadline, dice):
    """Asks and never reads, at a pace, on connections that stay."""
    peers = [zmtp.Peer(address, key, receive_buffer=4096).handshake() for _ in range(20)]
    while time.monotonic() < deadline:
        for peer in peers:
            peer.socket.setblocking(False)
            try:
                peer.socket.send(b"".join(peer.seal(request(dice.choice(["CheckHealth", "Nothing", "GetDirectory"])))
                                          for _ in range(50)))
            except OSError:
                pass
        time.sleep(0.01)


def chosen(address, key, deadline, dice):
    """Routing ids as libzmq makes them itself, and none at all."""
    held = []
    while time.monotonic() < deadline:
        routing_id = b"\0" + dice.randbytes(4) if dice.random() < 0.7 else b""
        held.append(zmtp.Peer(address, key, routing_id=routing_id).handshake())
        if dice.random() < 0.5:
            held[-1].send(request())
        if len(held) > 300:
            held.pop(0).close()


def content(address, key, deadline, dice):
    """Chunks, questions and credit under tickets that nobody was given; what is answered is not read."""
    peers = [zmtp.Peer(address, key, receive_buffer=4096).handshake() for _ in range(5)]
    while time.monotonic() < deadline:
        for peer in peers:
            kind = dice.choice([client.CHUNK, client.GET, client.CREDIT, client.STORED, 0, 255])
            part = dice.randbytes(dice.choice([0, 100, 256 << 10])) if kind == client.CHUNK else b""
            peer.socket.setblocking(False)
            try:
                peer.socket.send(peer.seal(client.frame(kind, dice.randbytes(16), 1, dice.randbytes(32), part)))
            except OSError:
                pass


ATTACKS = [connections, half_open, garbage, messages, endless, unfinished, unread, chosen]


def attack(seed, address, key, kind, end):
    dice = random.Random(seed)
    while time.monotonic() < end:
        what = dice.choice(ATTACKS + ([content] if kind == "bulk" else []))
        try:
            what(address, key, min(end, time.monotonic() + 3), dice)
        except (OSError, zmtp.Closed):
            # It was cut, as it should be.
            pass


class Asking:
    """What the honest device does.

    At a door for requests it asks for health, or writes a value; where content is, it stores a chunk and fetches it.
    Where services hear of each other or devices of changes, another device writes, and it waits until it is told.
    """

    def __init__(self, device, other, service, kind):
        self.device, self.other, self.kind = device, other, kind
        self.door = device.door("keyvalue" if other else service)
        self.pause = 0.02 if service == "keyvalue" else 0.1
        self.value = 0
        self.once = self.check_health
        if other:
            self.following = other.door("notifications", subscriptions=True)
            self.subscribe()
            self.once = self.be_told
        elif service == "keyvalue":
            self.once = self.write
        elif kind == "bulk":
            # Records' contents are always a container's.
            container = "default" if service == "records" else ""
            opened = client.open_upload(self.door, 16 << 20, os.urandom(16), device.token, container)
            self.ticket, self.bulk = opened.ticket, client.Bulk(device, service)
            self.bulk.socket.send(client.frame(client.CREDIT, self.ticket, 16 << 20))
            self.once = self.store

    def check_health(self):
        self.door.call(envelope_pb2.CheckHealth(), envelope_pb2.CheckHealthReply)

    def write(self):
        self.value += 1
        write = keyvalue_pb2.KeyWrite(
            key="flood", value=values_pb2.PropertyValue(integer=self.value), timestamp=self.device.timestamp())
        return self.door.call(
            keyvalue_pb2.PushKeys(store_id=self.device.store_id, writes=[write]), keyvalue_pb2.PushKeysReply,
            self.device.token)

    def subscribe(self):
        scope = notifications_pb2.SubscribedScope(service="keyvalue", scope=self.other.store_id)
        self.following.call(
            notifications_pb2.Subscribe(scopes=[scope]), notifications_pb2.SubscribeReply, self.other.token)

    def be_told(self):
        """Until a notification, or a heartbeat, tells of what was written, or of something later."""
        written = self.write().token.sequence
        deadline = time.monotonic() + client.TIMEOUT_MS / 1000
        while time.monotonic() < deadline:
            for delivery in self.following.deliveries:
                if delivery.HasField("ended"):
                    self.subscribe()
                heads = [one.token for one in delivery.notifications] + [one.token for one in delivery.heads]
                if any(head.sequence >= written for head in heads):
                    self.following.deliveries.clear()
                    return
            self.following.deliveries.clear()
            self.following.keep(self.following.receive(max(1, int((deadline - time.monotonic()) * 1000))))
        raise TimeoutError("nobody told of a change in time")

    def store(self):
        part = os.urandom(16 << 10)
        chunk = hashlib.sha256(part).digest()
        stored = self.bulk.ask(client.frame(client.CHUNK, self.ticket, 1, chunk, part))
        if stored[0] != client.STORED:
            raise TimeoutError("a chunk was refused")
        fetched = self.bulk.ask(client.frame(client.GET, self.ticket, 2, chunk))
        if fetched[0] != client.CHUNK or fetched[4] != part:
            raise TimeoutError("a chunk is not what was stored")

    def close(self):
        self.door.socket.close()
        if self.other:
            self.following.socket.close()
        if self.once == self.store:
            self.bulk.socket.close()


def honest(connection, account, password, service, kind, end, results):
    """One device that asks the service for something at a pace, with a new connection now and then."""
    context = zmq.Context()
    device, other, signed_in = None, None, 0.0
    slowest, answered, failed, times = 0.0, 0, 0, []
    while time.monotonic() < end:
        try:
            # Well before its access token runs out.
            if device is None or time.monotonic() - signed_in > 600:
                device = client.Device(context, connection, account, password, f"honest-{service}-{kind}")
                if kind in ("subscriptions", "events"):
                    other = client.Device(context, connection, account, password, f"told-{service}-{kind}")
                signed_in = time.monotonic()
            asking = Asking(device, other, service, kind)
        except (TimeoutError, client.CallFailed) as error:
            failed += 1
            print(f"the honest device of {service}, {kind}: {error}", flush=True)
            continue
        for _ in range(100):
            start = time.monotonic()
            try:
                asking.once()
                answered += 1
            except (TimeoutError, client.CallFailed) as error:
                failed += 1
                print(f"the honest device of {service}, {kind}: {error}", flush=True)
            times.append(time.monotonic() - start)
            slowest = max(slowest, times[-1])
            if time.monotonic() >= end:
                break
            time.sleep(asking.pause)
        asking.close()
    times.sort()
    results.put((times[len(times) // 2], slowest, answered, failed))


def memory_peak(pid):
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0


def holder_of(deployment, name):
    """The service's process, by the kernel's word; 0 when there is none."""
    folder = os.open(os.path.join(deployment, "run"), os.O_RDONLY | os.O_DIRECTORY)
    try:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, PLACES.index(name) + 1, 1, 0)
        kind, _, _, _, holder = struct.unpack("hhqqi4x", fcntl.fcntl(folder, fcntl.F_GETLK, lock))
        return 0 if kind == fcntl.F_UNLCK else holder
    finally:
        os.close(folder)


def main(deployment, connection, account, password, seconds, only=None):
    with open(os.path.join(deployment, "roster.json")) as file:
        services = json.load(file)["services"]

    def pid(name):
        return holder_of(deployment, name)

    pids = {entry["service"]: pid(entry["service"]) for entry in services}
    before = {name: memory_peak(pids[name]) for name in pids}
    targets = [
        (entry, kind) for entry in services if only in (None, "together", entry["service"])
        for kind in ("requests", "subscriptions", "events", "bulk") if kind in entry]
    at_once = len(targets) if only == "together" else 1
    good = len(targets) > 0
    for first in range(0, len(targets), at_once):
        end = time.monotonic() + float(seconds) * at_once / len(targets)
        good = flood(targets[first:first + at_once], connection, account, password, end, before, pids, pid) and good
    restarts = sum(1 for name in pids if pid(name) != pids[name])
    print(f"restarts: {restarts}")
    return 0 if good and restarts == 0 else 1


def flood(targets, connection, account, password, end, before, pids, pid):
    """Attacks these until then; whether all is well."""
    running = []
    for entry, kind in targets:
        name = entry["service"]
        host, port = entry[kind].removeprefix("tcp://").rsplit(":", 1)
        key = zmtp.z85_decode(entry["publicKey"])
        results = multiprocessing.Queue()
        device = multiprocessing.Process(
            target=honest, args=(connection, account, password, name, kind, end, results))
        workers = [
            multiprocessing.Process(target=attack, args=(number, (host, int(port)), key, kind, end))
            for number in range(WORKERS)]
        for process in [device] + workers:
            process.start()
        running.append((name, kind, device, workers, results))
    good = True
    for name, kind, device, workers, results in running:
        for process in workers + [device]:
            process.join()
        median, slowest, answered, failed = results.get(timeout=5) if device.exitcode == 0 else (0, 0, 0, 1)
        lives = pids[name] != 0 and pid(name) == pids[name]
        peak = memory_peak(pids[name]) if lives else 0
        good = good and lives and failed == 0 and answered > 0 and peak - before[name] <= GROWTH_MB_MAX
        held = f"{before[name]:.0f} MB before, {peak:.0f} at most" if lives else "ENDED"
        print(
            f"{name:13} {kind:13} {held:27} honest device: {answered} answers, {failed} failures, median "
            f"{median * 1000:.1f} ms, slowest {slowest * 1000:.0f} ms", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:7]))
