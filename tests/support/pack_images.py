#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs an image folder, FOLDER/<class>/<image>, into TFRecord files or WebDataset tars with only Python's
standard library: an independent writer for tests.

Usage: pack_images.py tfrecord|webdataset FOLDER OUT [OPTION=VALUE...]
Samples are dealt to the SHARDS files in turn; classes are in byte order, and so are files within a class.
Options: shards=1 compress=none|gzip|zlib|zstd; tfrecord: base=1 image=KEY label=KEY
record=example|pickle0|pickle2|pickle5|msgpack; webdataset:
format=ustar|pax|gnu label=cls|json extension=jpg prefix=TEXT.
"""
import gzip
import io
import json
import pathlib
import pickle
import struct
import subprocess
import sys
import tarfile
import zlib


def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc_table()


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def bytes_feature(value):
    return field(1, field(1, value))


def float_feature(values):
    return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))


def floats_feature(values):  # one by one
    return field(2, b"".join(varint(1 << 3 | 5) + struct.pack("<f", value) for value in values))


def boxes(number):
    """Two boxes inside the image and one that is not."""
    feature = float_feature if number % 2 == 0 else floats_feature
    sides = {"xmin": [number / 128, 0.5, 0], "ymin": [0.25, 0.125, 0], "xmax": [0.75, 1, 1], "ymax": [0.5, 1, 1.5]}
    return {f"image/object/bbox/{side}": feature(values) for side, values in sides.items()}


def int64_feature(value, packed):
    return field(3, field(1, varint(value)) if packed else varint(1 << 3) + varint(value))


def example(number, image, label, options):
    features = {
        "image/height": int64_feature(-3, True),
        "image/object/bbox/xmin": float_feature([0.25, 0.5]),
        options.get("label", "image/class/label"): int64_feature(label, number % 2 == 0),
        "image/filename": bytes_feature(b"n01440764_10026.JPEG"),
        options.get("image", "image/encoded"): bytes_feature(image),
        "image/format": bytes_feature(b"JPEG"),
    }
    if "boxes" in options:
        features |= boxes(number)
    if number % 3 == 2:  # a map has no order
        features = dict(reversed(features.items()))
    entries = b"".join(field(1, field(1, key.encode()) + field(2, value)) for key, value in features.items())
    # Fields with unknown numbers, of every type.
    unknown = varint(9 << 3) + varint(300) + varint(10 << 3 | 1) + bytes(8) + varint(11 << 3 | 5) + bytes(4) + field(12, b"x")
    return unknown + field(1, entries + unknown)


def datapoint(image, label, how):
    if how == "msgpack":  # a list of two: bin 32, and a small integer
        return b"\x92\xc6" + struct.pack(">I", len(image)) + image + bytes([label])
    return pickle.dumps([image, label], int(how.removeprefix("pickle")))


def tfrecord_shard(samples, options):
    out = io.BytesIO()
    how = options.get("record", "example")
    for number, (_, label, image) in samples:
        if how == "example":
            data = example(number, image, label + int(options.get("base", 1)), options)
        else:
            data = datapoint(image, label, how)
        length = struct.pack("<Q", len(data))
        out.write(length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data)))
    return out.getvalue()


def webdataset_shard(samples, options):
    out = io.BytesIO()
    formats = {"ustar": tarfile.USTAR_FORMAT, "pax": tarfile.PAX_FORMAT, "gnu": tarfile.GNU_FORMAT}
    with tarfile.open(fileobj=out, mode="w", format=formats[options.get("format", "ustar")]) as tar:

        def add(name, data):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))

        add("__about__", b"nothing")
        add("__meta__/about.json", b"{}")
        add("README", b"no kind")
        add("notes.txt", b"no sample")
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for number, (_, label, image) in samples:
            key = f"{options.get('prefix', '')}{number:06d}"
            members = [(options.get("extension", "jpg"), image)]
            if options.get("label", "cls") == "cls":
                members.append(("cls", str(label).encode()))
            else:
                members.append(("json", json.dumps({"name": "\u00e9", "box": [1, 2.5], "label": label}).encode()))
            members.append(("seg.jpg", b"no image of the sample"))
            if number % 3 == 2:
                members.reverse()
            for extension, data in members:
                add(key + "." + extension, data)
    return out.getvalue()


def compress(data, how):
    if how == "gzip":  # two members, as if parts were compressed separately
        half = len(data) // 2
        return gzip.compress(data[:half]) + gzip.compress(data[half:])
    if how == "zlib":
        return zlib.compress(data)
    if how == "zstd":
        return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return data


def main():
    kind, folder, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    options = dict(text.split("=", 1) for text in sys.argv[4:])
    samples = []
    for label, below in enumerate(sorted(path for path in folder.iterdir() if path.is_dir())):
        samples += [(path.name, label, path.read_bytes()) for path in sorted(below.iterdir())]
    samples = list(enumerate(samples))
    shards, how = int(options.get("shards", 1)), options.get("compress", "none")
    out.mkdir(parents=True, exist_ok=True)
    endings = {"none": "", "gzip": ".gz", "zlib": "", "zstd": ".zst"}
    for shard in range(shards):
        part = samples[len(samples) * shard // shards : len(samples) * (shard + 1) // shards]
        if kind == "tfrecord":
            name, data = f"train-{shard:05d}-of-{shards:05d}", tfrecord_shard(part, options)
        else:
            name, data = f"train-{shard:06d}.tar{endings[how]}", webdataset_shard(part, options)
        (out / name).write_bytes(compress(data, how))


main()
