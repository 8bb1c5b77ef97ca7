#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training on files of the packages tfrecord and webdataset equals training on their image folder. These packages can
# read the files of the tests' writer. Usage: packed_data_test.sh PENSTOCK VENV PACK_IMAGES
set -eu
penstock=$1 venv=$2 pack=$3
here=$(cd "$(dirname "$0")" && pwd)

if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import tfrecord, webdataset' 2> /dev/null; then
  echo "skipped: no tfrecord and webdataset in $venv; run \`make interop\`"
  exit 77
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$penstock" dataset make --data-dir images --images 40 --val-images 4 --classes 4 > /dev/null
for format in tfrecord webdataset; do
  "$venv/bin/python" "$pack" $format images/train "ours/$format"
done
"$venv/bin/python" "$here/packed_data.py" check images/train ours
"$venv/bin/python" "$here/packed_data.py" write images/train theirs

train() {  # train NAME QUEUE PLACE
  "$penstock" run --json --device cpu --model tiny_cnn --classes 4 --batch-size 8 --compute-threads 1 --order strict \
    --num-epochs 2 --num-warmup-batches 0 --fake-location "$2" --data-dir "$3" > "$1.json"
}
losses() {
  "$venv/bin/python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["losses"])' "$1.json"
}
train folder queue images/train
for format in tfrecord webdataset; do
  train $format "queue:source=$format" "theirs/$format"
  test "$(losses $format)" = "$(losses folder)"
  echo "$format: the losses of the folder"
done
train compressed queue:source=webdataset theirs/compressed
echo "compressed: trained on"
