#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ResNet-50's training step on the cores of this machine: Penstock and PyTorch, in turns.

Each turn is a separate process. Prints, for each precision, the median img/s of every program with
the lowest and highest turn, peak resident memory, and the median of the ratios of neighbouring turns.

PyTorch runs with its fastest known settings: channels_last, bf16 by autocast, and an allocator that keeps
its pages (--preload, e.g. libtcmalloc_minimal.so.4).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile


def run(command, environment):
    """Standard output and peak resident bytes of one process."""
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL,
                                 env={**os.environ, **environment})
        _, status, usage = os.wait4(child.pid, 0)
        if status != 0:
            sys.exit(f"failed: {' '.join(command)}")
        output.seek(0)
        return output.read(), usage.ru_maxrss * 1024


def penstock(arguments, precision, device):
    text, peak = run([arguments.penstock, "run", "--json", f"--device={device}", "--model", arguments.model,
                      f"--precision={precision}", f"--batch-size={arguments.batch}",
                      f"--num-batches={arguments.steps}", f"--num-warmup-batches={arguments.warmup}",
                      f"--compute-threads={arguments.threads}", "--optimizer=momentum:nesterov=false"], {})
    step_ms = json.loads(text)["step_ms"]
    return arguments.batch / statistics.median(step_ms) * 1e3, peak


def pytorch(arguments, precision):
    environment = {"CUDA_VISIBLE_DEVICES": ""}
    if arguments.preload:
        environment["LD_PRELOAD"] = arguments.preload
    peer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pytorch_trainer.py")
    text, peak = run([arguments.python, peer, "--model", arguments.model, "--precision", precision,
                      "--batch", str(arguments.batch), "--threads", str(arguments.threads),
                      "--steps", str(arguments.steps), "--warmup", str(arguments.warmup),
                      "--channels-last"], environment)
    return json.loads(text)["img_per_s_median"], peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("penstock", help="the program")
    parser.add_argument("python", help="a Python that has PyTorch")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--preload", default="", help="a library for PyTorch's LD_PRELOAD")
    arguments = parser.parse_args()

    print("| precision | program | img/s (lowest to highest turn) | peak memory | ratio to PyTorch |\n|---|---|---|---|---|")
    for precision in arguments.precisions.split(","):
        programs = {"PyTorch": lambda: pytorch(arguments, precision),
                    "Penstock": lambda: penstock(arguments, precision, "cpu")}
        if precision == "fp32":
            programs["Penstock, direct convolutions"] = (
                lambda: penstock(arguments, precision, "cpu:winograd=false"))
        turns = {name: [] for name in programs}
        for _ in range(arguments.rounds):
            for name, program in programs.items():
                turns[name].append(program())
        for name, results in turns.items():
            rates = [rate for rate, _ in results]
            ratio = statistics.median(rate / peer for rate, (peer, _) in zip(rates, turns["PyTorch"]))
            peak = max(peak for _, peak in results) / 2**30
            print(f"| {precision} | {name} | {statistics.median(rates):.2f} ({min(rates):.2f} to {max(rates):.2f}) "
                  f"| {peak:.2f} GiB | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
