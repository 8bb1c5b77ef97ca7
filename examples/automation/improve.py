# SPDX-License-Identifier: Apache-2.0
"""Improves a loader step by step: asks why it is slow, tries one setting after another, and keeps what was proved.

    python3 improve.py FILE.py:FUNCTION SAMPLES_PER_S NAME=VALUE,VALUE...

A change is kept only if it was measured again beside the present setting, in blocks that did not choose it, and its whole 95 %
interval is a gain. docs/automation.md explains why.
"""
import sys

import penstock_bench


def next_setting(found, left):
    """What to try next: the best candidate of the last answer that is left, else the first setting that is left."""
    return next((name for each in found.candidates for name in each.change if name in left), next(iter(left), None))


def improve(loader, candidates, *, samples_per_s, present=None, budget=15, vary_budget=40, most_steps=10, say=print):
    """Returns the settings that were kept, and the steps: (settings before, what was tried, whether it was kept)."""
    present, left, steps = dict(present or {}), dict(candidates), []

    def ask(**more):
        return penstock_bench.isolate(loader, args=present, samples_per_s=samples_per_s, budget=budget, progress=False, **more)

    found = ask()
    say(found.verdict[0])
    while found.next != "stop" and left and len(steps) < most_steps:
        name = next_setting(found, left)
        predicted = [each.change[name] for each in found.candidates if name in each.change and each.basis == "predicted"]
        values = [value for value in {**dict.fromkeys(left.pop(name)), **dict.fromkeys(predicted)} if value != present.get(name)]
        if not values:
            continue
        found = ask(vary={name: values}, vary_budget=vary_budget)
        tried = found.tried
        kept = tried is not None and tried.holds
        steps.append((dict(present), tried, kept))
        say(f"{name}: " + (f"{tried.text}: {tried.gain_percent.value:+.1f} % ({tried.gain_percent.low:+.1f} to "
                           f"{tried.gain_percent.high:+.1f}); {'kept' if kept else 'left as it was'}" if tried else "nothing is faster"))
        if kept:
            present.update(tried.change)
            left = {other: values for other, values in candidates.items() if other != name}  # others may help now
    say(f"present settings: {present}; input costs {found.cost_percent} % before the last step")
    return present, steps


def main():
    loader, rate, *settings = sys.argv[1:]
    candidates = {name: values.split(",") for name, _, values in (each.partition("=") for each in settings)}
    improve(loader, candidates, samples_per_s=float(rate))


if __name__ == "__main__":
    main()
