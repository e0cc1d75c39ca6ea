"""The pictures in docs/pictures."""

import os
import random

from browser import NARROW, WIDE, Mouse
from files import local_file, png


def run(stage):
    cloud = stage.cloud
    cloud.create_account("anna")
    laptop = cloud.device("laptop", "anna")
    rng = random.Random(3)
    laptop("docs", "mkdir", "-p", "Garden/Invoices", "Garden/Letters", "Garden/Photos", "Garden/Plans")
    for name, size in (
        ("Beds and paths.pdf", 1_284_000), ("Budget 2026.csv", 18_400), ("Compost.md", 3_120), ("Fence.jpg", 2_410_000),
        ("Greenhouse offer.pdf", 412_000), ("Pruning calendar.ics", 9_870), ("Seed list.txt", 2_260), ("Soil samples.json", 51_300),
    ):
        path = local_file(stage, name, rng.randbytes(size))
        changed = 1_772_000_000 + rng.randrange(60 * 86_400)
        os.utime(path, (changed, changed))
        laptop("docs", "put", path, "Garden")
    laptop.put("Garden/Photos/pond.png", png(600, 400, (70, 130, 90)))
    browser = stage.browser("pictures")
    browser.go()
    browser.sign_in("anna")
    browser.is_signed_in()
    browser.files("Garden")
    browser.row("Soil samples.json")
    browser.cdp("Emulation.setScrollbarsHidden", hidden=True)
    os.makedirs("docs/pictures", exist_ok=True)
    Mouse(browser).select("Compost.md")
    for name, size, is_dark in (("console-files", WIDE, False), ("console-files-dark", WIDE, True), ("console-phone", NARROW, False)):
        browser.resize(size)
        browser.theme(is_dark)
        if size == NARROW:
            Mouse(browser).clear()
            browser.js("document.activeElement.blur()")
            browser.cdp("Input.dispatchMouseEvent", type="mouseMoved", x=200, y=30)
        browser.wait(lambda: browser.js("return innerWidth") == size[0], "the size")
        # Two frames: all is drawn.
        browser.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        path = f"docs/pictures/{name}.png"
        browser.picture(path)
        size_bytes = os.path.getsize(path)
        assert size_bytes < 150_000, f"{path} has {size_bytes} bytes"
        print(f"{path}: {size_bytes / 1000:.0f} kB", flush=True)
