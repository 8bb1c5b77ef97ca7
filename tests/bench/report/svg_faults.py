#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the faults of a folder's SVG files, one line each: svg_faults.py FOLDER. No output means no fault.

A file must be well-formed XML with a title and a description and finite numbers inside the figure. It must contain
nothing that a browser would run or fetch.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

ALLOWED = {"svg", "title", "desc", "style", "rect", "line", "polyline", "polygon", "circle", "g", "text"}
HORIZONTAL, VERTICAL = {"x", "x1", "x2", "cx"}, {"y", "y1", "y2", "cy"}
NUMBER = re.compile(r"-?\d+(\.\d+)?")
SLACK = 12  # pixels: marks may stand a little outside


def faults(path):
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        yield f"not XML: {error}"
        return
    width, height = (float(number) for number in root.get("viewBox").split()[2:])
    if not (0 < width < 5000 and 0 < height < 50000):
        yield f"a size of {width} x {height}"
    for name in ("title", "desc"):
        found = [child for child in root if child.tag.endswith(name)]
        if len(found) != 1 or not (found[0].text or "").strip():
            yield f"no {name}"
    for element in root.iter():
        kind = element.tag.split("}")[-1]
        if kind not in ALLOWED:
            yield f"an element <{kind}>"
        for name, value in element.attrib.items():
            if name in HORIZONTAL | VERTICAL | {"r", "width", "height"}:
                if not NUMBER.fullmatch(value) and value != "100%":
                    yield f"<{kind} {name}={value!r}>"
                elif name in HORIZONTAL and not -SLACK <= float(value) <= width + SLACK:
                    yield f"<{kind} {name}={value!r}> outside {width}"
                elif name in VERTICAL and not -SLACK <= float(value) <= height + SLACK:
                    yield f"<{kind} {name}={value!r}> outside {height}"
                elif name in {"r", "width", "height"} and value.startswith("-"):
                    yield f"<{kind} {name}={value!r}> is negative"
            elif name == "points":
                if not all(NUMBER.fullmatch(number) for number in re.split(r"[ ,]", value)):
                    yield f"points {value[:80]!r}"
            elif name not in {"class", "viewBox", "role", "text-anchor"}:
                yield f"an attribute {name}={value!r}"


if __name__ == "__main__":
    for svg in sorted(pathlib.Path(sys.argv[1]).glob("*.svg")):
        for fault in faults(svg):
            print(f"{svg.name}: {fault}")
