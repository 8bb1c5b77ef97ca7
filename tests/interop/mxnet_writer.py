# SPDX-License-Identifier: Apache-2.0
"""Packs a folder of classes with MXNet's MXIndexedRecordIO, whose writer is dmlc's.

Usage: mxnet_writer.py FOLDER PLACE.rec LABELS. LABELS 0: one label in the header; else the length of the label vector
"""
import pathlib
import sys

import numpy

numpy.bool = bool  # MXNet uses it, and NumPy has removed it
from mxnet.recordio import IRHeader, MXIndexedRecordIO, pack  # noqa: E402

folder, place, labels = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
out = MXIndexedRecordIO(str(place.with_suffix(".idx")), str(place), "w")
classes = sorted(path for path in folder.iterdir() if path.is_dir())
images = [(label, path) for label, directory in enumerate(classes) for path in sorted(directory.iterdir())]
for i, (label, path) in enumerate(images):
    vector = [label + 0.5 * k for k in range(labels)]
    out.write_idx(i, pack(IRHeader(0, vector if labels else label, i, 0), path.read_bytes()))
out.close()
