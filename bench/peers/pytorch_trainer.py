# SPDX-License-Identifier: Apache-2.0
"""PyTorch's training step on the cores of a machine, as the peer of `penstock run --device cpu`.

Each step takes a constant batch of bytes [N, H, W, C], converts and normalises it, and does
forward, loss, backward and the update (SGD with Nesterov's momentum and weight decay). The networks
are written out here layer by layer in the same form as Penstock's. The result gives the number of
parameters, to compare both. Prints one line of JSON: every step's time, and a description of the run.

Usage: pytorch_trainer.py [--model resnet50] [--batch 32] [--precision fp32|bf16] ... (see --help)
"""
import argparse
import contextlib
import json
import os
import platform
import re
import resource
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

# ImageNet's statistics over RGB, times 255; dataflow/images/normalisation.h has the same.
MEANS, DEVIATIONS = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


def conv_norm(inputs, outputs, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
                         nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """Residual block: `layers` are (kernel, channels, stride), with a ReLU between them."""

    def __init__(self, inputs, layers, stride):
        super().__init__()
        channels, body = inputs, []
        for kernel, outputs, layer_stride in layers:
            body += [conv_norm(channels, outputs, kernel, layer_stride), nn.ReLU(inplace=True)]
            channels = outputs
        self.body = nn.Sequential(*body[:-1])
        changes = stride != 1 or inputs != channels
        self.shortcut = conv_norm(inputs, channels, 1, stride) if changes else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet(depths, bottleneck, late_stride, classes):
    """late_stride: on the 3x3 convolution of a bottleneck (v1.5), not on its first 1x1 (v1)."""
    net = [conv_norm(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, depth in enumerate(depths):
        channels = 64 << stage
        for block in range(depth):
            stride = 2 if stage > 0 and block == 0 else 1
            first, second = (1, stride) if late_stride else (stride, 1)
            layers = [(1, channels, first), (3, channels, second), (1, 4 * channels, 1)]
            if not bottleneck:
                layers = [(3, channels, stride), (3, channels, 1)]
            net.append(Block(inputs, layers, stride))
            inputs = layers[-1][1]
    return nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def head(net, side, classes):
    """Two layers of 4096 with dropout, and the logits, on the output of `net`."""
    with torch.no_grad():
        features = nn.Sequential(*net)(torch.zeros(1, 3, side, side)).numel()
    return nn.Sequential(*net, nn.Flatten(),
                         nn.Linear(features, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5),
                         nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5),
                         nn.Linear(4096, classes))


def alexnet(side, classes):
    net, inputs = [], 3
    for outputs, kernel, stride, padding, pooled in [(64, 11, 4, 0, True), (192, 5, 1, 2, True), (384, 3, 1, 1, False),
                                                     (384, 3, 1, 1, False), (256, 3, 1, 1, True)]:
        net += [nn.Conv2d(inputs, outputs, kernel, stride, padding), nn.ReLU(inplace=True)]
        net += [nn.MaxPool2d(3, 2)] if pooled else []
        inputs = outputs
    return head(net, side, classes)


def vgg16(side, classes):
    net, inputs = [], 3
    for outputs, depth in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]:
        for _ in range(depth):
            net += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = outputs
        net.append(nn.MaxPool2d(2))
    return head(net, side, classes)


MODELS = {
    "resnet50": lambda side, classes: resnet([3, 4, 6, 3], True, False, classes),
    "resnet50_v1.5": lambda side, classes: resnet([3, 4, 6, 3], True, True, classes),
    "resnet18": lambda side, classes: resnet([2, 2, 2, 2], False, False, classes),
    "alexnet": alexnet,
    "vgg16": vgg16,
}


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"is {text}; expected at least 1")
    return value


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="resnet50")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16: autocast")
    parser.add_argument("--batch", type=positive, default=32)
    parser.add_argument("--image-size", type=positive, help="height and width of images; default: 224, for alexnet 227")
    parser.add_argument("--classes", type=positive, default=1000)
    parser.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=positive, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--channels-last", action="store_true", help="weights and activations as N, H, W, C")
    parser.add_argument("--compile", action="store_true", help="torch.compile the network")
    arguments = parser.parse_args()
    if arguments.image_size is None:
        arguments.image_size = 227 if arguments.model == "alexnet" else 224
    return arguments


class Trainer:
    def __init__(self, arguments):
        torch.manual_seed(1)
        side = arguments.image_size
        memory_format = torch.channels_last if arguments.channels_last else torch.contiguous_format
        net = MODELS[arguments.model](side, arguments.classes).train()
        net = net.to(memory_format=memory_format)
        self.parameters = sum(parameter.numel() for parameter in net.parameters())
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.005, momentum=0.9, weight_decay=4e-5, nesterov=True)
        self.net = torch.compile(net) if arguments.compile else net
        self.memory_format = memory_format
        self.bf16 = arguments.precision == "bf16"
        self.pixels = torch.randint(0, 256, (arguments.batch, side, side, 3), dtype=torch.uint8)
        self.labels = torch.randint(0, arguments.classes, (arguments.batch,))
        self.means = torch.tensor(MEANS).view(1, 3, 1, 1)
        self.deviations = torch.tensor(DEVIATIONS).view(1, 3, 1, 1)

    def step(self):
        images = (self.pixels.permute(0, 3, 1, 2).float() - self.means) / self.deviations
        images = images.contiguous(memory_format=self.memory_format)
        with torch.autocast("cpu", torch.bfloat16) if self.bf16 else contextlib.nullcontext():
            logits = self.net(images)
        loss = F.cross_entropy(logits.float(), self.labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.loss = loss.item()


def timed(trainer, steps):
    step_ms = []
    for _ in range(steps):
        begin = time.perf_counter()
        trainer.step()
        step_ms.append((time.perf_counter() - begin) * 1e3)
    return step_ms


def environment():
    onednn = re.search(r"(?:MKL-DNN|oneDNN) v([\d.]+)", torch.__config__.show())
    variables = ("LD_PRELOAD", "OMP_NUM_THREADS", "KMP_AFFINITY", "KMP_BLOCKTIME", "GOMP_CPU_AFFINITY",
                 "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MALLOC_CONF", "TORCHINDUCTOR_FREEZING")
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "onednn": onednn[1] if onednn else None,
        "aten_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "environment": {name: os.environ[name] for name in variables if name in os.environ},
    }


def main():
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    trainer = Trainer(arguments)
    for _ in range(arguments.warmup):
        trainer.step()
    step_ms = timed(trainer, arguments.steps)
    median = statistics.median(step_ms)
    print(json.dumps({
        "peer": "pytorch",
        "settings": vars(arguments),
        "parameters": trainer.parameters,
        "img_per_s_median": arguments.batch / median * 1e3,
        "step_ms_median": median,
        "step_ms": [round(ms, 3) for ms in step_ms],
        "loss": trainer.loss,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        **environment(),
    }))
    return 0


if __name__ == "__main__":
    sys.exit(main())
