# SPDX-License-Identifier: Apache-2.0
"""Python runs this file at its start, because `penstock watch` puts its folder into PYTHONPATH.

It makes the import of torch.utils.data measure DataLoader, and then runs the sitecustomize that it
hides. It imports neither torch nor anything that takes time.
"""
import os
import sys
from importlib.machinery import PathFinder

WATCHED = "torch.utils.data"


class AfterImport:
    """Lets the usual finders find the module, and measures its DataLoader after it was loaded."""

    @staticmethod
    def find_spec(name, _path=None, _target=None):
        if name != WATCHED or AfterImport not in sys.meta_path:
            return None
        sys.meta_path.remove(AfterImport)
        from importlib.util import find_spec

        spec = find_spec(name)
        loader = getattr(spec, "loader", None)
        try:
            original = loader.exec_module
            loader.exec_module = lambda module: load(original, module)
        except AttributeError:
            return spec
        return spec


def load(original, module):
    original(module)
    try:
        from penstock_bench import watching

        watching.watch_loader_class(module.DataLoader)
    except Exception as error:  # the training must run without the measurement
        print(f"penstock watch: cannot measure DataLoader: {error!r}", file=sys.stderr)


def run_hidden():
    """Runs the sitecustomize that Python would have found without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path) != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("PENSTOCK_WATCH_DIR"):
    sys.meta_path.insert(0, AfterImport)
run_hidden()
