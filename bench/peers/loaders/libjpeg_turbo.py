# SPDX-License-Identifier: Apache-2.0
"""libjpeg-turbo's plain full decode of the same files from memory, without crop, resize and flip: the cost of decoding
alone. One process for each core, since nothing is shared."""
import os
import re
import subprocess

import common

OPTIONS = {}
GUESS = 700  # img/s of a core


def settings(options):
    return {"decode": "whole image, nothing else", "antialias": "-", "dct": "accurate integer", "dct_scaling": "no",
            "chroma": "smooth", "output": "HWC, of the image's size"}


def versions(task):
    return common.libjpeg_of(task.decode_peer)


def rate(task):
    images = max(1, round(GUESS * task.seconds))
    command = [task.decode_peer, task.data_dir, "1", str(images), "plain"]
    children = []
    for core in sorted(os.sched_getaffinity(0))[:task.threads]:
        children.append(subprocess.Popen(["taskset", "-c", str(core), *command], stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True))
    rates, cpu_us = [], []
    for child in children:
        text, error = child.communicate()
        found = re.search(r"^plain full decode\s+([\d.]+).*\s([\d.]+)$", text, re.M)
        if child.returncode != 0 or not found:
            raise RuntimeError(error.strip() or text)
        rates.append(float(found[1]))
        cpu_us.append(float(found[2]))
    return {"img_per_s": sum(rates), "cpu_us": sum(cpu_us) / len(cpu_us)}
