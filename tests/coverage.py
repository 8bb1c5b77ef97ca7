#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the share of each folder's lines that the tests ran, from the counters that a build with --coverage wrote.

Usage: coverage.py BUILD_DIRECTORY. Needs gcovr. A folder's row includes the folders below it.
"""
import collections
import json
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = "dataflow|feeders|trainer|bench"
# Programs that no test runs: they need a GPU, another system's code, or a quiet machine.
NOT_TESTED = "bench/(gpu|micro|peers)/"


def count_lines(build):
    """Number of lines, and of lines that ran, of every folder."""
    command = ["gcovr", "--root", SOURCE, "--object-directory", build, "-j", str(os.cpu_count()), "--json-summary", "-",
               "--filter", f"{SOURCE}/({FOLDERS})/", "--exclude", f"{SOURCE}/{NOT_TESTED}",
               "--gcov-ignore-parse-errors", build]
    files = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["files"]
    counts = collections.defaultdict(lambda: [0, 0])
    for file in files:
        for folder in pathlib.PurePath(file["filename"]).parents:
            counts[folder][0] += file["line_total"]
            counts[folder][1] += file["line_covered"]
    return counts


def main():
    counts = count_lines(sys.argv[1])
    print(f"{'folder':<40} {'lines':>7} {'run':>7} {'%':>6}")
    for folder, (lines, run) in sorted(counts.items(), key=lambda row: row[0].parts):
        name = "  " * (len(folder.parts) - 1) + folder.name if folder.parts else "all"
        print(f"{name:<40} {lines:>7} {run:>7} {100 * run / max(1, lines):>6.1f}")


if __name__ == "__main__":
    main()
