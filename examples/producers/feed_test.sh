#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Feeds `penstock run` from a producer over a real socket and checks that its images arrived.
# Usage: feed_test.sh PENSTOCK OPTIONS COMMAND...
#   OPTIONS   further options of zmq-consume, besides endpoint and hwm, such as format=framed; '' for none
#   COMMAND   starts the producer, with batches of 8; FEED and IMAGES stand for the endpoint and a folder of JPEG files
set -eu
penstock=$1 options=$2
shift 2

. "$(dirname "$0")/find_interpreter.sh"

folder=$(mktemp -d)
producer=
trap 'test -z "$producer" || kill "$producer" 2>/dev/null || true; rm -rf "$folder"' EXIT
for word; do
  shift
  case $word in
    FEED) word=ipc://$folder/feed ;;
    IMAGES)
      word=$folder/images/train
      "$penstock" dataset make --data-dir "$folder/images" --images 24 --val-images 3 > /dev/null 2>&1
      ;;
  esac
  set -- "$@" "$word"
done
"$@" &
producer=$!
"$penstock" run --json --fake-location "zmq-consume:endpoint=ipc://$folder/feed,hwm=2${options:+,$options}" \
  --model null --batch-size 8 --num-warmup-batches 2 --num-batches 20 --timeout 60s > "$folder/result.json"
python3 - "$folder/result.json" <<'CHECK'
import json, sys

result = json.load(open(sys.argv[1]))
counters = result["counters"]
assert len(result["step_ms"]) == 20, result
assert counters["images_received"] >= 22 * 8, counters
assert counters["messages_rejected"] == 0, result["notes"]
print(counters["images_received"], "images arrived")
CHECK
