#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does `penstock watch` name the cause that a training with PyTorch's DataLoader has? Usage: watch_causes_test.py PENSTOCK VENV

Each case runs this file as the training. What is expected holds on a slow and busy machine too: the planted waits are sleeps of a
multiple of the step.
"""
import contextlib
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time

STEP_S = 0.02
# Name: samples of each epoch; epochs; seconds of a sample and of every 50th; collate; start of a worker; settings of the loader; cause;
# beginning of the remedy.
CASES = {
    "slow_samples": (320, 1, 0.02, 0, 0, 0, {"num_workers": 2}, "work", "num_workers="),
    "one_lock_for_all": (320, 2, 0.008, 0, 0, 0, {"num_workers": 3}, "work", "less time under the lock"),
    "slow_collate": (320, 1, 0, 0, 0.1, 0, {"num_workers": 2}, "work", "a faster collate_fn"),
    "one_slow_sample_of_50": (640, 1, 0.0005, 0.12, 0, 0, {"num_workers": 2, "persistent_workers": True}, "uneven", "prefetch_factor="),
    "workers_that_start_anew": (80, 4, 0.001, 0, 0, 1.5, {"num_workers": 2}, "edges", "persistent_workers=True"),
    "no_workers": (320, 1, 0.005, 0, 0, 0, {"num_workers": 0}, "in_turn", "num_workers="),
}


def train(name):
    import torch
    from torch.utils.data import DataLoader, Dataset

    samples, epochs, sample_s, late_s, collate_s, start_s, settings, _, _ = CASES[name]

    lock = multiprocessing.Lock() if name == "one_lock_for_all" else contextlib.nullcontext()

    class Samples(Dataset):
        def __len__(self):
            return samples

        def __getitem__(self, index):
            with lock:
                time.sleep(late_s if late_s and index % 50 == 0 else sample_s)
            return torch.zeros(3, 8, 8), index

    def collate(batch):
        time.sleep(collate_s)
        return torch.utils.data.default_collate(batch)

    more = {"worker_init_fn": lambda _: time.sleep(start_s)} if settings["num_workers"] else {}
    loader = DataLoader(Samples(), batch_size=8, collate_fn=collate, **settings, **more)
    assert type(loader) is DataLoader and type(loader.dataset) is Samples and loader.collate_fn is collate
    for _ in range(epochs):
        seen = []
        for images, indices in loader:
            assert images.shape == (8, 3, 8, 8)
            seen += indices.tolist()
            time.sleep(STEP_S)
        assert seen == list(range(samples))


def breaches(loop, name):
    samples, epochs, sample_s, *_, collate_s, _, settings, cause, remedy = CASES[name]
    if loop["waits"]["cause"] != cause:
        yield f"the cause is {loop['waits']['cause']}, not {cause}"
    if not loop.get("remedy", "").startswith(remedy):
        yield f"the remedy is '{loop.get('remedy')}', not '{remedy}...'"
    if loop["settings"]["num_workers"] != settings["num_workers"]:
        yield f"settings are {loop['settings']}"
    loading = loop["loading"]
    if (loading["batches"], loading["samples"]) != (samples // 8 * epochs, samples * epochs):
        yield f"{loading['batches']} batches, {loading['samples']} samples were timed"
    if loading["samples_us"] < 1e6 * sample_s * loading["samples"] or loading["collate_us"] < 1e6 * collate_s * loading["batches"]:
        yield f"the times are too short: {loading}"
    if not 0 < loop["saves_percent"] <= 100:
        yield f"saves {loop['saves_percent']} %"


def main(penstock, venv):
    python = pathlib.Path(venv, "bin/python")
    if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode if python.exists() else True:
        print(f"skipped: no torch in {venv}; run `make interop`")
        return 77
    failed = 0
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            record = os.path.join(folder, "watch.json")
            done = subprocess.run([penstock, "watch", "--json", record, "--", python, __file__, name], check=False, timeout=120,
                                  capture_output=True, text=True)
            found = [f"exit code {done.returncode}"] if done.returncode else list(
                breaches(json.loads(pathlib.Path(record).read_text())["ranks"][0]["loops"][0], name))
        failed += bool(found)
        print(f"{name}: {'; '.join(found) or 'as planted'}", *([done.stderr] if found else []))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 3 else train(sys.argv[1]))
