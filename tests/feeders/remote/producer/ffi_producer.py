# SPDX-License-Identifier: Apache-2.0
"""Feeds black images through the library as a foreign function, without any Python package; with CURVE keys.

Usage: ffi_producer.py LIBRARY ENDPOINT IMAGES_IN_A_BATCH SERVER.key OWN.key_secret
"""
import ctypes
import re
import sys


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("bind", ctypes.c_int), ("hwm", ctypes.c_int), ("checksum", ctypes.c_int),
                ("timeout_ms", ctypes.c_int64), ("name", ctypes.c_char_p), ("server_key", ctypes.c_char_p),
                ("public_key", ctypes.c_char_p), ("secret_key", ctypes.c_char_p)]


def key(path, name):
    with open(path) as file:
        return re.search(name + r'-key = "(.*)"', file.read())[1].encode()


path, endpoint, images, server, own = sys.argv[1:]
library = ctypes.CDLL(path)
library.penstock_producer_open.restype = ctypes.c_void_p
library.penstock_producer_error.restype = ctypes.c_char_p
options, error = Options(), ctypes.create_string_buffer(256)
library.penstock_producer_options_init(ctypes.byref(options))
assert (options.size, options.hwm, options.timeout_ms) == (ctypes.sizeof(Options), 4, 30_000)
options.server_key = key(server, "public")
options.public_key, options.secret_key = key(own, "public"), key(own, "secret")
handle = library.penstock_producer_open(endpoint.encode(), ctypes.byref(options), error, ctypes.c_size_t(len(error)))
if not handle:
    sys.exit(error.value.decode())
handle = ctypes.c_void_p(handle)
pixels, labels = bytes(int(images) * 224 * 224 * 3), bytes(int(images) * 4)
while library.penstock_producer_send_pixels(handle, pixels, int(images), 224, 224, 3, labels) == 0:
    pass
sys.exit(library.penstock_producer_error(handle).decode())
