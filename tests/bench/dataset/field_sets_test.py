#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data sets as they are found in the field: what `dataset check`, `dataset inspect`, `run` and `look` say of each.

Usage: field_sets_test.py PENSTOCK. Exits with 77 without NumPy, Pillow and h5py.
"""
import io
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import tarfile
import tempfile

try:
    import h5py
    import numpy
    from PIL import Image
except ImportError as problem:
    print(f"skipped: {problem}")
    sys.exit(77)

LABELS = [12, 2, 10, 2, 0, 12]
NAMES = [f"ILSVRC2012_val_{i + 1:08d}" for i in range(6)]


def pixels(number):
    y, x = numpy.mgrid[0:72, 0:80]
    return numpy.stack([3 * x + 17 * number, 3 * y + 29 * number, 0 * x + 41 * number], -1).astype(numpy.uint8)


def encoded(number, form="JPEG", **options):
    data = io.BytesIO()
    Image.fromarray(pixels(number)).save(data, form, **options)
    return data.getvalue()


def without(jpeg, *markers):
    """The file without the segments of these markers."""
    kept, at = jpeg[:2], 2
    while jpeg[at + 1] != 0xDA:
        end = at + 2 + struct.unpack(">H", jpeg[at + 2:at + 4])[0]
        kept += b"" if jpeg[at + 1] in markers else jpeg[at:end]
        at = end
    return kept + jpeg[at:]


def write(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else "".join(f"{line}\n" for line in data).encode())


def write_jpegs_without_tables():
    plain = encoded(0, quality=75, subsampling=0)
    bare, webcam = without(plain, 0xDB, 0xC4), without(plain, 0xC4)
    coarse, optimised = encoded(1, quality=5, subsampling=0), encoded(2, quality=75, subsampling=0, optimize=True)
    for folder, first, second in (("alone", None, bare), ("after_quantised", coarse, bare), ("after_optimised", optimised, bare),
                                  ("webcam_alone", None, webcam), ("webcam_after", optimised, webcam)):
        if first:
            write(f"{folder}/a/0.jpg", first)
        write(f"{folder}/b/1.jpg", second)


def write_folders():
    for i in range(16):
        write(f"onepng/c{i % 2}/{i}.JPEG", encoded(i))
    write("onepng/c1/zz.JPEG", encoded(3, "PNG"))
    for i in range(30):
        write(f"onlypng/a/{i}.png", encoded(i, "PNG"))
        write(f"webp/a/{i}.JPEG", b"RIFF1234WEBPVP8 ")
    for i in range(4):
        for path in ("some/dog/{}.jpg", "some/dog/more/{}.jpg", "some/cat/{}.jpg", "all/dog/2019/{}.jpg", "all/cat/2020/{}.jpg",
                     "otherwise/a/{}.jfif", "otherwise/a/{}.pjpeg", "otherwise/a/picture{}"):
            write(path.format(i), encoded(i))


def write_labels():
    for i, name in enumerate(NAMES):
        write(f"val/{name}.JPEG", encoded(i))
    for i in range(13):
        write(f"train/n{i:08d}/0.JPEG", encoded(i))
    pairs = list(zip(NAMES, LABELS))
    write("plain.txt", [f"{name}.JPEG {label}" for name, label in pairs])
    write("commas.csv", [f"{name}.JPEG,{label}" for name, label in pairs])
    write("header.csv", ["ImageId,Class", *(f"{name},n{label:08d}" for name, label in pairs)])
    write("synsets.txt", [f"{name}.JPEG n{label:08d}" for name, label in pairs])
    write("noextension.txt", [f"{name} {label}" for name, label in pairs])
    write("bom.txt", b"\xef\xbb\xbf" + open("plain.txt", "rb").read())


def write_packed_sets():
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in [(f"{i}.cls", b"1") for i in range(4)] + [(f"{i}.jpg", encoded(i)) for i in range(4)]:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    write("not_adjacent/a.tar", data.getvalue())
    write("parquet/train-00000-of-00001.parquet", b"PAR1" + bytes(200) + b"PAR1")
    write("mds/shard.00000.mds.zstd", b"\x28\xb5\x2f\xfd" + bytes(100))
    columns = {"column_names": ["image", "label"], "column_encodings": ["jpeg", "int"], "column_sizes": [None, 8],
               "compression": "zstd:7", "format": "mds", "hashes": [], "size_limit": 67108864}
    write("mds/index.json", json.dumps({"version": 2, "shards": [{
        **columns, "raw_data": {"basename": "shard.00000.mds", "bytes": 1000, "hashes": {}},
        "zip_data": {"basename": "shard.00000.mds.zstd", "bytes": 104, "hashes": {}}, "samples": 4, "version": 2}]}).encode())
    for name in ("train", "test"):
        write(f"cifar100/cifar-100-python/{name}", pickle.dumps({b"fine_labels": [1]}))
    images, labels = numpy.stack([pixels(i) for i in range(4)]), numpy.arange(4)
    with h5py.File("strings.h5", "w") as file:
        file["image"], file["label"] = images, numpy.array([b"dog"] * 4)
    with h5py.File("vlen.h5", "w") as file:
        file.create_dataset("image", (4,), h5py.vlen_dtype(numpy.uint8))[0] = images[0].ravel()
        file["label"] = labels
    with h5py.File("ones.h5", "w") as file:
        file["x"], file["y"] = images, labels.astype(numpy.uint8).reshape(4, 1, 1, 1)


CHECKS = {  # data set: exit code, what is said
    "alone": (1, "Quantization table 0x00 was not defined"),
    "after_quantised": (1, "2 samples, 1 bad"),
    "after_optimised": (1, "2 samples, 1 bad"),
    "webcam_alone": (0, "1 samples, 0 bad"),
    "webcam_after": (0, "2 samples, 0 bad"),
    "onepng": (0, "17 samples, 0 bad"),
    "onlypng": (0, "30 samples, 0 bad"),
    "webp": (1, "^bad: 30 samples, such as 'webp/a/.*a WebP image.*\nwebp: 30 samples, 30 bad"),
    "some": (0, "4 images lie one folder deeper(.|\n)*8 samples, 0 bad"),
    "all": (2, "8 images lie one folder deeper"),
    "otherwise": (0, "12 samples, 0 bad"),
    "not_adjacent": (2, "must follow each other in the tar"),
    "parquet": (2, "is a Parquet file, which is not supported"),
    "mds": (2, "exists only in compressed form.*zstd -d"),
    "cifar100": (2, "is CIFAR-100, which is not supported"),
    "strings.h5": (2, r"'label' \(strings \[4\]\)"),
    "vlen.h5": (2, r"'image' \(arrays of variable length \[4\]\)"),
    "ones.h5": (0, "4 samples, 0 bad"),
}


def main():
    program = os.path.abspath(sys.argv[1])
    failures = []

    def expect(code, text, *arguments):
        done = subprocess.run([program, *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        if done.returncode != code or not re.search(text, done.stdout):
            failures.append(f"{' '.join(arguments)}: expected {code} and '{text}'; ended with {done.returncode}:\n{done.stdout}")

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_jpegs_without_tables()
        write_folders()
        write_labels()
        write_packed_sets()
        for name, (code, text) in CHECKS.items():
            expect(code, text, "dataset", "check", "--data-dir", name)
        expect(0, "12 images in 1 classes", "dataset", "inspect", "--data-dir", "otherwise")
        expect(0, "17 images in 2 classes", "dataset", "inspect", "--data-dir", "onepng", "--contact-sheet", "sheet.png")
        expect(0, "total images/sec", "run", "--fake-location", "queue", "--data-dir", "onepng", "--model", "null", "--batch-size",
               "4", "--image-size", "64", "--device", "emulated")
        for labels in ("plain.txt", "commas.csv", "header.csv", "synsets.txt", "noextension.txt", "bom.txt"):
            name = f"queue:crop=full,flip=false,source='image-folder:labels={labels}'"
            expect(0, "0 to 12; 4 of", "look", "--feeder", name, "--data-dir", "val", "--batch-size", "6", "--image-size", "64",
                   "--num-batches", "1")
        expect(0, "line 1 of 'header.csv', 'ImageId Class', is left out", "look", "--feeder",
               "queue:source='image-folder:labels=header.csv'", "--data-dir", "val", "--batch-size", "6", "--num-batches", "1")
        os.chdir("/")
    print("\n".join(failures) or "as expected")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
