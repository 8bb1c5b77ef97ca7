# SPDX-License-Identifier: Apache-2.0
"""Penstock measures what the input pipeline costs a training run.

    isolate(loader, samples_per_s=2400)   what a loader costs, why, and what would help
    run(loader, samples_per_s=2400)       one run with it
    compare(before, after)                what changed between two results
    doctor(pid)                           what of the machine is in a training's way
    watch(loader)                         marks a loop for `penstock watch`
    push(batches, endpoint)               feeds a run from any iterable of batches

The command `penstock`, or `python -m penstock_bench`, is the program.
"""
import importlib
import importlib.util

# Name -> module. Modules are imported when a name is used, because a training may use one of them alone.
_EXPORTS = {"isolate": "measuring", "run": "measuring", "compare": "measuring", "ab": "measuring", "doctor": "measuring", "PenstockError": "program",
            "Isolation": "results", "Run": "results", "Comparison": "results", "Examination": "results", "Estimate": "results", "Tried": "results",
            "Candidate": "results", "Cause": "results", "RuledOut": "results",
            "push": "pushing", "Pushed": "pushing", "LoaderError": "feed_loader", "watch": "watching"}
__all__ = sorted(name for name, module in _EXPORTS.items() if importlib.util.find_spec(f"{__name__}.{module}"))

TYPE_CHECKING = False  # as of typing, which takes time to import
if TYPE_CHECKING:
    from penstock_bench.feed_loader import LoaderError as LoaderError
    from penstock_bench.measuring import ab as ab, compare as compare, doctor as doctor, isolate as isolate, run as run
    from penstock_bench.program import PenstockError as PenstockError
    from penstock_bench.pushing import Pushed as Pushed, push as push
    from penstock_bench.results import (Candidate as Candidate, Cause as Cause, Comparison as Comparison, Estimate as Estimate,
                                        Examination as Examination, Isolation as Isolation,
                                        RuledOut as RuledOut, Run as Run, Tried as Tried)
    from penstock_bench.watching import watch as watch


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
