#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The features of the reference systems that docs/compatibility.md lists by number. Each number has a check here: a command
whose effect is compared.

Usage: features_test.py PENSTOCK [--ignore-each] [table|batches|training|reports|processes|NUMBER...]
`table` compares the table with the checks; the other words are the modules of checks. --ignore-each: PENSTOCK is
penstock_deaf, and a check must fail if any of its settings is ignored.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import batches  # noqa: F401
import processes  # noqa: F401
import reports  # noqa: F401
import training  # noqa: F401
from harness import CHECKS, EMULATED, SOURCE, Penstock, Skipped, expect

UNCLAIMED = {  # keys of RunConfig that no row has, and why
    "cache_dir": "holds what a GPU has found out about its engines",
    "fp16_vars": "needs a device with 16 bits: ServedProcesses, BackendContract and the tests of the GPU compare it",
    "fp16_loss_scale": "needs a GPU; so do the next two, which the tests of LossScale compare",
    "fp16_enable_auto_loss_scale": "needs a GPU",
    "fp16_inc_loss_scale_every_n": "needs a GPU",
    "timeout": "its effect is a time; the tests of faults compare it",
}


def check_table(penstock):
    """Each number of the table has a check, each check a number, and each key of RunConfig a number or a reason."""
    text = (SOURCE / "docs" / "compatibility.md").read_text()
    rows = [int(number) for number in re.findall(r"^\| (\d+) \|", text, re.M)]
    entries = [entry for of_check in CHECKS.values() for entry in of_check]
    expect("numbers of the table", rows, list(range(1, len(rows) + 1)))
    expect("numbers that have a check", sorted({number for number, _ in entries}), rows)
    keys = penstock.run(f"--fake-location gpu {EMULATED}")["config"].keys()
    claimed = {setting for _, settings in entries for setting in settings if "--" not in setting and ":" not in setting}
    expect("keys that neither a row nor the list of exceptions has", sorted(keys - claimed - UNCLAIMED.keys()), [])
    expect("settings that are no keys", sorted(claimed - keys), [])
    expect("exceptions that a row has, or that are no keys", sorted(UNCLAIMED.keys() - (keys - claimed)), [])


def outcome_of(check, program, folder, ignored=""):
    """Empty if the check passes."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        (pathlib.Path(name) / "ds").symlink_to(folder / "ds")
        (pathlib.Path(name) / "data").symlink_to(folder / "data")
        try:
            check(Penstock(program, pathlib.Path(name), ignored))
        except Skipped as reason:
            return f"skipped: {reason}"
        except (AssertionError, LookupError, ValueError, OSError, subprocess.TimeoutExpired) as error:
            return f"failed: {error}"
    return ""


def main():
    program, *words = sys.argv[1:]
    program, ignore = os.path.abspath(program), "--ignore-each" in words
    chosen = [(check, setting) for check, entries in CHECKS.items()
              if {check.__module__, *(str(number) for number, _ in entries)} & {*words} or words in ([], ["--ignore-each"])
              for setting in (sorted({setting for _, settings in entries for setting in settings}) if ignore else [""])]
    failed = False
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(2) as pool:
        folder = pathlib.Path(name)
        penstock = Penstock(program, folder)
        penstock.call("dataset make --images 80 --val-images 16 --classes 4 --data-dir ds")
        (folder / "data" / "train").mkdir(parents=True)  # what --data-dir means by default: one class
        (folder / "data" / "train" / "alone").symlink_to(min((folder / "ds" / "val").iterdir()))
        if "table" in words:
            return check_table(penstock)
        outcomes = pool.map(lambda each: outcome_of(each[0], program, folder, each[1]), chosen)
        for (check, setting), outcome in zip(chosen, outcomes):
            numbers = " ".join(str(number) for number, _ in CHECKS[check])
            skipped = outcome.startswith("skipped")
            good = skipped or (not outcome) != ignore
            failed |= not good
            what = outcome if skipped or outcome and not good else "ok" if good else "ignored, and not noticed"
            print(f"{numbers} {check.__name__} {setting}: {what}", flush=True)
    sys.exit(failed or not chosen)


if __name__ == "__main__":
    main()
