#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plain training loops against `penstock run --loader`, in turns: does the run train as many images a second?

Usage: training_loops_test.py PENSTOCK VENV [LOADER...] [--rounds N] [--loops sync,async,ahead=4]

A clock beside the loop plays the device: a step of a batch takes BATCH / RATE seconds, and begins when the batch is there and the
step before it has ended. Fails if the median ratio of a loader and a loop (training_loops.py) is outside 0.9 to 1.1. The loops need
a machine that is otherwise idle.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
RATE, STEPS = 800, 60
AHEAD = {"sync": 0, "async": 1}
MODULES = {"tfdata": "tensorflow", "webdataset": "webdataset", "huggingface": "datasets", "dali": "nvidia.dali", "jpeg": "PIL",
           "jpeg_without_workers": "PIL"}
LOADERS = ("no_workers generator restarts bursts deep_bursts locked jpeg jpeg_without_workers tokens zipped raw_files json_lines "
           "sqlite_rows augmented gzip_pickles csv_rows tfdata webdataset huggingface dali").split()


def plain(name, loop):
    """img/s of a plain loop from the end of its first step over STEPS further ones. Runs in the interpreter of the environment."""
    sys.path.insert(0, str(HERE))
    import training_loops

    ahead = AHEAD[loop] if loop in AHEAD else int(loop.partition("=")[2])
    loader, unfinished = getattr(training_loops, name)(), collections.deque()
    ended, first, steps = 0.0, None, 0
    while True:
        before = steps
        for _ in loader:
            ended = max(time.perf_counter(), ended) + training_loops.BATCH / RATE
            unfinished.append(ended)
            first = first or ended
            steps += 1
            if steps > STEPS:
                return training_loops.BATCH * STEPS / (ended - first)
            while len(unfinished) > ahead:
                time.sleep(max(0.0, unfinished.popleft() - time.perf_counter()))
        if steps == before:  # an iterator that yields once
            loader = getattr(training_loops, name)()


def harness(penstock, python, name, loop):
    command = [penstock, "run", "--json", "--loader", f"{HERE}/training_loops.py:{name}", "--python", python, "--loop", loop, "--device",
               f"emulated:img_per_s={RATE}", "--num-warmup-batches", "1", "--num-batches", str(STEPS)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)["img_per_s"]


def main():
    if sys.argv[1] == "--plain":
        print(plain(*sys.argv[2:4]))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("penstock")
    parser.add_argument("venv", type=pathlib.Path)
    parser.add_argument("loaders", nargs="*", default=LOADERS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--loops", default="sync,async,ahead=4")
    given = parser.parse_args()
    python = str(given.venv / "bin" / "python")

    def has(module):
        return subprocess.run([python, "-c", f"import {module}"], stderr=subprocess.DEVNULL, check=False).returncode == 0

    if not os.path.exists(python) or not has("torch"):
        print(f"skipped: no torch in {given.venv}; run `make interop`")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"PENSTOCK_LOOPS": folder, "PENSTOCK_DATA": f"{folder}/train"}
        subprocess.run([given.penstock, "dataset", "make", "--data-dir", folder, "--images", "256", "--val-images", "8", "--classes", "4",
                        "--brief"], check=True)
        bad = 0
        for name in given.loaders:
            if not has(MODULES.get(name, "torch")):
                print(f"{name:22s} left out: no {MODULES[name]}", flush=True)
                continue
            for loop in given.loops.split(","):
                pairs = []
                for _ in range(given.rounds):
                    done = subprocess.run([python, __file__, "--plain", name, loop], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                          check=True)
                    pairs.append((float(done.stdout.split()[-1]), harness(given.penstock, python, name, loop)))
                ratio = sorted(run / alone for alone, run in pairs)[len(pairs) // 2]
                bad += not 0.9 <= ratio <= 1.1
                print(f"{name:22s} {loop:8s} loop {' '.join(f'{alone:.0f}' for alone, _ in pairs):9s} "
                      f"run {' '.join(f'{run:.0f}' for _, run in pairs):9s} ratio {ratio:.2f}", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
