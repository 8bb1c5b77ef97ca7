# SPDX-License-Identifier: Apache-2.0
"""Shared by all loaders: the description of a turn, the crop, the order of the files, and the clock."""
import glob
import math
import os
import random
import re
import subprocess
import time
from dataclasses import dataclass, field

# torchvision's defaults, from Szegedy et al., "Going deeper with convolutions", 2015.
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10

SIDE = 224


@dataclass
class Task:
    """One turn of one loader."""
    data_dir: str  # data_dir/<class>/<image>
    files: list  # all images in data_dir, sorted, each with the index of its folder
    labels: list
    threads: int
    batch: int
    seconds: float
    warmup: float
    scratch: str  # a folder that all turns of a measurement share
    penstock: str = ""
    decode_peer: str = ""
    options: dict = field(default_factory=dict)  # the loader's OPTIONS, overridden by options in its name


def random_resized_crop(width, height, draw):
    """Left, top, width and height, drawn like torchvision's RandomResizedCrop."""
    area = width * height
    for _ in range(TRIES):
        target = area * draw.uniform(*AREA)
        ratio = math.exp(draw.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if 0 < w <= width and 0 < h <= height:
            return draw.randint(0, width - w), draw.randint(0, height - h), w, h
    w, h = width, height
    if width / height < RATIO[0]:
        h = round(w / RATIO[0])
    elif width / height > RATIO[1]:
        w = round(h * RATIO[1])
    return (width - w) // 2, (height - h) // 2, w, h


def endless_shuffle(items, seed=1):
    """All items in a new order in each pass, without a pause between passes."""
    draw = random.Random(seed)
    order = list(items)
    while True:
        draw.shuffle(order)
        yield from order


def libjpeg_of(program):
    """The version of the libjpeg-turbo that a program is linked with, found as text in its file."""
    found = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    library = re.search(r"libjpeg\.so\S* => (\S+)", found)
    with open(library[1] if library else program, "rb") as file:
        version = re.search(rb"libjpeg-turbo version (\d[\d.]*)", file.read())
    return {"libjpeg-turbo": version[1].decode() if version else "of unknown version"}


def check_batch(batch, size):
    """Checks that batches are bytes of full size with image content. A loader that skipped work would be faster."""
    import numpy
    pixels = numpy.asarray(batch)
    if pixels.dtype != numpy.uint8 or pixels.shape not in ((size, SIDE, SIDE, 3), (size, 3, SIDE, SIDE)):
        raise RuntimeError(f"a batch is {pixels.dtype} {pixels.shape}; expected uint8 of {size} images of {SIDE}")
    if min(image.std() for image in pixels) == 0:
        raise RuntimeError("an image of the batch has one colour")


def session_cpu_s():
    """CPU time so far of this process and its child processes. A turn is a session, so they are found by its id."""
    session, ticks = os.getsid(0), 0
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()  # from the state on: proc(5)
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def rate_of(batches, task):
    """Images per second that an endless iterator over batches supplies to a consumer that drops them."""
    iterator = iter(batches)
    check_batch(next(iterator), task.batch)
    begin = time.perf_counter()
    while time.perf_counter() - begin < task.warmup:
        next(iterator)
    begin, cpu, images = time.perf_counter(), session_cpu_s(), 0
    while True:
        images += len(next(iterator))
        elapsed = time.perf_counter() - begin
        if elapsed >= task.seconds and images >= 4 * task.batch:
            return {"img_per_s": images / elapsed, "cpu_us": 1e6 * (session_cpu_s() - cpu) / images}
