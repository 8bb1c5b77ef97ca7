#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Python's ctypes calls the library, with keys from `penstock keygen`, and feeds `penstock run`.
# Usage: ffi_test.sh PENSTOCK LIBRARY SOURCE
set -eu
penstock=$1 library=$2 source=$3

keys=$(mktemp -d)
trap 'rm -rf "$keys"' EXIT
"$penstock" keygen --out "$keys/trainer" --name trainer > "$keys/said"
"$penstock" keygen --out "$keys/loader" --name loader >> "$keys/said"
mkdir "$keys/allowed"
cp "$keys/loader/loader.key" "$keys/allowed"
sh "$source/examples/producers/feed_test.sh" "$penstock" \
  "curve_secret=$keys/trainer/trainer.key_secret,curve_allow=$keys/allowed" \
  python3 "$source/tests/feeders/remote/producer/ffi_producer.py" "$library" FEED 8 "$keys/trainer/trainer.key" \
  "$keys/loader/loader.key_secret"
