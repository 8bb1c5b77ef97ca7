#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tensorpack's sender feeds `penstock run`, in both spellings of its format.
# Usage: tensorpack_test.sh PENSTOCK VENV
set -eu
penstock=$1 venv=$2
here=$(dirname "$0")

if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import tensorpack, zmq' 2> /dev/null; then
  echo "skipped: no tensorpack in $venv; run \`make interop\`"
  exit 77
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PYTHONPATH="$here/shim"
for format in zmq_op zmq_ops; do
  feed="ipc://$folder/$format"
  producer="exec $venv/bin/python $here/tensorpack_producer.py $feed 16 $format"
  "$penstock" run --json --fake-location "zmq-consume:endpoint=$feed,hwm=4,producer='$producer'" \
    --model null --batch-size 16 --num-warmup-batches 2 --num-batches 30 --timeout 60s > "$folder/result.json"
  "$venv/bin/python" - "$folder/result.json" "$format" <<'CHECK'
import json, sys

result = json.load(open(sys.argv[1]))
counters = result["counters"]
assert len(result["step_ms"]) == 30, result
assert counters["images_received"] >= 32 * 16, counters
assert counters["messages_rejected"] == 0, result["notes"]
print(sys.argv[2] + ":", counters["images_received"], "images arrived from tensorpack")
CHECK
done
