"""Pages of other origins: none acts for the account, and none reads anything."""

import http.server
import threading
import urllib.error
import urllib.request

from cloud import wait_until

ATTACKS = """
<!doctype html><meta charset="utf-8"><title>Foreign</title>
<iframe name="sink" hidden></iframe>
<script>
const target = TARGET, folder = 'FOLDER', item = 'ITEM', note = {};
const calls = [
  ['files.makeFolder', { container: 'default', folder, name: 'attacked' }], ['files.trash', { container: 'default', items: [item] }],
  ['keys.set', { key: 'attacked', type: 'string', value: 'yes' }], ['account.createAppPassword', { name: 'attacked' }],
  ['account.changePassword', { old: 'correct horse battery', new: 'attacked horse', signOutOthers: true }], ['sign-out', {}],
  ['sign-in', { account: 'mallory', password: 'correct horse battery' }],
];
const settled = (promise) => promise.then((value) => value, (error) => `refused: ${error.name}`);
async function tryAll() {
  // Forms: the body is JSON with an equals sign at a place where it does no harm.
  for (const enctype of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']) {
    for (const [name, body] of calls) {
      const form = Object.assign(document.createElement('form'), { method: 'post', enctype, action: `${target}/api/${name}`, target: 'sink' });
      const text = JSON.stringify({ ...body, pad: '=' });
      const at = text.indexOf('"="') + 1;
      form.append(Object.assign(document.createElement('input'), { name: text.slice(0, at), value: text.slice(at + 1) }));
      document.body.append(form);
      const loaded = new Promise((resolve) => { document.querySelector('[name=sink]').addEventListener('load', resolve, { once: true }); setTimeout(resolve, 3000); });
      form.submit();
      await loaded;
    }
  }
  const readings = [];
  for (const [name, body] of calls) {
    for (const options of [
      { mode: 'cors', headers: { 'Content-Type': 'application/json', 'X-Nephos': '1' } }, { mode: 'cors', headers: { 'Content-Type': 'text/plain' } },
      { mode: 'no-cors', headers: { 'Content-Type': 'text/plain' } },
    ]) {
      readings.push(await settled(fetch(`${target}/api/${name}`, { method: 'POST', credentials: 'include', body: JSON.stringify(body), ...options })
        .then(async (answer) => `${answer.type} ${answer.status} ${await answer.text()}`)));
    }
    navigator.sendBeacon(`${target}/api/${name}`, new Blob([JSON.stringify(body)], { type: 'text/plain' }));
  }
  for (const path of [`/api/content?container=default&item=${item}`, '/', '/api/events']) {
    readings.push(await settled(fetch(target + path, { credentials: 'include', signal: AbortSignal.timeout(2000) }).then((answer) => answer.text())));
  }
  note.readings = readings;
  note.events = await new Promise((resolve) => {
    const source = new EventSource(`${target}/api/events`, { withCredentials: true });
    for (const type of ['changed', 'beat', 'ended', 'message', 'open']) source.addEventListener(type, () => resolve(type));
    source.onerror = () => source.readyState === EventSource.CLOSED && resolve('refused');
    setTimeout(() => resolve('silent'), 6000);
  });
  note.elements = [];
  for (const [tag, attribute] of [['img', 'src'], ['script', 'src'], ['video', 'src'], ['link', 'href']]) {
    const element = document.createElement(tag);
    if (tag === 'link') element.rel = 'stylesheet';
    element[attribute] = `${target}/api/content?container=default&item=${item}`;
    note.elements.push(tag + ': ' + await new Promise((resolve) => {
      element.onload = element.onloadeddata = () => resolve('loaded');
      element.onerror = () => resolve('refused');
      document.body.append(element);
    }));
  }
  const frame = Object.assign(document.createElement('iframe'), { src: target, name: 'console' });
  const loaded = new Promise((resolve) => { frame.onload = resolve; });
  document.body.append(frame);
  await loaded;
  const opened = window.open(target, 'opened');
  await new Promise((resolve) => setTimeout(resolve, 1000));
  try { note.opened = opened && !opened.closed ? String(opened.document.title) : 'cut off'; } catch (error) { note.opened = `refused: ${error.name}`; }
  window.note = note;
}
tryAll().catch((error) => { window.note = { failed: String(error) }; });
</script>
"""


class Foreign(http.server.BaseHTTPRequestHandler):
    page = ""
    # Whether the browser sent the console's cookie here: other ports of its host get it.
    had_cookie = False

    def do_GET(self):
        if self.path == "/":
            Foreign.had_cookie = "nephos=" in self.headers.get("Cookie", "")
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.page.encode())

    def log_message(self, *_):
        pass


def run(stage):
    check, cloud = stage.report.check, stage.cloud
    cloud.create_account("berta")
    cloud.create_account("mallory")
    laptop = cloud.device("laptop", "berta")
    laptop.put("secret.txt", "the secret of berta")
    laptop("kv", "set", "own", "yes")
    browser = stage.browser("berta")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for console, foreign, label in (
            ("127.0.0.1", "127.0.0.1", "another port of the same host"), ("127.0.0.1", "localhost", "another host's name"),
            ("localhost", "127.0.0.1", "another host's name, console at localhost"),
        ):
            attack(stage, browser, laptop, server.server_port, console, foreign, label)
    finally:
        server.shutdown()
        server.server_close()
    with check("A request that a browser did not mark as its own page's is refused, with the cookie"):
        browser.driver.get(f"{cloud.address}/#/files")
        browser.is_signed_out()
        browser.sign_in("berta")
        browser.is_signed_in()
        cookie = browser.driver.get_cookie("nephos")["value"]
        own = {"Cookie": f"nephos={cookie}", "Content-Type": "application/json", "X-Nephos": "1"}
        assert call(cloud, own) == 200
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"X-Nephos": ""}, {"Content-Type": "text/plain"}):
            assert call(cloud, {**own, **headers}) in (400, 403), headers
    with check("Each answer forbids what a page does not need"):
        with urllib.request.urlopen(cloud.address) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy, policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
    browser.problems()
    stage.close(browser)


def call(cloud, headers):
    request = urllib.request.Request(f"{cloud.address}/api/session", data=b"{}", method="POST", headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def attack(stage, browser, laptop, port, console, foreign, label):
    check, cloud = stage.report.check, stage.cloud
    driver, target = browser.driver, f"http://{console}:{cloud.web}"
    # Those of other names of this host too.
    browser.cdp("Network.clearBrowserCookies")
    driver.get(f"{target}/#/files")
    browser.reload()
    browser.element("document.querySelector('.shell, .sign-in')", what="the pages or the sign-in")
    if browser.js("return !!document.querySelector('.sign-in')"):
        browser.sign_in("berta")
    browser.is_signed_in()
    listed = browser.call("files.list", container="default")["answer"]
    Foreign.page = (ATTACKS.replace("TARGET", f"'{target}'").replace("FOLDER", listed["folder"]["id"])
                    .replace("ITEM", listed["entries"][0]["id"]))
    before = state(laptop)
    with check(f"A page of {label} reads nothing", allows="."):
        driver.get(f"http://{foreign}:{port}/")
        note = browser.wait(lambda: browser.js("return window.note"), "the end of the attacks", 90)
        assert "failed" not in note, note
        # Where the browser sends the cookie, only the server's own rules stand against the attack.
        assert Foreign.had_cookie == (console == foreign), "the test is not what it says"
        for reading in note["readings"]:
            assert reading.startswith(("refused", "opaque 0 ")) and "berta" not in reading, f"read: {reading[:200]}"
        assert note["events"] in ("refused", "silent"), f"the stream of events gave: {note['events']}"
        assert all(one.endswith("refused") for one in note["elements"]), note["elements"]
        assert note["opened"].startswith(("refused", "cut off")), note["opened"]
        driver.switch_to.frame("console")
        inside = browser.js("return [location.href, document.querySelector('#app') !== null]")
        driver.switch_to.default_content()
        assert inside[0].startswith("chrome-error:") and not inside[1], f"the console is shown in a frame: {inside}"
    with check(f"A page of {label} changes nothing, and signs nobody in or out"):
        for handle in driver.window_handles[1:]:
            driver.switch_to.window(handle)
            driver.close()
        driver.switch_to.window(driver.window_handles[0])
        after = wait_until(lambda: state(laptop), "the state")
        assert after == before, f"{before} became {after}"
        driver.get(f"{target}/#/files")
        browser.is_signed_in()
        assert browser.call("session")["answer"]["account"] == "berta"
    # The pages of this host count among the browser's problems again.
    browser.problems()


def state(laptop):
    devices = sorted((one["name"], one["revoked"]) for one in laptop.json("devices"))
    return {
        "files": laptop.names(), "keys": laptop.json("kv", "list"), "devices": devices,
        "trash": laptop("docs", "trash"), "passwords": laptop("account", "app-password", "list"),
    }
