# SPDX-License-Identifier: Apache-2.0
"""Reads batches of arrays of any kind, in any nest of containers. Penstock puts this text between worker_times.py and
feed_loader.py, whose names it uses.
"""
import array
import ctypes
import dataclasses
import math
import operator
import sys

MEMMOVE = ctypes.CDLL(None).memmove  # with less to convert than ctypes.memmove
MEMMOVE.argtypes, MEMMOVE.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), None
MOST_PARTS = 4  # a list of so many arrays of one size may be the parts of a batch


def parts_of(value):
    """The parts of a container by their names; None: it is none."""
    if isinstance(value, (list, tuple)):
        return list(zip(getattr(value, "_fields", range(len(value))), value))
    if hasattr(value, "items") and hasattr(value, "keys"):
        return [(name, value[name]) for name in value.keys()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    if hasattr(value, "column_names") and hasattr(value, "columns"):  # Arrow's tables and record batches
        return list(zip(value.column_names, value.columns))
    return None


def array_of(value):
    """The value as a tensor of PyTorch, an array of NumPy or a buffer; None: it is no array."""
    if type(value).__module__.partition(".")[0] == "torch":
        return value.detach() if hasattr(value, "detach") else None
    if hasattr(value, "column_names"):
        return None
    if isinstance(value, (memoryview, array.array)):
        return memoryview(value)
    if hasattr(value, "chunks"):  # Arrow's chunked arrays
        value = value.combine_chunks()
    if hasattr(value, "to_numpy"):
        return value.to_numpy(zero_copy_only=False) if hasattr(value, "buffers") else value.to_numpy()
    if hasattr(value, "__array_interface__") or hasattr(value, "shape") or hasattr(value, "__dlpack__"):
        return as_numpy(value)
    return None


def outline(value, depth=0):
    """What a batch holds, in words: "dict of input_ids int64[16,2048], ..."."""
    made = array_of(value)
    if made is not None:
        kind = getattr(made, "dtype", None) or FORMATS.get(made.format, made.format)
        return f"{str(kind).replace('torch.', '')}[{','.join(map(str, made.shape))}]"
    parts = parts_of(value)
    if not parts or depth > 3:
        return type(value).__name__
    shown = [f"{name} {outline(part, depth + 1)}" if isinstance(name, str) else outline(part, depth + 1)
             for name, part in parts[:MOST_SHAPES]]
    if isinstance(value, list) and len(parts) > 2:
        return f"list of {len(parts)}: {shown[0]}, ..."
    return f"{type(value).__name__} of {', '.join(shown)}{', ...' if len(parts) > len(shown) else ''}"


def length_of(value):
    """Elements along the first dimension; None: it has none."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return len(value) if isinstance(value, (list, memoryview, array.array)) or hasattr(value, "buffers") else None
    return shape[0] if len(shape) > 0 else None


def is_list_of_samples(value):
    """A list whose items are alike and not a few arrays of one size, which may be the parts of a batch."""
    if not isinstance(value, list) or len(value) < 2 or any(type(item) is not type(value[0]) for item in value):
        return False
    shapes = [tuple(item.shape) for item in value if hasattr(item, "shape")]
    if len(shapes) < len(value):
        return parts_of(value[0]) is not None or isinstance(value[0], (str, bytes, int, float)) or array_of(value[0]) is None
    alike = len(set(map(len, shapes))) == 1
    return alike and (len(set(shapes)) > 1 or len(value) > MOST_PARTS)


def lengths_in(value, key=""):
    """Places of a batch that may have one element for each sample, and how many elements these have."""
    if is_list_of_samples(value):
        yield key, len(value)
        same = {length_of(item) for item in value}
        if len(same) == 1 and None not in same and len({tuple(getattr(item, "shape", ())) for item in value}) == 1:
            yield f"{key}.0" if key else "0", same.pop()
        return
    parts = parts_of(value)
    if parts is None:
        length = length_of(array_of(value)) if array_of(value) is not None else None
        if length is not None:
            yield key, length
        return
    for name, part in parts:
        yield from lengths_in(part, f"{key}.{name}" if key else str(name))


def part_at(value, key):
    """The part of a batch that lengths_in calls so. Names in dictionaries may have dots."""
    while key:
        if hasattr(value, "keys") and key in value.keys():
            return value[key]
        name, _, key = key.partition(".")
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            value = value[int(name)]
        elif hasattr(value, "keys"):
            value = value[name]
        else:
            value = value.column(name) if hasattr(value, "column_names") else getattr(value, name)
    return value


def amount_of(value):
    """The numbers in an array, or in all arrays and lists of a container. One number, also in an array without dimensions, is
    itself."""
    if isinstance(value, (int, float)):
        return int(value)
    made = array_of(value)
    if made is not None and not made.shape and not getattr(made.dtype, "hasobject", False):
        return int(made)
    return numbers_in(value)


def numbers_in(value):
    made = array_of(value)
    if made is not None:
        if getattr(made.dtype if hasattr(made, "dtype") else None, "hasobject", False):
            return sum(map(numbers_in, made.reshape(-1).tolist()))  # rows of several lengths
        return math.prod(made.shape)
    if isinstance(value, (int, float)):
        return 1
    if isinstance(value, list) and value and isinstance(value[0], (int, float)):
        return len(value)
    return sum(numbers_in(part) for _, part in parts_of(value))


class Counting:
    """How many samples a batch has: `samples` is their number, or the entry with one element for each, or "", if what the arrays share
    says it. `count` is a name and a function, or None: what the function returns for a batch is counted in place of samples; without
    a function, the numbers of the entry of that name. How many samples hold them is a trait, where it is known.
    """

    def __init__(self, batch, samples="", count=None):
        self.key = self.number = None
        self.count = count
        self.notes = []
        self.samples = self.counted = 0  # of the same batches
        if samples.isdigit():
            self.number = int(samples)
            return
        try:
            self.key = samples or self.find_key(batch)
        except LoaderError:
            if not count:
                raise

    def find_key(self, batch):
        found = {}
        for key, length in lengths_in(batch):
            found.setdefault(length, key)
        if len(found) == 1:
            return next(iter(found.values()))
        for key, _ in lengths_in(batch):
            if key.rpartition(".")[2].lower() in LABEL_NAMES:
                self.notes = [f"samples are counted by '{key}', which the batch's other arrays do not share; --batch-samples chooses "
                              "another entry"]
                return key
        if not found:
            raise LoaderError(f"how many samples are in a batch of the loader is not known, since it holds no arrays: {outline(batch)}")
        candidates = ", ".join(f"{key or 'the batch'} has {length}" for length, key in list(found.items())[:MOST_SHAPES])
        raise LoaderError(f"how many samples are in a batch of the loader is not clear: {candidates}; state --batch-samples, a number "
                          f"or the entry with one element for each sample; the batch is a {outline(batch)}")

    def counts(self, batch, number):
        name, function = self.count
        if function:
            counted = function(batch)
        else:
            try:
                counted = amount_of(part_at(batch, name))
            except (KeyError, IndexError, AttributeError, TypeError, ValueError, OverflowError):
                raise LoaderError(f"batch {number} of the loader has no '{name}' whose numbers can be counted, and its file has no such "
                                  f"function; it is a {outline(batch)}") from None
        try:
            whole = operator.index(counted)
        except TypeError:
            whole = 0
        if not 0 < whole < 2**31:
            raise LoaderError(f"'{name}' counts {counted!r} in batch {number} of the loader; expected a whole number above 0; the batch "
                              f"is a {outline(batch)}")
        return whole

    def of(self, batch, number):
        """Of the batch with that number."""
        if not self.count:
            return self.samples_in(batch, number)
        counted = self.counts(batch, number)
        if (self.key is not None or self.number) and (number != 0 or not self.samples):
            try:
                self.samples += self.samples_in(batch, number)
                self.counted += counted
            except LoaderError:
                self.key = self.number = None
        return counted

    def traits(self):
        if self.counted == self.samples:  # none, or the same entry shows both: a row of tokens, of an unknown number of samples
            return {}
        return {"counted_per_sample": self.counted / self.samples}

    def samples_in(self, batch, number):
        if self.number is not None:
            return self.number
        try:
            value = part_at(batch, self.key)
            length = length_of(value)
            if length is None:
                made = array_of(value)
                length = int(value) if made is None or not made.shape else length_of(made)
        except (KeyError, IndexError, AttributeError, TypeError, ValueError):
            raise LoaderError(f"batch {number} of the loader has no '{self.key}' with one element for each sample; it is a "
                              f"{outline(batch)}") from None
        if length < 1:
            raise LoaderError(f"batch {number} of the loader has 0 samples; it is a {outline(batch)}")
        return length


class AnyLayout:
    """Batches of arrays of any kind, in any nest of containers: their bytes are copied, one array after another. `samples` and `count`
    are those of Counting."""

    def __init__(self, batch, samples="", count=None):
        self.outline = outline(batch)
        self.counting = Counting(batch, samples, count)
        self.notes = [] if count else self.counting.notes
        self.traits = self.counting.traits
        self.kinds = {list: self.copy_list, tuple: self.copy_items, dict: self.copy_dict, str: self.skip, bytes: self.skip,
                      int: self.copy_number, float: self.copy_number, bool: self.copy_number, type(None): self.skip}
        self.pool, self.scratch = None, Others()
        self.images = self.counting.of(batch, 0)
        self.begin(0, -1)
        self.copy(batch)
        if self.arrays == 0:
            raise LoaderError(f"the loader's batch holds no arrays: {self.outline}")
        # Later batches may be longer. Memory that no batch reaches takes no place.
        self.first_bytes = self.position
        self.bytes = self.position + min(3 * self.position, 64 << 20)
        self.pixel_bytes = self.first_bytes

    def describe(self):
        return {"images": self.images, "bytes": self.bytes, "outline": self.outline, "python": sys.version.split()[0]}

    def prepare(self, pool):
        self.pool = pool
        pool.touch(self.first_bytes)

    def put(self, slot, batch, number):
        """Writes the batch to the slot; returns its samples, and the bytes of its arrays."""
        samples = self.counting.of(batch, number)
        self.begin(slot * self.pool.stride, self.pool.room)
        self.copy(batch)
        return samples, self.position

    def begin(self, base, room):
        self.base, self.room, self.position, self.arrays = base, room, 0, 0
        self.address = self.pool.address + base if self.pool else 0

    def copy(self, value):
        kind = type(value)
        (self.kinds.get(kind) or self.learn(value, kind))(value)

    def learn(self, value, kind):
        """How values of that type are copied."""
        if kind.__module__.partition(".")[0] == "torch" and hasattr(value, "data_ptr"):
            copy = self.copy_tensor
        elif kind.__module__ == "numpy" and kind.__name__ == "ndarray":
            copy = self.copy_array
        elif array_of(value) is not None:
            copy = self.copy_other_array
        elif parts_of(value) is not None:
            copy = self.copy_parts
        else:
            copy = self.copy_object
        self.kinds[kind] = copy
        return copy

    def copy_items(self, values):
        kinds = self.kinds
        for value in values:  # as copy() does, without the time of its call
            kind = type(value)
            (kinds.get(kind) or self.learn(value, kind))(value)

    def copy_list(self, values):
        if values and type(values[0]) in (int, float):
            try:
                return self.copy_buffer(array.array("q" if type(values[0]) is int else "d", values))
            except (TypeError, OverflowError):
                pass  # the others are of another type
        return self.copy_items(values)

    def copy_dict(self, values):
        self.copy_items(values.values())

    def copy_parts(self, value):
        self.copy_items(part for _, part in parts_of(value))

    def copy_number(self, value):
        self.copy_buffer(array.array("d" if isinstance(value, float) else "q", [value]) if abs(value) < 2**63 else b"")

    def copy_tensor(self, tensor):
        try:
            if not (tensor.is_cpu and tensor.is_contiguous()):
                tensor = tensor.detach().cpu().contiguous()
            size, address = tensor.numel() * tensor.element_size(), tensor.data_ptr()
        except (RuntimeError, NotImplementedError):  # a sparse or nested one has no plain memory
            return
        end = self.position + size
        if end <= self.room:
            MEMMOVE(self.address + self.position, address, size)
        elif self.pool is not None:
            self.scratch.take(address, size)
        self.position = (end + 63) & -64
        self.arrays += 1

    def copy_array(self, value):
        if not value.dtype.hasobject:  # objects have no bytes for a device
            self.copy_buffer(value)

    def copy_buffer(self, value):
        size = value.nbytes if hasattr(value, "nbytes") else len(memoryview(value).cast("B"))
        end = self.position + size
        begin = self.base + self.position
        if end <= self.room:
            try:
                self.pool.memory[begin:begin + size] = value
            except (BufferError, ValueError, TypeError):  # its bytes are not in order, or of a type without a format
                self.pool.memory[begin:begin + size] = value.tobytes()
        elif self.pool is not None:
            bytes(value)  # as a loop copies it
        self.position = (end + 63) & -64
        self.arrays += 1

    def copy_other_array(self, value):
        made = array_of(value)
        if hasattr(made, "data_ptr"):
            return self.copy_tensor(made)
        return self.copy_array(made) if hasattr(made, "dtype") else self.copy_buffer(made)

    def copy_object(self, value):
        if hasattr(value, "tobytes") and hasattr(value, "size"):  # an image of Pillow
            self.copy_buffer(value.tobytes())

    def skip(self, value):
        """It has no bytes for a device."""


