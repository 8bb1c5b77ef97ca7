# SPDX-License-Identifier: Apache-2.0
"""Receives batches with tensorpack's RemoteDataZMQ and drops them; prints the results as a line of JSON.

Usage: tensorpack_consumer.py ENDPOINT BATCH IMAGE HWM SECONDS
"""
import sys

import tensorpack
import zmq
from tensorpack.dataflow import RemoteDataZMQ

from window import Window


def main():
    endpoint, batch, image, hwm, seconds = sys.argv[1:]
    batch, image, hwm = int(batch), int(image), int(hwm)
    data = RemoteDataZMQ(endpoint, hwm=hwm)
    data.reset_state()
    window = Window(3 * hwm + 10, float(seconds))
    for images, labels in data:
        if images.shape != (batch, image, image, 3) or labels.shape != (batch,):
            sys.exit(f"a batch is {images.shape} with labels {labels.shape}")
        if not window.lap():
            break
    window.show(versions={"tensorpack": tensorpack.__version__, "pyzmq": zmq.__version__,
                          "pyzmq's libzmq": zmq.zmq_version()})


if __name__ == "__main__":
    main()
