# SPDX-License-Identifier: Apache-2.0
"""torchvision's DataLoader with Pillow, as in most training scripts.

`workers` is the number of processes; 0 loads in the consumer's process, which avoids copies between processes on one core.
"""
import torch
import torchvision
from PIL import Image, __version__ as pillow_version, features
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

import common

OPTIONS = {"workers": "auto", "prefetch": "2"}


def settings(options):
    return {"decode": "whole image", "antialias": "yes", "dct": "accurate integer", "dct_scaling": "no",
            "chroma": "smooth", "output": "CHW"}


def versions(task):
    return {"torch": torch.__version__, "torchvision": torchvision.__version__, "Pillow": pillow_version,
            "libjpeg-turbo of Pillow": features.version("libjpeg_turbo")}


class Files(torch.utils.data.Dataset):
    def __init__(self, task, load):
        self.files, self.labels, self.load = task.files, task.labels, load

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.load(self.files[index]), self.labels[index]


class Endless(torch.utils.data.Sampler):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return common.endless_shuffle(range(self.count))


def loader_of(task, load):
    """Batches of a DataLoader that is tuned as its documentation advises: persistent workers that read ahead."""
    torch.set_num_threads(1)
    workers = task.options["workers"]
    workers = (task.threads if task.threads > 1 else 0) if workers == "auto" else int(workers)
    ahead = {"prefetch_factor": int(task.options["prefetch"]), "persistent_workers": True} if workers else {}
    files = Files(task, load)
    loader = torch.utils.data.DataLoader(files, batch_size=task.batch, sampler=Endless(len(files)),
                                         num_workers=workers, drop_last=True, **ahead)
    return (pixels for pixels, _ in loader)


class Chain:
    """Picklable, so that workers may be spawned."""

    def __init__(self):
        self.transform = v2.Compose([v2.RandomResizedCrop(common.SIDE, scale=common.AREA, ratio=common.RATIO,
                                                          antialias=True),
                                     v2.RandomHorizontalFlip(), v2.PILToTensor()])

    def __call__(self, path):
        return self.transform(Image.open(path).convert("RGB"))


def rate(task):
    return common.rate_of(loader_of(task, Chain()), task)


def evaluate(task, box):
    left, top, width, height = box
    return [functional.pil_to_tensor(functional.resized_crop(
        Image.open(path).convert("RGB"), top, left, height, width, [common.SIDE] * 2, antialias=True))
            .permute(1, 2, 0).numpy() for path in task.files]
