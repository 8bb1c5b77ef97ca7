# SPDX-License-Identifier: Apache-2.0
"""One training step of ResNet-50 in PyTorch, reduced to few enough numbers to store beside the tests.

Usage: resnet50_gradients.py write|check FILE

The network is version 1 (the stride of a stage is on its first 1x1 convolution), on 4 images of 64x64
in 1000 classes. Weights equal trainer/initialise.cpp's for seed 1; pixels and labels are closed
formulas. So only the results have to be stored: the loss, some logits, and for the gradient of every
parameter and for every running statistic the L2 norm and four projections on vectors of +-1.
`check` computes them again and compares.
"""
import json
import math
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

SEED, IMAGES, SIDE, CLASSES, PROJECTIONS, LOGITS = 1, 4, 64, 1000, 4, 8
STEP = np.uint64(0x9E3779B97F4A7C15)
# f32 in the C++ sources.
EPSILON, MOMENTUM = float(np.float32(1e-5)), float(np.float32(0.1))
MEANS = np.array([123.675, 116.28, 103.53], np.float32).astype(np.float64)
DEVIATIONS = np.array([58.395, 57.12, 57.375], np.float32).astype(np.float64)


def mix64(z):
    """SplitMix64's output function, the same as in dataflow/random.h."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & (2**64 - 1)
    return np.uint64(value)


def random_state(seed, epoch, index=0):
    state = mix64(np.uint64(seed) + STEP)
    state = mix64(state + np.uint64(epoch) + STEP)
    return mix64(state + np.uint64(index) + STEP)


def truncated_normal(state, count):
    """Box and Muller's transform of pairs of draws. If a value is beyond two deviations, the whole pair is
    skipped, so pairs can be drawn many at a time."""
    kept, found, drawn = [], 0, 0
    while found < count:
        pairs = int((count - found) * 1.1) + 64
        index = np.arange(1 + drawn, 1 + drawn + 2 * pairs, dtype=np.uint64)
        uniform = (mix64(state + index * STEP) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        radius = np.sqrt(-2 * np.log(1 - uniform[0::2]))
        values = radius * np.cos(2 * math.pi * uniform[1::2])
        kept.append(values[np.abs(values) <= 2])
        found, drawn = found + kept[-1].size, drawn + 2 * pairs
    return np.concatenate(kept)[:count]


def first_weights(name, shape):
    fan_in = math.prod(shape[1:])
    variance = (1 if name.startswith("logits.") else 2) / fan_in
    scale = math.sqrt(variance) / 0.87962566103423978
    values = scale * truncated_normal(random_state(SEED, fnv1a(name)), math.prod(shape))
    return values.astype(np.float32).reshape(shape)


class ConvNorm(nn.Module):
    def __init__(self, inputs, outputs, kernel, stride):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs, EPSILON, MOMENTUM)

    def forward(self, x):
        return self.bn(self.conv(x))


class Bottleneck(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.a = ConvNorm(inputs, channels, 1, stride)
        self.b = ConvNorm(channels, channels, 3, 1)
        self.c = ConvNorm(channels, 4 * channels, 1, 1)
        self.shortcut = ConvNorm(inputs, 4 * channels, 1, stride) if inputs != 4 * channels else nn.Identity()

    def forward(self, x):
        y = self.c(F.relu(self.b(F.relu(self.a(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvNorm(3, 64, 7, 2)
        inputs = 64
        for stage, blocks in enumerate([3, 4, 6, 3]):
            made = nn.ModuleDict()
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                made[str(block + 1)] = Bottleneck(inputs, 64 << stage, stride)
                inputs = 4 * (64 << stage)
            setattr(self, f"stage{stage + 1}", made)
        self.logits = nn.Linear(inputs, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        for stage in (self.stage1, self.stage2, self.stage3, self.stage4):
            for block in stage.values():
                x = block(x)
        return self.logits(x.mean((2, 3)))


def our_name(name):
    """conv.weight keeps its name; a batch norm's weight is Penstock's scale, its bias Penstock's shift."""
    if ".bn." in name:
        roles = {"weight": "scale", "bias": "shift", "running_var": "running_variance"}
        stem, role = name.rsplit(".", 1)
        return f"{stem}.{roles.get(role, role)}"
    return name


def fixed_batch():
    pixels = mix64(np.arange(IMAGES * SIDE * SIDE * 3, dtype=np.uint64) + np.uint64(1)) & np.uint64(255)
    pixels = pixels.astype(np.float64).reshape(IMAGES, SIDE, SIDE, 3)
    labels = [(191 * image + 7) % CLASSES for image in range(IMAGES)]
    return ((pixels - MEANS) / DEVIATIONS).transpose(0, 3, 1, 2).copy(), labels


def step(dtype):
    """Loss, logits, gradients and running statistics of one step, as numpy arrays by Penstock's names."""
    model = ResNet50()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.from_numpy(first_weights(our_name(name), tuple(parameter.shape))))
            elif our_name(name).endswith(".bias"):
                parameter.zero_()
    model = model.to(dtype).train()
    images, labels = fixed_batch()
    logits = model(torch.from_numpy(images).to(dtype))
    loss = F.cross_entropy(logits, torch.tensor(labels))
    loss.backward()
    gradients = {our_name(name): parameter.grad.double().numpy() for name, parameter in model.named_parameters()}
    running = {our_name(name): buffer.double().numpy() for name, buffer in model.named_buffers()
               if "running" in name}
    return loss.item(), logits.detach().double().numpy(), gradients, running


def digest(values):
    """[norm, projections]: element i has the sign of the top bit of mix64(4 i + p) in projection p."""
    flat = values.ravel()
    index = np.arange(flat.size, dtype=np.uint64) * np.uint64(PROJECTIONS)
    result = [np.linalg.norm(flat)]
    for projection in range(PROJECTIONS):
        negative = mix64(index + np.uint64(projection)) >> np.uint64(63)
        result.append(np.sum(np.where(negative == 1, -flat, flat)))
    return [float(f"{value:.13g}") for value in result]


def compute():
    loss, logits, gradients, running = step(torch.float64)
    loss32, _, gradients32, _ = step(torch.float32)
    errors = [np.linalg.norm(gradients32[name] - exact) / np.linalg.norm(exact)
              for name, exact in gradients.items()]
    return {
        "about": "written by tests/interop/resnet50_gradients.py",
        "loss": loss,
        "logits": [[float(f"{value:.13g}") for value in row[:LOGITS]] for row in logits],
        "float32": {"loss": loss32, "worst_relative_gradient_error": float(f"{max(errors):.3g}")},
        "gradients": {name: digest(values) for name, values in gradients.items()},
        "running": {name: digest(values) for name, values in running.items()},
    }


def differences(found, expected, path=""):
    """Numbers that differ by more than libraries may, relative to the norm that begins each list."""
    if isinstance(expected, dict):
        if found.keys() != expected.keys():
            yield f"{path}: {sorted(found.keys() ^ expected.keys())}"
            return
        for key in expected:
            if key not in {"about", "float32"}:
                yield from differences(found[key], expected[key], f"{path}/{key}")
    elif isinstance(expected, list) and isinstance(expected[0], list):
        for index, row in enumerate(expected):
            yield from differences(found[index], row, f"{path}/{index}")
    else:
        a, b = np.atleast_1d(found), np.atleast_1d(expected)
        if np.abs(a - b).max() > 1e-7 * np.abs(b).max():
            yield f"{path}: {found}, expected {expected}"


def main():
    command, path = sys.argv[1], sys.argv[2]
    torch.set_num_threads(1)
    np.seterr(over="ignore")
    result = compute()
    if command == "write":
        lines = json.dumps(result, indent=1).replace("\n   ", " ").replace("\n  ]", " ]")
        with open(path, "w") as file:
            file.write(lines + "\n")
        return 0
    with open(path) as file:
        found = list(differences(result, json.load(file)))
    print("\n".join(found) if found else f"PyTorch {torch.__version__} computes what {path} says")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
