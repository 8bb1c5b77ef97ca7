#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the cost of reading each format of data sets. All hold the same images, the feeder `queue`
# decodes them, and the consumer takes every batch. Files are in the page cache, or cold.
#
#   bench/peers/formats.sh [PROGRAM [FOLDER [FLAGS OF `penstock sweep`...]]]
#
# FOLDER (formats) receives the images, each format's files and the results: results.csv, results.md,
# results.json and report.html in FOLDER/results. IMAGES (2000) is the number of images: a run takes
# fewer, so that a cold run reads no file twice.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
program=$(realpath "${1:-build/penstock}")
folder=${2:-formats}
shift $(($# > 2 ? 2 : $#))
mkdir -p "$folder"
cd "$folder"

formats="tfrecord webdataset mds beton lmdb raw"
"$program" dataset make --data-dir images --images "${IMAGES:-2000}" --val-images 1
places=images/train
for format in $formats; do
  if [ ! -e "$format" ]; then
    "$program" dataset convert --data-dir images/train --to "$format" --out "$format"
  fi
  places=$places,$format
done
if command -v zstd > /dev/null && [ ! -e webdataset-zstd ]; then
  mkdir webdataset-zstd.partial
  for tar in webdataset/*.tar; do zstd -q "$tar" -o "webdataset-zstd.partial/$(basename "$tar").zst"; done
  mv webdataset-zstd.partial webdataset-zstd
fi
[ ! -e webdataset-zstd ] || places=$places,webdataset-zstd
du -sh --apparent-size ${places//,/ }
"$program" sweep --model null --fake-location queue --data-dir "$places" --page-cache warm,cold --classes 8 \
  --num-gpus 1 --feeder-threads 1 --batch-size 32 --num-batches 48 --num-warmup-batches 3 --noextend-window \
  --out results "$@"
"$here/formats_table.py" results/results.json
