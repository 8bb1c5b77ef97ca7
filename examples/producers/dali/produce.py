#!/usr/bin/env python3
# Run: python3 produce.py --endpoint ipc://feed --data-dir /data/imagenet/train --batch 64, beside
#      penstock run --fake-location zmq-consume:endpoint=ipc://feed --batch-size 64
# SPDX-License-Identifier: Apache-2.0
"""Feeds Penstock from an NVIDIA DALI pipeline. The JPEG files of class folders are decoded, cropped at random and resized
on the CPU or, with --device gpu, on a GPU. Needs penstock-bench and DALI."""
import argparse
import itertools

import penstock_bench
from nvidia.dali import fn, pipeline_def, types


@pipeline_def
def crops(folder, size, on_gpu):
    files, labels = fn.readers.file(file_root=folder, random_shuffle=True)
    images = fn.decoders.image_random_crop(files, device="mixed" if on_gpu else "cpu", output_type=types.RGB,
                                           random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
    images = fn.resize(images, resize_x=size, resize_y=size, interp_type=types.INTERP_TRIANGULAR)
    return fn.flip(images, horizontal=fn.random.coin_flip()), labels


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", default="ipc://testpipe")
    parser.add_argument("--data-dir", required=True, help="a folder of class folders")
    parser.add_argument("--batch", type=int, default=64, help="images in a batch")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images; default: %(default)s")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    args = parser.parse_args()

    on_gpu = args.device == "gpu"
    pipeline = crops(args.data_dir, args.size, on_gpu, batch_size=args.batch, num_threads=args.threads,
                     device_id=0 if on_gpu else None)
    pipeline.build()
    penstock_bench.push((pipeline.run() for _ in itertools.count()), args.endpoint)


if __name__ == "__main__":
    main()
