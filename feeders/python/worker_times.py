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


undoing: list = []  # calls that undo what replace() did in this process, the newest last


def replace(owner, name, value):
    """Sets an attribute of a library's object. A process that goes on without Penstock calls undo()."""
    own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, value)
    undoing.append(lambda: setattr(owner, name, before) if own else delattr(owner, name))


def undo():
    while undoing:
        undoing.pop()()


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


def shared_table(size, file=None):
    """Memory for this process and its workers. Forked ones inherit it; others open the file whose name is returned."""
    descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC) if file else os.memfd_create("penstock-times")
    if not file:
        os.ftruncate(descriptor, size)
        undoing.append(lambda: os.close(descriptor))
    return mmap.mmap(descriptor, size), file or f"/proc/{os.getpid()}/fd/{descriptor}"


class Expression:
    """What pickle replaces by the value of a Python expression."""

    def __init__(self, text):
        self.text = text

    def __call__(self):
        raise TypeError("only its value can be called")

    def __reduce__(self):
        return eval, (self.text,)


class WorkerStart:
    """The function that a DataLoader's worker calls at its start, if it is not forked: such a worker has to be told to time
    samples. It gets this program's text with the function, because it could import it from nowhere."""

    def __init__(self, user, *times):
        self.user, self.times = user, times

    def __reduce__(self):
        run = f"exec(compile({program!r}, '<penstock>', 'exec'), space)"
        return Expression(f"(lambda space: ({run}, space['WorkerStart'])[1])({{'__name__': 'penstock_loader'}})"), (
            self.user, *self.times)

    def __call__(self, worker):
        WorkerTimes(*self.times).install()
        if self.user is not None:
            self.user(worker)


class WorkerTable:
    """What the processes that load the samples of a loader have done so far. Forked workers inherit it, and each of them writes to
    its own row; row 0 is that of the process that asks for batches."""

    MOST_WORKERS = 256
    # For samples: ns, of processors, waiting for one, bytes from storage. ns for collating. Batches, samples, ns of the slowest batch.
    ROW = struct.Struct("<qqqqqqqq")

    def __init__(self, file=None):
        self.memory, self.file = shared_table((self.MOST_WORKERS + 1) * self.ROW.size, file)
        self.is_timing = False

    def add(self, row, *more):
        """One batch: all columns but the numbers of batches and the slowest."""
        if row <= self.MOST_WORKERS:
            *sums, slowest = self.ROW.unpack_from(self.memory, row * self.ROW.size)
            now = [old + new for old, new in zip(sums, (*more[:5], 1, more[5]))]
            self.ROW.pack_into(self.memory, row * self.ROW.size, *now, max(slowest, more[0] + more[4]))

    def rows(self, count=MOST_WORKERS + 1):
        return [self.ROW.unpack_from(self.memory, row * self.ROW.size) for row in range(count)]

    def sums(self, count=MOST_WORKERS + 1):
        """Over the first `count` rows; the last column is the slowest batch of all."""
        *columns, slowest = zip(*self.rows(count))
        return [*map(sum, columns), max(slowest)]


class WorkerTimes:
    """The time that PyTorch's DataLoader spends on samples and on collating them, in each of its worker processes, and what
    its batches spend between these and this process.

    `table` is that of the loader whose workers are about to be forked; None: they are not timed. A fetcher with an attribute
    `penstock_table` uses that one. Waits for a processor and reads from storage, which the kernel needs some 10 us to tell, are those
    of one batch in `period` ns, and stand for the batches since the one before.
    `files`: those of the table and of the profile, in a worker that does not inherit them."""

    def __init__(self, part="", profiles=False, period=0, files=(None, None)):
        self.part, self.period = part, period
        self.asked, self.unasked = -period, 0  # when the kernel was asked; ns of batches since then
        # Of loading_profile.py.
        self.profile = LoadingProfile(WorkerTable.MOST_WORKERS + 1, files[1]) if profiles else None
        self.table = WorkerTable(files[0]) if files[0] else None
        self.before = [0] * 7
        self.rows = 0
        self.queued = self.pinned = 0  # ns, of all batches so far: from a worker to this process; in pin_memory
        self.worker_code = None  # of the function whose batches are carried

    def install(self):
        """Call before the first batch. Has no effect if the loader uses no DataLoader, or another version of PyTorch."""
        fetch = sys.modules.get("torch.utils.data._utils.fetch")
        for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            fetcher = getattr(fetch, name, None)
            if hasattr(fetcher, "fetch"):
                replace(fetcher, "fetch", self.timed(fetcher.fetch))

    def install_carrying(self):
        """Also times the way of batches from workers to this process; as install()."""
        worker, pin, loader = (sys.modules.get(f"torch.utils.data.{name}") for name in (
            "_utils.worker", "_utils.pin_memory", "dataloader"))
        iterator, loop = getattr(loader, "_MultiProcessingDataLoaderIter", None), getattr(worker, "_worker_loop", None)
        if iterator is not None:
            replace(iterator, "__init__", self.starting(iterator.__init__))
        if hasattr(iterator, "_next_data") and hasattr(loop, "__code__"):
            self.worker_code = loop.__code__
            replace(iterator, "_next_data", self.unpacked(iterator._next_data))
            if hasattr(pin, "pin_memory"):
                replace(pin, "pin_memory", self.timed_pin(pin.pin_memory))

    def starting(self, make):
        """Makes an iterator's workers time samples, also if they are not forked."""
        def make_iterator(iterator, loader, *more, **named):
            context = getattr(loader, "multiprocessing_context", None) or sys.modules["multiprocessing"]
            user = getattr(loader, "worker_init_fn", None)
            forks = context.get_start_method() == "fork"
            if not forks:
                files = self.table.file, self.profile.file if self.profile is not None else None
                loader.worker_init_fn = WorkerStart(user, self.part, self.profile is not None, self.period, files)
            try:
                make(iterator, loader, *more, **named)
            finally:
                if not forks:
                    loader.worker_init_fn = user

        return make_iterator

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
            table = getattr(fetcher, "penstock_table", self.table)
            if table is None or table.is_timing:  # a loader inside a data set
                return fetch(fetcher, index)
            table.is_timing = True
            try:
                batch = self.time_fetch(table, fetch, fetcher, index, get_worker_info())
            finally:
                table.is_timing = False
            # Not for a loader inside a data set, nor for workers of another iterator, which would hand it to its caller.
            is_carried = sys._getframe(1).f_code is self.worker_code
            return Carried(batch, time.monotonic_ns()) if is_carried else batch

        return timed_fetch

    def time_fetch(self, table, fetch, fetcher, index, worker):
        if not isinstance(fetcher.collate_fn, TimedCollate):
            fetcher.collate_fn = TimedCollate(fetcher.collate_fn, self.profile)
        collate = fetcher.collate_fn
        collate.wall = collate.cpu = 0
        row = 0 if worker is None else worker.id + 1
        profile = self.profile if row <= table.MOST_WORKERS else None
        if profile is not None:
            profile.begin(row, fetcher)
        asks = time.perf_counter_ns() - self.asked >= self.period
        core, read = (core_wait_ns(), read_bytes()) if asks else (0, 0)
        begin, cpu = time.perf_counter_ns(), time.process_time_ns()
        batch = self.fetch_part(fetch, fetcher, index)
        wall, cpu = time.perf_counter_ns() - begin, time.process_time_ns() - cpu
        self.unasked += wall
        if asks:
            times = self.unasked / max(1, wall)
            core, read = int(times * (core_wait_ns() - core)), int(times * (read_bytes() - read))
            self.asked, self.unasked = begin, 0
        if profile is not None:
            profile.end(wall - collate.wall)
        samples = len(index) if getattr(fetcher, "auto_collation", True) and hasattr(index, "__len__") else 1
        table.add(row, wall - collate.wall, cpu - collate.cpu, core, read, collate.wall, samples)
        return batch

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
        used = [row for row, figures in enumerate(self.table.rows()) if any(figures)]
        if not used:
            return None
        workers = getattr(loader, "num_workers", None)
        workers = workers if isinstance(workers, int) and workers >= max(used) else max(used)
        self.rows = min(workers, WorkerTable.MOST_WORKERS) + 1
        return workers

    def profile_of(self):
        """What the code that loads samples took, and what it waited for; call if a profile was asked for."""
        return self.profile.times(self.rows)

    def since_last(self):
        """Since the last call: the figures of rows over all workers, and the time from workers to here and for pinning."""
        now = (self.table.sums(self.rows)[:5] if self.rows else [0] * 5) + [self.queued, self.pinned]
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
