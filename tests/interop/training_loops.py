# SPDX-License-Identifier: Apache-2.0
"""Twenty loaders for training_loops_test.py: six that sleep in a known way, ten that work, four of other libraries. Batches hold
BATCH samples of [3,64,64] bytes, or what the library makes of images."""
import csv
import fcntl
import gzip
import io
import json
import os
import pathlib
import pickle
import re
import sqlite3
import tempfile
import time
import zlib

import loaders
import torch
from torch.utils.data import DataLoader, Dataset

BATCH, EPOCH = 32, 3200
FOLDER = pathlib.Path(os.environ.get("PENSTOCK_LOOPS", tempfile.gettempdir())) / "penstock-training-loops"
WORDS = "the quick brown fox jumps over a lazy dog while seventeen engineers watch their loader".split()


class Samples(Dataset):
    """`load(i)` makes sample i, or returns None for zeros."""

    def __init__(self, load, size=EPOCH, start_s=0.0):
        self.load, self.size, self.start_s = load, size, start_s

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        if self.start_s:
            time.sleep(self.start_s)
            self.start_s = 0
        if not 0 <= i < self.size:
            raise IndexError(i)
        data = self.load(i)
        return torch.zeros(3, 64, 64, dtype=torch.uint8) if data is None else image_of(data), i % 8


def image_of(data):
    """The bytes, repeated or cut to an image."""
    data = bytes(data)
    size = 3 * 64 * 64
    return torch.frombuffer(bytearray((data * (size // len(data) + 1))[:size]), dtype=torch.uint8).view(3, 64, 64)


def kept(name, make):
    """A file that is made once."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / name
    if not path.exists():
        unfinished = FOLDER / f"{name}.{os.getpid()}"
        unfinished.write_bytes(make())
        unfinished.rename(path)
    return path


# ---- loaders that sleep ----


def no_workers():
    return DataLoader(Samples(lambda i: time.sleep(0.030 / BATCH)), BATCH)


def generator():
    while True:
        time.sleep(0.030)
        yield torch.zeros(BATCH, 3, 64, 64, dtype=torch.uint8), torch.zeros(BATCH, dtype=torch.int64)


def restarts():
    return DataLoader(Samples(lambda i: None, 10 * BATCH, start_s=1.0), BATCH, num_workers=2)


def bursts(prefetch_factor=1):
    return DataLoader(Samples(lambda i: time.sleep(0.24 / BATCH if i // BATCH % 8 == 0 else 0)), BATCH, num_workers=1,
                      prefetch_factor=prefetch_factor)


def deep_bursts():
    return bursts(8)


def locked():
    lock = kept("lock", bytes)

    def load(_):
        with open(lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(0.003)

    return DataLoader(Samples(load), BATCH, num_workers=4)


# ---- loaders that work ----


def encoded():
    from PIL import Image

    pixels = torch.randint(0, 256, (48, 48, 3), dtype=torch.uint8).numpy()
    file = io.BytesIO()
    Image.fromarray(pixels).resize((256, 256)).save(file, "JPEG", quality=90)
    return file.getvalue()


def decode(data):
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB").resize((64, 64)).tobytes()


def jpeg(num_workers=1):
    path = kept("image.jpg", encoded)
    return DataLoader(Samples(lambda i: decode(path.read_bytes())), BATCH, num_workers=num_workers)


def jpeg_without_workers():
    return jpeg(0)


def tokens():
    text = " ".join(WORDS * 40)
    known = {word: number for number, word in enumerate(WORDS)}
    return DataLoader(Samples(lambda i: [known[word] for word in re.findall(r"\w+", text[i % 64:]) if word in known]), BATCH,
                      num_workers=1)


def zipped():
    data = zlib.compress(bytes(range(256)) * 1024)
    return DataLoader(Samples(lambda i: zlib.decompress(data)[i:i + 4096]), BATCH)


def raw_files():
    path = kept("samples.bin", lambda: os.urandom(256 * 3 * 64 * 64))

    def load(i):
        with open(path, "rb") as file:
            file.seek(i % 256 * 3 * 64 * 64)
            return file.read(3 * 64 * 64)

    return DataLoader(Samples(load), BATCH, num_workers=1)


def json_lines():
    line = json.dumps({"values": list(range(256)) * 8})
    return DataLoader(Samples(lambda i: json.loads(line)["values"]), BATCH, num_workers=1)


def sqlite_rows():
    def make():
        with tempfile.NamedTemporaryFile() as file:
            base = sqlite3.connect(file.name)
            base.execute("create table samples (i integer primary key, data blob)")
            base.executemany("insert into samples values (?, ?)", ((i, os.urandom(4096)) for i in range(512)))
            base.commit()
            base.close()
            return pathlib.Path(file.name).read_bytes()

    path = kept("samples.sqlite", make)
    bases = {}  # a connection must not be forked

    def load(i):
        base = bases.setdefault(os.getpid(), None) or sqlite3.connect(path)
        bases[os.getpid()] = base
        return base.execute("select data from samples where i = ?", (i % 512,)).fetchone()[0]

    return DataLoader(Samples(load), BATCH, num_workers=1)


def augmented():
    image = torch.randint(0, 256, (3, 96, 96), dtype=torch.uint8)

    def load(i):
        crop = image[:, i % 32:i % 32 + 64, i % 16:i % 16 + 64].flip(2).float()
        return ((crop - crop.mean()) / crop.std() * 32 + 128).clamp(0, 255).to(torch.uint8).numpy().tobytes()

    return DataLoader(Samples(load), BATCH)


def gzip_pickles():
    data = gzip.compress(pickle.dumps({"pixels": bytes(range(256)) * 48, "label": 1}))
    return DataLoader(Samples(lambda i: pickle.loads(gzip.decompress(data))["pixels"]), BATCH, num_workers=1)


def csv_rows():
    row = ",".join(str(i % 256) for i in range(2048))
    return DataLoader(Samples(lambda i: [int(value) for value in next(csv.reader([row]))]), BATCH, num_workers=1)


# ---- loaders of other libraries ----


def tfdata():
    return loaders.tfdata(BATCH)


def webdataset():
    return loaders.webdataset(batch_size=BATCH)


def huggingface():
    return loaders.huggingface(batch_size=BATCH)


def dali():
    return loaders.dali(batch_size=BATCH)
