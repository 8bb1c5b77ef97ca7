#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the house that a compiler does not: who includes whom, where vendors live, and the documents.

Usage: house_rules.py SOURCE_DIRECTORY. Prints one line for each breach; exits 1 if there is any.
"""
import pathlib
import re
import sys

# Folder -> folders of ours that it may include. Tests and examples may include everything.
ALLOWED = {
    "dataflow": {"dataflow"},
    "producer": {"dataflow", "producer"},
    "feeders": {"dataflow", "feeders"},
    "trainer": {"dataflow", "trainer"},
    "bench": {"dataflow", "feeders", "trainer", "bench"},
}
VENDORS = re.compile(
    r"^(tbb|oneapi|zmq|jpeglib|turbojpeg|jerror|png|zlib|zstd|dnnl|oneapi/dnnl|cuda|cudnn|nccl|mpi|lmdb)[/._]?", re.I
)
HEADERS_OF_OURS = re.compile(r'^#include "((dataflow|producer|feeders|trainer|bench|tests|examples)/[^"]+)"')
SYSTEM = re.compile(r"^#include <([^>]+)>")

README_LINES = 150
LINK = re.compile(r"\]\(([^()\s]+)\)")


def anchors(text):
    """Names of the headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        yield re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).replace(" ", "-")


def breaches_of_documents(root):
    length = len((root / "README.md").read_text().splitlines())
    if length > README_LINES:
        yield f"README.md: {length} lines; the limit is {README_LINES}. Move what a visitor does not need to docs/"
    folders = [folder for folder in root.iterdir() if folder.is_dir() and not folder.name.startswith((".", "build"))]
    for path in sorted([*root.glob("*.md"), *(path for folder in folders for path in folder.rglob("*.md"))]):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for link in LINK.findall(line):
                if "://" in link or link.startswith("mailto:"):
                    continue
                name, _, anchor = link.partition("#")
                target = path.parent / name if name else path
                known = target.exists() and (not anchor or anchor in anchors(target.read_text()))
                if not known:
                    yield f"{path.relative_to(root)}:{number}: the link {link} leads nowhere"


def breaches(root):
    for folder, allowed in ALLOWED.items():
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".h", ".cpp", ".cu"}:
                continue
            name = path.relative_to(root).as_posix()
            lines = path.read_text().splitlines()
            if not lines or "SPDX-License-Identifier: Apache-2.0" not in lines[0]:
                yield f"{name}:1: the first line is not the licence tag"
            if path.suffix == ".h" and "#pragma once" not in lines:
                yield f"{name}:1: no #pragma once"
            # A backend that is a folder keeps its vendor to itself.
            in_backend = re.match(r"trainer/backends/[^/]+/", name)
            in_program = not name.startswith(("bench/micro/", "bench/peers/", "bench/gpu/"))
            checks_gpus = name.startswith("bench/gpu/")  # a test that is carried to other machines
            for number, line in enumerate(lines, 1):
                ours, system = HEADERS_OF_OURS.match(line), SYSTEM.match(line)
                if ours and ours[2] not in allowed and not (checks_gpus and ours[1].startswith("tests/support/")):
                    yield f"{name}:{number}: {folder} may not include {ours[1]}"
                if system and path.suffix == ".h" and not in_backend and VENDORS.match(system[1]):
                    yield f"{name}:{number}: vendor header {system[1]} in a header"
                if in_program and re.search(r"\bdynamic_cast<|#ifdef PENSTOCK_WITH", line):
                    yield f"{name}:{number}: {line.strip()}"
            if len(lines) > 600:
                yield f"{name}: {len(lines)} lines; the limit is 400, 600 at most"


def main():
    root = pathlib.Path(sys.argv[1])
    found = [*breaches(root), *breaches_of_documents(root)]
    print("\n".join(found) if found else "no breach")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
