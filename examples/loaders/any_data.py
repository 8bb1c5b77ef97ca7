# SPDX-License-Identifier: Apache-2.0
"""Loaders of data other than images, as trainings have them, for `penstock isolate --loader examples/loaders/any_data.py:NAME`.

Each makes its own data, has a fault that its description names, and takes num_workers and batch_size. They need PyTorch; parquet and
huggingface also need pyarrow and datasets, webdataset needs that package.
"""
import os
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset


class Items(Dataset):
    """`count` samples that a function makes of their numbers."""

    def __init__(self, count, make):
        self.count, self.make = count, make

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.make(index)


def made_once(name, make):
    """The path of the file or folder that `make` writes where it is told to, the first time that a process needs it."""
    path = os.path.join(tempfile.gettempdir(), f"penstock-{os.getuid()}-{name}")
    if not os.path.exists(path):
        make(f"{path}.{os.getpid()}")
        os.rename(f"{path}.{os.getpid()}", path)
    return path


def tokens(num_workers=2, batch_size=16, length=1024):
    """Language: windows of a packed file of token numbers. It is read whole for each window, not mapped once."""
    path = made_once("tokens.bin", np.random.default_rng(1).integers(0, 50000, 4_000_000, dtype=np.uint16).tofile)

    def window(index):
        text = np.fromfile(path, np.uint16)
        at = index * 977 % (len(text) - length - 1)
        part = torch.from_numpy(text[at:at + length + 1].astype(np.int64))
        return {"input_ids": part[:-1], "labels": part[1:]}

    return DataLoader(Items(20000, window), batch_size, num_workers=num_workers)


def huggingface(num_workers=2, batch_size=32):
    """Language: a data set of texts with a map like a tokenizer's. Batches of short and long texts are padded to the longest."""
    import datasets

    words = np.random.default_rng(2)
    texts = [" ".join(["word"] * int(words.integers(4, 200))) for _ in range(4000)]

    def encode(example):
        return {"input_ids": [len(word) + at % 7 for at, word in enumerate(example["text"].split())]}

    def pad(samples):
        longest = max(len(sample["input_ids"]) for sample in samples)
        ids = torch.zeros(len(samples), longest, dtype=torch.int64)
        for row, sample in zip(ids, samples):
            row[:len(sample["input_ids"])] = torch.tensor(sample["input_ids"])
        return {"input_ids": ids, "attention_mask": (ids > 0).long()}

    lines = datasets.Dataset.from_dict({"text": texts})
    lines.set_transform(lambda batch: {"input_ids": [encode({"text": text})["input_ids"] for text in batch["text"]]})
    return DataLoader(lines, batch_size, num_workers=num_workers, collate_fn=pad)


def audio(num_workers=2, batch_size=16, seconds=2, rate=16000):
    """Speech: random crops of recordings. Their spectrograms are computed for each sample anew."""
    recording = np.random.default_rng(3).standard_normal(60 * rate).astype(np.float32)

    def crop(index):
        at = index * 7919 % (len(recording) - seconds * rate)
        wave = torch.from_numpy(recording[at:at + seconds * rate])
        frames = wave.unfold(0, 400, 160) * torch.hann_window(400)
        return {"spectrogram": torch.fft.rfft(frames, 512).abs().square().log1p(), "wave": wave, "speaker": index % 20}

    return DataLoader(Items(5000, crop), batch_size, num_workers=num_workers)


def video(num_workers=1, batch_size=4, frames=16, size=112):
    """Video: clips of uint8 frames, [T,H,W,C], of one worker."""
    film = torch.randint(0, 256, (64, size, size, 3), dtype=torch.uint8)

    def clip(index):
        at = index % (len(film) - frames)
        clip = film[at:at + frames].float()
        return (clip - clip.mean(dim=(0, 1, 2))).clamp(0, 255).byte().flip(2), index % 400

    return DataLoader(Items(2000, clip), batch_size, num_workers=num_workers)


def detection(num_workers=2, batch_size=64):
    """Detection: small images of several sizes, with four arrays each for their boxes, collated into lists: 320 arrays a batch."""

    def sample(index):
        height, width, boxes = 16 + index * 37 % 16, 16 + index * 53 % 16, 1 + index % 9
        names = ("boxes", "labels", "areas", "crowd")
        return torch.zeros(3, height, width), {name: torch.ones(boxes, 4 if name == "boxes" else 1) for name in names}

    return DataLoader(Items(2000, sample), batch_size, num_workers=num_workers, collate_fn=lambda samples: tuple(map(list, zip(*samples))))


def segmentation(num_workers=1, batch_size=8, size=256):
    """Segmentation: images of six bands, and a mask for each. The collate function normalises each band in a loop."""
    field = torch.rand(6, size, size)

    def normalised(samples):
        bands = torch.stack([sample["bands"] for sample in samples])
        for band in range(bands.shape[1]):
            for image in bands:
                image[band] = (image[band] - image[band].mean()) / image[band].std()
        return {"bands": bands, "mask": torch.stack([sample["mask"] for sample in samples])}

    def sample(index):
        return {"bands": field, "mask": (field[0] > 0.5 + index % 3 * 0.01).long()}

    return DataLoader(Items(2000, sample), batch_size, num_workers=num_workers, collate_fn=normalised)


def parquet(batch_size=1024, columns=20):
    """Tables: record batches of a Parquet file, which the training's own process reads when it asks for one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(path):
        rows = np.random.default_rng(4).random((200_000, columns), dtype=np.float32)
        pq.write_table(pa.table({f"c{i}": rows[:, i] for i in range(columns)}), path, row_group_size=batch_size)

    path = made_once(f"{columns}-columns-{batch_size}.parquet", write)

    class Batches:
        def __iter__(self):
            return pq.ParquetFile(path).iter_batches(batch_size)

    return Batches()


def graphs(num_workers=2, batch_size=32):
    """Graphs: nodes and edges of all graphs of a batch in one array each, and the number of nodes of each graph. A few graphs come from
    a slow service."""

    def sample(index):
        nodes, edges = 10 + index * 7 % 40, 20 + index * 11 % 90
        if index % 512 == 100:
            time.sleep(0.4)
        return torch.rand(nodes, 16), torch.randint(0, nodes, (2, edges)), index % 2

    def join(samples):
        sizes = torch.tensor([len(nodes) for nodes, _, _ in samples])
        starts = torch.cumsum(sizes, 0) - sizes
        return {"x": torch.cat([nodes for nodes, _, _ in samples]),
                "edge_index": torch.cat([edges + start for (_, edges, _), start in zip(samples, starts)], 1),
                "nodes": sizes, "y": torch.tensor([label for _, _, label in samples])}

    return DataLoader(Items(4000, sample), batch_size, num_workers=num_workers, collate_fn=join)


class Shards(IterableDataset):
    """Each worker reads its own shards, from their begin to their end. The index of all records is in the object."""

    def __init__(self, shards, records):
        self.shards, self.records = shards, records
        self.index = [f"shard-{at % shards:05d}.tar/record-{at:09d}.json" for at in range(1_000_000)]

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        for shard in range(worker, self.shards, workers):
            time.sleep(0.005)  # opens it
            values = np.random.default_rng(shard).random((self.records, 256), dtype=np.float32)
            yield from values


def shards(num_workers=2, batch_size=64, persistent_workers=False):
    """A stream of records from shards, whose large index is pickled for the workers of each epoch."""
    return DataLoader(Shards(16, 200), batch_size, num_workers=num_workers, multiprocessing_context="spawn",
                      persistent_workers=persistent_workers)


def webdataset(num_workers=1, batch_size=16):
    """Shards of WebDataset with records in JSON, which one worker parses."""
    import webdataset as wds

    def write(folder):
        os.mkdir(folder)
        for shard in range(4):
            with wds.TarWriter(os.path.join(folder, f"{shard:06d}.tar")) as tar:
                for at in range(100):
                    tar.write({"__key__": f"{at:06d}", "json": {"values": [at / 7 + i for i in range(4000)]}, "cls": at % 10})

    folder = made_once("shards", write)
    samples = wds.WebDataset(os.path.join(folder, "{000000..000003}.tar"), shardshuffle=False, empty_check=False)
    arrays = samples.repeat(20).decode().to_tuple("json", "cls").map_tuple(lambda record: np.array(record["values"], np.float32), int)
    return DataLoader(arrays.batched(batch_size), batch_size=None, num_workers=num_workers)
