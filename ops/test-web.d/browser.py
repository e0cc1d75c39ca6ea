"""Chromium with the console, and the two ways to use it: a mouse and a keyboard."""

import base64
import contextlib
import os
import re
from urllib.parse import quote as encode

from selenium import webdriver
from selenium.common.exceptions import NoAlertPresentException, WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from cloud import password, wait_until

WIDE, NARROW = (1400, 900), (400, 800)

# In each document. Labels are what a screen reader reads; while a dialog is open, only it can be used.
SCRIPT = """
window.testing = (() => {
  const violations = [];
  addEventListener('securitypolicyviolation', (event) => violations.push(`${event.violatedDirective}: ${event.blockedURI}`));
  const shown = (element) => element.checkVisibility({ visibilityProperty: true });
  const text = (value) => value.replace(/\\s+/g, ' ').trim();
  const label = (element) => text(element.getAttribute('aria-label') ?? element.textContent);
  const scope = () => [...document.querySelectorAll('dialog[open]')].at(-1) ?? document;
  const all = (selector) => [...scope().querySelectorAll(selector)].filter(shown);
  return {
    violations, all, text,
    named: (selector, name) => all(selector).find((element) => label(element) === name),
    field: (name) => all('input, select, textarea').find((element) =>
      element.getAttribute('aria-label') === name || [...(element.labels ?? [])].some((one) => text(one.textContent) === name)),
    // The template ends a name with a blank.
    title: (row) => row.querySelector('.title').firstChild.textContent,
    row: (name) => [...document.querySelectorAll('.rows .row')].find((row) => testing.title(row) === name),
    rows: () => [...document.querySelectorAll('.rows .row')].map((row) => testing.title(row)),
    line: (name) => all('tbody tr').find((row) => text(row.textContent).includes(name)),
  };
})();
"""

AXE = """
const done = arguments[arguments.length - 1];
axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] }).then(
  ({ violations }) => done(violations.map((found) =>
    `${found.id}: ${found.nodes.slice(0, 3).map((node) => node.target.join(' ') + ' ' + (node.any[0]?.message ?? '')).join(' | ')}`)),
  (error) => done([String(error)]));
"""


class Browser:
    """A browser with a profile of its own."""

    def __init__(self, work, name, cloud, size=WIDE, is_dark=False):
        self.profile, self.downloads = f"{work}/profiles/{name}", f"{work}/downloads/{name}"
        os.makedirs(self.downloads, exist_ok=True)
        self.cloud = cloud
        self.open(size, is_dark)

    def open(self, size=WIDE, is_dark=False):
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        arguments = [
            "--headless=new", f"--user-data-dir={self.profile}", "--no-first-run", "--disable-gpu", "--disable-extensions",
            "--disable-background-networking", "--disable-dev-shm-usage", "--password-store=basic", "--lang=en-GB",
        ]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        for argument in arguments:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        # A dialog of a page must be seen by a check, and not be closed by the next command.
        options.set_capability("unhandledPromptBehavior", "ignore")
        # In a session of its own: Ctrl-C reaches this program only, which then ends the browser.
        service = Service("/usr/bin/chromedriver", popen_kw={"start_new_session": True})
        self.driver = webdriver.Chrome(service=service, options=options)
        self.driver.set_script_timeout(30)
        self.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=self.downloads)
        self.prepare_tab(size, is_dark)

    def prepare_tab(self, size=WIDE, is_dark=False):
        self.cdp("Page.addScriptToEvaluateOnNewDocument", source=SCRIPT)
        self.cdp("Network.enable")
        self.resize(size)
        self.theme(is_dark)

    def quit(self):
        self.driver.quit()

    def cdp(self, method, **arguments):
        return self.driver.execute_cdp_cmd(method, arguments)

    def resize(self, size):
        self.size = size
        self.cdp("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)

    def theme(self, is_dark):
        self.cdp("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}])

    # Looking

    def js(self, script, *values):
        return self.driver.execute_script(script, *values)

    def wait(self, condition, what, seconds=10):
        return wait_until(condition, what, seconds)

    def element(self, expression, *values, what=None, seconds=10):
        return self.wait(lambda: self.js(f"return {expression}", *values), what or f"{expression} {values}", seconds)

    def button(self, name, seconds=10):
        return self.element("testing.named('button, a, [role=menuitem]', arguments[0])", name, what=f"a button “{name}”", seconds=seconds)

    def field(self, name):
        return self.element("testing.field(arguments[0])", name, what=f"a field “{name}”")

    def row(self, name, seconds=10):
        return self.element("testing.row(arguments[0])", name, what=f"a row “{name}”", seconds=seconds)

    def no_row(self, name):
        self.wait(lambda: not self.js("return testing.row(arguments[0])", name), f"no row “{name}”")

    def line(self, text, seconds=10):
        """The row of a table with the text."""
        return self.element("testing.line(arguments[0])", text, what=f"a table's row with “{text}”", seconds=seconds)

    def no_line(self, text):
        self.wait(lambda: not self.js("return testing.line(arguments[0])", text), f"no table's row with “{text}”")

    def text(self):
        """Of the dialog that is open, or of the page."""
        return self.js("return testing.text(([...document.querySelectorAll('dialog[open]')].at(-1) ?? document.body).innerText)")

    def see(self, text, seconds=10):
        self.wait(lambda: text in self.js("return testing.text(document.body.innerText)"), f"the text “{text}”", seconds)

    def heading(self, text):
        self.element("testing.named('h1', arguments[0])", text, what=f"the heading “{text}”")

    def no_dialog(self, seconds=10):
        self.wait(lambda: not self.js("return document.querySelector('dialog[open]')"), "no dialog is open", seconds)

    def problems(self):
        found = []
        with contextlib.suppress(WebDriverException):
            for entry in self.driver.get_log("browser"):
                # Chromium writes a line for each answer of 400 and above. A page begins with the question whether there is a
                # sign-in, and asks again for a folder that another device has only just made.
                is_usual = re.search(r"/api/session .* 401 |/api/files.list .* 404 ", entry["message"])
                if entry["level"] == "SEVERE" and not is_usual or entry["source"] == "security":
                    found.append(entry["message"])
            found += self.js("return window.testing ? testing.violations.splice(0) : []")
        return found

    def recover(self):
        """Leaves what a failed check has left open."""
        with contextlib.suppress(WebDriverException):
            self.js("document.querySelectorAll('dialog[open]').forEach((dialog) => dialog.dispatchEvent(new Event('cancel', {cancelable: true})))")

    def is_unhurt(self):
        """No script of a file or name has run."""
        with contextlib.suppress(NoAlertPresentException):
            raise AssertionError(f"A dialog of a script is open: {self.driver.switch_to.alert.text}")
        assert self.js("return window.hurt") is None, "a script has set window.hurt"
        assert len(self.driver.window_handles) == 1, "a window was opened"
        assert self.driver.current_url.startswith(self.cloud.address + "/#"), self.driver.current_url

    # Going

    def go(self, place=""):
        """Opens a page by its address, as a link does."""
        if not (self.driver.current_url.startswith(self.cloud.address) and self.js("return !!window.testing")):
            self.driver.get(f"{self.cloud.address}/#/{place}")
        self.js("location.hash = '#/' + arguments[0]", place)

    def reload(self):
        self.driver.refresh()

    def files(self, *folders):
        self.go("/".join(["files", "default", *map(quote, folders)]))
        self.heading(" ".join(folders[-1].split()) if folders else "Documents")
        self.element("document.querySelector('.drop-area')")

    def call(self, name, **body):
        """A call of the page's server, with the page's sign-in: {status, answer}."""
        return self.driver.execute_async_script("""
            const [name, body, done] = arguments;
            fetch(`/api/${name}`, { method: 'POST', headers: { 'Content-Type': 'application/json', 'X-Nephos': '1' },
              body: JSON.stringify(body) }).then(async (r) => done({ status: r.status, answer: await r.json() }), (e) => done({ error: String(e) }));
            """, name, body)

    def sign_in(self, account, secret=password, keep=False, hand=None):
        hand = hand or Mouse(self)
        hand.write("Account", account)
        hand.write("Password", secret)
        if keep:
            hand.tick("Keep me signed in on this computer")
        hand.press(self.button("Sign in"))

    def is_signed_in(self, seconds=15):
        self.element("document.querySelector('.shell')", what="the pages of an account", seconds=seconds)

    def is_signed_out(self, seconds=10):
        self.element("testing.named('h1', 'Sign in to Nephos')", what="the sign-in", seconds=seconds)

    def choose_files(self, *paths, selector=".choose-files"):
        self.driver.find_element(By.CSS_SELECTOR, selector).send_keys("\n".join(paths))

    def downloaded(self, name, seconds=20):
        """The content of a finished download; the file is removed."""
        path = f"{self.downloads}/{name}"
        self.wait(lambda: os.path.exists(path), f"the download {name}", seconds)
        with open(path, "rb") as file:
            content = file.read()
        os.remove(path)
        return content

    # Judging

    def fits(self):
        """Nothing is wider than the page."""
        wide = self.js("""
            const wide = [...document.querySelectorAll('html, main, dialog[open]')].filter((e) => e.scrollWidth > e.clientWidth + 1);
            return wide.map((e) => `${e.tagName} scrolls sideways: ${e.scrollWidth} of ${e.clientWidth}`)""")
        assert not wide, f"{self.driver.current_url}: {wide}"

    def is_accessible(self, axe):
        if not self.js("return !!window.axe"):
            self.js(axe)
        found = self.driver.execute_async_script(AXE)
        assert not found, "\n".join(found)

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.cdp("Page.captureScreenshot", format="png")["data"]))


def quote(name):
    return encode(name, safe="")


class Hand:
    """What a person does, in any of the two ways."""

    def __init__(self, browser):
        self.browser, self.driver = browser, browser.driver

    def keys(self, *keys):
        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def combination(self, modifier, key):
        ActionChains(self.driver, duration=0).key_down(modifier).send_keys(key).key_up(modifier).perform()

    def replace(self, text):
        """Over the text of the field with the focus."""
        self.combination(Keys.CONTROL, "a")
        self.driver.execute_cdp_cmd("Input.insertText", {"text": text})

    def act(self, name):
        """A button of the toolbar, or of its menu."""
        def find(label):
            return self.browser.js("return testing.named('.toolbar button', arguments[0])", label)
        button = self.browser.wait(lambda: find(name) or find("More"), f"the action “{name}”")
        if button.text == "More":
            self.press(button)
            self.choose(self.browser.button(name))
        else:
            self.press(button)

    def undo(self):
        """In the newest message at the edge of the page."""
        self.press(self.browser.js("return testing.all('.toast').at(-1).querySelector('button')"))

    def confirm(self, name):
        """The button of a dialog, which closes."""
        self.press(self.browser.button(name))
        self.browser.no_dialog()


class Mouse(Hand):
    def press(self, element):
        # The browser refuses where something else lies above the element.
        element.click()

    choose = press

    def write(self, field, text):
        self.press(self.browser.field(field))
        self.replace(text)

    def tick(self, field):
        self.press(self.browser.field(field))

    def pick(self, field, value):
        Select(self.browser.field(field)).select_by_visible_text(value)

    def select(self, name):
        self.press(self.browser.row(name).find_element(By.CSS_SELECTOR, ".title"))
        self.browser.wait(lambda: self.browser.row(name).get_attribute("aria-selected") == "true", f"“{name}” is selected")

    def open(self, name):
        if self.browser.size == NARROW:
            # A double click has a check of its own.
            self.select(name)
            self.act("Open")
        else:
            self.double_click(name)

    def double_click(self, name):
        title = self.browser.row(name).find_element(By.CSS_SELECTOR, ".title")
        ActionChains(self.driver, duration=0).double_click(title).perform()

    def clear(self):
        for row in self.browser.js("return [...document.querySelectorAll('.row[aria-selected=true] .check')]"):
            row.click()

    def to_end(self):
        """Turns the wheel."""
        grid = self.driver.find_element(By.CSS_SELECTOR, ".grid")
        box = grid.rect
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {
            "type": "mouseWheel", "x": box["x"] + 50, "y": box["y"] + 100, "deltaX": 0, "deltaY": 30_000})


class Keyboard(Hand):
    def reach(self, element):
        """By the Tab key alone."""
        for _ in range(120):
            if self.browser.js("return document.activeElement === arguments[0]", element):
                return
            self.keys(Keys.TAB)
        raise AssertionError(f"The Tab key does not reach {element.get_attribute('outerHTML')[:120]}")

    def press(self, element):
        self.reach(element)
        self.keys(Keys.ENTER)

    def choose(self, item):
        """A menu's item, by arrows."""
        for _ in range(20):
            if self.browser.js("return document.activeElement === arguments[0]", item):
                return self.keys(Keys.ENTER)
            self.keys(Keys.ARROW_DOWN)
        raise AssertionError("The arrows do not reach the menu's item")

    def write(self, field, text):
        self.reach(self.browser.field(field))
        self.replace(text)

    def tick(self, field):
        self.reach(self.browser.field(field))
        self.keys(" ")

    def pick(self, field, value):
        self.reach(self.browser.field(field))
        self.keys(value)

    def grid(self):
        self.reach(self.browser.element("document.querySelector('.grid')"))

    def go_to(self, name):
        self.grid()
        self.keys(Keys.HOME)
        for _ in range(300):
            active = self.browser.js("const row = document.querySelector('.row.active'); return row && testing.title(row)")
            if active == name:
                return
            self.keys(Keys.ARROW_DOWN)
        raise AssertionError(f"The arrows do not reach “{name}”")

    def select(self, name):
        self.browser.row(name)
        self.go_to(name)
        self.browser.wait(lambda: self.browser.row(name).get_attribute("aria-selected") == "true", f"“{name}” is selected")

    def open(self, name):
        self.browser.row(name)
        self.go_to(name)
        self.keys(Keys.ENTER)

    def clear(self):
        self.grid()
        self.keys(Keys.ESCAPE)

    def to_end(self):
        self.grid()
        self.keys(Keys.END)
