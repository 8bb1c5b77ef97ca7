# SPDX-License-Identifier: Apache-2.0
"""Penstock measures what the input pipeline costs a training run.

push(batches, endpoint) feeds a run from any iterable of batches. The command `penstock` is the program.
"""
import importlib
import importlib.util

# Name -> module. Modules are imported when a name is used, because a training may use one of them alone.
_EXPORTS = {"push": "pushing", "Pushed": "pushing", "LoaderError": "feed_loader", "watch": "watching"}
__all__ = sorted(name for name, module in _EXPORTS.items() if importlib.util.find_spec(f"{__name__}.{module}"))


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
