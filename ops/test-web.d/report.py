"""Runs checks, and prints a line for each."""

import contextlib
import os
import re
import time


class Report:
    def __init__(self):
        self.count = 0
        self.failed = []
        # What the browsers' consoles said that no check allowed.
        self.problems = []
        self.browsers = []

    @contextlib.contextmanager
    def check(self, name, allows=None):
        """A failure inside ends the check, not the run. `allows`: a pattern of messages in the browser's console."""
        self.count += 1
        start = time.monotonic()
        failure = None
        try:
            yield
        except Exception as error:
            text = getattr(error, "msg", None) or str(error) or type(error).__name__
            failure = text.strip().split("\n  (Session")[0][:2000]
        took = time.monotonic() - start
        print(f"{'FAIL' if failure else 'ok  '} {name} ({took:.1f} s)", flush=True)
        if failure:
            print("     " + failure.replace("\n", "\n     "), flush=True)
            self.failed.append(name)
            self.save_pictures(name)
        for browser in self.browsers:
            for problem in browser.problems():
                if not (allows and re.search(allows, problem)):
                    self.problems.append(f"{name}: {problem}")
            if failure:
                browser.recover()

    def figure(self, text):
        print(f"     {text}", flush=True)

    def save_pictures(self, name):
        folder = os.environ.get("NEPHOS_TEST_PICTURES")
        if not folder:
            return
        os.makedirs(folder, exist_ok=True)
        for number, browser in enumerate(self.browsers):
            with contextlib.suppress(Exception):
                browser.driver.save_screenshot(f"{folder}/{self.count}-{number}-{re.sub('[^a-z]+', '-', name.lower())[:60]}.png")

    def finish(self):
        with self.check("No page wrote an error to the browser's console or broke its own policy"):
            assert not self.problems, "\n".join(dict.fromkeys(self.problems))
        print()
        for name in self.failed:
            print(f"failed: {name}")
        print(f"{self.count - len(self.failed)} of {self.count} checks passed")
        return 1 if self.failed else 0
