"""Files: acts by mouse and by keyboard, names, contents, uploads, downloads, long lists."""

import hashlib
import os
import random
import shutil
import struct
import time
import zlib

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from browser import NARROW, WIDE, Keyboard, Mouse
from cloud import wait_until


def local_file(stage, name, content):
    # A folder for each: a file that changes after it was chosen cannot be read by the page.
    stage.local_files = getattr(stage, "local_files", 0) + 1
    folder = f"{stage.work}/local/{stage.local_files}"
    os.makedirs(folder)
    with open(f"{folder}/{name}", "wb") as file:
        file.write(content)
    return f"{folder}/{name}"


def png(width, height, colour):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes(colour) * width for _ in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def run(stage):
    for hand, size, is_dark, label in (
        (Mouse, WIDE, False, "by mouse, wide, light"),
        (Keyboard, WIDE, True, "by keyboard, wide, dark"),
        (Mouse, NARROW, True, "by mouse, narrow, dark"),
        (Keyboard, NARROW, False, "by keyboard, narrow, light"),
    ):
        stage.anna.resize(size)
        stage.anna.theme(is_dark)
        act(stage, hand(stage.anna), label)
    stage.anna.resize(WIDE)
    stage.anna.theme(False)
    touch(stage)
    names(stage)
    contents(stage)
    uploads(stage)
    downloads(stage)
    long_list(stage)


def act(stage, hand, label):
    report, desk, browser = stage.report, stage.desk, stage.anna
    top = label.split(",")[0] + label.split(",")[1]

    def check(name, **options):
        return report.check(f"{name} ({label})", **options)

    def has(folder, name):
        wait_until(lambda: name in desk.names(folder), f"the other device has {folder}/{name}")

    with check("A new folder is made and opened, and another device has it"):
        browser.files()
        hand.act("New folder")
        hand.write("Name", top)
        hand.confirm("Make folder")
        has("", top)
        hand.open(top)
        browser.heading(top)
    with check("A folder whose name is taken is refused with a sentence, and the name can be corrected",
               allows="files.makeFolder.*40[59]"):
        desk("docs", "mkdir", f"{top}/Taken")
        browser.row("Taken")
        hand.act("New folder")
        hand.write("Name", "Taken")
        hand.press(browser.button("Make folder"))
        assert browser.element("document.querySelector('dialog [role=alert]')").text.endswith(".")
        hand.write("Name", "Target")
        hand.confirm("Make folder")
        has(top, "Target")
    with check("A small file is uploaded"):
        browser.choose_files(local_file(stage, "note.txt", b"first"))
        browser.row("note.txt")
        assert desk.cat(f"{top}/note.txt") == b"first"
    with check("A file is renamed, and the name without its extension is selected first"):
        hand.select("note.txt")
        hand.act("Rename")
        field = browser.field("Name")
        browser.wait(lambda: browser.js("return [arguments[0].selectionStart, arguments[0].selectionEnd]", field) == [0, 4], "the selection")
        hand.write("Name", "letter.txt")
        hand.confirm("Rename")
        browser.row("letter.txt")
        browser.no_row("note.txt")
        has(top, "letter.txt")
    with check("A copy in the same folder gets a number", allows="files.copy.*40[59]"):
        hand.select("letter.txt")
        hand.act("Copy")
        hand.confirm("Copy here")
        browser.row("letter 2.txt")
        has(top, "letter 2.txt")
    with check("A file is moved into another folder, and the move is undone"):
        hand.select("letter 2.txt")
        hand.act("Move")
        hand.press(browser.button("Target"))
        browser.wait(lambda: browser.js("return testing.all('[aria-current=true]')[0]?.textContent") == "Target", "the folder is open")
        hand.confirm("Move here")
        browser.no_row("letter 2.txt")
        has(f"{top}/Target", "letter 2.txt")
        browser.see("“letter 2.txt” moved to “Target”")
        hand.undo()
        browser.row("letter 2.txt")
        has(top, "letter 2.txt")
    with check("A file is deleted, and the deletion is undone"):
        hand.select("letter 2.txt")
        hand.act("Delete")
        browser.no_row("letter 2.txt")
        wait_until(lambda: "letter 2.txt" not in desk.names(top), "the other device has deleted it")
        browser.see("“letter 2.txt” moved to the trash")
        hand.undo()
        browser.row("letter 2.txt")
        has(top, "letter 2.txt")
    with check("A former version is restored"):
        desk("docs", "get", f"{top}/letter.txt", f"{stage.work}/letter.txt", "--overwrite")
        desk.put(f"{top}/letter.txt", "second, longer", "--overwrite")
        wait_until(lambda: desk.cat(f"{top}/letter.txt") == b"second, longer", "the new version")
        hand.clear()
        hand.select("letter.txt")
        hand.act("Versions")
        browser.wait(lambda: browser.js("return testing.all('dialog tbody tr').length") == 2, "two versions")
        button = browser.js("return testing.all('dialog tbody button').find((b) => b.textContent === 'Restore')")
        hand.press(button)
        browser.see("is the current version again")
        assert desk.cat(f"{top}/letter.txt") == b"first"
        hand.confirm("Close")
    with check("A text is shown, and Escape closes the dialog"):
        hand.open("letter.txt")
        browser.wait(lambda: browser.js("return document.querySelector('dialog pre')?.textContent") == "first", "the text")
        hand.keys(Keys.ESCAPE)
        browser.no_dialog()
    with check("A search finds a file in another folder and opens its details"):
        hand.clear()
        hand.write("Search all files", "letter 2")
        hand.keys(Keys.ENTER)
        browser.heading("Search for “letter 2”")
        hand.open("letter 2.txt")
        browser.element("document.querySelector('dialog[open]')")
        browser.see(f"Documents / {top}")
        hand.confirm("Close")
        hand.press(browser.button("Close search"))
        browser.heading("Documents")
    with check("Several files are selected, and deleted together"):
        browser.files(top)
        browser.row("letter 2.txt")
        if isinstance(hand, Mouse):
            for name in ("letter.txt", "letter 2.txt"):
                hand.press(browser.row(name).find_element(By.CSS_SELECTOR, ".check"))
        else:
            hand.go_to("letter.txt")
            hand.combination(Keys.SHIFT, Keys.ARROW_UP)
        browser.see("2 items selected")
        hand.act("Delete")
        browser.see("2 items moved to the trash")
        wait_until(lambda: desk.names(top) == ["Taken", "Target"], "the other device has deleted both")
    with check("The trail leads up again"):
        hand.press(browser.button("Documents"))
        browser.heading("Documents")
        browser.row(top)
        browser.fits()


def touch(stage):
    browser, desk = stage.anna, stage.desk
    with stage.report.check("A double click on a narrow page opens the row that was clicked"):
        desk("docs", "mkdir", "-p", "Clicked/one", "Clicked/two", "Clicked/three")
        browser.resize(NARROW)
        browser.files("Clicked")
        Mouse(browser).double_click("three")
        browser.wait(lambda: browser.js("return testing.all('h1')[0].textContent") == "three", "the folder", 3)
    browser.resize(WIDE)
    with stage.report.check("A finger's tap opens a folder"):
        desk("docs", "mkdir", "Tapped")
        browser.resize(NARROW)
        browser.files()
        row = browser.row("Tapped")
        browser.js("arguments[0].scrollIntoView({block: 'center'})", row)
        box = browser.js("const {x, y, height} = arguments[0].getBoundingClientRect(); return {x: x + 100, y: y + height / 2}", row)
        browser.cdp("Emulation.setTouchEmulationEnabled", enabled=True)
        browser.cdp("Input.dispatchTouchEvent", type="touchStart", touchPoints=[box])
        browser.cdp("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        browser.heading("Tapped")
    browser.cdp("Emulation.setTouchEmulationEnabled", enabled=False)
    browser.resize(WIDE)


NAMES = [
    "<script>window.hurt=1<script>", "<img src=x onerror=window.hurt=1>", "\"quoted\" & 'single' `tick`", "balloon 🎈 ünï 名前",
    "two blanks at the end  ", "%2e%2e%2f percent #hash?query", "javascript:alert(1)", "a" * 200, "‮right to left", "{{7*7}}${7*7}",
]


def names(stage):
    browser, desk, check = stage.anna, stage.desk, stage.report.check
    mouse = Mouse(browser)
    with check("Strange names are shown as they are, and run nothing"):
        desk("docs", "mkdir", "-p", *[f"Names/{name}" for name in NAMES])
        browser.files("Names")
        for name in NAMES:
            browser.row(name)
        browser.is_unhurt()
        browser.fits()
    for name in NAMES:
        with check(f"A folder of this name opens by its address, and takes a file: {name[:40]}"):
            browser.files("Names")
            mouse.open(name)
            browser.wait(lambda: browser.js("return document.querySelector('h1[aria-current]')?.textContent") == name, "the folder's name")
            browser.reload()
            browser.wait(lambda: browser.js("return document.querySelector('h1[aria-current]')?.textContent") == name, "the folder after a reload")
            browser.element("document.querySelector('.empty')")
            browser.choose_files(local_file(stage, "inside.txt", b"inside"))
            browser.row("inside.txt")
            assert desk.cat(f"Names/{name}/inside.txt") == b"inside"
            browser.is_unhurt()
    with check("Strange names are given to new folders and by renaming, and are kept as they are"):
        desk("docs", "mkdir", "-p", "Given/first")
        browser.files("Given")
        for name in NAMES[:8]:
            mouse.clear()
            mouse.act("New folder")
            mouse.write("Name", name)
            mouse.confirm("Make folder")
            browser.row(name)
        given = sorted(desk.names("Given"))
        assert given == sorted(["first", *NAMES[:8]]), f"the other device has {given}"
        browser.is_unhurt()
    with check("Names that no folder can have are refused with a sentence", allows="makeFolder.*40"):
        for name in ("a/b", "..", "n" * 300):
            mouse.act("New folder")
            field = browser.field("Name")
            browser.js("arguments[0].removeAttribute('maxlength')", field)
            mouse.write("Name", name)
            mouse.press(browser.button("Make folder"))
            assert browser.element("document.querySelector('dialog [role=alert]')", what=f"a refusal of {name[:10]}").text.endswith(".")
            mouse.confirm("Cancel")


HURT = "window.hurt = 1; alert(1); document.title = 'hurt'; fetch('/api/files.makeFolder')"
HOSTILE = {
    "page.html": f"<!doctype html><script>{HURT}</script><img src=x onerror='{HURT}'>",
    "page.xhtml": f"<html xmlns='http://www.w3.org/1999/xhtml'><script>{HURT}</script></html>",
    "drawing.svg": f"<svg xmlns='http://www.w3.org/2000/svg' onload=\"{HURT}\"><script>{HURT}</script></svg>",
    "picture.png": f"<html><script>{HURT}</script></html>",
    "paper.pdf": f"<html><script>{HURT}</script></html>",
    "script.js": HURT,
    "nothing": f"<html><script>{HURT}</script></html>",
}


def contents(stage):
    browser, desk, check = stage.anna, stage.desk, stage.report.check
    mouse = Mouse(browser)
    with check("A picture is shown"):
        desk("docs", "mkdir", "Pictures")
        desk.put("Pictures/red.png", png(60, 40, (200, 0, 0)))
        browser.files("Pictures")
        mouse.open("red.png")
        browser.wait(lambda: browser.js("return document.querySelector('dialog img')?.naturalWidth") == 60, "the picture")
        mouse.confirm("Close")
    with check("A broken picture and an empty file are said to be so"):
        desk.put("Pictures/broken.png", b"\x89PNG\r\n\x1a\n broken")
        desk.put("Pictures/empty.txt", b"")
        mouse.open("broken.png")
        browser.see("The picture cannot be shown.")
        mouse.confirm("Close")
        mouse.open("empty.txt")
        browser.wait(lambda: browser.js("return document.querySelector('dialog pre')?.textContent") == "", "an empty text")
        mouse.confirm("Close")
    with check("The first part of a long text is shown"):
        desk.put("Pictures/long.txt", b"0123456789abcde\n" * 40_000)
        mouse.open("long.txt")
        browser.see("The first 262.1 kB are shown.")
        assert browser.js("return document.querySelector('dialog pre').textContent.length") == 256 * 1024
        mouse.confirm("Close")
    desk("docs", "mkdir", "Hostile")
    for name, content in HOSTILE.items():
        with check(f"A script in {name} never runs, neither in the page nor at its own address"):
            desk.put(f"Hostile/{name}", content)
            browser.files("Hostile")
            mouse.open(name)
            browser.wait(lambda: browser.js("return document.querySelector('dialog .preview').firstElementChild?.textContent !== 'Loading'"), "the preview")
            browser.is_unhurt()
            address = browser.js("return new URLSearchParams({ container: 'default', item: arguments[0] }).toString()",
                                 browser.js("return document.querySelector('.row.active').id.replace('entry-', '')"))
            headers = browser.driver.execute_async_script(
                "const done = arguments[1]; fetch(arguments[0]).then((r) => done([r.status, Object.fromEntries(r.headers)]))",
                f"/api/content?{address}")
            assert headers[0] == 200, f"status {headers[0]}"
            headers = headers[1]
            assert headers.get("content-disposition", "").startswith("attachment"), headers
            assert headers.get("x-content-type-options") == "nosniff", headers
            mouse.confirm("Close")
            # As a person who opens the address, and as a page that shows it in a frame.
            browser.js("window.open(arguments[0], '_self')", f"/api/content?{address}")
            assert browser.downloaded(name) == content.encode()
            browser.is_unhurt()


def uploads(stage):
    browser, desk, report = stage.anna, stage.desk, stage.report
    check, mouse = report.check, Mouse(browser)
    large = random.Random(1).randbytes(30_000_000)
    path = local_file(stage, "film.bin", large)
    desk("docs", "mkdir", "Uploads")

    def digest_there(name):
        target = f"{stage.work}/got.bin"
        desk("docs", "get", f"Uploads/{name}", target, "--overwrite", "--timeout", "60")
        with open(target, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def uploaded(name, seconds=10):
        """The server has said so. Until then the row is pending."""
        browser.row(name, seconds)
        browser.wait(lambda: "to do" not in browser.text() and "Pending" not in browser.row(name).text, f"{name} is uploaded", seconds)

    def pieces():
        return browser.js("return performance.getEntriesByType('resource').filter((one) => one.name.includes('/api/upload?')).length")

    with check("A file of 30 MB travels in pieces, and another device has its bytes"):
        browser.files("Uploads")
        browser.js("performance.clearResourceTimings()")
        start = time.monotonic()
        browser.choose_files(path)
        uploaded("film.bin", 60)
        report.figure(f"30 MB in {time.monotonic() - start:.1f} s, {pieces()} pieces")
        assert pieces() == 4
        assert digest_there("film.bin") == hashlib.sha256(large).hexdigest()
    with check("The same name again: skip, keep both, replace"):
        browser.choose_files(local_file(stage, "same.txt", b"one"))
        browser.row("same.txt")
        for choice, content in (("Skip", b"two"), ("Keep both", b"three"), ("Replace", b"four")):
            browser.choose_files(local_file(stage, "same.txt", content))
            mouse.confirm(choice)
        uploaded("same 2.txt")
        wait_until(lambda: desk.cat("Uploads/same.txt") == b"four", "the new content")
        assert desk.cat("Uploads/same 2.txt") == b"three"
        assert "same 3.txt" not in desk.names("Uploads")
        assert len(desk.json("docs", "versions", "Uploads/same.txt")) == 2
    with check("A file that another device made meanwhile is not overwritten unseen", allows="upload.finish.*40[59]"):
        throttle(browser, 1_000_000)
        browser.choose_files(local_file(stage, "meanwhile.bin", large[:3_000_000]))
        browser.see("to do")
        desk.put("Uploads/meanwhile.bin", "theirs")
        browser.see("This name exists", seconds=20)
        throttle(browser)
        mouse.confirm("Keep both")
        uploaded("meanwhile 2.bin")
        assert desk.cat("Uploads/meanwhile.bin") == b"theirs"
        assert desk.cat("Uploads/meanwhile 2.bin") == large[:3_000_000]
    throttle(browser)
    with check("An upload goes on after nephos-web was killed, without an error, with the right bytes", allows="ERR_|/api/.*50[234]"):
        browser.js("""
            window.failures = [];
            new MutationObserver(() => {
              for (const one of document.querySelectorAll('.failure, [role=alert]')) failures.push(one.textContent);
            }).observe(document.body, { childList: true, subtree: true, characterData: true });""")
        throttle(browser, 6_000_000)
        browser.js("performance.clearResourceTimings()")
        path = local_file(stage, "killed.bin", large[::-1])
        browser.choose_files(path)
        browser.wait(lambda: browser.js("return document.querySelector('.uploads progress')?.value") > 9_000_000, "the second piece", 30)
        stage.cloud.kill_web()
        killed = time.monotonic()
        uploaded("killed.bin", 90)
        report.figure(f"{pieces()} pieces; finished {time.monotonic() - killed:.1f} s after the restart")
        assert digest_there("killed.bin") == hashlib.sha256(large[::-1]).hexdigest()
        failures = browser.js("return failures")
        assert not failures, failures
    throttle(browser)
    with check("After the kill the page is live again by itself", allows="ERR_"):
        browser.wait(lambda: browser.js("return !document.querySelector('main.stale')"), "the page is not grey", 30)
        desk.put("Uploads/after the kill.txt", "hello")
        browser.row("after the kill.txt", seconds=30)
    with check("An upload is paused, resumed and cancelled"):
        throttle(browser, 3_000_000)
        browser.choose_files(local_file(stage, "paused.bin", large[5:25_000_005]))
        mouse.press(browser.button("Pause paused.bin"))
        browser.see("paused")
        mouse.press(browser.button("Resume paused.bin"))
        throttle(browser)
        uploaded("paused.bin", 60)
        assert digest_there("paused.bin") == hashlib.sha256(large[5:25_000_005]).hexdigest()
        throttle(browser, 1_000_000)
        browser.choose_files(local_file(stage, "cancelled.bin", large[9:]))
        mouse.press(browser.button("Cancel cancelled.bin"))
        browser.wait(lambda: "to do" not in browser.text(), "the panel is empty")
    throttle(browser)
    with check("An upload that ended with the page goes on where it was, after a reload"):
        throttle(browser, 5_000_000)
        path = local_file(stage, "again.bin", large[7:])
        browser.choose_files(path)
        browser.wait(lambda: browser.js("return document.querySelector('.uploads progress')?.value") > 17_000_000, "the third piece", 30)
        # A page that uploads asks before it is left.
        browser.js("addEventListener('beforeunload', (event) => event.stopImmediatePropagation(), true)")
        browser.reload()
        throttle(browser)
        browser.heading("Uploads")
        browser.element("document.querySelector('.grid')")
        browser.choose_files(path)
        uploaded("again.bin", 60)
        report.figure(f"{pieces()} pieces after the reload")
        assert pieces() <= 2, "the upload began at the start again"
        assert digest_there("again.bin") == hashlib.sha256(large[7:]).hexdigest()
    with check("A folder is uploaded with its folders, and an empty file"):
        local_tree(stage, "Album", {"one.txt": b"1", "inner/two.txt": b"2", "inner/empty.txt": b"", "inner/deeper/three.txt": b"3"})
        browser.choose_files(f"{stage.work}/local/Album", selector=".choose-folder")
        browser.row("Album", seconds=20)
        browser.see("files uploaded")
        browser.wait(lambda: "to do" not in browser.text(), "all are uploaded", 20)
        assert desk.cat("Uploads/Album/inner/deeper/three.txt") == b"3"
        assert desk.cat("Uploads/Album/inner/empty.txt") == b""
    with check("Files are dropped into the folder"):
        path = local_file(stage, "dropped.txt", b"dropped")
        for kind in ("dragEnter", "dragOver", "drop"):
            browser.cdp("Input.dispatchDragEvent", type=kind, x=700, y=500, data={"items": [], "files": [path], "dragOperationsMask": 1})
        browser.row("dropped.txt")
        assert desk.cat("Uploads/dropped.txt") == b"dropped"


def local_tree(stage, name, tree):
    top = f"{stage.work}/local/{name}"
    shutil.rmtree(top, ignore_errors=True)
    for path, content in tree.items():
        os.makedirs(os.path.dirname(f"{top}/{path}"), exist_ok=True)
        with open(f"{top}/{path}", "wb") as file:
            file.write(content)
    return top


def throttle(browser, upload=-1):
    """Bytes in a second; -1: as fast as it goes."""
    browser.cdp("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=upload)


def downloads(stage):
    browser, desk, check = stage.anna, stage.desk, stage.report.check
    mouse = Mouse(browser)
    with check("A download has the bytes of the file, and its name"):
        content = random.Random(2).randbytes(12_000_000)
        desk("docs", "mkdir", "Downloads")
        desk.put("Downloads/balloon ü 🎈 'x'.bin", content)
        browser.files("Downloads")
        mouse.select("balloon ü 🎈 'x'.bin")
        mouse.act("Download")
        names = wait_until(lambda: [one for one in os.listdir(browser.downloads) if not one.endswith(".crdownload") and not one.startswith(".")], "the download", 20)
        assert browser.downloaded(names[0]) == content
        assert names[0].startswith("balloon ü 🎈"), names
    with check("Several files are downloaded together, and a former version"):
        for name in ("a.txt", "b.txt", "c.txt"):
            desk.put(f"Downloads/{name}", name)
            browser.row(name)
        mouse.clear()
        for name in ("a.txt", "b.txt", "c.txt"):
            mouse.press(browser.row(name).find_element(By.CSS_SELECTOR, ".check"))
        mouse.act("Download")
        for name in ("a.txt", "b.txt", "c.txt"):
            assert browser.downloaded(name) == name.encode()
        desk.put("Downloads/a.txt", "newer", "--overwrite")
        mouse.clear()
        mouse.open("a.txt")
        browser.wait(lambda: browser.js("return testing.all('dialog tbody tr').length") == 2, "two versions")
        mouse.press(browser.js("return testing.all('dialog tbody tr')[1].querySelector('button:last-child')"))
        assert browser.downloaded("a.txt") == b"a.txt"
        mouse.confirm("Close")


COUNT = 3000


def long_list(stage):
    browser, desk, report = stage.anna, stage.desk, stage.report
    check = report.check
    top = local_tree(stage, "Many", {f"file {number:04}.txt": b"%d" % number for number in range(COUNT)})
    desk("docs", "put", "-r", top, "Many", "--timeout", "120")
    for hand, label in ((Mouse(browser), "by wheel"), (Keyboard(browser), "by keyboard")):
        with check(f"A list of 3,000 files is scrolled to its end with fewer than 200 rows in the document ({label})"):
            browser.files()
            start = time.monotonic()
            browser.files("Many")
            browser.row("file 0000.txt")
            report.figure(f"first rows after {(time.monotonic() - start) * 1000:.0f} ms")
            most = 0

            def at_end():
                nonlocal most
                hand.to_end()
                rows = browser.js("return testing.rows()")
                most = max(most, len(rows))
                return f"file {COUNT - 1:04}.txt" in rows
            browser.wait(at_end, "the last file", 30)
            report.figure(f"at the end after {time.monotonic() - start:.1f} s; at most {most} rows in the document")
            assert most < 200
            browser.see("3,000 items")
    with check("A whole list is sorted, and a change of another device keeps the place"):
        mouse = Mouse(browser)
        browser.js("document.querySelector('.grid').scrollTop = 1500 * 38")
        browser.wait(lambda: browser.js("return testing.rows().length > 20"), "rows")
        first = browser.wait(lambda: browser.js("""
            const top = document.querySelector('.grid').getBoundingClientRect().top + 34;
            return testing.title([...document.querySelectorAll('.rows .row')].find((row) => row.getBoundingClientRect().top >= top))"""), "the first row")
        desk.put("Many/aaa.txt", "new")
        browser.see("3,001 items")
        again = browser.js("""
            const top = document.querySelector('.grid').getBoundingClientRect().top + 34;
            return testing.title([...document.querySelectorAll('.rows .row')].find((row) => row.getBoundingClientRect().top >= top))""")
        assert first == again, f"the list was at {first}, and is at {again}"
        mouse.press(browser.button("Name ↑"))
        browser.js("document.querySelector('.grid').scrollTop = 0")
        browser.wait(lambda: browser.js("return testing.rows()[0]") == f"file {COUNT - 1:04}.txt", "the order is turned")
        mouse.press(browser.button("Name ↓"))
    keyboard = Keyboard(browser)
    for letters, name in (("aa", "aaa.txt"), ("file 2345", "file 2345.txt")):
        with check(f"Typed letters go to the name that begins with them: {letters}"):
            keyboard.grid()
            # Letters that follow each other within 0.7 s are one word.
            time.sleep(0.8)
            keyboard.keys(letters)
            browser.wait(lambda: browser.js("return testing.title(document.querySelector('.row.active'))") == name, "the row", 2)
