# SPDX-License-Identifier: Apache-2.0
"""PyTorch's training step on a GPU in its fastest form, as the peer of `penstock run --device gpu`.

Each step takes a constant batch of bytes [N, H, W, C] in the device's memory, converts and normalises
it, and does forward, loss, backward and the update (SGD with momentum and weight decay), channels_last,
under autocast. The networks are those of pytorch_trainer.py beside this file. Losses are not scaled in
fp16; PyTorch saves that cost.

  variants   measures each variant, prints a line for each, and the best
  serve      measures one variant whenever a line arrives on standard input, and answers with one line of
             JSON. So its peer can take turns with it, and each variant is compiled only once

Usage: pytorch_gpu.py variants|serve [--batch 256] ... (see --help)
"""
import argparse
import contextlib
import json
import os
import statistics
import sys
import time

import torch
from torch.nn import functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pytorch_trainer import DEVIATIONS, MEANS, MODELS  # noqa: E402

# In the order in which they run: variants that take minutes to compile come last.
MODES = ["eager", "graph", "compiled", "compiled_graph", "max_autotune"]
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": None}


class Trainer:
    def __init__(self, arguments, precision, mode):
        torch.manual_seed(1)
        self.device, self.batch = arguments.device, arguments.batch
        self.on_gpu = self.device == "cuda"
        side = arguments.image_size
        net = MODELS[arguments.model](side, 1000).to(self.device).to(memory_format=torch.channels_last).train()
        self.optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, weight_decay=4e-5, **self.update())
        self.short = DTYPES[precision]
        self.pixels = torch.randint(0, 256, (self.batch, side, side, 3), dtype=torch.uint8, device=self.device)
        self.labels = torch.randint(0, 1000, (self.batch,), device=self.device)
        self.means, self.factors = (torch.tensor(values, device=self.device).view(1, 3, 1, 1)
                                    for values in (MEANS, [1 / deviation for deviation in DEVIATIONS]))
        self.net, self.loss_of, self.graph = net, self.plain_loss, None
        if mode.startswith("compiled"):
            self.loss_of = torch.compile(self.plain_loss)
        elif mode == "max_autotune":
            self.loss_of = torch.compile(self.plain_loss, mode="max-autotune-no-cudagraphs")
        if mode in ("graph", "compiled_graph", "max_autotune") and self.on_gpu:
            self.capture()

    def update(self):
        """The fused update, or the update over lists of tensors."""
        return {"fused": True} if self.on_gpu else {"foreach": True}

    def plain_loss(self, pixels, labels):
        images = (pixels.permute(0, 3, 1, 2).float() - self.means) * self.factors
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device, self.short) if self.short else contextlib.nullcontext():
            logits = self.net(images)
        return F.cross_entropy(logits.float(), labels)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(self.pixels, self.labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def capture(self):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(4):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.step()

    def run(self, steps):
        """Images per second over `steps` steps."""
        self.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            if self.graph is not None:
                self.graph.replay()
            else:
                self.step()
        self.synchronize()
        return self.batch * steps / (time.perf_counter() - begin)

    def synchronize(self):
        if self.on_gpu:
            torch.cuda.synchronize()


def describe(precision, mode):
    return f"{precision} {mode}"


def measure_variants(arguments):
    deadline = time.monotonic() + arguments.seconds
    results, earlier = [], earlier_rows(arguments)
    for mode in MODES:
        for precision in arguments.precisions.split(","):
            row = {"precision": precision, "mode": mode, "batch": arguments.batch}
            known = [other for other in earlier if all(other[key] == row[key] for key in row)]
            results.append(known[0] if known else row)
            if known:
                row = known[0]
            elif mode != "eager" and not arguments.device == "cuda":
                row["skipped"] = "only measured on a GPU"
            elif time.monotonic() > deadline:
                row["skipped"] = "the time was up"
            else:
                measure_variant(arguments, row)
            write(arguments, results)
            print(line_of(row), flush=True)
    rated = [row for row in results if "img_per_s" in row]
    if not rated:
        return 1
    best = max(rated, key=lambda row: row["img_per_s"])
    best["best"] = True
    write(arguments, results)
    print(f"best: {line_of(best)}; torch {torch.__version__}", flush=True)
    return 0


def measure_variant(arguments, row):
    begin = time.monotonic()
    try:
        trainer = Trainer(arguments, row["precision"], row["mode"])
        trainer.run(arguments.warmup)
        row["prepare_s"] = time.monotonic() - begin
        rates = [trainer.run(arguments.steps) for _ in range(arguments.rounds)]
        row.update(img_per_s=statistics.median(rates), lowest=min(rates), highest=max(rates))
        if arguments.device == "cuda":
            row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    except Exception as error:  # a variant that fails must not end the others
        row["error"] = f"{type(error).__name__}: {error}"[:300]
    trainer = None
    torch._dynamo.reset()
    if arguments.device == "cuda":
        with contextlib.suppress(RuntimeError):  # if the device failed, this call fails again
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def line_of(row):
    name = describe(row["precision"], row["mode"])
    if "img_per_s" not in row:
        return f"{name}: {row.get('skipped') or row['error']}"
    return (f"{name}, batch {row['batch']}: {row['img_per_s']:.1f} img/s ({row['lowest']:.1f} to {row['highest']:.1f}), "
            f"ready in {row['prepare_s']:.0f} s")


def write(arguments, results):
    if arguments.json:
        with open(arguments.json + ".new", "w") as file:
            json.dump(results, file)
        os.replace(arguments.json + ".new", arguments.json)


def earlier_rows(arguments):
    """What an earlier call measured, or could not run."""
    try:
        with open(arguments.json) as file:
            rows = [row for row in json.load(file) if "img_per_s" in row or "error" in row]
    except (OSError, TypeError, ValueError):
        rows = []
    for row in rows:
        row.pop("best", None)
    return rows


def serve(arguments):
    trainer = Trainer(arguments, arguments.precisions.split(",")[0], arguments.mode)
    trainer.run(arguments.warmup)
    print(json.dumps({"ready": True, "torch": torch.__version__}), flush=True)
    for _ in sys.stdin:
        trainer.run(2)
        print(json.dumps({"img_per_s": trainer.run(arguments.steps)}), flush=True)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["variants", "serve"])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--model", choices=MODELS, default="resnet50_v1.5")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--precisions", default="fp16,bf16")
    parser.add_argument("--mode", choices=MODES, default="graph", help="mode of `serve`")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=300, help="seconds after which no variant begins")
    parser.add_argument("--json", help="file for the results; `variants` keeps existing results")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print(f"torch {torch.__version__} sees no GPU: pass --device cpu to try this program", flush=True)
        return 1
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    return measure_variants(arguments) if arguments.what == "variants" else serve(arguments)


if __name__ == "__main__":
    sys.exit(main())
