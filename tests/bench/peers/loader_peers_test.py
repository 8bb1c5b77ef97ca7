#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs bench/peers/loader_peers.py with few images and no other loader: Penstock's pixels equal Pillow's, and a failed
loader is named and does not stop the others.

Usage: loader_peers_test.py SOURCE_DIRECTORY PENSTOCK. Exits 77 if a module is missing.
"""
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile

SKIPPED = 77
MISSING = [name for name in ("numpy", "PIL", "zmq") if importlib.util.find_spec(name) is None]


def check(condition, text):
    if not condition:
        sys.exit(f"failed: {text}")


def measure(source, penstock, folder, loaders, limit):
    """The script's exit code, its output, and its JSON."""
    out = os.path.join(folder, "result.json")
    child = subprocess.run(
        [sys.executable, os.path.join(source, "bench", "peers", "loader_peers.py"), penstock, sys.executable,
         "--work", folder, "--images", "24", "--cores", "1", "--batch", "8", "--rounds", "1", "--seconds", "0.1",
         "--warmup", "0.1", "--limit", str(limit), "--json", out, "--loaders", *loaders],
        capture_output=True, text=True, check=False)
    check(os.path.exists(out), child.stderr)
    with open(out, encoding="utf-8") as file:
        return child.returncode, child.stdout, json.load(file)


def crops(source):
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(source, "bench", "peers", "loaders"))
    import common
    draw = random.Random(1)
    for size in ((500, 375), (1, 1), (3, 900), (900, 3), (224, 224)):
        for _ in range(500):
            left, top, width, height = common.random_resized_crop(*size, draw)
            check(width >= 1 and height >= 1 and 0 <= left <= size[0] - width and 0 <= top <= size[1] - height,
                  f"a crop of {size} is {(left, top, width, height)}")
            if size == (500, 375):
                check(0.07 < width * height / (500 * 375) <= 1 and 0.73 < width / height < 1.36,
                      f"a crop is {width}x{height}")


def main():
    if MISSING:
        print("skipped: this Python has no " + ", ".join(MISSING))
        return SKIPPED
    source, penstock = sys.argv[1:]
    crops(source)
    with tempfile.TemporaryDirectory() as folder:
        loaders = ["penstock:colour=red", "no-such-loader", "penstock", "penstock:decode=full",
                   "penstock:upsampling=plain"]
        code, text, result = measure(source, penstock, folder, loaders, 60)
        check(code == 0, text)
        check("no option" in result["failed"]["penstock:colour=red"], result["failed"])
        check("no loader" in result["failed"]["no-such-loader"], result["failed"])
        check(list(result["failed"]) == loaders[:2], result["failed"])
        for loader in loaders[2:]:
            rates = result["img_per_s"]["1"][loader]
            check(len(rates) == 1 and rates[0] > 0, rates)
        usual, whole, plain = (result["loaders"][loader]["difference"] for loader in loaders[2:])
        for difference in (usual["1.5x"], whole["1.5x"], whole["3x"]):
            check(difference["mean"] < 0.5 and difference["max"] <= 2, difference)
        check(plain["1.5x"]["mean"] > usual["1.5x"]["mean"], f"plain upsampling does not show: {plain}, {usual}")
        check("| penstock:colour=red | not measured: " in text and "| penstock:decode=full | " in text, text)

        code, text, result = measure(source, penstock, folder, ["penstock"], 0.01)
        check(code == 1 and "took longer than 0.01 s" in result["failed"]["penstock"], (code, text))
    print("1 passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
