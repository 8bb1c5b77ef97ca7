#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the manual as a site, and follows its links.

Usage: site_test.py SOURCE_DIRECTORY WORK_DIRECTORY

Needs mkdocs; exits 77, with the reason, if the theme is missing. Debian's mkdocs-material has both.
"""
import html.parser
import os
import pathlib
import subprocess
import sys
import urllib.parse

LIMIT_S = 120


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.update({values.get("id"), values.get("name")})
        self.links += [values[name] for name in ("href", "src") if values.get(name)]


def broken_links(site):
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                if parts.scheme not in ("http", "https", "mailto", "data"):
                    yield f"{path.relative_to(site)}: {link} has an unknown scheme"
                continue
            target = path if not parts.path else (path.parent / urllib.parse.unquote(parts.path)).resolve()
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{path.relative_to(site)}: {link} leads nowhere"
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
                yield f"{path.relative_to(site)}: {link} has no such place"


def main():
    source, work = (pathlib.Path(each).resolve() for each in sys.argv[1:])
    site = work / "site"
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--config-file", source / "mkdocs.yml", "--site-dir", site],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False,
                          env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})  # an advertisement
    if "theme name: 'material'" in done.stdout:
        print("skipped: mkdocs has no theme material; install mkdocs-material")
        return 77
    faults = [line for line in done.stdout.splitlines() if line.startswith(("WARNING", "ERROR"))]
    if done.returncode or faults:
        print(done.stdout)
        return 1
    faults = list(broken_links(site))
    if not (site / "search" / "search_index.json").exists():
        faults.append("the site has no search")
    pages = sorted(path.stem for path in (source / "docs").glob("*.md"))
    missing = [page for page in pages if page != "README" and not (site / page / "index.html").exists()]
    faults += [f"docs/{page}.md is not in the site" for page in missing]
    outside = [str(path.relative_to(site)) for path in site.rglob("*.html") if "https://fonts.g" in path.read_text(encoding="utf-8")]
    faults += [f"{path}: loads fonts from another host" for path in outside]
    print("\n".join(faults) if faults else f"{len(pages)} pages, no warning, no broken link")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
