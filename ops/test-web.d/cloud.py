"""A deployment, and devices that are played with `nephos`."""

import json
import os
import signal
import subprocess
import time

password = "correct horse battery"


def wait_until(condition, what, seconds=10, pause=0.02):
    """Gives the condition's value once it is true. Errors of the condition count as false until the time is over."""
    end = time.monotonic() + seconds
    while True:
        error = None
        try:
            value = condition()
            if value:
                return value
        except Exception as thrown:
            error = thrown
        if time.monotonic() > end:
            reason = f" ({str(error).strip().splitlines()[0]})" if error and str(error).strip() else ""
            raise AssertionError(f"Not within {seconds} s: {what}{reason}")
        time.sleep(pause)


class Cloud:
    def __init__(self, work):
        self.work = work
        self.folder = f"{work}/deployment"
        os.environ["NEPHOS_DEPLOYMENT"] = self.folder
        os.environ["NEPHOS_PASSWORD"] = password

    def start(self):
        first = os.environ.get("NEPHOS_TEST_PORT", "7600")
        self.port = int(subprocess.run(["dev/start-deployment", first], check=True, stdout=subprocess.PIPE).stdout)
        self.web = self.port + 80
        self.address = f"http://127.0.0.1:{self.web}"

    def stop(self):
        subprocess.run(["nephos", "down"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def create_account(self, name):
        subprocess.run(["nephos", "account", "create", name], check=True, stdout=subprocess.DEVNULL)

    def device(self, name, account):
        device = Device(f"{self.work}/homes/{account} {name}")
        connection = subprocess.run(["nephos", "status", "--connection"], check=True, stdout=subprocess.PIPE, text=True).stdout
        device("sign-in", connection.strip(), "--account", account, "--device-name", name)
        return device

    def web_process(self):
        """The id of this deployment's nephos-web."""
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if words[0].endswith("/nephos-web") and self.folder in words:
                return int(entry)
        return None

    def kill_web(self):
        former = self.web_process()
        os.kill(former, signal.SIGKILL)
        wait_until(lambda: self.web_process() not in (None, former), "nephos-web is started again", 20)


class Device:
    def __init__(self, home):
        self.home = home
        os.makedirs(os.path.dirname(home), exist_ok=True)

    def __call__(self, *words, codes=(0,), is_binary=False):
        run = subprocess.run(
            ["nephos", *words], env={**os.environ, "NEPHOS_HOME": self.home}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL)
        if run.returncode not in codes:
            raise AssertionError(f"nephos {' '.join(words)}: exit code {run.returncode}. {run.stderr.decode(errors='replace')}")
        return run.stdout if is_binary else run.stdout.decode(errors="replace")

    def json(self, *words):
        return json.loads(self(*words, "--json"))

    def cat(self, path):
        return self("docs", "cat", path, "--fresh", is_binary=True)

    def names(self, folder=""):
        return [item["name"] for item in self.json("docs", "ls", "--fresh", *([folder] if folder else []))]

    def put(self, path, content, *options):
        """Makes a file in the container."""
        self.number = getattr(self, "number", 0) + 1
        local = f"{self.home}.files/{self.number}"
        os.makedirs(local)
        local += "/" + os.path.basename(path)
        with open(local, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        self("docs", "put", local, path, *options)
        return local
