# SPDX-License-Identifier: Apache-2.0
"""Times the samples and the collating of PyTorch's DataLoader, in each process that loads them. Penstock puts this text between
loading_profile.py and feed_loader.py.
"""
import mmap
import os
import resource
import struct
import sys
import time


class TimedCollate:
    """A DataLoader's function that makes a batch of samples, and the time of its last call."""

    def __init__(self, collate, profile):
        self.collate = collate
        self.profile = profile
        self.wall = self.cpu = 0  # ns

    def __call__(self, samples):
        if self.profile is not None:
            self.profile.loading = False
        begin, cpu = time.perf_counter_ns(), time.process_time_ns()
        batch = self.collate(samples)
        self.wall, self.cpu = time.perf_counter_ns() - begin, time.process_time_ns() - cpu
        return batch


class Carried:
    """A worker's batch on its way to the process that asks, and when the worker had made it. Unpickling makes another one,
    so it also has the time when it arrived. CLOCK_MONOTONIC is the same in all processes."""

    def __init__(self, batch, made):
        self.batch, self.made, self.arrived = batch, made, time.monotonic_ns()
        self.pinning = 0  # ns

    def __reduce__(self):
        return Carried, (self.batch, self.made)


class WorkerTimes:
    """The time that PyTorch's DataLoader spends on samples and on collating them, in each of its worker processes, and what
    its batches spend between these and this process. Workers inherit the table, and each of them writes to its own row; row 0
    is this process's."""

    MOST_WORKERS = 256
    ROW = struct.Struct("<qqqqq")  # for samples: ns, of processors, waiting for one, bytes from storage; ns for collating

    def __init__(self, part, profiles=False):
        self.part = part
        self.profile = LoadingProfile(self.MOST_WORKERS + 1) if profiles else None  # of loading_profile.py
        self.table = mmap.mmap(-1, (self.MOST_WORKERS + 1) * self.ROW.size)
        self.before = [0] * 7
        self.rows = 0
        self.queued = self.pinned = 0  # ns, of all batches so far: from a worker to this process; in pin_memory
        self.worker_code = None  # of the function whose batches are carried

    def install(self):
        """Call before the first batch. Has no effect if the loader uses no DataLoader, or another version of PyTorch."""
        fetch, worker, pin, loader = (sys.modules.get(f"torch.utils.data.{name}") for name in (
            "_utils.fetch", "_utils.worker", "_utils.pin_memory", "dataloader"))
        for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            fetcher = getattr(fetch, name, None)
            if hasattr(fetcher, "fetch"):
                fetcher.fetch = self.timed(fetcher.fetch)
        iterator, loop = getattr(loader, "_MultiProcessingDataLoaderIter", None), getattr(worker, "_worker_loop", None)
        if hasattr(iterator, "_next_data") and hasattr(loop, "__code__"):
            self.worker_code = loop.__code__
            iterator._next_data = self.unpacked(iterator._next_data)
            if hasattr(pin, "pin_memory"):
                pin.pin_memory = self.timed_pin(pin.pin_memory)

    @staticmethod
    def timed_pin(pin_memory):
        def timed_pin_memory(data, *more, **named):
            if not isinstance(data, Carried):
                return pin_memory(data, *more, **named)
            begin = time.monotonic_ns()
            data.batch = pin_memory(data.batch, *more, **named)
            data.pinning = time.monotonic_ns() - begin
            return data

        return timed_pin_memory

    def unpacked(self, next_data):
        def next_batch(iterator):
            data = next_data(iterator)
            if not isinstance(data, Carried):
                return data
            self.queued += data.arrived - data.made
            self.pinned += data.pinning
            return data.batch

        return next_batch

    def timed(self, fetch):
        get_worker_info = sys.modules["torch.utils.data"].get_worker_info

        def timed_fetch(fetcher, index):
            if not isinstance(fetcher.collate_fn, TimedCollate):
                fetcher.collate_fn = TimedCollate(fetcher.collate_fn, self.profile)
            collate = fetcher.collate_fn
            collate.wall = collate.cpu = 0
            worker = get_worker_info()
            row = 0 if worker is None else worker.id + 1
            profile = self.profile if row <= self.MOST_WORKERS else None
            if profile is not None:
                profile.begin(row, fetcher.dataset)
            core, read = core_wait_ns(), read_bytes()
            begin, cpu = time.perf_counter_ns(), time.process_time_ns()
            batch = self.fetch_part(fetch, fetcher, index)
            wall, cpu = time.perf_counter_ns() - begin, time.process_time_ns() - cpu
            core, read = core_wait_ns() - core, read_bytes() - read
            if profile is not None:
                profile.end(wall - collate.wall)
            if row <= self.MOST_WORKERS:
                at = row * self.ROW.size
                more = (wall - collate.wall, cpu - collate.cpu, core, read, collate.wall)
                self.ROW.pack_into(self.table, at, *map(sum, zip(self.ROW.unpack_from(self.table, at), more)))
            # Not for a loader inside a data set, nor for workers of another iterator, which would hand it to its caller.
            is_carried = sys._getframe(1).f_code is self.worker_code
            return Carried(batch, time.monotonic_ns()) if is_carried else batch

        return timed_fetch

    def fetch_part(self, fetch, fetcher, index):
        """A batch, of which only one part is made anew. What is kept is the worker's own first batch."""
        if self.part not in ("collate", "samples"):
            return fetch(fetcher, index)
        collate = fetcher.collate_fn
        first = not hasattr(fetcher, "penstock_samples")
        if first or self.part == "samples":
            fetcher.collate_fn = lambda samples: samples
            try:
                fetcher.penstock_samples = fetch(fetcher, index)
            finally:
                fetcher.collate_fn = collate
        if first or self.part == "collate":
            fetcher.penstock_batch = collate(fetcher.penstock_samples)
        return fetcher.penstock_batch

    def workers(self, loader):
        """How many worker processes are timed, 0: samples are loaded in this process; None: nothing is timed. Call after the
        first batch."""
        used = [row for row in range(self.MOST_WORKERS + 1)
                if any(self.ROW.unpack_from(self.table, row * self.ROW.size))]
        if not used:
            return None
        workers = getattr(loader, "num_workers", None)
        workers = workers if isinstance(workers, int) and workers >= max(used) else max(used)
        self.rows = min(workers, self.MOST_WORKERS) + 1
        return workers

    def profile_of(self):
        """What the code that loads samples took, and what it waited for; call if a profile was asked for."""
        return self.profile.times(self.rows)

    def since_last(self):
        """Since the last call: the figures of rows over all workers, and the time from workers to here and for pinning."""
        rows = (self.ROW.unpack_from(self.table, row * self.ROW.size) for row in range(self.rows))
        now = ([sum(column) for column in zip(*rows)] or [0] * 5) + [self.queued, self.pinned]
        change, self.before = [new - old for new, old in zip(now, self.before)], now
        return change


def core_wait_ns():
    """How long this thread has waited for a processor; 0: the kernel does not count it."""
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(file, 100).split()[1])
        finally:
            os.close(file)
    except (OSError, ValueError, IndexError):
        return 0


def read_bytes():
    """That storage had to read for this thread."""
    return 512 * resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


def settings_of(loader):
    """Settings of PyTorch's DataLoader, as numbers by name."""
    data = sys.modules.get("torch.utils.data")
    if not isinstance(loader, getattr(data, "DataLoader", ())):
        return {}
    values = {name: getattr(loader, name, None) for name in ("num_workers", "prefetch_factor", "persistent_workers", "in_order")}
    return {name: int(value) for name, value in values.items() if isinstance(value, int)}
