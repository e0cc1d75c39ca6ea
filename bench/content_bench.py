"""What the tests and measurements of contents share: a deployment with two devices in a network of its own, a real tree,
and counters of the bytes on the wire, processor seconds and peak memory."""

import ctypes
import glob
import hashlib
import os
import random
import shutil
import subprocess
import sys
import time

CLONE_NEWNET = 0x40000000


def release_build():
    """The folder of the programs, which are built if need be."""
    build = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ops", "build-release")
    return subprocess.run([build], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def own_network():
    """A network namespace of its own, so that the bytes on the loopback are this program's alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        sys.exit("A network namespace of its own is needed: run it as root. " + os.strerror(ctypes.get_errno()))
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def wire_bytes():
    """Bytes that have gone over the loopback, with their headers."""
    with open("/proc/net/dev") as lines:
        for line in lines:
            if line.strip().startswith("lo:"):
                return int(line.split(":")[1].split()[0])
    raise SystemExit("There is no loopback.")


def make_tree(source, target, files, size):
    """Copies files of the source, the same each time, until there are so many or they have so many bytes."""
    found = []
    for folder, folders, names in os.walk(source):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                found.append((path, os.path.getsize(path)))
    random.Random(1).shuffle(found)
    count = total = 0
    for path, length in found:
        if count == files or total + length > size:
            continue
        place = os.path.join(target, os.path.relpath(path, source))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        shutil.copyfile(path, place)
        count += 1
        total += length
    return count, total


def make_small_tree(target, files, per_folder=100, size=1000):
    """Makes so many files of so many bytes that do not compress, the same each time."""
    random_bytes = random.Random(2).randbytes
    for number in range(files):
        folder = os.path.join(target, f"{number // per_folder:04}")
        if number % per_folder == 0:
            os.makedirs(folder)
        with open(os.path.join(folder, f"{number:06}"), "wb") as file:
            file.write(random_bytes(size))
    return files, files * size


def tree_digest(folder):
    """Of names and bytes."""
    digest = hashlib.sha256()
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(place, name)
            with open(path, "rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
            digest.update(os.path.relpath(path, folder).encode() + b"\0" + content)
    return digest.hexdigest()


class Cost:
    """What a command took: seconds, processor seconds, peak memory, bytes on the wire."""

    def __init__(self, seconds, processor, peak, wire):
        self.seconds, self.processor, self.peak, self.wire = seconds, processor, peak, wire


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory(pid):
    with open(f"/proc/{pid}/status") as lines:
        for line in lines:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def run(command, env=None, servers=()):
    """Runs a command, and says what it and the servers took."""
    before = sum(processor_seconds(pid) for pid in servers)
    wire, start = wire_bytes(), time.monotonic()
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{' '.join(command[:4])} failed:\n{output.decode(errors='replace')}")
    processor = usage.ru_utime + usage.ru_stime + sum(processor_seconds(pid) for pid in servers) - before
    peak = usage.ru_maxrss * 1024 + sum(peak_memory(pid) for pid in servers)
    return Cost(seconds, processor, peak, wire_bytes() - wire)


class Deployment:
    """Five services with a home for each of the devices."""

    def __init__(self, programs, folder, devices):
        self.nephos = os.path.join(programs, "nephos")
        self.folder = folder
        self.env = dict(os.environ, NEPHOS_DEPLOYMENT=os.path.join(folder, "deployment"))
        self.call("init", "--port", "17600")
        self.call("up")
        password = os.path.join(folder, "password")
        with open(password, "w") as file:
            file.write("correct horse battery\n")
        self.call("account", "create", "ann", "--password-file", password)
        connection = self.call("status", "--connection").strip()
        for device in devices:
            self.call(
                "sign-in", connection, "--account", "ann", "--password-file", password, "--device-name", device,
                home=device)
            self.call("docs", "ls", "--timeout", "60", home=device)

    def environment(self, home):
        return dict(self.env, NEPHOS_HOME=os.path.join(self.folder, "home-" + home))

    def call(self, *arguments, home=None):
        env = self.environment(home) if home else self.env
        done = subprocess.run([self.nephos, *arguments], env=env, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"nephos {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def pids(self, service=None):
        """Of the services that run, or of one."""
        found = []
        for entry in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(entry, "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            name = os.path.basename(words[0]).decode(errors="replace")
            mine = any(self.folder.encode() in word for word in words)
            if mine and name.startswith("nephos-") and (service is None or name == "nephos-" + service):
                found.append(int(entry.split("/")[2]))
        return found

    def close(self):
        subprocess.run([self.nephos, "down"], env=self.env, capture_output=True)
