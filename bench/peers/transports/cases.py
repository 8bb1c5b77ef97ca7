# SPDX-License-Identifier: Apache-2.0
"""The cases of transport_rates.py: one line for each, with its sender, receiver and transport."""
import dataclasses
import os
import re
import subprocess

WORD = re.compile(r"(?:--)?\w[\w-]*")
TRANSPORTS = ("ipc", "abstract", "tcp")
MIB = 1 << 20

# Ways to run bare libzmq: the fastest over a transport is the limit there. Arguments of penstock_zmq_limit, for both
# sides except malloc, which is for pull.
LIMIT_WAYS = {
    "as it is": {},
    "malloc kept": {"malloc": "keep"},
    "malloc kept, 1 MiB sent ahead": {"malloc": "keep", "buffer": MIB},
    "malloc kept, 4 MiB sent ahead": {"malloc": "keep", "buffer": 4 * MIB},
    "malloc kept, 2 I/O threads": {"malloc": "keep", "io_threads": 2},
}

# Formats of `penstock serve`, and the words that its help must contain for them.
SERVE_FORMATS = {
    "zmq_op": ([], []),
    "numpy-frames": (["--format", "numpy-frames"], ["--format", "numpy-frames"]),
    "framed": (["--format", "framed"], ["--format", "framed"]),
    "framed, checksum": (["--format", "framed", "--checksum"], ["--format", "framed", "--checksum"]),
    "framed, credit": (["--format", "framed", "--credit"], ["--format", "framed", "--credit"]),
}
CREDIT = {"consume": ("credit={hwm}",), "consume_needs": ("credit",)}
SHARED_MEMORY = (["--format", "framed", "--credit", "--shared-memory"], ["framed", "--credit", "--shared-memory"])
COPIED = {"consume": ("credit={hwm}", "copy=true"), "consume_needs": ("credit", "copy")}

# Fields of penstock_zmq_limit for the time from sent to received, and the facts of a run's result for the same time of
# messages in Penstock's framed format, in seconds.
LATENCY_FACTS = {"latency_ms_median": "hand_off_median_s", "latency_ms_p99": "hand_off_p99_s"}


@dataclasses.dataclass(frozen=True)
class Case:
    """One row. `serve` and `consume` are further arguments of these verbs; {hwm} stands for --hwm. Their help must
    contain the words of `*_needs`."""
    name: str
    group: str  # limit, ours, peer, latency, hand-off
    transport: str  # of TRANSPORTS; "memory": no socket
    format: str
    producer: str  # serve, push, tensorpack; none: the consumer makes its batches
    consumer: str  # run, pull, memcpy, tensorpack, torch
    producers: int = 1
    way: str = ""  # of LIMIT_WAYS
    serve: tuple = ()
    serve_needs: tuple = ()
    consume: tuple = ()
    consume_needs: tuple = ()
    curve: bool = False
    paced: bool = False
    copies: bool = True  # whether the consumer copies batches as the limits do
    python_needs: tuple = ()

    @property
    def stamped(self):
        """Whether messages carry the time at which they were sent."""
        return self.producer == "push" and self.consumer == "pull"


def limits():
    yield Case("memcpy, one thread", "limit", "memory", "-", "none", "memcpy")
    for transport in TRANSPORTS:
        for way in LIMIT_WAYS:
            yield Case(f"libzmq, {way}, {transport}", "limit", transport, "zmq_op", "push", "pull", way=way)


def ours():
    for transport in TRANSPORTS:
        for name, (words, needs) in SERVE_FORMATS.items():
            yield Case(f"penstock, {name}, {transport}", "ours", transport, name, "serve", "run", serve=tuple(words),
                       serve_needs=tuple(needs), **CREDIT if "--credit" in words else {})
    words, needs = SHARED_MEMORY
    yield Case("penstock, framed, shared memory, ipc", "ours", "ipc", "framed, shared memory", "serve", "run",
               serve=tuple(words), serve_needs=tuple(needs), **COPIED)
    yield Case("penstock, framed, shared memory, ipc, lent", "ours", "ipc", "framed, shared memory", "serve", "run",
               serve=tuple(words), serve_needs=tuple(needs), copies=False, **CREDIT)
    yield Case("penstock, zmq_op, ipc, heap and kernel as they are", "ours", "ipc", "zmq_op", "serve", "run",
               serve=("--send-buffer", "0"), serve_needs=("--send-buffer",), consume=("keep_memory=false",),
               consume_needs=("keep_memory",))
    for transport in ("ipc", "tcp"):
        yield Case(f"penstock, zmq_op, {transport}, CURVE", "ours", transport, "zmq_op, CURVE", "serve", "run",
                   curve=True)
    yield Case("penstock, zmq_op, ipc, 4 producers", "ours", "ipc", "zmq_op", "serve", "run", producers=4)
    for receivers in ("receivers=1", "receivers=2"):
        yield Case(f"penstock, zmq_op, ipc, 4 producers, {receivers}", "ours", "ipc", "zmq_op", "serve", "run",
                   producers=4, consume=(receivers,), consume_needs=("receivers",))


def peers():
    for transport in ("ipc", "tcp"):
        yield Case(f"libzmq, {transport}, CURVE", "peer", transport, "zmq_op, CURVE", "push", "pull",
                   way="malloc kept, 1 MiB sent ahead", curve=True)
    yield Case("libzmq, ipc, 4 producers", "peer", "ipc", "zmq_op", "push", "pull", producers=4,
               way="malloc kept, 1 MiB sent ahead")
    # The same bytes, from a producer without cost, to both consumers; then from tensorpack's producer.
    tensorpack = ("tensorpack", "zmq")
    for producer, words in (("push", "libzmq"), ("tensorpack", "tensorpack")):
        yield Case(f"{words} to tensorpack, pickle, ipc", "peer", "ipc", "pickle", producer, "tensorpack",
                   python_needs=tensorpack)
        yield Case(f"{words} to penstock, pickle, ipc", "ours", "ipc", "pickle", producer, "run",
                   python_needs=tensorpack)
    yield Case("PyTorch's DataLoader, one worker", "peer", "memory", "shared memory", "none", "torch",
               python_needs=("torch",))


def latencies():
    """Batches at a pace that every transport can sustain: measures the time of one batch, not the length of a queue."""
    for transport in TRANSPORTS:
        yield Case(f"libzmq, {transport}, paced", "latency", transport, "zmq_op", "push", "pull",
                   way="malloc kept, 1 MiB sent ahead", paced=True)
        words, needs = SERVE_FORMATS["framed"]
        yield Case(f"penstock, framed, {transport}, paced", "latency", transport, "framed", "serve", "run",
                   serve=tuple(words), serve_needs=tuple(needs), paced=True)


HARNESS = "the harness alone, paced"


def hand_offs():
    """At one rate, into a device with free copies: measures the CPU time of the consuming process beyond the harness."""
    yield Case(HARNESS, "hand-off", "memory", "-", "none", "run", paced=True)
    words, needs = SHARED_MEMORY
    for name, consume in (("lent", CREDIT), ("copied", COPIED)):
        yield Case(f"penstock, shared memory, ipc, {name}, paced", "hand-off", "ipc", "framed, shared memory", "serve",
                   "run", serve=tuple(words), serve_needs=tuple(needs), paced=True, **consume)
    words, needs = SERVE_FORMATS["framed, credit"]
    yield Case("penstock, framed, credit, ipc, paced", "hand-off", "ipc", "framed, credit", "serve", "run",
               serve=tuple(words), serve_needs=tuple(needs), paced=True, **CREDIT)


def all_cases():
    return [*limits(), *ours(), *peers(), *latencies(), *hand_offs()]


class Abilities:
    """What the program and the other Python support; each is queried once."""

    def __init__(self, penstock, python):
        self.serve_help = self.output([penstock, "serve", "--help-all"])
        self.consume_help = self.options_of("zmq-consume", self.output([penstock, "list", "feeder", "zmq-consume"]))
        self.limit = os.path.join(os.path.dirname(penstock), "penstock_zmq_limit")
        self.python, self.modules = python, {}

    @staticmethod
    def output(command):
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise SystemExit(f"failed: {' '.join(command)}: {error}") from error

    @staticmethod
    def options_of(component, listing):
        """The indented lines below the component's line."""
        lines, found = listing.splitlines(), []
        for start, line in enumerate(lines):
            if line.split()[:1] == [component]:
                indent = len(line) - len(line.lstrip())
                for below in lines[start + 1:]:
                    if len(below) - len(below.lstrip()) <= indent:
                        break
                    found += below.split()[:1]
        return found

    def has_module(self, name):
        if name not in self.modules:
            child = subprocess.run([self.python, "-c", f"import {name}"], capture_output=True, check=False, timeout=120)
            self.modules[name] = child.returncode == 0
        return self.modules[name]

    def reason_to_skip(self, case):
        """The reason why a case cannot run; empty if it can."""
        words = WORD.findall(self.serve_help)
        for need in case.serve_needs if case.producer == "serve" else ():
            if need not in words:
                return f"`penstock serve` has no {need}"
        for need in case.consume_needs:
            if need not in self.consume_help:
                return f"zmq-consume has no option {need}"
        for name in case.python_needs:
            if not self.has_module(name):
                return f"{self.python} has no {name}"
        if (case.producer == "push" or case.consumer in ("pull", "memcpy")) and not os.path.exists(self.limit):
            return f"there is no {self.limit}"
        return ""
