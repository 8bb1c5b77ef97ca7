#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs each loader of examples/loaders/any_data.py, and compares its samples and bytes with those that a plain loop counts. No output of
`run`, `isolate` and `report` may say img/s.
Usage: any_loaders_test.py PENSTOCK VENV FILE
"""
import ast
import json
import pathlib
import subprocess
import sys
import tempfile

STEPS = 12
# What a step takes: a batch's samples, and their bytes where all batches have as many.
PLAIN = """
import sys
sys.path.insert(0, {folder!r})
import any_data
batch = next(iter(any_data.{name}()))
leaves = []
def walk(value):
    if hasattr(value, "nbytes") and hasattr(value, "shape"):
        leaves.append(value)
    elif hasattr(value, "column_names"):
        leaves.extend(column.to_numpy() for column in value.columns)
    else:
        for part in value.values() if isinstance(value, dict) else value:
            walk(part)
walk(batch)
print([(int(leaf.shape[0]) if leaf.shape else 0, int(leaf.nbytes)) for leaf in leaves])
"""
SAMPLES = {"tokens": 16, "huggingface": 32, "audio": 16, "video": 4, "detection": 64, "segmentation": 8, "parquet": 1024,
           "graphs": 32, "shards": 64, "webdataset": 16}
NEEDS = {"huggingface": "datasets", "parquet": "pyarrow", "webdataset": "webdataset"}


def has(python, module):
    return subprocess.run([python, "-c", f"import {module}"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def plain_bytes(python, file, name):
    """Bytes of all arrays in the first batch, each rounded up to 64."""
    done = subprocess.run([python, "-c", PLAIN.format(folder=str(file.parent), name=name)], capture_output=True, text=True,
                          check=True)
    return sum((size + 63) // 64 * 64 for _, size in ast.literal_eval(done.stdout))


def expect_no_images(penstock, python, loader, folder):
    """In what `isolate` and `report` print and write, however few blocks a short budget has."""
    out = pathlib.Path(folder) / "isolated"
    words = [penstock, "isolate", "--loader", loader, "--python", python, "--device", "emulated:step_time=2ms", "--budget", "8s",
             "--out", out]
    done = subprocess.run(words, text=True, timeout=120, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode in (0, 7), f"{loader} ended with {done.returncode}:\n{done.stdout}"
    texts = {"isolate": done.stdout, "page": (out / "report.html").read_text(), "record": (out / "isolation.json").read_text()}
    for form in ("markdown", "csv", "table"):
        words = [penstock, "report", out, "--format", form]
        texts[form] = subprocess.run(words, text=True, timeout=60, stdout=subprocess.PIPE, check=True).stdout
    for name, text in texts.items():
        for word in ("img/s", "img/sec", "images/s"):
            at = text.find(word)
            assert at < 0, f"{loader}, {name}: {text[max(0, at - 200):at + 100]}"


def main():
    penstock, venv, file = (pathlib.Path(word).absolute() for word in sys.argv[1:])
    python = venv / "bin" / "python"
    if not python.exists() or not has(python, "torch"):
        print(f"skipped: no torch in {venv}; run `make interop`")
        sys.exit(77)
    for name, samples in SAMPLES.items():
        if name in NEEDS and not has(python, NEEDS[name]):
            print(f"skipped: {name}, since {venv} has no {NEEDS[name]}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "run.json"
            words = [penstock, "run", "--loader", f"{file}:{name}", "--python", python, "--device", "emulated:step_time=1ms",
                     "--num-batches", str(STEPS), "--num-warmup-batches", "2", "--out", out]
            done = subprocess.run(words, text=True, timeout=120, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            assert done.returncode == 0, f"{name} ended with {done.returncode}:\n{done.stdout}"
            assert "total samples/sec: " in done.stdout and "img/s" not in done.stdout, f"{name} printed\n{done.stdout}"
            result = json.loads(out.read_text())
            expect_no_images(penstock, python, f"{file}:{name}", folder)
        copied = [stage for stage in result["stages"] if stage["role"] == "copies"][0]
        each = copied["bytes"] / copied["items"] - 4 * samples  # and a label for each sample
        first = plain_bytes(python, file, name)
        print(f"{name}: {result['rate']:.0f} samples/s, {each:.0f} bytes a batch; the first has {first} in a plain loop",
              flush=True)
        assert result["unit"] == "samples" and result["images_per_step"] == samples, f"{name}: {result['images_per_step']}"
        assert 0.5 * first <= each <= 2 * first, f"{name}: {each} bytes a batch, and {first} in the first one"


if __name__ == "__main__":
    main()
