# SPDX-License-Identifier: Apache-2.0
"""A loader with planted problems, for improve.py: samples are loaded between two steps, and each opens its file again. Two of its
settings do not help: one changes nothing, one costs time. Needs no package."""
import concurrent.futures
import time

SAMPLES, BATCH, LENGTH = 4000, 16, 256
SAMPLE_S, OPEN_S, CHECK_S = 0.0005, 0.0015, 0.001


def load(_, reopen, check):
    time.sleep(SAMPLE_S + (OPEN_S if reopen else 0) + (CHECK_S if check else 0))  # as from a network


class Loader:
    def __init__(self, **settings):
        self.settings = settings

    def __len__(self):
        return SAMPLES // BATCH

    def batch(self, number):
        for index in range(number * BATCH, (number + 1) * BATCH):
            load(index, self.settings["reopen"], self.settings["check"])
        return {"input_ids": memoryview(bytes(8 * BATCH * LENGTH)).cast("q", (BATCH, LENGTH))}

    def __iter__(self):
        workers = self.settings["workers"]
        if workers == 0:
            yield from map(self.batch, range(len(self)))
            return
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            waiting = []
            for number in range(len(self)):
                waiting.append(pool.submit(self.batch, number))
                if len(waiting) > 2 * workers:
                    yield waiting.pop(0).result()
            for each in waiting:
                yield each.result()


def make_loader(workers=0, reopen=True, check=False, color="red"):
    """`color` changes nothing."""
    del color
    return Loader(workers=int(workers), reopen=reopen in (True, "True"), check=check in (True, "True"))
