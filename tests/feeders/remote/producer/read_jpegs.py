# SPDX-License-Identifier: Apache-2.0
"""Reads framed batches of JPEG files by feeders/remote/framed_format.md, and compares them with a folder's files.

Usage: read_jpegs.py ENDPOINT FOLDER BATCHES. Exits 1 at the first difference.
"""
import pathlib
import struct
import sys

import zmq

endpoint, folder, batches = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
classes = sorted(path for path in folder.iterdir() if path.is_dir())
expected = {path.read_bytes(): label for label, directory in enumerate(classes) for path in directory.iterdir()}

socket = zmq.Context().socket(zmq.PULL)
socket.rcvtimeo = 20_000
socket.bind(endpoint)
images = 0
for number in range(-1, batches + 1):
    header, *frames = socket.recv_multipart()
    fields = struct.unpack("<8s4H2Q3q6I2Q", header)
    magic, version, kind, encoding, flags, producer, sequence, begun, ready, sent, count, *sides = fields
    height, width, channels, checksum, reserved, payload, before = sides
    assert (magic, version, flags, reserved) == (b"PENSTOCK", 1, 0, 0) and producer != 0, fields
    assert (height, width, channels, checksum) == (0, 0, 0, 0), fields
    assert payload == sum(map(len, frames)) and before == images, fields
    if number == -1:
        assert (kind, encoding, sequence) == (2, 2, 0) and frames[0].startswith(b"{"), (fields, frames)
    elif number == batches:
        assert (kind, encoding, sequence, frames) == (3, 0, batches, []), fields
    else:
        assert (kind, encoding, sequence) == (1, 2, number) and 0 < begun <= ready <= sent, fields
        lengths, files, labels = frames
        lengths, labels = struct.unpack(f"<{count}I", lengths), struct.unpack(f"<{count}i", labels)
        for length, label in zip(lengths, labels):
            assert expected.get(files[:length]) == label, "a file that is not in the folder, or with another label"
            files = files[length:]
        assert not files
        images += count
print(images, "files arrived in", batches, "batches")
