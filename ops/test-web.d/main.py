"""Called by ops/test-web: makes a deployment, runs the checks, and removes all that it made."""

import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import attacks
import files
import live
import pages
import pictures
import quick
import sign_in
from browser import Browser
from cloud import Cloud
from report import Report


class Stage:
    """What the checks share."""

    def __init__(self, work):
        self.work, self.cloud, self.report = work, Cloud(work), Report()
        self.axe = None

    def browser(self, name, **options):
        browser = Browser(self.work, name, self.cloud, **options)
        self.report.browsers.append(browser)
        return browser

    def close(self, browser):
        self.report.browsers.remove(browser)
        browser.quit()

    def end(self):
        for browser in list(self.report.browsers):
            try:
                self.close(browser)
            except Exception as error:
                print(f"A browser did not end: {error}", file=sys.stderr)
        self.cloud.stop()
        shutil.rmtree(self.work, ignore_errors=True)


def fetch_axe(work):
    """The axe-core library, which is in a package for Python."""
    fetched = subprocess.run(
        ["python3", "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", "--dest", work,
         "axe-core-python==0.1.0"])
    if fetched.returncode:
        sys.exit("axe-core cannot be downloaded from PyPI, so accessibility cannot be checked. Is there a network?")
    wheel = glob.glob(f"{work}/axe_core_python*.whl")[0]
    shutil.unpack_archive(wheel, f"{work}/axe", "zip")
    with open(f"{work}/axe/axe_core_python/axe.min.js", encoding="utf-8") as file:
        return file.read()


def stop(*_):
    sys.exit(130)


signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGHUP, stop)
mode = sys.argv[1]
stage = Stage(tempfile.mkdtemp(prefix="nephos-test-web-"))
try:
    if mode == "--all":
        stage.axe = fetch_axe(stage.work)
    stage.cloud.start()
    if mode == "--quick":
        quick.run(stage)
    elif mode == "--screenshots":
        pictures.run(stage)
        sys.exit(0)
    else:
        only = os.environ.get("NEPHOS_TEST_WEB", "sign_in files live pages attacks").split()
        for part in (sign_in, files, live, pages, attacks):
            if part.__name__ in only:
                print(f"== {part.__doc__.splitlines()[0].rstrip('.')}", flush=True)
                part.run(stage)
    sys.exit(stage.report.finish())
finally:
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    stage.end()
