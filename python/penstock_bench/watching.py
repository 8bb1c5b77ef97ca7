# SPDX-License-Identifier: Apache-2.0
"""Measures how long a training loop waits for its batches.

`penstock watch -- python train.py` sets PENSTOCK_WATCH_DIR and measures loops over a PyTorch
DataLoader without any change to the script. For any other loop:

    from penstock_bench import watching
    for batch in watching.watch(loader): ...

Without `penstock watch`, `watch` returns its argument, so it costs nothing.

A batch is counted when the loop asks for the next one. Its wait is the time in `next`; its step is
the time from the beginning of that `next` to the beginning of the following one. The first wait of
an epoch includes the time in `iter`. Figures stay in memory and are added to a file of this process
at intervals and at exit: lines of JSON, which bench/watch/README.md describes. Loops of worker processes
of PyTorch and of multiprocessing are not measured. Of a DataLoader, the times of samples and of collating
are counted where they are loaded (worker_times.py): in this process, or in workers that are forked.

If the training uses CUDA through PyTorch, two events around each `next`, in the loop's stream, also tell how long the GPU
had no work until the batch came. They are read when they have passed, so that nothing waits for the GPU. The GPU is the
only one on which PyTorch has allocated memory. If there are several, no event is used.

Threads: any thread may iterate a watched loader. A loop outside the main thread is marked, and uses no event of CUDA,
because an event that one thread reads breaks a graph that another thread captures.
"""
import array
import atexit
import collections
import json
import os
import sys
import threading
import time
import weakref

from penstock_bench import worker_times

SCHEMA = 1
with open(os.path.join(os.path.dirname(__file__), "launchers.json"), encoding="utf-8") as file:
    LAUNCHERS = json.load(file)  # the table that the program reads too
MOST_KEPT = 200000  # figures in memory before they are written
LONGEST_NAME = 200  # letters
MOST_TEXT = 500
KERNEL_PERIOD = 50_000_000  # ns between two batches for which the kernel is asked how long they waited for a processor
STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep

clock = time.perf_counter_ns  # tests replace it


class Loop:
    """The figures of one loop of the script that are not yet written; nanoseconds."""

    def __init__(self, name, in_thread):
        self.name, self.in_thread = name, in_thread
        # Per batch: wait, step, images (0: not known), 1 if it begins an epoch, wait of the GPU (-1: not known).
        self.figures = array.array("q")
        self.ends = []  # waits that found the end of an epoch
        self.counting = None  # how the samples of its batches are counted
        self.unit, self.problem = "samples", ""  # what is counted, and why nothing is
        self.waits_for_first = None  # True: the first batch was asked for; False: it has come
        self.is_told = True  # the file has waits_for_first
        self.main = None  # a weak reference to the pass whose steps these are
        self.settings = {}  # of its DataLoader
        self.table = None  # of the processes that load samples
        self.workers = []  # these processes

    def count(self, batch):
        """The samples of a batch, or what --count counts; 0: not known. Nothing that a user's object raises may end the training."""
        try:
            if self.counting is None:
                self.counting = self.way_to_count(batch)
            return self.counting(batch)
        except Exception as error:  # pylint: disable=broad-except
            self.problem = self.problem or f"{type(error).__name__}: {error}"[:MOST_TEXT]
            return 0

    def way_to_count(self, batch):
        """As the feeder for loaders counts, if `penstock watch` runs this process: it brings the module."""
        try:
            from penstock_bench import loader_batches
        except ImportError:
            return first_dimension
        key = os.environ.get("PENSTOCK_WATCH_COUNT")
        if key:
            self.unit = os.environ.get("PENSTOCK_WATCH_UNIT", "tokens")
            function = getattr(sys.modules.get("__main__"), key, None)
            counting = loader_batches.Counting(batch, count=(key, function if callable(function) else None))
            return lambda batch: counting.of(batch, "?")
        try:
            if loader_batches.has_images(batch):
                self.unit = "img"
            counting = loader_batches.Counting(batch)
            counting.of(batch, 0)
        except Exception:  # pylint: disable=broad-except
            return first_dimension  # what a sample is, is not clear
        return lambda batch: counting.of(batch, "?")


class Log:
    """All loops of this process, and the file that they are written to."""

    def __init__(self, folder, every_s):
        self.folder, self.every = folder, int(every_s * 1e9)
        self.reset()

    def reset(self):
        """Also called in a forked child, whose figures begin anew."""
        self.loops, self.due, self.rank = {}, 0, 0
        self.inside = threading.local()
        self.lock = threading.Lock()

    def loop(self, name):
        in_thread = not is_main_thread()
        rank()  # torch.distributed knows it only while its group exists
        name = str(name)[:LONGEST_NAME].encode(errors="replace").decode()
        with self.lock:
            if not self.loops:
                self.due = clock() + self.every
                self.write_at_exit()
            return self.loops.setdefault((name, in_thread), Loop(name, in_thread))

    def write_at_exit(self):
        atexit.register(self.write)
        util = sys.modules.get("multiprocessing.util")
        if util is not None:  # a child of multiprocessing leaves without atexit
            util.Finalize(None, self.write, exitpriority=0)

    def write(self):
        """Adds a line for each loop that has new figures. A full disk must not end the training."""
        with self.lock:
            lines = [self.line(loop) for loop in self.loops.values() if loop.figures or loop.ends or not loop.is_told]
            self.due = clock() + self.every
            if not lines:
                return
            try:
                path = os.path.join(self.folder, f"{os.getpid()}.jsonl")
                file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                try:
                    os.write(file, "".join(lines).encode())
                finally:
                    os.close(file)
            except OSError:
                pass

    @staticmethod
    def line(loop):
        figures, loop.figures = loop.figures, array.array("q")
        ends, loop.ends = loop.ends, []
        loop.is_told = True
        values = {
            "schema": SCHEMA, "pid": os.getpid(), "host": os.uname().nodename, "rank": rank(),
            "cuda": cuda_is_used(),
            "loop": loop.name, "in_thread": loop.in_thread, "unit": loop.unit,
            "wait_us": [ns // 1000 for ns in figures[0::5]],
            "step_us": [ns // 1000 for ns in figures[1::5]],
            "images": figures[2::5].tolist(),
            "begins": [i for i, first in enumerate(figures[3::5]) if first],
            "ends_us": [ns // 1000 for ns in ends],
        }
        if any(ns >= 0 for ns in figures[4::5]):
            values["gpu_wait_us"] = [ns // 1000 if ns >= 0 else None for ns in figures[4::5]]
        if loop.waits_for_first:
            values["waits_for_first"] = True
        if loop.problem:
            values["problem"] = loop.problem
        if loop.settings:
            values["settings"] = loop.settings
        if loop.workers:
            values["workers"] = loop.workers
        if loop.table is not None and (loading := loading_of(loop.table)):
            values["loading"] = loading
        return json.dumps(values, separators=(",", ":")) + "\n"


class GpuWaits:
    """How long a GPU's stream had no work while a loop waited, by events of CUDA. For the main thread.

    The GPU is made current for each call, because CUDA makes a context on the current one. No event is used while the
    current stream captures a graph, because that breaks the graph. PyTorch does not tell whether another stream captures.
    """

    def __init__(self, cuda, gpu):
        self.cuda, self.on_gpu = cuda, cuda.device(gpu)
        self.unused, self.pending = [], collections.deque()

    def mark(self):
        """An event that the stream passes when it has done all work so far. None: the stream captures a graph."""
        with self.on_gpu:
            if self.cuda.is_current_stream_capturing():
                return None
            event = self.unused.pop() if self.unused else self.cuda.Event(enable_timing=True)
            event.record()
        return event

    def add(self, events, figures):
        """`figures` ends with the row that the pair of events belongs to."""
        self.pending.append((*events, figures, len(figures) - 1))

    def read(self):
        """Enters the waits of those pairs that the stream has passed."""
        with self.on_gpu:
            if self.cuda.is_current_stream_capturing():
                return
            while self.pending and self.pending[0][1].query():
                begin, end, figures, place = self.pending.popleft()
                figures[place] = min(int(begin.elapsed_time(end) * 1e6), figures[place - 4])
                self.unused += (begin, end)


class Pass:
    """One pass of a loop over its batches. One thread at a time."""

    __slots__ = ("loop", "log", "opening", "begin", "back", "wait", "images", "is_first", "gpu", "events", "thread", "__weakref__")

    def __init__(self, log, name, opening):
        self.log, self.loop, self.opening = log, log.loop(name), opening
        self.back, self.is_first = None, True
        self.begin = self.wait = self.images = 0
        self.gpu = self.events = None
        self.thread = threading.get_ident()

    def main(self):
        """The pass whose steps the loop's are: another one, if the loop draws from several loaders, as `zip` does."""
        main = self.loop.main and self.loop.main()
        if main is None or main.thread != self.thread:
            self.loop.main, main = weakref.ref(self), self
        return main

    def take_beside(self, main, advance, iterator):
        """A batch for the present step of `main`, whose wait it makes longer."""
        begin = clock()
        self.log.inside.next = True
        try:
            return advance(iterator)
        finally:
            self.log.inside.next = False
            waited = clock() - begin
            if main.back is not None:
                main.wait += waited + self.opening
                main.back += waited
                self.opening = 0

    def take(self, advance, iterator):
        """The next batch of `advance(iterator)`."""
        log = self.log
        if getattr(log.inside, "next", False):  # a loader within another watched one
            return advance(iterator)
        main = self.main()
        if main is not self:
            return self.take_beside(main, advance, iterator)
        if self.loop.waits_for_first is None:
            self.tell(waits_for_first=True)
        begin = clock()
        figures = self.loop.figures
        if self.back is not None:
            # One call, so that a thread that writes sees whole rows.
            figures.extend((self.wait, self.wait + begin - self.back, self.images, self.is_first, -1))
            self.read_gpu(figures)
            self.is_first = False
        if begin >= log.due or len(figures) >= MOST_KEPT:
            log.write()
            begin = clock()
        log.inside.next = True
        try:
            before = self.mark_gpu()
            batch = advance(iterator)
        except StopIteration:
            if self.back is not None:
                self.loop.ends.append(clock() - begin)
            self.back = self.events = self.loop.main = None
            raise
        finally:
            log.inside.next = False
        self.events = before and (before, self.mark_gpu())
        back = clock()
        self.wait = back - begin + self.opening
        self.opening = 0
        self.images = self.loop.count(batch)
        self.back = back
        if self.loop.waits_for_first:
            self.tell(waits_for_first=False)
            self.back = clock()
        return batch

    def tell(self, waits_for_first):
        self.loop.waits_for_first, self.loop.is_told = waits_for_first, False
        self.log.write()

    def mark_gpu(self):
        try:
            return self.gpu.mark() if self.gpu is not None and is_main_thread() else None
        except RuntimeError:  # such as the end of the GPU's context: the script will say so
            self.gpu = None
            return None

    def read_gpu(self, figures):
        if not is_main_thread():
            return
        try:
            if self.gpu is not None:
                if self.events and self.events[1]:
                    self.gpu.add(self.events, figures)
                self.gpu.read()
            elif self.is_first:
                self.gpu = gpu_waits()
        except (AttributeError, RuntimeError):  # an old version of PyTorch, or an error of CUDA
            self.gpu = None


def loading_of(table):
    """What its processes have done since the loop began; None: nothing, so they are not timed."""
    samples, cpu, core, _, collate, batches, count, slowest = table.sums()
    return {"batches": batches, "samples": count, "samples_us": samples // 1000, "samples_cpu_us": max(0, cpu) // 1000,
            "core_wait_us": core // 1000, "collate_us": collate // 1000, "slowest_batch_us": slowest // 1000} if batches else None


def first_dimension(batch):
    """Of the first array in a batch; 0: not known."""
    for _ in range(4):
        shape = getattr(batch, "shape", None)
        if shape is not None:
            return int(shape[0]) if 0 <= shape[0] < 1 << 31 else 0
        if isinstance(batch, (list, tuple)):
            batch = batch[0] if batch else None
        elif hasattr(batch, "values") and hasattr(batch, "keys"):
            batch = next(iter(batch.values()), None)
        else:
            return 0
    return 0


def rank_by(launcher):
    """This process's rank, by the variables of an entry of the table; None: they do not say it."""
    text = os.environ.get(launcher["rank"][0], "")
    if not text or launcher.get("if", launcher["rank"][0]) not in os.environ:
        return None
    if launcher.get("among") == "cluster":  # TF_CONFIG
        try:
            config = json.loads(text)
            before = {"chief": (), "master": ("chief",), "worker": ("chief", "master")}[config["task"]["type"]]
            return int(config["task"]["index"]) + sum(len(config["cluster"].get(role, ())) for role in before)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
    if "among" in launcher:
        peers = os.environ.get(launcher["among"], "").split(",")
        return peers.index(text) if text in peers else None
    return int(text) if text.isdecimal() else None


def rank():
    for launcher in LAUNCHERS:
        found = rank_by(launcher)
        if found is not None:
            return found
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed.is_initialized():
            LOG.rank = distributed.get_rank()  # kept for the time after the group ends
    except (AttributeError, RuntimeError, ValueError):
        pass
    return LOG.rank


def is_main_thread():
    return threading.current_thread() is threading.main_thread()


def cuda_is_used():
    try:
        return bool(sys.modules["torch"].cuda.is_initialized())
    except (AttributeError, KeyError, RuntimeError):
        return False


def gpu_waits():
    """Those of the only GPU on which PyTorch has allocated memory. None: there is no such GPU, or more than one."""
    if not cuda_is_used():
        return None
    cuda = sys.modules["torch"].cuda
    if cuda.get_allocator_backend() != "native":  # the others know no sizes, or call CUDA to learn them
        return None
    gpus = [gpu for gpu in range(cuda.device_count()) if cuda.memory_allocated(gpu)]
    return GpuWaits(cuda, gpus[0]) if len(gpus) == 1 else None


def place_of_loop():
    """FILE:LINE of the innermost frame that belongs to no library."""
    nearest = sys._getframe(1)  # pylint: disable=protected-access
    while nearest is not None and nearest.f_code.co_filename == __file__:
        nearest = nearest.f_back
    frame = nearest
    while frame is not None:
        path = frame.f_code.co_filename
        if not (path.startswith((STANDARD_LIBRARY, "<")) or "-packages" + os.sep in path):
            break
        frame = frame.f_back
    found = frame or nearest
    return f"{os.path.basename(found.f_code.co_filename)}:{found.f_lineno}" if found else "loader"


def is_worker():
    """DataLoader's workers and those of a pool are daemons; ranks are not."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.current_process().daemon


def attribute(wrapper, owner, name):
    if name.startswith("_"):  # copying and pickling look for such names before there is an owner
        raise AttributeError(name)
    return getattr(getattr(wrapper, owner), name)


class Batches:
    """An iterator whose `next` is measured."""

    def __init__(self, iterator, watched):
        self._iterator, self._pass = iterator, watched

    def __iter__(self):
        return self

    def __next__(self):
        return self._pass.take(next, self._iterator)

    def __getattr__(self, name):
        return attribute(self, "_iterator", name)


class Watched:
    """An iterable whose passes are measured. Its other attributes are those of the iterable."""

    def __init__(self, iterable, name):
        self._iterable, self._name = iterable, name

    def __iter__(self):
        begin = clock()
        iterator = iter(self._iterable)
        return Batches(iterator, Pass(LOG, self._name or place_of_loop(), clock() - begin))

    def __len__(self):
        return len(self._iterable)

    def __bool__(self):
        return bool(self._iterable)

    def __getattr__(self, name):
        return attribute(self, "_iterable", name)


def watch(iterable, name=None):
    """An iterable of the same batches, measured under `penstock watch`. `name`: of the loop in the
    report; default: its file and line."""
    if LOG is None or is_worker():
        return iterable
    if hasattr(iterable, "__next__"):
        return Batches(iterable, Pass(LOG, name or place_of_loop(), 0))
    return Watched(iterable, name)


def watch_loader_class(loader_class):
    """Measures all loops over objects of a class such as DataLoader, and what loads their samples. Data sets, loaders and
    iterators keep their types."""
    original = loader_class.__iter__
    times = []  # one, once a loader is iterated: the modules of PyTorch that it changes are loaded then

    def open_timed(loader, loop):
        """Its iterator, whose forked workers inherit the loop's table."""
        if not times:
            times.append(worker_times.WorkerTimes(period=KERNEL_PERIOD))
            times[0].install()
        loop.settings = worker_times.settings_of(loader)
        loop.table = loop.table or worker_times.WorkerTable()
        times[0].table = loop.table
        try:
            iterator = original(loader)
        finally:
            times[0].table = None
        workers = [getattr(worker, "pid", None) for worker in getattr(iterator, "_workers", ())]
        workers = [pid for pid in workers if isinstance(pid, int)]
        if workers != loop.workers:  # the file tells it at once, because penstock looks at what they do
            loop.workers, loop.is_told, LOG.due = workers, False, 0
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        if fetcher is not None:
            fetcher.penstock_table = loop.table
        return iterator

    def __iter__(self):
        if is_worker() or getattr(LOG.inside, "next", False):
            return original(self)
        begin = clock()
        watched = Pass(LOG, place_of_loop(), 0)
        iterator = open_timed(self, watched.loop)
        watched.opening = clock() - begin
        owner = next((kind for kind in type(iterator).__mro__ if "__next__" in vars(kind)), None)
        if owner is None:  # not an iterator: the loop will say so
            return iterator
        try:
            iterator._penstock_pass = watched  # pylint: disable=protected-access
            if not hasattr(owner.__next__, "penstock"):
                owner.__next__ = measured(owner.__next__)
        except (AttributeError, TypeError):  # a generator
            return Batches(iterator, watched)
        return iterator

    __iter__.__doc__ = original.__doc__
    loader_class.__iter__ = __iter__


def measured(advance):
    def __next__(self):
        watched = self.__dict__.get("_penstock_pass")
        return advance(self) if watched is None else watched.take(advance, self)

    __next__.penstock = True
    return __next__


def make_log():
    folder = os.environ.get("PENSTOCK_WATCH_DIR")
    if not folder:
        return None
    try:
        every_s = float(os.environ.get("PENSTOCK_WATCH_EVERY_S", ""))
    except ValueError:
        every_s = 30.0
    log = Log(folder, every_s)
    os.register_at_fork(after_in_child=log.reset)
    return log


LOG = make_log()
