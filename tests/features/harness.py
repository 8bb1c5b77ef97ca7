# SPDX-License-Identifier: Apache-2.0
"""What the checks of features share: how they are entered, how they compare, and how they call penstock."""
import json
import pathlib
import re
import signal
import struct
import subprocess
import tempfile

LIMIT_S = 120
CHECKS = {}


def feature(number):
    def enter(check):
        CHECKS.setdefault(number, []).append(check)
        return check
    return enter


def tested_elsewhere(number, *names):
    """Tests of GoogleTest (SUITE.NAME) or ctest that check the feature."""
    def are_there(penstock):
        for name in names:
            if name not in penstock.tests:
                raise AssertionError(f"there is no test {name}")
    CHECKS.setdefault(number, []).append(are_there)


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: found {found}, expected {wanted}")


def expect_near(what, found, wanted, relative):
    if abs(found - wanted) > relative * abs(wanted):
        raise AssertionError(f"{what}: found {found}, expected {wanted} within {relative:.0e}")


def expect_losses(found, wanted, relative=0.0):
    expect("number of losses", len(found), len(wanted))
    for step, (one, other) in enumerate(zip(found, wanted)):
        expect_near(f"loss of step {step}", one, other, relative)


def expect_said(text, words):
    if words not in text:
        raise AssertionError(f"expected '{words}' in:\n{text}")


def named(entries, name):
    return next(entry for entry in entries if entry["name"] == name)


class Penstock:
    """The program, in a folder with the data set `ds`."""

    def __init__(self, program, folder, tests):
        self.program, self.folder, self.tests = program, folder, tests

    def call(self, words, code=0):
        done = subprocess.run([self.program, *words.split()], cwd=self.folder, timeout=LIMIT_S, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode != code:
            raise AssertionError(f"`penstock {words}` ended with {done.returncode}, expected {code}:\n{done.stderr}")
        return done

    def run(self, words, code=0):
        """The result of a run, as `--json` prints it."""
        return json.loads(self.call(f"run --json {words}", code).stdout)

    def losses(self, words):
        return self.run(words)["losses"]

    def start(self, words):
        return subprocess.Popen([self.program, *words.split()], cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def serve(self, words, run, code=0):
        """The result of a run that `penstock serve` feeds, and what serve said when it was stopped."""
        producer = self.start(f"serve {words}")
        try:
            result = self.run(run, code)
        finally:
            producer.send_signal(signal.SIGINT)
            said = producer.communicate(timeout=LIMIT_S)
        return result, "".join(said)


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


def weights_after(penstock, words):
    with tempfile.TemporaryDirectory(dir=penstock.folder) as folder:
        penstock.run(f"{words} --train-dir {folder}")
        return weights_in(pathlib.Path(folder))


def expect_weights(found, wanted, bound):
    """Compares within `bound` times the largest weight of each tensor."""
    expect("names of weights", set(found), set(wanted))
    for name, weights in wanted.items():
        largest = max(map(abs, weights))
        apart = max(abs(a - b) for a, b in zip(found[name], weights))
        if apart > bound * largest:
            raise AssertionError(f"{name} differs by {apart}, expected at most {bound} of {largest}")


def tests_in(source):
    """The names of all tests: SUITE.NAME in the sources of GoogleTest, and those that CMake's lists add."""
    names = set()
    for path in [*(source / "tests").rglob("*.cpp")]:
        names |= {f"{suite}.{name}" for suite, name in
                  re.findall(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)", path.read_text(), re.M)}
    for path in [*(source / "tests").rglob("CMakeLists.txt"), *(source / "examples").rglob("CMakeLists.txt")]:
        names |= set(re.findall(r"add_test\(NAME (\w+)", path.read_text()))
    return names
