# SPDX-License-Identifier: Apache-2.0
"""Serves random batches with tensorpack's send_dataflow_zmq, without end.

Usage: tensorpack_producer.py ENDPOINT BATCH zmq_op|zmq_ops
"""
import sys

from tensorpack.dataflow import FakeData, send_dataflow_zmq

endpoint, batch, wire_format = sys.argv[1], int(sys.argv[2]), sys.argv[3]
data = FakeData([[batch, 224, 224, 3], [batch]], size=1000, random=True, dtype=["uint8", "int32"],
                domain=[(0, 255), (0, 1000)])
send_dataflow_zmq(data, endpoint, hwm=4, format=wire_format)
