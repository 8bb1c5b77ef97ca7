#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs the images of a folder of classes, in its order, in formats that other frameworks read.

Written from the formats' descriptions, without code of Penstock's readers.
Usage: packed_writers.py FORMAT FOLDER PLACE [KEY=VALUE...]
"""
import gzip
import json
import pathlib
import struct
import sys


def samples(folder):
    """(label, bytes) of each image."""
    classes = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_dir())
    for label, directory in enumerate(classes):
        for path in sorted(directory.iterdir()):
            yield label, path.read_bytes()


# A field's type number, the bytes of its value in a row, and their alignment.
BETON_TYPES = {"float": (0, 8, 8), "int": (1, 8, 8), "rgb": (2, 13, 1), "bytes": (3, 16, 1), "array": (4, 8, 8),
               "json": (5, 16, 1), "tensor": (6, 8, 8)}


def aligned(size, alignment):
    return -(-size // alignment) * alignment


def write_beton(folder, place, fields="rgb:image,int:label", raw="0", page="4096"):
    """`raw`: the number of images stored as pixels. Numbers named `index` or `i` count samples; others are labels.

    Two writers fill pages in turn, as ffcv's processes do, so data are not in the order of rows.
    """
    fields, page = [field.split(":") for field in fields.split(",")], int(page)
    places, size, widest = [], 0, 1
    for kind, _ in fields:
        _, width, alignment = BETON_TYPES[kind]
        size = aligned(size, alignment)
        places.append(size)
        size, widest = size + width, max(widest, alignment)
    row_bytes = aligned(size, widest)
    all_samples = list(samples(folder))
    rows_at = 24 + 1041 * len(fields)
    data_at = aligned(rows_at + row_bytes * len(all_samples), page)
    rows, data, allocations = [None] * len(all_samples), b"", []

    def put(sample, content):
        nonlocal data
        if len(data) % page + len(content) > page:
            data += bytes(-len(data) % page)
        allocations.append(struct.pack("<QQQ", sample, data_at + len(data), len(content)))
        data += content
        return data_at + len(data) - len(content)

    for i in [*range(1, len(rows), 2), *range(0, len(rows), 2)]:
        label, image = all_samples[i]
        row = bytearray(row_bytes)
        for (kind, name), at in zip(fields, places):
            if kind == "rgb":
                pixels = i < int(raw)
                value = struct.pack("<BHHQ", pixels, 6, 5, put(i, bytes(90) if pixels else image))
            elif kind == "int":
                value = struct.pack("<q", i if name in ("index", "i") else label)
            elif kind == "float":
                value = struct.pack("<d", 0.5)
            elif kind in ("bytes", "json"):
                value = struct.pack("<QQ", put(i, b"{}"), 2)
            else:
                value = struct.pack("<Q", put(i, b"array"))
            row[at : at + len(value)] = value
        rows[i] = bytes(row)
    data += bytes(-len(data) % page)
    with open(place, "wb") as out:
        out.write(struct.pack("<HHIQQ", 2, len(fields), page, len(rows), data_at + len(data)))
        for kind, name in fields:
            out.write(struct.pack("<B16s1024s", BETON_TYPES[kind][0], name.encode()[:16], b""))
        out.write(b"".join(rows))
        out.write(bytes(data_at - out.tell()))
        out.write(data + b"".join(allocations))


# The struct letter of a number type, or None if the size differs between samples.
MDS_ENCODINGS = {"int": "q", "int64": "q", "int32": "i", "int16": "h", "int8": "b", "uint64": "Q", "uint32": "I",
                 "uint16": "H", "uint8": "B", "float32": "f", "str_int": None, "str": None, "jpeg": None, "bytes": None}


def write_mds(folder, place, columns="image:jpeg,label:int", shard="0", compression=""):
    """`shard`: samples in each shard; 0: all in one. Columns `index` and `i` count samples; other numbers are labels."""
    place, all_samples, shard = pathlib.Path(place), list(samples(folder)), int(shard)
    place.mkdir(exist_ok=True)
    columns = sorted(column.split(":", 1) for column in columns.split(","))
    encodings = [encoding for _, encoding in columns]
    letters = [MDS_ENCODINGS[encoding.split(":")[0]] for encoding in encodings]
    config = {"version": 2, "format": "mds", "compression": compression or None, "hashes": [], "size_limit": None,
              "column_names": [name for name, _ in columns], "column_encodings": encodings,
              "column_sizes": [letter and struct.calcsize(letter) for letter in letters]}
    text = json.dumps(config, sort_keys=True).encode()

    def value(name, encoding, letter, i):
        label, image = all_samples[i]
        number = i if name in ("index", "i") else label
        if letter:
            return struct.pack("<" + letter, number)
        return image if encoding.split(":")[0] in ("jpeg", "bytes") else str(number).encode()

    shards = []
    for first in range(0, len(all_samples), shard or len(all_samples)):
        packed = []
        for i in range(first, min(first + (shard or len(all_samples)), len(all_samples))):
            values = [value(name, encoding, letter, i) for (name, encoding), letter in zip(columns, letters)]
            sizes = [len(data) for data, letter in zip(values, letters) if not letter]
            packed.append(struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(values))
        offsets = [4 * (len(packed) + 2) + len(text)]
        for sample in packed:
            offsets.append(offsets[-1] + len(sample))
        data = struct.pack(f"<I{len(offsets)}I", len(packed), *offsets) + text + b"".join(packed)
        name = f"shard.{len(shards):05d}.mds"
        info = {"basename": name, "bytes": len(data), "hashes": {}}
        zipped = None
        if compression:
            name += "." + compression
            data = gzip.compress(data)
            zipped = {"basename": name, "bytes": len(data), "hashes": {}}
        (place / name).write_bytes(data)
        shards.append({**config, "raw_data": info, "zip_data": zipped, "samples": len(packed)})
    (place / "index.json").write_text(json.dumps({"version": 2, "shards": shards}, sort_keys=True))


WRITERS = {"beton": write_beton, "mds": write_mds}

if __name__ == "__main__":
    WRITERS[sys.argv[1]](*sys.argv[2:4], **dict(option.split("=", 1) for option in sys.argv[4:]))
