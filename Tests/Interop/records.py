"""Records in Python, written from docs/protocol/ and Protos/ alone.

Usage: records.py CONNECTION ACCOUNT PASSWORD [APP_TOKEN]

Makes docs/vectors.json anew as far as the pages say how, and asks the
service for the rest. Makes a zone in the container of the default app, saves records in it from two
devices, follows it, and deletes it; saves one in the container's public
database, and with the default app's token reads and follows that without an
account. Exits 0 when all of it happened as documented.
"""

import os
import sys
import time

import zmq

import chunks
import vectors
from chunks import Root
from client import Bulk, Device, Door, call_patiently, check, expect, parse_connection
from documents import Container, set_digest
from nephos import bulk_pb2, changes_pb2, errors_pb2, identity_pb2, notifications_pb2, records_pb2

DEFAULT_ZONE = "_defaultZone"


class Database:
    """The private database of a container of a device's app, or the public one."""

    def __init__(self, device, owner=""):
        self.device = device
        self.container = device.containers[0]
        self.requests = device.door("records")
        self.owner = owner and "app/" + owner
        self.kind = records_pb2.RECORD_DATABASE_KIND_PUBLIC if owner else records_pb2.RECORD_DATABASE_KIND_PRIVATE

    def call(self, body):
        module = changes_pb2 if isinstance(body, changes_pb2.ReadChanges) else records_pb2
        reply_type = getattr(module, type(body).__name__ + "Reply")
        return call_patiently(self.requests, body, reply_type, self.device.token)

    def make_zone(self, name):
        zone = records_pb2.NewZone(name=name, zone_id=os.urandom(16).hex())
        reply = self.call(records_pb2.ModifyZones(container=self.container, save=[zone]))
        made = records_pb2.RecordZone()
        made.ParseFromString(reply.zones[0].body)
        return made.zone_id

    def delete_zone(self, name, zone_id):
        self.call(records_pb2.ModifyZones(container=self.container, delete=[
            records_pb2.DeletedZone(name=name, zone_id=zone_id)]))

    def read(self, path, kind, after=None):
        """What has changed after the token, or all that is there, by name; deleted is None; and the last page."""
        request = changes_pb2.ReadChanges(scope=path, owner=self.owner, after=after)
        bodies = {}
        while True:
            reply = self.call(request)
            bodies.update((change.item, None if change.deleted else change.body) for change in reply.changes)
            if not reply.HasField("place"):
                break
            request.place.CopyFrom(reply.place)
        if reply.complete:
            live = {name: body for name, body in bodies.items() if body is not None}
            check(set_digest(live, reply.digest_key) == (reply.digest or bytes(32)),
                  f"the digest of {len(bodies)} items of {kind.DESCRIPTOR.name} is the service's")
        items = {}
        for name, body in bodies.items():
            items[name] = body and kind()
            if body:
                items[name].ParseFromString(body)
        return items, reply

    def modify(self, zone, *changes, transfer=b"", **options):
        request = records_pb2.ModifyRecords(container=self.container, database=self.kind, transfer_id=transfer)
        request.zones.add(zone_id=zone, changes=changes, **options)
        return self.call(request).zones[0]


def save(name, base=b"", policy=0, **fields):
    change = records_pb2.RecordChange(record=name)
    change.save.version = os.urandom(16)
    change.save.base = base
    change.save.type = "Note"
    change.save.policy = policy
    for field, value in fields.items():
        kind = {str: "string", int: "integer", float: "real", bytes: "data"}.get(type(value), "reference")
        made = change.save.fields.add(name=field)
        if kind == "reference":
            made.reference.CopyFrom(value)
        else:
            setattr(made, kind, value)
    return change


def delete(name):
    change = records_pb2.RecordChange(record=name)
    change.delete.SetInParent()
    return change


def with_target(record):
    return records_pb2.RecordReference(record=record, deletes_self=True)


def codes(outcome):
    return [record.failure.code for record in outcome.records]


def check_saves(here, there, zone, path):
    first = save("sea", title="Sea", depth=3)
    outcome = here.modify(zone, first, save("wave", of=with_target("sea")))
    check(codes(outcome) == [0, 0], "two records are saved together")
    items, page = there.read(path, records_pb2.Record)
    check(items["sea"].version == first.save.version and len(items["sea"].fields) == 2, "another device reads them")
    check([field.name for field in items["sea"].fields] == ["depth", "title"], "fields come in the order of names")
    check(items["sea"].created.device_id == here.device.device_id, "the service says who has made a record")
    second = save("sea", base=first.save.version, title="Ocean")
    check(codes(there.modify(zone, second)) == [0], "the other device saves over what it knew")
    outcome = here.modify(zone, save("sea", base=first.save.version, title="Lake"))
    check(codes(outcome) == [errors_pb2.ERROR_CODE_SERVER_RECORD_CHANGED], "a save over an older one is refused")
    check(outcome.records[0].record.version == second.save.version, "with the server's record")
    outcome = here.modify(zone, save("sea", base=first.save.version, policy=records_pb2.SAVE_POLICY_CHANGED_KEYS,
                                     title="Lake"))
    check(codes(outcome) == [0] and len(outcome.records[0].record.fields) == 2, "and taken by force, field by field")
    history = here.call(records_pb2.ListRecordHistory(container=here.container, zone_id=zone, record="sea"))
    check(history.entries[0].record.version == second.save.version, "what was overwritten is kept")
    outcome = here.modify(zone, first)
    check(codes(outcome) == [0], "a save that comes again is known")
    outcome = here.modify(zone, save("other"), save("sea", title="none"))
    check(codes(outcome) == [errors_pb2.ERROR_CODE_BATCH_REQUEST_FAILED, errors_pb2.ERROR_CODE_SERVER_RECORD_CHANGED],
          "a zone changes as a whole")
    outcome = here.modify(zone, delete("sea"))
    check(list(outcome.cascaded) == ["wave"], "what refers so goes with its target")
    items, _ = there.read(path, records_pb2.Record, after=page.token)
    check(items == {"sea": None, "wave": None}, "deletions are told after a token")


def check_query(here, there, zone):
    here.modify(zone, *(save(f"n{number:02}", count=number, title=f"Number {number}") for number in range(20)))
    request = records_pb2.QueryRecords(
        container=there.container, zone_id=zone, type="Note", predicate="count >= 5 AND title LIKE '*1*'", limit=4,
        desired_fields=["count"])
    names = []
    while True:
        reply = there.call(request)
        names += [change.item for change in reply.records]
        if not reply.after:
            break
        request.after = reply.after
    check(names == [f"n{number}" for number in range(10, 20)], "a query in pages, in the order of names")
    check_index(here, there, zone)
    here.modify(zone, *(delete(f"n{number:02}") for number in range(20)))


def check_vectors(here, zone):
    """What docs/vectors.json says of keys and digests, and what the service does with its predicates."""
    given = vectors.load()
    vectors.check_keys(given)
    vectors.check_digests(given)
    vectors.check_folder_digests(given)
    record = records_pb2.Record()
    record.ParseFromString(bytes.fromhex(given["record"]["body"]))
    name = given["record"]["name"]
    change = save(name)
    change.save.type = record.type
    change.save.fields.extend(record.fields)
    check(codes(here.modify(zone, change)) == [0], "the vectors' record is saved")
    request = records_pb2.QueryRecords(container=here.container, zone_id=zone)
    for vector in given["predicates"]:
        for request.predicate in (vector["text"], vector["canonical"]):
            found = [change.item for change in here.call(request).records]
            check((name in found) == vector["is_true"], f"{request.predicate} is {vector['is_true']}")
    for request.predicate in filter(None, given["no_predicates"]):
        expect(errors_pb2.ERROR_CODE_INVALID_ARGUMENTS, f"{request.predicate!r} is no predicate",
               lambda: here.call(request))
    here.modify(zone, delete(name))


def check_index(here, there, zone):
    index = records_pb2.RecordIndex(type="Note", folding_version=1)
    index.fields.add(field="title", descending=True, folding=1)
    words = records_pb2.RecordIndex(type="Note", folding_version=1)
    here.call(records_pb2.ModifyRecordIndexes(container=here.container, save=[index, words]))
    for _ in range(100):
        states = there.call(records_pb2.ListRecordIndexes(container=there.container)).indexes
        if all(state.state == records_pb2.RecordIndexState.STATE_READY for state in states):
            break
        time.sleep(0.1)
    check([state.index for state in states] == [index, words], "indexes are made of what is there")
    request = records_pb2.QueryRecords(
        container=there.container, zone_id=zone, type="Note", predicate="title >=[c] 'number 15'", limit=2,
        explain=True)
    request.sort.add(field="title", descending=True, folding=1)
    names = []
    while True:
        reply = there.call(request)
        names += [change.item for change in reply.records]
        check(reply.plan.way == records_pb2.QueryPlan.WAY_INDEX and reply.plan.index == index and reply.examined <= 2,
              "a page of an index looks at what it sends")
        if not reply.after:
            break
        request.after = reply.after
        # What changes meanwhile takes nothing away.
        here.modify(zone, save(f"n{len(names):02}", policy=records_pb2.SAVE_POLICY_CHANGED_KEYS, changed=1))
    # As texts: 9, 8, 7, 6, 5, 4, 3, 2, 19 ...
    expected = sorted((f"number {number}", f"n{number:02}") for number in range(20))
    expected = [name for title, name in reversed(expected) if title >= "number 15"]
    check(names == expected, "a query in pages, in the order of an index")
    request.predicate = "title >=[c] 'number 16'"
    request.after = ""
    request.after = there.call(request).after
    request.sort[0].descending = False
    expect(errors_pb2.ERROR_CODE_INVALID_ARGUMENTS, "a place is good for its query alone", lambda: there.call(request))
    reply = there.call(records_pb2.QueryRecords(
        container=there.container, zone_id=zone, type="Note", predicate="self CONTAINS 'NUMBER 7'"))
    check([change.item for change in reply.records] == ["n07"] and reply.examined == 1, "an index of words")
    reply = here.call(records_pb2.ModifyRecordIndexes(container=here.container, delete=[index, words]))
    check(not reply.indexes, "indexes are removed")


def check_following(here, there, zone, path):
    subscriptions = there.device.door("notifications", subscriptions=True)
    scopes = [notifications_pb2.SubscribedScope(service="records", scope=scope) for scope in (path, there.container)]
    subscriptions.call(
        notifications_pb2.Subscribe(scopes=scopes), notifications_pb2.SubscribeReply, there.device.token)
    followed = save("followed", title="hello")
    outcome = here.modify(zone, followed)
    notification = subscriptions.next_notification()
    record = records_pb2.Record()
    record.ParseFromString(notification.changes[0].body)
    check((notification.scope, notification.token, record.version)
          == (path, outcome.token, followed.save.version), "who follows a zone is told, with the record")
    name = "zone " + os.urandom(4).hex()
    made = here.make_zone(name)
    notification = subscriptions.next_notification()
    check((notification.scope, notification.changes[0].item) == (there.container, name),
          "who follows a database is told of a new zone")
    here.delete_zone(name, made)


class Stranger:
    """A device without an account, with what an app ships."""

    door = Device.door

    def __init__(self, context, connection, app_token):
        endpoint, server_key = parse_connection(connection)
        self.context = context
        self.keys = zmq.curve_keypair()
        identity = Door(context, endpoint, server_key, self.keys)
        reply = identity.call(
            identity_pb2.IssuePublicToken(secret=app_token), identity_pb2.IssuePublicTokenReply)
        self.token = reply.access_token.token
        self.containers = reply.access_token.app.container_ids
        self.owner = reply.access_token.app.container_owners[0]
        self.services = {address.service: address for address in reply.services}


def check_public(context, connection, here, app_token):
    roles = here.call(records_pb2.ListRecordRoles(container=here.container)).roles
    check(roles.types[0].everyone.read and roles.types[0].signed_in.create and roles.types[0].creator.write,
          "roles are CloudKit's where nothing was said")
    shared = Database(here.device, roles.owner_app)
    path = f"{shared.container}/{DEFAULT_ZONE}"
    name = "public " + os.urandom(4).hex()
    first = save(name, title="Sea")
    check(codes(shared.modify(DEFAULT_ZONE, first)) == [0], "a record is saved in the public database")
    items, page = shared.read(path, records_pb2.Record)
    check(items[name].version == first.save.version and not items[name].created.device_id,
          "it is read, and names no device")
    expect(errors_pb2.ERROR_CODE_INVALID_ARGUMENTS, "the public database has no zones to make", lambda: here.call(
        records_pb2.ModifyZones(container=here.container, database=shared.kind)))
    expect(errors_pb2.ERROR_CODE_PERMISSION_FAILURE, "roles are for administrators", lambda: here.call(
        records_pb2.ModifyRecordRoles(container=here.container, delete=["Note"])))
    if app_token:
        check_stranger(Stranger(context, connection, app_token), shared, path, name, first)
    check(codes(shared.modify(DEFAULT_ZONE, delete(name))) == [0], "and deleted")


def check_stranger(stranger, shared, path, name, first):
    reading = Database(stranger, stranger.owner)
    items, _ = reading.read(path, records_pb2.Record)
    check(items[name].version == first.save.version, "it is read without an account")
    reply = reading.call(records_pb2.QueryRecords(
        container=reading.container, database=reading.kind, zone_id=DEFAULT_ZONE, predicate=f"_recordName == '{name}'",
        scan=True))
    check([change.item for change in reply.records] == [name], "and found by a query")
    subscriptions = stranger.door("notifications", subscriptions=True)
    scope = notifications_pb2.SubscribedScope(service="records", owner=reading.owner, scope=path)
    subscriptions.call(
        notifications_pb2.Subscribe(scopes=[scope]), notifications_pb2.SubscribeReply, stranger.token)
    check(codes(shared.modify(DEFAULT_ZONE, save(name, base=first.save.version, title="Ocean"))) == [0],
          "its creator saves over it")
    check(subscriptions.next_notification().changes[0].item == name, "who follows it without an account is told")
    reply = reading.call(changes_pb2.ReadChanges(scope=path, owner=reading.owner, items_max=1))
    check(not reply.HasField("place") or reply.place.sealed and not reply.place.item,
          "where a page ends does not name what may be hidden")
    expect(errors_pb2.ERROR_CODE_PERMISSION_FAILURE, "nothing is saved without an account",
           lambda: reading.modify(DEFAULT_ZONE, save("other")))
    expect(errors_pb2.ERROR_CODE_PERMISSION_FAILURE, "nor is anything else told", lambda: reading.call(
        records_pb2.FetchRecords(container=reading.container, zone_id=DEFAULT_ZONE, records=[name])))


class Assets(Container):
    """The assets of a private database, or of one record of a public one."""

    def __init__(self, device, name):
        self.device, self.id, self.of_content = device, name, name
        self.requests = device.door("records")
        self.bulk = Bulk(device, "records")

    def put_asset(self, content):
        """Stores what is missing of the bytes; the asset, the upload, and how many chunks were sent."""
        pieces = {chunks.chunk_id(piece): piece for piece in chunks.divide(content)}
        root, tree = chunks.build(chunks.children_of(chunks.divide(content)))
        missing = self.missing([*pieces, *tree])
        absent = [pieces[one] for one in missing if one in pieces]
        upload = os.urandom(16) if missing else b""
        if missing:
            self.store(upload, absent)
            nodes = [node for one, node in tree.items() if one in missing]
            if nodes:
                self.call(bulk_pb2.StoreNodes(container=self.id, transfer_id=upload, nodes=nodes))
        asset = records_pb2.RecordAsset(length=len(content), root=root.id, depth=root.depth)
        return asset, upload, len(absent)

    def get_asset(self, asset):
        children = chunks.read_chunks(Root(asset.root, asset.depth, asset.length), self.read_nodes)
        pieces = self.fetch(list(dict.fromkeys(child.id for child in children)))
        return b"".join(pieces[child.id] for child in children)

    def close(self, upload):
        self.call(bulk_pb2.CloseTransfer(transfer_id=upload, container=self.id))


def with_asset(name, asset):
    change = save(name)
    change.save.fields.append(records_pb2.RecordField(name="photo", asset=asset))
    return change


def check_assets(here, there, zone, path):
    content = os.urandom(700_000)
    assets = Assets(here.device, here.container)
    asset, upload, sent = assets.put_asset(content)
    check(sent > 1, "an asset's chunks are stored")
    check(codes(here.modify(zone, with_asset("unstored", records_pb2.RecordAsset(length=5, root=os.urandom(32))))) == [
        errors_pb2.ERROR_CODE_ASSET_NOT_AVAILABLE], "a record is not saved whose asset was not stored")
    check(codes(here.modify(zone, with_asset("photo", asset), transfer=upload)) == [0], "a record is saved with an asset")
    assets.close(upload)
    items, _ = there.read(path, records_pb2.Record)
    read = next(field.asset for field in items["photo"].fields if field.name == "photo")
    check(Assets(there.device, there.container).get_asset(read) == content, "and the other device fetches it")
    again, upload, sent = assets.put_asset(content)
    check((sent, upload, again) == (0, b"", asset), "the same bytes are not sent again")


def main(connection, account, password, app_token=""):
    context = zmq.Context()
    here = Database(Device(context, connection, account, password, "python-records"))
    there = Database(Device(context, connection, account, password, "python-records-2"))
    name = "python " + os.urandom(4).hex()
    zone = here.make_zone(name)
    check(there.make_zone(name) == zone, "a zone is made once")
    path = f"{here.container}/{zone}"
    check_saves(here, there, zone, path)
    check_vectors(here, zone)
    check_query(here, there, zone)
    check_assets(here, there, zone, path)
    check_following(here, there, zone, path)
    for bad in ("", "_record", "é", "x" * 256):
        check(codes(here.modify(zone, save(bad))) == [errors_pb2.ERROR_CODE_INVALID_ARGUMENTS],
              f"no record can be called {bad[:10]!r}")
    expect(errors_pb2.ERROR_CODE_MISSING_ENTITLEMENT, "there is no database of a container that the app does not list",
           lambda: there.call(records_pb2.ModifyZones(container="nobody.has.this")))
    here.delete_zone(name, os.urandom(16).hex())
    check(name in there.read(there.container, records_pb2.RecordZone)[0], "another zone's id deletes none")
    here.delete_zone(name, zone)
    check(name not in there.read(there.container, records_pb2.RecordZone)[0], "a zone is deleted")
    check(there.modify(zone, save("late")).failure.code == errors_pb2.ERROR_CODE_ZONE_NOT_FOUND,
          "and takes nothing any more")
    check_public(context, connection, here, app_token)


if __name__ == "__main__":
    main(*sys.argv[1:5])
