#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The features of the reference systems that docs/compatibility.md lists by number. Each number has a check here: a command
whose result is compared, or the names of tests elsewhere that compare it.

Usage: features_test.py SOURCE_DIRECTORY PENSTOCK table|batches|training|reports|NUMBER...
`table` compares the table with the checks, and looks up the tests elsewhere; the other words are the modules of checks.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import batches
import reports
import training
from harness import CHECKS, Penstock, expect, tests_in

MODULES = {"table": "harness", **{module.__name__: module.__name__ for module in (batches, training, reports)}}
NO_CPU = "built without DNNL::dnnl"  # what a program without that device says


def check_table(source):
    """Each number of the table has a check, and each check a number."""
    text = (source / "docs" / "compatibility.md").read_text()
    rows = [int(number) for number in re.findall(r"^\| (\d+) \|", text, re.M)]
    expect("numbers of the table", rows, list(range(1, len(rows) + 1)))
    expect("numbers that have a check", sorted(CHECKS), rows)


def main():
    source, program, *words = sys.argv[1:]
    source = pathlib.Path(source)
    if "table" in words:
        check_table(source)
    modules, numbers = {MODULES[word] for word in words if word in MODULES}, {word for word in words if word not in MODULES}
    outcomes = {}
    with tempfile.TemporaryDirectory() as name:
        penstock = Penstock(os.path.abspath(program), pathlib.Path(name), tests_in(source))
        penstock.call("dataset make --images 80 --val-images 16 --classes 4 --data-dir ds")
        for number in sorted(CHECKS):
            for check in CHECKS[number]:
                if check in outcomes or not (check.__module__ in modules or str(number) in numbers):
                    continue
                try:
                    check(penstock)
                    outcomes[check] = "ok"
                except (AssertionError, LookupError, ValueError, OSError, subprocess.TimeoutExpired) as error:
                    outcomes[check] = "ok, not run without --device cpu" if NO_CPU in str(error) else f"failed: {error}"
                print(f"{number} {check.__name__}: {outcomes[check]}", flush=True)
    sys.exit(any(not outcome.startswith("ok") for outcome in outcomes.values()) or not outcomes)


if __name__ == "__main__":
    main()
