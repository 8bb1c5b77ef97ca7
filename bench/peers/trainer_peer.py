#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ResNet-50's training step on the cores of this machine: Penstock and PyTorch, in pairs of turns.

A pair is one turn of PyTorch and, right behind it, one of each variant of Penstock; each turn is a separate
process. A pair counts if no turn's halves differ by more than 10 per cent: then the machine kept its speed.
Other pairs are repeated and counted. Prints both engines with their instruction sets, then for each precision
the median img/s of every program with the lowest and highest turn, peak resident memory, and the median of the
ratios of the pairs with its 95 per cent interval. There is no ratio if the interval includes 1. On a machine that never
keeps its speed, pairs that drift are kept after --most-repeated others, and counted.

PyTorch runs with its fastest known settings: channels_last, bf16 by autocast, and an allocator that keeps
its pages (--preload, e.g. libtcmalloc_minimal.so.4).
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

LARGEST_DRIFT = 0.1


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


class Turn:
    """One process: the milliseconds of its steps, its peak memory, and what it computes with."""

    def __init__(self, step_ms, peak, engine, batch):
        self.rate = batch / statistics.median(step_ms) * 1e3
        self.peak = peak
        self.engine = engine
        half = len(step_ms) // 2
        first, second = statistics.median(step_ms[:half]), statistics.median(step_ms[half:])
        self.drifts = abs(first - second) > LARGEST_DRIFT * min(first, second)


def penstock(arguments, precision, device):
    text, peak = run([arguments.penstock, "run", "--json", f"--device={device}", "--model", arguments.model,
                      f"--precision={precision}", f"--batch-size={arguments.batch}",
                      f"--num-batches={arguments.steps}", f"--num-warmup-batches={arguments.warmup}",
                      f"--compute-threads={arguments.threads}", "--optimizer=momentum"], {})
    result = json.loads(text)
    engines = [note for note in result["notes"] if "computes with" in note]
    return Turn(result["step_ms"], peak, engines[0].split("computes with ")[1], arguments.batch)


def pytorch(arguments, precision):
    environment = {"CUDA_VISIBLE_DEVICES": ""}
    if arguments.preload:
        environment["LD_PRELOAD"] = arguments.preload
    peer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pytorch_trainer.py")
    text, peak = run([arguments.python, peer, "--model", arguments.model, "--precision", precision,
                      "--batch", str(arguments.batch), "--threads", str(arguments.threads),
                      "--steps", str(arguments.steps), "--warmup", str(arguments.warmup),
                      "--channels-last"], environment)
    result = json.loads(text)
    engine = f"PyTorch {result['torch']}: oneDNN {result['onednn']}, ATen with {result['aten_cpu_capability']}"
    return Turn(result["step_ms"], peak, engine, arguments.batch)


def median_interval(values):
    """A 95 per cent interval of the median, by the order of the values."""
    ordered, below = sorted(values), 0.0
    for rank in range(len(ordered) // 2):
        below += math.comb(len(ordered), rank) / 2 ** len(ordered)
        if below > 0.025:
            return ordered[rank - 1 if rank else 0], ordered[-rank if rank else -1]
    return ordered[0], ordered[-1]


def ratio_text(ratios):
    fewest = 6  # of fewer values, no interval has 95 per cent
    if len(ratios) < fewest:
        return f"{statistics.median(ratios):.2f} in {len(ratios)} pairs"
    low, high = median_interval(ratios)
    if low <= 1 <= high:
        return f"no difference found ({low:.2f} to {high:.2f})"
    return f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})"


def measure(arguments, programs):
    """The pairs that count, by program, and the number of the others."""
    turns, repeated = {name: [] for name in programs}, 0
    while len(turns["PyTorch"]) < arguments.pairs:
        pair = {name: program() for name, program in programs.items()}
        print("  " + ", ".join(f"{name} {turn.rate:.2f}{' (drifts)' if turn.drifts else ''}"
                               for name, turn in pair.items()), file=sys.stderr, flush=True)
        if any(turn.drifts for turn in pair.values()) and repeated < arguments.most_repeated:
            repeated += 1
            continue
        for name, turn in pair.items():
            turns[name].append(turn)
    return turns, repeated


def describe_cpu():
    """The name of the CPU, and the instruction sets that matter here."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        fields = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    sets = [flag for flag in fields.get("flags", "").split() if flag.startswith(("amx", "avx512_", "avx512f"))]
    return f"{fields.get('model name', 'unknown CPU')}: {' '.join(sets) or 'neither AVX-512 nor AMX'}"


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
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--most-repeated", type=int, default=12, help="most pairs to repeat")
    parser.add_argument("--preload", default="", help="a library for PyTorch's LD_PRELOAD")
    arguments = parser.parse_args()

    print(describe_cpu())
    rows = []
    for precision in arguments.precisions.split(","):
        programs = {"PyTorch": lambda: pytorch(arguments, precision),
                    "Penstock": lambda: penstock(arguments, precision, "cpu")}
        if precision == "fp32":
            programs["Penstock, direct convolutions"] = (
                lambda: penstock(arguments, precision, "cpu:winograd=false"))
        turns, repeated = measure(arguments, programs)
        for name, results in turns.items():
            rates = [turn.rate for turn in results]
            ratios = [turn.rate / peer.rate for turn, peer in zip(results, turns["PyTorch"])]
            peak = max(turn.peak for turn in results) / 2**30
            rows.append(f"| {precision} | {name} | {statistics.median(rates):.2f} ({min(rates):.2f} to {max(rates):.2f}) "
                        f"| {peak:.2f} GiB | {'1' if name == 'PyTorch' else ratio_text(ratios)} |")
        kept = sum(any(turn.drifts for turn in pair) for pair in zip(*turns.values()))
        print(f"{precision}: {arguments.pairs} pairs count, {kept} of which drifted; {repeated} others drifted and were repeated")
        for engine in dict.fromkeys(results[0].engine for results in turns.values()):
            print(f"{precision}: {engine}")
    print("\n| precision | program | img/s (lowest to highest turn) | peak memory | ratio to PyTorch (95 % interval) |\n"
          "|---|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
