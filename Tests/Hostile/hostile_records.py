"""Attacks records from accounts of their own, within their budgets, with an honest device of another account beside them.

Usage: hostile_records.py DEPLOYMENT CONNECTION PASSWORD SECONDS HOSTILE_ACCOUNT...

The honest device is of the account `ann`; it saves records, queries them by an index, and is told of them by another
device's subscription. Each attack is a device and a process of its own. Says what each tried and had refused, what the
honest device met, and what the service held. Exits 1 when something was accepted that must not be, the honest device went
without an answer or slower than the bounds say, or the service ended, or held more than they say.
"""

import multiprocessing
import os
import sys
import time

import zmq

import client
import flood
import hostile_documents
from hostile_documents import Breach, percentile
from nephos import changes_pb2, errors_pb2, notifications_pb2, records_pb2
from records import DEFAULT_ZONE, Database, delete, save, with_target

GROWTH_MB_MAX = 200
# The honest device, in seconds: the 99th percentile of each, and the slowest of all.
SAVE_P99_MAX, QUERY_P99_MAX, TOLD_P99_MAX, SLOWEST_MAX = 1.0, 1.0, 1.0, 5.0

INVALID = errors_pb2.ERROR_CODE_INVALID_ARGUMENTS
LIMIT = errors_pb2.ERROR_CODE_LIMIT_EXCEEDED
NO_ZONE = errors_pb2.ERROR_CODE_ZONE_NOT_FOUND
NO_CONTAINER = errors_pb2.ERROR_CODE_MISSING_ENTITLEMENT
VIOLATION = errors_pb2.ERROR_CODE_REFERENCE_VIOLATION


class Attacker(hostile_documents.Attacker):
    """A device of a hostile account, that keeps to its budget."""

    def __init__(self, connection, account, password, deadline, seed):
        self.deadline, self.dice = deadline, hostile_documents.random.Random(seed)
        self.counts = {}
        self.device = self.sign_in(connection, account, password, f"hostile-{seed}")
        self.container = Database(self.device)
        self.id = self.container.container

    def call(self, body, reply_type=None):
        module = changes_pb2 if isinstance(body, changes_pb2.ReadChanges) else records_pb2
        return super().call(body, reply_type or getattr(module, type(body).__name__ + "Reply"))

    def make_zone(self):
        zone = records_pb2.NewZone(name=self.fresh_name(), zone_id=os.urandom(16).hex())
        self.call(records_pb2.ModifyZones(container=self.id, save=[zone]))
        return zone.zone_id, zone.name

    def fresh_name(self):
        return super().fresh_name().decode()

    def request(self, zone, *changes, **options):
        request = records_pb2.ModifyRecords(container=self.id)
        request.zones.add(zone_id=zone, changes=changes, **options)
        return request

    def modify(self, zone, *changes, **options):
        return self.call(self.request(zone, *changes, **options)).zones[0]

    def query(self, zone, predicate="", **options):
        return records_pb2.QueryRecords(container=self.id, zone_id=zone, type="Note", predicate=predicate, **options)

    def refuses(self, what, codes, outcome):
        """Each change of the outcome."""
        codes = codes if isinstance(codes, tuple) else (codes,)
        found = {record.failure.code for record in outcome.records} | {outcome.failure.code} - {0}
        if not found or not found <= {*codes, errors_pb2.ERROR_CODE_BATCH_REQUEST_FAILED}:
            raise Breach(f"{what}: {found}")
        self.count(what + " refused")

    def index(self, *indexes):
        self.call(records_pb2.ModifyRecordIndexes(container=self.id, save=indexes))


def index(*fields, kind="Note", folding=0):
    made = records_pb2.RecordIndex(type=kind)
    for field in fields:
        made.fields.add(field=field, folding=folding)
    return made


# What a hostile device does until its deadline. Each gets (attacker, victim): what the honest account has.

def foreign(one, victim):
    """Asks for zones, records and places that another account has, by their very ids."""
    zone = victim["zone"]
    while one.goes_on:
        one.refused("records of a foreign zone", NO_ZONE, records_pb2.FetchRecords(
            container=one.id, zone_id=zone, records=["known"]))
        one.refused("a query of a foreign zone", NO_ZONE, one.query(zone))
        one.refused("the history of a foreign zone", NO_ZONE, records_pb2.ListRecordHistory(
            container=one.id, zone_id=zone))
        for scope in (f"{one.id}/{zone}", f"{one.id}/{os.urandom(16).hex()}"):
            one.refused("the changes of a foreign zone", (NO_ZONE, NO_CONTAINER), changes_pb2.ReadChanges(scope=scope))
        one.refuses("a save into a foreign zone", NO_ZONE, one.modify(zone, save("known", title="mine")))
        one.refused("a container of nobody", NO_CONTAINER, records_pb2.ModifyZones(
            container="nobody.has.this", delete=["x"]))
        # A place of another's query is good for nothing, and tells nothing.
        request = one.query(DEFAULT_ZONE, "title BEGINSWITH 'a'", after=victim["after"])
        request.sort.add(field="title")
        one.refused("a foreign place", INVALID, request)
        found = one.call(records_pb2.FetchRecords(container=one.id, zone_id=DEFAULT_ZONE, records=["known"]))
        if any(not record.deleted for record in found.records):
            raise Breach("another account's record was sent")
        # A record of the other account, with its seal: it is one's own then.
        stolen = save("known", title="mine")
        record = victim["record"]
        stolen.save.created.CopyFrom(record.created)
        stolen.save.modified.CopyFrom(record.modified)
        stolen.save.version, stolen.save.seal, stolen.save.replace = record.version, record.seal, True
        own = one.make_zone()
        made = one.modify(own[0], stolen).records[0].record
        if made.created.account_id == record.created.account_id:
            raise Breach("a record is another account's")
        one.call(records_pb2.ModifyZones(container=one.id, delete=[own[1]]))
        one.count("foreign seals")


def strings(one, victim):
    """Texts of a megabyte in fields with indexes, and lists of as many values as there may be."""
    one.index(index("text", folding=3), index("list"), index())
    zone, _ = one.make_zone()
    while one.goes_on:
        text = one.dice.choice(["x", "é", "ß", "\u0130", "a b "]) * one.dice.choice([900_000, 400_000])
        text = text.encode()[:900_000].decode(errors="ignore")
        for name in range(4):
            change = save(f"t{name}", policy=records_pb2.SAVE_POLICY_ALL_KEYS, text=text)
            one.modify(zone, change)
            one.count("texts of 900 KB")
        large = save("large", policy=records_pb2.SAVE_POLICY_ALL_KEYS, text="x" * 1_100_000)
        one.refuses("a record too large", LIMIT, one.modify(zone, large))
        listed = save("l", policy=records_pb2.SAVE_POLICY_ALL_KEYS)
        field = listed.save.fields.add(name="list")
        field.strings.values.extend(f"{number}-{one.dice.random()}" for number in range(one.dice.choice([200, 2000, 20_000])))
        try:
            outcome = one.modify(zone, listed)
            one.count("lists refused" if outcome.records[0].failure.code else "lists")
        except client.CallFailed as error:
            if error.failure.code != LIMIT:
                raise
            one.count("lists refused")
        for predicate in ("text =[cd] 'x'", "self CONTAINS 'x'", "ANY list BEGINSWITH '1'"):
            try:
                one.call(one.query(zone, predicate))
            except client.CallFailed as error:
                if error.failure.code != LIMIT and error.failure.code != INVALID:
                    raise


def webs(one, victim):
    """Records that refer to one another, as many as may be and more, and go together."""
    while one.goes_on:
        zone, name = one.make_zone()
        for start in range(0, 1200, 400):
            one.count("references", 400)
            outcome = one.modify(zone, *(save(f"s{start + number}", to=with_target("hub")) for number in range(400)),
                                 not_atomic=True)
        codes = {record.failure.code for record in outcome.records}
        if LIMIT not in codes:
            raise Breach(f"more references to one record than there may be: {codes}")
        # Circles, and chains deeper than may be.
        ring = [save(f"r{number}", to=with_target(f"r{(number + 1) % 300}")) for number in range(300)]
        one.modify(zone, *ring)
        chain = [save("p0")]
        for number in range(1, 120):
            chain.append(save(f"p{number}"))
            chain[-1].save.parent = f"p{number - 1}"
        one.refuses("parents too deep", LIMIT, one.modify(zone, *chain))
        circle = [save("c0"), save("c1")]
        circle[0].save.parent, circle[1].save.parent = "c1", "c0"
        one.refuses("parents in a circle", VIOLATION, one.modify(zone, *circle))
        many = save("many")
        field = many.save.fields.add(name="to")
        field.references.values.extend(with_target(f"t{number}") for number in range(800))
        one.refuses("a record that refers to too many", LIMIT, one.modify(zone, many))
        one.modify(zone, delete("hub"), delete("r0"), not_atomic=True)
        one.count("webs that go")
        one.call(records_pb2.ModifyZones(container=one.id, delete=[name]))


def bombs(one, victim):
    """Predicates that are as large, as deep and as slow as may be, and more."""
    zone, _ = one.make_zone()
    text = "a" * 20_000
    for number in range(40):
        bomb = save(f"b{number}", title=text + str(number), count=number)
        bomb.save.fields.add(name="numbers").integers.values.extend([number] * 10_000)
        one.modify(zone, bomb)
    slow = "title LIKE '" + "*a" * 20 + "*b'"
    kinds = {
        "deep": "(" * 5000 + "count = 1" + ")" * 5000,
        "nots": "NOT " * 5000 + "count = 1",
        "long": " OR ".join(f"count = {number}" for number in range(5000)),
        "megabytes": "title = '" + "x" * 2_000_000 + "'",
        "in": "count IN {" + ", ".join(str(number) for number in range(50_000)) + "}",
        "slow": slow,
        "slower": " OR ".join([slow] * 30),
        "matches": "title MATCHES '(a+)+$'",
        "crossed": " AND ".join(f"(count = {number} OR count = {number + 1})" for number in range(40)),
        "folded": " OR ".join("title CONTAINS[cd] 'á%d'" % number for number in range(60)),
        "lists": " OR ".join(f"ANY numbers == {1000 + number}" for number in range(60)),
        "more lists": " OR ".join(f"ANY numbers == {1000 + number}" for number in range(240)),
    }
    while one.goes_on:
        for name, predicate in kinds.items():
            request = one.query(zone, predicate, scan=True)
            if one.dice.random() < 0.3:
                request.sort.add(field="title", folding=3)
                request.scan = False
            try:
                # To its end, however many calls that takes; a few are enough.
                for _ in range(3):
                    reply = one.call(request)
                    one.count(f"{name} answered")
                    if not reply.after:
                        break
                    request.after = reply.after
            except client.CallFailed as error:
                if error.failure.code not in (INVALID, LIMIT):
                    raise Breach(f"a predicate ({name}): {error}") from error
                one.count(f"{name} refused")
        random = "".join(chr(one.dice.choice([*range(32, 127), 0x130, 0x1F600, 0])) for _ in range(60))
        try:
            one.call(one.query(zone, random, scan=True))
            one.count("random answered")
        except client.CallFailed as error:
            if error.failure.code not in (INVALID, LIMIT):
                raise Breach(f"a random predicate: {error}") from error
            one.count("random refused")


def places(one, victim):
    """Places of queries that were made up, or are of another query."""
    zone, _ = one.make_zone()
    one.index(index("count"))
    one.modify(zone, *(save(f"n{number:03}", count=number) for number in range(50)))
    while one.goes_on:
        request = one.query(zone, "count >= 0", limit=5)
        request.sort.add(field="count")
        after = ""
        for _ in range(50):
            after = one.call(request).after
            if after:
                break
        if not after:
            raise Breach("a page of five records was all of fifty")
        bad = bytearray(after.encode())
        bad[one.dice.randrange(len(bad))] ^= 1 << one.dice.randrange(7)
        for made in (bytes(bad).decode(errors="replace"), after[: len(after) // 2], after + after, one.fresh_name(), "\0" * 1000):
            request.after = made
            try:
                reply = one.call(request)
                # Whatever it is taken for, it is a place in one's own zone.
                if any(not change.item.startswith("n") for change in reply.records):
                    raise Breach("a made up place has shown other records")
                one.count("made up places answered")
            except client.CallFailed as error:
                if error.failure.code != INVALID:
                    raise Breach(f"a made up place: {error}") from error
                one.count("made up places refused")


def names(one, victim):
    """Names, types and fields that none may have."""
    bad = ["", "_x", "é", "x" * 256, "a\nb", "a\0b", "\u202e", " " * 256]
    zone, _ = one.make_zone()
    while one.goes_on:
        for name in bad:
            one.refuses("a bad name", INVALID, one.modify(zone, save(name)))
            one.refused("a bad zone", INVALID, records_pb2.ModifyZones(container=one.id, save=[
                records_pb2.NewZone(name=name, zone_id=os.urandom(16).hex())]))
            typed = save("a")
            typed.save.type = name
            one.refuses("a bad type", INVALID, one.modify(zone, typed))
            fielded = save("a")
            fielded.save.fields.add(name=name).integer = 1
            one.refuses("a bad field", INVALID, one.modify(zone, fielded))
        for zone_id in ("", "x", "A" * 32, "../" + "0" * 29, os.urandom(15).hex()):
            one.refused("a bad id", INVALID, records_pb2.ModifyZones(container=one.id, save=[
                records_pb2.NewZone(name="z", zone_id=zone_id)]))
        one.refused("too many changes", LIMIT, one.request(zone, *(save(f"m{number}") for number in range(401))))
        one.refused("a record twice", INVALID, one.request(zone, save("a"), save("a")))
        token = one.request(zone, save("a"))
        token.zones[0].client_token = b"x" * 1025
        one.refused("a long client token", LIMIT, token)


def churn(one, victim):
    """Makes zones and deletes them, full of records: what is left of them is to be removed, and counts."""
    while one.goes_on:
        zone, name = one.make_zone()
        one.modify(zone, *(save(f"n{number:03}", count=number) for number in range(400)))
        one.modify(zone, *(delete(f"n{number:03}") for number in range(200)))
        one.call(records_pb2.ModifyZones(container=one.id, delete=[name]))
        one.count("zones of 400 records")


def force(one, victim):
    """Saves by force over and over: all that is overwritten is kept for a while, as far as the plan goes."""
    zone, _ = one.make_zone()
    while one.goes_on:
        changes = [save(f"f{number}", policy=records_pb2.SAVE_POLICY_CHANGED_KEYS, data=os.urandom(4000))
                   for number in range(40)]
        one.modify(zone, *changes, not_atomic=True)
        one.count("saves by force", 40)


ATTACKS = [foreign, strings, webs, bombs, places, names, churn, force]


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
        counts["ended by its plan"] = 1
        failure = "" if plan else str(error)
    except (Breach, AssertionError) as error:
        failure = str(error)
    except Exception as error:
        # A mistake of the attack's own: it has shown nothing.
        failure = f"{type(error).__name__}: {error}"
    results.put((what.__name__, counts, failure))


def honest(connection, password, end, results, ready):
    """One device that saves and queries, at a pace, and another that follows."""
    context = zmq.Context()
    device = client.Device(context, connection, "ann", password, "honest")
    base = Database(device)
    other = Database(client.Device(context, connection, "ann", password, "follower"))
    name = "work " + os.urandom(4).hex()
    zone = base.make_zone(name)
    base.call(records_pb2.ModifyRecordIndexes(container=base.container, save=[index("count"), index("title")]))
    base.modify(zone, *(save(f"k{number:03}", count=number, title=f"a{number}") for number in range(300)))
    base.modify(zone, save("known", title="hers"))
    known = base.call(records_pb2.FetchRecords(container=base.container, zone_id=zone, records=["known"]))
    record = records_pb2.Record()
    record.ParseFromString(known.records[0].body)
    request = records_pb2.QueryRecords(
        container=base.container, zone_id=zone, type="Note", predicate="title BEGINSWITH 'a'", limit=5)
    request.sort.add(field="title")
    for _ in range(100):
        after = base.call(request).after
        if after:
            break
        time.sleep(0.1)
    subscriptions = other.device.door("notifications", subscriptions=True)
    scope = notifications_pb2.SubscribedScope(service="records", scope=f"{base.container}/{zone}")
    subscriptions.call(notifications_pb2.Subscribe(scopes=[scope]), notifications_pb2.SubscribeReply, other.device.token)
    ready.put({"zone": zone, "record": record, "after": after})
    times = {"save": [], "told": [], "query": []}
    failures, number = [], 1000
    while time.monotonic() < end:
        number += 1
        try:
            saved = save(f"n{number}", count=number, title=f"b{number}")
            start = time.monotonic()
            outcome = base.modify(zone, saved)
            times["save"].append(time.monotonic() - start)
            if outcome.failure.code or outcome.records[0].failure.code:
                failures.append(f"a save: {outcome}"[:200])
                continue
            while True:
                notification = subscriptions.next_notification()
                if any(change.item == saved.record for change in notification.changes):
                    break
            times["told"].append(time.monotonic() - start)
            start = time.monotonic()
            reply = base.call(records_pb2.QueryRecords(
                container=base.container, zone_id=zone, type="Note", predicate=f"count = {number}"))
            times["query"].append(time.monotonic() - start)
            if [change.item for change in reply.records] != [saved.record]:
                failures.append("a query does not find what was saved before")
        except (TimeoutError, client.CallFailed, AssertionError) as error:
            failures.append(f"{type(error).__name__}: {error}")
        time.sleep(0.02)
    results.put((times, failures))


def main(deployment, connection, password, seconds, *accounts):
    end = time.monotonic() + 5 + float(seconds)
    pid = flood.holder_of(deployment, "records")
    memory, disk = flood.memory_peak(pid), hostile_documents.disk_bytes(deployment)
    ready, own, results = multiprocessing.Queue(), multiprocessing.Queue(), multiprocessing.Queue()
    device = multiprocessing.Process(target=honest, args=(connection, password, end, own, ready))
    device.start()
    victim = ready.get(timeout=60)
    attackers = [
        multiprocessing.Process(target=attack, args=(
            number, what, connection, accounts[number % len(accounts)], password, end, victim, results))
        for number, what in enumerate(ATTACKS)]
    for process in attackers:
        process.start()
    times, failures = own.get(timeout=float(seconds) + 60)
    good = not failures
    for failure in failures[:10]:
        print(f"the honest device: {failure}")
    for _ in attackers:
        name, counts, failure = results.get(timeout=120)
        good = good and not failure
        print(f"{name:8} " + (f"FAILED: {failure}; " if failure else "")
              + ", ".join(f"{count} {what}" for what, count in counts.items()))
    for process in [device, *attackers]:
        process.join()
    lives = flood.holder_of(deployment, "records") == pid
    growth = flood.memory_peak(pid) - memory if lives else 0
    grown = hostile_documents.disk_bytes(deployment) - disk
    for what, bound in (("save", SAVE_P99_MAX), ("told", TOLD_P99_MAX), ("query", QUERY_P99_MAX)):
        slowest = max(times[what], default=float("inf"))
        good = good and percentile(times[what], 0.99) <= bound and slowest <= SLOWEST_MAX
        print(f"honest {what}: {len(times[what])}, median {percentile(times[what], 0.5) * 1000:.1f} ms, "
              f"p99 {percentile(times[what], 0.99) * 1000:.0f} ms, slowest {slowest * 1000:.0f} ms")
    print(f"honest failures: {len(failures)}")
    print(f"records: {memory:.0f} MB before, {growth:.0f} more at most; disk: {grown / 1e6:.0f} MB more"
          + ("" if lives else "; ENDED"))
    return 0 if good and lives and growth <= GROWTH_MB_MAX else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
