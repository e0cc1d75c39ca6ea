"""Fills a service with connections that ask one thing and then say nothing, from several addresses.

Usage: silent.py DEPLOYMENT CONNECTION ACCOUNT PASSWORD [COUNT [ADDRESSES]]

All at key-value: 9700 connections from 4 addresses, unless told otherwise. Beside them a newcomer connects every 200
connections, and a signed-in device has a connection that it does not use. Says how long newcomers waited, and what the
service's memory was before, at most, and half a minute after all have left. Exits 1 when the service ended, a newcomer
waited for longer than five seconds, the device's connection was cut, or more than 100 MB stay counted.
"""

import json
import multiprocessing
import os
import resource
import socket
import sys
import time

import zmq

import client
import flood
import zmtp
from nephos import envelope_pb2

SERVICE = "keyvalue"
WORKERS = 4
KEPT_MB_MAX = 100
NEWCOMER_SECONDS_MAX = 5


class Silent(zmtp.Peer):
    """One connection from an address of this machine, which asks for the service's health once."""

    def __init__(self, address, key, source):
        self.source = source
        super().__init__(address, key, source=(source, 0))
        self.handshake()
        self.send(flood.request())
        self.read_frame()


def hold(address, key, count, addresses, opened, end):
    held = []
    for number in range(count):
        try:
            held.append(Silent(address, key, f"127.0.1.{1 + number % addresses}"))
        except (OSError, zmtp.Closed):
            pass
        with opened.get_lock():
            opened.value += 1
    end.wait()


def newcomer(endpoint, key):
    """Seconds until somebody who comes now has an answer."""
    context = zmq.Context()
    start = time.monotonic()
    door = client.Door(context, endpoint, key, zmq.curve_keypair())
    try:
        door.call(envelope_pb2.CheckHealth(), envelope_pb2.CheckHealthReply)
        return time.monotonic() - start
    except TimeoutError:
        return float("inf")
    finally:
        door.socket.close()
        context.term()


def counted(pid):
    """What counts towards the limit of the service's memory, and what is resident, in MB."""
    values = {}
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            name, _, rest = line.partition(":")
            if name in ("VmData", "VmRSS"):
                values[name] = int(rest.split()[0]) / 1024
    return values.get("VmData", 0), values.get("VmRSS", 0)


def main(deployment, connection, account, password, count=9700, addresses=4):
    service, count, addresses = SERVICE, int(count), int(addresses)
    with open(os.path.join(deployment, "roster.json")) as file:
        entry = next(one for one in json.load(file)["services"] if one["service"] == service)
    endpoint, key = entry["requests"], zmtp.z85_decode(entry["publicKey"])
    host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    pid = flood.holder_of(deployment, service)
    context = zmq.Context()
    device = flood.Asking(
        client.Device(context, connection, account, password, "idle"), None, service, "requests")
    device.once()
    lost = device.door.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    before = most = counted(pid)
    opened, end = multiprocessing.Value("i", 0), multiprocessing.Event()
    workers = [
        multiprocessing.Process(target=hold, args=((host, int(port)), key, count // WORKERS, addresses, opened, end))
        for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    waits, tried, start = [], 0, time.monotonic()
    while opened.value < count // WORKERS * WORKERS and any(worker.is_alive() for worker in workers):
        if opened.value < tried:
            time.sleep(0.02)
            continue
        tried = opened.value + 200
        waits.append(newcomer(endpoint, entry["publicKey"].encode()))
        if flood.holder_of(deployment, service) != pid:
            print(f"{service}: ENDED after {opened.value} connections")
            break
        most = max(most, counted(pid))
    took = time.monotonic() - start
    if flood.holder_of(deployment, service) == pid:
        waits += [newcomer(endpoint, entry["publicKey"].encode()) for _ in range(3)]
        most = max(most, counted(pid))
        held = len([name for name in os.listdir(f"/proc/{pid}/fd")])
    else:
        held = 0
    is_kept = not lost.poll(0)
    end.set()
    for worker in workers:
        worker.join()
    lives = flood.holder_of(deployment, service) == pid
    if lives:
        time.sleep(30)
    after = counted(pid) if lives else (0, 0)
    print(
        f"{service}: {opened.value} connections from {addresses} addresses in {took:.1f} s, {held} descriptors then; "
        f"{len(waits)} newcomers waited {max(waits):.2f} s at most")
    for name, index in (("counted", 0), ("resident", 1)):
        print(f"  {name}: {before[index]:.0f} MB before, {most[index]:.0f} at most, {after[index]:.0f} after")
    print(f"  the signed-in device's connection {'stayed' if is_kept else 'WAS CUT'}")
    is_given_back = after[0] - before[0] <= KEPT_MB_MAX
    return 0 if lives and is_kept and is_given_back and max(waits) <= NEWCOMER_SECONDS_MAX else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:7]))
