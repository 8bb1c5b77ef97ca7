# SPDX-License-Identifier: Apache-2.0
# Sourced by tests, with this folder in $producers: starts the producer "$@" in the background, and makes $folder, which is removed
# at the end. FEED and IMAGES stand for the endpoint, ipc://$folder/feed, and a folder of JPEG files, $folder/images/train; C FILE
# for the program compiled from FILE.
folder=$(mktemp -d)
producer=
trap 'test -z "$producer" || kill "$producer" 2>/dev/null || true; rm -rf "$folder"' EXIT
. "$producers/find_interpreter.sh"
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

check_arrived() {  # check_arrived IMAGES [all]: that many at least, or exactly, in a run of 20 steps
  python3 - "$folder/result.json" "$@" <<'CHECK'
import json, sys

result = json.load(open(sys.argv[1]))
counters = result["counters"]
assert len(result["step_ms"]) == 20, result
received, sent = counters["images_received"], int(sys.argv[2])
assert received == sent if "all" in sys.argv else received >= sent, counters
assert counters["messages_rejected"] == 0, result["notes"]
print(received, "images arrived")
CHECK
}
