# SPDX-License-Identifier: Apache-2.0
"""torchvision's DataLoader with its JPEG decoder and tensor transforms. Their antialiased bilinear filter has vector
code for bytes."""
import torch
import torchvision
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

import common
from torchvision_pil import loader_of

OPTIONS = {"workers": "auto", "prefetch": "2"}


def settings(options):
    return {"decode": "whole image", "antialias": "yes", "dct": "accurate integer", "dct_scaling": "no",
            "chroma": "smooth", "output": "CHW"}


def versions(task):
    return {"torch": torch.__version__, "torchvision": torchvision.__version__}


def decode(path):
    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


class Chain:
    def __init__(self):
        self.transform = v2.Compose([v2.RandomResizedCrop(common.SIDE, scale=common.AREA, ratio=common.RATIO,
                                                          antialias=True),
                                     v2.RandomHorizontalFlip()])

    def __call__(self, path):
        return self.transform(decode(path))


def rate(task):
    return common.rate_of(loader_of(task, Chain()), task)


def evaluate(task, box):
    left, top, width, height = box
    return [functional.resized_crop(decode(path), top, left, height, width, [common.SIDE] * 2, antialias=True)
            .permute(1, 2, 0).numpy() for path in task.files]
