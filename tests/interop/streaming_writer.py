# SPDX-License-Identifier: Apache-2.0
"""Packs a folder of classes with MosaicML Streaming's MDSWriter.

Usage: streaming_writer.py FOLDER PLACE COLUMN:ENCODING,COLUMN:ENCODING,... [COMPRESSION]
"""
import pathlib
import sys

from PIL import Image
from streaming import MDSWriter

folder, place, columns = sys.argv[1:4]
columns = dict(column.split(":") for column in columns.split(","))
compression = sys.argv[4] if len(sys.argv) > 4 else None
count = 0
with MDSWriter(out=place, columns=columns, compression=compression, size_limit=None) as out:
    classes = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_dir())
    for label, directory in enumerate(classes):
        for path in sorted(directory.iterdir()):
            values = {"jpeg": Image.open(path), "bytes": path.read_bytes()}
            out.write({name: values.get(encoding, count if name == "index" else label)
                       for name, encoding in columns.items()})
            count += 1
