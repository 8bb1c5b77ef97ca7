#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the house that a compiler does not: who includes whom, that no folders include each other in a circle, how
many files lie at a root, how many lines there are, where vendors live, that no code compares components' names, and the documents.

Usage: house_rules.py SOURCE_DIRECTORY. Prints one line for each breach; exits 1 if there is any.
"""
import collections
import pathlib
import re
import sys

# Layer -> layers of ours that it may include. Tests and examples may include everything.
ALLOWED = {
    "dataflow": {"dataflow"},
    "feeders": {"dataflow", "feeders"},
    "trainer": {"dataflow", "trainer"},
    "bench": {"dataflow", "feeders", "trainer", "bench"},
}
# Layer -> how many C++ files may lie at its root, which is the spine.
ROOT_FILES = {"dataflow": 40, "feeders": 16, "trainer": 40, "bench": 8}
# Lines of C++ outside and inside tests. What comes in pays with what goes out; lines are not won by packing. A commit that raises
# a number gives the reason.
MOST_LINES = {"the program": 115_666, "tests": 72_974}
# The installed library of producers is built without the rest of Penstock.
PRODUCER = "feeders/remote/producer"
PRODUCER_INCLUDES = (f"{PRODUCER}/", "feeders/remote/wire/", "dataflow/net/", "dataflow/values/")
VENDORS = re.compile(
    r"^(tbb|oneapi|zmq|jpeglib|turbojpeg|jerror|png|zlib|zstd|dnnl|oneapi/dnnl|cuda|cudnn|nccl|nvjpeg|mpi|lmdb|hdf5)[/._]?", re.I
)
HEADERS_OF_OURS = re.compile(r'^#include "((dataflow|feeders|trainer|bench|tests|examples)/[^"]+)"')
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
SYSTEM = re.compile(r"^#include <([^>]+)>")
OTHER_PROGRAMS = ("bench/micro/", "bench/peers/", "bench/gpu/")

README_LINES = 150
# Phrases that make a reader parse a sentence twice, and in how many lines they may stand (most are names in code).
PHRASES = {"nobody": 45, "theirs": 75, "of its own": 20, "as it is": 10, "so many": 10, "anybody": 8, "whoever": 6,
           "somebody": 2, "what it came to": 0}
LINK = re.compile(r"\]\(([^()\s]+)\)")


def anchors(text):
    """Anchors of the headings, in GitHub's form."""
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


def folder_of(name):
    return name.rsplit("/", 1)[0]


def may_include(name, header):
    if name.startswith(f"{PRODUCER}/"):
        return header.startswith(PRODUCER_INCLUDES)
    return header.split("/")[0] in ALLOWED[name.split("/")[0]]


def sources(root):
    """Name and lines of each source and header of the layers."""
    for layer in ALLOWED:
        for path in sorted((root / layer).rglob("*")):
            if path.suffix in SUFFIXES:
                yield path.relative_to(root).as_posix(), path.read_text().splitlines()


def circles_of_folders(root):
    """Folders that include each other, directly or by way of others: one line for each include inside a circle."""
    includes = collections.defaultdict(dict)
    for name, lines in sources(root):
        for number, line in enumerate(lines, 1):
            if (ours := HEADERS_OF_OURS.match(line)) and folder_of(ours[1]) != folder_of(name):
                includes[folder_of(name)].setdefault(folder_of(ours[1]), f"{name}:{number}")

    def reached(folder):
        found, waiting = set(), [folder]
        while waiting:
            for next_ in includes[waiting.pop()].keys() - found:
                found.add(next_)
                waiting.append(next_)
        return found

    reach = {folder: reached(folder) for folder in list(includes)}
    for folder, others in sorted(includes.items()):
        for other, place in sorted(others.items()):
            if folder in reach.get(other, ()):
                yield f"{place}: {folder} includes {other}, which includes {folder}; move what both need below them"


def lines_above_the_ceiling(root):
    count = dict.fromkeys(MOST_LINES, 0)
    for folder in [*ALLOWED, "examples", "python", "tests"]:
        for path in (root / folder).rglob("*"):
            if path.suffix in SUFFIXES | {".hpp"} and path.is_file():
                count["tests" if folder == "tests" else "the program"] += len(path.read_text().splitlines())
    for part, limit in MOST_LINES.items():
        if count[part] > limit:
            yield f"{part}: {count[part]} lines of C++; the limit is {limit}. Remove what no longer earns its place"


def unnamed_namespaces(root):
    tests = [path for path in sorted((root / "tests").rglob("*.cpp")) if "fuzz" not in path.parts]
    read = [(path.relative_to(root).as_posix(), path.read_text().splitlines()) for path in tests]
    for name, lines in [*sources(root), *read]:
        if (count := lines.count("namespace {")) > 1:
            yield f"{name}: {count} unnamed namespaces; give each idea a file, or join them"


def component_names(root):
    """The names in the penstock_component() lines. In text a name may have '-' for '_'."""
    for path in [path for layer in ALLOWED for path in (root / layer).rglob("CMakeLists.txt")]:
        for stem, words in re.findall(r"^penstock_component\(\w+ (\w+)([^)]*)\)", path.read_text(), re.M):
            named = re.search(r"\b(?:NAME|ENTRIES)((?:\s+(?!SOURCES|NEEDS)[\w.-]+)+)", words)
            yield from named[1].split() if named else [stem]


def breaches(root):
    names = "|".join(sorted({re.escape(name).replace("_", "[_-]") for name in component_names(root)}))
    compares_name = re.compile(
        rf'\b(name|model|feeder|device|backend|update|optimizer|source)\b[()]*\s*[!=]=\s*"({names})"'
    )
    for layer, limit in ROOT_FILES.items():
        count = sum(path.suffix in SUFFIXES for path in (root / layer).iterdir())
        if count > limit:
            yield f"{layer}: {count} C++ files at its root; the limit is {limit}. Give what is not the spine a folder"
    for layer in ALLOWED:
        for path in sorted((root / layer).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            name = path.relative_to(root).as_posix()
            lines = path.read_text().splitlines()
            if not lines or "SPDX-License-Identifier: Apache-2.0" not in lines[0]:
                yield f"{name}:1: the first line is not the licence tag"
            if path.suffix in {".h", ".cuh"} and "#pragma once" not in lines:
                yield f"{name}:1: no #pragma once"
            # Only the folder of a backend may include its vendor's headers.
            in_backend = re.match(r"trainer/backends/[^/]+/", name)
            in_program = not name.startswith(OTHER_PROGRAMS)
            checks_gpus = name.startswith("bench/gpu/")  # a test that is carried to other machines
            for number, line in enumerate(lines, 1):
                ours, system = HEADERS_OF_OURS.match(line), SYSTEM.match(line)
                if ours and not may_include(name, ours[1]) and not (checks_gpus and ours[1].startswith("tests/support/")):
                    yield f"{name}:{number}: {folder_of(name)} may not include {ours[1]}"
                if system and path.suffix == ".h" and not in_backend and VENDORS.match(system[1]):
                    yield f"{name}:{number}: vendor header {system[1]} in a header"
                if in_program and compares_name.search(line):
                    yield f"{name}:{number}: compares a component's name; make the fact a field of its entry"
                if in_program and "ifstream" in line and '("/proc/' not in line:
                    yield f"{name}:{number}: open a user's file with InputFile: it waits for no FIFO, and reads no device"
                if in_program and re.search(r"\bdynamic_cast<|#ifdef PENSTOCK_WITH", line):
                    yield f"{name}:{number}: {line.strip()}"
            if len(lines) > 600:
                yield f"{name}: {len(lines)} lines; the limit is 400, 600 at most"


def stale_suppressions(root):
    """A sanitizer's suppression of a file that has moved hides nothing, and the next race fails a test that had passed."""
    for path in (root / "tests").glob("*.supp"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            name = line.partition(":")[2]
            if not line.startswith("#") and "/" in name and not (root / name).exists():
                yield f"tests/{path.name}:{number}: {name} does not exist; name the file that has taken its place"


def types_defined(lines):
    """Namespace and name of each type that a file defines outside functions and unnamed namespaces."""
    opened = []
    for line in lines:
        if begin := re.match(r"(?:inline )?namespace ?([\w:]*) ?\{", line):
            opened.append(begin[1])
        elif re.match(r"\}  // namespace", line):
            opened.pop()
        elif "" not in opened and (type_ := re.match(r"(?:class|struct|union|enum class|enum)(?: alignas\(.*?\))? (\w+)\b(?!::)[^;]*$", line)):
            yield "::".join([*opened, type_[1]])


def types_of_one_name(root):
    """Two types of one name in a program are undefined behaviour that neither compiler nor linker reports."""
    found = {}
    for layer in ALLOWED:
        for path in sorted((root / layer).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in SUFFIXES and not name.startswith(OTHER_PROGRAMS):
                for type_ in types_defined(path.read_text().splitlines()):
                    if found.setdefault(type_, name) != name:
                        yield f"{name}: {type_} is defined in {found[type_]} too"


def phrases(root):
    """Phrases that stand in more lines than PHRASES allows, in all but figures and generated lists."""
    folders = [*ALLOWED, "python", "tests", "examples", "cmake", "docs"]
    paths = [*root.glob("*.md"), *(path for folder in folders for path in (root / folder).rglob("*"))]
    lines = [line for path in paths if path.suffix in SUFFIXES | {".md", ".py", ".sh", ".txt", ".cmake"}
             and "bench/results" not in path.as_posix() and path.name not in ("house_rules.py", "capabilities.txt")
             and "corpus" not in path.parts for line in path.read_text(errors="replace").splitlines()]
    for phrase, limit in PHRASES.items():
        pattern = re.compile(rf"\b{phrase}\b", re.I)
        count = sum(bool(pattern.search(line)) for line in lines)
        if count > limit:
            yield f"{count} lines have the phrase '{phrase}'; the limit is {limit}. Name the thing"


def main():
    root = pathlib.Path(sys.argv[1])
    checks = (breaches, circles_of_folders, unnamed_namespaces, lines_above_the_ceiling, stale_suppressions, types_of_one_name, phrases,
              breaches_of_documents)
    found = [line for check in checks for line in check(root)]
    print("\n".join(found) if found else "no breach")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
