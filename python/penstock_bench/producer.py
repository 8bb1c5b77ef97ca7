# SPDX-License-Identifier: Apache-2.0
"""The library penstock_producer (feeders/remote/producer/penstock_producer.h) in Python, without its JPEG files."""
import collections
import ctypes
import itertools
import pathlib
import re
import time

from penstock_bench.feed_loader import LoaderError

SLICE_MS = 200  # a call waits no longer, so that Ctrl-C is noticed between two calls
OK, TIMEOUT = 0, 1
# Name of a type: its number in penstock_producer.h, the name of its elements in NumPy, which has no bfloat16.
PIXELS = {"uint8": (0, "uint8"), "float32": (1, "float32"), "float16": (2, "float16"), "bfloat16": (3, "uint16")}
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class NoConsumerError(LoaderError):
    """No consumer had room within the timeout."""


class Options(ctypes.Structure):
    """penstock_producer_options of penstock_producer.h."""

    _fields_ = [("size", ctypes.c_size_t), ("bind", ctypes.c_int), ("hwm", ctypes.c_int), ("checksum", ctypes.c_int),
                ("timeout_ms", ctypes.c_int64), ("name", ctypes.c_char_p), ("server_key", ctypes.c_char_p),
                ("public_key", ctypes.c_char_p), ("secret_key", ctypes.c_char_p)]


def load_library():
    packed = pathlib.Path(__file__).parent / "lib" / "libpenstock_producer.so"
    try:
        library = ctypes.CDLL(str(packed) if packed.exists() else "libpenstock_producer.so.0")
    except OSError as error:
        raise LoaderError(f"cannot load the library penstock_producer ({error}): install penstock-bench with pip, or set "
                          "LD_LIBRARY_PATH to the library's folder") from None
    handle, text, number, address = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_void_p
    for name, result, *arguments in [
            ("options_init", None, ctypes.POINTER(Options)),
            ("open", handle, text, ctypes.POINTER(Options), text, ctypes.c_size_t),
            ("error", text, handle),
            ("begin", None, handle),
            ("set_pixels", ctypes.c_int, handle, ctypes.c_int, ctypes.c_int),
            ("lend_pixels", ctypes.c_int, handle, address, number, number, number, number, address, RELEASE, address),
            ("end", ctypes.c_int, handle),
            ("close", ctypes.c_int, handle, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))]:
        function = getattr(library, f"penstock_producer_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def read_key(path, kind):
    """A key of a certificate that `penstock keygen` or pyzmq's zmq.auth wrote."""
    try:
        found = re.search(rf'^\s*{kind}-key = "(.*)"', pathlib.Path(path).read_text(), re.M)
    except (OSError, TypeError) as error:
        raise LoaderError(f"cannot read a key ({error}): curve_secret is the path of a .key_secret file of `penstock keygen`, "
                          "and curve_server_key the path of the consumer's .key file") from None
    if not found:
        raise LoaderError(f"there is no {kind}-key in '{path}'; expected a file of `penstock keygen`")
    return found[1].encode()


class Producer:
    """The library's producer, and the pixels that it has borrowed."""

    def __init__(self, endpoint, bind, hwm, timeout, checksum, name, curve_secret, curve_server_key):
        if not isinstance(endpoint, str) or not re.match(r"(ipc|tcp)://.", endpoint):
            raise LoaderError(f"the endpoint is {endpoint!r}; expected ipc://PATH or tcp://HOST:PORT, the same as in "
                              "`penstock run --fake-location zmq-consume:endpoint=ipc://feed`")
        self.library, self.timeout = load_library(), timeout
        self.dtype, self.planar = None, False
        options, error = Options(), ctypes.create_string_buffer(1024)
        self.library.penstock_producer_options_init(ctypes.byref(options))
        options.bind, options.hwm, options.checksum, options.timeout_ms = bind, hwm, checksum, SLICE_MS
        options.name = name.encode() if name else None
        if curve_secret or curve_server_key:
            options.server_key = read_key(curve_server_key, "public")
            options.public_key, options.secret_key = read_key(curve_secret, "public"), read_key(curve_secret, "secret")
        # A thread of libzmq calls `release`, which moves memory from `lent` to `free`.
        self.lent, self.free, self.numbers = {}, collections.deque(), itertools.count(1)
        self.release = RELEASE(lambda number: self.free.append(self.lent.pop(number)))
        self.handle = self.library.penstock_producer_open(endpoint.encode(), ctypes.byref(options), error, len(error))
        if not self.handle:
            raise LoaderError(error.value.decode())

    def set_pixels(self, dtype, planar):
        """Says what the pixels of all batches are, before the first one."""
        number, self.dtype = PIXELS[dtype]
        self.planar = planar
        self.call("set_pixels", number, planar)

    def memory(self, shape):
        """An array to write pixels to. Arrays of earlier batches are used again."""
        import numpy

        while self.free:
            pixels, ours = self.free.popleft()
            if ours:
                return pixels
        return numpy.empty(shape, self.dtype)

    def begin(self):
        self.library.penstock_producer_begin(self.handle)

    def send(self, pixels, ours, labels):
        """Sends pixels that must not change until they have been sent. `ours`: they lie in memory()."""
        images, *extents = pixels.shape
        height, width, channels = extents[1:] + extents[:1] if self.planar else extents
        number = next(self.numbers)
        self.lent[number] = pixels, ours
        self.call("lend_pixels", pixels.ctypes.data, images, height, width, channels, labels.ctypes.data, self.release, number)

    def call(self, name, *arguments):
        begun = time.monotonic()
        while True:
            result = getattr(self.library, f"penstock_producer_{name}")(self.handle, *arguments)
            if result == OK:
                return
            text = self.library.penstock_producer_error(self.handle).decode()
            if result != TIMEOUT:
                raise LoaderError(text)
            if self.timeout is not None and time.monotonic() - begun >= self.timeout:
                raise NoConsumerError(text.replace(f"within {SLICE_MS / 1000:g} s", f"within {self.timeout:g} s"))

    def end(self):
        self.call("end")

    def close(self, wait_s):
        """Waits until consumers have read everything. Returns how many batches are known not to have arrived."""
        undelivered = ctypes.c_int64()
        self.library.penstock_producer_close(self.handle, int(1000 * wait_s), ctypes.byref(undelivered))
        return undelivered.value
