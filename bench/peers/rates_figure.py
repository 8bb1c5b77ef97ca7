#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws img/s as bars in an SVG file, from the results of loader_peers.py, transport_rates.py or formats.sh.

    bench/peers/rates_figure.py figure.svg out/loaders.json       the --json file of loader_peers.py or transport_rates.py
    bench/peers/rates_figure.py figure.svg formats/results/results.csv

A bar is the median of a loader or a format; its line goes from the lowest to the highest turn. Needs matplotlib
(python3-matplotlib, or PyPI's), which Penstock does not need.
"""
import csv
import json
import os
import statistics
import sys

import matplotlib
from matplotlib import pyplot

OURS = "#1b6ca8"
OTHERS = "#9aa5b1"


def loaders(path):
    """Panels of (title, bars). Each bar is (name, lowest, median, highest, whether it is Penstock's)."""
    with open(path, encoding="utf-8") as file:
        measured = json.load(file)["img_per_s"]
    for cores, rates in measured.items():
        bars = [(name, min(turns), statistics.median(turns), max(turns), name.startswith("penstock"))
                for name, turns in rates.items() if turns]
        yield f"{cores} core{'s' if cores != '1' else ''}" if cores.isdigit() else cores, bars


def formats(path):
    panels = {}
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if not row["img_per_s_median"]:
                continue
            low, median, high = (float(row[f"img_per_s_{which}"]) for which in ("low", "median", "high"))
            name = row["data_dir"].removesuffix("/train")
            panels.setdefault(row["page_cache"], []).append((os.path.basename(name), low, median, high, True))
    return [(f"page cache: {state}", bars) for state, bars in panels.items()]


def main():
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    figure_file, measured = sys.argv[1:]
    panels = list(loaders(measured) if measured.endswith(".json") else formats(measured))
    if not panels:
        sys.exit(f"{measured} has no rates")
    matplotlib.rcParams.update({"svg.hashsalt": "penstock", "font.size": 9, "axes.spines.top": False,
                                "axes.spines.right": False})
    figure, axes = pyplot.subplots(1, len(panels), squeeze=False, layout="constrained",
                                   figsize=(4.6 * len(panels), 0.6 + 0.3 * max(len(bars) for _, bars in panels)))
    for axis, (title, bars) in zip(axes[0], panels):
        bars.sort(key=lambda bar: bar[2])
        names, low, middle, high, ours = zip(*bars)
        axis.barh(names, middle, color=[OURS if mine else OTHERS for mine in ours])
        axis.errorbar(middle, names, fmt="none", ecolor="black", elinewidth=0.8, capsize=2,
                      xerr=[[m - l for m, l in zip(middle, low)], [h - m for m, h in zip(middle, high)]])
        for name, value, top in zip(names, middle, high):
            axis.annotate(f"{value:.0f}", (top, name), xytext=(3, 0), textcoords="offset points", va="center")
        axis.margins(x=0.12)
        if middle[-1] > 10 * middle[0]:
            axis.set_xscale("log")
            axis.set_xlabel("img/s, logarithmic")
        else:
            axis.set_xlim(left=0)
            axis.set_xlabel("img/s")
        axis.set_title(title)
    figure.savefig(figure_file, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
