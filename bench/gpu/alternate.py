# SPDX-License-Identifier: Apache-2.0
"""Penstock and PyTorch's best variant on one GPU, taking turns: medians, spread, and the ratio of turns.

Usage: alternate.py --penstock COMMAND [--variants FILE] [--batch 256] ... (see --help)
"""
import argparse
import json
import os
import select
import shlex
import statistics
import subprocess
import sys
import time

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers", "pytorch_gpu.py")


def best_variant(path):
    """Precision and mode of the fastest that was measured; eager fp16 where nothing was."""
    try:
        with open(path) as file:
            rated = [row for row in json.load(file) if "img_per_s" in row]
        best = max(rated, key=lambda row: row["img_per_s"])
        return best["precision"], best["mode"]
    except (OSError, TypeError, ValueError):
        return "fp16", "eager"


class Peer:
    def __init__(self, arguments, precision, mode, deadline):
        self.deadline = deadline
        command = [sys.executable, PEER, "serve", "--mode", mode, "--precisions", precision,
                   "--batch", str(arguments.batch), "--image-size", str(arguments.image_size), "--model", arguments.model,
                   "--steps", str(arguments.steps), "--warmup", str(arguments.warmup),
                   "--device", "cpu" if arguments.device == "cpu" else "cuda"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.said = b""
        self.answer()

    def line(self):
        while b"\n" not in self.said:
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise TimeoutError("PyTorch gave no answer in time")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise RuntimeError(f"PyTorch ended with {self.process.wait()}")
            self.said += more
        line, self.said = self.said.split(b"\n", 1)
        return line

    def answer(self):
        while True:
            line = self.line()
            if line.startswith(b"{"):  # libraries may print, too
                return json.loads(line)

    def turn(self):
        self.process.stdin.write(b"\n")
        return self.answer()["img_per_s"]

    def end(self):
        self.process.kill()
        self.process.wait()


def penstock_turn(arguments):
    command = shlex.split(arguments.penstock) + [
        "run", "--json", "--device", arguments.device, "--model", arguments.model, "--precision", arguments.precision,
        "--fake-location", "gpu", "--batch-size", str(arguments.batch), "--image-size", str(arguments.image_size),
        "--optimizer", "momentum:nesterov=false", "--num-batches", str(arguments.steps),
        "--num-warmup-batches", str(arguments.warmup)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"penstock run exits with {done.returncode}: {' '.join(done.stderr.split())[-300:]}")
    return json.loads(done.stdout)["img_per_s"]


def summary(rates):
    return {"median": statistics.median(rates), "lowest": min(rates), "highest": max(rates), "turns": rates}


def text_of(name, rates):
    return f"{name} {rates['median']:.1f} img/s ({rates['lowest']:.1f} to {rates['highest']:.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", required=True, help="the program, with its first words")
    parser.add_argument("--variants", help="what pytorch_gpu.py variants wrote: the best of it is the peer")
    parser.add_argument("--device", default="gpu", help="Penstock's; cpu: PyTorch's, too")
    parser.add_argument("--model", default="resnet50_v1.5")
    parser.add_argument("--precision", default="fp16", help="Penstock's")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=100, help="after which no turn begins")
    parser.add_argument("--json", help="file that gets the results")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    precision, mode = best_variant(arguments.variants)
    ours, theirs, problem, peer = [], [], None, None
    try:
        ours.append(penstock_turn(arguments))  # chooses engines where none are kept; does not count
        peer = Peer(arguments, precision, mode, deadline)
        ours.clear()
        while len(theirs) < arguments.rounds and time.monotonic() < deadline:
            ours.append(penstock_turn(arguments))
            theirs.append(peer.turn())
    except (RuntimeError, TimeoutError, OSError) as error:
        problem = str(error)
    finally:
        if peer is not None:
            peer.end()
    result = {"batch": arguments.batch, "peer": [precision, mode], "problem": problem}
    if ours:
        result["penstock"] = summary(ours)
        print(text_of(f"batch {arguments.batch}: Penstock {arguments.precision}", result["penstock"]))
    if theirs:
        result["pytorch"] = summary(theirs)
        result["ratio"] = statistics.median(a / b for a, b in zip(ours, theirs))
        print(text_of(f"batch {arguments.batch}: PyTorch {precision} {mode}", result["pytorch"])
              + f"; Penstock is {result['ratio']:.3f} times as fast, median of {len(theirs)} turns")
    if problem:
        print(f"ended early: {problem}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(result, file)
    return 0 if theirs and problem is None else 1


if __name__ == "__main__":
    sys.exit(main())
