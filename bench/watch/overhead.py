#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what `penstock watch` adds to a step: a loop over ready batches, with and without it.

Usage: overhead.py [STEPS]. Needs no package. Both loops run in turns, five times. Prints the median
difference.
"""
import os
import pathlib
import statistics
import sys
import tempfile
import time

os.environ["PENSTOCK_WATCH_DIR"] = tempfile.mkdtemp(prefix="penstock-overhead-")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from penstock_bench import watching  # noqa: E402


class Batch:
    """As a tensor, as far as its shape is concerned."""

    shape = (64, 3, 224, 224)


def seconds(batches):
    begin = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - begin


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200000
    batches = [(Batch(), None)] * steps
    added = []
    for _ in range(5):
        plain = seconds(batches)
        added.append(1e6 * (seconds(watching.watch(batches)) - plain) / steps)
    watching.LOG.loops.clear()
    folder = pathlib.Path(os.environ["PENSTOCK_WATCH_DIR"])
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    print(f"watching adds {statistics.median(added):.2f} us to a step, writing included "
          f"({min(added):.2f} to {max(added):.2f} in {len(added)} rounds of {steps} steps)")


if __name__ == "__main__":
    main()
