# SPDX-License-Identifier: Apache-2.0
"""OpenCV in a pool of threads; its functions run in parallel.

Its bilinear filter is not antialiased. `resize=area`, for reductions only, is its closest filter, and FFCV uses the same.
"""
import random
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy

import common

OPTIONS = {"resize": "area"}
SETTINGS = {"decode": "whole image", "antialias": "area", "dct": "accurate integer", "dct_scaling": "no",
            "chroma": "smooth", "output": "HWC"}
FLAGS = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
AHEAD = 3  # batches that are filled at the same time


def settings(options):
    return SETTINGS if options["resize"] == "area" else {**SETTINGS, "antialias": "no"}


def versions(task):
    return {"OpenCV": cv2.__version__}


def decode(path):
    with open(path, "rb") as file:
        return cv2.imdecode(numpy.frombuffer(file.read(), numpy.uint8), FLAGS)


def resize_into(row, image, box, area):
    left, top, width, height = box
    shrinks = area and width >= common.SIDE and height >= common.SIDE
    cv2.resize(image[top:top + height, left:left + width], (common.SIDE, common.SIDE), dst=row,
               interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def batches(task):
    cv2.setNumThreads(1)
    area = task.options["resize"] == "area"
    own = threading.local()

    def fill(row, path):
        if not hasattr(own, "draw"):
            own.draw = random.Random(path)
        image = decode(path)
        resize_into(row, image, common.random_resized_crop(image.shape[1], image.shape[0], own.draw), area)
        if own.draw.random() < 0.5:
            cv2.flip(row, 1, dst=row)

    paths = common.endless_shuffle(task.files)
    with ThreadPoolExecutor(task.threads) as pool:
        waiting = deque()
        while True:
            while len(waiting) < AHEAD:
                batch = numpy.empty((task.batch, common.SIDE, common.SIDE, 3), numpy.uint8)
                waiting.append((batch, [pool.submit(fill, row, next(paths)) for row in batch]))
            batch, rows = waiting.popleft()
            for row in rows:
                row.result()
            yield batch


def rate(task):
    return common.rate_of(batches(task), task)


def evaluate(task, box):
    pixels = numpy.empty((len(task.files), common.SIDE, common.SIDE, 3), numpy.uint8)
    for row, path in zip(pixels, task.files):
        resize_into(row, decode(path), box, task.options["resize"] == "area")
    return pixels
