#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# MosaicML Streaming's writer makes the shards that `penstock run` reads. They are identical, byte for byte, to the
# shards of the writer that the reader's tests use.
# Usage: streaming_test.sh PENSTOCK VENV
set -eu
penstock=$1 venv=$2
here=$(dirname "$0")

if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import streaming, PIL' 2> /dev/null; then
  echo "skipped: no mosaicml-streaming in $venv; run \`make interop\`"
  exit 77
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$penstock" dataset make --data-dir "$folder/images" --images 12 --val-images 3 > /dev/null 2>&1
for columns in index:int,x:jpeg,y:int image:bytes,label:uint16 a:jpeg,label:int32 x:jpeg,y:str_int; do
  rm -rf "$folder/theirs" "$folder/ours"
  "$venv/bin/python" "$here/streaming_writer.py" "$folder/images/train" "$folder/theirs" "$columns"
  "$venv/bin/python" "$here/../support/packed_writers.py" mds "$folder/images/train" "$folder/ours" "columns=$columns"
  cmp "$folder/theirs/shard.00000.mds" "$folder/ours/shard.00000.mds"
  "$venv/bin/python" - "$folder/theirs/index.json" "$folder/ours/index.json" <<'CHECK'
import json, sys

theirs, ours = (json.load(open(path)) for path in sys.argv[1:])
assert theirs == ours, (theirs, ours)
CHECK
  "$penstock" run --fake-location queue:source=mds --data-dir "$folder/theirs" --model null --batch-size 4 \
    --num-warmup-batches 1 --num-batches 6 > "$folder/out"
  grep "total images/sec" "$folder/out"
done

# Compressed shards are refused with a command that decompresses them, if its tool is installed.
rm -rf "$folder/theirs"
"$venv/bin/python" "$here/streaming_writer.py" "$folder/images/train" "$folder/theirs" x:jpeg,y:int gz:5
if "$penstock" run --fake-location queue:source=mds --data-dir "$folder/theirs" --model null 2> "$folder/refusal"; then
  echo "compressed shards were read"
  exit 1
fi
sed -n 's/.*run `\(gunzip [^`]*\)`.*/\1/p' "$folder/refusal" > "$folder/command"
grep gunzip "$folder/command"
sh "$folder/command"
"$penstock" run --fake-location queue:source=mds --data-dir "$folder/theirs" --model null --batch-size 4 \
  --num-warmup-batches 1 --num-batches 6 | grep "total images/sec"
