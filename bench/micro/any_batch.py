#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The copy of a batch that is no image against a bare loop that copies its arrays into prepared ones, in turns.

Usage: PYTHON any_batch.py, with the interpreter of an environment that has PyTorch. Prints the median time of both, and of the ratio.
"""
import pathlib
import statistics
import time

import numpy as np
import torch

FEEDER = pathlib.Path(__file__).parents[2] / "feeders" / "python"
ROUNDS, COPIES = 30, 50


def feeder():
    """The names of the loader's program."""
    parts = ("loading_profile.py", "worker_times.py", "loader_traits.py", "any_batch.py", "feed_loader.py")
    names = {"__name__": "feeder"}
    exec(compile("".join((FEEDER / part).read_text() for part in parts), "feeder", "exec"), names)  # pylint: disable=exec-used
    return names


def time_of(copy):
    begin = time.perf_counter()
    for number in range(COPIES):
        copy(number)
    return 1e6 * (time.perf_counter() - begin) / COPIES


def compare(names, what, batch, bare):
    layout = names["AnyLayout"](batch, "1")
    layout.prepare(names["Pool"](layout, 1, layout.bytes))
    pairs = [(time_of(lambda number: layout.put(0, batch, number)), time_of(lambda _: bare())) for _ in range(ROUNDS)]
    ours, loop = (statistics.median(column) for column in zip(*pairs))
    ratios = sorted(mine / its for mine, its in pairs)
    print(f"| {what} | {ours:.0f} | {loop:.0f} | {statistics.median(ratios):.2f} ({ratios[3]:.2f} to {ratios[-4]:.2f}) |")


def main():
    torch.set_num_threads(1)
    names = feeder()
    arrays = [np.full((16, 8), i, np.float32) for i in range(100)]
    tensors = [torch.full((16, 8), float(i)) for i in range(100)]
    array_copies, tensor_copies = [np.empty_like(one) for one in arrays], [torch.empty_like(one) for one in tensors]
    large, tensor = np.ones(9_600_000, np.uint8), torch.ones(10_000_000)
    large_copy, tensor_copy = np.empty_like(large), torch.empty_like(tensor)

    def copy_arrays():
        for copy, one in zip(array_copies, arrays):
            np.copyto(copy, one)

    def copy_tensors():
        for copy, one in zip(tensor_copies, tensors):
            copy.copy_(one)

    print("| batch | us | bare loop us | ratio (10 to 90 %) |\n|---|---|---|---|")
    compare(names, "100 NumPy arrays of 512 bytes", {"x": arrays}, copy_arrays)
    compare(names, "100 tensors of 512 bytes", {f"{i}": one for i, one in enumerate(tensors)}, copy_tensors)
    compare(names, "a NumPy array of 9.6 MB", {"x": large}, lambda: np.copyto(large_copy, large))
    compare(names, "a tensor of 40 MB", {"x": tensor}, lambda: tensor_copy.copy_(tensor))


main()
