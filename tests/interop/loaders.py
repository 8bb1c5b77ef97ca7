# SPDX-License-Identifier: Apache-2.0
"""Loaders of other libraries for `penstock run --loader`, over a folder of class folders with JPEGs."""
import os
import pathlib

DATA = os.environ.get("PENSTOCK_DATA", "data/train")
SIZE = 64


def files():
    classes = sorted(path for path in pathlib.Path(DATA).iterdir() if path.is_dir())
    return [(str(file), label) for label, folder in enumerate(classes) for file in sorted(folder.iterdir())]


def pytorch(num_workers=2, batch_size=16, channels_last=False):
    import torch
    from torchvision import datasets, transforms

    images = datasets.ImageFolder(DATA, transforms.Compose([
        transforms.RandomResizedCrop(SIZE), transforms.ToTensor()]))
    loader = torch.utils.data.DataLoader(images, batch_size, shuffle=True, num_workers=num_workers)
    if not channels_last:
        return loader
    return ((pixels.to(memory_format=torch.channels_last), labels) for pixels, labels in loader)


def iterable_pytorch(num_workers=2, batch_size=16):
    import torch

    class Endless(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                yield {"image": torch.zeros(3, SIZE, SIZE, dtype=torch.uint8), "label": 1}

    return torch.utils.data.DataLoader(Endless(), batch_size, num_workers=num_workers)


def tfdata(batch_size=16):
    import tensorflow as tf

    def decode(path, label):
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.image.resize(image, [SIZE, SIZE]) / 255.0, label

    paths, labels = zip(*files())
    return tf.data.Dataset.from_tensor_slices((list(paths), list(labels))).repeat().map(
        decode, num_parallel_calls=tf.data.AUTOTUNE).batch(batch_size, drop_remainder=True).prefetch(2)


def webdataset(num_workers=1, batch_size=16):
    import tarfile
    import tempfile

    import numpy
    import torch
    import webdataset as wds

    shard = os.path.join(tempfile.mkdtemp(), "shard-000000.tar")
    with tarfile.open(shard, "w") as tar:
        for number, (file, label) in enumerate(files()[:128]):
            tar.add(file, f"{number:06d}.jpg")
            text = tarfile.TarInfo(f"{number:06d}.cls")
            text.size = len(str(label))
            import io
            tar.addfile(text, io.BytesIO(str(label).encode()))

    def crop(image):
        return numpy.ascontiguousarray(numpy.resize(image, (SIZE, SIZE, 3)))

    samples = wds.WebDataset(shard, shardshuffle=False, empty_check=False).repeat().decode("rgb8").to_tuple("jpg", "cls").map_tuple(
        crop, int).batched(batch_size, partial=False)
    return torch.utils.data.DataLoader(samples, batch_size=None, num_workers=num_workers)


def huggingface(num_workers=2, batch_size=16):
    import datasets
    import numpy
    import torch
    from PIL import Image

    class Resize:
        def __call__(self, image):
            return image.resize((SIZE, SIZE))

    class Compose:
        def __init__(self, *transforms):
            self.transforms = transforms

        def __call__(self, image):
            for transform in self.transforms:
                image = transform(image)
            return image

    paths, labels = zip(*files())
    table = datasets.Dataset.from_dict({"path": list(paths), "label": list(labels)})
    resize = Compose(Resize())

    def decode(batch):
        batch["image"] = [numpy.asarray(resize(Image.open(path).convert("RGB"))) for path in batch["path"]]
        del batch["path"]
        return batch

    return torch.utils.data.DataLoader(table.with_transform(decode), batch_size, num_workers=num_workers, drop_last=True)


def dali(batch_size=16):
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.base_iterator import LastBatchPolicy
    try:
        from nvidia.dali.plugin.numpy import DALIGenericIterator
    except ImportError:  # versions that have no iterator of NumPy arrays
        from nvidia.dali.plugin.pytorch import DALIGenericIterator

    @pipeline_def(batch_size=batch_size, num_threads=2, device_id=None)
    def pipe():
        encoded, label = fn.readers.file(file_root=DATA, name="reader")
        images = fn.decoders.image_random_crop(encoded, device="cpu")
        return fn.resize(images, resize_x=SIZE, resize_y=SIZE), label

    return DALIGenericIterator(pipe(), ["image", "label"], reader_name="reader", last_batch_policy=LastBatchPolicy.DROP,
                               auto_reset=True)
