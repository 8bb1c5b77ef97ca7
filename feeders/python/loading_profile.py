# SPDX-License-Identifier: Apache-2.0
"""Which code the time for samples goes to, in each process that loads them: exactly for the transforms and functions that a data
set holds, by samples of the stack for the rest. Penstock puts this text before feed_loader.py if a run asks for the profile.
"""
import collections
import functools
import json
import linecache
import os
import struct
import sys
import sysconfig
import threading
import time
import types

FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)
FUNCTION_NAMES = ("loader", "transform", "target_transform", "function", "transform_fn")  # attributes that hold a data set's code
# What a thread is in, by the numbers of system calls that block; on other machines only whether it is in one is known.
CALLS = {"x86_64": {"waiting for a lock": (72, 73, 65, 220, 202, 449), "sleeping": (35, 230),
                    "reading files": (0, 2, 4, 5, 6, 17, 19, 257, 262, 295, 332),
                    "waiting for the network": (7, 23, 42, 45, 47, 232, 270, 271, 281)},
         "aarch64": {"waiting for a lock": (25, 32, 98, 192, 193, 449), "sleeping": (101, 115),
                     "reading files": (56, 63, 65, 67, 69, 291), "waiting for the network": (22, 72, 73, 203, 207, 212)}}
KINDS = {number: kind for kind, numbers in CALLS.get(os.uname().machine, {}).items() for number in numbers}
FUTEX, PRIVATE = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine), 128  # locks that processes share lack the flag
LIBRARIES = tuple({os.path.realpath(sysconfig.get_paths()[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")} |
                  {"<frozen"})


def name_of(function):
    """ "load_image", "<lambda> (train.py:31)" """
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", type(function).__name__).rpartition("<locals>.")[2]
    code = getattr(function, "__code__", None)
    return f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})" if code and name == "<lambda>" else name


def names_in(code):
    """Names that a function uses, and the functions and comprehensions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


def used_by(function):
    """The global objects and those of an outer function that a function uses, such as a Compose."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", getattr(function, "penstock_timed", function))
    if not isinstance(function, types.FunctionType):
        return []
    empty = types.CellType()
    held = [cell.cell_contents for cell in function.__closure__ or () if cell != empty]
    return held + [function.__globals__[name] for name in names_in(function.__code__) if name in function.__globals__]


def median_of(values):
    """0 if there are none."""
    return sorted(values)[len(values) // 2] if values else 0


def mean_of(values):
    """0 if there are none."""
    return sum(values) / len(values) if values else 0


def is_library(path):
    return path.startswith(LIBRARIES) or "site-packages" in path or "dist-packages" in path


class TimedSamples:
    """The data set as PyTorch's fetcher sees it during a profile. No other code does."""

    def __init__(self, dataset, profile):
        self.dataset, self.profile = dataset, profile

    def __getitem__(self, index):
        begin, waited = time.perf_counter_ns(), core_wait_ns()  # a sample is not slow because other programs compute
        sample = self.dataset[index]
        self.profile.add_sample(index, max(0, time.perf_counter_ns() - begin - core_wait_ns() + waited))
        return sample

    @staticmethod
    def suits(fetcher):
        """Whether the fetcher asks for one sample after another, or would if its data set were no Subset of PyTorch."""
        dataset = getattr(fetcher, "dataset", None)
        if isinstance(dataset, TimedSamples) or hasattr(fetcher, "dataset_iter") or not hasattr(dataset, "__getitem__"):
            return False
        at_once = getattr(dataset, "__getitems__", None)
        inner = getattr(dataset, "dataset", None) if type(dataset).__name__ == "Subset" else dataset
        return not callable(at_once) or not hasattr(inner, "__getitems__")


class LoadingProfile:
    PERIOD = 0.01  # s between two samples of the stack, on average
    # s until a call of Python, or the next one of C, makes room for the thread that samples. With Python's 5 ms it would run
    # when a line happens to let go of the interpreter's lock, and name that line for the calls before it that hold the lock.
    SWITCH = 1e-4
    PUBLISH = 0.2  # s between two updates of the table
    ROW, MOST_OBJECTS, MOST_NAMES, MOST_LENGTH = 16384, 500, 40, 100
    SLOWEST = 5  # samples that are named

    def __init__(self, rows, file=None):
        self.table, self.file = shared_table(rows * self.ROW, file)  # of feed_loader.py; each process writes to its own row
        self.pid = None

    # ---- in the process that loads samples

    def begin(self, row, fetcher):
        """Before samples are loaded. `row` is this process's."""
        if self.pid != os.getpid():
            self.pid, self.row = os.getpid(), row
            self.exact, self.sampled, self.states, self.total, self.published = {}, {}, {}, 0, 0
            self.slowest, self.walls = {}, collections.deque(maxlen=500)  # ns by index; of the newest samples
            self.open = []  # time of the calls inside each open call, innermost last
            self.thread, self.native = threading.get_ident(), threading.get_native_id()
            self.kernel = None  # files that show the thread's state, once they are open
            self.loading = False
            self.wrap(fetcher.dataset)
            interval = sys.getswitchinterval()
            sys.setswitchinterval(self.SWITCH)
            self.ended = threading.Event()
            undoing.extend((self.ended.set, lambda: sys.setswitchinterval(interval)))
            threading.Thread(target=self.sample, daemon=True).start()
        if TimedSamples.suits(fetcher):
            fetcher.dataset = TimedSamples(fetcher.dataset, self)
        self.loading = True

    def add_sample(self, index, wall):
        self.walls.append(wall)
        if isinstance(index, int):
            self.slowest[index] = max(wall, self.slowest.get(index, 0))
            if len(self.slowest) > self.SLOWEST:
                self.slowest.pop(min(self.slowest, key=self.slowest.get))

    def end(self, wall):
        self.loading = False
        self.total += wall
        now = time.monotonic()
        if now - self.published > self.PUBLISH:
            self.published = now
            self.publish()

    def publish(self):
        text = json.dumps([self.total, self.largest(self.exact), self.largest(self.sampled), self.states, self.slowest,
                           median_of(self.walls), mean_of(self.walls)]).encode()
        if len(text) + 4 <= self.ROW:
            begin = self.row * self.ROW
            self.table[begin:begin + 4] = struct.pack("<I", 0)  # not while it changes
            self.table[begin + 4:begin + 4 + len(text)] = text
            self.table[begin:begin + 4] = struct.pack("<I", len(text))

    def largest(self, values):
        names = sorted(values, key=values.get, reverse=True)[:self.MOST_NAMES]
        return {name if len(name) <= self.MOST_LENGTH else name[:self.MOST_LENGTH] + "...": values[name] for name in names}

    def sample(self):
        """Each sample stands for the time since the one before, since a call that holds the interpreter's lock delays it."""
        turn, before = 0.0, time.perf_counter_ns()
        while not self.ended.is_set():
            turn = (turn + 0.618) % 1  # periods that differ do not fall into step with the loader's
            time.sleep(self.PERIOD * (0.5 + turn))
            frame = sys._current_frames().get(self.thread)  # at once: what follows lets the thread go on
            name = self.place(frame) if frame and self.loading and not self.open else None
            now = time.perf_counter_ns()
            state = self.state() if self.loading else None
            for sums, key in ((self.sampled, name), (self.states, state)):
                if key and self.loading:
                    sums[key] = sums.get(key, 0) + now - before
            before = now

    def state(self):
        """What the thread that loads samples does: "computing", or what it waits for. None: the kernel does not say. Each call that
        reads lets go of the interpreter's lock, and takes it from that thread again: so the files stay open."""
        try:
            if self.kernel is None:
                self.kernel = [os.open(f"/proc/self/task/{self.native}/{name}", os.O_RDONLY | os.O_CLOEXEC)
                               for name in ("stat", "syscall")]
            letter = os.pread(self.kernel[0], 400, 0).rpartition(b")")[2].split()[0]
            if letter in (b"R", b"D"):  # R: also if it was about to get the interpreter's lock
                return "computing" if letter == b"R" else "waiting for storage"
            call, first, second, *_ = os.pread(self.kernel[1], 400, 0).decode().split() + ["", ""]
            return "computing" if call == "running" else self.kind(int(call), first, second)
        except (OSError, ValueError, IndexError):
            return None

    @staticmethod
    def kind(call, first, second):
        if call == FUTEX and int(second, 16) & PRIVATE:
            return "waiting for its threads"
        selects_nothing = first == "0x0" and os.uname().machine == "x86_64" and call in (23, 270)  # how Python before 3.11 sleeps
        return "sleeping" if selects_nothing else KINDS.get(call, "other system calls")

    @staticmethod
    def place(frame):
        """ "data.py:31 image = image.resize(size)", or "PIL.Image.open" if no code of the user's is on the stack."""
        innermost = None
        while frame is not None:
            code, number = frame.f_code, frame.f_lineno
            if code.co_filename == "<penstock>":
                break
            name = getattr(code, "co_qualname", code.co_name)
            if not is_library(code.co_filename):
                line = linecache.getline(code.co_filename, number).strip() or name
                return f"{os.path.basename(code.co_filename)}:{number} {line}"
            innermost = innermost or f"{frame.f_globals.get('__name__', '?')}.{name}"
            frame = frame.f_back
        return innermost

    def wrap(self, dataset):
        """Times the transforms in lists such as torchvision's Compose, and functions that the data set holds."""
        seen, found, classes = set(), [dataset], set()
        while found and len(seen) < self.MOST_OBJECTS:
            item = found.pop(0)
            if id(item) in seen or isinstance(item, (type, types.ModuleType, str, bytes, int, float)):
                continue
            seen.add(id(item))
            if isinstance(item, (list, tuple)):
                found.extend(item[:64])
                continue
            if isinstance(item, FUNCTIONS):
                found.extend(used_by(item)[:64])
                continue
            held = item if isinstance(item, dict) else getattr(item, "__dict__", None)
            if not isinstance(held, dict) or type(item).__module__.partition(".")[0] in ("numpy", "pandas", "threading"):
                continue
            self.wrap_functions(held, held.__setitem__ if held is item else functools.partial(object.__setattr__, item))
            for name in ("transforms", "transform", "target_transform"):
                parts = held.get(name, None)
                parts = parts if isinstance(parts, (list, tuple)) else [parts]
                classes.update(type(part) for part in parts if callable(part) and not isinstance(part, FUNCTIONS))
                if isinstance(held.get(name), list):
                    undoing.append(functools.partial(held[name].__setitem__, slice(None), list(held[name])))
                    held[name][:] = [self.timed(part) if isinstance(part, FUNCTIONS) else part for part in parts]
            found.extend(list(held.values())[:64])
        for kind in classes:
            if hasattr(kind.__call__, "penstock_timed"):
                continue  # by a class from which it inherits
            try:
                replace(kind, "__call__", self.timed_method(kind.__call__))
            except TypeError:  # a class written in C
                pass

    def wrap_functions(self, held, assign):
        for name in FUNCTION_NAMES:
            if isinstance(held.get(name), FUNCTIONS) and not hasattr(held[name], "penstock_timed"):
                try:
                    before = held[name]
                    assign(name, self.timed(before))
                    undoing.append(functools.partial(assign, name, before))
                except (AttributeError, TypeError):  # a class without places for it
                    pass

    def timed(self, function):
        name = name_of(function)

        @functools.wraps(function, ("__module__", "__name__", "__qualname__", "__doc__"), ())
        def call(*positional, **named):
            return self.call(name, function, positional, named)

        call.penstock_timed = function
        return call

    def timed_method(self, method):
        profile = self

        def call(item, *positional, **named):
            return profile.call(type(item).__name__, method, (item, *positional), named)

        call.penstock_timed = True
        return call

    def call(self, name, function, positional, named):
        """Counts the time of the call without that of timed calls inside it."""
        if threading.get_ident() != self.thread or not self.loading:
            return function(*positional, **named)
        self.open.append(0)
        begin = time.perf_counter_ns()
        try:
            return function(*positional, **named)
        finally:
            wall = time.perf_counter_ns() - begin
            self.exact[name] = self.exact.get(name, 0) + wall - self.open.pop()
            if self.open:
                self.open[-1] += wall

    # ---- in the process that asks for batches

    def times(self, rows):
        """ns of all processes since their start: by the name of the code, and by what they did; of the slowest samples, by
        index; of the median sample and of the mean one."""
        sums, doing, slowest, medians, means = {}, {}, {}, [], []
        for row in range(rows):
            begin = row * self.ROW
            (size,) = struct.unpack_from("<I", self.table, begin)
            try:
                total, exact, sampled, states, slow, median, mean = json.loads(self.table[begin + 4:begin + 4 + size])
            except ValueError:  # none, or it is changing
                continue
            rest, samples = max(0, total - sum(exact.values())), sum(sampled.values())
            for name, count in sampled.items():
                exact[name] = exact.get(name, 0) + rest * count // samples
            for name, wall in exact.items():
                sums[name] = sums.get(name, 0) + wall
            for name, count in states.items():
                doing[name] = doing.get(name, 0) + total * count // sum(states.values())
            for index, wall in slow.items():
                slowest[index] = max(wall, slowest.get(index, 0))
            medians += [median] if median else []
            means += [mean] if mean else []
        slowest = {index: slowest[index] for index in sorted(slowest, key=slowest.get, reverse=True)[:self.SLOWEST]}
        return {"profile": sums, "states": doing, "slowest": slowest, "median": round(median_of(medians)),
                "mean": round(mean_of(means))}
