# SPDX-License-Identifier: Apache-2.0
"""Batches from one worker of PyTorch's DataLoader: the worker collates them into shared memory, and this process
copies them once into recycled tensors. Prints the results as a line of JSON.

Usage: torch_loader.py - BATCH IMAGE PREFETCH SLOTS SECONDS
"""
import os
import sys

import torch

from window import Window


class Constant(torch.utils.data.IterableDataset):
    """Always the same image, so that only the transport of the batch is measured."""

    def __init__(self, image):
        self.sample = (torch.randint(0, 256, (image, image, 3), dtype=torch.uint8), 7)

    def __iter__(self):
        while True:
            yield self.sample


def main():
    batch, image, prefetch, slots, seconds = sys.argv[2:]
    batch, image, prefetch, slots = int(batch), int(image), int(prefetch), int(slots)
    torch.set_num_threads(1)
    loader = iter(torch.utils.data.DataLoader(Constant(image), batch_size=batch, num_workers=1,
                                              prefetch_factor=prefetch))
    recycled = [torch.ones((batch, image, image, 3), dtype=torch.uint8) for _ in range(slots)]
    window = Window(3 * prefetch + 10, float(seconds), others=[worker.pid for worker in loader._workers])
    turn = 0
    for images, _ in loader:
        recycled[turn % slots].copy_(images)
        turn += 1
        if not window.lap():
            break
    window.show(versions={"torch": torch.__version__})
    sys.stdout.flush()
    os._exit(0)  # skips the loader's shutdown, which waits for its worker


if __name__ == "__main__":
    main()
