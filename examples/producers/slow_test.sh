#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A producer that ends while its consumer has no room must lose no message over ipc.
# Usage: slow_test.sh PENSTOCK COMMAND...
#   COMMAND   a producer that sends 22 batches of one image of 32 x 32 each and ends; FEED stands for the endpoint,
#             and C FILE for the program compiled from FILE
set -eu
penstock=$1
shift
. "$(dirname "$0")/find_interpreter.sh"

folder=$(mktemp -d)
producer=
trap 'test -z "$producer" || kill "$producer" 2>/dev/null || true; rm -rf "$folder"' EXIT
if [ "$1" = C ]; then
  cc -std=c99 -o "$folder/producer" "$2" -lzmq
  shift 2
  set -- "$folder/producer" "$@"
fi
for word; do
  shift
  case $word in FEED) word=ipc://$folder/feed ;; esac
  set -- "$@" "$word"
done
"$@" &
producer=$!
# All batches together fit into the kernel's buffer.
"$penstock" run --json --fake-location "zmq-consume:endpoint=ipc://$folder/feed,hwm=1" --model trivial \
  --image-size 32 --device emulated:img_per_s=20 --batch-size 1 --num-warmup-batches 2 --num-batches 20 \
  --timeout 20s > "$folder/result.json"
wait "$producer"
producer=
python3 - "$folder/result.json" <<'CHECK'
import json, sys

result = json.load(open(sys.argv[1]))
counters = result["counters"]
assert len(result["step_ms"]) == 20, result
assert counters["images_received"] == 22, counters
assert counters["messages_rejected"] == 0, result["notes"]
print("all of 22 images arrived")
CHECK
