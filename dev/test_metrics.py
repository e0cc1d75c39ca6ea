"""Asks Prometheus what docs/metrics.md asks, and compares the answers with what was done. Called by dev/test-metrics."""

import json
import re
import sys
import urllib.parse
import urllib.request

server, work, page, dashboard = sys.argv[1:]
failures = 0


def check(what, holds, found=""):
    global failures
    print(f"{'ok   ' if holds else 'FAIL '} {what}{f': {found}' if found != '' else ''}")
    failures += 0 if holds else 1


def ask(query):
    url = f"{server}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(url, timeout=10) as answer:
        reply = json.load(answer)
    assert reply["status"] == "success", reply
    return {tuple(sorted(one["metric"].items())): float(one["value"][1]) for one in reply["data"]["result"]}


def by(label, answer):
    return {dict(labels).get(label): value for labels, value in answer.items()}


def read(name):
    values = {}
    with open(f"{work}/{name}") as lines:
        for line in lines:
            if not line.startswith("#"):
                key, _, value = line.rpartition(" ")
                values[key] = float(value)
    return values


# What a query's table promises: that it is answered, and with what. None: it finds nothing where all is well.
services = {"identity", "keyvalue", "documents", "records", "notifications"}
expected = {
    "Requests a second, by service": lambda a: set(by("service", a)) == services and by("service", a)["keyvalue"] > 1,
    "Percentage of requests that failed through the service's own fault": lambda a: by("service", a)["keyvalue"] == 0,
    "Duration of writes, 99th percentile": lambda a: len(a) == 1 and 0 < list(a.values())[0] < 5,
    "Duration of a flush to disk, 99th percentile": lambda a: 0 < by("service", a)["keyvalue"] < 5,
    "Requests that share one flush": lambda a: len(a) == 1 and 0.5 < list(a.values())[0] <= 16,
    "Subscribed connections, and deliveries a second": lambda a: len(a) == 1 and list(a.values())[0] >= 0,
    "Bytes of content a second, in and out":
        lambda a: set(by("service", a)) == {"documents", "records"} and by("service", a)["documents"] > 10_000,
}
quiet = {
    "Failed requests a second, by service, method and code", "Services that are behind, in changes", "Services that hear nothing from another",
    "Subscribed connections that do not keep up", "Requests refused by a budget, a second", "The disk is full within a day",
    "The disk of contents is not mounted", "Chunks that the disk has lost", "Keys, records and documents in quarantine", "A service was restarted",
    "Memory above 80 % of its limit",
    "Descriptors above 80 % of their limit", "A service is down", "A database was restored",
}
# These may truly be so for a moment, or on a machine whose disk fills.
lenient = {"Failed requests a second, by service, method and code", "Services that are behind, in changes",
           "The disk is full within a day"}

with open(page) as text:
    table = text.read().split("## Queries")[1].split("## All metrics")[0]
asked = set()
for row in re.findall(r"^\| ([^|]+) \| (`.*`) \|$", table, re.M):
    question = row[0]
    for query in re.findall(r"`([^`]+)`", row[1]):
        query = query.replace("\\|", "|")
        answer = ask(query)
        asked.add(question)
        shown = f"{sorted(answer.values())[-1]:.4g}" if answer else "nothing"
        if question in expected:
            check(question, bool(answer) and expected[question](answer), shown)
        elif question in quiet:
            # The condition finds nothing; without it there is something to look at.
            check(question, not answer or question in lenient, shown)
            bare = re.sub(r"\s*[<>=!]=?\s*[0-9.]+$", "", query)
            # Counters with labels appear with their first count.
            if "nephos_" in bare and 'code!="ok"' not in bare and "refused" not in bare:
                check(f"  {bare}", bool(ask(bare)))
        else:
            check(question, False, "this test does not know the question")
missing = (set(expected) | quiet) - asked
check("every question was found in the page", not missing, ", ".join(missing))
check("all five are scraped", by("service", ask("up")) == {name: 1 for name in services})

# What the load itself has counted.
with open(f"{work}/load.json") as file:
    load = json.load(file)["results"][0]
answered = load["extra"]["answered_in_all"]
before, after = read("before"), read("after")


def rise(name):
    return after.get(name, 0) - before.get(name, 0)


pushes = rise('nephos_requests_total{method="PushKeys",code="ok"}')
# Those in flight when the load ended were answered to nobody: one of each writer at most.
check("writes that the load saw answered are counted", answered <= pushes <= answered + 16,
      f"{pushes:.0f} counted, {answered:.0f} seen")
check("each has its time", rise('nephos_request_duration_seconds_count{method="PushKeys"}') == pushes)
mean = rise('nephos_request_duration_seconds_sum{method="PushKeys"}') / pushes * 1000
check("and on the mean less than the load saw, who is farther away", 0 < mean < load["reply"]["p99"],
      f"{mean:.2f} ms; the load's median {load['reply']['p50']:.2f} ms")
check("the feed has risen by as many", pushes <= rise("nephos_feed_position") <= pushes + 200,
      f"{rise('nephos_feed_position'):.0f}")
check("flushes pay for them", 0 < rise("nephos_flush_duration_seconds_count") <= rise("nephos_groups_total"),
      f"{rise('nephos_flush_duration_seconds_count'):.0f} flushes, {rise('nephos_groups_total'):.0f} groups")
deliveries = by("service", ask("nephos_deliveries_total"))["notifications"]
check("who follows was told", 0 < deliveries <= pushes + 200, f"{deliveries:.0f} deliveries")
received = by("service", ask("nephos_content_received_bytes_total"))["documents"]
sent = by("service", ask("nephos_content_sent_bytes_total"))["documents"]
check("the file's bytes came", 3_000_000 <= received <= 3_400_000, f"{received:.0f}")
check("and went", 3_000_000 <= sent <= 3_400_000, f"{sent:.0f}")
requests = {dict(labels)["method"]: value for labels, value in
            ask('nephos_requests_total{service="records",code="ok"}').items()}
check("five saves of records are counted", 5 <= requests.get("ModifyRecords", 0) <= 6,
      f"{requests.get('ModifyRecords', 0):.0f}")
check("and the query", requests.get("QueryRecords", 0) >= 1, f"{requests.get('QueryRecords', 0):.0f}")
saved = list(ask('nephos_feed_position{service="records"}').values())[0]
told = by("service", ask('nephos_follower_position{followed="records"}'))["notifications"]
check("notifications have followed records to the end", 5 <= told == saved, f"{told:.0f} of {saved:.0f}")
position = list(ask('nephos_feed_position{service="keyvalue"}').values())[0]
followed = by("service", ask('nephos_follower_position{followed="keyvalue"}'))["notifications"]
check("notifications have followed to the end", followed == position, f"{followed:.0f} of {position:.0f}")

# The alerts and the dashboard.
with urllib.request.urlopen(f"{server}/api/v1/rules", timeout=10) as answer:
    rules = [rule for group in json.load(answer)["data"]["groups"] for rule in group["rules"]]
check("every alert is evaluated", len(rules) >= 10 and all(rule["health"] == "ok" for rule in rules), len(rules))
firing = [rule["name"] for rule in rules if rule["state"] == "firing"]
check("none fires on a healthy deployment", not firing, ", ".join(firing))
with open(dashboard) as file:
    panels = json.load(file)["panels"]
for panel in panels:
    answers = [ask(target["expr"]) for target in panel["targets"]]
    check(f"panel {panel['title']}", all(answers) or panel["title"] == "Failed requests a second")
sys.exit(1 if failures else 0)
