#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints, in Markdown, the cost of reading each format, from the results of formats.sh.

    bench/peers/formats_table.py formats/results/results.json

`read` is the CPU time of the stage `read` for an image. Its share is relative to both stages of a decode thread, read
and decode; medians over repetitions. Resident: the least and the most of the set that was in the page cache before a run.
"""
import json
import os
import statistics
import sys


def stage_us(repetition, name):
    """CPU time of a stage for an image; 0 if there is no such stage."""
    return sum(1e6 * stage["cpu_s"] / stage["images"] for stage in repetition["stages"]
               if stage["name"] == name and stage["images"] > 0)


def line(run):
    config, rate = run["config"], run["img_per_s"]
    read = statistics.median(stage_us(repetition, "read") for repetition in run["repetitions"])
    decode = statistics.median(stage_us(repetition, "decode") for repetition in run["repetitions"])
    resident = [repetition["facts"]["page_cache_resident_percent_before"] for repetition in run["repetitions"]]
    name = os.path.basename(config["data_dir"].removesuffix("/train"))
    return (f"| {name} | {config['page_cache']} | {rate['median']:.0f} ({rate['low']:.0f} to {rate['high']:.0f}) | "
            f"{read:.1f} | {100 * read / (read + decode):.1f} % | {min(resident):.1f} to {max(resident):.1f} % |")


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        runs = json.load(file)["runs"]
    print("| format | page cache | img/s (lowest to highest) | read, us an image | its share | resident before |\n"
          "|---|---|---|---|---|---|")
    for run in runs:
        if run["repetitions"] and run["status"] == "ok":
            print(line(run))


if __name__ == "__main__":
    main()
