# SPDX-License-Identifier: Apache-2.0
"""What comparisons have in common: how they find programs, describe the machine and write figures."""
import os
import platform
import statistics
import sys


def say(text):
    print(text, file=sys.stderr, flush=True)


def absolute(path):
    """The path of a program, found as a shell finds it. Links are not resolved, because a virtual environment needs them."""
    return os.path.abspath(path) if os.sep in path else path


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def spread(values, digits=0):
    """The median with the lowest and the highest."""
    values = list(values)
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
