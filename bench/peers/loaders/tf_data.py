# SPDX-License-Identifier: Apache-2.0
"""tf.data with decode_and_crop_jpeg, as in TensorFlow's ResNet examples.

`antialias=false` matches those examples and the default of tf.image.resize. With `parallel=auto`, tf.data's
autotuning chooses the number of calls.
"""
import numpy
import tensorflow as tf

import common

OPTIONS = {"antialias": "true", "parallel": "threads"}
SETTINGS = {"decode": "region", "antialias": "yes", "dct": "accurate integer", "dct_scaling": "no",
            "chroma": "smooth", "output": "HWC"}


def settings(options):
    return SETTINGS if options["antialias"] == "true" else {**SETTINGS, "antialias": "no"}


def versions(task):
    return {"TensorFlow": tf.__version__}


def cropped(encoded, top, left, height, width, antialias):
    image = tf.io.decode_and_crop_jpeg(encoded, tf.stack([top, left, height, width]), channels=3,
                                       fancy_upscaling=True, dct_method="INTEGER_ACCURATE")
    image = tf.image.resize(image, [common.SIDE] * 2, method="bilinear", antialias=antialias)
    return tf.cast(image + 0.5, tf.uint8)  # a mean of bytes is between 0 and 255


def random_image(path, antialias):
    encoded = tf.io.read_file(path)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(encoded), tf.constant([[[0.0, 0.0, 1.0, 1.0]]]), min_object_covered=0.0,
        aspect_ratio_range=common.RATIO, area_range=common.AREA, max_attempts=common.TRIES,
        use_image_if_no_bounding_boxes=True)
    image = cropped(encoded, begin[0], begin[1], size[0], size[1], antialias)
    return tf.image.random_flip_left_right(image)


def rate(task):
    antialias = task.options["antialias"] == "true"
    parallel = tf.data.AUTOTUNE if task.options["parallel"] == "auto" else task.threads
    tf.config.threading.set_intra_op_parallelism_threads(task.threads)
    tf.config.threading.set_inter_op_parallelism_threads(task.threads)
    options = tf.data.Options()
    options.deterministic = False
    options.threading.private_threadpool_size = task.threads
    options.threading.max_intra_op_parallelism = 1
    dataset = tf.data.Dataset.from_tensor_slices(task.files).shuffle(len(task.files)).repeat()
    dataset = dataset.map(lambda path: random_image(path, antialias), num_parallel_calls=parallel)
    dataset = dataset.batch(task.batch, drop_remainder=True).prefetch(2).with_options(options)
    return common.rate_of(dataset, task)


def evaluate(task, box):
    left, top, width, height = box
    antialias = task.options["antialias"] == "true"
    return numpy.stack([cropped(tf.io.read_file(path), top, left, height, width, antialias).numpy()
                        for path in task.files])
