# SPDX-License-Identifier: Apache-2.0
"""Runs a Python loader and hands its batches to Penstock through shared memory.

Penstock starts this program with the user's interpreter: SOCKET LOADER ARGUMENTS PART. It needs no package, and uses numpy or
torch only if the batches hold their arrays. README.md beside this file describes the messages.
"""
import array
import ast
import contextlib
import ctypes
import dataclasses
import faulthandler
import fcntl
import functools
import importlib
import importlib.util
import inspect
import json
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time
import traceback

PIXELS = {"uint8": 1, "float16": 2, "bfloat16": 2, "float32": 4}
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool")
# slot, images, flags, 0, bytes of other arrays, get_ns, convert_ns, room_ns, get_cpu_ns, then the times of WorkerTimes since the last
# batch
BATCH = struct.Struct("<IIIIqqqqqqqqqqqq")
FIRST_OF_EPOCH = 1
MOST_TEXT, MOST_SHAPES = 30000, 8
TELLING_PERIOD = 500_000_000  # ns
ADD_SEALS, SEAL_SHRINK, SEAL_GROW, SEAL_FUTURE_WRITE = 1033, 2, 4, 16


class LoaderError(Exception):
    """The loader's fault, in one sentence: shown without a traceback."""


class SharedMemoryError(Exception):
    """The loader's workers had too little shared memory, in one sentence. Its cause is the loader's exception."""


class HarnessGone(BaseException):
    """Penstock has closed the connection."""


live = None  # what `penstock:live/CLASS` names, in the process that has it


def is_live(loader):
    return loader.partition("/")[0] == "penstock:live"


# ---- finding the loader --------------------------------------------------------------------------


def find_loader(text):
    """The object that FILE.py:NAME or MODULE:NAME names."""
    where, colon, name = text.rpartition(":")
    if not colon or not where or not name:
        raise LoaderError(f"the loader is '{text}'; expected FILE.py:FUNCTION or MODULE:FUNCTION")
    if where == "penstock":
        return {"constant": constant_batches, "queue": queued_batches, "live": live}[name.partition("/")[0]]
    if where.endswith(".py"):
        path = os.path.abspath(where)
        if not os.path.isfile(path):
            raise LoaderError(f"there is no file '{where}' for the loader '{text}'")
        stem = os.path.splitext(os.path.basename(path))[0]
        sys.path.insert(0, os.path.dirname(path))  # worker processes import it by its name
        spec = importlib.util.spec_from_file_location(stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[stem] = module
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        module = importlib.import_module(where)
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = ", ".join(n for n in vars(module) if not n.startswith("_"))[:200]
            raise LoaderError(f"'{where}' has no '{name}'; it has {names}")
        found = getattr(found, part)
    return found


def parse_arguments(text):
    """'workers=8,path=/x' -> {'workers': 8, 'path': '/x'}. Commas in brackets and quotes are kept."""
    parts, depth, quote, part = [], 0, "", ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0 and not quote:
            parts.append(part)
            part = ""
        else:
            part += char
    values = {}
    for part in parts + [part]:
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        if not equals or not key.strip().isidentifier():
            raise LoaderError(f"the loader's arguments are '{text}'; expected NAME=VALUE,NAME=VALUE")
        try:
            values[key.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            values[key.strip()] = value.strip()
    return values


SETTINGS = ("num_workers", "prefetch_factor", "persistent_workers", "in_order", "pin_memory")  # of PyTorch's DataLoader


def settings_among(found, arguments):
    """Takes from the arguments, and returns, the settings of a DataLoader that the function does not take."""
    try:
        taken = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return {}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken):
        return {}
    names = [parameter.name for parameter in taken]
    return {name: arguments.pop(name) for name in SETTINGS if name in arguments and name not in names}


class ReplacedSettings:
    """Every DataLoader of PyTorch that is made from now on has these settings, whatever the code states."""

    def __init__(self, settings):
        self.settings, self.used = settings, False
        if not settings:
            return
        try:
            loader = importlib.import_module("torch.utils.data").DataLoader
        except ImportError:
            raise self.refusal() from None
        make = loader.__init__
        known = inspect.signature(make)

        @functools.wraps(make)
        def make_with(*positional, **named):
            bound = known.bind(*positional, **named)
            for name, value in self.settings.items():
                if name not in known.parameters:
                    raise LoaderError(f"the DataLoader of this PyTorch has no '{name}'")
                bound.arguments[name] = value
            if not bound.arguments.get("num_workers", 0):  # it refuses settings of workers without any
                for name in ("prefetch_factor", "persistent_workers"):
                    if name not in self.settings:
                        bound.arguments.pop(name, None)
            self.used = True
            make(*bound.args, **bound.kwargs)

        replace(loader, "__init__", make_with)

    def refusal(self):
        return LoaderError(f"the function takes no argument '{next(iter(self.settings))}', and makes no DataLoader of PyTorch "
                           "for which it could be set")

    def notes(self):
        """Call after the first batch."""
        if not self.settings:
            return []
        if not self.used:
            raise self.refusal()
        values = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        return [f"{values} replaces what the function states when it makes a DataLoader, because it takes no such argument"]


def constant_batches(images=64, height=224, width=224, channels=3):
    """The batches of the reference benchmarks: the same random bytes again and again."""
    pixels = memoryview(os.urandom(images * height * width * channels)).cast(
        "B", (images, height, width, channels))
    labels = memoryview(array.array("i", (i % 10 for i in range(images))))
    while True:
        yield pixels, labels


def queued_batches(capacity=150, **shape):
    """The same batches, put into a queue by a thread."""
    import queue

    waiting = queue.Queue(capacity)

    def fill():
        for batch in constant_batches(**shape):
            waiting.put(batch)

    threading.Thread(target=fill, daemon=True).start()
    while True:
        yield waiting.get()


def refuse_several(loader):
    """A function for training and validation often returns both loaders."""
    parts = list(loader.values()) if isinstance(loader, dict) else loader if isinstance(loader, (tuple, list)) else []
    makes_batches = [hasattr(type(part), "__iter__") and not hasattr(part, "shape") and
                     not isinstance(part, (tuple, list, dict, str, bytes, memoryview, array.array)) and
                     not dataclasses.is_dataclass(part) for part in parts]
    if len(parts) > 1 and all(makes_batches):
        names = f" ({', '.join(map(str, loader))})" if isinstance(loader, dict) else ""
        raise LoaderError(f"the function returns {len(parts)} loaders{names}; choose one: name a function that returns it")


class Batches:
    """The loader's batches as `for epoch in ...: for batch in loader:` sees them."""

    def __init__(self, found, arguments, part, profiles=False):
        self.make = (lambda: found(**arguments)) if callable(found) else (lambda: found)
        if arguments and not callable(found):
            raise LoaderError("the loader is no function, so it takes no arguments")
        self.replaced = ReplacedSettings(settings_among(found, arguments) if callable(found) else {})
        self.loader = self.make()
        self.part = part
        self.times = WorkerTimes(part, profiles)
        self.times.table = WorkerTable()
        self.times.install()
        self.times.install_carrying()
        self.traits = Traits()
        self.traits.install()
        refuse_several(self.loader)
        if not hasattr(self.loader, "__iter__") and not hasattr(self.loader, "__next__"):
            raise LoaderError(f"the loader is of type {type(self.loader).__name__}; expected an iterable of batches")
        self.iterator = None
        self.epoch = -1
        self.taken = self.total = 0  # batches of this epoch; of all epochs
        self.renewed = False  # since the last batch: reset, or made again

    def begin_epoch(self):
        self.epoch += 1
        self.taken = 0
        for name in ("sampler", "batch_sampler"):
            set_epoch = getattr(getattr(self.loader, name, None), "set_epoch", None)
            if callable(set_epoch):
                set_epoch(self.epoch)
        self.iterator = iter(self.loader)

    def steps_per_epoch(self):
        """0: not known. A loader may have no length, or one that raises an exception."""
        try:
            return len(self.loader) if self.part != "handover" else 0
        except Exception:  # pylint: disable=broad-except
            return 0

    def end_epoch(self):
        """After the iterator's last batch. Where that was no batch, a loop over the same loader would end here for good."""
        if self.taken > 0:
            return
        if self.total == 0:
            raise LoaderError("the loader yielded no batch")
        if self.renewed or not hasattr(type(self.loader), "__next__"):
            raise LoaderError(f"the loader ended after {self.total} batches, and yields no second epoch; expected a function "
                              "that makes it, or an iterable that can be iterated again")
        self.renewed = True
        self.epoch -= 1  # it has not begun
        reset = getattr(self.loader, "reset", None)
        if callable(reset):
            reset()
        else:  # an iterator that yields once
            self.loader = None
            self.loader = self.make()

    def next(self):
        """The next batch, and whether it is the first one of an epoch."""
        if self.part == "handover" and self.total > 0:
            self.iterator = self.loader = None  # its workers end
            return self.first, False
        while True:
            if self.iterator is None:
                self.begin_epoch()
            try:
                batch = next(self.iterator)
            except StopIteration:
                self.iterator = None  # its workers end before the next epoch begins
            except Exception as error:
                problem = shared_memory_problem(error, self.loader)
                if problem:
                    raise SharedMemoryError(problem) from error
                raise
            if self.iterator is None:
                self.end_epoch()
                continue
            self.taken += 1
            self.total += 1
            self.renewed = False
            if self.part == "handover":
                self.first = batch
            return batch, self.taken == 1


# ---- reading a batch -----------------------------------------------------------------------------


FORMATS = {"B": "uint8", "i": "int32", "q": "int64", "f": "float32", "e": "float16", "d": "float64"}
CHANNELS = (1, 3, 4)
PIXEL_NAMES = ("image", "images", "pixel_values", "pixels", "img", "x", "inputs")
LABEL_NAMES = ("label", "labels", "target", "targets", "y")


class Leaf:
    """An array of a batch, as it lies in memory. `key` is its place: "image", "1", "inputs.pixels"."""

    def __init__(self, value, key):
        self.key = key
        self.torch = self.numpy = self.buffer = None
        if type(value).__module__.partition(".")[0] == "torch":
            self.torch = value.detach()
            self.shape, self.dtype = tuple(value.shape), str(value.dtype).replace("torch.", "")
        elif isinstance(value, (memoryview, array.array)):
            self.buffer = memoryview(value)
            self.shape = self.buffer.shape
            self.dtype = FORMATS.get(self.buffer.format, self.buffer.format)
        else:
            self.numpy = as_numpy(value)
            self.shape, self.dtype = self.numpy.shape, self.numpy.dtype.name


def as_numpy(value):
    import numpy

    if isinstance(value, numpy.ndarray):
        return value
    for method in ("numpy", "as_array", "as_cpu"):  # TensorFlow; DALI, whose lists in main memory have as_cpu too
        if hasattr(value, method):
            return as_numpy(getattr(value, method)())
    if hasattr(value, "__dlpack__"):
        return numpy.from_dlpack(value)
    return numpy.asarray(value)


def leaves(value, depth=0, key=""):
    """The arrays in a batch, in their order."""
    if depth > 4 or value is None or isinstance(value, (str, bytes)):
        return
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, int) for item in value):
            yield Leaf(array.array("q", value), key)
            return
        names = getattr(value, "_fields", range(len(value)))
        parts = zip(names, value)
    elif hasattr(value, "items") and hasattr(value, "keys"):
        parts = [(name, value[name]) for name in value.keys()]
    elif dataclasses.is_dataclass(value):
        parts = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    elif isinstance(value, (memoryview, array.array)) or hasattr(value, "shape") or hasattr(value, "__dlpack__"):
        yield Leaf(value, key)
        return
    else:
        return
    for name, part in parts:
        yield from leaves(part, depth + 1, f"{key}.{name}" if key else str(name))


def choose(kind, found, requested, names, fits):
    """The array of pixels or labels: the one that the user names, else one with a usual name, else the first that fits."""
    if requested:
        named = next((leaf for leaf in found if leaf.key == requested), None)
        if named is None or not fits(named):
            keys = ", ".join(f"{leaf.key}: {leaf.dtype}{list(leaf.shape)}" for leaf in found[:MOST_SHAPES])
            raise LoaderError(f"--{kind} is '{requested}', which {'does not fit' if named else 'is not in the batch'}; it holds {keys}")
        return named
    fitting = [leaf for leaf in found if fits(leaf)]
    usual = [leaf for name in names for leaf in fitting if leaf.key.rpartition(".")[2].lower() == name]
    return (usual or fitting or [None])[0]


class Layout:
    """What every batch looks like, from the first one."""

    def __init__(self, batch, pixels="", labels=""):
        self.requested = pixels, labels
        pixels, labels, others = self.find(batch)
        self.others = [leaf.key for leaf in others]
        self.arrays = 1 + (labels is not None) + len(others)
        self.keys = pixels.key, labels.key if labels else ""
        shape = tuple(pixels.shape)
        if pixels.dtype not in PIXELS:
            raise LoaderError(f"the loader's pixels are {pixels.dtype}; expected {', '.join(PIXELS)}")
        self.dtype = pixels.dtype
        self.planar = shape[1] in (1, 3, 4) and shape[3] not in (1, 3, 4)
        if not self.planar and shape[3] not in (1, 3, 4):
            raise LoaderError(f"the loader's pixels have shape {list(shape)}; expected [N,H,W,C] or [N,C,H,W] with 1, 3 or 4 "
                              "channels")
        # Tensors in PyTorch's channels_last format lie in memory as [N,H,W,C].
        self.channels_last = self.planar and is_channels_last(pixels)
        self.shape = shape
        self.images = shape[0]
        self.has_labels = labels is not None
        self.pixel_bytes = PIXELS[self.dtype] * shape[0] * shape[1] * shape[2] * shape[3]
        self.bytes = self.pixel_bytes + 4 * self.images
        self.notes = self.remarks()

    def remarks(self):
        """What is remarkable about the arrays, in sentences."""
        notes = []
        if self.keys[0] and not self.keys[0].isdigit():
            notes.append(f"pixels are '{self.keys[0]}' of the batch" + (f", labels '{self.keys[1]}'" if self.keys[1] else "") +
                         "; --pixels and --labels choose others")
        if self.others:
            keys = ", ".join(self.others[:MOST_SHAPES]) + (", ..." if len(self.others) > MOST_SHAPES else "")
            notes.append(f"the batch's other arrays ({keys}) are copied too, as a training loop copies them to its device")
        if self.dtype == "float32":
            notes.append("the loader yields float32, four times the bytes of uint8 that are copied to the device; bytes could be "
                         "normalised there")
        return notes

    def find(self, batch):
        found = list(leaves(batch))
        pixels = choose("pixels", found, self.requested[0], PIXEL_NAMES, lambda leaf: len(leaf.shape) == 4)
        if pixels is None:
            shapes = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in found]
            counts = [f"{shapes.count(shape)} of {shape}" if shapes.count(shape) > 1 else shape for shape in dict.fromkeys(shapes)]
            text = ", ".join(counts[:MOST_SHAPES]) + (", ..." if len(counts) > MOST_SHAPES else "")
            raise LoaderError(f"the loader's batch holds {text or 'a ' + type(batch).__name__}; expected one array of images with "
                              "four dimensions")
        labels = choose("labels", found, self.requested[1], LABEL_NAMES,
                        lambda leaf: leaf is not pixels and leaf.dtype in INTEGERS and
                        leaf.shape in ((pixels.shape[0],), (pixels.shape[0], 1)))
        return pixels, labels, [leaf for leaf in found if leaf is not pixels and leaf is not labels]

    @staticmethod
    def traits():
        """Of batches, as numbers; those of images are their shape."""
        return {}

    def describe(self):
        height, width, channels = self.shape[1:]
        if self.planar:
            channels, height, width = self.shape[1:]
        return {"images": self.images, "height": height, "width": width, "channels": channels, "pixels": self.dtype,
                "planar": self.planar and not self.channels_last, "labels": self.has_labels,
                "python": sys.version.split()[0]}

    def check(self, number, pixels, labels):
        """Whether the batch has all images; the last one of an epoch may have fewer. Raises an error for any other shape."""
        same = pixels.dtype == self.dtype and pixels.shape[1:] == self.shape[1:] and 0 < pixels.shape[0] <= self.images
        if not same or is_channels_last(pixels) != self.channels_last:
            raise LoaderError(f"batch {number} of the loader has {pixels.dtype}{list(pixels.shape)} images; the first one had "
                              f"{self.dtype}{list(self.shape)}, and the shape must not change during a run")
        if (labels is not None) != self.has_labels:
            raise LoaderError(f"batch {number} of the loader has {'no ' if labels is None else ''}labels, unlike the first one")
        return pixels.shape[0] == self.images

    def prepare(self, pool):
        self.pool, self.other_arrays = pool, Others()
        pool.touch(self.bytes)

    def put(self, slot, batch, number):
        """Writes the batch to the slot; returns its images, and the bytes of its other arrays."""
        pixels, labels, others = self.find(batch)
        self.check(number, pixels, labels)
        self.pool.put_pixels(slot, pixels)
        self.pool.put_labels(slot, labels)
        return pixels.shape[0], self.other_arrays.put(others)


def is_channels_last(pixels):
    if pixels.torch is None or pixels.torch.is_contiguous():
        return False
    import torch

    return pixels.torch.is_contiguous(memory_format=torch.channels_last)


def has_images(batch):
    return any(len(leaf.shape) == 4 and leaf.dtype in PIXELS and (leaf.shape[1] in CHANNELS or leaf.shape[3] in CHANNELS)
               for leaf in leaves(batch))


def layout_of(batch, pixels, labels, samples, count):
    """Batches are images if they hold an array that may be some, and nothing else is stated."""
    if pixels or labels or not samples and not count and has_images(batch):
        return Layout(batch, pixels, labels)
    return AnyLayout(batch, samples, count)


def counter_of(loader, count):
    """What is counted, and the function of that name in the loader's file, if it has one."""
    if not count:
        return None
    where = loader.rpartition(":")[0]
    name = os.path.splitext(os.path.basename(where))[0] if where.endswith(".py") else where
    function = getattr(sys.modules.get(name), count, None)
    return count, function if callable(function) else None


def advise(loader, layout, quota):
    """What is remarkable about the loader's settings on this machine, in sentences. `quota`: cores that control groups allow; 0: any."""
    notes = []
    workers, cores = getattr(loader, "num_workers", None), len(os.sched_getaffinity(0))
    cores = min(cores, quota or cores)
    loaders = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if isinstance(workers, int):
        ahead = getattr(loader, "prefetch_factor", None) or 2
        notes.append(f"the loader is a {type(loader).__name__} with num_workers={workers}"
                     + (f", prefetch_factor={ahead}" if workers else "")
                     + f", pin_memory={getattr(loader, 'pin_memory', False)}")
        if workers == 0:
            notes.append("with num_workers=0 samples are loaded between two batches, by the process that asks for them: they do "
                         "not overlap with training; try num_workers=2 or more")
        elif loaders * workers > cores:
            total = f"{loaders} loaders with {workers} workers each" if loaders > 1 else f"{workers} workers"
            notes.append(f"{total} share {cores} usable core{'s' if cores > 1 else ''}; more workers than cores seldom help")
        needed, free = loaders * workers * ahead * layout.pixel_bytes, free_bytes("/dev/shm")
        if workers and 0 < free < needed:
            notes.append(f"/dev/shm has {free >> 20} MiB left, and the workers' batches may take {needed >> 20} MiB: enlarge it, "
                         "or lower num_workers or prefetch_factor")
        cv2 = sys.modules.get("cv2")
        if workers and cv2 is not None and cv2.getNumThreads() > 1:
            notes.append(f"OpenCV may use {cv2.getNumThreads()} threads in each of {workers} workers on {cores} cores; call "
                         "cv2.setNumThreads(0) in the workers")
    return notes


def shared_memory_problem(error, loader):
    """What to do if a loader's workers ran out of shared memory, as a sentence; empty: the exception says something else."""
    text = str(error)
    if not any(words in text for words in ("Bus error", "shared memory", "/torch_")):
        return ""
    try:
        status = os.statvfs("/dev/shm")
        size = f"/dev/shm has {status.f_blocks * status.f_frsize >> 20} MiB, {status.f_bavail * status.f_frsize >> 20} MiB of it free"
    except OSError:
        size = "there is no /dev/shm"
    needs = ""
    with contextlib.suppress(Exception):  # the data set may be what fails
        batches = loader.num_workers * (loader.prefetch_factor or 2) + 1  # the loop has one more
        need = batches * loader.batch_size * bytes_in(loader.dataset[0])
        needs = f", and {batches} batches ({loader.num_workers} workers) need about {(need >> 20) + 1} MiB"
    return (f"the loader's workers have too little shared memory: {size}{needs}; enlarge it (docker run --shm-size=8g; Kubernetes: "
            "an emptyDir with medium: Memory, mounted at /dev/shm), or lower num_workers, prefetch_factor or the batch size")


def bytes_in(value):
    """Of the arrays in a sample or a batch."""
    made = array_of(value)
    if made is not None:
        return made.nbytes
    return sum(bytes_in(part) for _, part in parts_of(value) or [])


def free_bytes(path):
    """Of a file system; 0: not known."""
    try:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize
    except OSError:
        return 0


class Pool:
    """The slots, in memory that only this process may write to."""

    def __init__(self, layout, slots, room):
        self.layout, self.slots, self.room = layout, slots, room
        self.stride = (room + 4095) // 4096 * 4096
        self.fd = os.memfd_create("penstock-loader", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.stride * slots)
        self.memory = mmap.mmap(self.fd, self.stride * slots)
        fcntl.fcntl(self.fd, ADD_SEALS, SEAL_SHRINK | SEAL_GROW)
        try:
            fcntl.fcntl(self.fd, ADD_SEALS, SEAL_FUTURE_WRITE)
        except OSError:  # before Linux 5.1
            pass
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.views = {}

    def touch(self, size):
        """Takes the memory for the first `size` bytes of each slot now, not when the first batches are copied."""
        for slot in range(self.slots):
            for page in range(slot * self.stride, slot * self.stride + min(size, self.room), 4096):
                self.memory[page] = 0

    def view(self, kind, slot, part, make):
        """A view of a slot, made once."""
        key = (kind, slot, part)
        if key not in self.views:
            self.views[key] = make()
        return self.views[key]

    def put_pixels(self, slot, pixels):
        layout, begin, images = self.layout, slot * self.stride, pixels.shape[0]
        count = layout.pixel_bytes // PIXELS[layout.dtype]
        if pixels.torch is not None:
            import torch

            source = pixels.torch.permute(0, 2, 3, 1) if layout.channels_last else pixels.torch
            if source.is_contiguous() and source.device.type == "cpu":
                # copy_ would use threads, which spin afterwards and take cores from the loader and from the loop. A copy to a
                # GPU from a training loop has one thread.
                ctypes.memmove(self.address + begin, source.data_ptr(), source.numel() * source.element_size())
                return
            target = self.view("torch", slot, "pixels", lambda: torch.frombuffer(
                self.memory, dtype=getattr(torch, layout.dtype), count=count, offset=begin).view((layout.images, *source.shape[1:])))
            target[:images].copy_(source)
        elif pixels.numpy is not None:
            import numpy

            kind = numpy.uint16 if layout.dtype == "bfloat16" else numpy.dtype(layout.dtype)
            source = pixels.numpy.view(kind) if layout.dtype == "bfloat16" else pixels.numpy
            target = self.view("numpy", slot, "pixels", lambda: numpy.frombuffer(
                self.memory, kind, count, begin).reshape(layout.shape))
            numpy.copyto(target[:images], source)
        else:
            data = pixels.buffer.cast("B")
            self.memory[begin:begin + len(data)] = data

    def put_labels(self, slot, labels):
        begin = slot * self.stride + self.layout.pixel_bytes
        if labels is None:
            return
        if labels.torch is not None:
            values = labels.torch.reshape(-1).tolist()
        elif labels.numpy is not None:
            values = labels.numpy.reshape(-1).tolist()
        else:
            values = labels.buffer.tolist()
        try:
            self.memory[begin:begin + 4 * len(values)] = array.array("i", values).tobytes()
        except OverflowError:
            raise LoaderError("a label of the loader does not fit into 32 bits") from None


class Others:
    """Copies arrays that no device reads, because a training loop copies them to its device."""

    def __init__(self):
        self.memory, self.address = None, 0

    def put(self, leaves):
        """The number of bytes."""
        copied = 0
        for leaf in leaves:
            try:
                copied += self.copy(leaf)
            except Exception:  # pylint: disable=broad-except
                pass  # it has no plain memory, as a sparse tensor
        return copied

    def copy(self, leaf):
        if leaf.torch is not None:
            source = leaf.torch.cpu().contiguous()
            begin, size = source.data_ptr(), source.numel() * source.element_size()
        elif leaf.numpy is not None:
            import numpy

            if leaf.numpy.dtype.hasobject:
                return 0
            source = numpy.ascontiguousarray(leaf.numpy)
            begin, size = source.ctypes.data, source.nbytes
        else:
            source = leaf.buffer.tobytes()
            return len(source)
        return self.take(begin, size)

    def take(self, begin, size):
        if self.memory is None or len(self.memory) < size:
            self.memory = mmap.mmap(-1, size)
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        ctypes.memmove(self.address, begin, size)
        return size


# ---- the conversation ----------------------------------------------------------------------------


class Harness:
    """The socket to Penstock: one packet is one message."""

    def __init__(self, fd):
        self.socket = socket.socket(fileno=fd)

    def say(self, values, fds=()):
        data = json.dumps(values).encode()
        if fds:
            socket.send_fds(self.socket, [data], list(fds))
        else:
            self.socket.send(data)

    def take(self, kind):
        """Waits for Penstock's next message: how many slots there are, later a slot for the next batch. Ends the program if
        Penstock has gone."""
        data = self.socket.recv(struct.calcsize(kind))
        if not data:
            raise HarnessGone
        return struct.unpack(kind, data)


def feed(harness, loader, arguments, part, profiles, pixels, labels, samples, count, quota):
    batches = Batches(find_loader(loader), parse_arguments(arguments), part, profiles == "true")
    batch, begins = batches.next()
    layout = layout_of(batch, pixels, labels, samples, counter_of(loader, count))
    workers = batches.times.workers(batches.loader)
    if workers is None and part in ("collate", "samples"):
        raise LoaderError(f"the loader is no DataLoader of PyTorch: its part '{part}' cannot run alone")
    notes = batches.replaced.notes() + layout.notes + advise(batches.loader, layout, int(quota))
    if is_live(loader):
        notes.append("the loader is an object of a process that goes on: each run takes a fresh iterator of it, and differences between "
                     "processes are in no interval")
    if workers is None and profiles == "true":
        notes.append("which code loads samples is not known: the loader is no DataLoader of PyTorch")
    harness.say({**layout.describe(), "notes": notes, "workers": -1 if workers is None else workers,
                 "steps": batches.steps_per_epoch(), "queue": batches.times.queued > 0, "pin": batches.times.pinned > 0,
                 "settings": settings_of(batches.loader)})
    slots, room = harness.take("<QQ")
    pool = Pool(layout, slots, room)
    layout.prepare(pool)
    harness.say({"stride": pool.stride, "slots": slots}, [pool.fd])
    os.close(pool.fd)
    number, got, got_cpu, told = 0, 0, 0, 0
    clock, cpu_clock = time.monotonic_ns, time.thread_time_ns
    while True:
        begin = clock()
        (slot,) = harness.take("<I")
        room = clock() - begin
        if number > 0:  # no batch is asked for before there is a slot for it
            begin, cpu = clock(), cpu_clock() + core_wait_ns()
            batch, begins = batches.next()
            got, got_cpu = clock() - begin, cpu_clock() + core_wait_ns() - cpu
        begin = clock()
        images, other_bytes = layout.put(slot, batch, number)
        harness.socket.send(BATCH.pack(slot, images, FIRST_OF_EPOCH if begins else 0, 0, other_bytes, got, clock() - begin,
                                       room, got_cpu, *batches.times.since_last()))
        batches.traits.look_at(batch, layout.arrays)
        batch = None  # its memory may be the loader's next batch
        number += 1
        if clock() - told > TELLING_PERIOD:
            told = clock()
            harness.say({"traits": {**batches.traits.values(), **layout.traits()}})
            if batches.times.profile is not None:
                harness.say(batches.times.profile_of())


def end_of(error):
    """What ends the loader, as a message."""
    if isinstance(error, LoaderError):
        return {"error": str(error)}
    if isinstance(error, SystemExit):
        hint = ""
        if isinstance(error.code, int):  # argparse has printed what it misses
            hint = "; a module that parses arguments when it is imported must do so under if __name__ == '__main__'"
        return {"error": f"the loader called sys.exit({error.code!r}){hint}"}
    said = ""
    if isinstance(error, SharedMemoryError):
        said, error = str(error), error.__cause__
    # The frames of this program tell a user nothing.
    lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
    own = [i for i, line in enumerate(lines) if '"<penstock>"' in line]
    text = "\n".join(lines[:1] + lines[own[-1] + 1:] if own else lines)
    if isinstance(error, ModuleNotFoundError):
        text += f"\nThe interpreter is {sys.executable}; --python chooses another one."
    text = text.encode("utf-8", "backslashreplace").decode()  # names of files may hold odd bytes
    return {"error": said or "the loader raised an exception", "traceback": text[-MOST_TEXT:]}


@contextlib.contextmanager
def own_workers(loader):
    """A DataLoader with persistent workers makes others, and has those of before at the end."""
    iterator = getattr(loader, "_iterator", None)
    keeps = iterator is not None or getattr(loader, "persistent_workers", False)
    if keeps:
        loader._iterator = None
    try:
        yield
    finally:
        if keeps:
            loader._iterator = iterator


def feed_and_go_on(fd, loader, *more):
    """In a process that has the loader (penstock_bench.live): feeds one run, and leaves nothing behind."""
    harness = Harness(fd)
    try:
        with own_workers(live):
            feed(harness, loader, *more)
    except (HarnessGone, BrokenPipeError, ConnectionResetError):
        pass
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None
    except BaseException as error:  # pylint: disable=broad-except
        with contextlib.suppress(OSError):
            harness.say(end_of(error))
    finally:
        harness.socket.close()
        undo()


def hand_over(harness, *more):
    """Gives the connection, and this program, to the process that listens at $PENSTOCK_LIVE: it has the loader, and feeds."""
    with socket.socket(socket.AF_UNIX) as host:
        try:
            host.connect(os.environ["PENSTOCK_LIVE"])
        except (KeyError, OSError):
            raise LoaderError("penstock:live is a loader of the process that called penstock_bench, which has ended or did not start "
                              "this run") from None
        owner = struct.unpack("3i", host.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        signal.signal(signal.SIGUSR2, lambda *_: os.kill(owner, signal.SIGUSR2))  # it prints its stacks
        order = json.dumps({"program": program, "arguments": more}).encode()
        socket.send_fds(host, [struct.pack("<I", len(order))], [harness.socket.fileno()])
        host.sendall(order)
        harness.socket.close()  # so that Penstock sees the other process close it
        host.recv(1)  # until it has fed the run


def main():
    fd, loader, *more = sys.argv[1:]
    sys.argv[:] = [loader.rpartition(":")[0]]  # a module may parse it
    harness = Harness(int(fd))
    # Forked workers inherit it, and it needs no interpreter that works.
    faulthandler.register(signal.SIGUSR2, file=sys.stderr, all_threads=True)
    try:
        harness.say({"pid": os.getpid()})
        if is_live(loader):
            hand_over(harness, loader, *more)
            return
        feed(harness, loader, *more)
    except (HarnessGone, BrokenPipeError, ConnectionResetError):
        return
    except BaseException as error:  # pylint: disable=broad-except
        harness.say(end_of(error))
    os._exit(1)  # do not wait for the loader's threads


if __name__ == "__main__":
    main()
