"""The other pages: conflicts, trash, links, keys, devices, passwords, storage, activity, sync status, accessibility."""

import base64
import json
import os
import subprocess
import urllib.error
import urllib.request

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from browser import NARROW, WIDE, Keyboard, Mouse
from cloud import password, wait_until
from files import local_file, png


def run(stage):
    conflicts(stage)
    trash(stage)
    links(stage)
    keys(stage)
    records(stage)
    account(stage)
    figures(stage)
    accessibility(stage)
    change_password(stage)


def make_conflict(stage, name):
    """Two devices write the same file; one of them did not know of the other's version."""
    desk, phone = stage.desk, stage.phone
    path = f"Conflicts/{name}"
    desk("docs", "mkdir", "-p", "Conflicts")
    desk.put(path, "common")
    local = f"{stage.work}/{name}"
    phone("docs", "get", path, local, "--overwrite")
    desk.put(path, "from desk", "--overwrite")
    with open(local, "w") as file:
        file.write("from phone")
    phone("docs", "put", local, path, codes=(0, 6))
    wait_until(lambda: any(name in str(one) for one in desk.json("docs", "conflicts")), "the conflict")


def conflicts(stage):
    check, browser, desk = stage.report.check, stage.anna, stage.desk
    stage.phone = stage.cloud.device("phone", "anna")
    for hand, name in ((Mouse(browser), "mouse.txt"), (Keyboard(browser), "keyboard.txt")):
        with check(f"A conflict is shown, compared and decided ({name})"):
            browser.go("conflicts/default")
            browser.heading("Conflicts")
            make_conflict(stage, name)
            browser.line(name)
            hand.press(browser.button(f"Compare {name}"))
            browser.wait(lambda: {"from desk", "from phone"} == {one.text for one in browser.js("return testing.all('dialog pre')")}, "both contents")
            card = browser.js("return testing.all('dialog .card').find((one) => one.textContent.includes('from desk'))")
            hand.press(card.find_element(By.CSS_SELECTOR, ".primary"))
            browser.no_dialog()
            browser.no_line(name)
            wait_until(lambda: desk.cat(f"Conflicts/{name}") == b"from desk", "the chosen content")
            assert not desk.json("docs", "conflicts"), "another device still has the conflict"
    with check("A conflict has a mark in the list of files, and its details lead to the choice"):
        make_conflict(stage, "marked.txt")
        browser.files("Conflicts")
        browser.wait(lambda: "Conflict" in browser.row("marked.txt").text, "the mark")
        Mouse(browser).open("marked.txt")
        Mouse(browser).press(browser.button("Choose a version"))
        browser.heading("Conflicts")
        browser.line("marked.txt")


def trash(stage):
    check, browser, desk = stage.report.check, stage.anna, stage.desk
    desk("docs", "mkdir", "Thrown")
    for hand, name in ((Mouse(browser), "mouse"), (Keyboard(browser), "keyboard")):
        with check(f"Deleted files are listed, restored, and deleted for good (by {name})"):
            browser.go("trash/default")
            browser.heading("Trash")
            for file in (f"{name} back.txt", f"{name} gone.txt"):
                desk.put(f"Thrown/{file}", file)
                desk("docs", "rm", f"Thrown/{file}")
                browser.line(file)
            hand.press(browser.button(f"Restore {name} back.txt"))
            browser.no_line(f"{name} back.txt")
            wait_until(lambda: desk.cat(f"Thrown/{name} back.txt") == f"{name} back.txt".encode(), "the file is back")
            hand.press(browser.button(f"Delete for good {name} gone.txt"))
            browser.see("This cannot be undone.")
            hand.confirm("Delete for good")
            browser.no_line(f"{name} gone.txt")
            wait_until(lambda: f"{name} gone.txt" not in desk("docs", "trash"), "it is gone on the other device")


def links(stage):
    check, browser, desk, cloud = stage.report.check, stage.anna, stage.desk, stage.cloud
    mouse = Mouse(browser)
    desk("docs", "mkdir", "Shared")
    desk.put("Shared/offer.txt", "the offer")
    browser.files("Shared")

    def share(lifetime):
        """Gives the address, and the sentence above it."""
        mouse.clear()
        mouse.select("offer.txt")
        mouse.act("Share link")
        mouse.press(browser.field(lifetime))
        mouse.press(browser.button("Make link"))
        browser.wait(lambda: browser.js("return document.querySelector('dialog .address, dialog [role=alert]')"), "an answer")
        refusal = browser.js("return document.querySelector('dialog [role=alert]')?.innerText")
        if refusal:
            mouse.confirm("Cancel")
            raise AssertionError(f"{lifetime}: {refusal}")
        url = browser.js("return document.querySelector('dialog .address').innerText")
        text = browser.text()
        mouse.confirm("Done")
        return url, text

    for lifetime in ("After 1 day", "After 7 days", "After 30 days"):
        with check(f"A link is made that expires: {lifetime}", allows="files.publish.*50"):
            url, text = share(lifetime)
            assert "It expires on" in text, text
            with urllib.request.urlopen(url) as answer:
                assert answer.read() == b"the offer", url
                assert answer.headers["Content-Disposition"].startswith("attachment"), answer.headers
    with check("A link is listed, works without an account, and is removed"):
        for link in browser.call("files.links", container="default")["answer"]["links"]:
            browser.call("files.unpublish", container="default", link=link["id"])
        url = next(word for word in desk("docs", "publish", "Shared/offer.txt").split() if word.startswith("http"))
        with urllib.request.urlopen(url) as answer:
            assert answer.read() == b"the offer"
        browser.go("links/default")
        browser.line("offer.txt")
        browser.fits()
        mouse.press(browser.button("Remove offer.txt"))
        mouse.confirm("Remove")
        browser.no_line("offer.txt")
        try:
            urllib.request.urlopen(url)
            raise AssertionError("the removed link still works")
        except urllib.error.HTTPError as error:
            assert error.code in (404, 410), error.code


VALUES = [
    ("String", "a text of people: <b>ü 🎈</b>", "string"), ("Integer", "-9223372036854775808", "integer"), ("Real", "2.5", "real"),
    ("Boolean", "false", "boolean"), ("Date", "2026-01-31T12:00:00Z", "date"), ("JSON array or object", '{"a":[1,2.5,true,"x"]}', "dictionary"),
    ("JSON array or object", "[1,2,3]", "array"),
]


def keys(stage):
    check, browser, desk = stage.report.check, stage.anna, stage.desk
    for hand, size, label in ((Mouse(browser), WIDE, "mouse"), (Keyboard(browser), NARROW, "keyboard")):
        browser.resize(size)
        browser.go("keys")
        browser.heading("Key-values")
        for editor, value, kind in VALUES:
            name = f"{label} {kind}"
            with check(f"A key of the type {kind} is added, and another device reads it (by {label})"):
                hand.act("Add key")
                hand.write("Name", name)
                hand.pick("Type", editor)
                if editor == "Boolean":
                    hand.pick("Value", value)
                else:
                    hand.write("Value", value)
                hand.confirm("Save")
                browser.row(name)
                there = wait_until(lambda: desk.json("kv", "get", name), "the key")
                kinds = {"array": "json", "dictionary": "json"}
                assert there["type"] in (kind, kinds.get(kind)), there
                assert same(there["value"], value, kind), f"{there['value']!r} and not {value!r}"
        with check(f"A wrong value is refused, and the right one is saved (by {label})"):
            hand.act("Add key")
            hand.write("Name", f"{label} wrong")
            hand.pick("Type", "Integer")
            hand.write("Value", "9223372036854775808")
            hand.press(browser.button("Save"))
            browser.see("The integer is outside of 64 bits.")
            hand.write("Value", "9223372036854775807")
            hand.confirm("Save")
            browser.row(f"{label} wrong")
            assert desk("kv", "get", f"{label} wrong").strip() == "9223372036854775807"
        with check(f"A key is changed, has a history, and gets a former value again (by {label})"):
            name = f"{label} string"
            hand.open(name)
            hand.write("Value", "second")
            hand.confirm("Save")
            wait_until(lambda: desk("kv", "get", name).strip() == "second", "the new value")
            desk("kv", "set", name, "third")
            wait_until(lambda: browser.call("keys.get", key=name)["answer"]["key"]["value"] == "third", "the third value")
            hand.select(name)
            hand.act("History")
            row = browser.element("testing.line('second')", what="the former value")
            hand.press(row.find_element(By.CSS_SELECTOR, "button"))
            browser.no_dialog()
            wait_until(lambda: desk("kv", "get", name).strip() == "second", "the former value")
        with check(f"A key's history names the device that wrote each value (by {label})"):
            hand.select(name)
            hand.act("History")
            row = browser.element("testing.line('third')", what="the value of the other device")
            # Before a judgement, so that a failure leaves no dialog.
            text = row.text
            hand.confirm("Close")
            assert "desk" in text, text
        with check(f"A key is deleted on all devices (by {label})"):
            name = f"{label} real"
            hand.clear()
            hand.select(name)
            hand.act("Delete")
            hand.confirm("Delete")
            browser.no_row(name)
            wait_until(lambda: name not in desk.json("kv", "list"), "it is deleted on the other device")
    browser.resize(WIDE)
    with check("Data can be seen, and not be edited"):
        desk("kv", "set", "picture", "AAEC", "--type", "data")
        Mouse(browser).open("picture")
        browser.see("Apps can change it; this page cannot.")
        text = browser.text()
        Mouse(browser).press(browser.js("return testing.named('dialog .primary', 'Close')"))
        browser.no_dialog()
        assert "(3 B)" in text, text
    with check("The list of keys has the time of each key's last change"):
        desk("kv", "set", "dated", "1")
        browser.wait(lambda: browser.row("dated").find_element(By.CSS_SELECTOR, ".modified").text, "the time", 2)
    with check("A filter shows the keys whose name has a text"):
        Mouse(browser).write("Filter by name", "picture")
        browser.see("1 key")
        assert browser.js("return testing.rows()") == ["picture"]
        browser.js("location.reload()")
        browser.row("mouse string")


def records(stage):
    check, browser, desk = stage.report.check, stage.anna, stage.desk
    for hand, size, label in ((Mouse(browser), WIDE, "mouse"), (Keyboard(browser), NARROW, "keyboard")):
        browser.resize(size)
        with check(f"A record of another device appears without a reload, and a predicate finds it (by {label})"):
            browser.go("records/default")
            browser.heading("Records")
            desk("records", "save", label, "--type", "Person", f"name={label}", "age=7")
            desk("records", "save", f"{label} 2", "--type", "Person", f"name={label}", "age=9")
            browser.row(label)
            browser.row(f"{label} 2")
            hand.write("Predicate", f"age > 8 AND name == '{label}'")
            hand.press(browser.button("Search"))
            browser.no_row(label)
            browser.row(f"{label} 2")
        with check(f"The place of a wrong predicate's error is shown (by {label})", allows="records.query.*400"):
            hand.write("Predicate", "age > AND")
            hand.press(browser.button("Search"))
            browser.element("document.querySelector('main mark')")
            browser.element("document.querySelector('main [role=alert]')")
            hand.write("Predicate", "")
            hand.press(browser.button("Search"))
            browser.row(label)
    browser.resize(WIDE)


def same(there, value, kind):
    if kind in ("array", "dictionary"):
        return (json.loads(there) if isinstance(there, str) else there) == json.loads(value)
    if kind == "boolean":
        return str(there).lower() == value
    if kind == "date":
        return there["$date"].replace(".000", "") == value
    if kind == "real":
        return float(there) == float(value)
    return str(there) == value


def dav(stage, secret):
    request = urllib.request.Request(
        f"{stage.cloud.address}/dav/default/", method="PROPFIND",
        headers={"Depth": "1", "Authorization": "Basic " + base64.b64encode(f"anna:{secret}".encode()).decode()})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def account(stage):
    check, browser, desk = stage.report.check, stage.anna, stage.desk
    for hand, size, label in ((Mouse(browser), WIDE, "mouse"), (Keyboard(browser), NARROW, "keyboard")):
        browser.resize(size)
        name = f"tablet of the {label}"
        with check(f"A device that has signed in is listed when the page is opened (by {label})"):
            tablet = stage.cloud.device(label, "anna")
            browser.go("devices")
            browser.reload()
            browser.heading("Devices")
            browser.line(label)
        with check(f"A device is renamed, and signed out (by {label})"):
            browser.line(label)
            hand.press(browser.button(f"Rename {label}"))
            hand.write("Name", name)
            hand.confirm("Rename")
            browser.line(name)
            assert name in desk("devices")
            hand.press(browser.button(f"Sign out {name}"))
            hand.confirm("Sign out")
            browser.wait(lambda: "Signed out" in browser.line(name).text, "the mark")
            wait_until(lambda: failed(tablet), "the device can do nothing any more")
        with check(f"An app password is made, shown once, works, and is revoked (by {label})"):
            hand.press(browser.button("New app password"))
            hand.write("Name", f"program {label}")
            hand.press(browser.button("Create"))
            secret = browser.element("document.querySelector('dialog .secret')", what="the password").text
            assert f"{stage.cloud.address}/dav/default/" in browser.text()
            assert dav(stage, secret) == 207
            hand.confirm("Done")
            browser.line(f"program {label}")
            browser.reload()
            browser.line(f"program {label}")
            assert secret not in browser.driver.page_source, "the password is still in the page"
            hand.press(browser.button(f"Revoke program {label}"))
            hand.confirm("Revoke")
            browser.wait(lambda: not browser.js("return testing.named('button', arguments[0])", f"Revoke program {label}"), "it is not listed")
            wait_until(lambda: dav(stage, secret) == 401, "the program is refused")
    browser.resize(WIDE)


def failed(device):
    try:
        device("docs", "ls", "--fresh")
        return False
    except AssertionError:
        return True


def figures(stage):
    check, browser, desk = stage.report.check, stage.anna, stage.desk
    with check("The storage page has the plan and the figures of nephos storage"):
        browser.go("storage")
        browser.heading("Storage")
        browser.see("used")
        shown = browser.call("account.storage")["answer"]
        there = desk.json("storage")
        stage.report.figure(f"{shown['usedBytes']} of {shown['planBytes']} bytes used")
        assert str(shown["usedBytes"]) in json.dumps(there), f"{shown['usedBytes']} is not in {json.dumps(there)[:300]}"
        assert "Files" in browser.text() and "Key-values" in browser.text()
    with check("The activity page says what happened, newest first, and loads more"):
        browser.go("activity")
        browser.heading("Activity")
        browser.line("App password program keyboard revoked")
        browser.line("renamed to tablet of the mouse")
        times = [entry["time"] for entry in browser.call("account.activity")["answer"]["entries"]]
        assert times == sorted(times, reverse=True), "not newest first"
        before = browser.js("return document.querySelectorAll('tbody tr').length")
        if browser.js("return testing.named('button', 'Load more')"):
            Mouse(browser).press(browser.button("Load more"))
            browser.wait(lambda: browser.js("return document.querySelectorAll('tbody tr').length") > before, "more entries")
        assert "undefined" not in browser.text() and "[object" not in browser.text(), browser.text()
    with check("The sync status says that everything is in sync"):
        browser.go("waiting")
        browser.heading("Sync status")
        browser.see("Everything is in sync.", seconds=20)
    with check("A page that does not exist says so"):
        browser.go("nothing/here")
        browser.heading("This page does not exist")
    with check("A folder that does not exist says so, and leads to the files", allows="files.list.*40[0-9]"):
        browser.go("files/default/no%20such%20folder")
        browser.element("document.querySelector('main [role=alert]')")
        Mouse(browser).press(browser.button("Go to Documents"))
        browser.heading("Documents")


def views(stage):
    """Each page and dialog: its name, how to open it, and what shows that it is there."""
    browser = stage.anna
    mouse = Mouse(browser)

    def page(place, heading):
        def show():
            browser.go(place)
            browser.heading(heading)
            browser.wait(lambda: "Loading" not in browser.js("return document.querySelector('main').innerText"), "the data")
        return show

    def over(base, act):
        def show():
            base()
            act()
            browser.element("document.querySelector('dialog[open]')")
            browser.wait(lambda: "Loading" not in browser.text(), "the data of the dialog")
        return show

    def with_row(name, act):
        def run():
            mouse.clear()
            mouse.select(name)
            mouse.act(act)
        return run

    def details(name):
        def run():
            mouse.clear()
            mouse.open(name)
        return run

    def menu():
        looks()
        if browser.size == NARROW:
            mouse.clear()
            mouse.select("text.txt")
            mouse.press(browser.button("More"))
        else:
            browser.row("text.txt")

    looks = page("files/default/Looks", "Looks")
    records = page("records/default", "Records")
    keys_page, devices = page("keys", "Key-values"), page("devices", "Devices")
    trash_page, conflicts_page = page("trash/default", "Trash"), page("conflicts/default", "Conflicts")
    yield "files", looks
    yield "an empty folder", page("files/default/Looks/empty", "empty")
    yield "selected files", lambda: (looks(), mouse.clear(), mouse.select("text.txt"))
    yield "the menu of actions", menu
    yield "search", page("search/default/text", "Search for “text”")
    yield "trash", trash_page
    yield "conflicts", conflicts_page
    yield "links", page("links/default", "Links")
    yield "keys", keys_page
    yield "records", records
    yield "devices", devices
    yield "storage", page("storage", "Storage")
    yield "activity", page("activity", "Activity")
    yield "sync status", page("waiting", "Sync status")
    yield "no such page", page("nothing", "This page does not exist")
    yield "new folder", over(looks, lambda: (mouse.clear(), mouse.act("New folder")))
    yield "details of a text", over(looks, details("text.txt"))
    yield "details of a picture", over(looks, details("picture.png"))
    yield "move", over(looks, with_row("text.txt", "Move"))
    yield "share", over(looks, with_row("text.txt", "Share link"))
    yield "compare versions", over(conflicts_page, lambda: mouse.press(browser.button("Compare marked.txt")))
    yield "delete for good", over(trash_page, lambda: mouse.press(browser.button("Delete for good looks.txt")))
    yield "add a key", over(keys_page, lambda: mouse.act("Add key"))
    yield "history of a key", over(keys_page, with_row("mouse string", "History"))
    yield "a record", over(records, lambda: (mouse.select("a shopping list"), mouse.act("Open")))
    yield "add a record", over(records, lambda: (mouse.clear(), mouse.act("Add record")))
    yield "how a query is answered", over(records, lambda: mouse.press(browser.button("Explain")))
    yield "rename a device", over(devices, lambda: mouse.press(browser.button("Rename desk")))
    yield "new app password", over(devices, lambda: mouse.press(browser.button("New app password")))
    yield "change password", over(devices, lambda: mouse.press(browser.button("Change password")))


def accessibility(stage):
    check, browser, desk = stage.report.check, stage.anna, stage.desk
    desk("docs", "mkdir", "-p", "Looks/empty", "Looks/" + "a long name of a folder " * 8)
    desk.put("Looks/text.txt", "text " * 500)
    desk.put("Looks/picture.png", png(80, 60, (0, 90, 160)))
    desk.put("Looks/" + "unbreakable" * 15 + ".txt", "x")
    desk.put("Looks/looks.txt", "x")
    desk("docs", "rm", "Looks/looks.txt")
    desk("docs", "publish", "Looks/text.txt")
    desk("kv", "set", "long", "v" * 3000)
    for number in range(30):
        desk("records", "save", "a shopping list" if number == 0 else f"note {number}", "--type", "Note", f"title=Title {number} " + "long " * 30, f"count={number}")
    for size, is_dark, label in ((WIDE, False, "wide, light"), (WIDE, True, "wide, dark"), (NARROW, False, "narrow, light"), (NARROW, True, "narrow, dark")):
        browser.resize(size)
        browser.theme(is_dark)
        for name, show in views(stage):
            with check(f"Accessible, and not wider than the page: {name} ({label})"):
                show()
                browser.is_accessible(stage.axe)
                browser.fits()
            if browser.js("return !!document.querySelector('dialog[open], [role=menu]')"):
                Mouse(browser).keys(Keys.ESCAPE)
                browser.no_dialog()
    with check("Accessible: the panel of uploads, a failure, and messages at the edge of the page (both sizes, dark)"):
        browser.files("Looks")
        browser.cdp("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=100_000)
        browser.choose_files(local_file(stage, "slow.bin", os.urandom(3_000_000)), local_file(stage, "slow 2.bin", os.urandom(3_000_000)))
        browser.see("2 uploads to do")
        for size in (NARROW, WIDE):
            browser.resize(size)
            browser.is_accessible(stage.axe)
            browser.fits()
        for name in ("slow.bin", "slow 2.bin"):
            Mouse(browser).press(browser.button(f"Cancel {name}"))
    browser.cdp("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    browser.resize(WIDE)
    browser.theme(False)
    stranger = stage.browser("stranger")
    for size, is_dark in ((WIDE, False), (WIDE, True), (NARROW, False), (NARROW, True)):
        with check(f"Accessible, and not wider than the page: the sign-in, also with a refusal ({size[0]} wide, {'dark' if is_dark else 'light'})", allows="sign-in.*4"):
            stranger.resize(size)
            stranger.theme(is_dark)
            stranger.go()
            stranger.is_signed_out()
            stranger.is_accessible(stage.axe)
            stranger.sign_in("nobody at all", "wrong")
            stranger.element("document.querySelector('[role=alert]')")
            stranger.is_accessible(stage.axe)
            stranger.fits()
            stranger.reload()
    stage.close(stranger)


def change_password(stage):
    check, browser = stage.report.check, stage.anna
    mouse, new = Mouse(browser), "another long horse"

    def fill(old, first, second):
        mouse.write("Current password", old)
        mouse.write("New password", first)
        mouse.write("New password, again", second)
        mouse.press(browser.js("return testing.named('dialog form button.primary', 'Change password')"))
    with check("A wrong current password, and two that differ, are refused", allows="changePassword.*40"):
        browser.go("devices")
        mouse.press(browser.button("Change password"))
        fill(password, new, new + "x")
        browser.see("The two new passwords differ.")
        fill("wrong horse", new, new)
        browser.wait(lambda: "differ" not in browser.text() and browser.js("return document.querySelector('dialog [role=alert]')"), "the refusal")
    with check("The password is changed, and other devices are signed out"):
        mouse.tick("Sign out all other devices, and revoke all app passwords")
        fill(password, new, new)
        browser.no_dialog(20)
        browser.see("The password is changed.")
        wait_until(lambda: failed(stage.phone), "the phone is signed out")
    with check("The new password signs in, and the former one does not", allows="sign-in.*4"):
        other = stage.browser("other")
        other.go()
        other.sign_in("anna")
        other.element("document.querySelector('[role=alert]')")
        other.sign_in("anna", new)
        other.is_signed_in()
        assert browser.call("session")["status"] == 200, "this browser was signed out as well"
    stage.close(other)
