#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# MXNet's writer makes the .rec files that `penstock run` reads. They are identical, byte for byte, to the files of the
# writer that the reader's tests use.
# Usage: mxnet_test.sh PENSTOCK VENV
set -eu
penstock=$1 venv=$2
here=$(dirname "$0")

if [ ! -x "$venv/bin/python" ] ||
   ! "$venv/bin/python" -c 'import numpy; numpy.bool = bool; import mxnet.recordio' 2> /dev/null; then
  echo "skipped: no mxnet in $venv; run \`make interop\`"
  exit 77
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$penstock" dataset make --data-dir "$folder/images" --images 12 --val-images 3 > /dev/null 2>&1
# After the end of some images the magic number follows at each offset modulo four, so their records are split.
for image in "$folder"/images/train/*/*0.JPEG; do
  printf '\012\043\327\316-\012\043\327\316-\012\043\327\316-\012\043\327\316-\012\043\327\316\012\043\327\316' >> "$image"
done
for labels in 0 1 3; do
  "$venv/bin/python" "$here/mxnet_writer.py" "$folder/images/train" "$folder/theirs.rec" $labels
  "$venv/bin/python" "$here/../support/packed_writers.py" recordio "$folder/images/train" "$folder/ours.rec" \
    labels=$labels
  cmp "$folder/theirs.rec" "$folder/ours.rec"
  cmp "$folder/theirs.idx" "$folder/ours.idx"
  "$penstock" run --fake-location queue:source=recordio:index=beside --data-dir "$folder/theirs.rec" --model null \
    --batch-size 4 --num-warmup-batches 1 --num-batches 6 > "$folder/out"
  grep "total images/sec" "$folder/out"
done
