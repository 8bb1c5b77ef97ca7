#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings with PyTorch on the CPU: do `penstock watch` and `isolate --from-watch` of its record say the same about their input?

Usage: trainings_test.py PENSTOCK VENV [LOADER...]

A small convolutional network trains with loaders of training_loops.py, and reads the loss of each step. `watch` says how much of
its time it waited for input; `isolate` runs the same loader before a device of the recorded steps, and says what input costs. Fails
if the two differ by more than 5 points, unless the interval of `isolate` reaches the share. Needs a machine that is otherwise idle.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LOADERS = "jpeg_without_workers zipped jpeg restarts bursts".split()
STEPS, POINTS = 64, 5


def train(name):
    sys.path.insert(0, str(HERE))
    import torch
    import training_loops

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3, stride=2),
                                torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader, steps = getattr(training_loops, name)(), 0
    while steps < STEPS:
        for images, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images.float() / 255), labels)
            loss.backward()
            optimizer.step()
            print(steps, loss.item())
            steps += 1
            if steps == STEPS:
                break


def compare(penstock, python, name, folder):
    """The share that `watch` says, and the cost with its interval that `isolate` says; per cent."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    watched, answer = f"{folder}/{name}", f"{folder}/{name}.answer"
    subprocess.run([penstock, "watch", "--out", watched, "--", python, __file__, "--train", name], check=True, **quiet)
    subprocess.run([penstock, "isolate", "--loader", f"{HERE}/training_loops.py:{name}", "--python", python, "--from-watch", watched,
                    "--budget", "60s", "--out", answer], check=False, **quiet)
    share = json.loads(pathlib.Path(watched, "watch.json").read_text())["ranks"][0]["loops"][0]["waited_percent_with_edges"]
    return share, json.loads(pathlib.Path(answer, "isolation.json").read_text())["cost"]["percent"]


def main():
    if sys.argv[1] == "--train":
        train(sys.argv[2])
        return
    penstock, venv, *names = sys.argv[1:]
    python = os.path.join(venv, "bin", "python")
    has_all = os.path.exists(python) and subprocess.run([python, "-c", "import torch, PIL"], stderr=subprocess.DEVNULL,
                                                        check=False).returncode == 0
    if not has_all:
        print(f"skipped: no torch and pillow in {venv}; run `make interop`")
        sys.exit(77)
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PENSTOCK_LOOPS"] = folder
        for name in names or LOADERS:
            share, cost = compare(penstock, python, name, folder)
            agrees = abs(share - cost["value"]) <= POINTS or cost["low"] <= share <= cost["high"]
            bad += not agrees
            print(f"{name:22s} watch {share:5.1f} %   isolate {cost['value']:5.1f} % [{cost['low']:.1f}, {cost['high']:.1f}]"
                  f"{'' if agrees else '   differ'}", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
