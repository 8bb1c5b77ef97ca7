# SPDX-License-Identifier: Apache-2.0
"""Image folders in the formats of the packages tfrecord and webdataset. Usage:
packed_data.py write FOLDER OUT: writes OUT/tfrecord, OUT/webdataset and OUT/compressed.
packed_data.py check FOLDER OUT: checks that OUT/tfrecord and OUT/webdataset, from another writer, hold FOLDER's images."""
import pathlib
import sys

import tfrecord
import webdataset
from tfrecord.reader import tfrecord_loader

KEYS = {"image/encoded": "byte", "image/class/label": "int"}


def images(folder):
    for label, below in enumerate(sorted(pathlib.Path(folder).iterdir())):
        for path in sorted(below.iterdir()):
            yield path.read_bytes(), label


def write(folder, out):
    for name in ("tfrecord", "webdataset", "compressed"):
        (out / name).mkdir(parents=True)
    records = tfrecord.TFRecordWriter(str(out / "tfrecord" / "train.tfrecord"))
    with webdataset.TarWriter(str(out / "webdataset" / "train.tar")) as tar, webdataset.ShardWriter(
        str(out / "compressed" / "train-%06d.tar.gz"), maxcount=15, compress=True, verbose=0
    ) as shards:
        for number, (image, label) in enumerate(images(folder)):
            records.write({"image/encoded": (image, "byte"), "image/class/label": (label + 1, "int")})
            for writer in (tar, shards):
                writer.write({"__key__": f"{number:06d}", "jpg": image, "cls": label, "json": {"label": label}})
    records.close()


def check(folder, out):
    expected = list(images(folder))
    path = next((out / "tfrecord").iterdir())
    found = [(bytes(r["image/encoded"]), int(r["image/class/label"][0]) - 1) for r in tfrecord_loader(str(path), None, KEYS)]
    assert found == expected, "tfrecord"
    path = next((out / "webdataset").iterdir())
    found = [(s["jpg"], int(s["cls"])) for s in webdataset.WebDataset(str(path), shardshuffle=False) if "jpg" in s]
    assert found == expected, "webdataset"
    print(len(expected), "images are read by tfrecord and webdataset")


{"write": write, "check": check}[sys.argv[1]](sys.argv[2], pathlib.Path(sys.argv[3]))
