#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The programs of an unpacked bundle start in an empty environment, with the bundle's libraries.
# Usage: bundle_test.sh SOURCE_DIRECTORY BUILD_DIRECTORY [--without-cuda]
set -eu
source=$1 build=$2
shift 2

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$source/bench/gpu/bundle.sh" "$folder/visit.tar.gz" --build "$build" "$@"
tar -C "$folder" -xzf "$folder/visit.tar.gz"
cd "$folder/penstock-gpu"
alone() { env -i "$@"; }
alone ./run penstock --version
alone ./run penstock list | grep -q '^device'
alone ./run penstock_gpu_check device --driver host
alone ./run visit 1 --dry --only device --out "$folder/out" --state "$folder/state" | grep -q '^device.*done'

# Libraries from the packing machine's other folders must come from the bundle.
alone ./run /usr/bin/ldd bin/penstock > "$folder/loaded"
for library in lib/*; do
  name=$(basename "$library")
  if grep -q "^[[:space:]]*$name " "$folder/loaded" && ! grep "^[[:space:]]*$name " "$folder/loaded" | grep -q "$folder/penstock-gpu/lib"; then
    echo "$name is not taken from the bundle:"
    grep "$name" "$folder/loaded"
    exit 1
  fi
done
[ ! -e lib/libc.so.6 ] && [ ! -e lib/libstdc++.so.6 ]
