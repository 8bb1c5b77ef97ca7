#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `penstock isolate` on cases whose costs are known, and prints the found costs as Markdown.

Usage: known_answers.py PENSTOCK DATA_DIR [BUDGET]. Each case runs for BUDGET (default 30s); keep the machine
idle meanwhile. Exits 1 if a known cost is more than one percentage point outside the found interval, if
another part of the step grew, or if another stage is blamed.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

BATCH = 64
BATCH_GB = BATCH * (224 * 224 * 3 + 4) * 1e-9


def cost_percent(ceiling, rate):
    return 100 * (1 - rate / ceiling)


def cases(program):
    """Name, flags, device's img/s, expected cost in per cent, the part of the step that grows, and the stage to blame."""
    serve = f"producer='{program} serve --endpoint ipc://known --fake-location host --img-per-s 500'"
    copy = ["--fake-location", "host", "--device", "emulated:img_per_s=1000,copy_gb_per_s=0.1"]
    slow_decode = "queue:decode=raw,extra_us=2000,source=memory:limit=64MiB"
    yield ("a loader of 500 img/s", ["--fake-location", "host:img_per_s=500", "--device", "emulated:img_per_s=1000"],
           cost_percent(1000, 500), "starvation", None)
    yield ("a loader faster than the device", ["--fake-location", "host:img_per_s=1500", "--device", "emulated:img_per_s=1000"],
           0, None, None)
    yield ("a producer of 500 img/s over ZeroMQ",
           ["--fake-location", f"zmq-consume:endpoint=ipc://known,{serve}", "--device", "emulated:img_per_s=900"],
           cost_percent(900, 500), "starvation", "produce")
    yield ("2,000 us more for each image in one decoding thread",
           ["--fake-location", slow_decode, "--feeder-threads", "1", "--device", "emulated:img_per_s=900"],
           cost_percent(900, 500), "starvation", "decode")
    yield ("a copy engine of 0.1 GB/s", copy, cost_percent(1 / BATCH * 1000, 0.1 / BATCH_GB), "transfer", "copy")


def isolate(program, data, budget, flags, out):
    command = [program, "isolate", "--data-dir", data, "--batch-size", str(BATCH), "--budget", budget, "--out", str(out)]
    done = subprocess.run(command + flags, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, 7):
        sys.exit(f"{' '.join(command + flags)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads((out / "isolation.json").read_text())


def main():
    program, data = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2]
    budget = sys.argv[3] if len(sys.argv) > 3 else "30s"
    wrong = 0
    print("| known | cost %, expected | found (95 % interval) | blocks | most of it | blamed | right |")
    print("|---|---|---|---|---|---|---|")
    for name, flags, expected, part, stage in cases(program):
        with tempfile.TemporaryDirectory() as folder:
            found = isolate(program, data, budget, flags, pathlib.Path(folder))
        cost = found["cost"]
        percent = {key: value if value is not None else (-math.inf if key == "low" else math.inf)
                   for key, value in cost["percent"].items()}  # null: no bound
        split = {key: cost["split"][f"{key}_ms"]["value"] for key in ("starvation", "transfer", "interference")}
        largest = max(split, key=split.get) if percent["value"] > 1 else None
        blamed = found["stages"][found["bottleneck"]]["name"] if found.get("bottleneck") is not None else None
        right = (percent["low"] - 1 <= expected <= percent["high"] + 1 and largest == part
                 and blamed == stage)
        wrong += not right
        print(f"| {name} | {expected:.1f} | {percent['value']:.2f} ({percent['low']:.2f} to {percent['high']:.2f}) "
              f"| {found['blocks']} | {largest or '-'} | {blamed or '-'} | {'yes' if right else 'NO'} |", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
