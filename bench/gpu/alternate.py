# SPDX-License-Identifier: Apache-2.0
"""Measures Penstock and PyTorch's best variant on one GPU in turns: medians, spread, and the median ratio of a turn.

Exits with 124 if time runs out before the last turn; another call with the same --json takes the remaining turns.

Usage: alternate.py --penstock COMMAND [--variants FILE] [--batch 256] ... (see --help)
"""
import argparse
import contextlib
import json
import os
import select
import shlex
import statistics
import subprocess
import sys
import time

OUT_OF_TIME = 124  # the exit code if turns remain for another call
PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers", "pytorch_gpu.py")


def variants(path):
    """Precision and mode of the measured variants, the fastest first; eager fp16 if none was measured."""
    try:
        with open(path) as file:
            rated = [row for row in json.load(file) if "img_per_s" in row]
    except (OSError, TypeError, ValueError):
        rated = []
    rated.sort(key=lambda row: -row["img_per_s"])
    return [[row["precision"], row["mode"]] for row in rated] or [["fp16", "eager"]]


class Peer:
    def __init__(self, arguments, precision, mode):
        self.seconds, self.said = arguments.turn_seconds, b""
        command = shlex.split(arguments.peer) + ["serve", "--mode", mode, "--precisions", precision,
                   "--batch", str(arguments.batch), "--image-size", str(arguments.image_size), "--model", arguments.model,
                   "--steps", str(arguments.steps), "--warmup", str(arguments.warmup),
                   "--device", "cpu" if arguments.device == "cpu" else "cuda"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        try:
            self.answer(arguments.start_seconds)
        except BaseException:
            self.end()
            raise

    def line(self, deadline):
        while b"\n" not in self.said:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise TimeoutError("PyTorch gave no answer in time")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise RuntimeError(f"PyTorch ended with {self.process.wait()}")
            self.said += more
        line, self.said = self.said.split(b"\n", 1)
        return line

    def answer(self, seconds):
        deadline = time.monotonic() + seconds
        while True:
            line = self.line(deadline)
            if line.startswith(b"{"):  # libraries may print other lines
                return json.loads(line)

    def turn(self):
        with contextlib.suppress(BrokenPipeError):  # if it has ended, reading its answer reports that
            self.process.stdin.write(b"\n")
        return self.answer(self.seconds)["img_per_s"]

    def end(self):
        self.process.kill()
        self.process.wait()


def penstock_turn(arguments):
    command = shlex.split(arguments.penstock) + [
        "run", "--json", "--device", arguments.device, "--model", arguments.model, "--precision", arguments.precision,
        "--fake-location", "gpu", "--batch-size", str(arguments.batch), "--image-size", str(arguments.image_size),
        "--optimizer", "momentum:nesterov=false", "--num-batches", str(arguments.steps),
        "--num-warmup-batches", str(arguments.warmup)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=arguments.turn_seconds)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"penstock run did not end in {arguments.turn_seconds:.0f} s") from None
    if done.returncode != 0:
        raise RuntimeError(f"penstock run exits with {done.returncode}: {' '.join(done.stderr.split())[-300:]}")
    return json.loads(done.stdout)["img_per_s"]


def summary(rates):
    return {"median": statistics.median(rates), "lowest": min(rates), "highest": max(rates)}


def text_of(name, rates):
    return f"{name} {rates['median']:.1f} img/s ({rates['lowest']:.1f} to {rates['highest']:.1f})"


def start_peer(arguments, selected):
    """PyTorch in the first of these variants that starts in time."""
    for precision, mode in selected:
        try:
            return Peer(arguments, precision, mode), [precision, mode]
        except (RuntimeError, TimeoutError) as error:
            problem = error
            print(f"PyTorch {precision} {mode} does not start: {error}", flush=True)
    raise problem


def earlier_result(arguments):
    """The turns of an earlier call, and the peer that took them."""
    try:
        with open(arguments.json) as file:
            result = json.load(file)
        return result["turns"], result["peer"]
    except (OSError, TypeError, ValueError, KeyError):
        return [], None


def write(arguments, turns, peer, problem):
    result = {"batch": arguments.batch, "peer": peer, "turns": turns, "problem": problem}
    if turns:
        result["penstock"], result["pytorch"] = (summary(rates) for rates in zip(*turns))
        result["ratio"] = statistics.median(ours / theirs for ours, theirs in turns)
    if arguments.json:
        with open(arguments.json + ".new", "w") as file:
            json.dump(result, file)
        os.replace(arguments.json + ".new", arguments.json)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", required=True, help="Penstock's command, with its first arguments")
    parser.add_argument("--peer", default=shlex.join([sys.executable, PEER]), help="the peer's command, with its first arguments")
    parser.add_argument("--variants", help="file of `pytorch_gpu.py variants`; the peer is the best that starts in time")
    parser.add_argument("--device", default="gpu", help="Penstock's device; with cpu, PyTorch uses the CPU, too")
    parser.add_argument("--model", default="resnet50_v1.5")
    parser.add_argument("--precision", default="fp16", help="Penstock's precision")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=100, help="seconds after which no turn begins")
    parser.add_argument("--turn-seconds", type=float, default=40, help="time limit of one turn, in seconds")
    parser.add_argument("--start-seconds", type=float, default=60, help="time limit of PyTorch's start, in seconds")
    parser.add_argument("--json", help="file for the results, written after each turn; existing turns are kept")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    turns, variant = earlier_result(arguments)
    problem = peer = None
    try:
        if len(turns) < arguments.rounds:
            penstock_turn(arguments)  # chooses engines if none are saved; this turn is not counted
            selected = variants(arguments.variants) if variant is None else [variant]
            peer, variant = start_peer(arguments, selected)
        while len(turns) < arguments.rounds and time.monotonic() < deadline:
            turns.append([penstock_turn(arguments), peer.turn()])
            write(arguments, turns, variant, None)
    except (RuntimeError, TimeoutError, OSError) as error:
        problem = str(error)
    finally:
        if peer is not None:
            peer.end()
    result = write(arguments, turns, variant, problem)
    if turns:
        print(text_of(f"batch {arguments.batch}: Penstock {arguments.precision}", result["penstock"]))
        print(text_of(f"batch {arguments.batch}: PyTorch {' '.join(variant)}", result["pytorch"])
              + f"; Penstock is {result['ratio']:.3f} times as fast, median of {len(turns)} turns")
    if problem:
        print(f"ended early: {problem}")
    if problem or not turns:
        return 1
    return 0 if len(turns) >= arguments.rounds else OUT_OF_TIME


if __name__ == "__main__":
    sys.exit(main())
