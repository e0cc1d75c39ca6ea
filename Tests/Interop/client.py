"""A Nephos client in Python, written from docs/protocol/ and Protos/ alone.

Usage: client.py CONNECTION ACCOUNT PASSWORD

Signs two devices in, sets and gets values on one, and receives the
notification on the other. With NEPHOS_DEPLOYMENT set it stops that deployment
once and starts it again, over connections that stay. Exits 0 when all of it
happened as documented.
"""

import hashlib
import os
import shutil
import struct
import subprocess
import sys
import time
import urllib.parse

import zmq
from zmq.utils import z85

from nephos import bulk_pb2, changes_pb2, envelope_pb2, errors_pb2, identity_pb2, keyvalue_pb2, notifications_pb2, values_pb2

TIMEOUT_MS = 10_000


def uuid7() -> bytes:
    random = bytearray(os.urandom(10))
    random[0] = 0x70 | random[0] & 0x0F
    random[2] = 0x80 | random[2] & 0x3F
    return struct.pack(">Q", int(time.time() * 1000))[2:] + bytes(random)


class CallFailed(Exception):
    def __init__(self, failure):
        super().__init__(f"{errors_pb2.ErrorCode.Name(failure.code)}: {failure.message} {dict(failure.details)}")
        self.failure = failure


class Door:
    """A DEALER to one service."""

    def __init__(self, context, endpoint, server_key, keys):
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        # Together: every new connection, also one made again, is announced to the server.
        self.socket.setsockopt(zmq.PROBE_ROUTER, 1)
        self.socket.setsockopt(zmq.IMMEDIATE, 1)
        self.socket.curve_serverkey = server_key
        self.socket.curve_publickey, self.socket.curve_secretkey = keys
        self.socket.connect(endpoint)
        self.deliveries = []

    def receive(self, timeout_ms):
        if not self.socket.poll(timeout_ms):
            raise TimeoutError("no answer in time")
        reply = envelope_pb2.Reply()
        reply.ParseFromString(self.socket.recv_multipart()[0])
        return reply

    def call(self, body, reply_type, token="", request_id=None):
        request = envelope_pb2.Request(
            version=1, method=type(body).__name__, request_id=request_id or uuid7(), access_token=token,
            timeout_milliseconds=TIMEOUT_MS, body=body.SerializeToString())
        self.socket.send(request.SerializeToString())
        while True:
            reply = self.receive(TIMEOUT_MS)
            if not reply.request_id:
                self.keep(reply)
            elif reply.request_id == request.request_id:
                if reply.HasField("failure"):
                    raise CallFailed(reply.failure)
                result = reply_type()
                result.ParseFromString(reply.body)
                return result

    def keep(self, reply):
        delivery = notifications_pb2.Delivery()
        delivery.ParseFromString(reply.body)
        self.deliveries.append(delivery)

    def next_notification(self):
        deadline = time.monotonic() + TIMEOUT_MS / 1000
        while time.monotonic() < deadline:
            while self.deliveries:
                delivery = self.deliveries.pop(0)
                if delivery.notifications:
                    return delivery.notifications[0]
            reply = self.receive(max(1, int((deadline - time.monotonic()) * 1000)))
            if not reply.request_id:
                self.keep(reply)
        raise TimeoutError("no notification in time")


BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def parse_connection(text):
    """The endpoint and the key (in Z85) of nephos://HOST:PORT/KEY. Two bytes of the key's SHA-256 follow it."""
    url = urllib.parse.urlsplit(text.strip())
    number = 0
    for character in url.path[1:]:
        number = number * 58 + BASE58.index(character)
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    key = number.to_bytes(34, "big")
    assert hashlib.sha256(key[:32]).digest()[:2] == key[32:], "The connection string was cut off or mistyped."
    return f"tcp://{host}:{url.port or 7400}", z85.encode(key[:32])


class Device:
    def __init__(self, context, connection, account, password, name):
        endpoint, server_key = parse_connection(connection)
        self.context = context
        self.keys = zmq.curve_keypair()
        self.last_timestamp = 0
        identity = Door(context, endpoint, server_key, self.keys)
        session = identity.call(
            identity_pb2.SignIn(
                account_name=account, password=password, device_name=name, device_model="script",
                device_platform="python"),
            identity_pb2.SignInReply)
        self.identity = identity
        self.account_id = session.account_id
        self.device_id = session.device.device_id
        self.token = session.access_token.token
        self.app_id = session.access_token.app.app_id
        self.store_id = session.access_token.app.store_id
        self.containers = session.access_token.app.container_ids
        self.services = {address.service: address for address in session.services}

    def door(self, service, subscriptions=False):
        address = self.services[service]
        endpoints = address.subscription_endpoints if subscriptions else address.request_endpoints
        return Door(self.context, endpoints[0], address.public_key.encode(), self.keys)

    def timestamp(self):
        self.last_timestamp = max(int(time.time() * 1000) << 16, self.last_timestamp + 1)
        return self.last_timestamp


CHUNK, GET, CREDIT, STORED, REFUSED, GREETING = range(1, 7)
NO_CHUNK = bytes(32)


def frame(kind, ticket, number=0, chunk=NO_CHUNK, content=b"", encoding=0):
    return struct.pack("<BBBBIQ16s32s", kind, 1, encoding, 0, len(content), number, ticket, chunk) + content


class Bulk:
    """A DEALER for content."""

    def __init__(self, device, service="documents"):
        address = device.services[service]
        door = Door(device.context, address.bulk_endpoints[0], address.public_key.encode(), device.keys)
        self.socket = door.socket
        # The greatest that is asked for, and that of the last frame.
        self.encoding_max = self.encoding = 0
        check_silently(self.receive()[0] == GREETING, "the socket for content greets")

    def receive(self):
        if not self.socket.poll(TIMEOUT_MS):
            raise TimeoutError("no frame in time")
        received = self.socket.recv()
        kind, version, encoding, zero, length, number, ticket, chunk = struct.unpack("<BBBBIQ16s32s", received[:64])
        check_silently((version, zero, length) == (1, 0, len(received) - 64), "a frame's header")
        check_silently(encoding <= self.encoding_max, "in an encoding that was asked for")
        self.encoding = encoding
        return kind, number, ticket, chunk, received[64:]

    def ask(self, *frames):
        for one in frames:
            self.socket.send(one)
        return self.receive()

    def refusal(self, *frames):
        kind, number, _, chunk, content = self.ask(*frames)
        failure = errors_pb2.Failure()
        failure.ParseFromString(content)
        check_silently(kind == REFUSED, "it is refused")
        return failure.code


def call_patiently(door, body, reply_type, token):
    """A call that is repeated as the service says, while room on the plan is asked for or the budget is used up."""
    request_id = uuid7()
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while True:
        try:
            return door.call(body, reply_type, token, request_id)
        except CallFailed as error:
            passing = (errors_pb2.ERROR_CODE_SERVICE_BUSY, errors_pb2.ERROR_CODE_REQUEST_RATE_LIMITED)
            if error.failure.code not in passing or time.monotonic() > deadline:
                raise
            time.sleep(error.failure.retry_after_milliseconds / 1000 or 0.05)


def open_upload(service, upload_bytes, transfer, token, container=""):
    return call_patiently(
        service,
        bulk_pb2.OpenTransfer(transfer_id=transfer, upload_bytes=upload_bytes, container=container),
        bulk_pb2.OpenTransferReply, token)


def check_content(writer, reader):
    """Chunks, credit and tickets, and the vectors of docs/protocol/content.md."""
    vector_ticket, vector = bytes(range(16)), b"hello, nephos"
    vector_id = hashlib.sha256(vector).digest()
    documented = vectors()
    check(
        documented == [
            frame(CHUNK, vector_ticket, 1, vector_id, vector), frame(STORED, vector_ticket, 1, vector_id),
            frame(GET, vector_ticket, 2, vector_id), frame(CREDIT, vector_ticket, 6 << 20)],
        "the frames are those of the vectors")

    documents = writer.door("documents")
    transfer = os.urandom(16)
    content = os.urandom(300_000)
    chunk = hashlib.sha256(content).digest()

    def open_transfer(device, upload_bytes=0, transfer_id=b""):
        return device.door("documents").call(
            bulk_pb2.OpenTransfer(transfer_id=transfer_id, upload_bytes=upload_bytes),
            bulk_pb2.OpenTransferReply, device.token)

    opened = open_upload(documents, 1_000_000, transfer, writer.token)
    check(opened.reserved_bytes == 1_000_000, "an upload has its room")
    bulk = Bulk(writer)
    answer = bulk.ask(frame(CHUNK, opened.ticket, 7, chunk, content))
    check(answer[:4] == (STORED, 7, opened.ticket, chunk), "a chunk is stored")
    answer = bulk.ask(frame(CHUNK, opened.ticket, 8, chunk, content))
    check(answer[:2] == (STORED, 8), "and again")
    check(open_transfer(writer, 1_000_000, transfer).stored_bytes == 300_000, "it counts once")
    check(
        bulk.refusal(frame(CHUNK, opened.ticket, 9, bytes(32), content)) == errors_pb2.ERROR_CODE_INVALID_ARGUMENTS,
        "other bytes than the id's are refused")
    check(
        bulk.refusal(frame(CHUNK, os.urandom(16), 9, chunk, content)) == errors_pb2.ERROR_CODE_TOKEN_EXPIRED,
        "without a ticket nothing is stored")

    ticket = open_transfer(reader).ticket
    fetching = Bulk(reader)
    fetching.socket.send(frame(GET, ticket, 1, chunk))
    check(not fetching.socket.poll(300), "without credit nothing comes")
    answer = fetching.ask(frame(CREDIT, ticket, 1 << 20))
    check(answer == (CHUNK, 1, ticket, chunk, content), "another device fetches it with credit")
    check(
        fetching.refusal(frame(GET, ticket, 2, os.urandom(32))) == errors_pb2.ERROR_CODE_UNKNOWN_ITEM,
        "a chunk that there is not is refused")
    check(
        fetching.refusal(frame(GET, opened.ticket, 3, chunk)) == errors_pb2.ERROR_CODE_TOKEN_EXPIRED,
        "another device's ticket is none")
    documents.call(bulk_pb2.CloseTransfer(transfer_id=transfer), bulk_pb2.CloseTransferReply, writer.token)
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while fetching.ask(frame(GET, ticket, 4, chunk))[0] != REFUSED and time.monotonic() < deadline:
        time.sleep(0.05)
    check(
        fetching.refusal(frame(GET, ticket, 5, chunk)) == errors_pb2.ERROR_CODE_UNKNOWN_ITEM,
        "an upload that is closed leaves nothing")


def nephos(*arguments):
    subprocess.run(["nephos", *arguments], check=True, stdout=subprocess.DEVNULL)


def check_return(door, push, token, operation, first):
    """The services end and come back: the connection is made again by itself, and says so."""
    if not os.environ.get("NEPHOS_DEPLOYMENT") or not shutil.which("nephos"):
        print("--  nothing is restarted: NEPHOS_DEPLOYMENT is not set, or nephos is not in PATH")
        return
    while door.socket.poll(0):
        door.receive(0)
    nephos("down")
    check(not door.socket.poll(300), "a service that ends says nothing")
    nephos("up")
    # Nothing was sent meanwhile: what is answered is the probe of the new connection.
    greeting = door.receive(TIMEOUT_MS)
    check(
        not greeting.request_id and not greeting.HasField("failure"),
        "the connection is made again, and the greeting answers its probe")
    check(not door.socket.poll(300), "once")
    again = door.call(push, keyvalue_pb2.PushKeysReply, token, operation)
    check(again == first, "a repeat over it gets the first reply of all")


def vectors():
    """The frames in docs/protocol/content.md, each a block of hexadecimal lines."""
    path = os.path.join(os.path.dirname(__file__), "../../docs/protocol/content.md")
    with open(path, encoding="utf-8") as document:
        section = document.read().split("\n## Frames\n", 1)[1].split("\n## ", 1)[0]
    blocks, block = [], ""
    for line in section.splitlines() + [""]:
        if line.startswith("    ") and set(line.strip()) <= set("0123456789abcdef"):
            block += line.strip()
        elif block:
            blocks.append(bytes.fromhex(block))
            block = ""
    return blocks


def digest(items, digest_key):
    lanes = [0, 0, 0, 0]
    for item in items:
        def part(data):
            return struct.pack(">I", len(data)) + data
        data = (
            digest_key + part(item.key.encode()) + struct.pack(">Q", item.timestamp) + part(item.device_id.encode())
            + part(item.value.SerializeToString(deterministic=True)))
        for lane, value in enumerate(struct.unpack("<4Q", hashlib.sha256(data).digest())):
            lanes[lane] = (lanes[lane] + value) % 2**64
    return struct.pack("<4Q", *lanes)


def read(door, scope, token, after=None, items_max=0, between=lambda page: None):
    """What has changed after the token, or all that is there: the newest state of each item, and the last reply."""
    request = changes_pb2.ReadChanges(scope=scope, after=after, items_max=items_max)
    items, pages = {}, 0
    while True:
        reply = door.call(request, changes_pb2.ReadChangesReply, token)
        pages += 1
        for change in reply.changes:
            items[change.item] = keyvalue_pb2.KeyValueItem()
            items[change.item].ParseFromString(change.body)
        if not reply.HasField("place"):
            return items, reply, pages
        request.place.CopyFrom(reply.place)
        between(pages)


def check_silently(condition, what):
    if not condition:
        raise AssertionError(what)


def check(condition, what):
    if not condition:
        raise AssertionError(what)
    print(f"ok  {what}")


def expect(code, what, call):
    try:
        call()
    except CallFailed as failed:
        return check(failed.failure.code == code, what)
    raise AssertionError(f"{what}: it was not refused")


def main(connection, account, password):
    context = zmq.Context()
    writer = Device(context, connection, account, password, "python-writer")
    reader = Device(context, connection, account, password, "python-reader")
    check(writer.device_id != reader.device_id, "two devices are signed in")

    subscriptions = reader.door("notifications", subscriptions=True)
    scope = notifications_pb2.SubscribedScope(service="keyvalue", scope=reader.store_id)
    heads = subscriptions.call(
        notifications_pb2.Subscribe(scopes=[scope]), notifications_pb2.SubscribeReply, reader.token)
    check(len(heads.heads) == 1, "the reader is subscribed and told the head")
    check(heads.heads[0].owner == reader.account_id, "the head names its owner: the account")
    for owner in ("acct_somebody", "app/" + reader.app_id, "directory"):
        foreign = notifications_pb2.SubscribedScope(service="keyvalue", scope=reader.store_id, owner=owner)
        subscribe = notifications_pb2.Subscribe(scopes=[scope, foreign])
        expect(errors_pb2.ERROR_CODE_MISSING_ENTITLEMENT, f"a scope of {owner} is not followed", lambda: subscriptions.call(
            subscribe, notifications_pb2.SubscribeReply, reader.token))
        foreign_read = changes_pb2.ReadChanges(scope=reader.store_id, owner=owner)
        expect(errors_pb2.ERROR_CODE_MISSING_ENTITLEMENT, "nor read", lambda: reader.door("keyvalue").call(
            foreign_read, changes_pb2.ReadChangesReply, reader.token))

    store = writer.door("keyvalue")
    value = values_pb2.PropertyValue(string="from python")
    push = keyvalue_pb2.PushKeys(
        store_id=writer.store_id,
        writes=[keyvalue_pb2.KeyWrite(key="greeting", value=value, timestamp=writer.timestamp())])
    operation = uuid7()
    first = store.call(push, keyvalue_pb2.PushKeysReply, writer.token, operation)
    check(first.token.sequence > first.previous_sequence, "the push was stored")
    again = store.call(push, keyvalue_pb2.PushKeysReply, writer.token, operation)
    check(again == first, "a repeat gets the first reply")

    notification = subscriptions.next_notification()
    item = keyvalue_pb2.KeyValueItem()
    item.ParseFromString(notification.changes[0].body)
    check(notification.reason == changes_pb2.CHANGE_REASON_SERVER_CHANGE, "the reader is told, with reason 0")
    check((item.key, item.value.string) == ("greeting", "from python"), "the notification carries the value")
    check(notification.device_id == writer.device_id, "it names the device that wrote")
    check(notification.owner == writer.account_id, "and the owner of the scope")
    check(notification.token == first.token, "its token is the push's")

    store.call(
        keyvalue_pb2.PushKeys(
            store_id=writer.store_id,
            writes=[
                keyvalue_pb2.KeyWrite(key=f"page-{number}", value=value, timestamp=writer.timestamp())
                for number in range(7)]),
        keyvalue_pb2.PushKeysReply, writer.token)

    def rewrite(page):
        # Between two pages one key changes that was read, and one that was not is deleted.
        if page == 2:
            store.call(
                keyvalue_pb2.PushKeys(
                    store_id=writer.store_id,
                    writes=[
                        keyvalue_pb2.KeyWrite(
                            key="greeting", value=values_pb2.PropertyValue(string="again"),
                            timestamp=writer.timestamp()),
                        keyvalue_pb2.KeyWrite(key="page-6", timestamp=writer.timestamp())]),
                keyvalue_pb2.PushKeysReply, writer.token)

    items, last, pages = read(
        reader.door("keyvalue"), reader.store_id, reader.token, items_max=2, between=rewrite)
    live = {item.key: item for item in items.values() if item.HasField("value")}
    check(pages >= 4 and last.complete, "the reader reads the store in pages")
    check(
        sorted(key for key in live if key.startswith("page-")) == [f"page-{number}" for number in range(6)]
        and live["greeting"].value.string == "again",
        "what changes between two pages is in what was read")
    check(digest(live.values(), last.digest_key) == last.digest, "the digest is the documented one")
    usage = keyvalue_pb2.KeyValueUsage()
    usage.ParseFromString(last.info)
    check(usage.key_count == len(live), "the last page says how full the store is")
    changes, last, _ = read(reader.door("keyvalue"), reader.store_id, reader.token, after=first.token)
    check(
        not last.complete and sorted(changes) == ["greeting"] + [f"page-{number}" for number in range(7)],
        "from a token it gets what has changed since")

    try:
        store.call(
            keyvalue_pb2.PushKeys(
                store_id=writer.store_id,
                writes=[keyvalue_pb2.KeyWrite(key="k" * 65, value=value, timestamp=writer.timestamp())]),
            keyvalue_pb2.PushKeysReply, writer.token)
        check(False, "a key of 65 bytes is refused")
    except CallFailed as error:
        check(
            error.failure.code == errors_pb2.ERROR_CODE_QUOTA_EXCEEDED and error.failure.details["over_by"] == "1",
            "a key of 65 bytes is refused, and the reply tells by how much")

    try:
        read(reader.door("keyvalue"), reader.store_id, writer.token)
        check(False, "a stolen token is refused")
    except CallFailed as error:
        check(error.failure.code == errors_pb2.ERROR_CODE_TOKEN_NOT_BOUND, "another device's token is refused")

    check_content(writer, reader)
    check_return(store, push, writer.token, operation, first)


if __name__ == "__main__":
    main(*sys.argv[1:4])
