#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs on packed data, with a user's commands. One shard in the folder's order is shuffled in the same way as the folder,
# so every step has the same loss as with the folder. Usage: packed_sources_test.sh PENSTOCK PYTHON PACK_IMAGES
set -eu
penstock=$1 python=$2 pack=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

"$penstock" dataset make --data-dir images --images 40 --val-images 4 --classes 4 > /dev/null
train() {  # train NAME QUEUE PLACE
  "$penstock" run --json --device cpu --model tiny_cnn --classes 4 --batch-size 8 --compute-threads 1 --order strict \
    --num-epochs 2 --num-warmup-batches 0 --fake-location "$2" --data-dir "$3" > "$1.json"
}
losses() {
  "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["losses"])' "$1.json"
}
train folder queue images/train
losses folder | grep -q ,  # more than one step

"$python" "$pack" tfrecord images/train tfrecord
train tfrecord queue:source=tfrecord tfrecord
test "$(losses tfrecord)" = "$(losses folder)"
echo "tfrecord: the losses of the folder"
train memory queue:source=memory tfrecord
test "$(losses memory)" = "$(losses folder)"
grep -q 'holds 40 of 40 images' memory.json
echo "tfrecord in memory: the losses of the folder"

"$penstock" dataset index --data-dir images/train | grep 'images/train/.penstock-manifest: 40 files of 4 classes'
train indexed queue images/train
test "$(losses indexed)" = "$(losses folder)"
grep -q "the list of 40 images is that of 'images/train/.penstock-manifest'" indexed.json
echo "an indexed folder: its losses"

for place in images/train tfrecord; do
  train repeated queue:repeat_cached_sample=true $place
  grep -q 'every sample is the first of the set' repeated.json
done
test "$(losses repeated)" != "$(losses folder)"
echo "a repeated sample: trained on"

"$python" "$pack" webdataset images/train webdataset label=json
train webdataset "queue:source='webdataset:label=json'" webdataset
test "$(losses webdataset)" = "$(losses folder)"
echo "webdataset: the losses of the folder"

# Compressed shards have a different order.
"$python" "$pack" webdataset images/train compressed shards=3 compress=gzip
train compressed queue:source=webdataset compressed
losses compressed | grep -q ,
grep -q 'the shuffle buffer holds' compressed.json
echo "compressed: trained on"

# A sweep accepts lists with braces, too.
"$python" "$pack" tfrecord images/train shards shards=2
"$penstock" sweep --fake-location queue:source=tfrecord --data-dir 'shards/train-{00000..00001}-of-00002' --model null \
  --batch-size 8 --num-batches 5 --repetitions 1 --device emulated:img_per_s=400 > sweep.txt
echo "a sweep of a list of shards: done"
