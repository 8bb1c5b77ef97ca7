#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `penstock isolate` on loaders with a planted cause, and prints as Markdown which cause and remedy it named.

Usage: planted_causes.py PENSTOCK [--python PYTHON] [--budget 90s] [--repeat N] [NAME ...]. PYTHON needs PyTorch; this file is also the module
with the loaders. A device of 800 img/s takes batches of 32 samples [3,64,64]; each cause takes a third of its speed or more. Exits
with 1 if a cause was not named first, or a remedy is not the expected one.
"""
import argparse
import fcntl
import json
import os
import pathlib
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time

try:
    import torch
    from torch.utils.data import DataLoader, Dataset, Sampler
except ImportError:  # this process only reads what penstock says
    Dataset = Sampler = object

BATCH, RATE = 32, 800
FILE = os.path.join(tempfile.gettempdir(), "penstock_planted.bin")


def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Blur:
    def __call__(self, sample):
        compute(0.003)
        return sample


class Flip:
    def __call__(self, sample):
        return sample.flip(-1)


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, sample):
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class Samples(Dataset):
    """`work` is called with the index of each sample, `start` in each worker before its first one."""

    def __init__(self, work=None, count=3200, start=0.0, transform=None):
        self.work, self.count, self.start, self.transform = work, count, start, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.start:
            time.sleep(self.start)
            self.start = 0
        if self.work:
            self.work(index)
        sample = torch.zeros(3, 64, 64, dtype=torch.uint8)
        return self.transform(sample) if self.transform else sample, index % 8


class InOrder(Sampler):
    def __init__(self, count, each=0.0, first=0.0):
        self.count, self.each, self.first = count, each, first

    def __len__(self):
        return self.count

    def __iter__(self):
        time.sleep(self.first)
        for index in range(self.count):
            if self.each:
                compute(self.each)
            yield index


def loader(work=None, num_workers=2, collate_fn=None, sampler=None, count=3200, start=0.0, transform=None, **settings):
    return DataLoader(Samples(work, count, start, transform), BATCH, sampler=sampler, num_workers=num_workers, collate_fn=collate_fn,
                      **settings)


def no_workers(num_workers=0):
    return loader(lambda index: time.sleep(0.030 / BATCH), num_workers)


def computes_in_turn(num_workers=0):
    return loader(lambda index: compute(0.030 / BATCH), num_workers)


def generator():
    while True:
        time.sleep(0.030)
        yield torch.zeros(BATCH, 3, 64, 64, dtype=torch.uint8), torch.zeros(BATCH, dtype=torch.int64)


def slow_thread():
    waiting = queue.Queue(4)

    def fill():
        while True:
            time.sleep(0.080)
            waiting.put((torch.zeros(BATCH, 3, 64, 64, dtype=torch.uint8), torch.zeros(BATCH, dtype=torch.int64)))

    threading.Thread(target=fill, daemon=True).start()
    while True:
        yield waiting.get()


def restarts(persistent_workers=False):
    return loader(count=320, start=1.0, persistent_workers=persistent_workers)


def slow_shuffle():
    return loader(count=320, sampler=InOrder(320, first=1.0), persistent_workers=True)


def bursts(prefetch_factor=1):
    return loader(lambda index: time.sleep(0.24 / BATCH) if index // BATCH % 8 == 0 else None, 1, sampler=InOrder(3200),
                  prefetch_factor=prefetch_factor)


def slow_samples(prefetch_factor=1, in_order=True):
    return loader(lambda index: time.sleep(0.35) if index % 256 == 7 else None, 2, sampler=InOrder(3200),
                  prefetch_factor=prefetch_factor, in_order=in_order)


def locked(index):
    with open(FILE + ".lock", "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(0.003)


def lock(num_workers=4):
    return loader(locked, num_workers)


def slow_transform(num_workers=2):
    return loader(None, num_workers, transform=Compose([Flip(), Blur()]))


def one_worker(num_workers=1):
    return loader(lambda index: compute(0.0016), num_workers)


def remote_samples(num_workers=1):
    def work(index):
        mine, other = socket.socketpair()
        mine.settimeout(0.005)
        try:
            mine.recv(1)
        except TimeoutError:
            pass
        mine.close(), other.close()

    return loader(work, num_workers)


def sleeping(num_workers=2):
    return loader(lambda index: time.sleep(0.008), num_workers)


def cold_files(num_workers=1):
    size = 1 << 28
    if not os.path.exists(FILE) or os.path.getsize(FILE) != size:
        with open(FILE, "wb") as file:
            for _ in range(256):
                file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())

    def work(index):
        descriptor = os.open(FILE, os.O_RDONLY | os.O_DIRECT)
        buffer = memoryview(__import__("mmap").mmap(-1, 1 << 20))
        for part in range(4):
            os.preadv(descriptor, [buffer], (index * 4 + part) % 256 << 20)
        os.close(descriptor)

    return loader(work, num_workers)


def slow_collate(num_workers=1):
    def collate(samples):
        compute(0.070)
        return torch.stack([sample for sample, _ in samples]), torch.tensor([label for _, label in samples])

    return loader(None, num_workers, collate_fn=collate)


def spawned():
    return DataLoader(Slept(), BATCH, num_workers=1, multiprocessing_context="spawn")


class Slept(Samples):  # workers that are not forked import it by its name
    def __getitem__(self, index):
        time.sleep(0.003)
        return super().__getitem__(index)


def parses(num_workers=2):
    text = json.dumps([{"box": [1.5, 2.5, 3.5, 4.5], "name": f"object {i}"} for i in range(1500)])

    def work(index):
        for _ in range(2):
            json.loads(text)

    return loader(work, num_workers)


def slow_sampler():
    return loader(sampler=InOrder(3200, each=0.030 / BATCH))


def many_arrays(num_workers=2):
    return loader(None, num_workers, collate_fn=lambda samples: {f"column{i}": torch.zeros(BATCH, 2) for i in range(640)})


class Texts(Samples):
    """Token numbers of 20 to 236 places, and a sample that takes 5 ms."""

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.arange(1, 20 + index * 37 % 217)


def padded(num_workers=2):
    def pad(samples):
        ids = torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)
        return {"input_ids": torch.nn.functional.pad(ids, (0, 64)), "attention_mask": torch.nn.functional.pad((ids > 0).long(), (0, 64))}

    return DataLoader(Texts(), BATCH, num_workers=num_workers, collate_fn=pad)


class Held(Samples):
    """All samples lie in the object, as text."""

    def __init__(self):
        super().__init__(count=640)
        self.text = [os.urandom(1000) for _ in range(200_000)]


def pickled(persistent_workers=False):
    return DataLoader(Held(), BATCH, num_workers=2, multiprocessing_context="spawn", persistent_workers=persistent_workers)


def fast():
    return loader()


def fast_but_busy():
    return loader(lambda index: compute(0.0002))


# Name of the loader: what one of the first four sentences says, and what the first remedy says; "" stands for anything. None: no
# cause, so neither a bottleneck but the trainer nor a remedy may be named.
IN_TURN = {"no_workers", "computes_in_turn", "generator", "slow_sampler"}  # they cost a loop that waits for each step
CAUSES = {
    "no_workers": ("Loading a batch between two steps", "num_workers="),
    "computes_in_turn": ("Loading a batch between two steps", "num_workers="),
    "generator": ("Loading a batch between two steps", "of their own"),
    "slow_thread": ("The loader is the bottleneck", ""),
    "restarts": ("The first batch of each epoch", "persistent_workers=True"),
    "slow_shuffle": ("The first batch of each epoch", "beginning of an epoch"),
    "bursts": ("Uneven loading", "prefetch_factor="),
    "slow_samples": ("stay behind it", "in_order=False"),
    "lock": ("waiting for a lock", "under the lock of"),
    "slow_transform": ("Blur", "first of all Blur"),
    "one_worker": ("Loading samples", "num_workers=2"),
    "remote_samples": ("waiting for the network", "num_workers="),
    "sleeping": ("sleeping", "num_workers="),
    "cold_files": ("waiting for storage", "num_workers="),
    "slow_collate": ("Collating samples", "num_workers=2"),
    "spawned": ("sleeping", "num_workers=3"),
    "parses": ("json.loads(text)", "json.loads(text)"),
    "slow_sampler": ("between two steps", ""),
    "many_arrays": ("640 arrays", "packing the 640 arrays"),
    "padded": ("padding", "num_workers="),
    "pickled": ("The first batch of each epoch", "persistent_workers=True"),
    "fast": None,
    "fast_but_busy": None,
}


# The same of examples/loaders/any_data.py, whose description names its fault, and the time of a step of its device.
ANY_DATA = {
    "tokens": ("np.fromfile", "np.fromfile", "4ms"),
    "huggingface": ("padding", "", "5ms"),
    "audio": ("Loading samples", "first of all", "5ms"),
    "video": ("Loading samples", "num_workers=2", "3ms"),
    "detection": ("320 arrays", "packing the 320 arrays", "20ms"),
    "segmentation": ("Collating samples", "num_workers=2", "10ms"),
    "parquet": ("Loading a batch between two steps", "of their own", "1ms"),
    "graphs": ("stay behind it", "in_order=False", "20ms"),
    "shards": ("The first batch of each epoch", "persistent_workers=True", "20ms"),
    "webdataset": ("json", "num_workers=2", "5ms"),
}
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "loaders" / "any_data.py"


def isolate(program, python, budget, name, folder):
    """The record of isolation.json."""
    mine = name in CAUSES
    loop = "sync" if name in IN_TURN or name == "parquet" else "async"
    device = f"emulated:img_per_s={RATE}" if mine else f"emulated:step_time={ANY_DATA[name][2]}"
    command = [program, "isolate", "--loader", f"{pathlib.Path(__file__).resolve() if mine else EXAMPLES}:{name}", "--python", python,
               "--device", device, "--loop", loop, "--budget", budget, "--out", folder]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 7):
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads((pathlib.Path(folder) / "isolation.json").read_text(encoding="utf-8"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("penstock")
    parser.add_argument("names", nargs="*", default=list(CAUSES), help=f"of this file, or {', '.join(ANY_DATA)}")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--budget", default="90s")
    parser.add_argument("--repeat", type=int, default=1, help="how often each is asked")
    options = parser.parse_intermixed_args()
    wrong = 0
    print("| planted | img/s or samples/s | what is said first | first remedy | right |\n|---|---|---|---|---|")
    for name in options.names * options.repeat:
        with tempfile.TemporaryDirectory() as folder:
            found = isolate(options.penstock, options.python, options.budget, name, folder)
        expected = CAUSES[name] if name in CAUSES else ANY_DATA[name][:2]
        cause, remedy = expected or ("", "")
        first, cures = found["verdict"][:4], found["cures"]
        if expected is None:
            right = not cures and ("is the bottleneck" not in first[0] or "The trainer is" in first[0])
        else:
            right = any(cause in sentence for sentence in first) and (remedy == "" or bool(cures) and remedy in cures[0])
        wrong += not right
        cost = found["cost"] or {}
        rate = cost.get("coupled_img_per_s", cost.get("coupled_rate", {"value": 0}))["value"]
        said = next((sentence for sentence in first if cause in sentence), first[0])
        print(f"| {name} | {rate:.0f} | {said} | {cures[0] if cures else '-'} | {'yes' if right else 'NO'} |", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
