# SPDX-License-Identifier: Apache-2.0
"""What is remarkable about a loader's batches and about the start of its workers, as numbers. Penstock puts this text between
worker_times.py and any_batch.py, whose names it uses.
"""
import sys
import time


class Traits:
    """Numbers of one loader, by the names that README.md lists. Batches are looked at before the next one is asked for."""

    MOST_LOOKED_AT = 16  # batches whose padding is looked for: the first ones
    MOST_BYTES = 4 << 20  # of an array; a longer one is looked at in its first rows

    def __init__(self):
        self.batches = self.arrays = 0
        self.numbers = self.padding = 0
        self.padded = ""  # the entry whose padding is counted
        self.pickled = []  # bytes of each worker that was not forked
        self.pickling = 0  # ns, for all of them
        self.waits = OrderedWaits()

    def install(self):
        """Call before the first batch."""
        self.waits.install()
        reduction = sys.modules.get("multiprocessing.reduction")
        if reduction is not None:
            replace(reduction, "dump", self.counted(reduction.dump))

    def counted(self, dump):
        """multiprocessing's function that pickles an object into a file."""
        def counted_dump(value, file, *more, **named):
            process = sys.modules["multiprocessing.process"].BaseProcess
            if not isinstance(value, process) or not hasattr(file, "getbuffer"):
                return dump(value, file, *more, **named)
            begin, before = time.perf_counter_ns(), len(file.getbuffer())
            try:
                return dump(value, file, *more, **named)
            finally:
                self.pickled.append(len(file.getbuffer()) - before)
                self.pickling += time.perf_counter_ns() - begin

        return counted_dump

    def look_at(self, batch, arrays):
        """`arrays`: how many the batch has."""
        self.batches += 1
        self.arrays += arrays
        if self.batches <= self.MOST_LOOKED_AT:
            try:
                self.look_for_padding(batch)
            except Exception:  # pylint: disable=broad-except
                pass  # arrays of a kind that NumPy does not compare have no padding that can be found

    def look_for_padding(self, batch):
        found = [(name, entry) for name, entry in named_arrays(batch) if 2 <= entry.ndim <= 3 and entry.shape[1] >= 8]
        masks = [pair for pair in found if "mask" in pair[0].lower() and pair[1].ndim == 2]
        for name, entry in masks or found:
            entry = entry[:max(1, self.MOST_BYTES * len(entry) // max(1, entry.nbytes))]
            padding = masked_out(entry) if masks else trailing(entry)
            if padding is None or self.padded not in ("", name):
                continue
            self.padded = name
            self.padding += padding
            self.numbers += entry.shape[0] * entry.shape[1]
            break

    def values(self):
        values = {"arrays_per_batch": self.arrays / max(1, self.batches)}
        if self.padded:
            values[f"padding_percent: {self.padded}"] = 100 * self.padding / self.numbers
        if self.pickled:
            values["pickled_bytes_per_worker"] = sum(self.pickled) / len(self.pickled)
            values["pickling_ms_per_worker"] = self.pickling / len(self.pickled) / 1e6
        if self.waits.waited:
            values["held_back_percent"] = 100 * self.waits.held / self.waits.waited
        return values


def named_arrays(batch, name="", depth=0):
    """Arrays of NumPy that show a batch's arrays in memory, with the names of their entries."""
    made = array_of(batch)
    if made is not None:
        try:
            made = made.numpy() if hasattr(made, "numpy") and made.is_cpu else made
        except (AttributeError, RuntimeError, TypeError):  # NumPy has no such type
            return
        if hasattr(made, "ndim") and getattr(made.dtype, "kind", "") in tuple("biuf"):
            yield name, made
        return
    for part, value in (parts_of(batch) or [])[:MOST_SHAPES] if depth < 4 else []:
        yield from named_arrays(value, f"{name}.{part}" if name else str(part), depth + 1)


def masked_out(mask):
    """How many entries of a mask of zeros and ones are zeros at the begin or end of their row; None: it is no such mask."""
    used = mask != 0
    if mask.dtype.kind == "f" or not ((mask == 1) | ~used).all() or not used.any(axis=1).all():
        return None
    inside = used.cumsum(axis=1).astype(bool) & used[:, ::-1].cumsum(axis=1)[:, ::-1].astype(bool)
    return int(mask.size - inside.sum())


def trailing(entry):
    """How many positions at the ends of rows hold nothing but one value, which several rows have there; None: too few rows are padded.
    For numbers without a point the value is the one that most rows end with, else 0."""
    ends = entry[:, -1]
    if entry.dtype.kind == "f":
        value = 0
    elif entry.ndim == 2:
        values, counts = sys.modules["numpy"].unique(ends, return_counts=True)
        value = values[counts.argmax()]
    else:
        return None
    differs = entry != value
    if entry.ndim == 3:
        differs = differs.any(axis=2)
    last = differs.shape[1] - differs[:, ::-1].argmax(axis=1)  # the length of a row without its end
    rows = differs.any(axis=1)  # others hold one value only, so it may be data
    padding = int((differs.shape[1] - last)[rows].sum())
    return padding if padding >= 2 * rows.sum() > 0 else None


class OrderedWaits:
    """How long PyTorch's DataLoader waits for the batch that is next in order, and for how long of that a later one is there."""

    def __init__(self):
        self.waited = self.held = 0  # ns
        self.later = 0  # when a later batch came, in the present wait; 0: none did

    def install(self):
        iterator = getattr(sys.modules.get("torch.utils.data.dataloader"), "_MultiProcessingDataLoaderIter", None)
        if all(hasattr(iterator, name) for name in ("_next_data", "_get_data")):
            replace(iterator, "_next_data", self.timed(iterator._next_data))
            replace(iterator, "_get_data", self.noting(iterator._get_data))

    @staticmethod
    def has_later(iterator):
        return any(len(info) == 2 for index, info in iterator._task_info.items() if index != iterator._rcvd_idx)

    def timed(self, next_data):
        def next_batch(iterator):
            begin = time.monotonic_ns()
            try:
                self.later = begin if self.has_later(iterator) else 0
            except (AttributeError, TypeError):  # another version of PyTorch
                self.later = 0
            data = next_data(iterator)
            end = time.monotonic_ns()
            self.waited += end - begin
            self.held += end - self.later if self.later else 0
            return data

        return next_batch

    def noting(self, get_data):
        def get_next(iterator):
            index, data = found = get_data(iterator)
            if not self.later and isinstance(index, int) and index > getattr(iterator, "_rcvd_idx", index):
                self.later = time.monotonic_ns()
            return found

        return get_next


