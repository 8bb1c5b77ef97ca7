#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Feeds `penstock run` from produce.py over a real socket and checks that the images arrived.
# Usage: produce_test.sh PENSTOCK FORMAT
set -eu
penstock=$1
format=$2
here=$(dirname "$0")

python=
for candidate in python3 /usr/bin/python3; do
  if "$candidate" -c 'import zmq, numpy' 2>/dev/null; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
  echo "skipped: no python3 has both zmq and numpy; install python3-zmq and python3-numpy"
  exit 77
fi
if [ "$format" = msgpack ] && ! "$python" -c 'import msgpack_numpy' 2>/dev/null; then
  echo "skipped: $python has no msgpack_numpy; install python3-msgpack-numpy"
  exit 77
fi

folder=$(mktemp -d)
producer=
trap 'test -z "$producer" || kill "$producer" 2>/dev/null || true; rm -rf "$folder"' EXIT
"$python" "$here/produce.py" --endpoint "ipc://$folder/feed" --format "$format" --batch 8 --hwm 2 \
  --count 22 &
producer=$!
"$penstock" run --json --fake-location "zmq-consume:endpoint=ipc://$folder/feed,hwm=2" --model null \
  --batch-size 8 --num-warmup-batches 2 --num-batches 20 --timeout 30s > "$folder/result.json"
"$python" - "$folder/result.json" <<'CHECK'
import json, sys

result = json.load(open(sys.argv[1]))
counters = result["counters"]
assert len(result["step_ms"]) == 20, result
assert counters["images_received"] == 22 * 8, counters
assert counters["messages_rejected"] == 0, result["notes"]
print(counters["images_received"], "images arrived")
CHECK
