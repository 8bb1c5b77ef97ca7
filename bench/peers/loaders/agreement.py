# SPDX-License-Identifier: Apache-2.0
"""Difference between the pixels of a loader and Pillow's, for the same centre crop of the same files.

Each set holds images of one size. Its crop of 224/256 of the shorter side begins and ends at whole pixels, so
loaders with integer boxes and loaders with a built-in centre crop take the same crop.
"""
import os

import numpy
from PIL import Image, ImageOps

import common

IMAGES = 32
# Reduction of the crop: as in images of ImageNet's usual size, and large enough that decoders may scale in the DCT.
SETS = {"1.5x": (512, 384), "3x": (1024, 768)}
QUALITY = 96
# Some filters read pixels beyond the crop and others do not. This changes only the outermost pixels.
FRAME = 2


def box_of(size):
    width, height = size
    side = min(size) * common.SIDE // 256
    return (width - side) // 2, (height - side) // 2, side, side


def folder_of(scratch, name):
    return os.path.join(scratch, "evaluation", name)


def make_sets(files, scratch):
    """Writes images of the data set side by side, each in a separate folder. A set that exists is kept."""
    tile = SETS["1.5x"]
    for name, (width, height) in SETS.items():
        folder = folder_of(scratch, name)
        if os.path.exists(folder):
            continue
        columns, rows = width // tile[0], height // tile[1]
        part = folder + ".part"
        for number in range(IMAGES):
            sheet = Image.new("RGB", (width, height))
            for index in range(columns * rows):
                path = files[(number * columns * rows + index) * 7 % len(files)]
                image = ImageOps.fit(Image.open(path).convert("RGB"), tile)
                sheet.paste(image, (index % columns * tile[0], index // columns * tile[1]))
            os.makedirs(f"{part}/{number:03}", exist_ok=True)
            sheet.save(f"{part}/{number:03}/{number:03}.JPEG", quality=QUALITY, subsampling="4:2:0")
        os.rename(part, folder)


def reference(path, box):
    left, top, width, height = box
    return numpy.asarray(Image.open(path).convert("RGB").resize(
        (common.SIDE, common.SIDE), Image.Resampling.BILINEAR, (left, top, left + width, top + height)))


def differences(loader, task, task_of):
    """For each set the mean, and the largest, absolute difference of a channel, in levels of 255."""
    found = {}
    for name, size in SETS.items():
        own = task_of(folder_of(task.scratch, name))
        expected = numpy.stack([reference(path, box_of(size)) for path in own.files]).astype(numpy.int16)
        pixels = numpy.stack(list(loader.evaluate(own, box_of(size))))
        if pixels.shape != expected.shape:
            raise RuntimeError(f"evaluation gave {pixels.shape}; expected {expected.shape}")
        inside = slice(FRAME, common.SIDE - FRAME)
        difference = numpy.abs(pixels.astype(numpy.int16) - expected)[:, inside, inside]
        found[name] = {"mean": round(float(difference.mean()), 4), "max": int(difference.max())}
    return found
