# SPDX-License-Identifier: Apache-2.0
"""Processes of a turn: starts, watches and ends them, and measures what they used."""
import os
import re
import signal
import subprocess
import time

TICKS = os.sysconf("SC_CLK_TCK")
PEAK = re.compile(r"VmHWM:\s*(\d+) kB")
SENT = re.compile(r"sent (\d+) batches")
LINES_SHOWN = 8


class Failed(Exception):
    """A turn that failed, and why."""


class Child:
    """A process in a separate process group, with its output in files."""

    def __init__(self, command, folder, name):
        self.command = command
        self.out, self.err = (os.path.join(folder, name + ending) for ending in (".out", ".err"))
        self.peak_rss_bytes = 0
        self.code, self.last = None, (False, 0)
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder,
                                            start_new_session=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})

    def stat(self):
        """Whether its first thread waits, and the CPU seconds of all its threads so far. If the process has ended, the last
        known values."""
        try:
            with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
                fields = file.read().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return self.last
        self.last = (fields[0] == "S", (int(fields[11]) + int(fields[12])) / TICKS)
        return self.last

    def cpu_seconds(self):
        return self.stat()[1]

    def look_at_memory(self):
        """Its peak memory, from /proc. The peak of getrusage includes the time before exec, when it was a copy of this process."""
        try:
            with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
                found = PEAK.search(file.read())
        except (FileNotFoundError, ProcessLookupError):
            return
        if found:
            self.peak_rss_bytes = max(self.peak_rss_bytes, 1024 * int(found[1]))

    def ended(self):
        if self.code is None:
            self.look_at_memory()
            self.stat()
            self.code = self.process.poll()
        return self.code is not None

    def wait(self, seconds):
        deadline = time.monotonic() + seconds
        while not self.ended():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def end(self):
        """Asks it to end, then kills it and its child processes."""
        if not self.ended():
            self.process.send_signal(signal.SIGTERM)
            self.wait(5)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.wait(5)

    def output(self):
        with open(self.out, encoding="utf-8", errors="replace") as file:
            return file.read()

    def errors(self):
        with open(self.err, encoding="utf-8", errors="replace") as file:
            return file.read()

    def batches_sent(self):
        found = SENT.findall(self.errors())
        return int(found[-1]) if found else 0

    def failure(self):
        lines = self.errors().strip().splitlines()
        said = " / ".join(lines[-LINES_SHOWN:]) if lines else "it said nothing"
        return f"{os.path.basename(self.command[0])} ended with {self.code}: {said}"


def settle(children, seconds=20):
    """Waits until all processes are idle: their batches are ready, and they wait for a consumer."""
    deadline = time.monotonic() + seconds
    still, before = 0, None
    while still < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
        if any(child.ended() for child in children):
            raise Failed(next(child.failure() for child in children if child.ended()))
        found = [child.stat() for child in children]
        still = still + 1 if found == before and all(waits for waits, _ in found) else 0
        before = found
