#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Feeds two runs over ZeroMQ, one over ipc and one over tcp, from producers of every format that are killed, stopped
and restarted at random, and watches the runs for leaks of memory, descriptors, threads, socket files and processes.

Usage: soak.py PENSTOCK [--minutes M] [--seed S] [--report FILE]. Prints a report in Markdown. Exits with 0 if
nothing grew and nothing was left over, with 1 otherwise, and with 77 if a module is missing.

Growth is the slope of a straight line through the samples after the first fifth of the time, times that time.
"""
import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import platform
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

SKIPPED = 77
BATCH = 8
STEPS_PER_S = 200  # largest rate of the emulated device
LIMITS = {"rss_mib": 10.0, "descriptors": 6.0, "threads": 0.5}
# A producer's pipe may or may not hold waiting messages, and memory varies by that amount. This counts as growth if the
# pipes are empty at the beginning.
SHORT_MINUTES, SHORT_RSS_MIB = 5, 24.0
# With mmap, the memory of a message returns to the system once it is read, so growth means a leak. Without it, malloc
# keeps the largest amount that was ever allocated at once, which rises whenever more producers die together.
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}
MARK = "PENSTOCK_SOAK"
PRODUCE = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "producers" / "python" / "produce.py"


@dataclasses.dataclass
class Sample:
    at: float  # seconds since the beginning
    rss_mib: float
    descriptors: int
    threads: int


class Process:
    """A process that is restarted after it was killed; its output goes to a file."""

    def __init__(self, name, command, folder, environment):
        self.name, self.command, self.environment = name, command, environment
        self.folder = folder
        self.starts, self.failures = 0, []
        self.child, self.stopped_until, self.down_until = None, 0.0, 0.0
        self.start()

    def start(self):
        self.starts += 1
        with open(self.folder / f"{self.name}.out", "wb") as out, open(self.folder / f"{self.name}.err", "ab") as err:
            self.child = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                          cwd=self.folder, env=self.environment)

    def signal(self, number):
        self.child.send_signal(number)

    def last_words(self):
        return (self.folder / f"{self.name}.err").read_text(errors="replace")[-2000:]


class Producer(Process):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.kills = self.stops = 0

    def disturb(self, now, draw):
        """Kills the process, or stops it for a while."""
        if self.down_until or self.stopped_until:
            return
        pause = draw.uniform(0.2, 3)
        if draw.random() < 0.6:
            self.signal(signal.SIGKILL if draw.random() < 0.8 else signal.SIGTERM)
            self.child.wait(20)
            self.kills += 1
            self.down_until = now + pause
        else:
            self.signal(signal.SIGSTOP)
            self.stops += 1
            self.stopped_until = now + pause

    def tend(self, now):
        """Restarts the process, or continues it, when it is time."""
        if self.stopped_until and now >= self.stopped_until:
            self.stopped_until = 0.0
            self.signal(signal.SIGCONT)
        if self.down_until and now >= self.down_until:
            self.down_until = 0.0
            self.start()
        elif not self.down_until and self.child.poll() is not None:
            self.failures.append(f"{self.name} ended by itself with {self.child.returncode}: {self.last_words()}")
            self.start()


class Consumer(Process):
    def __init__(self, name, args, endpoint, folder, environment):
        self.samples = []
        # Twice the steps that the device can do, so that the run ends only when it is asked to.
        super().__init__(name, [
            args.penstock, "run", "--json", "--model", "trivial", "--image-size", "224", "--batch-size", str(BATCH),
            "--device", f"emulated:img_per_s={BATCH * STEPS_PER_S}", "--num-warmup-batches", "2",
            "--num-batches", str(int(args.minutes * 120 * STEPS_PER_S) + 1000), "--timeout", "60s",
            "--on-bad-sample", "skip",
            "--fake-location", f"zmq-consume:endpoint={endpoint},hwm=2,keep_memory=false"],
            folder, {**environment, **GIVE_BACK})

    def sample(self, at):
        proc = pathlib.Path("/proc") / str(self.child.pid)
        try:
            status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
            self.samples.append(Sample(at, int(status["VmRSS"].split()[0]) / 1024,
                                       len(list((proc / "fd").iterdir())), int(status["Threads"])))
        except (OSError, KeyError):  # it has ended; its exit code is checked elsewhere
            pass

    def result(self):
        """The run's JSON once it has ended; empty if it left none."""
        try:
            return json.loads((self.folder / f"{self.name}.out").read_text())
        except ValueError:
            return {}


def limits_of(minutes):
    return {**LIMITS, "rss_mib": SHORT_RSS_MIB} if minutes < SHORT_MINUTES else LIMITS


def growth(samples, field):
    """Slope of the fitted line, from the first sample after warm-up to the last."""
    kept = [sample for sample in samples if sample.at >= samples[-1].at / 5]
    times = [sample.at for sample in kept]
    values = [getattr(sample, field) for sample in kept]
    mean_time, mean = sum(times) / len(times), sum(values) / len(values)
    spread = sum((at - mean_time) ** 2 for at in times)
    slope = sum((at - mean_time) * (value - mean) for at, value in zip(times, values)) / spread if spread else 0.0
    return slope * (times[-1] - times[0])


def reserved_port():
    """A socket that reserves a port from other processes; libzmq, which sets SO_REUSEADDR too, may bind it."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


def start_producers(penstock, transport, endpoint, folder, environment):
    def python(name, batch):
        return [sys.executable, str(PRODUCE), "--endpoint", endpoint, "--format", name, "--batch", str(batch),
                "--hwm", "2"]

    serve = [penstock, "serve", "--image-size", "224", "--batch-size", str(BATCH), "--endpoint", endpoint, "--hwm", "2",
             "--img-per-s", "100"]
    commands = {"serve": serve, "pickle": python("pickle", BATCH), "numpy-frames": python("numpy-frames", BATCH),
                "misfit": python("zmq_op", BATCH - 1)}
    if importlib.util.find_spec("msgpack") and importlib.util.find_spec("msgpack_numpy"):
        commands["msgpack"] = python("msgpack", BATCH)
    usage = subprocess.run([penstock, "serve", "--help-all"], capture_output=True, text=True, timeout=20, check=True).stdout
    if "--format" in usage:
        commands["framed"] = serve + ["--format", "framed"]
    return [Producer(f"{transport}-{name}", command, folder, environment) for name, command in commands.items()]


def end(processes, number, faults):
    """Asks processes to end, and kills those that have not ended after 20 s."""
    for process in processes:
        if process.child.poll() is None:
            process.signal(number)
            process.signal(signal.SIGCONT)
    for process in processes:
        try:
            process.child.wait(20)
        except subprocess.TimeoutExpired:
            faults.append(f"{process.name} did not end within 20 s")
            process.signal(signal.SIGKILL)
            process.child.wait()


def strays(mark):
    """Processes that carry this soak's mark in their environment."""
    found = []
    for proc in pathlib.Path("/proc").iterdir():
        if not proc.name.isdigit() or int(proc.name) == os.getpid():
            continue
        try:
            if f"{MARK}={mark}".encode() in (proc / "environ").read_bytes():
                words = (proc / "cmdline").read_bytes().split(b"\0")
                found.append((int(proc.name), b" ".join(words).decode(errors="replace")))
        except OSError:  # it has ended, or belongs to another user
            continue
    return found


def disturb(producers, consumers, seconds, draw):
    began = time.monotonic()
    next_sample, next_fault = 0.0, 1.0
    while (now := time.monotonic() - began) < seconds:
        if now >= next_fault:
            draw.choice(producers).disturb(now, draw)
            next_fault = now + draw.uniform(0.1, 1)
        if now >= next_sample:
            for consumer in consumers:
                consumer.sample(now)
            next_sample = now + max(0.1, min(1.0, seconds / 100))
        for producer in producers:
            producer.tend(now)
        if any(consumer.child.poll() is not None for consumer in consumers):
            return
        time.sleep(0.05)


def judge(consumers, producers, limits, faults):
    """Adds faults to `faults`, and returns the table's rows."""
    rows = []
    for consumer in consumers:
        counters = consumer.result().get("counters", {})
        if consumer.child.returncode != 130:
            faults.append(f"{consumer.name} ended with {consumer.child.returncode}: {consumer.last_words()}")
        if counters.get("images_received", 0) == 0 or counters.get("messages_rejected", 0) == 0:
            faults.append(f"{consumer.name} received or rejected nothing: {counters}")
        if counters.get("batches_duplicate", 0) > 0:
            faults.append(f"{consumer.name}: {counters['batches_duplicate']} batches came twice")
        grown = {field: growth(consumer.samples, field) for field in limits} if len(consumer.samples) > 2 else {}
        for field, limit in limits.items():
            if grown.get(field, float("inf")) > limit:
                faults.append(f"{consumer.name}: {field} grew by {grown.get(field, 'nobody knows what')}; "
                              f"the limit is {limit}")
        first, last = (consumer.samples[len(consumer.samples) // 5], consumer.samples[-1]) if grown else (None, None)
        rows.append([consumer.name, counters.get("images_received", 0) // BATCH, counters.get("messages_rejected", 0),
                     counters.get("producers_cut_off", 0), f"{counters.get('producers_seen', 0)} / "
                     f"{counters.get('batches_missing', 0)} / {counters.get('batches_duplicate', 0)}"]
                    + ([f"{first.rss_mib:.1f} / {last.rss_mib:.1f} ({grown['rss_mib']:+.1f})",
                        f"{first.descriptors} / {last.descriptors} ({grown['descriptors']:+.1f})",
                        f"{first.threads} / {last.threads} ({grown['threads']:+.1f})"] if grown else ["-"] * 3))
    for producer in producers:
        faults.extend(producer.failures)
    return rows


def report(args, seconds, rows, producers, left, faults):
    limits = limits_of(args.minutes)
    lines = [f"# {seconds / 60:.1f} minutes of feeding over ZeroMQ with producers killed and stopped", "",
             f"`{' '.join(['bench/peers/soak.py', *sys.argv[1:]])}`, seed {args.seed}, on {os.cpu_count()} cores, "
             f"Linux {'.'.join(platform.release().split('.')[:2])}, {time.strftime('%Y-%m-%d', time.gmtime())}.", "",
             "Memory, descriptors and threads are of the consuming process: behind warm-up / at the end (growth of the "
             f"fitted line; limits {limits['rss_mib']:.0f} MiB, {limits['descriptors']:.0f} descriptors, no thread).",
             "",
             "| run | batches received | rejected | producers cut off | framed producers / batches missing / doubled | "
             "RSS, MiB | descriptors | threads |",
             "|---|---|---|---|---|---|---|---|"]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    lines += ["", "| producer | started | killed | stopped and continued |", "|---|---|---|---|"]
    lines += [f"| {p.name} | {p.starts} | {p.kills} | {p.stops} |" for p in producers]
    lines += [f"| all | {sum(p.starts for p in producers)} | {sum(p.kills for p in producers)} | "
              f"{sum(p.stops for p in producers)} |", "",
              f"Left over: {left['processes']} processes, {left['files']} socket files.", ""]
    lines += ["Failed:", "", *(f"- {fault}" for fault in faults)] if faults else ["No limit was passed."]
    return "\n".join(lines) + "\n"


def soak(args, folder):
    mark = uuid.uuid4().hex
    environment = {**os.environ, MARK: mark}
    reserved = reserved_port()
    endpoints = {"ipc": f"ipc://{folder}/feed", "tcp": f"tcp://127.0.0.1:{reserved.getsockname()[1]}"}
    faults, consumers, producers = [], [], []
    began = time.monotonic()
    try:
        for transport, endpoint in endpoints.items():
            consumers.append(Consumer(transport, args, endpoint, folder, environment))
            producers += start_producers(args.penstock, transport, endpoint, folder, environment)
        disturb(producers, consumers, args.minutes * 60, random.Random(args.seed))
    finally:
        # Consumers first, because a producer in Python ends only once a consumer has read its messages.
        end(consumers, signal.SIGINT, faults)
        end(producers, signal.SIGTERM, faults)
    rows = judge(consumers, producers, limits_of(args.minutes), faults)
    left = {"processes": 0, "files": 0}
    for process, command in strays(mark):
        left["processes"] += 1
        faults.append(f"process {process} was left: {command}")
        os.kill(process, signal.SIGKILL)
    for path in folder.iterdir():
        if path.is_socket():
            left["files"] += 1
            faults.append(f"socket file {path.name} was left")
    return report(args, time.monotonic() - began, rows, producers, left, faults), faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("penstock", help="the program")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", help="file for the report; default: standard output")
    args = parser.parse_args()
    args.penstock = os.path.abspath(args.penstock)
    missing = [name for name in ("numpy", "zmq") if importlib.util.find_spec(name) is None]
    if missing:
        print("skipped: this Python has no " + ", ".join(missing))
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        text, faults = soak(args, pathlib.Path(folder))
    if args.report:
        pathlib.Path(args.report).write_text(text, encoding="utf-8")
    else:
        print(text)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
