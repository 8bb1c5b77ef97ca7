#!/usr/bin/env python3
# Run: python3 produce.py --endpoint ipc://testpipe --batch 64, beside
#      penstock run --fake-location zmq-consume --batch-size 64
# SPDX-License-Identifier: Apache-2.0
"""Feeds random images to Penstock over ZeroMQ, in any of the formats that it reads; numpy-frames copies nothing. Needs
pyzmq and NumPy, and msgpack and msgpack-numpy for the format of that name."""
import argparse
import json
import pickle
import struct

import numpy
import zmq

DTYPES = {"uint8": 4, "int32": 3, "int64": 9}  # as TensorFlow numbers them


def header(array):
    """What stands before an array's bytes: dtype, ndim, dims (int32 each), nbytes (int64)."""
    return struct.pack(f"<{2 + array.ndim}iq", DTYPES[array.dtype.name], array.ndim, *array.shape,
                       array.nbytes)


def zmq_op(images, labels):
    """One frame: the number of arrays, then each with its header. Arrays must be C-contiguous."""
    return [b"".join([struct.pack("<i", 2), header(images), images.data, header(labels), labels.data])]


def numpy_frames(images, labels):
    """A header in JSON, then each array's bytes, a frame each."""
    arrays = [{"dtype": array.dtype.name, "shape": array.shape} for array in (images, labels)]
    return [json.dumps(arrays).encode(), images, labels]


def pickled(images, labels):
    return [pickle.dumps([images, labels], protocol=5)]


def msgpacked(images, labels):
    import msgpack
    import msgpack_numpy

    return [msgpack.packb([images, labels], default=msgpack_numpy.encode)]


FORMATS = {"zmq_op": zmq_op, "numpy-frames": numpy_frames, "pickle": pickled, "msgpack": msgpacked}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", default="ipc://testpipe")
    parser.add_argument("--format", choices=FORMATS, default="zmq_op", help="of the messages; default: %(default)s")
    parser.add_argument("--batch", type=int, default=64, help="images in a batch")
    parser.add_argument("--hwm", type=int, default=8, help="batches that wait in the socket")
    parser.add_argument("--count", type=int, default=0, help="batches to send; 0: for ever")
    parser.add_argument("--bind", action="store_true", help="else connect, as Penstock binds")
    args = parser.parse_args()

    random = numpy.random.default_rng(1)
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.sndhwm = args.hwm
    socket.bind(args.endpoint) if args.bind else socket.connect(args.endpoint)
    sent = 0
    while args.count == 0 or sent < args.count:
        images = random.integers(0, 256, (args.batch, 224, 224, 3), numpy.uint8)
        labels = random.integers(0, 1000, args.batch, numpy.int32)
        socket.send_multipart(FORMATS[args.format](images, labels), copy=False)
        sent += 1
    socket.close()
    context.term()  # waits until all is sent


if __name__ == "__main__":
    main()
