#!/usr/bin/env python3
# Run: python3 produce.py --endpoint ipc://testpipe --batch 64, beside
#      penstock run --fake-location zmq-consume --batch-size 64
# SPDX-License-Identifier: Apache-2.0
"""Feeds random images to Penstock over ZeroMQ, in any format that Penstock reads; numpy-frames and framed make no copy.
With --jpeg FOLDER it sends the JPEG files of a folder of class folders, for Penstock to decode. Needs pyzmq and NumPy,
and msgpack and msgpack-numpy for the format msgpack."""
import argparse
import fcntl
import json
import os
import pathlib
import pickle
import platform
import secrets
import struct
import sys
import termios
import time

import numpy
import zmq

DTYPES = {"uint8": 4, "int32": 3, "int64": 9}  # TensorFlow's numbers of these types


def header(array):
    """The header of an array: dtype, ndim, dims (int32 each), nbytes (int64)."""
    return struct.pack(f"<{2 + array.ndim}iq", DTYPES[array.dtype.name], array.ndim, *array.shape,
                       array.nbytes)


def zmq_op(images, labels):
    """One frame: the number of arrays, then each array after its header. Arrays must be C-contiguous."""
    return [b"".join([struct.pack("<i", 2), header(images), images.data, header(labels), labels.data])]


def numpy_frames(images, labels):
    """A header in JSON, then one frame for each array's bytes."""
    arrays = [{"dtype": array.dtype.name, "shape": array.shape} for array in (images, labels)]
    return [json.dumps(arrays).encode(), images, labels]


def pickled(images, labels):
    return [pickle.dumps([images, labels], protocol=5)]


def msgpacked(images, labels):
    import msgpack
    import msgpack_numpy

    return [msgpack.packb([images, labels], default=msgpack_numpy.encode)]


class Framed:
    """Penstock's framed format (feeders/remote/framed_format.md): a message names its producer, time and sequence number."""

    HEADER = struct.Struct("<8s4H2Q3q6I2Q")
    BATCH, HELLO, END = 1, 2, 3
    PIXELS, JPEG = 1, 2

    def __init__(self):
        self.producer = secrets.randbits(63) + 1
        self.sequence = 0
        self.images = 0

    def hello(self, encoding, shape):
        about = {"name": pathlib.Path(sys.argv[0]).name, "host": platform.node(), "pid": os.getpid()}
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id")  # identifies a machine, whose processes share a clock
        if boot.exists():
            about["boot"] = boot.read_text().strip()
        return self.message(self.HELLO, encoding, shape, [json.dumps(about).encode()])

    def pixels(self, images, labels, begun):
        return self.batch(self.PIXELS, images.shape, [images, labels], begun)

    def jpegs(self, files, labels, begun):
        lengths = numpy.array([len(file) for file in files], numpy.uint32)
        return self.batch(self.JPEG, (len(files), 0, 0, 0), [lengths, b"".join(files), labels], begun)

    def end(self):
        return self.message(self.END, 0, (0, 0, 0, 0), [])

    def batch(self, encoding, shape, frames, begun):
        message = self.message(self.BATCH, encoding, shape, frames, begun)
        self.sequence += 1
        self.images += shape[0]
        return message

    def message(self, kind, encoding, shape, frames, begun=0):
        of_batch = kind == self.BATCH
        payload = sum(memoryview(frame).nbytes for frame in frames)
        header = self.HEADER.pack(
            b"PENSTOCK", 1, kind, encoding, 0, self.producer, 0 if kind == self.HELLO else self.sequence, begun,
            time.time_ns() if of_batch else 0, time.time_ns(), *shape, 0, 0, payload, self.images)
        return [header, *frames]


FORMATS = {"zmq_op": zmq_op, "numpy-frames": numpy_frames, "pickle": pickled, "msgpack": msgpacked}


def random_batches(random, batch, size):
    """Yields images and labels without end."""
    while True:
        images = random.integers(0, 256, (batch, size, size, 3), numpy.uint8)
        yield images, random.integers(0, 1000, batch, numpy.int32)


def jpeg_batches(random, batch, folder):
    """Yields files and labels without end, drawn at random from the class folders of `folder`."""
    classes = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_dir())
    paths = [(path, label) for label, directory in enumerate(classes) for path in sorted(directory.glob("*.[jJ][pP]*"))]
    if not paths:
        sys.exit(f"no JPEG files in the folders of {folder}")
    while True:
        drawn = [paths[index] for index in random.integers(0, len(paths), batch)]
        yield [path.read_bytes() for path, _ in drawn], numpy.array([label for _, label in drawn], numpy.int32)


def messages(args):
    """Yields the messages in the order in which they are sent."""
    random = numpy.random.default_rng(1)
    if args.jpeg:
        batches = jpeg_batches(random, args.batch, args.jpeg)
    else:
        batches = random_batches(random, args.batch, args.size)
    framed = Framed() if args.format == "framed" else None
    if framed:
        encoding, sides = (Framed.JPEG, (0, 0, 0)) if args.jpeg else (Framed.PIXELS, (args.size, args.size, 3))
        yield framed.hello(encoding, (args.batch, *sides))
    sent = 0
    while args.count == 0 or sent < args.count:
        begun = time.time_ns()
        images, labels = next(batches)
        if framed:
            yield framed.jpegs(images, labels, begun) if args.jpeg else framed.pixels(images, labels, begun)
        else:
            yield FORMATS[args.format](images, labels)
        sent += 1
    if framed:
        yield framed.end()


def unread_bytes():
    """Unsent bytes that the kernel holds, for all sockets of this process."""
    count = 0
    for descriptor in map(int, os.listdir("/dev/fd")):
        try:
            if descriptor > 2:
                count += struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)))[0]
        except OSError:  # the descriptor is not a connection, or is closed
            continue
    return count


def await_all_read(unsent):
    """Over ipc, if a connection ends while the consumer has no room, the consumer (libzmq 4.3) drops its unread messages.
    This waits until libzmq has handed over all messages and the other side has read every byte: three checks in a row,
    because libzmq may still send messages after the others were read."""
    for message in unsent:
        message.wait()
    looks = 0
    while looks < 3:
        looks = 0 if unread_bytes() else looks + 1
        time.sleep(0.005)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", default="ipc://testpipe")
    parser.add_argument("--format", choices=[*FORMATS, "framed"], default="zmq_op",
                        help="message format; default: %(default)s")
    parser.add_argument("--jpeg", metavar="FOLDER", help="send the JPEG files of FOLDER undecoded, in the format framed")
    parser.add_argument("--batch", type=int, default=64, help="images in a batch")
    parser.add_argument("--size", type=int, default=224, help="height and width of random images; default: %(default)s")
    parser.add_argument("--hwm", type=int, default=8, help="most batches that wait in the socket")
    parser.add_argument("--count", type=int, default=0, help="batches to send; 0: no limit")
    parser.add_argument("--bind", action="store_true", help="bind the endpoint; default: connect, because Penstock binds")
    args = parser.parse_args()
    if args.jpeg:
        args.format = "framed"

    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.sndhwm = args.hwm
    socket.copy_threshold = 0  # libzmq then reports completion of small frames, too
    socket.bind(args.endpoint) if args.bind else socket.connect(args.endpoint)
    unsent = []  # messages that libzmq may still be reading
    for frames in messages(args):
        unsent = [message for message in unsent if not message.done]
        unsent.append(socket.send_multipart(frames, copy=False, track=True))
    await_all_read(unsent)
    socket.close()
    context.term()  # waits until all messages are sent


if __name__ == "__main__":
    main()
