# SPDX-License-Identifier: Apache-2.0
"""A window of a given time after some warm-up batches, and what this process used in it."""
import json
import os
import resource
import time

TICKS = os.sysconf("SC_CLK_TCK")


def usage():
    return resource.getrusage(resource.RUSAGE_SELF)


def cpu_of(pid):
    """CPU seconds of another process and its threads."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Window:
    """`others` are processes whose CPU time counts as the producer's."""

    def __init__(self, warmup, seconds, others=()):
        self.warmup, self.seconds, self.others = warmup, seconds, others
        self.count = 0

    def lap(self):
        """Called after each batch; False: the window is over."""
        self.count += 1
        now = time.monotonic()
        if self.count <= self.warmup:
            self.start, self.before, self.before_others = now, usage(), sum(cpu_of(pid) for pid in self.others)
            return True
        self.end = now
        return now - self.start < self.seconds

    def show(self, **about):
        after, batches = usage(), self.count - self.warmup
        cpu_s = sum(getattr(after, key) - getattr(self.before, key) for key in ("ru_utime", "ru_stime"))
        answer = {"batches": batches, "seconds": self.end - self.start, "cpu_s": cpu_s,
                  "minor_faults": after.ru_minflt - self.before.ru_minflt,
                  **about}
        if self.others:
            used = sum(cpu_of(pid) for pid in self.others) - self.before_others
            answer["producer_cpu_ms"] = 1e3 * used / batches
        print(json.dumps(answer), flush=True)
