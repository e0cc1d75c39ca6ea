"""Live changes: how soon another device's change is shown, and how soon a revoked browser knows."""

import os
import signal
import statistics
import time

from browser import Mouse
from cloud import wait_until
from files import local_tree

ROUNDS = 30


def run(stage):
    report, desk, cloud = stage.report, stage.desk, stage.cloud
    check, reader = report.check, stage.anna
    writer = stage.browser("writer")
    writer.go()
    writer.sign_in("anna")
    writer.is_signed_in()

    with check("A file and a key of another device appear, and a deletion, without a reload"):
        desk("docs", "mkdir", "Live")
        reader.files("Live")
        reader.js("window.isSame = true")
        desk.put("Live/new.txt", "hello")
        reader.row("new.txt")
        desk("docs", "mv", "Live/new.txt", "Live/renamed.txt")
        reader.row("renamed.txt")
        reader.no_row("new.txt")
        desk("docs", "rm", "Live/renamed.txt")
        reader.no_row("renamed.txt")
        reader.go("keys")
        desk("kv", "set", "live", "yes")
        reader.row("live")
        assert reader.js("return window.isSame"), "the page was loaded again"

    with check("A folder made in one browser is in the other one within 50 ms of the answer (median)"):
        from_start, from_answer = measure(stage, writer, reader)
        for name, times in (("from the start of the call", from_start), ("from its answer", from_answer)):
            p90 = sorted(times)[int(len(times) * 0.9) - 1]
            report.figure(f"{name}: median {statistics.median(times):.0f} ms, p90 {p90:.0f} ms, most {max(times):.0f} ms ({len(times)} times)")
        assert statistics.median(from_answer) < 50, f"the median is {statistics.median(from_answer):.0f} ms"

    with check("A burst of 300 files is shown whole"):
        top = local_tree(stage, "Burst", {f"{number}.txt": b"x" for number in range(300)})
        desk("docs", "mkdir", "Burst")
        reader.files("Burst")
        desk("docs", "put", "-r", top, "Burst", "--timeout", "60")
        desk("docs", "mv", "Burst/Burst", "Burst/inner")
        reader.row("inner")
        Mouse(reader).open("inner")
        reader.see("300 items", seconds=20)

    with check("A folder that another device deletes while it is open is said to be gone, and leads up", allows="api/files.*40[0-9]"):
        desk("docs", "mkdir", "-p", "Gone/inner")
        reader.files("Gone", "inner")
        desk("docs", "rm", "-r", "Gone")
        reader.element("document.querySelector('main [role=alert]')", what="a sentence that says so", seconds=5)

    with check("A browser that is revoked shows the sign-in with a sentence within a second", allows="40[13]"):
        reader.files()
        device = writer.call("session")["answer"]["device"]["id"]
        writer.files("Live")
        writer.js("""
            new MutationObserver(() => {
              if (document.querySelector('.sign-in .notice')) window.ended ??= performance.timeOrigin + performance.now();
            }).observe(document.body, { childList: true, subtree: true });""")
        start = time.time()
        desk("devices", "revoke", device)
        end = time.time()
        writer.is_signed_out()
        shown = writer.wait(lambda: writer.js("return window.ended"), "the sentence", 3) / 1000
        text = writer.js("return document.querySelector('.notice').innerText")
        report.figure(f"{(shown - start) * 1000:.0f} ms from the start of nephos devices revoke, {(shown - end) * 1000:.0f} ms from its end: {text}")
        assert shown - end < 1, f"{shown - end:.1f} s"
        assert writer.call("files.list", container="default")["status"] == 401
        assert reader.js("return !!document.querySelector('.shell')"), "another browser of the account was signed out as well"
    stage.close(writer)

    with check("Without the server the page says since when, and catches up by itself", allows="ERR_|/api/.*50[234]"):
        reader.files("Live")
        reader.cdp("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
        former = cloud.web_process()
        # Stopped, it closes no connection: as a network that is gone.
        os.kill(former, signal.SIGSTOP)
        try:
            start = time.monotonic()
            reader.see("Not connected since", seconds=20)
            report.figure(f"grey after {time.monotonic() - start:.1f} s")
        finally:
            os.kill(former, signal.SIGCONT)
            reader.cdp("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)
        desk.put("Live/while away.txt", "hello")
        reader.row("while away.txt", seconds=45)
        reader.wait(lambda: not reader.js("return document.querySelector('main.stale')"), "the page is live", 10)


def measure(stage, writer, reader):
    writer.files("Live")
    stage.desk("docs", "mkdir", "Live/Measured")
    folder = writer.call("files.list", container="default", path=["Live", "Measured"])["answer"]["folder"]["id"]
    reader.files("Live", "Measured")
    reader.js("""
        window.shown = {};
        new MutationObserver(() => {
          const now = performance.timeOrigin + performance.now();
          for (const row of document.querySelectorAll('.rows .row')) shown[testing.title(row)] ??= now;
        }).observe(document.body, { childList: true, subtree: true, characterData: true });""")
    for browser in (writer, reader):
        drift = browser.js("return Math.abs(performance.timeOrigin + performance.now() - Date.now())")
        assert drift < 3, f"a browser's clock is {drift:.0f} ms off"
    from_start, from_answer = [], []
    for number in range(ROUNDS):
        # Each one sorts before the former ones, so it is in view.
        name = f"measured {ROUNDS - number:02}"
        begun, took = writer.driver.execute_async_script("""
            const [folder, name, done] = arguments;
            const begun = performance.timeOrigin + performance.now();
            fetch('/api/files.makeFolder', { method: 'POST', headers: { 'Content-Type': 'application/json', 'X-Nephos': '1' },
              body: JSON.stringify({ container: 'default', folder, name }) })
              .then((r) => r.json()).then(() => done([begun, performance.timeOrigin + performance.now() - begun]));
            """, folder, name)
        shown = wait_until(lambda: reader.js("return shown[arguments[0]]", name), "the row")
        from_start.append(shown - begun)
        from_answer.append(shown - begun - took)
        # A page asks at most twice a second; a person's changes are further apart than that.
        time.sleep(0.7)
    return from_start, from_answer
