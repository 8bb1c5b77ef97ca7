#!/usr/bin/env python3
# Run: python3 produce.py --endpoint ipc://feed --data-dir /data/imagenet/train --batch 64, beside
#      penstock run --fake-location zmq-consume:endpoint=ipc://feed --batch-size 64
# SPDX-License-Identifier: Apache-2.0
"""Feeds Penstock from a PyTorch DataLoader: an ImageFolder with torchvision's usual augmentation or, without
--data-dir, random tensors. Needs penstock-bench and PyTorch, and torchvision for folders."""
import argparse

import penstock_bench
import torch


class RandomImages(torch.utils.data.Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.randint(0, 256, (3, self.size, self.size), dtype=torch.uint8), index % 1000


def image_folder(folder, size):
    from torchvision import datasets, transforms

    return datasets.ImageFolder(folder, transforms.Compose([
        transforms.RandomResizedCrop(size),
        transforms.RandomHorizontalFlip(),
        transforms.PILToTensor(),  # bytes, because Penstock's devices normalise
    ]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", default="ipc://testpipe")
    parser.add_argument("--data-dir", help="a folder of class folders; default: random tensors")
    parser.add_argument("--batch", type=int, default=64, help="images in a batch")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images; default: %(default)s")
    parser.add_argument("--workers", type=int, default=2, help="processes of the DataLoader")
    args = parser.parse_args()

    dataset = image_folder(args.data_dir, args.size) if args.data_dir else RandomImages(args.size)
    loader = torch.utils.data.DataLoader(dataset, args.batch, shuffle=True, drop_last=True, num_workers=args.workers,
                                         persistent_workers=args.workers > 0)
    penstock_bench.push(loader, args.endpoint, epochs=None)


if __name__ == "__main__":
    main()
