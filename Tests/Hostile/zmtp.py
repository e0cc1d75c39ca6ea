"""ZMTP 3.1 with CURVE on a plain socket: a peer that keeps no rule of libzmq's.

It may stop in the middle of a handshake, a message or a frame, never read,
choose any routing id, and send PINGs. From ZeroMQ RFC 23, 26 and 37.
"""

import os
import socket
import struct

from nacl.bindings import crypto_box, crypto_box_afternm, crypto_box_beforenm, crypto_box_keypair, crypto_box_open

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
MORE, LONG, COMMAND = 1, 2, 4


def z85_decode(text):
    data = b""
    for start in range(0, len(text), 5):
        value = 0
        for character in text[start:start + 5]:
            value = value * 85 + ALPHABET.index(character)
        data += struct.pack(">I", value)
    return data


def frame(body, flags=0):
    if len(body) > 255:
        return bytes([flags | LONG]) + struct.pack(">Q", len(body)) + body
    return bytes([flags, len(body)]) + body


def ping(ttl_tenths=0):
    """The PING of ZMTP 3.1: after its time to live without a word, the other end may cut."""
    return b"\x04PING" + struct.pack(">H", ttl_tenths)


class Closed(Exception):
    """The other end has closed the connection."""


class Peer:
    """One connection; after `connect` or `handshake`, messages are sealed as CURVE has them."""

    def __init__(self, address, server_key, keys=None, routing_id=b"", socket_type=b"DEALER", receive_buffer=None,
                 source=None):
        self.server_key = server_key
        self.public, self.secret = keys or crypto_box_keypair()
        self.short_public, self.short_secret = crypto_box_keypair()
        self.routing_id = routing_id
        self.socket_type = socket_type
        self.nonce = 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.settimeout(10)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source:
            self.socket.bind(source)
        self.socket.connect(address)
        self.input = b""

    def next_nonce(self):
        self.nonce += 1
        return struct.pack(">Q", self.nonce)

    def hello(self):
        nonce = self.next_nonce()
        box = crypto_box(bytes(64), b"CurveZMQHELLO---" + nonce, self.server_key, self.short_secret)
        body = b"\x05HELLO\x01\x00" + bytes(72) + self.short_public + nonce + box
        self.socket.sendall(GREETING + frame(body, COMMAND))

    def handshake(self):
        self.hello()
        self.read(64)
        welcome = self.read_frame()
        opened = crypto_box_open(welcome[24:], b"WELCOME-" + welcome[8:24], self.server_key, self.short_secret)
        server_short, cookie = opened[:32], opened[32:]
        vouch_nonce = os.urandom(16)
        vouch = crypto_box(
            self.short_public + self.server_key, b"VOUCH---" + vouch_nonce, server_short, self.secret)
        metadata = self.property(b"Socket-Type", self.socket_type) + self.property(b"Identity", self.routing_id)
        nonce = self.next_nonce()
        box = crypto_box(
            self.public + vouch_nonce + vouch + metadata, b"CurveZMQINITIATE" + nonce, server_short,
            self.short_secret)
        self.socket.sendall(frame(b"\x08INITIATE" + cookie + nonce + box, COMMAND))
        self.shared = crypto_box_beforenm(server_short, self.short_secret)
        ready = self.read_frame()
        if not ready.startswith(b"\x05READY"):
            raise Closed(ready)
        return self

    @staticmethod
    def property(name, value):
        return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value

    def seal(self, payload, more=False, command=False):
        """One frame of a message as it goes over the wire."""
        nonce = self.next_nonce()
        flags = bytes([(1 if more else 0) | (2 if command else 0)])
        return frame(
            b"\x07MESSAGE" + nonce + crypto_box_afternm(flags + payload, b"CurveZMQMESSAGEC" + nonce, self.shared))

    def send(self, payload, more=False, command=False):
        self.socket.sendall(self.seal(payload, more, command))

    def read(self, count):
        while len(self.input) < count:
            data = self.socket.recv(65536)
            if not data:
                raise Closed()
            self.input += data
        result, self.input = self.input[:count], self.input[count:]
        return result

    def read_frame(self):
        flags = self.read(1)[0]
        size = struct.unpack(">Q", self.read(8))[0] if flags & LONG else self.read(1)[0]
        return self.read(size)

    def reset(self):
        """Ends the connection with a RST, and with whatever was under way."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()
