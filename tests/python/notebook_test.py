#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes the notebooks of examples/notebooks, and looks at what their cells show.

Usage: notebook_test.py SOURCE_DIRECTORY WORK_DIRECTORY PENSTOCK

Exits 77, with the reason, if a package is missing that executes notebooks.
"""
import importlib.util
import os
import pathlib
import sys

NEEDED = ("nbclient", "nbformat", "ipykernel", "numpy")
CELL_LIMIT_S = 150


def outputs_of(notebook, kind):
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if kind in output.get("data", {}):
                yield output["data"][kind]
            elif output.get("name") == kind:
                yield output["text"]


def main():
    missing = [name for name in NEEDED if not importlib.util.find_spec(name)]
    if missing:
        print(f"skipped: {sys.executable} has no {', '.join(missing)}; pip install nbclient ipykernel numpy")
        return 77
    import nbclient
    import nbformat

    source, work = (pathlib.Path(each).resolve() for each in sys.argv[1:3])
    work.mkdir(parents=True, exist_ok=True)
    os.environ.update(PENSTOCK=str(pathlib.Path(sys.argv[3]).resolve()), PYTHONPATH=str(source / "python"), PYTHONDONTWRITEBYTECODE="1")
    for path in sorted((source / "examples" / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, 4)
        nbformat.validate(notebook)
        kept = [cell for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")]
        assert not kept, f"{path.name} is committed with outputs; clear them"
        nbclient.NotebookClient(notebook, timeout=CELL_LIMIT_S, kernel_name="python3", resources={"metadata": {"path": str(work)}}).execute()
        nbformat.write(notebook, work / path.name)
        pages = list(outputs_of(notebook, "text/html"))
        assert pages and '<p class="lead' in pages[0] and "<svg" in pages[0], pages
        said = "\n".join(outputs_of(notebook, "stdout"))
        assert ("slower" in said or "undecided" in said) and "img/s" in said, said  # the second one if the machine is busy
        assert "isolation.json" in "\n".join(outputs_of(notebook, "text/plain"))
        assert "s left" in said, said
        assert not list(outputs_of(notebook, "stderr"))
        print(f"{path.name}: {len(notebook.cells)} cells\n{said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
