#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders pages in headless Chromium: pictures for people, and faults that a program can detect.

screenshot.py --out FOLDER PAGE.html...   a PNG of each page at 1280 and 400 pixels, light and dark
screenshot.py --check PAGE.html...        exits 1, and says where, if at either width the page is wider
                                          than the screen, or text of a figure overlaps or leaves it

Exits 77 if Chromium is missing.
"""
import argparse
import html
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

WIDTHS = (1280, 400)
SCHEMES = {"light": "1", "dark": "0"}  # values of Blink's preferredColorScheme
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_S = 60

# Runs beside the page, which is in a frame of the emulated screen's width.
PROBE = """
const frame = document.querySelector("iframe");
frame.addEventListener("load", () => {
  const page = frame.contentDocument, faults = [], width = frame.clientWidth;
  const root = page.scrollingElement, height = root.scrollHeight;
  for (const each of page.querySelectorAll("details")) each.open = true;
  if (root.scrollWidth > width) {
    const wide = [...page.querySelectorAll("body *")].filter(
        (each) => each.getBoundingClientRect().right > width + 1);
    faults.push("the page is " + root.scrollWidth + " wide: " +
                wide.slice(0, 3).map((each) => each.outerHTML.slice(0, 120)).join(" / "));
  }
  for (const figure of page.querySelectorAll("svg")) {
    const edge = figure.getBoundingClientRect();
    if (edge.width === 0) continue;
    const name = figure.querySelector("title").textContent;
    const texts = [...figure.querySelectorAll("text")].map(
        (each) => [each.textContent, each.getBoundingClientRect()]);
    for (const [text, box] of texts) {
      if (box.left < edge.left - 1 || box.right > edge.right + 1 || box.top < edge.top - 1 ||
          box.bottom > edge.bottom + 1) {
        faults.push(name + ": '" + text + "' leaves the figure");
      }
    }
    for (let i = 0; i < texts.length; ++i) for (let j = 0; j < i; ++j) {
      const [a, b] = [texts[i][1], texts[j][1]];
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 3) {
        faults.push(name + ": '" + texts[j][0] + "' and '" + texts[i][0] + "' overlap");
      }
    }
  }
  const found = document.createElement("pre");
  found.textContent = JSON.stringify({height, figures:
      page.querySelectorAll("svg").length, faults});
  document.body.append(found);
});
"""


def browse(browser, *arguments):
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout


def probe(browser, page, width):
    """{"height", "figures", "faults"} of a page at a width."""
    with tempfile.TemporaryDirectory() as folder:
        harness = pathlib.Path(folder) / "harness.html"
        harness.write_text(
            f'<!doctype html><meta charset="utf-8"><style>iframe{{border:0;width:{width}px;height:800px}}</style>'
            f'<iframe srcdoc="{html.escape(page.read_text())}"></iframe><script>{PROBE}</script>'
        )
        dom = browse(browser, "--window-size=1400,900", "--virtual-time-budget=5000", "--dump-dom", harness.as_uri())
    found = re.search(r"<pre>(\{.*\})</pre>\s*</body>", dom, re.S)
    if not found:
        sys.exit(f"{page}: {browser} did not show the page; it said:\n{dom[:2000]}")
    return json.loads(html.unescape(found[1]))


def check(browser, pages):
    faults = 0
    for page in pages:
        for width in WIDTHS:
            found = probe(browser, page, width)
            for fault in found["faults"]:
                print(f"{page.name} at {width}: {fault}")
            faults += len(found["faults"])
            print(f"{page.name} at {width}: {found['figures']} figures, {len(found['faults'])} faults")
    return 1 if faults else 0


def shoot(browser, pages, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for page in pages:
        for width in WIDTHS:
            height = probe(browser, page, width)["height"]
            for scheme, value in SCHEMES.items():
                picture = folder / f"{page.stem}-{width}-{scheme}.png"
                browse(browser, f"--window-size={width},{height}", f"--blink-settings=preferredColorScheme={value}",
                       f"--screenshot={picture.resolve()}", page.resolve().as_uri())
                size = struct.unpack(">II", picture.read_bytes()[16:24])
                if size[0] != width:
                    sys.exit(f"{picture} is {size[0]} pixels wide, not {width}")
                print(picture)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true")
    what.add_argument("--out", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("pages", nargs="+", type=pathlib.Path, metavar="PAGE.html")
    arguments = parser.parse_args()
    missing = [str(page) for page in arguments.pages if not page.is_file()]
    if missing:
        parser.error(f"cannot read {', '.join(missing)}; expected HTML files; name those that a sweep left")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("skipped: no Chromium here; install the package chromium")
        return 77
    if arguments.check:
        return check(browser, arguments.pages)
    return shoot(browser, arguments.pages, arguments.out)


if __name__ == "__main__":
    sys.exit(main())
