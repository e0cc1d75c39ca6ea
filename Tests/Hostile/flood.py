"""Floods a deployment in every way a stranger can, with an honest device beside it.

Usage: flood.py DEPLOYMENT CONNECTION ACCOUNT PASSWORD SECONDS [SERVICE]

Without a service, each is attacked for its share of the time. Says what the
honest device met, and what each service held at most. Exits 1 when a service
ended, or the honest device got no answer.
"""

import fcntl
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
from nephos import envelope_pb2, keyvalue_pb2, values_pb2

WORKERS = 3

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


ATTACKS = [connections, half_open, garbage, messages, endless, unfinished, unread, chosen]


def attack(seed, address, key, end):
    dice = random.Random(seed)
    while time.monotonic() < end:
        what = dice.choice(ATTACKS)
        try:
            what(address, key, min(end, time.monotonic() + 3), dice)
        except (OSError, zmtp.Closed):
            # It was cut, as it should be.
            pass


def honest(connection, account, password, service, end, results):
    """One device that asks the service for something every 20 ms, with a new connection now and then."""
    context = zmq.Context()
    device, signed_in = None, 0.0
    slowest, answered, failed, value = 0.0, 0, 0, 0
    while time.monotonic() < end:
        # Well before its access token runs out.
        if device is None or time.monotonic() - signed_in > 600:
            device = client.Device(context, connection, account, password, f"honest-{service}")
            signed_in = time.monotonic()
        door = device.door(service)
        for _ in range(100):
            value += 1
            start = time.monotonic()
            try:
                if service == "keyvalue":
                    write = keyvalue_pb2.KeyWrite(
                        key="flood", value=values_pb2.PropertyValue(integer=value), timestamp=device.timestamp())
                    door.call(
                        keyvalue_pb2.PushKeys(store_id=device.store_id, writes=[write]),
                        keyvalue_pb2.PushKeysReply, device.token)
                else:
                    door.call(envelope_pb2.CheckHealth(), envelope_pb2.CheckHealthReply)
                answered += 1
            except (TimeoutError, client.CallFailed) as error:
                failed += 1
                print(f"the honest device: {error}", flush=True)
            slowest = max(slowest, time.monotonic() - start)
            if time.monotonic() >= end:
                break
            time.sleep(0.02 if service == "keyvalue" else 0.1)
        door.socket.close()
    results.put((slowest, answered, failed))


def memory_peak(pid):
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0


def main(deployment, connection, account, password, seconds, only=None):
    with open(os.path.join(deployment, "roster.json")) as file:
        services = json.load(file)["services"]

    def pid(name):
        """The service's process, by the kernel's word; 0 when there is none."""
        folder = os.open(os.path.join(deployment, "run"), os.O_RDONLY | os.O_DIRECTORY)
        try:
            lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, PLACES.index(name) + 1, 1, 0)
            kind, _, _, _, holder = struct.unpack("hhqqi4x", fcntl.fcntl(folder, fcntl.F_GETLK, lock))
            return 0 if kind == fcntl.F_UNLCK else holder
        finally:
            os.close(folder)

    pids = {entry["service"]: pid(entry["service"]) for entry in services}
    targets = []
    for entry in services:
        if only in (None, entry["service"]):
            for kind in ("requests", "subscriptions", "events"):
                if kind in entry:
                    targets.append((entry, kind))
    good = True
    for entry, kind in targets:
        name = entry["service"]
        host, port = entry[kind].removeprefix("tcp://").rsplit(":", 1)
        end = time.monotonic() + float(seconds) / len(targets)
        key = zmtp.z85_decode(entry["publicKey"])
        workers = [
            multiprocessing.Process(target=attack, args=(number, (host, int(port)), key, end))
            for number in range(WORKERS)]
        results = multiprocessing.Queue()
        device = multiprocessing.Process(
            target=honest, args=(connection, account, password, name, end, results))
        for process in [device] + workers:
            process.start()
        for process in workers + [device]:
            process.join()
        slowest, answered, failed = results.get(timeout=5) if device.exitcode == 0 else (0, 0, 1)
        lives = pids[name] != 0 and pid(name) == pids[name]
        good = good and lives and failed == 0 and answered > 0
        peak = f"{memory_peak(pids[name]):.0f} MB at most" if lives else "ENDED"
        print(
            f"{name:13} {kind:13} {peak:16} honest device: {answered} answers, {failed} failures, "
            f"slowest {slowest * 1000:.0f} ms", flush=True)
    restarts = sum(1 for name in pids if pid(name) != pids[name])
    print(f"restarts: {restarts}")
    return 0 if good and restarts == 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:7]))
