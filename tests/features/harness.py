# SPDX-License-Identifier: Apache-2.0
"""What the checks of features share: how they are entered, how they compare, and how they call penstock."""
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import tempfile

LIMIT_S = 120
CHECKS = {}
SOURCE = pathlib.Path(__file__).resolve().parents[2]


class Skipped(Exception):
    """This machine lacks what the check needs."""


def feature(number, *settings):
    """Enters a check of a row of the table, which must fail if a program ignores one of these settings: a key of RunConfig, a
    flag of a verb, or an option such as `queue:resize`."""
    def enter(check):
        CHECKS.setdefault(check, []).append((number, settings))
        return check
    return enter


def expect(what, found, expected):
    if found != expected:
        raise AssertionError(f"{what}: found {found}, expected {expected}")


def expect_near(what, found, expected, relative):
    if abs(found - expected) > relative * abs(expected):
        raise AssertionError(f"{what}: found {found}, expected {expected} within {relative:.0e}")


def expect_losses(found, expected, relative=0.0):
    expect("number of losses", len(found), len(expected))
    for step, (one, other) in enumerate(zip(found, expected)):
        expect_near(f"loss of step {step}", one, other, relative)


def expect_said(text, words):
    if words not in text:
        raise AssertionError(f"expected '{words}' in:\n{text}")


def named(entries, name):
    return {entry["name"]: entry for entry in entries}[name]


class Penstock:
    """The program, in a folder with the data set `ds`. The program for tests ignores the setting `ignored`."""

    def __init__(self, program, folder, ignored=""):
        self.program, self.folder = program, folder
        self.environment = dict(os.environ, PENSTOCK_IGNORED=ignored, TMPDIR=str(folder))  # mpirun's, two at once

    def done(self, words):
        done = subprocess.run([self.program, *words.split()], cwd=self.folder, timeout=LIMIT_S, text=True,
                              env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if "Sanitizer" in done.stderr or "runtime error: " in done.stderr:
            raise RuntimeError(done.stderr)
        if done.returncode == 3 and "built without" in done.stderr:
            raise Skipped(done.stderr)
        return done

    def call(self, words, code=0):
        done = self.done(words)
        if done.returncode != code:
            raise AssertionError(f"`penstock {words}` ended with {done.returncode}, expected {code}:\n{done.stderr}")
        return done

    def run(self, words, code=0):
        """The result of a run, as `--json` prints it."""
        return json.loads(self.call(f"run --json {words}", code).stdout)

    def losses(self, words):
        return self.run(words)["losses"]

    def look(self, words):
        return json.loads(self.call(f"look --json {words}").stdout)

    def start(self, words):
        return subprocess.Popen([self.program, *words.split()], cwd=self.folder, text=True, env=self.environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def serve(self, words, run, code=0):
        """The result of a run that `penstock serve` feeds, and what serve said when it was stopped."""
        producer = self.start(f"serve {words}")
        try:
            result = self.run(run, code)
        finally:
            producer.send_signal(signal.SIGINT)
            said = producer.communicate(timeout=LIMIT_S)
        return result, "".join(said)


def zeromq():
    try:
        import zmq
        return zmq
    except ImportError:
        raise Skipped("needs python3-zmq") from None


def received(penstock, words):
    """The frames of the first message that `penstock serve` sends."""
    zmq = zeromq()
    with zmq.Context() as context, context.socket(zmq.PULL) as consumer:
        consumer.bind(f"ipc://{penstock.folder}/received")
        consumer.rcvtimeo = 1000 * LIMIT_S
        producer = penstock.start(f"serve --endpoint ipc://received {words}")
        try:
            return consumer.recv_multipart()
        finally:
            producer.kill()
            producer.communicate()


def sent(penstock, message, words):
    """What a command prints to stdout and stderr that consumes this message again and again."""
    zmq = zeromq()
    with zmq.Context() as context, context.socket(zmq.PUSH) as producer:
        producer.connect(f"ipc://{penstock.folder}/sent")
        producer.linger = 0
        consumer = penstock.start(f"{words} --fake-location zmq-consume:endpoint=ipc://sent")
        for _ in range(20):
            producer.send(message)
        return consumer.communicate(timeout=LIMIT_S)


def free_ports(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


SHORT = "--batch-size 8 --num-batches 4 --num-warmup-batches 0"
EMULATED = f"--device emulated:img_per_s=4000 --model trivial {SHORT}"
CPU = f"--device cpu --model lenet --classes 4 --compute-threads 1 {SHORT}"
JPEGS = "--data-dir ds/train --order strict --feeder-threads 1"
TRAIN = f"--fake-location queue {JPEGS} {CPU}"
PAIR = TRAIN.replace("--batch-size 8", "--batch-size 4") + " --num-gpus 2"
TRIVIAL_BYTES = 8 * 224 * 224 * 3


def weights_in(folder):
    """All weights of the newest checkpoint, by name: a safetensors file of 32-bit floats."""
    data = max(folder.glob("*.safetensors"), key=lambda path: path.stat().st_mtime_ns).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return {name: struct.unpack_from(f"<{(entry['data_offsets'][1] - entry['data_offsets'][0]) // 4}f", data,
                                     8 + length + entry["data_offsets"][0])
            for name, entry in json.loads(data[8:8 + length]).items() if entry.get("dtype") == "F32"}


def trained(penstock, words):
    """The result of a run, and the weights at its end."""
    with tempfile.TemporaryDirectory(dir=penstock.folder) as folder:
        return penstock.run(f"{words} --train-dir {folder}"), weights_in(pathlib.Path(folder))


def weights_after(penstock, words):
    return trained(penstock, words)[1]


def expect_weights(found, expected, bound):
    """Compares within `bound` times the largest weight of each tensor."""
    expect("names of weights", set(found), set(expected))
    for name, weights in expected.items():
        largest = max(map(abs, weights))
        apart = max(abs(a - b) for a, b in zip(found[name], weights))
        if apart > bound * largest:
            raise AssertionError(f"{name} differs by {apart}, expected at most {bound} of {largest}")
