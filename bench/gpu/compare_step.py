# SPDX-License-Identifier: Apache-2.0
"""Compares Penstock's training steps of ResNet-50 v1.5 with PyTorch's, from the same weights on the same batch.

`gradients` takes one step and compares the gradient of every parameter, and every running statistic,
with PyTorch's in f64. The permitted error is PyTorch's own error in the same precision: initial weights
amplify rounding errors from layer to layer, so a fixed tolerance would mean nothing.
`losses` takes many steps on one batch and prints both curves side by side.

Penstock's numbers are read from its checkpoints: with a learning rate that changes nothing, the velocity
of momentum after one step is the gradient, and the weights are the initial ones.

Usage: compare_step.py gradients|losses --penstock COMMAND ... (see --help)
"""
import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile

import numpy as np
import torch
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
from pytorch_trainer import DEVIATIONS, MEANS, MODELS  # noqa: E402

MODEL, CLASSES, DEPTHS = "resnet50_v1.5", 1000, [3, 4, 6, 3]
STEP = np.uint64(0x9E3779B97F4A7C15)
ROLES = {"weight": "scale", "bias": "shift", "running_mean": "running_mean", "running_var": "running_variance"}
UNAVAILABLE = 3  # the exit code if a precision or device is unavailable
LOSS_SCALE = 1024.0  # PyTorch's loss scale in fp16


# ---- inputs of both ---------------------------------------------------------------------------------

def mix64(z):
    """SplitMix64's output function, the same as in dataflow/random.h."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def batch_of(seed, images, side):
    """Slot 0 of rank 0 of the feeder `gpu`: pixels [N, H, W, C] and labels."""
    state = mix64(np.uint64(seed) + STEP)
    state = mix64(state + STEP)
    state = mix64(state + STEP)
    pixels = images * side * side * 3
    words = -(-pixels // 8)
    draws = mix64(state + np.arange(1, words + images + 1, dtype=np.uint64) * STEP)
    labels = ((draws[words:] >> np.uint64(32)) * np.uint64(CLASSES)) >> np.uint64(32)
    return draws[:words].view(np.uint8)[:pixels].reshape(images, side, side, 3), labels.astype(np.int64)


def names():
    """Pairs of Penstock's and PyTorch's name of a module."""
    pairs = [("stem.conv", "0.0"), ("stem.bn", "0.1")]
    index = 3
    for stage, depth in enumerate(DEPTHS):
        for block in range(depth):
            ours = f"stage{stage + 1}.{block + 1}"
            for layer, position in (("a", 0), ("b", 2), ("c", 4)):
                pairs += [(f"{ours}.{layer}.conv", f"{index}.body.{position}.0"),
                          (f"{ours}.{layer}.bn", f"{index}.body.{position}.1")]
            if block == 0:
                pairs += [(f"{ours}.shortcut.conv", f"{index}.shortcut.0"), (f"{ours}.shortcut.bn", f"{index}.shortcut.1")]
            index += 1
    return pairs + [("logits", str(index + 2))]


def our_names(net):
    """Penstock's name of each tensor, by PyTorch's name."""
    modules = {theirs: ours for ours, theirs in names()}
    result = {}
    for name in net.state_dict():
        module, role = name.rsplit(".", 1)
        if role != "num_batches_tracked":
            ours = modules[module]
            result[name] = f"{ours}.{ROLES[role] if ours.endswith('.bn') else role}"
    return result


# ---- Penstock --------------------------------------------------------------------------------------

class NotHere(Exception):
    pass


def read_checkpoint(path):
    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    tensors = {}
    for name, about in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in about["data_offsets"])
            tensors[name] = np.frombuffer(data[begin:end], np.float32).reshape(about["shape"])
    return tensors


def penstock(arguments, way, steps, learning_rate):
    """The result of a run, and its final checkpoint. `way`: a precision, or one with `+fused`."""
    precision, _, fused = way.partition("+")
    device = arguments.fused_device if fused else arguments.device
    with tempfile.TemporaryDirectory() as folder:
        command = shlex.split(arguments.penstock) + [
            "run", "--json", "--device", device, "--model", MODEL, "--precision", precision,
            "--fake-location", "gpu", "--device-slots", "1", "--seed", str(arguments.seed),
            "--batch-size", str(arguments.batch), "--image-size", str(arguments.image_size),
            "--optimizer", "momentum:nesterov=false", "--init-learning-rate", repr(learning_rate),
            "--weight-decay", "0", "--num-warmup-batches", "0", "--num-batches", str(steps),
            "--on-nonfinite", "continue", "--train-dir", folder]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=arguments.seconds)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"penstock run did not end in {arguments.seconds:.0f} s") from None
        if done.returncode == UNAVAILABLE:
            raise NotHere(" ".join(done.stderr.split())[:160])
        if done.returncode != 0:
            raise RuntimeError(f"penstock run exits with {done.returncode}: {' '.join(done.stderr.split())[-400:]}")
        return json.loads(done.stdout), read_checkpoint(os.path.join(folder, f"model-{steps}.safetensors"))


# ---- PyTorch ---------------------------------------------------------------------------------------

def make_net(arguments, weights, dtype):
    net = MODELS[MODEL](arguments.image_size, CLASSES)
    state = {}
    ours = our_names(net)
    for name, tensor in net.state_dict().items():
        if name in ours and "running" not in name:
            state[name] = torch.from_numpy(weights[ours[name]].reshape(tuple(tensor.shape)).copy())
    net.load_state_dict(state, strict=False)
    return net.to(arguments.torch_device, dtype).train()


def images_of(arguments, dtype):
    pixels, labels = batch_of(arguments.seed, arguments.batch, arguments.image_size)
    pixels = torch.from_numpy(pixels.copy()).to(arguments.torch_device).permute(0, 3, 1, 2).to(dtype)
    means, deviations = (torch.tensor(values, dtype=torch.float32).to(pixels).view(1, 3, 1, 1)
                         for values in (MEANS, DEVIATIONS))
    return (pixels - means) / deviations, torch.from_numpy(labels).to(arguments.torch_device)


def backward(arguments, net, batch, precision):
    """Loss of one step; leaves gradients in the parameters."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    images, labels = batch
    short = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision)
    with torch.autocast(arguments.torch_device, short) if short else contextlib.nullcontext():
        logits = net(images)
    loss = F.cross_entropy(logits if logits.dtype == torch.float64 else logits.float(), labels)
    net.zero_grad(set_to_none=True)
    scale = LOSS_SCALE if precision == "fp16" else 1.0
    (loss * scale).backward()
    if scale != 1:
        for parameter in net.parameters():
            parameter.grad /= scale
    return loss.item()


def pytorch_step(arguments, weights, precision):
    """Loss, gradients and running statistics by Penstock's names, in f64."""
    dtype = torch.float64 if precision == "fp64" else torch.float32
    net = make_net(arguments, weights, dtype)
    ours = our_names(net)
    loss = backward(arguments, net, images_of(arguments, dtype), precision)
    gradients = {ours[name]: parameter.grad.double().cpu().numpy() for name, parameter in net.named_parameters()}
    running = {ours[name]: buffer.double().cpu().numpy() for name, buffer in net.named_buffers() if "running" in name}
    return loss, gradients, running


# ---- the comparisons -------------------------------------------------------------------------------

def relative(found, expected):
    return float(np.linalg.norm(found.ravel() - expected.ravel()) / (np.linalg.norm(expected) + 1e-30))


def cosine(found, expected):
    norms = np.linalg.norm(found) * np.linalg.norm(expected)
    return float(np.dot(found.ravel(), expected.ravel()) / (norms + 1e-30))


def errors(found, exact):
    """The error over all tensors together, and of each tensor."""
    flat = [np.concatenate([tensors[name].ravel() for name in exact]) for tensors in (found, exact)]
    tensors = {name: {"error": relative(found[name], exact[name]), "cosine": cosine(found[name], exact[name])}
               for name in exact}
    return {"error": relative(*flat), "cosine": cosine(*flat), "tensors": tensors}


def worst_against(ours, peer):
    """The tensor with the largest error relative to PyTorch's own, and that ratio."""
    ratios = {name: value["error"] / max(peer["tensors"][name]["error"], peer["error"] / 4, 1e-6)
              for name, value in ours["tensors"].items()}
    name = max(ratios, key=ratios.get)
    return name, ratios[name]


def compare_gradients(arguments, way, reference):
    run, checkpoint = penstock(arguments, way, 1, 1e-30)
    precision = way.partition("+")[0]
    if "loss" not in reference:
        loss, gradients, running = pytorch_step(arguments, checkpoint, "fp64")
        reference.update(loss=loss, gradients=gradients, running=running)
    exact = reference["gradients"]
    loss, gradients, running = pytorch_step(arguments, checkpoint, precision)
    ours = errors({name: checkpoint[f"optimizer.0.{name}"].astype(np.float64).reshape(exact[name].shape)
                   for name in exact}, exact)
    peer = errors(gradients, exact)
    statistics = [errors({name: found[name].astype(np.float64) for name in reference["running"]}, reference["running"])
                  for found in (checkpoint, running)]
    name, ratio = worst_against(ours, peer)
    our_loss = run["losses"][0] if run["losses"] else float("nan")
    slack = 3 * abs(loss - reference["loss"]) + reference["loss"] * (0.02 if precision in ("fp16", "bf16") else 1e-3)
    passed = (ours["error"] <= 2 * peer["error"] + 1e-4 and ratio <= 10
              and statistics[0]["error"] <= 2 * statistics[1]["error"] + 1e-4
              and abs(our_loss - reference["loss"]) <= slack)
    line = (f"{'PASS' if passed else 'FAIL'} {way}: gradients off by {ours['error']:.3g} (PyTorch {peer['error']:.3g}), "
            f"cosine {ours['cosine']:.6f} ({peer['cosine']:.6f}); worst tensor {name}, {ratio:.2g} times PyTorch's; "
            f"statistics {statistics[0]['error']:.3g} ({statistics[1]['error']:.3g}); "
            f"loss {our_loss:.6f} ({loss:.6f}, exact {reference['loss']:.6f})")
    for tensor, value in ours["tensors"].items():
        print(f"  {tensor}: {value['error']:.3g} ({peer['tensors'][tensor]['error']:.3g}), cosine {value['cosine']:.6f}")
    return {"passed": passed, "line": line, "ours": ours, "pytorch": peer, "worst": [name, ratio],
            "statistics": {"ours": statistics[0], "pytorch": statistics[1]},
            "loss": {"ours": our_loss, "pytorch": loss, "exact": reference["loss"]}}


def compare_losses(arguments, way, reference):
    precision = way.partition("+")[0]
    if "weights" not in reference:
        reference["weights"] = penstock(arguments, way, 1, 1e-30)[1]
    ours = penstock(arguments, way, arguments.steps, arguments.learning_rate)[0]["losses"]
    net = make_net(arguments, reference["weights"], torch.float32)
    optimizer = torch.optim.SGD(net.parameters(), lr=arguments.learning_rate, momentum=0.9)
    batch = images_of(arguments, torch.float32)
    theirs = []
    for _ in range(arguments.steps):
        theirs.append(backward(arguments, net, batch, precision))
        optimizer.step()
    tail = max(1, arguments.steps // 5)
    ends = [float(np.mean(curve[-tail:])) for curve in (ours, theirs)]
    first = abs(ours[0] - theirs[0]) / theirs[0]
    # `gradients` checks the rounding of the first step. Over many steps the curves drift apart, which is no error.
    most = {"fp16": 0.02, "bf16": 0.1}.get(precision, 0.001)
    passed = bool(np.isfinite(ours).all()) and first <= most and abs(ends[0] - ends[1]) <= 0.25 * theirs[0]
    line = (f"{'PASS' if passed else 'FAIL'} {way}: first loss {ours[0]:.4f} (PyTorch {theirs[0]:.4f}), "
            f"mean of the last {tail} {ends[0]:.4f} ({ends[1]:.4f})")
    for step, pair in enumerate(zip(ours, theirs), 1):
        print(f"  step {step}: {pair[0]:.5f} ({pair[1]:.5f})")
    return {"passed": passed, "line": line, "ours": ours, "pytorch": theirs}


def earlier_results(path):
    """The comparisons of an earlier call, without those that ended with an error."""
    try:
        with open(path) as file:
            return {way: result for way, result in json.load(file).items() if "line" in result}
    except (OSError, TypeError, ValueError):
        return {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["gradients", "losses"])
    parser.add_argument("--penstock", required=True, help="Penstock's command, with its first arguments")
    parser.add_argument("--device", default="gpu", help="Penstock's device")
    parser.add_argument("--torch-device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--fused-device", default="gpu:autotune=false,fused=on", help="Penstock's device for a precision with +fused")
    parser.add_argument("--precisions", default="fp32,fp16,fp16+fused,tf32,bf16")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--learning-rate", type=float, default=0.002)
    parser.add_argument("--seconds", type=float, default=60, help="time limit of one run of Penstock, in seconds")
    parser.add_argument("--json", help="file for the results; existing results are kept")
    arguments = parser.parse_args()
    np.seterr(over="ignore")
    compare = compare_gradients if arguments.what == "gradients" else compare_losses
    results, reference, failed = earlier_results(arguments.json), {}, False
    for way in arguments.precisions.split(","):
        error = None
        try:
            if way not in results:
                results[way] = compare(arguments, way, reference)
        except NotHere as reason:
            results[way] = {"line": f"SKIP {way}: {reason}"}
        except RuntimeError as problem:
            error = results[way] = {"passed": False, "error": str(problem)}
        print(results[way].get("line") or f"FAIL {way}: {error['error']}", flush=True)
        failed |= not results[way].get("passed", True)
        if arguments.json:
            with open(arguments.json + ".new", "w") as file:
                json.dump(results, file)
            os.replace(arguments.json + ".new", arguments.json)
    if not any("passed" in result for result in results.values()):
        print("FAIL: nothing could be compared")
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
