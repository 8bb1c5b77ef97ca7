# SPDX-License-Identifier: Apache-2.0
"""A loader that spends a known time on each batch: a known answer for `penstock isolate --loader`. Needs no package."""
import array
import os
import time


def make_loader(images=64, size=224, ms=10.0, batches=100):
    """`batches` batches of `images` images per epoch; each takes `ms` milliseconds of processor time."""
    pixels = memoryview(os.urandom(images * size * size * 3)).cast("B", (images, size, size, 3))
    labels = array.array("i", (i % 10 for i in range(images)))

    def epoch():
        for _ in range(batches):
            end = time.thread_time() + ms / 1000
            while time.thread_time() < end:
                pass
            yield pixels, labels

    return epoch()
