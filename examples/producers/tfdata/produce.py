#!/usr/bin/env python3
# Run: python3 produce.py --endpoint ipc://feed --data-dir /data/imagenet/train --batch 64, beside
#      penstock run --fake-location zmq-consume:endpoint=ipc://feed --batch-size 64
# SPDX-License-Identifier: Apache-2.0
"""Feeds Penstock from tf.data: it decodes only a random crop of the JPEG files of class folders or, without
--data-dir, sends random images. Needs penstock-bench and TensorFlow 2."""
import argparse
import pathlib

import penstock_bench
import tensorflow as tf


def crop_of(path, label, size):
    """A random resized crop of a file, mirrored with probability 1/2."""
    file = tf.io.read_file(path)
    begin, extent, _ = tf.image.sample_distorted_bounding_box(
        tf.image.extract_jpeg_shape(file), tf.zeros([1, 0, 4]), area_range=(0.08, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3), use_image_if_no_bounding_boxes=True)
    window = tf.stack([begin[0], begin[1], extent[0], extent[1]])
    image = tf.image.decode_and_crop_jpeg(file, window, channels=3)
    image = tf.image.random_flip_left_right(tf.image.resize(image, [size, size]))
    return tf.cast(tf.clip_by_value(tf.round(image), 0, 255), tf.uint8), label


def files_of(folder):
    classes = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_dir())
    files = [(str(path), label) for label, directory in enumerate(classes)
             for path in sorted(directory.glob("*.[jJ][pP]*"))]
    paths, labels = zip(*files)
    return list(paths), tf.constant(labels, tf.int32)


def random_image(_, size):
    image = tf.cast(tf.random.uniform([size, size, 3], 0, 256, tf.int32), tf.uint8)
    return image, tf.random.uniform([], 0, 1000, tf.int32)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", default="ipc://testpipe")
    parser.add_argument("--data-dir", help="a folder of class folders; default: random images")
    parser.add_argument("--batch", type=int, default=64, help="images in a batch")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images; default: %(default)s")
    args = parser.parse_args()

    if args.data_dir:
        files, labels = files_of(args.data_dir)
        images = tf.data.Dataset.from_tensor_slices((files, labels)).shuffle(len(files)).repeat()
        images = images.map(lambda path, label: crop_of(path, label, args.size), tf.data.AUTOTUNE)
    else:
        images = tf.data.Dataset.counter().map(lambda index: random_image(index, args.size), tf.data.AUTOTUNE)
    batches = images.batch(args.batch, drop_remainder=True).prefetch(2)
    penstock_bench.push(batches.as_numpy_iterator(), args.endpoint, copy=False)


if __name__ == "__main__":
    main()
