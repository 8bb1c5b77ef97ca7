# SPDX-License-Identifier: Apache-2.0
"""FFCV, from a .beton file that holds the unchanged bytes of the JPEG files: FFCV's writer would encode them again.

FFCV decodes with the fast DCT and resizes by area; neither can be changed.
"""
import importlib.metadata
import os

import numpy
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.rgb_image import IMAGE_MODES, CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip
from ffcv.writer import DatasetWriter
from PIL import Image

import common

OPTIONS = {"ahead": "3"}
PASSES = 64  # passes that one order of FFCV covers, so that its epochs do not end within a turn


def settings(options):
    return {"decode": "whole image", "antialias": "area", "dct": "fast integer", "dct_scaling": "no",
            "chroma": "smooth", "output": "HWC"}


def versions(task):
    import numba
    return {"FFCV": importlib.metadata.version("ffcv"), "Numba": numba.__version__}


class EncodedImageField(RGBImageField):
    """Takes the path of a JPEG file, and stores its bytes as the record."""

    def encode(self, destination, image, malloc):
        encoded = numpy.fromfile(image, numpy.uint8)
        with Image.open(image) as header:
            destination["width"], destination["height"] = header.size
        destination["mode"] = IMAGE_MODES["jpg"]
        destination["data_ptr"], storage = malloc(encoded.nbytes)
        storage[:] = encoded


class Paths:
    def __init__(self, task):
        self.files, self.labels = task.files, task.labels

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.files[index], self.labels[index]


def beton_of(task, name):
    path = os.path.join(task.scratch, f"{name}.beton")
    if not os.path.exists(path):
        writer = DatasetWriter(path + ".part", {"image": EncodedImageField(write_mode="jpg"), "label": IntField()},
                               num_workers=1)
        writer.from_indexed_dataset(Paths(task), shuffle_indices=False)
        os.rename(path + ".part", path)
    return path


def loader_of(task, name, operations, order, batch, indices):
    return Loader(beton_of(task, name), batch_size=batch, num_workers=task.threads, order=order, os_cache=True,
                  drop_last=True, indices=indices, batches_ahead=int(task.options["ahead"]),
                  custom_fields={"image": EncodedImageField}, pipelines={"image": operations, "label": None})


def batches(task):
    operations = [RandomResizedCropRGBImageDecoder((common.SIDE, common.SIDE), common.AREA, common.RATIO),
                  RandomHorizontalFlip()]
    indices = numpy.tile(numpy.arange(len(task.files)), PASSES)
    loader = loader_of(task, "training", operations, OrderOption.RANDOM, task.batch, indices)
    while True:
        for pixels, in loader:
            yield pixels


def rate(task):
    return common.rate_of(batches(task), task)


def evaluate(task, box):
    """FFCV's centre crop, of `ratio` of the shorter side. It equals the box if that has whole pixels."""
    operations = [CenterCropRGBImageDecoder((common.SIDE, common.SIDE), common.SIDE / 256)]
    name = "evaluation-" + os.path.basename(os.path.normpath(task.data_dir))
    loader = loader_of(task, name, operations, OrderOption.SEQUENTIAL, len(task.files), None)
    return numpy.array(next(iter(loader))[0])
