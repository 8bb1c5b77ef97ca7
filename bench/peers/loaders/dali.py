# SPDX-License-Identifier: Apache-2.0
"""NVIDIA DALI on the CPU: its fused decoder of random crops, then a resize and a flip.

The CPU decoder always upsamples chroma smoothly: jpeg_fancy_upsampling is for GPUs. `flip=normalize` mirrors in
crop_mirror_normalize, as in NVIDIA's ResNet examples.
"""
import numpy
import nvidia.dali
from nvidia.dali import fn, pipeline_def, types

import common

OPTIONS = {"flip": "flip", "queue": "2"}
DECODER = {"device": "cpu", "output_type": types.RGB, "use_fast_idct": False}


def settings(options):
    return {"decode": "region", "antialias": "yes", "dct": "accurate integer", "dct_scaling": "no",
            "chroma": "smooth", "output": "HWC"}


def versions(task):
    return {"DALI": nvidia.dali.__version__}


def resized(images):
    return fn.resize(images, size=[common.SIDE] * 2, interp_type=types.INTERP_LINEAR, antialias=True)


@pipeline_def
def training(task):
    encoded, _ = fn.readers.file(files=task.files, labels=task.labels, random_shuffle=True)
    images = resized(fn.decoders.image_random_crop(
        encoded, random_area=list(common.AREA), random_aspect_ratio=list(common.RATIO), num_attempts=common.TRIES,
        **DECODER))
    mirrored = fn.random.coin_flip()
    if task.options["flip"] == "flip":
        return fn.flip(images, horizontal=mirrored)
    return fn.crop_mirror_normalize(images, mirror=mirrored, dtype=types.UINT8, output_layout="HWC",
                                    mean=[0.0] * 3, std=[1.0] * 3)


@pipeline_def
def evaluation(task, box):
    left, top, width, height = box
    encoded, _ = fn.readers.file(files=task.files, labels=task.labels)
    return resized(fn.decoders.image_slice(encoded, [left, top], [width, height], normalized_anchor=False,
                                           normalized_shape=False, axis_names="WH", **DECODER))


def batches(task):
    pipeline = training(task, batch_size=task.batch, num_threads=task.threads, device_id=None, seed=1,
                        prefetch_queue_depth=int(task.options["queue"]))
    pipeline.build()
    while True:
        yield numpy.asarray(pipeline.run()[0].as_tensor())


def rate(task):
    return common.rate_of(batches(task), task)


def evaluate(task, box):
    pipeline = evaluation(task, box, batch_size=len(task.files), num_threads=task.threads, device_id=None)
    pipeline.build()
    return numpy.array(pipeline.run()[0].as_tensor())
