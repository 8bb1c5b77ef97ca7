#!/usr/bin/env python3
# Run: python3 produce.py --endpoint ipc://feed --batch 64, beside
#      penstock run --fake-location zmq-consume:endpoint=ipc://feed --batch-size 64
# SPDX-License-Identifier: Apache-2.0
"""Feeds random images to Penstock with tensorpack's send_dataflow_zmq, in its default format or in zmq_op. Needs
tensorpack and pyzmq, and for zmq_op the module of github.com/tensorpack/zmq_ops."""
import argparse

from tensorpack.dataflow import FakeData, send_dataflow_zmq


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", default="ipc://testpipe")
    parser.add_argument("--batch", type=int, default=64, help="images in a batch")
    parser.add_argument("--format", choices=["default", "zmq_op"], default="default")
    args = parser.parse_args()

    data = FakeData([[args.batch, 224, 224, 3], [args.batch]], size=1000, random=True, dtype=["uint8", "int32"],
                    domain=[(0, 255), (0, 1000)])
    if args.format == "zmq_op":
        send_dataflow_zmq(data, args.endpoint, format="zmq_op")
    else:
        send_dataflow_zmq(data, args.endpoint)


if __name__ == "__main__":
    main()
