# SPDX-License-Identifier: Apache-2.0
"""Penstock's `queue` feeder with a model that computes nothing. Options are the feeder's options."""
import json
import os
import struct
import subprocess
import tempfile

import numpy

import common

OPTIONS = {"upsampling": "fancy", "decode": "region", "shrink": "true", "source": "image-folder"}
PILOT_BATCHES = 12


def settings(options):
    shrinks = options["decode"] == "region" and options["shrink"] == "true"
    return {"decode": "region" if options["decode"] == "region" else "whole image", "antialias": "yes",
            "dct": "accurate integer",
            "dct_scaling": "crops of twice 224 and more" if shrinks else "no",
            "chroma": "smooth" if options["upsampling"] == "fancy" else "plain", "output": "HWC"}


def versions(task):
    text = subprocess.run([task.penstock, "--version"], capture_output=True, text=True, check=True).stdout
    return {"Penstock": text.split()[1], **common.libjpeg_of(task.penstock)}


def feeder(options):
    return "queue:" + ",".join(f"{key}={value}" for key, value in options.items())


def run(task, count, warmup):
    command = [task.penstock, "run", "--json", "--model=null", f"--fake-location={feeder(task.options)}",
               f"--data-dir={task.data_dir}", f"--batch-size={task.batch}", f"--image-size={common.SIDE}",
               f"--feeder-threads={task.threads}", "--device=emulated:img_per_s=1e9", f"--num-batches={count}",
               f"--num-warmup-batches={warmup}", f"--classes={max(task.labels) + 1}"]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    if child.returncode != 0:
        raise RuntimeError(child.stderr.strip())
    result = json.loads(child.stdout)
    # Neither batches that were ready before the window nor batches that remain after it count.
    return {"img_per_s": min(result["img_per_s"], result["sustained_img_per_s"]),
            "cpu_us": 1e6 * result["process_cpu_s"] / (count * task.batch)}


def rate(task):
    pilot = run(task, PILOT_BATCHES, 2)["img_per_s"]

    def batches_in(seconds):
        return max(4, round(seconds * pilot / task.batch))

    return run(task, batches_in(task.seconds), batches_in(task.warmup))


def evaluate(task, box):
    """Through `penstock serve`. Each image has a separate folder, so its label identifies it. `box` is the crop of
    crop=center: 224/256 of the shorter side."""
    import zmq
    pixels, seen = numpy.zeros((len(task.files), common.SIDE, common.SIDE, 3), numpy.uint8), set()
    with tempfile.TemporaryDirectory() as folder, zmq.Context() as context, context.socket(zmq.PULL) as socket:
        socket.bind("ipc://" + os.path.join(folder, "feed"))
        options = {**task.options, "crop": "center", "flip": "false"}
        child = subprocess.Popen(
            [task.penstock, "serve", f"--endpoint=ipc://{folder}/feed", f"--fake-location={feeder(options)}",
             f"--data-dir={task.data_dir}", f"--batch-size={len(task.files)}", f"--image-size={common.SIDE}",
             "--num-batches=2", "--feeder-threads=1"], stderr=subprocess.PIPE, text=True)
        while len(seen) < len(task.files):
            if not socket.poll(20000):
                child.kill()
                raise RuntimeError("penstock serve sends nothing: " + child.communicate()[1].strip())
            for label, image in zip(*read_message(socket.recv())):
                pixels[label] = image
                seen.add(int(label))
        child.kill()
        child.communicate()
    return pixels


def read_message(message):
    """Labels and pixels of a zmq_op message; feeders/remote/wire/zmq_op.h describes the format."""
    tensors, at = {}, 4
    types = {3: numpy.int32, 4: numpy.uint8, 9: numpy.int64}
    for _ in range(struct.unpack_from("<i", message)[0]):
        kind, dimensions = struct.unpack_from("<2i", message, at)
        shape = struct.unpack_from(f"<{dimensions}i", message, at + 8)
        size, = struct.unpack_from("<q", message, at + 8 + 4 * dimensions)
        at += 16 + 4 * dimensions
        tensors[dimensions] = numpy.frombuffer(message[at:at + size], types[kind]).reshape(shape)
        at += size
    return tensors[1], tensors[4]
