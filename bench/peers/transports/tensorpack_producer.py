# SPDX-License-Identifier: Apache-2.0
"""Sends one constant batch repeatedly with tensorpack's send_dataflow_zmq, until SIGTERM; or writes the bytes
of its message into a file.

Usage: tensorpack_producer.py ENDPOINT|FILE BATCH IMAGE HWM send|write
"""
import os
import signal
import sys

import numpy
from tensorpack.dataflow import DataFlow, send_dataflow_zmq
from tensorpack.utils.serialize import dumps


class Constant(DataFlow):
    """The cheapest possible dataflow, so that only the sending is measured."""

    def __init__(self, batch, image):
        random = numpy.random.default_rng(1)
        self.batch = [random.integers(0, 256, (batch, image, image, 3), numpy.uint8),
                      random.integers(0, 1000, batch, numpy.int32)]
        self.sent = 0

    def __iter__(self):
        while True:
            yield self.batch
            self.sent += 1


def main():
    where, batch, image, hwm, verb = sys.argv[1:]
    data = Constant(int(batch), int(image))
    if verb == "write":
        with open(where, "wb") as file:
            file.write(dumps(data.batch))
        return

    def end(*_):
        print(f"tensorpack: sent {data.sent} batches", file=sys.stderr, flush=True)
        os._exit(0)  # skips tensorpack's shutdown, which waits for a socket that no process reads

    signal.signal(signal.SIGTERM, end)
    send_dataflow_zmq(data, where, hwm=int(hwm))


if __name__ == "__main__":
    main()
